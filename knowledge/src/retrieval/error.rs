use riverrun_models::ModelError;
use riverrun_schemas::{Collection, Failure};
use riverrun_stores::{Gap, StoreError};

use super::SearchRequest;

/// Why a search gave no answer. Finding nothing is none of these.
#[derive(Debug, thiserror::Error)]
pub enum RetrievalError {
    /// The query is empty or white space.
    #[error("the query is empty")]
    EmptyQuery,
    /// The query is too long.
    #[error("the query has {bytes} bytes, more than the {limit} that a query may have", limit = SearchRequest::MAX_QUERY_BYTES)]
    QueryTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// `k` is zero or too large.
    #[error("k is {k}, which is not between 1 and {max}", max = SearchRequest::MAX_K)]
    BadK {
        /// What was asked for.
        k: usize,
    },
    /// Too many other wordings, or an empty one.
    #[error("{count} other wordings came, of which there may be {max} and none empty", max = SearchRequest::MAX_WORDINGS)]
    BadWordings {
        /// How many.
        count: usize,
    },
    /// There is no such collection.
    #[error("{} does not exist", .collection.quoted())]
    CollectionNotFound {
        /// The collection.
        collection: Collection,
        /// The collections of its namespace.
        existing: Vec<String>,
    },
    /// The collection's index is gone; it is being made again, or needs somebody.
    #[error("{} can't be searched now: {}", .collection.quoted(), .gap.reason)]
    Incomplete {
        /// The collection.
        collection: Collection,
        /// What is wrong with it.
        gap: Gap,
    },
    /// The caller expects another embedding model than the collection has, or the model changed the length of its vectors.
    #[error("{} holds vectors of {stored}, not of {wanted}", .collection.quoted())]
    EmbeddingModelMismatch {
        /// The collection.
        collection: Collection,
        /// Its model and dimensions.
        stored: String,
        /// The model, or model and dimensions, that were asked for.
        wanted: String,
    },
    /// A model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RetrievalError {
    /// Stable code, lower snake case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::EmptyQuery => "empty_query",
            Self::QueryTooLong { .. } => "query_too_long",
            Self::BadK { .. } => "bad_k",
            Self::BadWordings { .. } => "bad_wordings",
            Self::CollectionNotFound { .. } => "collection_not_found",
            Self::Incomplete { .. } => "index_incomplete",
            Self::EmbeddingModelMismatch { .. } => "embedding_model_mismatch",
            Self::Model(error) => error.code(),
            Self::Store(error) => error.code(),
        }
    }

    /// The fix, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::EmptyQuery => Some("ask something".to_owned()),
            Self::QueryTooLong { .. } => {
                Some("shorten the query; put long texts into the collection instead".to_owned())
            }
            Self::BadK { .. } => Some(format!("choose k between 1 and {}", SearchRequest::MAX_K)),
            Self::BadWordings { .. } => Some("leave empty ones out, or ask several times".to_owned()),
            Self::CollectionNotFound { collection, existing } if existing.is_empty() => Some(format!(
                "the namespace has no collections yet; make one: riverrun ingest <source> -c {}",
                collection.name
            )),
            Self::CollectionNotFound { existing, .. } => Some(format!("existing collections: {}", existing.join(", "))),
            Self::Incomplete { collection, gap } => Some(gap.fix(collection)),
            Self::EmbeddingModelMismatch { stored, .. } => {
                Some(format!("use the collection's own model, {stored}, or ingest into a new collection"))
            }
            Self::Model(error) => error.hint(),
            Self::Store(error) => error.hint(),
        }
    }

    /// As events and problem documents carry it.
    pub fn failure(&self) -> Failure {
        Failure { code: self.code().to_owned(), message: self.to_string(), hint: self.hint() }
    }
}
