use riverrun_models::{FinishReason, ModelError, Usage};
use riverrun_schemas::{ChunkId, DocumentId, Failure};
use serde::Serialize;

use crate::retrieval::{RetrievalError, SearchRequest, SearchTimes, Span};

/// A question to be answered from a collection.
#[derive(Debug, Clone, PartialEq)]
pub struct AskRequest {
    /// What to look for and where; its query is the question.
    pub search: SearchRequest,
    /// The provider of the chat model; `None` for the default one.
    pub provider: Option<String>,
    /// The chat model; `None` for the default one.
    pub model: Option<String>,
    /// Sampling temperature; `None` for 0, the same answer for the same chunks.
    pub temperature: Option<f32>,
    /// How many bytes of the document the model reads before and behind each chunk, as far as its context has room.
    pub context_bytes: usize,
}

impl AskRequest {
    /// A question with the defaults.
    pub fn new(search: SearchRequest) -> Self {
        Self { search, provider: None, model: None, temperature: None, context_bytes: 0 }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AskReply {
    /// The answer; its `[n]` are the numbers of `citations`.
    pub answer: String,
    /// Whether the collection had an answer: false when nothing was found, and when the model said that the chunks do not say
    /// and nothing beside it that they support.
    pub found: bool,
    /// What the answer cites, by number.
    pub citations: Vec<Citation>,
    /// Every sentence of the answer, with its support.
    pub sentences: Vec<AnswerSentence>,
    /// Tokens of the model call; zero when there was none.
    pub usage: AskUsage,
    /// How long each stage took.
    pub took_ms: AskTimes,
    /// `None`: answers outside of runs are not traced.
    pub trace_id: Option<String>,
    /// The chat model that answered; `None` when none was asked.
    pub model: Option<String>,
    /// Why generation ended; `length` means that the answer is cut.
    pub finish: Option<FinishReason>,
    /// Chunks that were found and did not fit in the model's context.
    pub dropped: Vec<DroppedChunk>,
    /// Numbers that the model cited and nobody gave; they were taken out of the answer.
    pub removed_citations: Vec<String>,
    /// What was left out although it was wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A number of the answer, and the bytes that it stands for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Citation {
    /// The number, from 1.
    pub n: usize,
    /// The chunk.
    pub chunk_id: ChunkId,
    /// Its document.
    pub document_id: DocumentId,
    /// Where the document came from.
    pub source: String,
    /// The quote's bytes in the document's stored text; of a summary, all that it is of.
    pub span: Span,
    /// The bytes of the chunk that was found, in the same. The quote may stand around it.
    pub chunk_span: Span,
    /// Of a summary: where the chunks lie that it was made of, in the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<Span>,
    /// Page, from 1, where the format has pages and the quote begins in the chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<i32>,
    /// The sentence of what the model read that is nearest to what cites it.
    pub quote: String,
    /// Whether the chunk has the words of a sentence that cites it.
    pub supported: bool,
    /// Who put the number there.
    pub attributed: Attribution,
}

/// Who put a number into the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribution {
    /// The model wrote it.
    Model,
    /// The words of sentence and chunk overlap enough to say it.
    Overlap,
}

/// A sentence of the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerSentence {
    /// Its bytes in the answer, its numbers included.
    pub span: Span,
    /// The numbers that it cites, ascending.
    pub citations: Vec<usize>,
    /// Whether the cited chunks together support it; `None` where it claims nothing that could be checked.
    pub supported: Option<bool>,
}

/// A chunk that the model did not see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DroppedChunk {
    /// The chunk.
    pub chunk_id: ChunkId,
    /// Where its document came from.
    pub source: String,
    /// Why.
    pub reason: String,
}

/// Whether a count says nothing.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Tokens of the model call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct AskUsage {
    /// Tokens read.
    pub prompt_tokens: u64,
    /// Tokens written.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// US dollars, where somebody who knows the price has said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The tokens, where a service charges for them and their price is not known; 0 is left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub unpriced_tokens: u64,
    /// Of the tokens read, those that the provider had in its cache; 0 is left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached_prompt_tokens: u64,
    /// What the model told, which the cost follows from.
    #[serde(skip)]
    pub told: Usage,
}

/// Milliseconds of each stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct AskTimes {
    /// Those of the search.
    #[serde(flatten)]
    pub search: SearchTimes,
    /// The model call; `None` when there was none.
    pub generate: Option<f64>,
}

/// Why a question got no answer. That nothing was found is none of these.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The search failed.
    #[error(transparent)]
    Retrieval(#[from] RetrievalError),
    /// The chat model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Not even the best chunk fits in the model's context.
    #[error(
        "the best chunk and the question have {tokens} tokens and do not fit beside an answer in the {context} that model \
         {model:?} reads and writes together"
    )]
    ContextTooSmall {
        /// The model; empty for the default one.
        model: String,
        /// Tokens of the prompt.
        tokens: usize,
        /// Its context in tokens.
        context: usize,
    },
}

impl AskError {
    /// Stable code, lower snake case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Retrieval(error) => error.code(),
            Self::Model(error) => error.code(),
            Self::ContextTooSmall { .. } => "context_overflow",
        }
    }

    /// The fix, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Retrieval(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::ContextTooSmall { .. } => Some("raise RIVERRUN_MODEL_CONTEXT_TOKENS, choose another model, or ingest with a smaller RIVERRUN_CHUNK_SIZE".to_owned()),
        }
    }

    /// As events and problem documents carry it.
    pub fn failure(&self) -> Failure {
        Failure { code: self.code().to_owned(), message: self.to_string(), hint: self.hint() }
    }
}
