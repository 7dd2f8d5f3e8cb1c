//! Asking everything that the program leans on whether it is there. Nothing is loaded, fetched or changed by asking.

mod models;

use std::path::Path;
use std::time::{Duration, Instant};

use riverrun_log::broker::FiguresHandle;
use riverrun_log::registry::RegistryStatus;
use riverrun_schemas::{Collection, Namespace, agreed, counted, registry};
use riverrun_stores::read_models::checkpoints;
use riverrun_stores::{CacheStatus, Gap, GapState, SqlKind, StoreError, WarehouseError};
use riverrun_workers::tracer::{self, TracingService, TracingState, TracingStatus};

use crate::access::caller;
use crate::broker_figures;
use crate::config::Misspelt;
use crate::state::{AppState, Core, worker_trouble};
use crate::wire::ServiceView;

/// Longest time for one service.
const PATIENCE: Duration = Duration::from_secs(3);

/// Every service, required ones first.
pub async fn all(state: &AppState) -> Vec<ServiceView> {
    let (mut rows, mut models) = tokio::join!(own(state), models::rows(state.core().models()));
    rows.append(&mut models);
    rows.extend(settings(state.core()));
    rows.extend(tools(state.core()));
    rows.push(cache(state.core()).await);
    rows.push(tracing_service(state.core().tracing()).await);
    rows
}

/// What no request gets on without, whatever it asks: log, stores and workers, and not the models.
pub async fn own(state: &AppState) -> Vec<ServiceView> {
    let (broker, schemas, sql, documents, vectors, keywords, blobs, warehouse) = tokio::join!(
        broker(state),
        schema_registry(state),
        sql(state),
        documents(state),
        vectors(state),
        keywords(state),
        blobs(state),
        warehouse(state)
    );
    let parts = state.parts();
    let mut rows = vec![broker, schemas, sql, documents, vectors, keywords, blobs, warehouse, streams(state)];
    rows.push(indexes(state));
    rows.extend(parts.workers.statuses().iter().map(|status| {
        let name = format!("worker {}", status.name);
        // Runs do without the tracer.
        let required = status.name != tracer::NAME;
        match worker_trouble(status) {
            None => ServiceView::up(&name, "embedded", required, format!("group {}", status.group)),
            Some(reason) => ServiceView::down(
                &name,
                "embedded",
                required,
                reason,
                "restart riverrun; `riverrun dlq ls` shows records that could not be handled",
            ),
        }
    }));
    if parts.workers.iter().next().is_none() {
        rows.push(workers_elsewhere(state).await);
    }
    rows
}

/// Of a process that has no workers: how far those of others are behind.
async fn workers_elsewhere(state: &AppState) -> ServiceView {
    match tokio::time::timeout(PATIENCE, state.lag_by_group()).await {
        Ok(Ok(lag)) => {
            let behind: i64 = lag.values().sum();
            ServiceView::up(
                "workers",
                "elsewhere",
                false,
                format!("{} to handle in {}", counted(behind, "record"), counted(lag.len(), "group")),
            )
        }
        Ok(Err(error)) => ServiceView::down("workers", "elsewhere", false, error.to_string(), "start the broker"),
        Err(_) => ServiceView::down(
            "workers",
            "elsewhere",
            false,
            format!("the broker did not tell within {} s how far they are", PATIENCE.as_secs()),
            "start the broker",
        ),
    }
}

/// Whether watchers are told of what happens.
fn streams(state: &AppState) -> ServiceView {
    if state.hub().stats().reading {
        return ServiceView::up("streams", "log", true, "the log is read");
    }
    ServiceView::down("streams", "log", true, "the log is not read", "start the broker; reading goes on by itself")
}

/// What can be asked without a log and stores.
pub async fn light(core: &Core) -> Vec<ServiceView> {
    let mut rows = vec![built_in_schemas()];
    rows.extend(models::rows(core.models()).await);
    rows.extend(settings(core));
    rows.extend(tools(core));
    rows.push(cache(core).await);
    rows.push(tracing_service(core.tracing()).await);
    rows
}

/// Nothing fails without it.
async fn cache(core: &Core) -> ServiceView {
    let since = Instant::now();
    let CacheStatus { kind, address, version, trouble } = core.cache().status().await;
    let row = match trouble {
        None if address.is_some() => ServiceView::up("cache", kind, false, "answers").took(ms(since)),
        None => ServiceView::up("cache", kind, false, "in this process").built_in(),
        Some(trouble) => {
            let detail =
                format!("{trouble}; what it would know is computed again, and each process counts requests for itself");
            let fix = "start the Redis server, or check RIVERRUN_REDIS_URL and RIVERRUN_REDIS_CA_FILE";
            ServiceView::down("cache", kind, false, detail, fix).took(ms(since))
        }
    };
    ServiceView { address, version: version.or_else(|| row.version.clone()), ..row }
}

