//! Conversations as everybody sees them.

use riverrun_schemas::{ForgetId, Namespace, RunId, SessionName, SummaryId, TurnId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::read_models::time::Timestamp;

/// One thing said in a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TurnView {
    /// The turn.
    #[schema(value_type = String)]
    pub turn_id: TurnId,
    /// Counts from 1 within the conversation; what was forgotten leaves a gap.
    pub seq: i64,
    /// `user`, `assistant`, `system` or `tool`.
    pub role: String,
    /// The words.
    pub text: String,
    /// The namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// The conversation.
    #[schema(value_type = String)]
    pub session: SessionName,
    /// The run whose task or answer this is.
    #[schema(value_type = Option<String>)]
    pub run_id: Option<RunId>,
    /// When it was said.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// The older turns in a few sentences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SummaryView {
    /// The summary.
    #[schema(value_type = String)]
    pub summary_id: SummaryId,
    /// It stands for every turn up to this one.
    pub through_seq: i64,
    /// The words.
    pub text: String,
    /// The chat model that wrote it.
    pub model: String,
    /// When it was written.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// What a memory comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhyView {
    /// The memory that was asked about.
    pub id: String,
    /// `turn`, `summary`, `episode` or `note`.
    pub kind: String,
    /// Its words.
    pub text: String,
    /// The turns that it comes from, oldest first; at most 500 of the newest of a summary.
    pub sources: Vec<TurnView>,
    /// The run that it comes from.
    #[schema(value_type = Option<String>)]
    pub run_id: Option<RunId>,
    /// The chat model that wrote it, for a summary.
    pub model: Option<String>,
    /// When it was written.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// How many memories of each kind are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovedView {
    /// Turns.
    pub turns: i64,
    /// Summaries.
    pub summaries: i64,
    /// Episodes.
    pub episodes: i64,
    /// Notes.
    pub notes: i64,
}

/// What a request to forget came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReceiptView {
    /// The request.
    #[schema(value_type = String)]
    pub forget_id: ForgetId,
    /// The namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// The conversation.
    #[schema(value_type = String)]
    pub session: SessionName,
    /// What was to be forgotten; null for the whole conversation.
    pub target: Option<String>,
    /// What is gone from the tables.
    pub removed: RemovedView,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// How much a conversation holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionSize {
    /// Turns that are not forgotten.
    pub turns: i64,
    /// Notes that are not forgotten.
    pub notes: i64,
}
