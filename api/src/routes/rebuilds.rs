//! Keywords and vectors of a collection made again from the log: a command, and where it is.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::response::Response;
use riverrun_schemas::ingest::RebuildCollection;
use riverrun_schemas::{Collection, IngestId, now_ms};
use riverrun_stores::read_models::keyed::KeyedTable;
use riverrun_stores::read_models::{documents, rebuilds};
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
use crate::submit;
use crate::wire::{Problem, RebuildBody, RebuildView};

const REBUILD: Work = Work {
    name: "rebuild",
    place: "/rebuilds",
    patience: Duration::from_secs(10),
    first_word: Duration::from_secs(60),
};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(rebuild)).routes(routes!(show))
}

/// Makes keywords and vectors of a collection again from the log where they are lost, damaged or behind, beside searches, ingests and
/// removals. What is there and right is left alone; with `afresh` everything is set aside and made again. Until it is done searches tell
/// in `incomplete` that chunks may be lacking.
#[utoipa::path(post, path = "/collections/{name}/rebuild", tag = "knowledge", params(("name" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same request")),
    request_body = RebuildBody,
    responses((status = 200, description = "it has ended: `status` is `done`, `incomplete` or `failed`", body = RebuildView),
        (status = 202, description = "accepted, and not done within 10 s", body = RebuildView),
        (status = 404, description = "no such collection", body = Problem), (status = 409, description = "the key was used with another body", body = Problem), (status = 422, body = Problem)))]
async fn rebuild(
    State(state): State<AppState>,
    Path(name): Path<String>,
    key: IdempotencyKey,
    Json(body): Json<RebuildBody>,
) -> Result<Response, ApiError> {
    let collection = submit::collection(body.namespace.as_deref(), &name)?;
    let afresh = body.afresh.unwrap_or(false);
    let keyed = key.0.as_deref().map(|key| of_key(key, &collection, afresh)).transpose()?;
    let ingest_id = match &keyed {
        Some(keyed) => keyed.id(&state.parts().sql, KeyedTable::Rebuilds).await?,
        None => IngestId::new(),
    };
    if rebuilds::rebuild(&state.parts().sql, ingest_id).await?.is_none() {
        must_be_there(&state, &collection).await?;
        let Collection { namespace, name } = collection;
        let command = RebuildCollection { ingest_id, namespace, collection: name, afresh, at: now_ms() };
        once(keyed.as_ref(), state.reservations(), hand_in(&state, command)).await?;
    }
    REBUILD.outcome(ingest_id, RebuildView::ended, || rebuilds::rebuild(&state.parts().sql, ingest_id)).await
}

fn of_key<'k>(key: &'k str, collection: &Collection, afresh: bool) -> Result<Keyed<'k, IngestId>, ApiError> {
    let place = collection.physical_name();
    let former = IngestId::derive(&["rebuild", key, &place, &afresh.to_string()]);
    Ok(Keyed::new(key, "rebuild", &["rebuild", key, &place], &json!({ "afresh": afresh }))?.formerly(former))
}

/// What neither the read model nor an index knows is no collection.
async fn must_be_there(state: &AppState, collection: &Collection) -> Result<(), ApiError> {
    let parts = state.parts();
    let known = documents::holds_anything(&parts.sql, collection).await?
        || parts.vectors.info(collection).await?.is_some()
        || parts.keywords.exists(collection).await?;
    if known { Ok(()) } else { Err(unknown_collection(state, collection.clone()).await) }
}

/// Where a request is.
#[utoipa::path(get, path = "/rebuilds/{id}", tag = "knowledge", params(("id" = String, Path)),
    responses((status = 200, body = RebuildView), (status = 404, body = Problem)))]
async fn show(State(state): State<AppState>, Path(rebuild): Path<String>) -> Result<Reply<RebuildView>, ApiError> {
    let rebuild_id: IngestId = id(&rebuild)?;
    let known = rebuilds::rebuild(&state.parts().sql, rebuild_id).await?;
    known.map(Reply).ok_or_else(|| unknown_rebuild(rebuild_id))
}

pub(crate) fn unknown_rebuild(rebuild_id: IngestId) -> ApiError {
    REBUILD.unknown(rebuild_id)
}
