//! Retrieval: dense and keyword search side by side, fused, and re-ranked where a re-ranker is there.

pub mod fusion;
pub mod metrics;
pub mod score_fusion;

mod adapter;
mod checks;
mod context;
mod error;
mod figures;
mod judgements;
mod query_vectors;
mod retriever;
mod rewrite;
mod several;
mod types;

pub use adapter::{AdapterFailure, QueryAdapter, QueryAdapters, of_length_one};
pub use context::{MAX_CONTEXT_BYTES, StoredTexts, TextFailure, window};
pub(crate) use context::{Texts, widen};
pub use error::RetrievalError;
pub use figures::{RetrievalFigures, STAGE_BUCKETS, Stage};
pub use judgements::JudgedQuestion;
pub use retriever::Retriever;
pub(crate) use retriever::elapsed_ms;
pub use several::Several;
pub use types::{
    Fusion, RERANKING_LEFT_OUT, Scores, SearchItem, SearchMode, SearchRequest, SearchResult, SearchTimes, Span,
};
