//! Tables of the warehouse, and SQL over them.

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use riverrun_stores::WarehouseError;
use riverrun_stores::warehouse::{QueryLimits, QueryResult, TableInfo};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{Json, Query};
use crate::state::AppState;
use crate::submit::{self, Checks};
use crate::wire::{Items, Problem, QueryBody};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(tables)).routes(routes!(query))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct TablesQuery {
    /// The namespace; `default` when left out.
    namespace: Option<String>,
}

/// The tables of a namespace, with their columns.
#[utoipa::path(get, path = "/warehouse/tables", tag = "knowledge", params(TablesQuery),
    responses((status = 200, body = Items<TableInfo>), (status = 422, body = Problem)))]
async fn tables(
    State(state): State<AppState>,
    Query(query): Query<TablesQuery>,
) -> Result<Reply<Items<TableInfo>>, ApiError> {
    let namespace = submit::namespace(query.namespace.as_deref())?;
    let items = state.parts().warehouse.tables(&namespace).await?;
    Ok(Reply(Items { items }))
}

/// One reading statement over the tables of a namespace: at most 10 s, and at most 10,000 rows of 8 MiB.
#[utoipa::path(post, path = "/warehouse/query", tag = "knowledge", request_body = QueryBody,
    responses((status = 200, body = QueryResult), (status = 422, description = "anything but one reading statement, one that fails, or one that takes too much", body = Problem), (status = 429, body = Problem)))]
async fn query(State(state): State<AppState>, Json(body): Json<QueryBody>) -> Result<Reply<QueryResult>, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    let limit = body.limit.unwrap_or(QueryLimits::DEFAULT_ROWS);
    checks.between("limit", Some(limit), 1..=QueryLimits::MAX_ROWS);
    checks.finish()?;
    Ok(Reply(state.parts().warehouse.query(&namespace, &body.sql, QueryLimits::rows(limit)).await?))
}

impl From<WarehouseError> for ApiError {
    fn from(error: WarehouseError) -> Self {
        let (code, text, hint) = (error.code(), error.to_string(), error.hint());
        let answer = match error {
            WarehouseError::Refused { .. }
            | WarehouseError::Query { .. }
            | WarehouseError::TimedOut { .. }
            | WarehouseError::OutOfMemory { .. } => ApiError::field("sql", text).code_as(code),
            WarehouseError::TableName { .. } | WarehouseError::Rows { .. } | WarehouseError::Taken { .. } => {
                ApiError::field("table", text).code_as(code)
            }
            WarehouseError::Busy { .. } => ApiError::busy(text).code_as(code),
            WarehouseError::Told { .. } => told(code, text),
            WarehouseError::Database { .. }
            | WarehouseError::Elsewhere
            | WarehouseError::Away { .. }
            | WarehouseError::ShuttingDown => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, text),
        };
        match hint {
            Some(hint) => answer.hint(hint),
            None => answer,
        }
    }
}

/// What another process answered, as this one would have.
fn told(code: &'static str, text: String) -> ApiError {
    match code {
        "warehouse_busy" => ApiError::busy(text).code_as(code),
        "warehouse_failed" | "shutting_down" => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, text),
        _ => ApiError::field("sql", text).code_as(code),
    }
}
