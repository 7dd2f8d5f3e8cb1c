//! What models were used for.

use axum::Json;
use axum::extract::State;
use riverrun_stores::read_models::Within;
use riverrun_stores::read_models::usage::{self, UsageBy, UsageSum};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::Query;
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::{Items, Problem};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(sums))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct UsageQuery {
    /// What is summed by: `namespace` (the default), `session`, `model`, `agent` or `purpose`.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    by: UsageBy,
    /// Only what is of this namespace.
    namespace: Option<String>,
    /// Only runs that were accepted, and calls that were made, at or after this time, in milliseconds since the epoch.
    since_ms: Option<i64>,
}

/// Tokens and cost of runs, and of model calls outside of runs, summed; the groups that used most come first, 500 at most. Runs that have not ended
/// count with what they used so far.
#[utoipa::path(get, path = "/usage", tag = "models", params(UsageQuery),
    responses((status = 200, body = Items<UsageSum>), (status = 422, body = Problem)))]
async fn sums(
    State(state): State<AppState>,
    Query(query): Query<UsageQuery>,
) -> Result<Json<Items<UsageSum>>, ApiError> {
    let mut checks = Checks::default();
    let namespace = query.namespace.as_deref().map(|name| checks.namespace(Some(name)));
    checks.finish()?;
    let within = namespace.as_ref().map_or(Within::EveryNamespace, Within::Namespace);
    let items = usage::usage(&state.parts().sql, query.by, within, query.since_ms).await?;
    Ok(Json(Items { items }))
}
