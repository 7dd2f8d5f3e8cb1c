//! Runs and steps as everybody sees them: HTTP answers, streams and the command line share these shapes. Pure: what a
//! stream makes of an event is what the read model makes of it later.

use std::collections::BTreeMap;

use riverrun_schemas::agent::{
    ChainLink, Citation, Decision, ForkedFrom, RunAccepted, RunApprovalDecided, RunFinished, RunOutcome, Step,
    StepKind, ToolUse,
};
use riverrun_schemas::{BlobRef, ChainId, ChunkId, DocumentId, Failure, RunId, Usage, not_there};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::read_models::run_fold::RunGate;
use crate::read_models::time::Timestamp;

/// Tokens of model calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// Tokens read.
    pub prompt_tokens: i64,
    /// Tokens written.
    pub completion_tokens: i64,
    /// Both together.
    pub total_tokens: i64,
    /// US dollars, when the price is known; of a sum, those of the calls whose price is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Tokens of calls that a service charges for and whose price is not known: `cost_usd` is without them. Left out when there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_tokens: i64,
    /// Of `prompt_tokens`, those that the provider had in its cache, where it tells. Left out when there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_prompt_tokens: i64,
    /// Of `prompt_tokens`, those that the provider put into its cache, where it charges for that. Left out when there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: i64,
}

/// Whether a count says nothing.
fn is_zero(count: &i64) -> bool {
    *count == 0
}

impl UsageView {
    /// The sum of both; its costs are those that are known.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_add(other.completion_tokens),
            total_tokens: self.total_tokens.saturating_add(other.total_tokens),
            cost_usd: match (self.cost_usd, other.cost_usd) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            },
            unpriced_tokens: self.unpriced_tokens.saturating_add(other.unpriced_tokens),
            cached_prompt_tokens: self.cached_prompt_tokens.saturating_add(other.cached_prompt_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
        }
    }
}

/// A tool call, and on `tool_result` what it gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolView {
    /// The same for call and result.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// What it was called with.
    pub arguments: Value,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is when it is too large to be shown here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_blob: Option<BlobView>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long the call took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
}

/// Content kept outside of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobView {
    /// Lower-case hex of its SHA-256.
    pub sha256: String,
    /// Its length.
    pub size_bytes: i64,
    /// Its media type.
    pub media_type: String,
}

/// What a person said to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DecisionView {
    /// `approve` or `deny`.
    #[schema(value_type = String)]
    pub decision: Decision,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub decided_at: Timestamp,
}

impl From<&RunApprovalDecided> for DecisionView {
    fn from(event: &RunApprovalDecided) -> Self {
        Self { decision: event.decision, note: event.note.clone(), decided_at: Timestamp(event.at) }
    }
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepView {
    /// Counts from 1 within the run, without gaps.
    pub seq: i64,
    /// What happened: `route`, `plan`, `thought`, `tool_call`, `tool_result`, `approval`, `reflection`, `critique`, `answer`,
    /// `compaction`.
    #[schema(value_type = String)]
    pub kind: StepKind,
    /// The agent type at work.
    pub agent: String,
    /// Words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// On `tool_call`, `tool_result` and `approval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolView>,
    /// Tokens of the model call that the step came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// On `approval`, once somebody has answered. A fork has its questions without what the other run was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionView>,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// Bytes of the stored text of a document version: from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpanView {
    /// First byte.
    pub start: i64,
    /// First byte after it.
    pub end: i64,
}

/// A place that an answer names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CitationView {
    /// The number in the answer, from 1.
    pub n: i32,
    /// The chunk.
    #[schema(value_type = String)]
    pub chunk_id: ChunkId,
    /// The document.
    #[schema(value_type = String)]
    pub document_id: DocumentId,
    /// Where the document came from.
    pub source: String,
    /// Where in the document.
    pub span: SpanView,
    /// Page, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<i32>,
    /// The words cited.
    pub quote: String,
    /// The sentence with the number is supported by the quote.
    pub supported: bool,
}

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureView {
    /// Stable, lower snake case.
    pub code: String,
    /// What failed.
    pub message: String,
    /// The fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Accepted; no worker has it yet.
    Queued,
    /// A worker drives it.
    Running,
    /// It waits for a person; nothing of it is in memory but what it waits for.
    WaitingApproval,
    /// Ended with an answer.
    Succeeded,
    /// Ended without one.
    Failed,
    /// Ended because it was asked to.
    Cancelled,
}

