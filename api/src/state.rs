//! What handlers share. [`Core`] needs no log and no store: a command that only lists agents starts nothing for it.
//! [`AppState`] adds everything else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::FromRef;
use parking_lot::Mutex;
use riverrun_agents::Policy;
use riverrun_agents::memory::StoredMemory;
use riverrun_agents::tools::sandbox::Sandbox;
use riverrun_agents::tools::{DefinedTools, Dependencies, Toolbox};
use riverrun_knowledge::web::GuardedClient;
use riverrun_knowledge::{Answerer, Retriever};
use riverrun_log::admin::{Admin, GroupTopics, PartitionLag};
use riverrun_log::broker::FiguresHandle;
use riverrun_log::dead_letters::DeadLetters;
use riverrun_log::{BlobStore, LogConfig, LogError, Producer, lag};
use riverrun_models::{Account, Models, Purpose};
use riverrun_schemas::{Namespace, counted};
use riverrun_stores::{Cache, DocumentStore, Gaps, KeywordIndex, LocalCache, Sql, VectorStore, Warehouse};
use riverrun_workers::ledger::Ledger;
use riverrun_workers::runtime::{WorkerHandle, WorkerState, WorkerStatus};
use riverrun_workers::tracer::TracingService;
use riverrun_workers::{rebuilder, trainer, tuner};
use tokio::sync::Semaphore;

use crate::access::{Access, caller};
use crate::config::{ApiConfig, DEFAULT_STREAMS, SharedConfig};
use crate::error::ApiError;
use crate::health_page::HealthPage;
use crate::hub::Hub;
use crate::idempotency::Turns;
use crate::metrics::Metrics;
use crate::reservations::Reservations;
use crate::submit::{IngestDefaults, Known, KnownTool};

/// How long a measured lag is good for.
const LAG_AGE: Duration = Duration::from_secs(1);

/// What every route may use.
#[derive(Clone)]
pub struct Core {
    inner: Arc<CoreParts>,
    tracing: TracingService,
    cache: Arc<dyn Cache>,
}

struct CoreParts {
    config: SharedConfig,
    access: Arc<Access>,
    models: Models,
    ledger: Ledger,
    tools: ToolParts,
    metrics: Metrics,
}

/// What the operator decided about tools.
#[derive(Clone)]
pub struct ToolParts {
    /// Those of the tools file.
    pub defined: DefinedTools,
    /// The way out of tools that fetch; without it there are none.
    pub web: Option<GuardedClient>,
    /// Starts programs; without one none are started.
    pub sandbox: Option<Sandbox>,
    /// What may be done without asking.
    pub policy: Policy,
}

impl Default for ToolParts {
    fn default() -> Self {
        Self { defined: DefinedTools::none(), web: None, sandbox: None, policy: Policy::default() }
    }
}

impl Core {
    /// Loads and contacts nothing.
    pub fn new(config: ApiConfig, models: Models) -> Self {
        Self::with_tools(config, models, ToolParts::default())
    }

    /// The same with tools of the operator's.
    pub fn with_tools(config: ApiConfig, models: Models, tools: ToolParts) -> Self {
        let access = Arc::new(Access::new(&config));
        let ledger = Ledger::default();
        let models = models.metered(Arc::new(ledger.clone()));
        let metrics = Metrics::default();
        let parts = CoreParts { config: Arc::new(config), access, models, ledger, tools, metrics };
        Self { inner: Arc::new(parts), tracing: TracingService::default(), cache: Arc::new(LocalCache::default()) }
    }

    /// The same with a service that runs are traced to.
    pub fn with_tracing(self, tracing: TracingService) -> Self {
        Self { tracing, ..self }
    }

    /// The same with a cache that other processes share.
    pub fn with_cache(self, cache: Arc<dyn Cache>) -> Self {
        Self { cache, ..self }
    }

    /// What was computed before.
    pub fn cache(&self) -> &Arc<dyn Cache> {
        &self.cache
    }

    /// Where runs are traced to.
    pub fn tracing(&self) -> &TracingService {
        &self.tracing
    }

    /// What the operator decided.
    pub fn config(&self) -> &SharedConfig {
        &self.inner.config
    }

