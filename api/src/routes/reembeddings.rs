//! Another embedding model for a collection: a command on the log, and where it is.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::response::Response;
use riverrun_schemas::ingest::ReembedCollection;
use riverrun_schemas::{Collection, CollectionName, IngestId, now_ms};
use riverrun_stores::read_models::keyed::KeyedTable;
use riverrun_stores::read_models::{documents, reembeddings};
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::awaited::Work;
use super::collections::unknown_collection;
use crate::accept::hand_in;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, Path, id};
use crate::keyed::{Keyed, once};
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{Problem, ReembedBody, ReembeddingView};

const REEMBEDDING: Work = Work {
    name: "reembedding",
    place: "/reembeddings",
    patience: Duration::from_secs(10),
    first_word: Duration::from_secs(60),
};
/// Longest name of a model, in bytes.
const MAX_MODEL: usize = 200;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(reembed)).routes(routes!(show))
}

/// Embeds a collection with another model, beside the searches, and goes over to it when every chunk is there. Searches and ingests go
/// on meanwhile. A request that failed may be made again: what is there is not embedded twice.
#[utoipa::path(post, path = "/collections/{name}/reembed", tag = "knowledge", params(("name" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same request")),
    request_body = ReembedBody,
    responses((status = 200, description = "it has ended: `status` is `done` or `failed`", body = ReembeddingView),
        (status = 202, description = "accepted, and not done within 10 s", body = ReembeddingView),
        (status = 404, description = "no such collection", body = Problem),
        (status = 409, description = "it has that model, or the key was used with another body", body = Problem), (status = 422, body = Problem)))]
async fn reembed(
    State(state): State<AppState>,
    Path(name): Path<String>,
    key: IdempotencyKey,
    Json(body): Json<ReembedBody>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    let name = checks.take("collection", name.parse::<CollectionName>());
    let embed_model = body.model.unwrap_or_else(|| state.core().ingest_defaults().embed_model);
    checks.text("model", &embed_model, MAX_MODEL);
    let collection = Collection::new(namespace, checks.finish_with(name)?);
    let sql = &state.parts().sql;
    let keyed = key.0.as_deref().map(|key| of_key(key, &collection, &embed_model)).transpose()?;
    let ingest_id = match &keyed {
        Some(keyed) => keyed.id(sql, KeyedTable::Reembeddings).await?,
        None => IngestId::new(),
    };
    if reembeddings::reembedding(sql, ingest_id).await?.is_none() {
        let Some(known) = documents::collection(sql, &collection).await? else {
            return Err(unknown_collection(&state, collection).await);
        };
        if known.embedding.model == embed_model {
            let what = format!("{} holds vectors of {embed_model:?} already", collection.quoted());
            return Err(ApiError::conflict("embedded_already", what).hint("name another model"));
        }
        let Collection { namespace, name } = collection;
        let command = ReembedCollection { ingest_id, namespace, collection: name, embed_model, at: now_ms() };
        once(keyed.as_ref(), state.reservations(), hand_in(&state, command)).await?;
    }
    REEMBEDDING.outcome(ingest_id, ReembeddingView::ended, || reembeddings::reembedding(sql, ingest_id)).await
}

fn of_key<'k>(key: &'k str, collection: &Collection, embed_model: &str) -> Result<Keyed<'k, IngestId>, ApiError> {
    let place = collection.physical_name();
    let former = IngestId::derive(&["reembed", key, &place, embed_model]);
    Ok(Keyed::new(key, "reembedding", &["reembed", key, &place], &json!({ "model": embed_model }))?.formerly(former))
}

/// Where a request is.
#[utoipa::path(get, path = "/reembeddings/{id}", tag = "knowledge", params(("id" = String, Path)),
    responses((status = 200, body = ReembeddingView), (status = 404, body = Problem)))]
async fn show(
    State(state): State<AppState>,
    Path(reembedding): Path<String>,
) -> Result<Reply<ReembeddingView>, ApiError> {
    let reembedding_id: IngestId = id(&reembedding)?;
    let known = reembeddings::reembedding(&state.parts().sql, reembedding_id).await?;
    known.map(Reply).ok_or_else(|| unknown_reembedding(reembedding_id))
}

pub(crate) fn unknown_reembedding(reembedding_id: IngestId) -> ApiError {
    REEMBEDDING.unknown(reembedding_id)
}
