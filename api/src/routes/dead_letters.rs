//! Records that could not be handled.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine;
use riverrun_log::LogError;
use riverrun_log::dead_letters::{DeadLetter, LetterId, LetterState};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::runs::location;
use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{DeadLetterEntry, Items, Problem, Redriven, Timestamp};

/// Letters of a topic that a list shows when it names no number, and at most.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(redrive))
        .routes(routes!(drop_letter))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Only those of this topic.
    topic: Option<String>,
    /// The newest so many of each topic; 50 when left out, 500 at most.
    limit: Option<usize>,
}

/// Dead letters, oldest first.
#[utoipa::path(get, path = "/dlq", tag = "log", params(ListQuery), responses((status = 200, body = Items<DeadLetterEntry>), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn list(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Items<DeadLetterEntry>>, ApiError> {
    let mut checks = Checks::default();
    checks.between("limit", query.limit, 1..=MAX_LIMIT);
    checks.finish()?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    let letters = state
        .dead_letters()
        .list(query.topic.as_deref(), limit)
        .await
        .map_err(|error| missing(error, "riverrun topics"))?;
    Ok(Json(Items { items: letters.iter().map(|letter| entry(letter, false)).collect() }))
}

/// One dead letter with its bytes.
#[utoipa::path(get, path = "/dlq/{id}", tag = "log", params(("id" = String, Path, description = "such as `riverrun.ingest.commands.dlq:0`")),
    responses((status = 200, body = DeadLetterEntry), (status = 404, body = Problem)))]
async fn show(State(state): State<AppState>, Path(id): Path<String>) -> Result<Json<DeadLetterEntry>, ApiError> {
    let id = letter_id(&id)?;
    Ok(Json(entry(&state.dead_letters().show(&id).await.map_err(|error| missing(error, LISTED))?, true)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct RedriveQuery {
    /// Also when it was handled before.
    #[serde(default)]
    again: bool,
}

/// Sends the original bytes to the original topic again.
#[utoipa::path(post, path = "/dlq/{id}/redrive", tag = "log", params(("id" = String, Path), RedriveQuery),
    responses((status = 202, body = Redriven), (status = 404, body = Problem)))]
async fn redrive(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Query(query): Query<RedriveQuery>,
) -> Result<(StatusCode, HeaderMap, Json<Redriven>), ApiError> {
    let id = letter_id(&id)?;
    let position = state.dead_letters().redrive(&id, query.again).await.map_err(|error| missing(error, LISTED))?;
    let done = Redriven {
        id: id.to_string(),
        topic: position.topic.to_string(),
        partition: position.partition,
        offset: position.offset,
    };
    Ok((StatusCode::ACCEPTED, location(&format!("/dlq/{id}")), Json(done)))
}

/// Marks a dead letter as needing nothing.
#[utoipa::path(post, path = "/dlq/{id}/drop", tag = "log", params(("id" = String, Path)),
    responses((status = 200, body = DeadLetterEntry), (status = 404, body = Problem)))]
async fn drop_letter(State(state): State<AppState>, Path(id): Path<String>) -> Result<Json<DeadLetterEntry>, ApiError> {
    let id = letter_id(&id)?;
    state.dead_letters().drop_letter(&id).await.map_err(|error| missing(error, LISTED))?;
    Ok(Json(entry(&state.dead_letters().show(&id).await.map_err(|error| missing(error, LISTED))?, false)))
}

/// The fix where there is no such dead letter.
const LISTED: &str = "riverrun dlq ls";

fn letter_id(text: &str) -> Result<LetterId, ApiError> {
    text.parse().map_err(|error| missing(error, LISTED))
}

/// The error, with what lists those that are there where one is not.
fn missing(error: LogError, lists: &str) -> ApiError {
    let absent = matches!(error, LogError::NotFound(_));
    let error = ApiError::from(error);
    if absent { error.hint(lists) } else { error }
}

fn entry(letter: &DeadLetter, with_payload: bool) -> DeadLetterEntry {
    let payload = letter.payload.as_deref().unwrap_or_default();
    DeadLetterEntry {
        id: letter.id.to_string(),
        topic: letter.origin.topic.to_string(),
        partition: letter.origin.partition,
        offset: letter.origin.offset,
        group: letter.group.clone(),
        code: letter.code.clone(),
        reason: letter.reason.clone(),
        attempts: letter.attempts,
        schema_id: letter.schema_id,
        key: letter.key.as_deref().map(|key| String::from_utf8_lossy(key).into_owned()),
        size_bytes: payload.len(),
        at: Timestamp(letter.at_ms),
        status: match letter.state {
            LetterState::Open => "open",
            LetterState::Redriven => "redriven",
            LetterState::Dropped => "dropped",
        }
        .to_owned(),
        payload_base64: with_payload.then(|| base64::engine::general_purpose::STANDARD.encode(payload)),
    }
}
