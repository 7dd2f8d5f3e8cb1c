//! What is said about runs: `riverrun.agent.commands` and `riverrun.agent.events`.

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::common::{BlobRef, Failure, Usage};
use crate::ids::{ChainId, ChunkId, DocumentId, EventId, RunId};
use crate::names::Namespace;

/// Which tool calls wait for a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalPolicy {
    /// None.
    Never,
    /// Those that change something outside.
    #[default]
    External,
    /// All.
    Always,
    /// A policy of a newer version; treated as the strictest.
    Unknown,
}

/// What happens to a run whose session has one that goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionPolicy {
    /// It waits for its turn.
    #[default]
    Enqueue,
    /// It ends at once as failed.
    Reject,
    /// The others of the session are cancelled, and it follows.
    Interrupt,
    /// A policy of a newer version; treated as `Enqueue`, which loses nothing.
    Unknown,
}

/// What a run is asked to do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The task, in words.
    pub task: String,
    /// The agent type; `None` lets the supervisor choose.
    pub agent: Option<String>,
    /// The only namespace whose tools, memory and collections the run may use.
    pub namespace: Namespace,
    /// Conversation that the run belongs to.
    pub session: Option<String>,
    /// Model provider; `None` is the default one.
    pub provider: Option<String>,
    /// Chat model; `None` is the default one.
    pub model: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Most iterations of the agent's loop.
    pub max_iters: Option<i32>,
    /// Names of the tools it may use; `None` is every tool of the namespace.
    pub tools: Option<Vec<String>>,
    /// Names of the collections it may read; `None` is every collection of the namespace.
    pub collections: Option<Vec<String>>,
    /// Most tokens, read and written together.
    pub budget_tokens: Option<i64>,
    /// Most seconds from acceptance to end.
    pub budget_seconds: Option<i64>,
    /// Which tool calls wait for a person.
    pub approval: ApprovalPolicy,
    /// The caller's own JSON object, kept and given back.
    pub metadata_json: Option<String>,
    /// What happens when the session has a run that goes on; without a session, nothing.
    #[serde(default)]
    pub session_policy: SessionPolicy,
    /// Runs that must succeed before this one begins; their answers are its input, in this order. Those of its own
    /// partition cost nothing while it waits, those of others are looked for.
    #[serde(default)]
    pub after: Vec<RunId>,
    /// The chain that it was started with; `None` for a run that was started by itself.
    #[serde(default)]
    pub chain: Option<ChainLink>,
}

/// A run's place in a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainLink {
    /// The chain. Its id lies in the partition of all its runs.
    pub chain_id: ChainId,
    /// The run's name within the chain.
    pub name: String,
    /// How many runs the chain has.
    pub runs: i32,
}

/// Asks for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartRun {
    /// Drawn by the caller, or derived from its idempotency key.
    pub run_id: RunId,
    /// What to do.
    pub request: RunRequest,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks a run to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CancelRun {
    /// The run.
    pub run_id: RunId,
    /// Why, in words.
    pub reason: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// What a person says to a question of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Do it.
    Approve,
    /// Do not do it.
    Deny,
    /// A decision of a newer version; treated as `Deny`.
    Unknown,
}

/// Answers a run that waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecideApproval {
    /// The run.
    pub run_id: RunId,
    /// `seq` of the approval step.
    pub step: i64,
    /// The answer.
    pub decision: Decision,
    /// Why, in words; the model reads it when the answer is no.
    pub note: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Where a run branches off another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    /// The other run.
    pub run_id: RunId,
    /// The last step that both share.
    pub at_seq: i64,
}

/// Asks for a run that begins with steps of another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForkRun {
    /// The new run, drawn by the caller.
    pub run_id: RunId,
    /// Where it branches off.
    pub forked_from: ForkedFrom,
    /// What the new run is to do.
    pub request: RunRequest,
    /// The shared steps, when they are small.
    pub steps: Vec<Step>,
    /// The shared steps as a JSON array, when they are large.
    pub steps_blob: Option<BlobRef>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks a run that waits to look again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResumeRun {
    /// The run.
    pub run_id: RunId,
    /// Milliseconds since the epoch.
    pub at: i64,
}