/// Variables that were meant for settings, where there are some: what they should set is not set.
fn settings(core: &Core) -> Option<ServiceView> {
    let misspelt = &core.config().misspelt;
    let fix = "rename or unset them (environment or .env), and start again";
    (!misspelt.is_empty())
        .then(|| ServiceView::missing("settings", "environment", false, Misspelt::told(misspelt), fix))
}

/// The tools file, each entry of it that can't be used, and each MCP server that did not start.
fn tools(core: &Core) -> Vec<ServiceView> {
    let defined = &core.tools().defined;
    let broken = defined.problems().iter().map(|problem| {
        let name = problem.name.as_ref().map_or_else(|| "tools file".to_owned(), |name| format!("tool {name}"));
        ServiceView::down(&name, "tools file", false, problem.to_string(), problem.fix.clone())
    });
    let servers = defined.servers();
    let away = servers.iter().filter_map(|server| {
        let trouble = server.trouble.clone()?;
        let fix = "start it by hand to see why; it is tried again when a run needs it";
        Some(ServiceView::down(&format!("mcp server {}", server.name), "mcp", false, trouble, fix))
    });
    let mut rows: Vec<ServiceView> = broken.chain(away).collect();
    if rows.is_empty() && (defined.count() > 0 || !servers.is_empty()) {
        let detail = format!(
            "{}, {}; programs: {}",
            counted(defined.count(), "tool"),
            counted(servers.len(), "MCP server"),
            riverrun_agents::tools::sandbox::support()
        );
        rows.push(ServiceView::up("tools", "tools file", false, detail));
    }
    rows
}

fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn broker(state: &AppState) -> ServiceView {
    let parts = state.parts();
    let hosted = parts.embedded_broker.is_some();
    let kind = if hosted { "embedded" } else { "kafka" };
    let since = Instant::now();
    let fix = if hosted { "restart riverrun" } else { "start the broker, or check RIVERRUN_KAFKA_BROKERS" };
    let row = match parts.embedded_broker.as_ref().and_then(FiguresHandle::storage_trouble) {
        // One that can't write answers all the same.
        Some(trouble) => ServiceView::down("broker", kind, true, trouble.to_string(), trouble.fix),
        None => match tokio::time::timeout(PATIENCE, parts.admin.topics()).await {
            Ok(Ok(topics)) => {
                let figures = parts.embedded_broker.as_ref().and_then(FiguresHandle::read);
                let line = figures.map(|figures| broker_figures::line(&figures.topics));
                ServiceView::up("broker", kind, true, line.unwrap_or_else(|| counted(topics.len(), "topic")))
            }
            Ok(Err(error)) => ServiceView::down("broker", kind, true, error.to_string(), fix),
            Err(_) => {
                ServiceView::down("broker", kind, true, format!("no answer within {} s", PATIENCE.as_secs()), fix)
            }
        },
    };
    // Kafka's protocol has no question for the version of a broker.
    let row = if hosted { row.built_in() } else { row };
    row.at(&parts.log.brokers).took(ms(since))
}

fn built_in_schemas() -> ServiceView {
    ServiceView::up("schema registry", "built-in", true, format!("{} schemas", registry::all().len())).built_in()
}

/// The outside one, where there is one. What this build writes is read without it, so nothing stops when it is away.
async fn schema_registry(state: &AppState) -> ServiceView {
    const NAME: &str = "schema registry";
    let Some(outside) = state.parts().log.schemas.registry() else { return built_in_schemas() };
    let since = Instant::now();
    let row = match tokio::time::timeout(PATIENCE, outside.status()).await {
        Ok(RegistryStatus { version, trouble: None }) => {
            let detail = format!("has {} schemas of this version under their ids", registry::all().len());
            ServiceView { version, ..ServiceView::up(NAME, "confluent", false, detail) }
        }
        Ok(RegistryStatus { version, trouble: Some(error) }) => {
            let detail = format!("{error}; only records of newer versions wait for it");
            ServiceView { version, ..ServiceView::down(NAME, "confluent", false, detail, error.hint()) }
        }
        Err(_) => {
            let detail = format!("no answer within {} s", PATIENCE.as_secs());
            let fix = "start the schema registry, or check RIVERRUN_SCHEMA_REGISTRY_URL";
            ServiceView::down(NAME, "confluent", false, detail, fix)
        }
    };
    row.at(outside.address()).took(ms(since))
}

