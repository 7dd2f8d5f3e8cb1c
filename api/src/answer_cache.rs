//! Answers that were given before, for as long as the collection is what it was.

use std::time::Duration;

use riverrun_knowledge::retrieval::RERANKING_LEFT_OUT;
use riverrun_knowledge::{AskReply, AskRequest};
use riverrun_models::{FinishReason, Reranker};
use riverrun_stores::Cache;
use riverrun_stores::read_models::collection_state::collection_state;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::state::AppState;

/// How long an answer is kept; by then what was deleted from a collection is gone from here too.
const KEEP: Duration = Duration::from_secs(3_600);

/// What answers to the request are kept under: the collection's state, the request and the model. `None` where none are kept: a
/// temperature above 0 wants another answer each time, and a collection that can't be looked at has no state.
pub(crate) async fn key(state: &AppState, request: &AskRequest) -> Option<String> {
    if request.temperature.is_some_and(|temperature| temperature > 0.0) {
        return None;
    }
    // The request itself fails with the reason.
    let version = collection_state(&state.parts().sql, &request.search.collection).await.ok()??;
    let models = state.core().models();
    let provider = request.provider.as_deref().unwrap_or_else(|| models.settings().default_provider());
    let model = request.model.as_deref().unwrap_or_else(|| models.default_chat_model());
    // Once there is a re-ranker, answers that were given without it are none of its.
    let reranked = models.reranker() == Reranker::Ready;
    let whole = format!("{}\n{version}\n{provider}\n{model}\n{reranked}\n{request:?}", env!("CARGO_PKG_VERSION"));
    let hash = Sha256::digest(whole);
    Some(format!("answer:{}", hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

/// The answer that was given before.
pub(crate) async fn find(cache: &dyn Cache, key: Option<&str>) -> Option<Value> {
    let bytes = cache.get(key?).await?;
    let answer: Value = serde_json::from_slice(&bytes).ok()?;
    answer.get("answer").is_some_and(Value::is_string).then_some(answer)
}

/// Keeps an answer that the model ended by itself and for which nothing was left out, but for a re-ranking: that lasts.
pub(crate) async fn keep(cache: &dyn Cache, key: Option<&str>, reply: &AskReply) {
    let whole =
        reply.finish == Some(FinishReason::Stop) && reply.notes.iter().all(|note| note.starts_with(RERANKING_LEFT_OUT));
    if let (Some(key), true, Ok(bytes)) = (key, whole, serde_json::to_vec(reply)) {
        cache.put(key, bytes, KEEP).await;
    }
}
