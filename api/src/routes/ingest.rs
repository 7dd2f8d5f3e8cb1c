//! Taking documents into collections.

use axum::Json as Reply;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use riverrun_schemas::{Collection, IngestId};
use riverrun_stores::read_models::documents;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use super::runs::location;
use super::{form, upload};
use crate::accept::{self, AcceptedIngest, Content};
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, Path, id};
use crate::hub::unknown_ingest;
use crate::ingest_source::allowed_source;
use crate::state::AppState;
use crate::submit::{self, IngestTarget};
use crate::wire::{IngestAccepted, IngestBody, IngestView, Problem};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(start).layer(crate::upload_limit())).routes(routes!(show))
}

/// Reads a source into a collection: JSON with a path on the server or an address, or `multipart/form-data` with files and
/// the fields `collection`, `namespace`, `type`, `include`, `exclude` and `metadata` (JSON). At most 100 files of 20 MiB each and
/// 64 MiB together; a zip archive comes alone, and its members are the documents.
#[utoipa::path(post, path = "/ingest", tag = "knowledge", request_body = IngestBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same ingest")),
    responses((status = 202, body = IngestAccepted, headers(("Location" = String, description = "the ingest"))), (status = 404, description = "no such source", body = Problem),
        (status = 409, description = "the key was used with another body, or the collection has another embedding model", body = Problem), (status = 413, body = Problem), (status = 415, body = Problem), (status = 422, body = Problem)))]
async fn start(State(state): State<AppState>, key: IdempotencyKey, request: Request) -> Result<Response, ApiError> {
    let key = key.0.as_deref();
    let accepted = if form::is_form(&request) {
        let form = form::of(request).await?;
        upload::start(&state, key, form).await?
    } else {
        let Json(body) = Json::<IngestBody>::from_request(request, &state).await?;
        from_source(&state, key, body).await?
    };
    Ok(accepted_ingest(accepted))
}

async fn from_source(state: &AppState, key: Option<&str>, body: IngestBody) -> Result<AcceptedIngest, ApiError> {
    let target = submit::ingest_target(&body, &state.core().ingest_defaults())?;
    check_model(state, &target).await?;
    let config = state.core().config().clone();
    let asked = body.clone();
    let source = tokio::task::spawn_blocking(move || allowed_source(&config, &asked))
        .await
        .map_err(|_| ApiError::internal("looking at the source broke off"))??;
    accept::ingest(state, key, &body, target, Content::Source(source)).await
}

/// 409 when the collection was made with another embedding model.
pub(super) async fn check_model(state: &AppState, target: &IngestTarget) -> Result<(), ApiError> {
    let collection = Collection::new(target.namespace.clone(), target.collection.clone());
    let known = documents::collection(&state.parts().sql, &collection).await?;
    submit::same_embed_model(known.as_ref(), &target.embed_model)
}

fn accepted_ingest(accepted: AcceptedIngest) -> Response {
    let id = accepted.ingest_id;
    let body =
        IngestAccepted { ingest_id: id.to_string(), documents: accepted.documents, stream: format!("/ws/ingest/{id}") };
    (StatusCode::ACCEPTED, location(&format!("/ingest/{id}")), Reply(body)).into_response()
}

/// Where an ingest is.
#[utoipa::path(get, path = "/ingest/{id}", tag = "knowledge", params(("id" = String, Path)),
    responses((status = 200, body = IngestView), (status = 404, body = Problem)))]
async fn show(State(state): State<AppState>, Path(ingest_id): Path<String>) -> Result<Reply<IngestView>, ApiError> {
    let ingest_id: IngestId = id(&ingest_id)?;
    state.hub().ingest(ingest_id).await?.map(Reply).ok_or_else(|| unknown_ingest(ingest_id))
}
