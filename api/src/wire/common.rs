use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An RFC 9457 problem document: every error of the API has this shape (`application/problem+json`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// URN of the kind of problem: `urn:riverrun:problem:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What failed and the value it failed on.
    pub detail: String,
    /// Stable, lower snake case; what programs compare.
    pub code: String,
    /// The fix; a command where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For a rejected body: which fields and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The run that the problem is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
}

/// What is wrong with one field of a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Path of the field, such as `budget.tokens` or `tools[2]`; `.` for the body as a whole.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FieldError {
    /// Names a field and what is wrong with it.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// A complete list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Items<T> {
    /// Its entries.
    pub items: Vec<T>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The entries of this page.
    pub items: Vec<T>,
    /// Give it as `cursor` for the next page; null on the last one.
    pub next_cursor: Option<String>,
}
