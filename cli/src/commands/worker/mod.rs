//! `riverrun worker`: one kind of worker as a process of its own, beside any number of others.

mod health;
mod index;

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use riverrun_api::Core;
use riverrun_knowledge::LanguageModels;
use riverrun_log::admin::Admin;
use riverrun_log::{BlobError, LogConfig, ObjectStoreBlobs, Producer, RegistryError, SchemaRegistry};
use riverrun_schemas::topics::all_specs;
use riverrun_stores::{Sql, StoreError};
use riverrun_workers::embedder::Embedder;
use riverrun_workers::projector::{self, ProjectorConfig};
use riverrun_workers::runtime::{self, RuntimeConfig, WorkerHandle};
use riverrun_workers::tracer::Tracer;
use tokio_util::sync::CancellationToken;

use crate::error::{CliError, Exit};
use crate::host;
use crate::output::tell;
use crate::settings::Settings;
use crate::signals::Signals;

/// How long the broker may take to answer at the start.
const BROKER_PATIENCE: Duration = Duration::from_secs(10);
/// How long the workers may take to end what they have begun.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);

/// Options of `worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// Which
    pub kind: WorkerKind,
    /// How many of them in this process; partitions are shared between all of a kind
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub concurrency: u16,
    /// Answer GET /health and GET /ready on this port of RIVERRUN_API_HOST; 0 takes a free one
    #[arg(long, value_name = "PORT")]
    pub health_port: Option<u16>,
}

/// The kinds of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkerKind {
    /// Reads sources and splits documents
    Ingester,
    /// Makes vectors of chunks
    Embedder,
    /// Writes vectors and keywords
    Indexer,
    /// Drives runs
    Agent,
    /// Writes the read models
    Projector,
    /// Tells a tracing service of runs
    Tracer,
    /// Trains models
    Trainer,
    /// Imports and analyzes projects
    Analyzer,
}

impl WorkerKind {
    fn name(self) -> &'static str {
        match self {
            Self::Ingester => "ingester",
            Self::Embedder => "embedder",
            Self::Indexer => "indexer",
            Self::Agent => "agent",
            Self::Projector => "projector",
            Self::Tracer => "tracer",
            Self::Trainer => "trainer",
            Self::Analyzer => "analyzer",
        }
    }

    /// The stores that it needs and that lie in the process which serves.
    fn embedded_needs(self, settings: &Settings) -> Option<&'static str> {
        match self {
            Self::Embedder | Self::Tracer => None,
            Self::Projector => settings.database_url.is_none().then_some("the SQL database"),
            Self::Ingester => Some("the blobs and the warehouse"),
            Self::Indexer => match &settings.qdrant {
                None => Some("the vectors and the keywords"),
                Some(server) if !server.keywords => Some("the keywords"),
                Some(_) => settings.database_url.is_none().then_some("the lock of a collection"),
            },
            Self::Agent => Some(match &settings.qdrant {
                None => "the vectors, the keywords and the warehouse",
                Some(server) if !server.keywords => "the keywords and the warehouse",
                Some(_) => "the warehouse",
            }),
            Self::Trainer => Some("the models folder and the read models"),
            Self::Analyzer => Some("the blobs and the read models"),
        }
    }
}

/// Works until a signal.
pub async fn run(args: WorkerArgs, settings: &Settings) -> Result<(), CliError> {
    let log = check(&args, settings)?;
    let mut signals = Signals::listen()?;
    let core = host::core(settings)?;
    let stop = CancellationToken::new();
    let started = tokio::select! {
        started = start(&args, settings, &core, &log, &stop) => started,
        () = signals.next() => return Err(CliError::interrupted()),
    };
    let workers = Arc::new(started?);
    let health = match args.health_port {
        Some(port) => {
            let address = health::serve(settings, port, workers.clone(), stop.clone()).await?;
            format!(" · {address}")
        }
        None => String::new(),
    };
    tell(&format!("riverrun worker {} × {} works · Kafka {}{health}", args.kind.name(), args.concurrency, log.brokers));
    let ended = tokio::select! {
        () = signals.next() => None,
        name = first_end(&workers) => Some(name),
    };
    stop.cancel();
    tokio::select! {
        () = all_ended(&workers) => {}
        () = tokio::time::sleep(STOP_PATIENCE) => tracing::warn!("a worker did not stop in time; its work is done again elsewhere"),
        () = signals.next() => return Err(CliError::interrupted()),
    }
    match ended {
        None => Ok(()),
        Some(name) => Err(CliError::new(Exit::Failed, format!("worker {name} can't go on"))
            .hint("the log above says why; what it has not done is done by the next one")),
    }
}

