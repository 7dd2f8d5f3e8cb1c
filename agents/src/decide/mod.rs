//! Decisions: one pure function an agent type. Its file enters it with [`inventory::submit!`], and `mod` below is the one line to add it.
//!
//! [`next`] is the whole of a run's logic: rules that every agent type shares (cancelled, budgets, a tool call that waits
//! for its result, an answer that ends the run) and then the agent type's own `decide`. The worker performs what it
//! says; after a crash another worker folds the same events, asks again and gets the same action.

mod acting;
mod calls;
mod critic;
mod drafting;
mod empty;
mod grounding;
mod lost;
mod marks;
mod plan_execute;
mod react;
mod reflexion;
#[cfg(test)]
mod testkit;

use std::sync::LazyLock;

use riverrun_models::{FinishReason, Message};
use riverrun_schemas::Failure;
use riverrun_schemas::Usage;
use riverrun_schemas::agent::{RunOutcome, Step, StepKind, ToolUse};
use serde_json::Value;

use crate::manifest::Manifest;
use crate::memory;
use crate::state::RunState;
use crate::tools::ToolManifest;

pub use calls::{outcome_unknown, settle};
pub(crate) use empty::wrote_nothing;
pub use lost::{MAX_CLAIMS_WITHOUT_PROGRESS, SUSPECT_AFTER, is_suspect, worker_lost};

/// A kind of agent.
pub trait AgentType: Send + Sync {
    /// Name and abilities.
    fn manifest(&self) -> &'static Manifest;

    /// What to do next. Asked only while the shared rules leave the choice open.
    fn decide(&self, state: &RunState, tools: &[ToolManifest]) -> Action;

    /// What a model's reply to a call of that mode means, as steps to append.
    fn interpret(&self, state: &RunState, tools: &[ToolManifest], mode: ModelMode, reply: &Reply) -> Vec<StepDraft>;

    /// Kinds of steps that were made for the task as it stood and that the agent goes on from: a fork that begins behind one can't have
    /// another task, since it would finish the old one under the new one's name.
    fn bound_to_task(&self) -> &'static [StepKind] {
        &[]
    }

    /// Why the loop ended, for a run that has an answer: `answered`, `max_iters` or `loop_detected`.
    fn stop_reason(&self, state: &RunState) -> &'static str {
        state.stop_reason()
    }
}

/// An agent type as its file enters it.
struct Entered(&'static dyn AgentType);

inventory::collect!(Entered);

/// Every agent type, by precedence: the linker may have them in any order.
static AGENTS: LazyLock<Vec<&'static dyn AgentType>> = LazyLock::new(|| {
    let mut agents: Vec<_> = inventory::iter::<Entered>().map(|entered| entered.0).collect();
    agents.sort_by_key(|agent| (agent.manifest().precedence, agent.manifest().name));
    agents
});

/// The manifests of all agent types, the general one first.
pub fn catalog() -> Vec<&'static Manifest> {
    AGENTS.iter().map(|agent| agent.manifest()).collect()
}

/// No agent type has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no agent {name:?}; the agents are {known}")]
pub struct UnknownAgent {
    /// The name asked for.
    pub name: String,
    /// Those that exist.
    pub known: String,
}

/// The agent type of that name.
pub fn agent(name: &str) -> Result<&'static dyn AgentType, UnknownAgent> {
    AGENTS.iter().copied().find(|agent| agent.manifest().name == name).ok_or_else(|| UnknownAgent {
        name: name.chars().take(80).collect(),
        known: catalog().iter().map(|manifest| manifest.name).collect::<Vec<_>>().join(", "),
    })
}

/// What a model call is for; its reply is interpreted by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelMode {
    /// Choose a tool, or choose to answer. Constrained to JSON.
    Act,
    /// Write the answer. Plain text, streamed.
    Answer,
    /// Make a plan. Constrained to JSON.
    Plan,
    /// Carry out a plan's step in words. Plain text.
    Work,
    /// Write a draft. Plain text.
    Draft,
    /// Judge a draft. Constrained to JSON.
    Judge,
    /// Write down what to do better. Plain text.
    Reflect,
    /// Choose an agent for the task. Constrained to JSON.
    Route,
}

impl ModelMode {
    /// The temperature that such a call has whatever the request says: choices and judgements are not drawn by lot.
    pub fn temperature(self) -> Option<f32> {
        match self {
            ModelMode::Route | ModelMode::Judge => Some(0.0),
            ModelMode::Act
            | ModelMode::Answer
            | ModelMode::Plan
            | ModelMode::Work
            | ModelMode::Draft
            | ModelMode::Reflect => None,
        }
    }
}

/// A model call to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// What for.
    pub mode: ModelMode,
    /// The conversation.
    pub messages: Vec<Message>,
    /// Schema that the reply must satisfy.
    pub response_schema: Option<Value>,
    /// Most tokens of the reply.
    pub max_tokens: u32,
}

/// What a model replied.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Its text.
    pub text: String,
    /// Tokens of the call.
    pub usage: Usage,
    /// The reply was ended before the model ended it.
    pub cut: bool,
}

/// What stands behind words that were ended because they went in circles: whoever reads them sees that nothing is missing.
const REPEATED: &str = "(The model said the same over and over, and was stopped here.)";

