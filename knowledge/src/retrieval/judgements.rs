//! Judgements that a collection is tuned to.

use std::collections::BTreeMap;

use riverrun_schemas::DocumentId;
use serde::{Deserialize, Serialize};

/// A question with what people found of documents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedQuestion {
    /// Its text.
    pub query: String,
    /// Grades of documents, higher is better; above 0 is relevant. What is not judged counts as not relevant.
    pub documents: BTreeMap<DocumentId, f64>,
}

impl JudgedQuestion {
    /// Most questions of one tuning.
    pub const MAX: usize = 2_000;
    /// Fewest with a relevant document: two to test on in each of the parts of a cross-validation.
    pub const MIN: usize = 10;
    /// Most documents that are judged for a question.
    pub const MAX_DOCUMENTS: usize = 1_000;
    /// Highest grade: gains double with each.
    pub const MAX_GRADE: f64 = 10.0;
}
