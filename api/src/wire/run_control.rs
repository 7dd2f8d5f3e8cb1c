use riverrun_schemas::agent;
use riverrun_stores::read_models::StepView;
use riverrun_stores::read_models::run_tree::{Tree, TreeEdge, TreeNode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A person's answer to a run that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalBody {
    /// Yes or no.
    pub decision: ApprovalDecision,
    /// Why, in words; at most 1,000 characters. When the answer is no, the model reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// Make the call.
    Approve,
    /// Do not; the run goes on without.
    Deny,
}

impl From<ApprovalDecision> for agent::Decision {
    fn from(decision: ApprovalDecision) -> Self {
        match decision {
            ApprovalDecision::Approve => agent::Decision::Approve,
            ApprovalDecision::Deny => agent::Decision::Deny,
        }
    }
}

/// Asks for a run that begins with another's first steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkBody {
    /// The last step that both share; 0 shares none.
    pub at_seq: i64,
    /// Another model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Another provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Another agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Another task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// Runs that branched off each other or wait for each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunTree {
    /// Each behind those that it came from; at most 1,000.
    pub items: Vec<TreeNode>,
    /// What leads from one of them to another.
    pub edges: Vec<TreeEdge>,
    /// There are more than are shown: those that are nearest to the run that was asked for are.
    pub truncated: bool,
}

impl From<Tree> for RunTree {
    fn from(Tree { items, edges, truncated }: Tree) -> Self {
        Self { items, edges, truncated }
    }
}

/// Two runs step by step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunComparison {
    /// One run.
    pub left: ComparedRun,
    /// The other.
    pub right: ComparedRun,
    /// How many steps both begin with.
    pub common: i64,
    /// The steps by number.
    pub steps: Vec<ComparedStep>,
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComparedRun {
    /// The run.
    pub run_id: String,
    /// Where it is.
    pub status: super::RunStatus,
    /// The agent type at work.
    pub agent: Option<String>,
    /// The answer.
    pub answer: Option<String>,
    /// Why it ended.
    pub stop_reason: Option<String>,
    /// Tokens of its own model calls.
    pub usage: super::UsageView,
}

/// The steps with one number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComparedStep {
    /// The number.
    pub seq: i64,
    /// They say the same; times and tokens do not matter.
    pub same: bool,
    /// The one run's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<StepView>,
    /// The other's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<StepView>,
}