async fn sql(state: &AppState) -> ServiceView {
    let sql = &state.parts().sql;
    let (kind, fix) = match sql.kind() {
        SqlKind::Sqlite => ("sqlite", "check the disk"),
        SqlKind::Postgres => ("postgresql", "start the server, or check RIVERRUN_DATABASE_URL"),
    };
    let since = Instant::now();
    let asked = async {
        checkpoints(sql).await?; // a table of ours: that the server lives is not enough
        sql.version().await
    };
    let row = match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(version)) => ServiceView { version: Some(version), ..ServiceView::up("sql", kind, true, "answers") },
        Ok(Err(error)) => {
            let fix = error.hint().unwrap_or_else(|| fix.to_owned());
            ServiceView::down("sql", kind, true, error.to_string(), fix)
        }
        Err(_) => ServiceView::down("sql", kind, true, format!("no answer within {} s", PATIENCE.as_secs()), fix),
    };
    row.at(sql.path().display().to_string()).took(ms(since))
}

/// Where canvases are. Runs and answers do without them.
async fn documents(state: &AppState) -> ServiceView {
    let store = &state.parts().documents;
    let info = store.info();
    let fix = match info.kind {
        "mongodb" => "start the server, or check RIVERRUN_MONGODB_URL",
        _ => "see sql",
    };
    let since = Instant::now();
    let row = match tokio::time::timeout(PATIENCE, store.version()).await {
        Ok(Ok(version)) => {
            ServiceView { version: Some(version), ..ServiceView::up("documents", info.kind, false, "answers") }
        }
        Ok(Err(error)) => {
            let fix = error.hint().unwrap_or_else(|| fix.to_owned());
            ServiceView::down("documents", info.kind, false, error.to_string(), fix)
        }
        Err(_) => {
            let detail = format!("no answer within {} s", PATIENCE.as_secs());
            ServiceView::down("documents", info.kind, false, detail, fix)
        }
    };
    row.at(info.place).took(ms(since))
}

async fn vectors(state: &AppState) -> ServiceView {
    let parts = state.parts();
    let (kind, fix) = match &parts.vectors_address {
        None => ("qdrant-edge", "check the disk"),
        Some(_) => ("qdrant", "start the server, or check RIVERRUN_QDRANT_URL and RIVERRUN_QDRANT_API_KEY"),
    };
    let since = Instant::now();
    let asked = async { Ok::<_, StoreError>((parts.vectors.server_version().await?, parts.vectors.list().await?)) };
    let row = match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok((version, collections))) => {
            let row = ServiceView::up("vectors", kind, true, counted(collections.len(), "collection"));
            if version.is_some() { ServiceView { version, ..row } } else { row.built_in() }
        }
        Ok(Err(error)) => {
            let fix = error.hint().unwrap_or_else(|| fix.to_owned());
            ServiceView::down("vectors", kind, true, error.to_string(), fix)
        }
        Err(_) => ServiceView::down("vectors", kind, true, format!("no answer within {} s", PATIENCE.as_secs()), fix),
    };
    let place = parts.vectors_address.clone().unwrap_or_else(|| parts.index_dir.display().to_string());
    row.at(place).took(ms(since))
}

async fn keywords(state: &AppState) -> ServiceView {
    let parts = state.parts();
    let Some(address) = &parts.keywords_address else { return keyword_files(&parts.index_dir) };
    let since = Instant::now();
    let fix = "start the server, or check RIVERRUN_QDRANT_URL and RIVERRUN_QDRANT_API_KEY";
    let row = match tokio::time::timeout(PATIENCE, parts.keywords.server_version()).await {
        Ok(Ok(version)) => ServiceView { version, ..ServiceView::up("keywords", "qdrant", true, "sparse vectors") },
        Ok(Err(error)) => {
            let fix = error.hint().unwrap_or_else(|| fix.to_owned());
            ServiceView::down("keywords", "qdrant", true, error.to_string(), fix)
        }
        Err(_) => {
            ServiceView::down("keywords", "qdrant", true, format!("no answer within {} s", PATIENCE.as_secs()), fix)
        }
    };
    row.at(address).took(ms(since))
}

/// Where tables are. Nothing else waits for them.
async fn warehouse(state: &AppState) -> ServiceView {
    const NAME: &str = "warehouse";
    let parts = state.parts();
    let Some(address) = &parts.warehouse_address else {
        return match parts.workers.iter().next() {
            Some(_) => ServiceView::up(NAME, "duckdb", false, "opened when it is asked")
                .built_in()
                .at(parts.index_dir.display().to_string()),
            None => {
                let error = WarehouseError::Elsewhere;
                ServiceView::missing(NAME, "elsewhere", false, error.to_string(), error.hint().unwrap_or_default())
            }
        };
    };
    let since = Instant::now();
    let row = match tokio::time::timeout(PATIENCE, parts.warehouse.tables(&Namespace::default())).await {
        Ok(Ok(_)) => ServiceView::up(NAME, "riverrun", false, "answers"),
        Ok(Err(error)) => {
            let fix = error.hint().unwrap_or_else(|| "check RIVERRUN_WAREHOUSE_URL".to_owned());
            ServiceView::down(NAME, "riverrun", false, error.to_string(), fix)
        }
        Err(_) => {
            let detail = format!("no answer within {} s", PATIENCE.as_secs());
            ServiceView::down(NAME, "riverrun", false, detail, "check RIVERRUN_WAREHOUSE_URL")
        }
    };
    row.at(address).took(ms(since))
}

