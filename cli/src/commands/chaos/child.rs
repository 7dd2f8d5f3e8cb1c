//! The processes that are broken: a broker, an agent worker, or both in one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clap::Args;
use riverrun_agents::tools::{Passages, Search, SearchFailure, Toolbox};
use riverrun_log::{EmbeddedBroker, LogConfig, ObjectStoreBlobs, Producer, Schemas, admin};
use riverrun_models::{ModelSettings, Models};
use riverrun_schemas::{CollectionName, Namespace, topics};
use riverrun_stores::LocalCache;
use riverrun_workers::agent::{self, AgentWorkerConfig};
use tokio_util::sync::CancellationToken;

use super::harness;
use super::ledger::Ledger;
use super::process::READY;
use crate::error::CliError;
use crate::output::print_line;
use crate::signals::Signals;

/// Runs of one worker at once.
const MAX_RUNS: usize = 64;

/// Options of a child.
#[derive(Debug, Args)]
pub struct ChildArgs {
    /// Folder of the broker, the blobs and the ledger
    #[arg(long)]
    data: PathBuf,
    /// Host the broker on this port
    #[arg(long, value_name = "N")]
    broker_port: Option<u16>,
    /// Use the broker there
    #[arg(long)]
    brokers: Option<String>,
    /// Drive runs under this name
    #[arg(long)]
    worker: Option<String>,
    /// Leave the group when stopping, instead of being waited for under that name
    #[arg(long)]
    dynamic: bool,
    /// Where the model is
    #[arg(long)]
    model: Option<String>,
    /// The ledger refuses a key that it has
    #[arg(long)]
    honour_keys: bool,
    /// Milliseconds that the ledger takes before and after its effect
    #[arg(long, default_value_t = 0, value_name = "N")]
    ledger_ms: u64,
}

pub(super) async fn run(args: ChildArgs) -> Result<(), CliError> {
    let mut signals = Signals::listen()?;
    let broker = match args.broker_port {
        None => None,
        Some(port) => {
            let broker = EmbeddedBroker::start(&args.data.join("broker"), port)
                .await
                .map_err(|error| harness("the broker", error))?;
            let log = broker.config("chaos");
            admin::ensure_topics(&log, topics::all_specs()).await.map_err(|error| harness("the topics", error))?;
            Some(broker)
        }
    };
    let log = match (&broker, &args.brokers) {
        (Some(broker), _) => broker.config("chaos"),
        (None, Some(brokers)) => LogConfig::new(brokers.clone(), "chaos"),
        (None, None) => return Err(harness("a child", "it has no broker")),
    };
    let stop = CancellationToken::new();
    let worker = match &args.worker {
        None => None,
        Some(name) => Some(start_worker(&args, name, log.clone(), stop.clone())?),
    };
    print_line(&format!("{READY}{}", log.brokers))?;
    signals.next().await;
    stop.cancel();
    if let Some(worker) = worker {
        let _ = worker.join().await; // it says in its log what went wrong
    }
    if let Some(broker) = broker {
        broker.stop().await;
    }
    Ok(())
}

fn start_worker(
    args: &ChildArgs,
    name: &str,
    log: LogConfig,
    stop: CancellationToken,
) -> Result<riverrun_workers::runtime::WorkerHandle, CliError> {
    let models = Models::new(ModelSettings {
        runtime_base_url: args.model.clone(),
        default_chat_model: Some("scripted".to_owned()),
        offline: true,
        ..ModelSettings::default()
    })
    .map_err(|error| harness("the models", error))?;
    let ledger = Ledger {
        file: args.data.join("ledger"),
        pause: Duration::from_millis(args.ledger_ms),
        honours_keys: args.honour_keys,
    };
    let toolbox = Toolbox::builtin(Arc::new(NoKnowledge)).with(Arc::new(ledger));
    let blobs = ObjectStoreBlobs::local(&args.data.join("blobs")).map_err(|error| harness("the blobs", error))?;
    let producer = Producer::new(&log).map_err(|error| harness("the producer", error))?;
    let config = AgentWorkerConfig {
        log,
        schemas: Schemas::built_in(),
        instance: (!args.dynamic).then(|| name.to_owned()),
        max_concurrent_runs: MAX_RUNS,
        default_max_iters: 8,
        default_temperature: 0.0,
        policy: Arc::default(),
        predecessor_patience: agent::PREDECESSOR_PATIENCE,
        cache: Arc::new(LocalCache::default()),
    };
    Ok(agent::spawn(config, producer, models, toolbox, Arc::new(blobs), stop))
}

/// The runs look nothing up.
struct NoKnowledge;

#[async_trait]
impl Search for NoKnowledge {
    async fn search(
        &self,
        _: &Namespace,
        _: Option<&[CollectionName]>,
        _: &str,
        _: usize,
    ) -> Result<Passages, SearchFailure> {
        Ok(Passages::default())
    }
}