impl RunStatus {
    /// The name in JSON and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStatus::Queued => "queued",
            RunStatus::Running => "running",
            RunStatus::WaitingApproval => "waiting_approval",
            RunStatus::Succeeded => "succeeded",
            RunStatus::Failed => "failed",
            RunStatus::Cancelled => "cancelled",
        }
    }

    /// Where a run that has not ended is.
    pub fn of_open(gate: &RunGate) -> Self {
        match (gate.waiting.is_empty(), gate.epoch) {
            (false, _) => RunStatus::WaitingApproval,
            (true, 0) => RunStatus::Queued,
            (true, _) => RunStatus::Running,
        }
    }

    /// Whether the run has ended.
    pub fn ended(self) -> bool {
        match self {
            RunStatus::Queued | RunStatus::Running | RunStatus::WaitingApproval => false,
            RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => true,
        }
    }
}

impl std::str::FromStr for RunStatus {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        let all = [
            RunStatus::Queued,
            RunStatus::Running,
            RunStatus::WaitingApproval,
            RunStatus::Succeeded,
            RunStatus::Failed,
            RunStatus::Cancelled,
        ];
        let found = all.into_iter().find(|status| status.as_str() == value);
        found.ok_or_else(|| not_there(value, all.map(RunStatus::as_str)))
    }
}

impl From<RunOutcome> for RunStatus {
    fn from(outcome: RunOutcome) -> Self {
        match outcome {
            RunOutcome::Succeeded => RunStatus::Succeeded,
            RunOutcome::Cancelled => RunStatus::Cancelled,
            // An outcome that this build does not know has no answer that it could show.
            RunOutcome::Failed | RunOutcome::Unknown => RunStatus::Failed,
        }
    }
}

/// A call that waits for a person: `POST /runs/{id}/approvals/{step}` answers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PendingApprovalView {
    /// `seq` of the approval step.
    pub step: i64,
    /// The tool.
    pub tool: String,
    /// What it would be called with.
    pub arguments: Value,
    /// Why a person is asked.
    pub reason: String,
    /// The call was made before and what came of it is not known: approving makes it again, denying goes on without.
    pub outcome_unknown: bool,
    /// The call's idempotency key.
    pub call_id: String,
}

impl PendingApprovalView {
    /// What an approval step asks; `None` for other steps.
    pub fn of(step: &StepView) -> Option<Self> {
        let tool = step.tool.as_ref().filter(|_| step.kind == StepKind::Approval)?;
        Some(Self {
            step: step.seq,
            tool: tool.name.clone(),
            arguments: tool.arguments.clone(),
            reason: step.text.clone().unwrap_or_default(),
            outcome_unknown: tool.error.is_some(),
            call_id: tool.call_id.clone(),
        })
    }
}

/// The questions among `steps` that `waiting` says nobody has answered.
pub(crate) fn pending_approvals(steps: &[StepView], waiting: &BTreeMap<i64, String>) -> Vec<PendingApprovalView> {
    if waiting.is_empty() {
        return Vec::new();
    }
    steps.iter().filter(|step| waiting.contains_key(&step.seq)).filter_map(PendingApprovalView::of).collect()
}

/// Where a run branches off another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForkView {
    /// The other run.
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// The last step that both share.
    pub at_seq: i64,
}

impl From<&ForkedFrom> for ForkView {
    fn from(from: &ForkedFrom) -> Self {
        Self { run_id: from.run_id, at_seq: from.at_seq }
    }
}

/// A run's place in a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChainLinkView {
    /// The chain: `GET /chains/{id}` shows all of it.
    #[schema(value_type = String)]
    pub chain_id: ChainId,
    /// The run's name within the chain.
    pub name: String,
    /// How many runs the chain has.
    pub runs: i32,
}

impl From<&ChainLink> for ChainLinkView {
    fn from(link: &ChainLink) -> Self {
        Self { chain_id: link.chain_id, name: link.name.clone(), runs: link.runs }
    }
}

/// A run with its steps: the run result once it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// The run.
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// Where it is.
    pub status: RunStatus,
    /// Its namespace.
    pub namespace: String,
    /// What it was asked to do.
    pub task: String,
    /// The agent type at work; null until one is chosen.
    pub agent: Option<String>,
    /// The answer, on success.
    pub answer: Option<String>,
    /// Places that the answer names.
    pub citations: Vec<CitationView>,
    /// What happened.
    pub steps: Vec<StepView>,
    /// Calls that wait for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_approvals: Vec<PendingApprovalView>,
    /// The conversation that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The run that it branched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkView>,
    /// The runs of its chain that must succeed before it begins; their answers stand for `{{input}}` in its task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub after: Vec<RunId>,
    /// Its place in a chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainLinkView>,
    /// Tokens of all model calls.
    pub usage: UsageView,
    /// Why it ended; null before.
    pub stop_reason: Option<String>,
    /// Null while tracing is not configured.
    pub trace_id: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
    /// The caller's own JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ended; null before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

