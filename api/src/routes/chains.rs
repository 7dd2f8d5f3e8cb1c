//! Chains of runs.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use riverrun_schemas::ChainId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::runs::location;
use crate::chains;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, OptionalJson, Path, id};
use crate::state::AppState;
use crate::wait::until;
use crate::wire::{CancelBody, ChainAccepted, ChainBody, ChainRunAccepted, ChainView, Problem};

/// How long a chain of which another process has accepted runs is waited for until all of them show.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(start)).routes(routes!(show)).routes(routes!(cancel))
}

/// Starts several runs of which some wait for the answers of others. The answer comes when all of them are on the log; from
/// there on the chain goes on by itself. A run that fails or is cancelled ends those that wait for it.
#[utoipa::path(post, path = "/chains", tag = "agents", request_body = ChainBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same chain")),
    responses((status = 202, body = ChainAccepted, headers(("Location" = String, description = "the chain"))),
        (status = 404, description = "a collection is not there", body = Problem),
        (status = 409, description = "the key was used with another body", body = Problem), (status = 422, body = Problem), (status = 503, description = "the log does not answer", body = Problem)))]
async fn start(
    State(state): State<AppState>,
    key: IdempotencyKey,
    Json(body): Json<ChainBody>,
) -> Result<(StatusCode, HeaderMap, Reply<ChainAccepted>), ApiError> {
    let (chain_id, runs) = chains::start(&state, key.0.as_deref(), body).await?;
    let runs = runs
        .into_iter()
        .map(|run| ChainRunAccepted {
            name: run.name,
            run_id: run.run_id.to_string(),
            stream: format!("/ws/runs/{}", run.run_id),
        })
        .collect();
    let chain_id = chain_id.to_string();
    let place = location(&format!("/chains/{chain_id}"));
    Ok((StatusCode::ACCEPTED, place, Reply(ChainAccepted { chain_id, runs })))
}

/// A chain with where each of its runs is, and what they have used together. Steps and answers are shown by the runs.
#[utoipa::path(get, path = "/chains/{id}", tag = "agents", operation_id = "show_chain", params(("id" = String, Path)),
    responses((status = 200, body = ChainView), (status = 404, body = Problem)))]
async fn show(State(state): State<AppState>, Path(chain_id): Path<String>) -> Result<Reply<ChainView>, ApiError> {
    known(&state, id(&chain_id)?).await.map(Reply)
}

/// Asks every run of a chain that has not ended to stop, those that wait for others too. They end as `cancelled` within
/// seconds.
#[utoipa::path(post, path = "/chains/{id}/cancel", tag = "agents", operation_id = "cancel_chain", request_body = CancelBody, params(("id" = String, Path)),
    responses((status = 202, description = "as it was when it was asked to stop", body = ChainView), (status = 404, body = Problem),
        (status = 409, description = "all its runs have ended", body = Problem), (status = 422, body = Problem)))]
async fn cancel(
    State(state): State<AppState>,
    Path(chain_id): Path<String>,
    OptionalJson(body): OptionalJson<CancelBody>,
) -> Result<(StatusCode, HeaderMap, Reply<ChainView>), ApiError> {
    let chain_id: ChainId = id(&chain_id)?;
    let part = known(&state, chain_id).await?;
    let whole = until(PATIENCE, || async {
        let chain = state.hub().chain(chain_id).await?;
        let is_whole = |chain: &ChainView| i64::try_from(chain.runs.len()) == Ok(chain.runs_total);
        Ok::<_, ApiError>(chain.filter(is_whole))
    });
    let chain = whole.await?.unwrap_or(part);
    if chain.runs.iter().all(|run| run.status.ended()) {
        let detail = format!("all runs of chain {chain_id} have ended: it is {}", chain.status.as_str());
        return Err(ApiError::conflict("chain_ended", detail).hint(format!("riverrun chains show {chain_id}")));
    }
    chains::cancel(&state, &chain, body.reason).await?;
    Ok((StatusCode::ACCEPTED, location(&format!("/chains/{chain_id}")), Reply(chain)))
}

async fn known(state: &AppState, chain_id: ChainId) -> Result<ChainView, ApiError> {
    state.hub().chain(chain_id).await?.ok_or_else(|| chains::unknown(chain_id))
}