/// What can be known before anything is asked.
fn check(args: &WorkerArgs, settings: &Settings) -> Result<LogConfig, CliError> {
    let name = args.kind.name();
    let Some(brokers) = &settings.kafka_brokers else {
        return Err(CliError::new(Exit::Usage, format!("worker {name} needs a log that other processes use, and RIVERRUN_KAFKA_BROKERS is not set"))
            .hint("set RIVERRUN_KAFKA_BROKERS to that of the cluster; that of a `riverrun serve` on this machine is 127.0.0.1:9092"));
    };
    if let Some(needs) = args.kind.embedded_needs(settings) {
        let fix = match args.kind {
            WorkerKind::Projector => "set RIVERRUN_DATABASE_URL to the PostgreSQL server of the cluster".to_owned(),
            WorkerKind::Indexer => format!(
                "set RIVERRUN_QDRANT_URL and RIVERRUN_DATABASE_URL to servers of the cluster (and not RIVERRUN_QDRANT_KEYWORDS=local), or let `riverrun serve` do it, which has {needs}"
            ),
            _ => format!("let `riverrun serve` do it, which has {needs}; embedder, tracer and projector run anywhere"),
        };
        return Err(CliError::new(
            Exit::Usage,
            format!("worker {name} needs {needs}, which another process has embedded"),
        )
        .hint(fix));
    }
    if args.kind == WorkerKind::Projector && args.concurrency > 1 {
        return Err(CliError::new(
            Exit::Usage,
            format!(
                "--concurrency {} is of no use to the projector, which writes one transaction at a time",
                args.concurrency
            ),
        )
        .hint("leave --concurrency out"));
    }
    let mut log = LogConfig::new(brokers.clone(), format!("riverrun-{name}"));
    log.extra = settings.kafka_extra.clone();
    Ok(log)
}

async fn start(
    args: &WorkerArgs,
    settings: &Settings,
    core: &Core,
    log: &LogConfig,
    stop: &CancellationToken,
) -> Result<Vec<WorkerHandle>, CliError> {
    let mut log = log.clone();
    if let Some(registry) = &settings.schema_registry {
        log.schemas = SchemaRegistry::join(registry).await.map_err(|error| registry_down(&error))?;
    }
    let log = &log;
    let admin = Admin::new(log)?;
    admin.wait_ready(BROKER_PATIENCE).await?;
    admin.ensure_topics(all_specs()).await?;
    let producer = Producer::new(log)?;
    let mut workers = Vec::new();
    for _ in 0..args.concurrency {
        // No name of its own among the members: which process does what may change at any time.
        let runtime = RuntimeConfig::new(log.clone(), producer.clone());
        workers.push(match args.kind {
            WorkerKind::Embedder => {
                let models: Arc<dyn LanguageModels> = Arc::new(core.models().clone());
                let embedder = Embedder::new(models);
                let embedder = match &settings.s3 {
                    Some(s3) => {
                        embedder.with_texts(Arc::new(ObjectStoreBlobs::s3(s3).map_err(|error| blobs_down(&error))?))
                    }
                    None => embedder,
                };
                runtime::spawn(embedder, runtime, stop.clone())
            }
            WorkerKind::Tracer => runtime::spawn(tracer(core)?, runtime, stop.clone()),
            WorkerKind::Projector => projector(settings, log, &producer, stop).await?,
            WorkerKind::Indexer => runtime::spawn(index::indexer(settings).await?, runtime, stop.clone()),
            WorkerKind::Ingester | WorkerKind::Agent | WorkerKind::Trainer | WorkerKind::Analyzer => {
                unreachable!("refused by `check`: their stores are embedded in the process that serves")
            }
        });
    }
    if args.kind == WorkerKind::Tracer {
        core.tracing().watch(stop.clone());
    }
    Ok(workers)
}

fn tracer(core: &Core) -> Result<Tracer, CliError> {
    let tracing = core.tracing();
    if !tracing.is_on() {
        return Err(CliError::new(Exit::Usage, "worker tracer has no tracing service to tell of runs")
            .hint("set RIVERRUN_TRACING_… as docs/tracing.md says"));
    }
    let models = core.models();
    Ok(Tracer::new(tracing.clone(), models.settings().default_provider(), models.default_chat_model()))
}

async fn projector(
    settings: &Settings,
    log: &LogConfig,
    producer: &Producer,
    stop: &CancellationToken,
) -> Result<WorkerHandle, CliError> {
    let url = settings.database_url.as_deref().unwrap_or_default(); // `check` wants it
    let sql = Sql::connect(url).await.map_err(|error| store_down(&error))?;
    let config = ProjectorConfig {
        log: log.clone(),
        producer: producer.clone(),
        schemas: log.schemas.clone(),
        sql,
        caught_up: CancellationToken::new(),
    };
    Ok(projector::spawn(config, stop.clone()))
}

async fn first_end(workers: &[WorkerHandle]) -> &'static str {
    loop {
        if let Some(worker) = workers.iter().find(|worker| worker.is_finished()) {
            return worker.name();
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn all_ended(workers: &[WorkerHandle]) {
    while workers.iter().any(|worker| !worker.is_finished()) {
        tokio::time::sleep(POLL).await;
    }
}

fn blobs_down(error: &BlobError) -> CliError {
    CliError::new(Exit::ServiceDown, error.to_string()).hint("check RIVERRUN_S3_BUCKET and its companions")
}

fn registry_down(error: &RegistryError) -> CliError {
    CliError::new(Exit::ServiceDown, format!("schema registry: {error}")).hint(error.hint())
}

fn store_down(error: &StoreError) -> CliError {
    CliError::new(Exit::ServiceDown, error.to_string()).maybe_hint(error.hint())
}
