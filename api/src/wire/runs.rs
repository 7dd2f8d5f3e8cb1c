use riverrun_schemas::agent;
use riverrun_stores::read_models::run_views::RunStatus;
use riverrun_stores::read_models::{RunView, StepView};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// What a run is asked to do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunBody {
    /// The task, in words; at most 64 KiB.
    pub task: String,
    /// `react`; left out, the supervisor chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The only namespace whose tools, memory and collections the run may use; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Conversation that the run belongs to. Of its runs, one goes on at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What happens when the session has a run that goes on; `enqueue` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_policy: Option<SessionMode>,
    /// Model provider; `GET /providers` lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Chat model of that provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sampling temperature, 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Most iterations of the agent's loop, 1 to 20,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iters: Option<i32>,
    /// Names of the tools that it may use; left out, every tool of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Names of the collections that it may read; left out, every collection of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collections: Option<Vec<String>>,
    /// Where the run ends early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Which tool calls wait for a person; `external` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalMode>,
    /// An object of yours, at most 16 KiB; it comes back with the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(additional_properties)]
    pub metadata: Option<Map<String, Value>>,
}

/// Where a run ends early.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Most tokens, read and written together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<i64>,
    /// Most seconds from acceptance to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

/// Which tool calls wait for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalMode {
    /// None.
    Never,
    /// Those that change something outside.
    External,
    /// All.
    Always,
}

impl From<ApprovalMode> for agent::ApprovalPolicy {
    fn from(mode: ApprovalMode) -> Self {
        match mode {
            ApprovalMode::Never => agent::ApprovalPolicy::Never,
            ApprovalMode::External => agent::ApprovalPolicy::External,
            ApprovalMode::Always => agent::ApprovalPolicy::Always,
        }
    }
}

/// What happens to a run whose session has one that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// It waits for its turn as `queued`.
    Enqueue,
    /// It is refused: 409 where the other run is known already, else it ends as `failed` with the code `session_busy`.
    Reject,
    /// The others of the session are cancelled, and it follows.
    Interrupt,
}

impl From<SessionMode> for agent::SessionPolicy {
    fn from(mode: SessionMode) -> Self {
        match mode {
            SessionMode::Enqueue => agent::SessionPolicy::Enqueue,
            SessionMode::Reject => agent::SessionPolicy::Reject,
            SessionMode::Interrupt => agent::SessionPolicy::Interrupt,
        }
    }
}

/// The run was accepted: its command is on the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunAccepted {
    /// The run.
    pub run_id: String,
    /// Where it is now.
    pub status: RunStatus,
    /// Path of the WebSocket that shows its steps.
    pub stream: String,
}

/// Asks a run to stop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelBody {
    /// Why, in words; at most 1,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a stream of a run says: `start`, then each step once and in order, then one `final`. `token` only where asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "steps are most of the messages")]
pub enum RunMessage {
    /// The stream begins.
    Start {
        /// The run.
        run_id: String,
        /// Its agent, where one was named or chosen already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
    /// A step.
    Step {
        /// The step.
        step: StepView,
        /// It is too large for a message: its texts are cut, which each says. `GET /runs/{id}/steps?cursor=<seq - 1>&limit=1`
        /// has all of it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
    },
    /// A piece of the text that will be the step `seq`. Pieces may be missing; the step itself is the truth.
    Token {
        /// The step to come.
        seq: i64,
        /// The piece.
        text: String,
        /// The model was asked again, and this is the text from its beginning: what came of `seq` before is void.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        restart: bool,
    },
    /// The run has ended.
    Final {
        /// The run with all its steps, as far as they fit into a message.
        result: Box<RunView>,
        /// The last steps are left out of `result`: the message would be larger than 768 KiB.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        steps_truncated: bool,
        /// With `steps_truncated`: how many steps the run has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps_total: Option<i64>,
        /// With `steps_truncated`: where the steps that are left out are, page by page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps_rest: Option<String>,
    },
}

impl RunMessage {
    /// The end, with every step.
    pub(crate) fn finale(result: RunView) -> Self {
        RunMessage::Final { result: Box::new(result), steps_truncated: false, steps_total: None, steps_rest: None }
    }
}
