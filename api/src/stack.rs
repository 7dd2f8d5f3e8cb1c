//! Everything in one process: the broker where no other is named, the stores, the workers, and the API's state over them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use riverrun_agents::memory::{DEFAULT_WINDOW_TOKENS, MemoryModels, StoredMemory};
use riverrun_agents::tools::{Dependencies, Toolbox};
use riverrun_knowledge::answer::AnswerConfig;
use riverrun_knowledge::sources::{Limits, SourceSecrets};
use riverrun_knowledge::{Answerer, LanguageModels, Retriever};
use riverrun_log::admin::{Admin, GroupTopics};
use riverrun_log::broker::{FiguresHandle, SecureListener};
use riverrun_log::{BlobStore, EmbeddedBroker, LogConfig, Producer, RegistryConfig, S3Config, SchemaRegistry};
use riverrun_schemas::Topic;
use riverrun_schemas::topics::all_specs;
use riverrun_stores::DocumentStore;
use riverrun_stores::vectors::qdrant::QdrantConfig;
use riverrun_stores::warehouse::RemoteConfig;
use riverrun_workers::ledger::Ledger;
use riverrun_workers::runtime::{RuntimeConfig, WorkerHandle, WorkerState, WorkerStatus, group_of};
use riverrun_workers::tracer::{self, TracingState};
use riverrun_workers::{rebuilder, trainer, tuner};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::adapters::StoredAdapters;
use crate::crew::Crew;
use crate::documents::StoredDocuments;
use crate::hub::Hub;
use crate::routes::model_cards;
use crate::state::{AppState, Core, Parts, WorkerSet};
use crate::{blob_sweeps, index_guard};

mod error;
mod stores;

pub use error::StackError;
pub use stores::blobs;
pub(crate) use stores::{Index, open_blobs, open_documents, open_index, open_sql};
use stores::{Stores, keyword_server, open_stores};

/// How long an outside broker may take to answer at the start.
const BROKER_PATIENCE: Duration = Duration::from_secs(10);
/// How long workers may take to get their partitions.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// How long everything together may take to stop.
pub const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How long the last spans may take to a tracing service that takes them.
const LAST_SPANS: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);
/// How often it is looked whether the workers are ready: a part of every start.
const READY_POLL: Duration = Duration::from_millis(2);
/// The area of the vectors of documents on a server.
pub const DOCUMENTS: &str = "documents";
/// The workers that commit offsets and that every cluster has, each with the topic that it commits on. The projector keeps its own
/// offsets beside its rows.
pub const COMMITTING: [(&str, Topic); 13] = [
    ("ingester", Topic::IngestCommands),
    ("reembedder", Topic::IngestCommands),
    (rebuilder::NAME, Topic::IngestCommands),
    ("tree-builder", Topic::IngestCommands),
    (tuner::NAME, Topic::IngestCommands),
    ("analyzer", Topic::ProjectsCommands),
    ("embedder", Topic::IngestChunks),
    ("indexer", Topic::IngestEmbeddings),
    ("agent", Topic::AgentCommands),
    ("memory-runs", Topic::AgentEvents),
    ("memory-episodes", Topic::MemoryEvents),
    ("memory-summary", Topic::MemoryEvents),
    (trainer::NAME, Topic::FinetuneCommands),
];

/// Which broker.
#[derive(Debug, Clone)]
pub enum BrokerChoice {
    /// One in this process, on loopback; port 0 takes a free one.
    Embedded {
        /// Its port.
        port: u16,
        /// A second listener for clients beyond this machine.
        secure: Option<SecureListener>,
        /// Raw librdkafka settings of its clients in this process.
        extra: BTreeMap<String, String>,
    },
    /// One elsewhere.
    External(LogConfig),
}