/// A run in a list: without steps, answer and citations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunSummary {
    /// The run.
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// Where it is.
    pub status: RunStatus,
    /// Its namespace.
    pub namespace: String,
    /// What it was asked to do.
    pub task: String,
    /// The agent type at work.
    pub agent: Option<String>,
    /// How many steps it has.
    pub steps: i64,
    /// The conversation that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The run that it branched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkView>,
    /// Its place in a chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainLinkView>,
    /// Tokens so far.
    pub usage: UsageView,
    /// Why it ended.
    pub stop_reason: Option<String>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

/// JSON kept as text; text that is not JSON is shown as a string rather than lost.
pub(crate) fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Tokens as they are shown.
pub fn usage_view(usage: &Usage) -> UsageView {
    UsageView {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        total_tokens: usage.total_tokens(),
        cost_usd: usage.cost_usd,
        unpriced_tokens: usage.unpriced_tokens,
        cached_prompt_tokens: usage.cached_prompt_tokens,
        cache_write_tokens: usage.cache_write_tokens,
    }
}

/// A failure as it is shown.
pub fn failure_view(failure: &Failure) -> FailureView {
    FailureView { code: failure.code.clone(), message: failure.message.clone(), hint: failure.hint.clone() }
}

fn blob_view(blob: &BlobRef) -> BlobView {
    BlobView { sha256: blob.sha256.clone(), size_bytes: blob.size_bytes, media_type: blob.media_type.clone() }
}

fn tool_view(tool: &ToolUse) -> ToolView {
    ToolView {
        call_id: tool.call_id.clone(),
        name: tool.name.clone(),
        arguments: json_or_text(&tool.arguments_json),
        result: tool.result_json.as_deref().map(json_or_text),
        result_blob: tool.result_blob.as_ref().map(blob_view),
        error: tool.error.clone(),
        duration_ms: tool.duration_ms,
    }
}

/// A step as it is shown, without what a person said to it: that is another event.
pub fn step_view(step: &Step) -> StepView {
    StepView {
        seq: step.seq,
        kind: step.kind,
        agent: step.agent.clone(),
        text: step.text.clone(),
        tool: step.tool.as_ref().map(tool_view),
        usage: step.usage.as_ref().map(usage_view),
        decision: None,
        at: Timestamp(step.at),
    }
}

/// A citation as it is shown.
pub fn citation_view(citation: &Citation) -> CitationView {
    CitationView {
        n: citation.n,
        chunk_id: citation.chunk_id,
        document_id: citation.document_id,
        source: citation.source.clone(),
        span: SpanView { start: citation.start, end: citation.end },
        page: citation.page,
        quote: citation.quote.clone(),
        supported: citation.supported,
    }
}

/// The result of a run from its events, as a stream has them: the same that the read model shows once it has read them.
pub fn result_view(accepted: &RunAccepted, steps: &[Step], finished: &RunFinished) -> RunView {
    let request = &accepted.request;
    let at_work = steps.last().map(|step| step.agent.clone()).or_else(|| request.agent.clone());
    RunView {
        run_id: accepted.run_id,
        status: finished.status.into(),
        namespace: request.namespace.to_string(),
        task: request.task.clone(),
        agent: Some(finished.agent.clone()).filter(|agent| !agent.is_empty()).or(at_work),
        answer: finished.answer.clone(),
        citations: finished.citations.iter().map(citation_view).collect(),
        steps: steps.iter().map(step_view).collect(),
        pending_approvals: Vec::new(),
        session: request.session.clone(),
        forked_from: accepted.forked_from.as_ref().map(ForkView::from),
        after: request.after.clone(),
        chain: request.chain.as_ref().map(ChainLinkView::from),
        usage: usage_view(&finished.usage),
        stop_reason: Some(finished.stop_reason.clone()),
        trace_id: None,
        error: finished.error.as_ref().map(failure_view),
        metadata: request.metadata_json.as_deref().map(json_or_text),
        created_at: Timestamp(accepted.at),
        finished_at: Some(Timestamp(finished.at)),
    }
}
