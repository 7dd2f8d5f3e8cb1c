//! `riverrun worker`: one kind of worker as a process of its own, beside any number of others.

mod health;
mod liveness;

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use riverrun_api::Core;
use riverrun_api::crew::Crew;
use riverrun_api::stack::BrokerChoice;
use riverrun_log::admin::Admin;
use riverrun_log::{LogConfig, Producer, SchemaRegistry};
use riverrun_schemas::topics::all_specs;
use riverrun_workers::runtime::WorkerHandle;
use tokio_util::sync::CancellationToken;

use crate::error::{CliError, Exit};
use crate::host;
use crate::open_files;
use crate::output::tell;
use crate::settings::Settings;
use crate::shared::{self, Shared};
use crate::signals::Signals;
use crate::start_pages;

/// How long the broker may take to answer at the start.
const BROKER_PATIENCE: Duration = Duration::from_secs(10);
/// How long the workers may take to end what they have begun.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);
/// The setting with the folder that trained models are put into.
const TRAINED_MODELS: &str = "RIVERRUN_MODELS_CACHE_DIR";

/// Options of `worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The kind
    pub kind: WorkerKind,
    /// How many of those that the kind is named after; partitions are shared between all of them in all processes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64), value_name = "N")]
    pub concurrency: u16,
    /// Answer GET /health, /live, /ready and /metrics on this port of RIVERRUN_API_HOST; 0 takes a free one
    #[arg(long, value_name = "PORT")]
    pub health_port: Option<u16>,
    /// Not ready when work stands still for so many seconds, and not live when for twice as long: more than the longest record takes
    #[arg(
        long,
        default_value_t = 180,
        value_parser = clap::value_parser!(u32).range(1..=86_400),
        requires = "health_port",
        value_name = "SECONDS"
    )]
    pub hangs_after: u32,
}

/// The kinds of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkerKind {
    /// Reads sources and splits documents, builds trees of summaries
    Ingester,
    /// Makes vectors of chunks
    Embedder,
    /// Writes vectors and keywords, makes collections anew, tunes their searches
    Indexer,
    /// Drives runs, keeps what conversations remember
    Agent,
    /// Writes the read models, keeps documents
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

    /// What it needs beside the log that is in one process when it is embedded.
    fn needs(self) -> &'static [Shared] {
        match self {
            Self::Embedder | Self::Tracer => &[],
            Self::Projector => &[Shared::ReadModels],
            Self::Ingester | Self::Trainer | Self::Analyzer => &[Shared::Blobs],
            Self::Indexer | Self::Agent => &[Shared::ReadModels, Shared::Vectors, Shared::Keywords, Shared::Blobs],
        }
    }
}

/// Works until a signal.
pub async fn run(args: WorkerArgs, settings: &Settings) -> Result<(), CliError> {
    let log = check(&args, settings)?;
    let what = format!("worker {} × {}", args.kind.name(), args.concurrency);
    open_files::require(&what, open_files::of_worker(args.concurrency))?;
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
            let tracing = core.tracing().clone();
            let hangs_after = Duration::from_secs(args.hangs_after.into());
            let address = health::serve(settings, port, workers.clone(), tracing, hangs_after, stop.clone()).await?;
            format!(" · {address}")
        }
        None => String::new(),
    };
    tell(&format!("riverrun worker {} × {} works · Kafka {}{health}", args.kind.name(), args.concurrency, log.brokers));
    start_pages::give_back_soon();
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
    core.ledger().finish().await;
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
        let own = match settings.broker_port {
            // The system chooses one.
            0 => "told when it starts".to_owned(),
            port => format!("127.0.0.1:{port}"),
        };
        return Err(CliError::new(
            Exit::Usage,
            format!("worker {name} needs a log that other processes use, and RIVERRUN_KAFKA_BROKERS is not set"),
        )
        .hint(format!(
            "set RIVERRUN_KAFKA_BROKERS to that of the cluster; that of a `riverrun serve` on this machine is {own}"
        )));
    };
    let missing = shared::missing(args.kind.needs(), settings);
    if !missing.is_empty() {
        let (what, fix): (Vec<&str>, Vec<&str>) = missing.into_iter().unzip();
        let message = format!("worker {name} needs {}, which another process has embedded", what.join(", "));
        return Err(CliError::new(Exit::Usage, message).hint(format!(
            "set {} as the whole cluster has it, or let `riverrun serve` do it, which has what is embedded",
            fix.join(", ")
        )));
    }
    let has_folder = settings.shown.get(TRAINED_MODELS).is_some_and(|folder| !folder.trim().is_empty());
    if args.kind == WorkerKind::Trainer && !has_folder {
        let message = format!(
            "worker {name} puts models where processes that answer look for them, and {TRAINED_MODELS} is not set"
        );
        return Err(CliError::new(Exit::Usage, message)
            .hint(format!("set {TRAINED_MODELS} to a folder that all of them have, or let `riverrun serve` train")));
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
        log.schemas = SchemaRegistry::join(registry).await.map_err(|error| host::failed(&error.into()))?;
    }
    let log = &log;
    let admin = Admin::new(log)?;
    admin.wait_ready(BROKER_PATIENCE).await?;
    admin.ensure_topics(all_specs()).await?;
    let producer = Producer::new(log)?;
    let config = host::stack_config(settings, core.clone(), BrokerChoice::External(log.clone()), false);
    let crew = Crew::beside_others(&config, log.clone(), producer, args.concurrency, stop.clone());
    let started = match args.kind {
        WorkerKind::Ingester => crew.start_ingesters().await,
        WorkerKind::Embedder => crew.start_embedders().await,
        WorkerKind::Indexer => crew.start_indexers().await,
        WorkerKind::Agent => crew.start_agents().await,
        WorkerKind::Projector => crew.start_projector().await,
        WorkerKind::Trainer => crew.start_trainers().await,
        WorkerKind::Analyzer => crew.start_analyzers().await,
        WorkerKind::Tracer => {
            check_tracing(core)?;
            core.tracing().watch(stop.clone());
            Ok(crew.tracers())
        }
    };
    started.map_err(|error| host::failed(&error))
}

fn check_tracing(core: &Core) -> Result<(), CliError> {
    if core.tracing().is_on() {
        return Ok(());
    }
    Err(CliError::new(Exit::Usage, "worker tracer has no tracing service to tell of runs")
        .hint("set RIVERRUN_TRACING_… as docs/tracing.md says"))
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
