//! Runs of agents: start, read, follow, stop.

use axum::Json as Reply;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use riverrun_schemas::{ChainId, RunId};
use riverrun_stores::read_models::Within;
use riverrun_stores::read_models::runs::{self, RunFilter};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::accept::{self, COMPONENT};
use crate::access::caller;
use crate::error::{ApiError, run_failed};
use crate::extract::{IdempotencyKey, Json, OptionalJson, Path, Query, id};
use crate::hub::{StreamEnd, unknown_run};
use crate::state::AppState;
use crate::submit::{self, Checks};
use crate::wire::{CancelBody, Page, Problem, RunAccepted, RunBody, RunMessage, RunStatus, RunSummary, RunView};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(run_and_wait))
        .routes(routes!(start, list))
        .routes(routes!(show))
        .routes(routes!(events))
        .routes(routes!(cancel))
}

/// Runs an agent and waits for its end, or until it waits for a person, who may take any time: then the answer is 202 with the run as it is.
/// A caller that goes away leaves the run running: `GET /runs/{id}` has it.
#[utoipa::path(post, path = "/agent/run", tag = "agents", request_body = RunBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same run")),
    responses((status = 200, body = RunView),
        (status = 202, description = "the run waits for a person: `pending_approvals` says for what", body = RunView, headers(("Location" = String, description = "the run"))),
        (status = 409, description = "the key was used with another body", body = Problem),
        (status = 422, body = Problem), (status = 500, description = "the model runtime is down", body = Problem)))]
async fn run_and_wait(
    State(state): State<AppState>,
    key: IdempotencyKey,
    Json(body): Json<RunBody>,
) -> Result<Response, ApiError> {
    let _slot = state.stream_slot()?;
    let _open = state.core().metrics().stream();
    let accepted = accept::run(&state, key.0.as_deref(), body).await?;
    let result = state.hub().run_stream(accepted.run_id, 0, false).settled().await?;
    match &result.error {
        // The specification wants 500 then.
        Some(error) if error.code == "model_runtime_down" => {
            Err(run_failed(StatusCode::INTERNAL_SERVER_ERROR, error, result.run_id))
        }
        _ if result.status == RunStatus::WaitingApproval => {
            let place = location(&format!("/runs/{}", result.run_id));
            Ok((StatusCode::ACCEPTED, place, Reply(result)).into_response())
        }
        _ => Ok(Reply(result).into_response()),
    }
}

/// Starts a run. The answer comes when its command is on the log.
#[utoipa::path(post, path = "/runs", tag = "agents", request_body = RunBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same run")),
    responses((status = 202, body = RunAccepted, headers(("Location" = String, description = "the run"))),
        (status = 409, description = "the key was used with another body", body = Problem), (status = 422, body = Problem), (status = 503, description = "the log does not answer", body = Problem)))]
async fn start(
    State(state): State<AppState>,
    key: IdempotencyKey,
    Json(body): Json<RunBody>,
) -> Result<Response, ApiError> {
    let accepted = accept::run(&state, key.0.as_deref(), body).await?;
    Ok(accepted_run(accepted.run_id, accepted.status))
}

pub(super) fn accepted_run(run_id: RunId, status: RunStatus) -> Response {
    let body = RunAccepted { run_id: run_id.to_string(), status, stream: format!("/ws/runs/{run_id}") };
    (StatusCode::ACCEPTED, location(&format!("/runs/{run_id}")), Reply(body)).into_response()
}

/// The header that says where the new thing is.
pub(super) fn location(path: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(path) {
        headers.insert(LOCATION, value);
    }
    headers
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Only those in this status.
    status: Option<String>,
    /// Only those of this agent.
    agent: Option<String>,
    /// Only those of this namespace.
    namespace: Option<String>,
    /// Only those of this session.
    session: Option<String>,
    /// Only those of this chain.
    chain: Option<String>,
    /// Most runs of a page; 50 when left out, 500 at most.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Runs, newest first.
#[utoipa::path(get, path = "/runs", tag = "agents", params(ListQuery), responses((status = 200, body = Page<RunSummary>), (status = 422, body = Problem)))]
async fn list(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
) -> Result<Reply<Page<RunSummary>>, ApiError> {
    let mut checks = Checks::default();
    let namespace = query.namespace.as_deref().map(|name| checks.namespace(Some(name)));
    let status: Option<RunStatus> = query.status.as_deref().and_then(|name| checks.take("status", name.parse()));
    let chain: Option<ChainId> = query.chain.as_deref().and_then(|id| checks.take("chain", id.parse()));
    let page = checks.page(query.limit, query.cursor);
    checks.finish()?;
    let within = namespace.as_ref().map_or(Within::EveryNamespace, Within::Namespace);
    let filter = RunFilter { status, agent: query.agent, session: query.session, chain };
    let page = runs::list(&state.parts().sql, within, &filter, &page).await?;
    Ok(Reply(Page { items: page.items, next_cursor: page.next_cursor }))
}

/// A run with its steps so far.
#[utoipa::path(get, path = "/runs/{id}", tag = "agents", params(("id" = String, Path)),
    responses((status = 200, body = RunView), (status = 404, body = Problem)))]
