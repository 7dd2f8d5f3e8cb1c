//! How the process and everything that it leans on are.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use riverrun_log::admin::PartitionLag;
use riverrun_log::broker::FiguresHandle;
use riverrun_schemas::now_ms;
use riverrun_stores::read_models::Timestamp;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::broker_figures;
use crate::error::ApiError;
use crate::figures;
use crate::metrics::Page;
use crate::services;
use crate::state::AppState;
use crate::wire::{Diagnosis, HealthStatus, HealthView};
use crate::worker_figures;

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(ready))
        .routes(routes!(diagnose))
        .routes(routes!(metrics))
}

/// Whether the process serves, with every service and how far each worker is behind, a quarter of a second ago at most. Always 200
/// while it answers.
#[utoipa::path(get, path = "/health", tag = "operation", responses((status = 200, body = HealthView)))]
async fn health(State(state): State<AppState>) -> Result<Response, ApiError> {
    let page = state.health().get(look(&state)).await?;
    Ok(([(CONTENT_TYPE, "application/json")], page).into_response())
}

async fn look(state: &AppState) -> Result<Bytes, ApiError> {
    let measured_at = Timestamp(now_ms());
    let (services, lag) = tokio::join!(services::all(state), state.lag_by_group());
    let view = HealthView {
        status: HealthStatus::of(&services),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        measured_at,
        services,
        lag: lag.unwrap_or_default(), // a broker that does not answer shows as a service that is down
    };
    let json = serde_json::to_vec(&view);
    json.map(Bytes::from).map_err(|error| ApiError::internal(format!("what /health says is no JSON: {error}")))
}

/// Whether requests should come here: 503 while log, stores, streams or workers do not get on, with the rows that say which.
#[utoipa::path(get, path = "/ready", tag = "operation", responses(
    (status = 200, body = Diagnosis),
    (status = 503, body = Diagnosis),
))]
async fn ready(State(state): State<AppState>) -> (StatusCode, Json<Diagnosis>) {
    let services = services::own(&state).await;
    let status = HealthStatus::of(&services);
    let code = match status {
        HealthStatus::Ok => StatusCode::OK,
        HealthStatus::Degraded => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(Diagnosis { status, services }))
}

/// One row for each required and optional service.
#[utoipa::path(get, path = "/diagnose", tag = "operation", responses((status = 200, body = Diagnosis)))]
async fn diagnose(State(state): State<AppState>) -> Json<Diagnosis> {
    let mut services = services::all(&state).await;
    services.extend(services::gaps(&state));
    Json(Diagnosis { status: HealthStatus::of(&services), services })
}

/// Figures in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "operation", responses((status = 200, content_type = "text/plain", body = String)))]
async fn metrics(State(state): State<AppState>) -> Response {
    let mut page = Page::default();
    state.core().metrics().write(&mut page);
    let hub = state.hub().stats();
    for (name, help, value) in [
        ("riverrun_hub_runs", "runs that streams keep anything of", hub.runs as f64),
        ("riverrun_hub_buffered_events", "events that the read model does not have yet", hub.buffered as f64),
        ("riverrun_hub_listeners", "listeners to runs and ingests", hub.listeners as f64),
        ("riverrun_hub_reading", "1 while the log is read for streams", f64::from(u8::from(hub.reading))),
    ] {
        page.sample(name, "gauge", help, &[], value);
    }
    page.sample(
        "riverrun_hub_void_events_total",
        "counter",
        "run events that did not count",
        &[],
        hub.void_events as f64,
    );
    page.sample(
        "riverrun_hub_undecodable_records_total",
        "counter",
        "records that were no events",
        &[],
        hub.undecodable as f64,
    );
    worker_figures::write(&state.parts().workers.statuses(), &mut page);
    for line in state.lag().await.unwrap_or_default() {
        let PartitionLag { group, partition, lag, .. } = line;
        worker_figures::write_lag(&group, &partition.topic, partition.partition, lag, &mut page);
    }
    if let Some(figures) = state.parts().embedded_broker.as_ref().and_then(FiguresHandle::read) {
        broker_figures::write(&figures, &mut page);
    }
    figures::write(&state, &mut page).await;
    ([(CONTENT_TYPE, Page::CONTENT_TYPE)], page.finish()).into_response()
}