    /// Who may do what.
    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.inner.access
    }

    /// The model providers. What is charged to an account stands in the [`Core::ledger`].
    pub fn models(&self) -> &Models {
        &self.inner.models
    }

    /// The models, charged to the namespace of whoever asks, or the one that the request names.
    pub(crate) fn models_for(&self, namespace: Option<Namespace>, purpose: Purpose) -> Models {
        self.models().charged_to(Account::of(namespace.unwrap_or_else(caller::home), purpose))
    }

    /// What model calls outside of runs used.
    pub fn ledger(&self) -> &Ledger {
        &self.inner.ledger
    }

    /// What the operator decided about tools.
    pub fn tools(&self) -> &ToolParts {
        &self.inner.tools
    }

    /// Every tool that a process with these settings has, over `dependencies`.
    pub fn toolbox(&self, dependencies: Dependencies) -> Toolbox {
        let dependencies = Dependencies { web: self.tools().web.clone(), ..dependencies };
        Toolbox::builtin(dependencies).with_set(Arc::new(self.tools().defined.clone()))
    }

    /// The API's own figures.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// What requests may name.
    pub fn known(&self) -> Known {
        Known {
            tools: self.known_tools(),
            providers: self.models().providers().into_iter().map(|provider| provider.name).collect(),
        }
    }

    fn known_tools(&self) -> Vec<KnownTool> {
        let tools = crate::routes::tools::catalog(self).manifests().into_iter();
        let tools = tools.map(|tool| KnownTool { name: tool.name, namespace: tool.namespace, is_prefix: false });
        let servers = self.tools().defined.prefixes().into_iter();
        tools.chain(servers.map(|(namespace, name)| KnownTool { name, namespace, is_prefix: true })).collect()
    }

    /// What an ingest takes from the settings.
    pub fn ingest_defaults(&self) -> IngestDefaults {
        IngestDefaults {
            embed_model: self.models().default_embed_model().to_owned(),
            hub_embed_model: self.models().hub_embed_model().to_owned(),
            chunk_size: self.config().chunk_size,
            chunk_overlap: self.config().chunk_overlap,
            chunk_unit: self.config().chunk_unit,
        }
    }
}

/// The workers of this process.
#[derive(Clone, Default)]
pub struct WorkerSet {
    handles: Arc<Vec<WorkerHandle>>,
}

/// Work that gets nowhere for so long counts as stuck.
const STALLED: Duration = Duration::from_secs(300);

impl WorkerSet {
    /// These.
    pub fn new(handles: Vec<WorkerHandle>) -> Self {
        Self { handles: Arc::new(handles) }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &WorkerHandle> {
        self.handles.iter()
    }

    /// How each is doing.
    pub fn statuses(&self) -> Vec<WorkerStatus> {
        self.iter().map(WorkerHandle::status).collect()
    }
}

/// A training is one record for hours, and so may be a rebuild or a tuning: that such a worker gets on can't be told from its records.
pub fn has_long_records(worker: &str) -> bool {
    [trainer::NAME, rebuilder::NAME, tuner::NAME].contains(&worker)
}

/// Whether a worker gets on; the reason where it does not.
pub fn worker_trouble(status: &WorkerStatus) -> Option<String> {
    let trouble = || status.trouble.clone();
    match status.state {
        WorkerState::Failed => Some(trouble().unwrap_or_else(|| "it has stopped".to_owned())),
        WorkerState::Troubled => Some(trouble().unwrap_or_else(|| "the broker does not answer".to_owned())),
        WorkerState::Stopped => Some("it was stopped".to_owned()),
        _ if !has_long_records(&status.name) && status.stalled(STALLED) => {
            Some(format!("nothing got done for {} s with {} records in work", status.idle_ms / 1_000, status.in_work))
        }
        WorkerState::Starting | WorkerState::Running | WorkerState::Stopping => None,
    }
}

/// Everything that [`AppState`] is made of.
pub struct Parts {
    /// Where the log is.
    pub log: LogConfig,
    /// Figures of the broker that this process hosts, if it does.
    pub embedded_broker: Option<FiguresHandle>,
    /// Writes commands.
    pub producer: Producer,
    /// Read models.
    pub sql: Sql,
    /// Documents that are kept whole.
    pub documents: Arc<dyn DocumentStore>,
    /// Vectors.
    pub vectors: Arc<dyn VectorStore>,
    /// Where they are when that is a server.
    pub vectors_address: Option<String>,
    /// Conversations.
    pub memory: StoredMemory,
    /// Where keywords are when that is a server.
    pub keywords_address: Option<String>,
    /// Keywords.
    pub keywords: Arc<dyn KeywordIndex>,
    /// Collections that are not whole.
    pub gaps: Gaps,
    /// Tables.
    pub warehouse: Arc<dyn Warehouse>,
    /// Where they are when another process has them.
    pub warehouse_address: Option<String>,
    /// Folder of vectors and keyword indexes.
    pub index_dir: PathBuf,
    /// Large content.
    pub blobs: Arc<dyn BlobStore>,
    /// Where they are when that is a server.
    pub blobs_address: Option<String>,
    /// Search.
    pub retriever: Arc<Retriever>,
    /// Answers.
    pub answerer: Arc<Answerer>,
    /// What happens in runs now.
    pub hub: Hub,
    /// Asks the broker about itself.
    pub admin: Admin,
    /// The workers of this process.
    pub workers: WorkerSet,
    /// The groups that commit offsets: the broker knows how far they are.
    pub groups: Vec<GroupTopics>,
    /// The tools that runs use.
    pub toolbox: Toolbox,
}

/// What routes with a log and stores may use. What stands around a route has a clone of its own for each request.
#[derive(Clone)]
pub struct AppState {
    all: Arc<All>,
}

struct All {
    core: Core,
    parts: Parts,
    shared: Shared,
}

struct Shared {
    dead_letters: DeadLetters,
    streams: Arc<Semaphore>,
    max_streams: usize,
    reservations: Reservations,
    turns: Turns,
    lag: Mutex<Option<(Instant, Vec<PartitionLag>)>>,
    health: HealthPage,
}

impl AppState {
    /// Joins the two.
    pub fn new(core: Core, parts: Parts) -> Result<Self, LogError> {
        let dead_letters = DeadLetters::new(&parts.log, parts.producer.clone())?;
        let max_streams = match core.config().max_streams {
            0 => DEFAULT_STREAMS,
            set => set,
        };
        let shared = Shared {
            dead_letters,
            streams: Arc::new(Semaphore::new(max_streams)),
            max_streams,
            reservations: Reservations::default(),
            turns: Turns::default(),
            lag: Mutex::new(None),
            health: HealthPage::default(),
        };
        Ok(Self { all: Arc::new(All { core, parts, shared }) })
    }

