//! What is refused before anything is searched.

use riverrun_stores::CollectionInfo;

use super::error::RetrievalError;
use super::types::SearchRequest;

/// What is wrong with a request whatever the collection is.
pub(super) fn check(request: &SearchRequest) -> Result<(), RetrievalError> {
    if request.query.trim().is_empty() {
        return Err(RetrievalError::EmptyQuery);
    }
    if request.query.len() > SearchRequest::MAX_QUERY_BYTES {
        return Err(RetrievalError::QueryTooLong { bytes: request.query.len() });
    }
    let mut wordings = request.wordings.iter();
    if request.wordings.len() > SearchRequest::MAX_WORDINGS || wordings.any(|text| text.trim().is_empty()) {
        return Err(RetrievalError::BadWordings { count: request.wordings.len() });
    }
    if let Some(long) = request.wordings.iter().find(|text| text.len() > SearchRequest::MAX_QUERY_BYTES) {
        return Err(RetrievalError::QueryTooLong { bytes: long.len() });
    }
    if !(1..=SearchRequest::MAX_K).contains(&request.k) {
        return Err(RetrievalError::BadK { k: request.k });
    }
    Ok(())
}

/// Refuses a collection whose vectors are of another model than the caller expects.
pub(super) fn check_model(request: &SearchRequest, info: &CollectionInfo) -> Result<(), RetrievalError> {
    match &request.embed_model {
        Some(wanted) if *wanted != info.model => Err(RetrievalError::EmbeddingModelMismatch {
            collection: request.collection.clone(),
            stored: describe(&info.model, info.dimensions),
            wanted: format!("{wanted:?}"),
        }),
        _ => Ok(()),
    }
}

/// A model with the length of its vectors, as errors name it.
pub(super) fn describe(model: &str, dimensions: usize) -> String {
    format!("{model:?} ({dimensions} dimensions)")
}