async fn show(State(state): State<AppState>, Path(run_id): Path<String>) -> Result<Reply<RunView>, ApiError> {
    let run_id: RunId = id(&run_id)?;
    state.hub().run_or_soon(run_id).await?.map(Reply).ok_or_else(|| unknown_run(run_id))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct FollowQuery {
    /// Only steps behind this `seq`.
    #[serde(default)]
    pub(crate) after: i64,
    /// Also pieces of text while models write.
    #[serde(default)]
    pub(crate) tokens: bool,
}

/// The messages of `/ws/runs/{id}` as server-sent events named by their `type`; the id of a step is its `seq`, so that a
/// browser that comes back goes on where it was.
#[utoipa::path(get, path = "/runs/{id}/events", tag = "agents",
    params(("id" = String, Path), FollowQuery, ("Last-Event-ID" = Option<i64>, Header, description = "wins over `after`")),
    responses((status = 200, content_type = "text/event-stream", body = RunMessage), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn events(
    State(state): State<AppState>,
    Path(run_id): Path<String>,
    Query(query): Query<FollowQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = submit::after(query.after)?;
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    let stream = state.hub().run_stream(id(&run_id)?, last.unwrap_or(after), query.tokens);
    stream.known().await?;
    let slot = state.stream_slot()?;
    let core = state.core().clone();
    // It ends without a `final`: whoever comes back is refused.
    let events = stream.into_stream().take_until(caller::token_lost()).map(move |item| {
        let _ = (&slot, &core);
        event(item)
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

fn event(item: Result<RunMessage, StreamEnd>) -> Result<Event, axum::Error> {
    match item {
        Ok(message) => {
            let message = message.bounded();
            let (name, seq) = match &message {
                RunMessage::Start { .. } => ("start", None),
                RunMessage::Step { step, .. } => ("step", Some(step.seq)),
                RunMessage::Token { .. } => ("token", None),
                RunMessage::Final { result, steps_total, .. } => {
                    ("final", steps_total.or_else(|| result.steps.last().map(|step| step.seq)))
                }
            };
            let event = Event::default().event(name).json_data(&message)?;
            Ok(match seq {
                Some(seq) => event.id(seq.to_string()),
                None => event,
            })
        }
        // The connection ends; whoever wants the rest comes back with `Last-Event-ID`.
        Err(end) => Err(axum::Error::new(end)),
    }
}

/// 409 for a run that nothing can be said to any more.
pub(super) fn ended(run: &RunView) -> ApiError {
    let detail = format!("run {} has ended already: it {}", run.run_id, run.status.as_str());
    ApiError::conflict("run_ended", detail).about_run(run.run_id)
}

/// Asks a run to stop. It ends as `cancelled` within seconds.
#[utoipa::path(post, path = "/runs/{id}/cancel", tag = "agents", request_body = CancelBody, params(("id" = String, Path)),
    responses((status = 202, body = RunAccepted), (status = 404, body = Problem), (status = 409, description = "the run has ended", body = Problem)))]
async fn cancel(
    State(state): State<AppState>,
    Path(run_id): Path<String>,
    OptionalJson(body): OptionalJson<CancelBody>,
) -> Result<Response, ApiError> {
    let run_id: RunId = id(&run_id)?;
    let run = state.hub().run_or_soon(run_id).await?.ok_or_else(|| unknown_run(run_id))?;
    if run.status.ended() {
        return Err(ended(&run).hint(format!("riverrun runs show {run_id}")));
    }
    submit::cancel_run(&state.parts().producer, run_id, body.reason, COMPONENT).await?;
    Ok(accepted_run(run_id, run.status))
}