    /// The part without a log and stores.
    pub fn core(&self) -> &Core {
        &self.all.core
    }

    /// What happens in runs now.
    pub fn hub(&self) -> &Hub {
        &self.all.parts.hub
    }

    /// What it is made of.
    pub fn parts(&self) -> &Parts {
        &self.all.parts
    }

    /// What `/health` answered last.
    pub(crate) fn health(&self) -> &HealthPage {
        &self.all.shared.health
    }

    /// Records that could not be handled.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.all.shared.dead_letters
    }

    /// Idempotency keys on their way.
    pub fn reservations(&self) -> &Reservations {
        &self.all.shared.reservations
    }

    /// Requests with an idempotency key that are handled now.
    pub(crate) fn turns(&self) -> &Turns {
        &self.all.shared.turns
    }

    /// A place for a stream or a waiting request; 429 when all are taken.
    pub fn stream_slot(&self) -> Result<tokio::sync::OwnedSemaphorePermit, ApiError> {
        self.all.shared.streams.clone().try_acquire_owned().map_err(|_| {
            ApiError::busy(format!("{} open, which is the limit", counted(self.all.shared.max_streams, "stream")))
                .hint("close some, try again later, or raise RIVERRUN_API_MAX_STREAMS")
        })
    }

    /// How far each group is behind, at most a second old.
    pub async fn lag(&self) -> Result<Vec<PartitionLag>, LogError> {
        if let Some((at, lag)) = self.all.shared.lag.lock().as_ref()
            && at.elapsed() < LAG_AGE
        {
            return Ok(lag.clone());
        }
        let parts = &self.all.parts;
        // The broker of this process is asked without a client; any other takes one for each group.
        let mut lag = match &parts.embedded_broker {
            Some(broker) => lag::of_groups(broker, &parts.groups)?,
            None => parts.admin.lag(&parts.groups).await?,
        };
        // Workers that commit nothing know themselves how far they are.
        for worker in parts.workers.iter() {
            let group = worker.status().group;
            if parts.groups.iter().all(|committing| committing.group != group) {
                let positions = worker.positions();
                let ends = match &parts.embedded_broker {
                    Some(broker) => lag::ends(broker, positions.keys()),
                    None => parts.admin.ends(positions.keys().cloned().collect()).await?,
                };
                lag.extend(positions.into_iter().map(|(partition, next)| {
                    let end = ends.get(&partition).copied().unwrap_or(next);
                    PartitionLag {
                        group: group.clone(),
                        partition,
                        committed: Some(next),
                        end,
                        lag: (end - next).max(0),
                    }
                }));
            }
        }
        *self.all.shared.lag.lock() = Some((Instant::now(), lag.clone()));
        Ok(lag)
    }

    /// The same, summed by group.
    pub async fn lag_by_group(&self) -> Result<BTreeMap<String, i64>, LogError> {
        let mut sums: BTreeMap<String, i64> =
            self.all.parts.workers.statuses().into_iter().map(|status| (status.group, 0)).collect();
        for line in self.lag().await? {
            *sums.entry(line.group).or_default() += line.lag;
        }
        Ok(sums)
    }
}

impl FromRef<AppState> for Core {
    fn from_ref(state: &AppState) -> Self {
        state.core().clone()
    }
}

/// The log, for routes that say less where none is open.
#[derive(Clone)]
pub(crate) struct OpenLog(pub(crate) Option<AppState>);

impl FromRef<AppState> for OpenLog {
    fn from_ref(state: &AppState) -> Self {
        Self(Some(state.clone()))
    }
}

impl FromRef<Core> for OpenLog {
    fn from_ref(_: &Core) -> Self {
        Self(None)
    }
}