/// What a stack is made of.
#[derive(Clone)]
pub struct StackConfig {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Which broker.
    pub broker: BrokerChoice,
    /// A PostgreSQL server for the read models; `None` keeps them in the data folder.
    pub database_url: Option<String>,
    /// A MongoDB server for documents; `None` keeps them in the database of the read models.
    pub mongodb_url: Option<String>,
    /// A Qdrant server for the vectors; `None` keeps them in the data folder.
    pub qdrant: Option<QdrantConfig>,
    /// A bucket for the blobs; `None` keeps them in the data folder.
    pub s3: Option<S3Config>,
    /// The process that has the tables, for one that has no workers; `None` answers that they are elsewhere.
    pub warehouse: Option<RemoteConfig>,
    /// A schema registry that has to know every schema of this build; `None` answers for them by the API alone.
    pub schema_registry: Option<RegistryConfig>,
    /// Settings and models.
    pub core: Core,
    /// Names this process among the members of a consumer group: the same after a restart, different from every other
    /// process that lives.
    pub instance: String,
    /// Runs driven at once.
    pub max_runs: usize,
    /// How much one ingest may read.
    pub limits: Limits,
    /// What variables in addresses of databases stand for.
    pub secrets: SourceSecrets,
    /// Whether workers run in this process. Without them it answers and streams only: then every store that it shares with them has
    /// to be a server, and tables are where the ingester is: `warehouse`.
    pub workers: bool,
    /// Tries and pauses of the workers, for tests that can't wait for the usual ones.
    pub tune: fn(RuntimeConfig) -> RuntimeConfig,
    /// More tools, for tests and for programs that bring their own.
    pub extend_tools: fn(Toolbox) -> Toolbox,
}

impl StackConfig {
    /// The usual one.
    pub fn new(data_dir: impl Into<PathBuf>, core: Core) -> Self {
        Self {
            data_dir: data_dir.into(),
            broker: BrokerChoice::Embedded { port: 0, secure: None, extra: BTreeMap::new() },
            database_url: None,
            mongodb_url: None,
            s3: None,
            warehouse: None,
            schema_registry: None,
            qdrant: None,
            core,
            instance: "riverrun".to_owned(),
            max_runs: 32,
            limits: Limits::default(),
            secrets: SourceSecrets::default(),
            workers: true,
            tune: |config| config,
            extend_tools: |tools| tools,
        }
    }
}

/// A running stack.
pub struct Stack {
    state: AppState,
    broker: Option<EmbeddedBroker>,
    workers: WorkerSet,
    caught_up: CaughtUp,
    stop: CancellationToken,
}

/// What is cancelled once the read models, and the document store, show what was on the log at the start.
type CaughtUp = [CancellationToken; 2];

impl Stack {
    /// Starts every part and returns when it can be used. What was started is stopped again when a later part fails.
    pub async fn start(config: StackConfig) -> Result<Self, StackError> {
        let (broker, log) = start_broker(&config).await?;
        let stop = CancellationToken::new();
        match start_rest(config, log, broker.as_ref().map(EmbeddedBroker::figures), stop.clone()).await {
            Ok((state, workers, caught_up)) => Ok(Self { state, broker, workers, caught_up, stop }),
            Err(error) => {
                stop.cancel();
                if let Some(broker) = broker {
                    broker.stop().await;
                }
                Err(error)
            }
        }
    }

    /// What the routes need.
    pub fn state(&self) -> &AppState {
        &self.state
    }

    /// How to reach the log.
    pub fn log(&self) -> &LogConfig {
        &self.state.parts().log
    }

    /// Waits until the read models show what was on the log at the start, at most `patience`: whoever asks at once finds
    /// what was done before.
    pub async fn caught_up(&self, patience: Duration) {
        let [read_models, documents] = &self.caught_up;
        let both = async { tokio::join!(read_models.cancelled(), documents.cancelled()) };
        if tokio::time::timeout(patience, both).await.is_err() {
            tracing::warn!("the read models are still behind the log; answers may lack what was done last");
        }
    }

    /// Lets what has begun come to a safe point, at most [`STOP_PATIENCE`], then closes everything. Nothing that was
    /// acknowledged depends on it.
    pub async fn stop(self) {
        self.finish_traces().await;
        self.stop.cancel();
        self.state.hub().close();
        let deadline = Instant::now() + STOP_PATIENCE;
        while self.workers.iter().any(|worker| !worker.is_finished()) && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        for worker in self.workers.iter().filter(|worker| !worker.is_finished()) {
            tracing::warn!(
                worker = worker.name(),
                "worker did not stop in time; its work is done again at the next start"
            );
        }
        // Nobody calls models any more, and the log is still there.
        self.state.core().ledger().finish().await;
        let close = async {
            self.state.parts().sql.close().await;
            if let Some(broker) = self.broker {
                broker.stop().await;
            }
        };
        if tokio::time::timeout_at(deadline.max(Instant::now() + Duration::from_secs(1)), close).await.is_err() {
            tracing::warn!("closing took too long and was cut off");
        }
    }

