//! Canvases that are kept on the server: events on the log, and the document store that follows it.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use riverrun_schemas::canvases::{CanvasDeleted, CanvasEvent, CanvasSaved};
use riverrun_schemas::{CanvasId, EventId, Namespace, now_ms};
use riverrun_stores::StoreError;
use riverrun_stores::documents::{DocumentEntry, DocumentKey, DocumentKind, KeptDocument};
use riverrun_stores::read_models::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::accept::COMPONENT;
use crate::canvas_document;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, NamespaceQuery, Path, Query};
use crate::state::AppState;
use crate::submit::{self, Checks};
use crate::wait::until;
use crate::wire::{CanvasBody, CanvasEntry, CanvasRemoved, CanvasView, Page, Problem};

/// Largest canvas, as JSON, in bytes: half of what a body may have.
const MAX_CANVAS_BYTES: usize = 512 << 10;
/// Most canvases of a namespace.
const MAX_CANVASES: u64 = 1_000;
/// How long the store may take to follow the log.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(canvases)).routes(routes!(show, save, remove))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct CanvasesQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
    /// Most canvases of a page; 50 when left out, 500 at most.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Canvases of a namespace, by id.
#[utoipa::path(get, path = "/canvases", tag = "canvases", params(CanvasesQuery),
    responses((status = 200, body = Page<CanvasEntry>), (status = 422, body = Problem)))]
async fn canvases(
    State(state): State<AppState>,
    Query(query): Query<CanvasesQuery>,
) -> Result<Reply<Page<CanvasEntry>>, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(query.namespace.as_deref());
    let page = checks.page(query.limit, query.cursor);
    checks.finish()?;
    let found = state.parts().documents.list(DocumentKind::Canvas, &namespace, &page).await?;
    let items = found.items.into_iter().map(|entry| listed(&namespace, entry)).collect();
    Ok(Reply(Page { items, next_cursor: found.next_cursor }))
}

/// A canvas, as it was saved last.
#[utoipa::path(get, path = "/canvases/{id}", tag = "canvases", params(("id" = String, Path), NamespaceQuery),
    responses((status = 200, body = CanvasView), (status = 404, body = Problem)))]
async fn show(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
) -> Result<Reply<CanvasView>, ApiError> {
    let (namespace, kept) = found(&state, query.namespace.as_deref(), &text).await?;
    let document = serde_json::from_str(&kept.body)
        .map_err(|error| ApiError::internal(format!("canvas {text} is not kept as JSON: {error}")))?;
    Ok(Reply(CanvasView {
        canvas_id: text,
        namespace: namespace.to_string(),
        name: kept.name,
        revision: kept.revision,
        saved_at: Timestamp(kept.at),
        document,
    }))
}

/// Keeps a canvas, new or as the next revision of the one that was read. When somebody else saved in between it is refused:
/// read the canvas again, and save what should be there with its revision.
#[utoipa::path(put, path = "/canvases/{id}", tag = "canvases", request_body = CanvasBody, params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same revision")),
    responses((status = 200, description = "kept", body = CanvasEntry),
        (status = 409, description = "somebody else saved it in between, or the namespace is full", body = Problem),
        (status = 422, body = Problem)))]
async fn save(
    State(state): State<AppState>,
    Path(text): Path<String>,
    key: IdempotencyKey,
    Json(body): Json<CanvasBody>,
) -> Result<Reply<CanvasEntry>, ApiError> {
    let saved = checked(body, &text, &key)?;
    let (save_id, wanted) = (saved.save_id.to_string(), saved.revision);
    let (namespace, document_key) = (saved.namespace.clone(), DocumentKey::canvas(&saved.namespace, &saved.canvas_id));
    let store = &state.parts().documents;
    let before = store.get(&document_key).await?;
    if let Some(before) = before.as_ref().filter(|before| before.saves.contains(&save_id)) {
        return Ok(Reply(entry(&namespace, before)));
    }
    let current = before.as_ref().map_or(0, |before| before.revision);
    if current + 1 != wanted {
        return Err(overtaken(&text, &namespace, before.as_ref(), wanted - 1));
    }
    if before.is_none() && store.count(DocumentKind::Canvas, &namespace).await? >= MAX_CANVASES {
        let detail = format!("namespace {namespace} has {MAX_CANVASES} canvases, which is the limit");
        return Err(ApiError::conflict("too_many_canvases", detail).hint("riverrun canvas rm <id>"));
    }
    state.parts().producer.send(&CanvasEvent::from(saved), COMPONENT, None).await?;
    // Of two that pass at the same time the log has one first; the other one finds a revision that is not its own.
    let settled = until(PATIENCE, || async {
        let now = store.get(&document_key).await?;
        Ok::<_, StoreError>(now.filter(|now| now.saves.contains(&save_id) || now.revision >= wanted))
    });
    match settled.await? {
        Some(now) if now.saves.contains(&save_id) => Ok(Reply(entry(&namespace, &now))),
        Some(now) => Err(overtaken(&text, &namespace, Some(&now), wanted - 1)),
        None => {
            Err(ApiError::busy(format!("canvas {text} is on the log, and the document store does not show it yet"))
                .hint("read the canvas again before you save it again"))
        }
    }
}

