//! The steps of a run page by page: a long run does not fit into one message, and need not be read at once.

use axum::Json as Reply;
use axum::extract::State;
use riverrun_schemas::RunId;
use riverrun_stores::read_models::page::MAX_PAGE;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{Path, Query, id};
use crate::hub::unknown_run;
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{Page, Problem, StepView, fitting_steps};

/// Steps of a page when nothing else is asked for.
const DEFAULT_PAGE: u32 = 100;
/// JSON of a page's steps; one step is there whatever its size.
const MAX_PAGE_BYTES: usize = 8 << 20;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(steps))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StepsQuery {
    /// Most steps of a page; 100 when left out, 500 at most. A page of large steps has fewer.
    limit: Option<u32>,
    /// `next_cursor` of the page before: only steps behind this `seq`.
    cursor: Option<i64>,
}

/// The steps of a run, in order. Of a run that goes on, the last page is what there is now.
#[utoipa::path(get, path = "/runs/{id}/steps", tag = "agents", params(("id" = String, Path), StepsQuery),
    responses((status = 200, body = Page<StepView>), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn steps(
    State(state): State<AppState>,
    Path(run_id): Path<String>,
    Query(query): Query<StepsQuery>,
) -> Result<Reply<Page<StepView>>, ApiError> {
    let run_id: RunId = id(&run_id)?;
    let mut checks = Checks::default();
    checks.between("limit", query.limit, 1..=MAX_PAGE);
    let behind = checks.behind("cursor", query.cursor.unwrap_or(0));
    checks.finish()?;
    let limit = query.limit.unwrap_or(DEFAULT_PAGE);
    // One more than asked for: that there is more is then known.
    let mut found = state.hub().steps(run_id, behind, limit + 1).await?;
    if found.is_none() && state.hub().run_or_soon(run_id).await?.is_some() {
        found = state.hub().steps(run_id, behind, limit + 1).await?;
    }
    let mut items = found.ok_or_else(|| unknown_run(run_id))?;
    let all = items.len();
    items.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    items.truncate(fitting_steps(&items, MAX_PAGE_BYTES).max(1));
    let next_cursor = items.last().filter(|_| items.len() < all).map(|step| step.seq.to_string());
    Ok(Reply(Page { items, next_cursor }))
}