    /// Lets the spans of what has ended go out; what does not go out now does at the next start.
    async fn finish_traces(&self) {
        let Some(tracer) = self.workers.iter().find(|worker| worker.name() == tracer::NAME) else { return };
        let deadline = Instant::now() + LAST_SPANS;
        let told = async {
            while self.state.core().tracing().status().state == TracingState::Up
                && tracer.lag().await.is_ok_and(|lag| lag.values().any(|records| *records > 0))
            {
                tokio::time::sleep(POLL).await;
            }
        };
        let _ = tokio::time::timeout_at(deadline, told).await;
    }
}

async fn start_broker(config: &StackConfig) -> Result<(Option<EmbeddedBroker>, LogConfig), StackError> {
    match &config.broker {
        BrokerChoice::Embedded { port, secure, extra } => {
            let folder = config.data_dir.join("broker");
            let broker =
                EmbeddedBroker::start_with(&folder, *port, secure.clone()).await.map_err(StackError::Broker)?;
            let mut log = broker.config("riverrun");
            log.extra.clone_from(extra);
            // Our broker takes no figures of its clients, and each of some twenty would keep hundreds of kilobytes to count them.
            log.extra.entry("enable.metrics.push".to_owned()).or_insert_with(|| "false".to_owned());
            Ok((Some(broker), log))
        }
        BrokerChoice::External(log) => {
            Admin::new(log)?.wait_ready(BROKER_PATIENCE).await.map_err(StackError::Broker)?;
            Ok((None, log.clone()))
        }
    }
}

async fn start_rest(
    config: StackConfig,
    mut log: LogConfig,
    embedded_broker: Option<FiguresHandle>,
    stop: CancellationToken,
) -> Result<(AppState, WorkerSet, CaughtUp), StackError> {
    if let Some(registry) = &config.schema_registry {
        log.schemas = SchemaRegistry::join(registry).await?;
    }
    let admin = Admin::new(&log)?;
    let topics = async { admin.ensure_topics(all_specs()).await.map_err(StackError::from) };
    let opened = async {
        let stores = open_stores(&config).await?;
        let documents = open_documents(&config, &stores.sql).await?;
        Ok::<_, StackError>((stores, documents))
    };
    let ((), (stores, documents)) = tokio::try_join!(topics, opened)?;
    model_cards::recall(&stores.sql, config.core.models()).await;
    let producer = Producer::new(&log)?;
    let models: Arc<dyn LanguageModels> = Arc::new(config.core.models().clone());
    let retriever = retriever(&config, &stores, models.clone());
    let answerer = Answerer::new(retriever.clone(), models, AnswerConfig::default());
    config.core.tracing().watch(stop.clone());
    let memory = stored_memory(&config, &stores, &producer);
    let toolbox = toolbox(&config, &stores, &retriever, &memory);
    config.core.tools().defined.connect(log.clone(), producer.clone(), stop.clone());
    let (handles, caught_up) = if config.workers {
        let crew = Crew::of_all(&config, log.clone(), producer.clone(), stop.clone());
        spawn_workers(&crew, &stores, &documents, (&toolbox, &memory))
    } else {
        (Vec::new(), CaughtUp::default())
    };
    let names: Vec<&str> = if config.workers {
        handles.iter().map(WorkerHandle::name).collect()
    } else {
        COMMITTING.map(|(name, _)| name).to_vec()
    };
    let groups = names
        .into_iter()
        .filter_map(|name| Some(GroupTopics { group: group_of(name), topics: vec![topic_of(name)?.name().to_owned()] }))
        .collect();
    let workers = WorkerSet::new(handles);
    // The workers take their partitions meanwhile.
    let hub = Hub::start(stores.sql.clone(), log.clone(), config.core.tracing().clone(), stop.clone()).await?;
    wait_ready(&workers).await?;
    // Whoever asks is told at once that the log can't be written. Workers wait for it, as they do for a broker that is away.
    let commands = match &embedded_broker {
        Some(broker) => producer.clone().told_by(broker.clone()),
        None => producer.clone(),
    };
    let parts = Parts {
        log,
        embedded_broker,
        producer: commands,
        sql: stores.sql,
        documents,
        vectors: stores.vectors,
        memory,
        keywords: stores.keywords,
        gaps: stores.gaps,
        warehouse: stores.warehouse,
        index_dir: config.data_dir.clone(),
        blobs: stores.blobs,
        vectors_address: config.qdrant.as_ref().map(|server| server.url.clone()),
        keywords_address: keyword_server(&config).map(|server| server.url.clone()),
        blobs_address: config.s3.as_ref().map(S3Config::address),
        warehouse_address: config.warehouse.as_ref().filter(|_| !config.workers).map(|place| place.url.clone()),
        retriever: Arc::new(retriever),
        answerer: Arc::new(answerer),
        hub,
        admin,
        workers: workers.clone(),
        groups,
        toolbox,
    };
    let state = AppState::new(config.core, parts)?;
    Ledger::take_over(&config.data_dir, &producer).await;
    state.core().ledger().write_to(producer);
    blob_sweeps::start(&state, stop.clone()).await;
    index_guard::start(&state, stop).await;
    Ok((state, workers, caught_up))
}

