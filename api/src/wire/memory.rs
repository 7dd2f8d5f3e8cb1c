use riverrun_agents::memory::LeftOut;
use riverrun_schemas::{ForgetId, Namespace, SessionName, TurnId};
use riverrun_stores::read_models::{SummaryView, Timestamp, TurnView, UsageView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something said in a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnBody {
    /// `user`, `assistant`, `system` or `tool`.
    pub role: String,
    /// The words, at most 16 KiB.
    pub text: String,
    /// The namespace; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The conversation; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// What of a conversation a model is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryContextView {
    /// The newest turns within the window, oldest first.
    pub turns: Vec<TurnView>,
    /// What stands for older ones; null while everything fits.
    pub summary: Option<SummaryView>,
    /// Episodes and notes that resemble the query, best first. Nothing that is among the turns; empty without a query.
    pub episodes: Vec<RecalledView>,
    /// Tokens of summary and turns, by the chat model's own tokenizer.
    pub tokens: usize,
    /// Tokens that they may have.
    pub window_tokens: usize,
    /// Turns behind the summary that did not fit: they become part of it as soon as the chat model has written it.
    pub turns_left_out: usize,
    /// What could not be done, in words.
    pub notes: Vec<String>,
}

/// A memory that was recalled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecalledView {
    /// The episode or note; `GET /memory/why` tells where it comes from.
    pub id: String,
    /// `episode` or `note`.
    pub kind: String,
    /// Its words.
    pub text: String,
    /// Cosine similarity to the query, -1 to 1.
    pub score: f32,
    /// The turns that it comes from.
    #[schema(value_type = Vec<String>)]
    pub turn_ids: Vec<TurnId>,
    /// The run that it comes from.
    pub run_id: Option<String>,
}

/// Words to a chat model that remembers the conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryChatBody {
    /// The words; at most 16 KiB, and no more tokens than the window has.
    pub text: String,
    /// The namespace; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The conversation; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Model provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Chat model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sampling temperature, 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Answer with server-sent events (the default): `delta` `{text}` while the model writes, then `final`, or `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
}

/// What the model said, and what it was shown of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryChatDone {
    /// Its words.
    pub text: String,
    /// The model that answered; null when the answer was given before, to the same idempotency key.
    pub model: Option<String>,
    /// Tokens read and written.
    pub usage: UsageView,
    /// The turn of the caller's words.
    #[schema(value_type = String)]
    pub turn_id: TurnId,
    /// The turn of the answer.
    #[schema(value_type = String)]
    pub answer_turn_id: TurnId,
    /// Turns that the model was shown.
    pub turns_shown: usize,
    /// Episodes and notes that it was shown.
    pub recalled: Vec<String>,
    /// Whether it was shown a summary.
    pub summarized: bool,
    /// What of the window it was not shown, since the whole does not fit its context; null when all of it fits.
    #[serde(default)]
    pub left_out: Option<LeftOutView>,
    /// What could not be done, in words.
    pub notes: Vec<String>,
}

/// What of a conversation a model was not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOutView {
    /// Tokens of the prompt with everything.
    pub tokens_before: usize,
    /// Tokens of the prompt that was sent.
    pub tokens_after: usize,
    /// Tokens of the model's context; 0 when nobody tells and its server refused the prompt.
    pub context_tokens: usize,
    /// Whether tokens were estimated from the length of the text.
    pub estimated: bool,
    /// Turns, the oldest ones.
    pub turns: usize,
    /// Recalled memories, the least similar ones.
    pub memories: usize,
    /// Whether the summary is missing.
    pub summary: bool,
}

impl From<LeftOut> for LeftOutView {
    fn from(left_out: LeftOut) -> Self {
        let LeftOut { tokens_before, tokens_after, context_tokens, estimated, turns, memories, summary } = left_out;
        Self { tokens_before, tokens_after, context_tokens, estimated, turns, memories, summary }
    }
}

/// What is gone, and from where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ForgetDone {
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
    /// How much is gone from each index.
    pub removed: ForgetCounts,
    /// Something is still on its way: it goes as soon as the worker is there again.
    pub pending: bool,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// How much is gone from each index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForgetCounts {
    /// Turns.
    pub turns: i64,
    /// Summaries.
    pub summaries: i64,
    /// Episodes.
    pub episodes: i64,
    /// Notes.
    pub notes: i64,
    /// Vectors of episodes and notes.
    pub vectors: i64,
}
