//! Chains of runs.

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::chains;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json};
use crate::state::AppState;
use crate::wire::{ChainAccepted, ChainBody, ChainRunAccepted, Problem};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(start))
}

/// Starts several runs of which some wait for the answers of others. The answer comes when all of them are on the log; from
/// there on the chain goes on by itself. A run that fails or is cancelled ends those that wait for it.
#[utoipa::path(post, path = "/chains", tag = "agents", request_body = ChainBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same chain")),
    responses((status = 202, body = ChainAccepted), (status = 404, description = "a collection is not there", body = Problem),
        (status = 409, description = "the key was used with another body", body = Problem), (status = 422, body = Problem), (status = 503, description = "the log does not answer", body = Problem)))]
async fn start(
    State(state): State<AppState>,
    key: IdempotencyKey,
    Json(body): Json<ChainBody>,
) -> Result<(StatusCode, Reply<ChainAccepted>), ApiError> {
    let runs = chains::start(&state, key.0.as_deref(), body).await?;
    let runs = runs
        .into_iter()
        .map(|run| ChainRunAccepted {
            name: run.name,
            run_id: run.run_id.to_string(),
            stream: format!("/ws/runs/{}", run.run_id),
        })
        .collect();
    Ok((StatusCode::ACCEPTED, Reply(ChainAccepted { runs })))
}
