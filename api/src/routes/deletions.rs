//! Removing documents and collections: a command on the log, and a receipt of what went from which index.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::response::Response;
use riverrun_schemas::ingest::{DeleteCollection, DeleteDocument};
use riverrun_schemas::{Collection, DocumentId, IngestId, now_ms};
use riverrun_stores::read_models::{DeletionView, deletions, documents};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::awaited::Work;
use super::collections::unknown_collection;
use super::documents::unknown;
use crate::accept::hand_in;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, NamespaceQuery, Path, Query, id};
use crate::state::AppState;
use crate::submit;
use crate::wire::Problem;

const DELETION: Work = Work {
    name: "deletion",
    place: "/deletions",
    patience: Duration::from_secs(30),
    first_word: Duration::from_secs(30),
};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(delete_document)).routes(routes!(delete_collection)).routes(routes!(show))
}

/// Removes a document from vectors, keywords, warehouse and read models; says what went.
#[utoipa::path(delete, path = "/documents/{id}", tag = "knowledge", params(("id" = String, Path), NamespaceQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same removal")),
    responses((status = 200, description = "gone", body = DeletionView), (status = 202, description = "accepted, and not done within 30 s", body = DeletionView),
        (status = 404, description = "no such document", body = Problem)))]
async fn delete_document(
    State(state): State<AppState>,
    Path(document): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
) -> Result<Response, ApiError> {
    let document_id: DocumentId = id(&document)?;
    let namespace = submit::namespace(query.namespace.as_deref())?;
    let deletion_id = deletion_id(key.0.as_deref(), &["document", namespace.as_str(), &document]);
    if let Some(known) = deletions::deletion(&state.parts().sql, deletion_id).await? {
        return Ok(receipt(known));
    }
    let found = documents::document_in(&state.parts().sql, &namespace, document_id)
        .await?
        .ok_or_else(|| unknown(document_id, &namespace))?;
    let command = DeleteDocument {
        document_id,
        ingest_id: deletion_id,
        namespace,
        collection: found.collection,
        source: found.source,
        at: now_ms(),
    };
    hand_in(&state, command).await?;
    wait(&state, deletion_id, false).await
}

/// Removes every document of a collection that was handed in before the request; says what went. A collection without
/// documents is none: it may come back with another embedding model.
#[utoipa::path(delete, path = "/collections/{name}", tag = "knowledge", params(("name" = String, Path), NamespaceQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same removal")),
    responses((status = 200, description = "gone", body = DeletionView), (status = 202, description = "accepted, and not done within 30 s", body = DeletionView),
        (status = 404, description = "no such collection", body = Problem)))]
async fn delete_collection(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
) -> Result<Response, ApiError> {
    let collection = submit::collection(query.namespace.as_deref(), &name)?;
    let deletion_id = deletion_id(key.0.as_deref(), &["collection", &collection.physical_name()]);
    if let Some(known) = deletions::deletion(&state.parts().sql, deletion_id).await? {
        return Ok(receipt(known));
    }
    if !documents::holds_anything(&state.parts().sql, &collection).await? {
        return Err(unknown_collection(&state, collection).await);
    }
    let Collection { namespace, name } = collection;
    let command = DeleteCollection { ingest_id: deletion_id, namespace, collection: name, at: now_ms() };
    hand_in(&state, command).await?;
    wait(&state, deletion_id, true).await
}

/// What a removal came to so far.
#[utoipa::path(get, path = "/deletions/{id}", tag = "knowledge", params(("id" = String, Path)),
    responses((status = 200, body = DeletionView), (status = 404, body = Problem)))]
async fn show(State(state): State<AppState>, Path(deletion): Path<String>) -> Result<Reply<DeletionView>, ApiError> {
    let deletion_id: IngestId = id(&deletion)?;
    deletions::deletion(&state.parts().sql, deletion_id).await?.map(Reply).ok_or_else(|| unknown_deletion(deletion_id))
}

pub(crate) fn unknown_deletion(deletion_id: IngestId) -> ApiError {
    DELETION.unknown(deletion_id)
}

fn deletion_id(key: Option<&str>, what: &[&str]) -> IngestId {
    match key {
        Some(key) => IngestId::derive(&[&["delete", key][..], what].concat()),
        None => IngestId::new(),
    }
}

async fn wait(state: &AppState, deletion_id: IngestId, whole_collection: bool) -> Result<Response, ApiError> {
    let is_over = |view: &DeletionView| view.is_done() && (!whole_collection || view.total.is_some());
    let look = || deletions::deletion(&state.parts().sql, deletion_id);
    DELETION.wait(deletion_id, is_over, look).await.map(receipt)
}

fn receipt(view: DeletionView) -> Response {
    let is_done = view.is_done();
    DELETION.answer(view.deletion_id, view, is_done)
}
