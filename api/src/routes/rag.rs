//! Search in collections, and answers from them.

use axum::Json as Reply;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use riverrun_knowledge::answer::{AskError, AskUsage};
use riverrun_knowledge::retrieval::{MAX_CONTEXT_BYTES, RetrievalError};
use riverrun_knowledge::{AskReply, AskRequest, SearchRequest, SearchResult};
use riverrun_models::{DeltaSink, Models};
use riverrun_schemas::ingest::document_id;
use riverrun_schemas::{Collection, CollectionName, DocumentId, counted};
use riverrun_stores::read_models::documents;
use riverrun_stores::{ChunkFilter, MAX_TAG_BYTES, metadata_tag};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::chat::{deltas, sse};
use super::context;
use crate::answer_cache;
use crate::error::ApiError;
use crate::extract::Json;
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{AskBody, AskDone, FilterBody, Problem, SearchBody, SearchDone};

/// Most documents that a filter names.
const MAX_FILTER: usize = 1_000;
/// Most fields of metadata that a filter looks at, and values of one.
const MAX_FIELDS: usize = 16;
const MAX_VALUES: usize = 100;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(search)).routes(routes!(ask))
}

/// The best chunks for a query: by meaning and by words, fused, re-ranked where a re-ranker is there.
#[utoipa::path(post, path = "/rag/search", tag = "knowledge", request_body = SearchBody,
    responses((status = 200, body = SearchDone), (status = 404, description = "no such collection", body = Problem), (status = 422, body = Problem)))]
async fn search(State(state): State<AppState>, Json(body): Json<SearchBody>) -> Result<Reply<Value>, ApiError> {
    let request = search_request(&state, &body)?;
    let around = body.context_bytes.unwrap_or(0);
    let found = state.parts().retriever.search(&request).await?;
    let mut found = with_metadata(&state, &request.collection, found).await?;
    if around > 0 {
        context::add(&state, &request.collection, &mut found, around).await?;
    }
    Ok(Reply(found))
}

fn search_request(state: &AppState, asked: &SearchBody) -> Result<SearchRequest, ApiError> {
    let config = state.core().config();
    let mut checks = Checks::default();
    checks.text("query", &asked.query, SearchRequest::MAX_QUERY_BYTES);
    let namespace = checks.namespace(asked.namespace.as_deref());
    let name = checks.take("collection", asked.collection.parse::<CollectionName>());
    let k = asked.k.unwrap_or(config.rag_top_k);
    checks.between("k", Some(k), 1..=SearchRequest::MAX_K);
    let collection = name.map(|name| Collection::new(namespace, name));
    let filter =
        asked.filter.as_ref().map(|filter| chunk_filter(&mut checks, collection.as_ref(), filter)).unwrap_or_default();
    check_wordings(&mut checks, &asked.wordings);
    check_context(&mut checks, asked.context_bytes);
    let collection = checks.finish_with(collection)?;
    Ok(SearchRequest {
        k,
        per_document: asked.per_document.unwrap_or(false),
        filter,
        rerank: asked.rerank,
        mode: asked.mode.map(Into::into).unwrap_or_default(),
        fusion: asked.fusion.map_or(config.rag_fusion, Into::into),
        wordings: asked.wordings.clone(),
        rewrite: asked.rewrite.unwrap_or(false),
        tuned: asked.tuned.unwrap_or(true),
        ..SearchRequest::new(collection, asked.query.as_str())
    })
}

fn check_context(checks: &mut Checks, around: Option<usize>) {
    let around = around.unwrap_or(0);
    checks.require(
        around <= MAX_CONTEXT_BYTES,
        "context_bytes",
        format!("is {around}, which is more than {MAX_CONTEXT_BYTES}"),
    );
}

fn check_wordings(checks: &mut Checks, wordings: &[String]) {
    let most = SearchRequest::MAX_WORDINGS;
    checks.require(
        wordings.len() <= most,
        "wordings",
        format!("has {} texts; at most {most} are searched for", wordings.len()),
    );
    for (index, wording) in wordings.iter().take(most).enumerate() {
        checks.text(&format!("wordings[{index}]"), wording, SearchRequest::MAX_QUERY_BYTES);
    }
}

