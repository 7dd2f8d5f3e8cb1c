use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// SQL for the warehouse.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryBody {
    /// One reading statement: SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW or SUMMARIZE; at most 32 KiB.
    pub sql: String,
    /// The namespace whose tables it sees; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Most rows, 1 to 10,000; 1,000 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}