fn retriever(config: &StackConfig, stores: &Stores, models: Arc<dyn LanguageModels>) -> Retriever {
    Retriever::new(stores.vectors.clone(), stores.keywords.clone(), models)
        .with_cache(config.core.cache().clone())
        .with_gaps(stores.gaps.clone())
        .with_texts(Arc::new(stored_documents(stores)), config.core.config().rag_context_bytes)
        .with_adapters(Arc::new(StoredAdapters::new(stores.sql.clone(), stores.blobs.clone())))
}

fn stored_documents(stores: &Stores) -> StoredDocuments {
    StoredDocuments { sql: stores.sql.clone(), blobs: stores.blobs.clone() }
}

/// What runs work with, in a process that has no API.
pub(crate) struct RunParts {
    pub(crate) toolbox: Toolbox,
    pub(crate) memory: StoredMemory,
    pub(crate) blobs: Arc<dyn BlobStore>,
}

/// Opens what runs work with.
pub(crate) async fn open_run_parts(
    config: &StackConfig,
    log: LogConfig,
    producer: Producer,
    stop: CancellationToken,
) -> Result<RunParts, StackError> {
    let stores = open_stores(config).await?;
    model_cards::recall(&stores.sql, config.core.models()).await;
    let memory = stored_memory(config, &stores, &producer);
    let retriever = retriever(config, &stores, Arc::new(config.core.models().clone()));
    let toolbox = toolbox(config, &stores, &retriever, &memory);
    config.core.tools().defined.connect(log, producer, stop);
    Ok(RunParts { toolbox, memory, blobs: stores.blobs })
}

/// The tools of runs, over the stores.
fn toolbox(config: &StackConfig, stores: &Stores, retriever: &Retriever, memory: &StoredMemory) -> Toolbox {
    let dependencies = Dependencies {
        documents: Some(Arc::new(stored_documents(stores))),
        memory: Some(Arc::new(memory.clone())),
        warehouse: Some(stores.warehouse.clone()),
        ..Dependencies::new(Arc::new(retriever.clone()))
    };
    (config.extend_tools)(config.core.toolbox(dependencies))
}

fn stored_memory(config: &StackConfig, stores: &Stores, producer: &Producer) -> StoredMemory {
    let models: Arc<dyn MemoryModels> = Arc::new(config.core.models().clone());
    let window_tokens = match config.core.config().memory_window_tokens {
        0 => DEFAULT_WINDOW_TOKENS,
        tokens => tokens,
    };
    StoredMemory::new(stores.sql.clone(), stores.episodes.clone(), models, producer.clone(), window_tokens)
}

/// One of each.
fn spawn_workers(
    crew: &Crew<'_>,
    stores: &Stores,
    documents: &Arc<dyn DocumentStore>,
    (toolbox, memory): (&Toolbox, &StoredMemory),
) -> (Vec<WorkerHandle>, CaughtUp) {
    let (projector, read_models) = crew.projector(&stores.sql);
    let (keeper, documents) = crew.documents(documents, Some(&stores.blobs));
    let mut workers = vec![projector, keeper];
    workers.extend(crew.ingesters(&stores.blobs, stores.loader.as_ref()));
    workers.extend(crew.analyzers(&stores.blobs));
    workers.extend(crew.embedders(Some(&stores.blobs), Some(&stores.vectors)));
    workers.extend(crew.indexers(&stores.sql, &stores.vectors, &stores.keywords, (&stores.blobs, &stores.gaps)));
    workers.extend(crew.agents(toolbox, memory, &stores.blobs));
    workers.extend(crew.trainers(&stores.blobs));
    if crew.tracing().is_on() {
        workers.extend(crew.tracers());
    }
    (workers, [read_models, documents])
}