event_set! {
    /// Commands to runs.
    AgentCommand on AgentCommands;
    /// Asks for a run.
    StartRun = "riverrun.agent.StartRun", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "start"]);
    /// Asks a run to stop.
    CancelRun = "riverrun.agent.CancelRun", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "cancel", &e.at.to_string()]);
    /// Answers a run that waits for a person.
    DecideApproval = "riverrun.agent.DecideApproval", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "decide", &e.step.to_string(), &e.at.to_string()]);
    /// Asks for a run that begins with steps of another.
    ForkRun = "riverrun.agent.ForkRun", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "fork"]);
    /// Asks a run that waits to look again.
    ResumeRun = "riverrun.agent.ResumeRun", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "resume", &e.at.to_string()]);
}

impl AgentCommand {
    /// The run that is spoken to.
    pub fn run_id(&self) -> RunId {
        match self {
            AgentCommand::StartRun(c) => c.run_id,
            AgentCommand::CancelRun(c) => c.run_id,
            AgentCommand::DecideApproval(c) => c.run_id,
            AgentCommand::ForkRun(c) => c.run_id,
            AgentCommand::ResumeRun(c) => c.run_id,
        }
    }
}

/// What happened in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The supervisor chose an agent.
    Route,
    /// A plan was made.
    Plan,
    /// The model reasoned.
    Thought,
    /// A tool is about to be used: written before the call.
    ToolCall,
    /// What the call gave.
    ToolResult,
    /// A tool call waits for a person: the call inside, why in `text`. A call with an `error` was made before, and what came
    /// of it is not known.
    Approval,
    /// The agent looked back.
    Reflection,
    /// A draft was judged.
    Critique,
    /// The final answer.
    Answer,
    /// The conversation outgrew the model's context: what of it is left out from here on, in words and as JSON in `text`.
    Compaction,
    /// A kind of a newer version.
    Unknown,
}

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolEffect {
    /// Nothing: it may be called again at will.
    None,
    /// The same after two calls as after one.
    Idempotent,
    /// Something outside changes at every call: never repeated on a guess.
    External,
    /// An effect of a newer version; treated as external.
    Unknown,
}

impl ToolEffect {
    /// Whether a call whose outcome is unknown may be made again.
    pub fn repeatable(self) -> bool {
        match self {
            ToolEffect::None | ToolEffect::Idempotent => true,
            ToolEffect::External | ToolEffect::Unknown => false,
        }
    }
}

/// The use of a tool: intent (kind `tool_call`) or outcome (kind `tool_result`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Derived from run, step and arguments; also the idempotency key.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// A JSON object.
    pub arguments_json: String,
    /// What the tool does to the world.
    pub effect: ToolEffect,
    /// JSON, on success: the result, or its beginning where `result_blob` has the whole.
    pub result_json: Option<String>,
    /// The whole result, when that is large. What was written before riverrun kept beginnings has no `result_json` beside it.
    pub result_blob: Option<BlobRef>,
    /// What went wrong.
    pub error: Option<String>,
    /// How long the call took, in milliseconds.
    pub duration_ms: Option<i64>,
}

/// One visible step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Counts from 1 within the run, without gaps.
    pub seq: i64,
    /// What happened.
    pub kind: StepKind,
    /// The agent type at work.
    pub agent: String,
    /// Words of the model, the supervisor or a person.
    pub text: Option<String>,
    /// For `tool_call`, `tool_result` and `approval`.
    pub tool: Option<ToolUse>,
    /// Tokens of the model call that this step came from, once per call.
    pub usage: Option<Usage>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A place in a document that an answer names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Citation {
    /// The number in the text, from 1.
    pub n: i32,
    /// The chunk.
    pub chunk_id: ChunkId,
    /// The document.
    pub document_id: DocumentId,
    /// Where the document came from.
    pub source: String,
    /// First byte in the stored text of the document version.
    pub start: i64,
    /// First byte after it.
    pub end: i64,
    /// Page, from 1, where the format has pages.
    pub page: Option<i32>,
    /// The words cited.
    pub quote: String,
    /// The sentence that carries the number is supported by the quote.
    pub supported: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// With an answer.
    Succeeded,
    /// Without one.
    Failed,
    /// Because it was asked to.
    Cancelled,
    /// An outcome of a newer version.
    Unknown,
}