/// Removes a canvas, whatever its revision.
#[utoipa::path(delete, path = "/canvases/{id}", tag = "canvases", params(("id" = String, Path), NamespaceQuery),
    responses((status = 200, description = "gone", body = CanvasRemoved), (status = 404, body = Problem)))]
async fn remove(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
) -> Result<Reply<CanvasRemoved>, ApiError> {
    let (namespace, kept) = found(&state, query.namespace.as_deref(), &text).await?;
    let canvas_id: CanvasId = text.parse()?;
    let event = CanvasDeleted { canvas_id, namespace: namespace.clone(), delete_id: EventId::new(), at: now_ms() };
    state.parts().producer.send(&CanvasEvent::from(event), COMPONENT, None).await?;
    let store = &state.parts().documents;
    let gone = until(PATIENCE, || async {
        let left = store.get(&kept.key).await?;
        Ok::<_, StoreError>(left.is_none().then_some(()))
    });
    let pending = gone.await?.is_none();
    Ok(Reply(CanvasRemoved { canvas_id: text, namespace: namespace.to_string(), revision: kept.revision, pending }))
}

/// The event that a body asks for.
fn checked(body: CanvasBody, text: &str, key: &IdempotencyKey) -> Result<CanvasSaved, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    let canvas_id = checks.take("id", text.parse::<CanvasId>());
    checks.require(
        (0..i64::MAX).contains(&body.revision),
        "revision",
        "must be 0 for a new canvas, else the revision that was changed",
    );
    let document = body.document.to_string();
    checks.require(
        document.len() <= MAX_CANVAS_BYTES,
        "document",
        format!("has {} bytes as JSON; at most {MAX_CANVAS_BYTES} are kept", document.len()),
    );
    let canvas_id = checks.finish_with(canvas_id)?;
    let canvas = canvas_document::read(document.as_bytes()).map_err(|error| error.below("document"))?;
    let save_id = match &key.0 {
        None => EventId::new(),
        Some(key) => EventId::derive(&["idempotency-key", "canvas", namespace.as_str(), canvas_id.as_str(), key]),
    };
    Ok(CanvasSaved {
        canvas_id,
        namespace,
        save_id,
        name: canvas.name,
        revision: body.revision + 1,
        document,
        at: now_ms(),
    })
}

async fn found(state: &AppState, namespace: Option<&str>, text: &str) -> Result<(Namespace, KeptDocument), ApiError> {
    let namespace = submit::namespace(namespace)?;
    let unknown = || {
        let name: String = text.chars().take(80).collect();
        ApiError::not_found(
            "canvas_not_found",
            format!("there is no canvas {name:?} in namespace {:?}", namespace.as_str()),
        )
        .hint(format!("riverrun canvas ls -n {namespace}"))
    };
    let Ok(canvas_id) = text.parse::<CanvasId>() else { return Err(unknown()) };
    match state.parts().documents.get(&DocumentKey::canvas(&namespace, &canvas_id)).await? {
        Some(kept) => Ok((namespace, kept)),
        None => Err(unknown()),
    }
}

fn overtaken(text: &str, namespace: &Namespace, now: Option<&KeptDocument>, known: i64) -> ApiError {
    let current = match now {
        Some(now) => format!("is at revision {}, saved at {}", now.revision, Timestamp(now.at)),
        None => "is not there".to_owned(),
    };
    ApiError::conflict("canvas_overtaken", format!("canvas {text} {current}; the one to save was made from {known}"))
        .hint(format!("riverrun canvas show {text} -n {namespace}, then save with its revision"))
}

fn entry(namespace: &Namespace, kept: &KeptDocument) -> CanvasEntry {
    CanvasEntry {
        canvas_id: kept.key.id.clone(),
        namespace: namespace.to_string(),
        name: kept.name.clone(),
        revision: kept.revision,
        saved_at: Timestamp(kept.at),
        size_bytes: i64::try_from(kept.body.len()).unwrap_or(i64::MAX),
    }
}

fn listed(namespace: &Namespace, entry: DocumentEntry) -> CanvasEntry {
    CanvasEntry {
        canvas_id: entry.id,
        namespace: namespace.to_string(),
        name: entry.name,
        revision: entry.revision,
        saved_at: Timestamp(entry.at),
        size_bytes: entry.size_bytes,
    }
}
