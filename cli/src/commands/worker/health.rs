//! How a worker process is, for those who start and stop it: `/health` that it answers, `/live` that it need not be ended, `/ready`
//! that it gets on, `/metrics` what it does.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::future::join_all;
use parking_lot::Mutex;
use riverrun_api::metrics::Page;
use riverrun_api::state::has_long_records;
use riverrun_api::{figures, worker_figures};
use riverrun_log::TopicPartition;
use riverrun_workers::runtime::{Readiness, WorkerHandle, WorkerState, WorkerStatus};
use riverrun_workers::tracer::TracingService;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::liveness::Liveness;
use crate::error::{CliError, Exit};
use crate::settings::Settings;

/// How long the broker may take to tell the lags before `/live` does without: less than those who ask have patience.
const LAG_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone)]
struct Watched {
    workers: Arc<Vec<WorkerHandle>>,
    /// One a worker: those of several groups read the same partitions.
    readiness: Arc<Mutex<Vec<Readiness>>>,
    liveness: Arc<Mutex<Vec<Liveness>>>,
    tracing: TracingService,
    /// A partition with records that did not move for so long hangs, and so does a worker with work that got none done.
    hangs_after: Duration,
}

/// What `/health` and `/ready` answer.
#[derive(Debug, Serialize)]
struct Report {
    ready: bool,
    /// Partitions that have records and do not move.
    hanging: Vec<String>,
    /// Records not yet handled.
    lag: i64,
    workers: Vec<WorkerStatus>,
}

/// What `/live` answers.
#[derive(Debug, Serialize)]
struct LiveReport {
    live: bool,
    /// Partitions in which a worker hangs.
    hanging: Vec<String>,
}

/// Answers until `stop`; returns the address.
pub(super) async fn serve(
    settings: &Settings,
    port: u16,
    workers: Arc<Vec<WorkerHandle>>,
    tracing: TracingService,
    hangs_after: Duration,
    stop: CancellationToken,
) -> Result<String, CliError> {
    let failed = |error: std::io::Error| {
        CliError::new(Exit::Failed, format!("--health-port {port} of {} can't be used: {error}", settings.api_host))
            .hint("name another port, or 0 for a free one")
    };
    let listener = TcpListener::bind((settings.api_host.as_str(), port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let readiness = workers.iter().map(|_| Readiness::new(hangs_after)).collect();
    let liveness = workers.iter().map(|_| Liveness::new(hangs_after)).collect();
    let watched = Watched {
        workers,
        readiness: Arc::new(Mutex::new(readiness)),
        liveness: Arc::new(Mutex::new(liveness)),
        tracing,
        hangs_after,
    };
    let routes = Router::new()
        .route("/health", get(health))
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics));
    let routes = routes.with_state(watched);
    let server = axum::serve(listener, routes).with_graceful_shutdown(async move { stop.cancelled().await });
    tokio::spawn(server.into_future());
    Ok(format!("http://{address}/ready"))
}

async fn health(State(watched): State<Watched>) -> Json<Report> {
    Json(report(&watched).await)
}

/// 503 says that only an end helps: never while the worker waits for a broker, a database or a model that is away.
async fn live(State(watched): State<Watched>) -> (StatusCode, Json<LiveReport>) {
    let asked = join_all(watched.workers.iter().map(WorkerHandle::lag));
    let lags: Vec<_> = match tokio::time::timeout(LAG_PATIENCE, asked).await {
        Ok(lags) => lags.into_iter().map(Result::ok).collect(),
        Err(_) => vec![None; watched.workers.len()],
    };
    let hanging = hanging_for_good(&watched, &lags);
    let status = if hanging.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(LiveReport { live: hanging.is_empty(), hanging }))
}

fn hanging_for_good(watched: &Watched, lags: &[Option<BTreeMap<TopicPartition, i64>>]) -> Vec<String> {
    let mut liveness = watched.liveness.lock();
    let mut hanging = Vec::new();
    for ((worker, liveness), lag) in watched.workers.iter().zip(liveness.iter_mut()).zip(lags) {
        let found = liveness.look(&worker.status(), &worker.positions(), lag.as_ref(), Instant::now());
        hanging.extend(found.iter().map(|partition| format!("{} {partition}", worker.name())));
    }
    hanging
}

async fn ready(State(watched): State<Watched>) -> (StatusCode, Json<Report>) {
    let report = report(&watched).await;
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report))
}

/// Figures in the Prometheus text format, under the names that a server has.
async fn metrics(State(watched): State<Watched>) -> Response {
    let mut page = Page::default();
    let workers: Vec<WorkerStatus> = watched.workers.iter().map(WorkerHandle::status).collect();
    worker_figures::write(&workers, &mut page);
    for ((group, at), lag) in lag_by_group(&watched).await {
        worker_figures::write_lag(&group, &at.topic, at.partition, lag, &mut page);
    }
    figures::write_tracing(&watched.tracing, &mut page);
    ([(CONTENT_TYPE, Page::CONTENT_TYPE)], page.finish()).into_response()
}

/// Each partition once for a group: while partitions change hands, two of its members may name one. A broker that does not answer
/// leaves them out.
async fn lag_by_group(watched: &Watched) -> BTreeMap<(String, TopicPartition), i64> {
    let mut lags = BTreeMap::new();
    for worker in watched.workers.iter() {
        let group = worker.status().group;
        let lag = worker.lag().await.unwrap_or_default();
        lags.extend(lag.into_iter().map(|(partition, lag)| ((group.clone(), partition), lag)));
    }
    lags
}

async fn report(watched: &Watched) -> Report {
    let mut lags = Vec::with_capacity(watched.workers.len());
    for worker in watched.workers.iter() {
        lags.push(worker.lag().await.ok());
    }
    let answers = lags.iter().all(Option::is_some);
    let workers: Vec<WorkerStatus> = watched.workers.iter().map(WorkerHandle::status).collect();
    let hanging = hanging(watched, &lags);
    Report {
        ready: answers && workers.iter().all(|worker| gets_on(worker, watched.hangs_after)) && hanging.is_empty(),
        hanging,
        lag: lags.iter().flatten().flat_map(BTreeMap::values).sum(),
        workers,
    }
}

fn gets_on(worker: &WorkerStatus, hangs_after: Duration) -> bool {
    let stalled = !has_long_records(&worker.name) && worker.stalled(hangs_after);
    worker.state == WorkerState::Running && !stalled
}

/// Partitions that have records and do not move, each with its worker.
fn hanging(watched: &Watched, lags: &[Option<BTreeMap<TopicPartition, i64>>]) -> Vec<String> {
    let mut readiness = watched.readiness.lock();
    let mut hanging = Vec::new();
    for ((worker, readiness), lag) in watched.workers.iter().zip(readiness.iter_mut()).zip(lags) {
        let Some(lag) = lag.as_ref().filter(|_| !has_long_records(worker.name())) else { continue };
        let found = readiness.look(&worker.positions(), lag, Instant::now());
        hanging.extend(found.iter().map(|partition| format!("{} {partition}", worker.name())));
    }
    hanging
}