/// The run exists from here on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunAccepted {
    /// The run.
    pub run_id: RunId,
    /// What to do, with every default filled in.
    pub request: RunRequest,
    /// Set for a fork: its first steps, copied under epoch 0, are those of another run.
    pub forked_from: Option<ForkedFrom>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A worker drives the run from here on; events of lower epochs behind this one are void.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunClaimed {
    /// The run.
    pub run_id: RunId,
    /// One more than the highest before; the first claim of an epoch on the log wins.
    pub epoch: i64,
    /// Unique to one life of one worker process.
    pub worker: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Steps of one decision, all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunAdvanced {
    /// The run.
    pub run_id: RunId,
    /// The writer's claim.
    pub epoch: i64,
    /// At least one step; `seq` goes on from the step before.
    pub steps: Vec<Step>,
}

/// The run was asked to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunCancelRequested {
    /// The run.
    pub run_id: RunId,
    /// Why, in words.
    pub reason: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A person answered; the first answer to a step counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunApprovalDecided {
    /// The run.
    pub run_id: RunId,
    /// `seq` of the approval step.
    pub step: i64,
    /// The answer.
    pub decision: Decision,
    /// Why, in words.
    pub note: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The run was asked to look again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResumed {
    /// The run.
    pub run_id: RunId,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The fold up to here is in the blob store: whoever takes the run over need not read what lies before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSnapshotted {
    /// The run.
    pub run_id: RunId,
    /// The writer's claim.
    pub epoch: i64,
    /// The last step in it.
    pub seq: i64,
    /// Offset of the run's first event, for whoever can't read the blob.
    pub accepted_offset: i64,
    /// Offset behind the last event in it: those of the run from here to this event come on top.
    pub next_offset: i64,
    /// The folded state as JSON.
    pub state: BlobRef,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The one terminal event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFinished {
    /// The run.
    pub run_id: RunId,
    /// The writer's claim.
    pub epoch: i64,
    /// How it ended.
    pub status: RunOutcome,
    /// The agent type that did the work.
    pub agent: String,
    /// The answer, on success.
    pub answer: Option<String>,
    /// Places that the answer names.
    pub citations: Vec<Citation>,
    /// Tokens of all model calls.
    pub usage: Usage,
    /// `answered`, `max_iters`, `budget_tokens`, `budget_seconds`, `loop_detected`, `session_busy`, `cancelled`, `error`, or
    /// what became of a run that it waited for: `predecessor_failed`, `predecessor_cancelled`, `predecessor_unknown`,
    /// `predecessor_circular`.
    pub stop_reason: String,
    /// Why it failed.
    pub error: Option<Failure>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

event_set! {
    /// Events of runs. All events of a run lie in one partition, in one order that every reader shares.
    AgentEvent on AgentEvents;
    /// The run exists from here on.
    RunAccepted = "riverrun.agent.RunAccepted", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "accepted"]);
    /// A worker drives the run from here on.
    RunClaimed = "riverrun.agent.RunClaimed", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "claimed", &e.epoch.to_string(), &e.worker]);
    /// Steps of one decision.
    RunAdvanced = "riverrun.agent.RunAdvanced", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "advanced", &e.epoch.to_string(), &e.steps.first().map_or(0, |s| s.seq).to_string()]);
    /// The run was asked to stop.
    RunCancelRequested = "riverrun.agent.RunCancelRequested", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "cancel_requested", &e.at.to_string()]);
    /// A person answered.
    RunApprovalDecided = "riverrun.agent.RunApprovalDecided", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "decided", &e.step.to_string(), &e.at.to_string()]);
    /// The run was asked to look again.
    RunResumed = "riverrun.agent.RunResumed", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "resumed", &e.at.to_string()]);
    /// The fold up to here is in the blob store.
    RunSnapshotted = "riverrun.agent.RunSnapshotted", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "snapshot", &e.epoch.to_string(), &e.seq.to_string()]);
    /// The one terminal event.
    RunFinished = "riverrun.agent.RunFinished", key |e| e.run_id.to_string(), id |e| EventId::derive(&[&e.run_id.to_string(), "finished"]);
}

impl AgentEvent {
    /// The run that is spoken of.
    pub fn run_id(&self) -> RunId {
        match self {
            AgentEvent::RunAccepted(e) => e.run_id,
            AgentEvent::RunClaimed(e) => e.run_id,
            AgentEvent::RunAdvanced(e) => e.run_id,
            AgentEvent::RunCancelRequested(e) => e.run_id,
            AgentEvent::RunApprovalDecided(e) => e.run_id,
            AgentEvent::RunResumed(e) => e.run_id,
            AgentEvent::RunSnapshotted(e) => e.run_id,
            AgentEvent::RunFinished(e) => e.run_id,
        }
    }
}