fn chunk_filter(checks: &mut Checks, collection: Option<&Collection>, filter: &FilterBody) -> ChunkFilter {
    let count = filter.document_ids.len() + filter.sources.len();
    checks.require(
        count <= MAX_FILTER && count + filter.metadata.len() > 0,
        "filter",
        format!(
            "names {} and {} of metadata; at most {MAX_FILTER} documents, and not nothing",
            counted(count, "document"),
            counted(filter.metadata.len(), "field")
        ),
    );
    checks.require(
        filter.metadata.len() <= MAX_FIELDS,
        "filter.metadata",
        format!("has {} fields; at most {MAX_FIELDS} are looked at", filter.metadata.len()),
    );
    let mut found: Vec<DocumentId> = Vec::new();
    for (index, text) in filter.document_ids.iter().enumerate() {
        found.extend(checks.take(&format!("filter.document_ids[{index}]"), text.parse::<DocumentId>()));
    }
    if let Some(collection) = collection {
        found.extend(filter.sources.iter().map(|source| document_id(collection, source)));
    }
    let tags = filter.metadata.iter().take(MAX_FIELDS).map(|(field, value)| tags(checks, field, value)).collect();
    ChunkFilter { documents: found, tags }
}

/// The tags of a field, one of which a chunk must have.
fn tags(checks: &mut Checks, field: &str, wanted: &Value) -> Vec<String> {
    let values = match wanted {
        Value::Array(values) => values.as_slice(),
        single => std::slice::from_ref(single),
    };
    checks.require(
        (1..=MAX_VALUES).contains(&values.len()),
        &format!("filter.metadata.{field}"),
        format!("has {} values, which is not between 1 and {MAX_VALUES}", values.len()),
    );
    let tags: Vec<String> = values.iter().take(MAX_VALUES).filter_map(|value| metadata_tag(field, value)).collect();
    checks.require(
        tags.len() == values.len().min(MAX_VALUES),
        &format!("filter.metadata.{field}"),
        format!("must be a text, number or truth of at most {MAX_TAG_BYTES} bytes with its name, or a list of them"),
    );
    tags
}

/// Adds the callers' own metadata to that of the chunks.
async fn with_metadata(state: &AppState, collection: &Collection, found: SearchResult) -> Result<Value, ApiError> {
    let ids: Vec<DocumentId> = found.items.iter().map(|item| item.document_id).collect();
    let metadata = documents::document_metadata(&state.parts().sql, collection, &ids).await?;
    let mut found = found;
    for item in &mut found.items {
        if let (Some(Value::Object(own)), Value::Object(all)) = (metadata.get(&item.document_id), &mut item.metadata) {
            for (key, value) in own {
                all.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
    serde_json::to_value(found).map_err(|error| ApiError::internal(error.to_string()))
}

/// An answer grounded in chunks, with citations that were checked.
#[utoipa::path(post, path = "/rag/ask", tag = "knowledge", request_body = AskBody, responses(
    (status = 200, description = "with `stream: true` server-sent events: `delta` `{text}`, then `final` with this object, or `error` with a problem document", body = AskDone),
    (status = 404, description = "no such collection", body = Problem), (status = 422, body = Problem), (status = 503, description = "the model is not there", body = Problem)))]
async fn ask(State(state): State<AppState>, Json(body): Json<AskBody>) -> Result<Response, ApiError> {
    let search = search_request(&state, &body.search())?;
    let context_bytes = body.context_bytes.unwrap_or(state.core().config().rag_context_bytes);
    let mut checks = Checks::default();
    state.core().known().provider(&mut checks, body.provider.as_deref());
    checks.finish()?;
    let request = AskRequest { provider: body.provider, model: body.model, context_bytes, ..AskRequest::new(search) };
    let cancel = CancellationToken::new();
    let stop = cancel.clone().drop_guard(); // a caller that goes away stops the model
    let (answerer, cache) = (state.parts().answerer.clone(), state.core().cache().clone());
    let models = state.core().models().clone();
    let key = answer_cache::key(&state, &request).await;
    if let Some(answer) = answer_cache::find(cache.as_ref(), key.as_deref()).await {
        return Ok(given_before(answer, body.stream.unwrap_or(false)));
    }
    if !body.stream.unwrap_or(false) {
        let reply = priced(answerer.ask(&request, &mut |_| {}, cancel).await?, &request, &models);
        drop(stop);
        answer_cache::keep(cache.as_ref(), key.as_deref(), &reply).await;
        return Ok(Reply(reply).into_response());
    }
    // A collection that is not there is a plain 404, not an event in a stream that began with 200.
    if documents::collection(&state.parts().sql, &request.search.collection).await?.is_none() {
        state.parts().retriever.search(&request.search).await?;
    }
    let slot = state.stream_slot()?;
    let pieces = deltas(move |mut sender| async move {
        let mut on_delta = |text: &str| sender.delta(text);
        let reply = answerer.ask(&request, &mut on_delta, cancel).await.map_err(ApiError::from)?;
        let reply = priced(reply, &request, &models);
        answer_cache::keep(cache.as_ref(), key.as_deref(), &reply).await;
        Ok(reply)
    });
    Ok(sse(pieces.map(move |piece| {
        let _ = (&stop, &slot);
        piece
    })))
}