/// The topic that a worker commits offsets of.
fn topic_of(worker: &str) -> Option<Topic> {
    match worker {
        // There is one only where runs are traced.
        tracer::NAME => Some(Topic::AgentEvents),
        _ => COMMITTING.iter().find(|(name, _)| *name == worker).map(|(_, topic)| *topic),
    }
}

/// A stack is ready when every worker has its partitions: what is asked then is worked on at once. One that shares its groups with other
/// processes may have none for as long as they are there, and begins without.
async fn wait_ready(workers: &WorkerSet) -> Result<(), StackError> {
    let until = Instant::now() + READY_PATIENCE;
    loop {
        match readiness(&workers.statuses(), Instant::now() > until)? {
            Readiness::Ready => return Ok(()),
            Readiness::Without(waiting) => {
                tracing::warn!(
                    workers = waiting,
                    "workers have no partitions: other processes of their groups have them, or are waited for"
                );
                return Ok(());
            }
            Readiness::NotYet => tokio::time::sleep(READY_POLL).await,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Readiness {
    Ready,
    NotYet,
    /// These workers have no partitions, and nothing is wrong.
    Without(String),
}

/// `is_late` when patience is over: then a worker that has no partition for want of its broker is an error, and any other may have none.
fn readiness(statuses: &[WorkerStatus], is_late: bool) -> Result<Readiness, StackError> {
    let not_ready = |worker: &WorkerStatus, otherwise: &str| StackError::NotReady {
        waiting: format!("{}: {}", worker.name, worker.trouble.as_deref().unwrap_or(otherwise)),
    };
    if let Some(failed) = statuses.iter().find(|status| status.state == WorkerState::Failed) {
        return Err(not_ready(failed, "it has stopped"));
    }
    let waiting: Vec<&WorkerStatus> = statuses.iter().filter(|status| status.partitions == 0).collect();
    if waiting.is_empty() {
        return Ok(Readiness::Ready);
    }
    if !is_late {
        return Ok(Readiness::NotYet);
    }
    match waiting.iter().find(|status| status.state == WorkerState::Troubled) {
        Some(troubled) => Err(not_ready(troubled, "it can't reach its broker")),
        None => {
            Ok(Readiness::Without(waiting.iter().map(|status| status.name.as_str()).collect::<Vec<_>>().join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker_figures::tests::worker;

    fn status(name: &str, state: WorkerState, partitions: usize) -> WorkerStatus {
        let trouble = (state == WorkerState::Troubled).then(|| "the broker does not answer".to_owned());
        WorkerStatus { trouble, partitions, ..worker(name, state, 0) }
    }

    #[test]
    fn given_workers_that_others_leave_no_partition_when_patience_is_over_then_the_stack_begins_without_and_trouble_is_an_error()
     {
        use WorkerState::{Failed, Running, Starting, Troubled};
        for (of_embedder, soon, late) in [
            ((Running, 3), Some(Readiness::Ready), Some(Readiness::Ready)),
            ((Running, 0), Some(Readiness::NotYet), Some(Readiness::Without("embedder".to_owned()))),
            ((Starting, 0), Some(Readiness::NotYet), Some(Readiness::Without("embedder".to_owned()))),
            ((Troubled, 0), Some(Readiness::NotYet), None),
            ((Troubled, 3), Some(Readiness::Ready), Some(Readiness::Ready)),
            ((Failed, 0), None, None),
        ] {
            let (state, partitions) = of_embedder;
            let statuses = [status("agent", Running, 6), status("embedder", state, partitions)];
            for (is_late, expected) in [(false, soon), (true, late)] {
                let found = readiness(&statuses, is_late).map_err(|error| error.to_string());
                assert_eq!(found.clone().ok(), expected, "{state:?} {partitions} {is_late}");
                assert!(found.err().is_none_or(|error| error.contains("embedder: ")), "{state:?}");
            }
        }
    }
}
