use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RunBody;

/// Several runs of which some wait for the answers of others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainBody {
    /// The only namespace of all its runs; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its runs, 1 to 64, in any order.
    pub runs: Vec<ChainRunBody>,
}

/// A run of a chain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainRunBody {
    /// Its name within the chain.
    pub name: String,
    /// Names of the runs that must succeed before it begins, at most 16. Their answers stand for `{{input}}` in its task, or
    /// below a task without it, as data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// What it is to do.
    pub run: RunBody,
}

/// The chain was accepted: the commands of all its runs are on the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChainAccepted {
    /// The chain: `GET /chains/{id}` shows all of it.
    pub chain_id: String,
    /// Its runs, each behind those that it waits for.
    pub runs: Vec<ChainRunAccepted>,
}

/// A run of an accepted chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChainRunAccepted {
    /// Its name within the chain.
    pub name: String,
    /// The run.
    pub run_id: String,
    /// Path of the WebSocket that shows its steps.
    pub stream: String,
}