/// The answer with what it cost, where the price is known.
fn priced(mut reply: AskReply, request: &AskRequest, models: &Models) -> AskReply {
    let model = request.model.as_deref().unwrap_or_default();
    let cost = models.cost(request.provider.as_deref(), model, reply.usage.told);
    reply.usage = AskUsage { cost_usd: cost.usd, unpriced_tokens: cost.unpriced_tokens, ..reply.usage };
    reply
}

/// An answer from the cache; its times are those of when it was given first.
fn given_before(answer: Value, as_stream: bool) -> Response {
    let hit = [("x-riverrun-cache", "hit")];
    if !as_stream {
        return (hit, Reply(answer)).into_response();
    }
    let pieces = deltas(move |mut sender| async move {
        sender.delta(answer["answer"].as_str().unwrap_or_default());
        Ok::<Value, ApiError>(answer)
    });
    (hit, sse(pieces)).into_response()
}

impl From<RetrievalError> for ApiError {
    fn from(error: RetrievalError) -> Self {
        let (code, text, hint) = (error.code(), error.to_string(), error.hint());
        let answer = match error {
            RetrievalError::Model(error) => return error.into(),
            RetrievalError::Store(error) => return error.into(),
            RetrievalError::CollectionNotFound { .. } => ApiError::not_found(code, text),
            RetrievalError::EmbeddingModelMismatch { .. } => ApiError::conflict(code, text),
            RetrievalError::Incomplete { .. } => ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, code, text),
            RetrievalError::EmptyQuery | RetrievalError::QueryTooLong { .. } => {
                ApiError::field("query", text).code_as(code)
            }
            RetrievalError::BadWordings { .. } => ApiError::field("wordings", text).code_as(code),
            RetrievalError::BadK { .. } => ApiError::field("k", text).code_as(code),
        };
        match hint {
            Some(hint) => answer.hint(hint),
            None => answer,
        }
    }
}

impl From<AskError> for ApiError {
    fn from(error: AskError) -> Self {
        let (code, text, hint) = (error.code(), error.to_string(), error.hint());
        match error {
            AskError::Retrieval(error) => error.into(),
            AskError::Model(error) => error.into(),
            AskError::ContextTooSmall { .. } => {
                let answer = ApiError::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, code, text);
                hint.map_or(answer.clone(), |hint| answer.hint(hint))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_models::{ModelSettings, Usage};
    use serde_json::json;

    use super::*;

    fn reply() -> AskReply {
        AskReply {
            answer: "a".to_owned(),
            found: true,
            citations: Vec::new(),
            sentences: Vec::new(),
            usage: AskUsage { told: Usage { prompt_tokens: 1_000_000, ..Usage::default() }, ..AskUsage::default() },
            took_ms: riverrun_knowledge::answer::AskTimes::default(),
            trace_id: None,
            model: Some("m".to_owned()),
            finish: None,
            dropped: Vec::new(),
            removed_citations: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn given_an_answer_of_a_model_with_a_price_when_it_is_shown_then_its_cost_is_there_and_else_left_out() {
        let models = Models::new(ModelSettings { offline: true, ..ModelSettings::default() }).unwrap();
        let collection = Collection::new(riverrun_schemas::Namespace::default(), "c".parse().unwrap());
        let asked = |model: &str| AskRequest {
            model: Some(model.to_owned()),
            ..AskRequest::new(SearchRequest::new(collection.clone(), "q"))
        };
        for (model, cost, unpriced) in [
            ("openai/gpt-4o-mini", json!(0.15), Value::Null),
            ("ollama/m", Value::Null, Value::Null),
            ("mistral/m", Value::Null, json!(1_000_000)),
        ] {
            let shown = serde_json::to_value(priced(reply(), &asked(model), &models)).unwrap();
            assert_eq!(
                (&shown["usage"]["cost_usd"], &shown["usage"]["unpriced_tokens"]),
                (&cost, &unpriced),
                "{model}"
            );
        }
    }
}