fn keyword_files(index_dir: &Path) -> ServiceView {
    let since = Instant::now();
    let row = match std::fs::metadata(index_dir) {
        Ok(found) if found.is_dir() => ServiceView::up("keywords", "tantivy", true, "opened when they are searched"),
        Ok(_) => ServiceView::down("keywords", "tantivy", true, "its folder is a file", "move the file away"),
        Err(error) => ServiceView::down("keywords", "tantivy", true, error.to_string(), "check the data folder"),
    };
    row.built_in().at(index_dir.display().to_string()).took(ms(since))
}

/// How many collections are not whole. Which ones is told to who may know: [`gaps`].
fn indexes(state: &AppState) -> ServiceView {
    const NAME: &str = "indexes";
    let gaps = state.parts().gaps.all();
    let stuck = gaps.iter().filter(|(_, gap)| gap.state == GapState::Stuck).count();
    if gaps.is_empty() {
        return ServiceView::up(NAME, "vectors and keywords", true, "every collection is whole, as far as is known");
    }
    let mending = gaps.len() - stuck;
    let detail = format!(
        "{} {} being made again from the log, {stuck} {} somebody; searches there may find less",
        counted(mending, "collection"),
        agreed(mending, "is", "are"),
        agreed(stuck, "needs", "need")
    );
    let fix = "riverrun diagnose names them; riverrun collections check <name> tells what is missing";
    // What mends itself is nobody's work.
    ServiceView::down(NAME, "vectors and keywords", stuck > 0, detail, fix)
}

/// The collections that are not whole, of those that the caller may know of.
pub(crate) fn gaps(state: &AppState) -> Vec<ServiceView> {
    let bound = caller::bound_to();
    let gaps = state.parts().gaps.all().into_iter();
    let known = gaps.filter(|(collection, _)| bound.is_empty() || bound.contains(&collection.namespace));
    let row = |(collection, gap): (Collection, Gap)| {
        let name = format!("collection {}/{}", collection.namespace, collection.name);
        ServiceView::down(&name, "vectors and keywords", false, gap.note(&collection), gap.fix(&collection))
    };
    known.map(row).collect()
}

/// Content that is asked for and that nobody has is an answer too.
async fn blobs(state: &AppState) -> ServiceView {
    let absent = riverrun_schemas::BlobRef {
        sha256: "0".repeat(64),
        size_bytes: 0,
        media_type: "application/octet-stream".to_owned(),
    };
    let (kind, fix) = match &state.parts().blobs_address {
        None => ("local", "check the data folder"),
        Some(_) => ("s3", "start the server, or check RIVERRUN_S3_ENDPOINT, RIVERRUN_S3_BUCKET and the key"),
    };
    let since = Instant::now();
    let row = match tokio::time::timeout(PATIENCE, state.parts().blobs.exists(&absent)).await {
        Ok(Ok(_)) => ServiceView::up("blobs", kind, true, "answers"),
        Ok(Err(error)) => ServiceView::down("blobs", kind, true, error.to_string(), fix),
        Err(_) => ServiceView::down("blobs", kind, true, format!("no answer within {} s", PATIENCE.as_secs()), fix),
    };
    let row = row.took(ms(since));
    match &state.parts().blobs_address {
        Some(address) => row.at(address), // the protocol of S3 tells no version
        None => row.built_in(),
    }
}

/// What the tracer knows of its service already; it is asked only where it never was.
async fn tracing_service(tracing: &TracingService) -> ServiceView {
    const NAME: &str = "tracing";
    if tracing.status().state == TracingState::Unknown {
        let _ = tokio::time::timeout(PATIENCE, tracing.check()).await;
    }
    let TracingStatus { state, address, detail, fix, latency_ms } = tracing.status();
    let fix = fix.unwrap_or_else(|| "riverrun diagnose".to_owned());
    let mut row = match state {
        TracingState::Off => ServiceView::missing(NAME, "none", false, detail, fix),
        TracingState::Up => ServiceView::up(NAME, "otlp", false, detail),
        TracingState::Misconfigured | TracingState::Down | TracingState::Unknown => {
            ServiceView::down(NAME, "otlp", false, detail, fix)
        }
    };
    (row.address, row.latency_ms) = (address, latency_ms);
    row
}