impl Reply {
    /// Of a model's words, and why they ended.
    pub fn of(text: String, usage: Usage, finish: FinishReason) -> Self {
        let text = match finish {
            FinishReason::Repetition => format!("{}\n\n{REPEATED}", text.trim_end()),
            FinishReason::Stop | FinishReason::Length | FinishReason::ToolCalls | FinishReason::Cancelled => text,
        };
        Self { text, usage, cut: finish.is_cut() }
    }
}

/// A step without its number and time, which the writer of the event adds.
#[derive(Debug, Clone, PartialEq)]
pub struct StepDraft {
    /// What happened.
    pub kind: StepKind,
    /// Words.
    pub text: Option<String>,
    /// The use of a tool.
    pub tool: Option<ToolUse>,
    /// Tokens, on the first step of a model call.
    pub usage: Option<Usage>,
}

impl StepDraft {
    /// A step of words.
    pub fn text(kind: StepKind, text: impl Into<String>, usage: Option<Usage>) -> Self {
        Self { kind, text: Some(text.into()), tool: None, usage }
    }

    /// A step of a tool.
    pub fn tool(kind: StepKind, tool: ToolUse) -> Self {
        Self { kind, text: None, tool: Some(tool), usage: None }
    }

    /// The step as it is written.
    pub fn number(self, seq: i64, agent: &str, at: i64) -> Step {
        Step { seq, kind: self.kind, agent: agent.to_owned(), text: self.text, tool: self.tool, usage: self.usage, at }
    }
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// Success or not.
    pub status: RunOutcome,
    /// Why it ended: `answered`, `max_iters`, `budget_tokens`, `budget_seconds`, `loop_detected`, `session_busy`,
    /// `predecessor_failed`, `predecessor_cancelled`, `worker_lost`, `cancelled`, `error`.
    pub stop_reason: &'static str,
    /// The answer, on success.
    pub answer: Option<String>,
    /// Why not, otherwise.
    pub error: Option<Failure>,
}

/// What a worker does next for a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Append these steps; intents to use tools among them go through [`settle`].
    Append(Vec<StepDraft>),
    /// Call the model, then append what [`AgentType::interpret`] makes of the reply.
    CallModel(ModelCall),
    /// Choose an agent with [`crate::supervisor::judge`] and append the choice.
    Route,
    /// Use the tool, whose intent is on the log, then append the result.
    CallTool(ToolUse),
    /// Let go of the run: only a person's answer brings it on.
    Wait,
    /// Append the terminal event.
    Finish(Ending),
}

/// A run that can't go on: what a failed model call or a broken request ends with.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed(pub Failure);

impl From<Failed> for Ending {
    fn from(Failed(failure): Failed) -> Self {
        Ending { status: RunOutcome::Failed, stop_reason: "error", answer: None, error: Some(failure) }
    }
}

/// How a run ends that was asked to stop.
pub fn cancelled(reason: Option<&str>) -> Ending {
    let why = reason.unwrap_or("by request");
    Ending {
        status: RunOutcome::Cancelled,
        stop_reason: "cancelled",
        answer: None,
        error: Some(Failure::new("cancelled", format!("the run was cancelled: {why}"))),
    }
}

fn over_budget(state: &RunState, now_ms: i64) -> Option<&'static str> {
    if state.request.budget_tokens.is_some_and(|most| state.usage.total_tokens() >= most) {
        Some("budget_tokens")
    } else if state.is_out_of_time(now_ms) {
        Some("budget_seconds")
    } else {
        None
    }
}

/// What to do next for a run. `tools` are those that the run may use, `now_ms` the time for its budget in seconds.
pub fn next(state: &RunState, tools: &[ToolManifest], now_ms: i64) -> Action {
    if let Some(cancellation) = &state.cancel_requested {
        return Action::Finish(cancelled(cancellation.reason.as_deref()));
    }
    if state.history_missing() {
        return Action::Wait;
    }
    if let Some(answer) = state.steps.last().filter(|step| step.kind == StepKind::Answer) {
        return Action::Finish(Ending {
            status: RunOutcome::Succeeded,
            stop_reason: state
                .agent()
                .and_then(|name| agent(name).ok())
                .map_or_else(|| state.stop_reason(), |agent| agent.stop_reason(state)),
            answer: answer.text.clone(),
            error: None,
        });
    }
    if let Some(ending) = empty::ending(state) {
        return Action::Finish(ending);
    }
    if let Some(budget) = over_budget(state, now_ms) {
        let failure = Failure::new(
            budget,
            format!("the run used up its {} before it had an answer", budget.replace('_', " of ")),
        )
        .with_hint("raise the budget of the request");
        return Action::Finish(Ending {
            status: RunOutcome::Failed,
            stop_reason: budget,
            answer: None,
            error: Some(failure),
        });
    }
    if let Some(action) = calls::next(state) {
        return action;
    }
    if state.request.task.trim().is_empty() {
        let failure = Failure::new("empty_task", "the task is empty").with_hint("say what the run is to do");
        return Action::Finish(Failed(failure).into());
    }
    if let Some(opening) = memory::opening(state) {
        return opening;
    }
    match state.agent() {
        None => Action::Route,
        Some(name) => match agent(name) {
            Ok(agent) => {
                let seen = memory::without_opening(state);
                let usable = memory::usable(state, tools);
                let action = agent.decide(seen.as_ref().unwrap_or(state), &usable);
                let action = empty::ask_again(state, grounding::search_first(state, &usable, action));
                memory::with_memory(state, action)
            }
            Err(unknown) => Action::Finish(Failed(Failure::new("unknown_agent", unknown.to_string())).into()),
        },
    }
}
