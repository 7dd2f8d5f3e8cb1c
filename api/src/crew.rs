//! Who works. Each kind of workers is made here, for `serve`, which has all of them, and for a process that has one kind.
//!
//! A kind is so many of the worker that it is named after and one of each that goes along with it: together the eight kinds are every
//! worker that there is.

use std::sync::Arc;

use riverrun_agents::memory::StoredMemory;
use riverrun_agents::tools::Toolbox;
use riverrun_knowledge::LanguageModels;
use riverrun_log::{BlobStore, LogConfig, Producer};
use riverrun_stores::{DocumentStore, Gaps, KeywordIndex, Sql, VectorStore, WarehouseLoader};
use riverrun_workers::agent::{self, AgentWorkerConfig};
use riverrun_workers::analyzer::Analyzer;
use riverrun_workers::documents::{self, DocumentsConfig};
use riverrun_workers::embedder::Embedder;
use riverrun_workers::indexer::Indexer;
use riverrun_workers::ingester::{Ingester, IngesterConfig};
use riverrun_workers::memory::{self, EpisodeKeeper, RunRecorder, Summarizer};
use riverrun_workers::projector::{self, ProjectorConfig};
use riverrun_workers::rebuilder::{self, Rebuilder};
use riverrun_workers::reembedder::Reembedder;
use riverrun_workers::runtime::{self, InHand, RuntimeConfig, Worker, WorkerHandle};
use riverrun_workers::tracer::{Tracer, TracingService};
use riverrun_workers::trainer::Trainer;
use riverrun_workers::tree_builder::TreeBuilder;
use riverrun_workers::tuner::Tuner;
use riverrun_workers::turns::Turns;
use tokio_util::sync::CancellationToken;

use crate::stack::{
    Index, RunParts, StackConfig, StackError, open_blobs, open_documents, open_index, open_run_parts, open_sql,
};

/// The folder of the marks of records in hand, in the data folder.
const IN_HAND: &str = "in-hand";

/// Starts workers of one process.
pub struct Crew<'a> {
    config: &'a StackConfig,
    log: LogConfig,
    producer: Producer,
    instance: Option<String>,
    in_hand: Option<InHand>,
    count: u16,
    stop: CancellationToken,
}

/// What processes before this one ended with. It only protects: where it can't be kept, the work goes on without.
fn in_hand(config: &StackConfig) -> Option<InHand> {
    let folder = config.data_dir.join(IN_HAND);
    let opened = InHand::open(&folder);
    opened
        .inspect_err(|error| {
            tracing::warn!(folder = %folder.display(), error = %error, "records that end a process can't be told from others");
        })
        .ok()
}

impl<'a> Crew<'a> {
    /// One of each, under the name of its process.
    pub(crate) fn of_all(config: &'a StackConfig, log: LogConfig, producer: Producer, stop: CancellationToken) -> Self {
        let (instance, in_hand) = (Some(config.instance.clone()), in_hand(config));
        Self { config, log, producer, instance, in_hand, count: 1, stop }
    }

    /// `count` of a kind, in a process beside others. They have no name among the members of their group: which process does what may
    /// change at any time. What their model calls use goes to the log, too, until the ledger is finished.
    pub fn beside_others(
        config: &'a StackConfig,
        log: LogConfig,
        producer: Producer,
        count: u16,
        stop: CancellationToken,
    ) -> Self {
        config.core.ledger().write_to(producer.clone());
        Self { config, log, producer, instance: None, in_hand: in_hand(config), count, stop }
    }

    /// Where runs are traced to.
    pub(crate) fn tracing(&self) -> &TracingService {
        self.config.core.tracing()
    }

    fn models(&self) -> Arc<dyn LanguageModels> {
        Arc::new(self.config.core.models().clone())
    }

    fn runtime(&self) -> RuntimeConfig {
        let usual = RuntimeConfig {
            instance: self.instance.clone(),
            in_hand: self.in_hand.clone(),
            ..RuntimeConfig::new(self.log.clone(), self.producer.clone())
        };
        (self.config.tune)(usual)
    }

    fn one<W: Worker>(&self, worker: W, config: RuntimeConfig) -> WorkerHandle {
        runtime::spawn(worker, config, self.stop.clone())
    }

    fn many<W: Worker>(&self, make: impl Fn() -> W) -> Vec<WorkerHandle> {
        (0..self.count).map(|_| self.one(make(), self.runtime())).collect()
    }

    /// Ingesters, and who builds trees of summaries. Without a warehouse a document that asks for a table fails.
    pub(crate) fn ingesters(
        &self,
        blobs: &Arc<dyn BlobStore>,
        warehouse: Option<&Arc<dyn WarehouseLoader>>,
    ) -> Vec<WorkerHandle> {
        let models = self.models();
        let config = IngesterConfig {
            limits: self.config.limits,
            web: self.config.core.config().web.clone(),
            secrets: self.config.secrets.clone(),
            ..IngesterConfig::default()
        };
        let ingester = || {
            let ingester = Ingester::new(self.log.clone(), self.log.schemas.clone(), blobs.clone(), config.clone())
                .with_models(models.clone());
            match warehouse {
                Some(warehouse) => ingester.with_warehouse(warehouse.clone()),
                None => ingester,
            }
        };
        let mut workers = self.many(ingester);
        let trees = TreeBuilder::new(self.log.clone(), self.log.schemas.clone(), blobs.clone(), models);
        workers.push(self.one(trees, self.runtime()));
        workers
    }

    /// Embedders. Without blobs they know chunks alone, and not what lies around them; without vectors they don't know which of a
    /// document's chunks stayed.
    pub(crate) fn embedders(
        &self,
        texts: Option<&Arc<dyn BlobStore>>,
        vectors: Option<&Arc<dyn VectorStore>>,
    ) -> Vec<WorkerHandle> {
        let models = self.models();
        self.many(|| {
            let mut embedder = Embedder::new(models.clone());
            if let Some(blobs) = texts {
                embedder = embedder.with_texts(blobs.clone());
            }
            if let Some(vectors) = vectors {
                embedder = embedder.with_vectors(vectors.clone());
            }
            embedder
        })
    }

    /// Indexers, who makes collections anew, with another model or from the log, and who tunes their searches: judgements and what is
    /// learned from them are blobs.
    pub(crate) fn indexers(
        &self,
        sql: &Sql,
        vectors: &Arc<dyn VectorStore>,
        keywords: &Arc<dyn KeywordIndex>,
        (blobs, gaps): (&Arc<dyn BlobStore>, &Gaps),
    ) -> Vec<WorkerHandle> {
        let (models, turns) = (self.models(), Turns::across(sql.clone()));
        let mut workers = self.many(|| Indexer::new(vectors.clone(), keywords.clone()).with_turns(turns.clone()));
        let reembedder = Reembedder::new(vectors.clone(), models.clone(), turns.clone());
        workers.push(self.one(reembedder, self.runtime()));
        let tuner = Tuner::new(vectors.clone(), keywords.clone(), models.clone(), blobs.clone());
        workers.push(self.one(tuner, self.runtime()));
        let rebuilder =
            Rebuilder::new(vectors.clone(), keywords.clone(), models, (turns, gaps.clone()), self.stop.clone());
        let tries = RuntimeConfig { max_attempts: rebuilder::MAX_ATTEMPTS, ..self.runtime() };
        workers.push(self.one(rebuilder, tries));
        workers
    }

    /// Who drives runs, and who keeps what they remember.
    pub(crate) fn agents(
        &self,
        toolbox: &Toolbox,
        memory: &StoredMemory,
        blobs: &Arc<dyn BlobStore>,
    ) -> Vec<WorkerHandle> {
        let core = &self.config.core;
        let settings = AgentWorkerConfig {
            log: self.log.clone(),
            schemas: self.log.schemas.clone(),
            instance: self.instance.clone(),
            max_concurrent_runs: self.config.max_runs,
            default_max_iters: core.config().agent_max_iters,
            default_temperature: core.config().agent_temperature,
            policy: Arc::new(core.tools().policy.clone()),
            predecessor_patience: agent::PREDECESSOR_PATIENCE,
            cache: core.cache().clone(),
        };
        let agent = |_| {
            agent::spawn(
                settings.clone(),
                self.producer.clone(),
                core.models().clone(),
                toolbox.clone(),
                blobs.clone(),
                self.stop.clone(),
            )
        };
        let mut workers: Vec<WorkerHandle> = (0..self.count).map(agent).collect();
        let episodes = EpisodeKeeper::new(memory.models().clone(), memory.episodes().clone());
        let summarizer = Summarizer::new(memory.models().clone(), memory.window_tokens());
        workers.push(self.one(RunRecorder::default(), memory::patient(self.runtime())));
        workers.push(self.one(episodes, memory::patient(self.runtime())));
        workers.push(self.one(summarizer, memory::patient(self.runtime())));
        workers
    }

    /// The projector, and what is cancelled once it has caught up. One a process: it writes one transaction at a time.
    pub(crate) fn projector(&self, sql: &Sql) -> (WorkerHandle, CancellationToken) {
        let config = ProjectorConfig {
            log: self.log.clone(),
            producer: self.producer.clone(),
            schemas: self.log.schemas.clone(),
            sql: sql.clone(),
            caught_up: CancellationToken::new(),
        };
        let caught_up = config.caught_up.clone();
        (projector::spawn(config, self.stop.clone()), caught_up)
    }

    /// Who keeps documents, and what is cancelled once it has caught up. One a process, too. Reports are in the blobs.
    pub(crate) fn documents(
        &self,
        store: &Arc<dyn DocumentStore>,
        blobs: Option<&Arc<dyn BlobStore>>,
    ) -> (WorkerHandle, CancellationToken) {
        let config = DocumentsConfig {
            log: self.log.clone(),
            producer: self.producer.clone(),
            schemas: self.log.schemas.clone(),
            store: store.clone(),
            blobs: blobs.cloned(),
            caught_up: CancellationToken::new(),
        };
        let caught_up = config.caught_up.clone();
        (documents::spawn(config, self.stop.clone()), caught_up)
    }

    /// Who tells the tracing service of runs; it has to be on.
    pub fn tracers(&self) -> Vec<WorkerHandle> {
        let models = self.config.core.models();
        let (provider, model) = (models.settings().default_provider(), models.default_chat_model());
        self.many(|| Tracer::new(self.tracing().clone(), provider, model))
    }

    /// Who trains models.
    pub(crate) fn trainers(&self, blobs: &Arc<dyn BlobStore>) -> Vec<WorkerHandle> {
        let checkpoints = self.config.data_dir.join("finetune");
        let trainer = |_| {
            let models = self.config.core.models().clone();
            let trainer = Trainer::new(models, blobs.clone(), checkpoints.clone(), self.stop.clone());
            // A log or a disk that is away for long must not end a training of hours.
            self.one(trainer, memory::patient(self.runtime()))
        };
        (0..self.count).map(trainer).collect()
    }

    /// Who imports and analyzes projects.
    pub(crate) fn analyzers(&self, blobs: &Arc<dyn BlobStore>) -> Vec<WorkerHandle> {
        let core = &self.config.core;
        self.many(|| {
            Analyzer::new(
                blobs.clone(),
                self.models(),
                core.tools().web.clone(),
                core.tools().sandbox.clone(),
                core.config().projects.clone(),
            )
        })
    }
}

/// For a process that has one kind. The caller has made sure that what the kind needs are servers: what is none would be opened in the
/// data folder, where nobody else writes.
impl Crew<'_> {
    /// `ingesters` over the bucket, without a warehouse.
    pub async fn start_ingesters(&self) -> Result<Vec<WorkerHandle>, StackError> {
        Ok(self.ingesters(&open_blobs(self.config).await?, None))
    }

    /// `embedders`, with the bucket where one is set.
    pub async fn start_embedders(&self) -> Result<Vec<WorkerHandle>, StackError> {
        Ok(self.embedders(self.bucket().await?.as_ref(), None))
    }

    /// The blobs, where others have them too.
    async fn bucket(&self) -> Result<Option<Arc<dyn BlobStore>>, StackError> {
        Ok(match &self.config.s3 {
            Some(_) => Some(open_blobs(self.config).await?),
            None => None,
        })
    }

    /// `indexers` over the database, the index and the bucket.
    pub async fn start_indexers(&self) -> Result<Vec<WorkerHandle>, StackError> {
        let (Index { sql, vectors, keywords, gaps }, _) = open_index(self.config).await?;
        Ok(self.indexers(&sql, &vectors, &keywords, (&open_blobs(self.config).await?, &gaps)))
    }

    /// `agents` over all stores but the warehouse.
    pub async fn start_agents(&self) -> Result<Vec<WorkerHandle>, StackError> {
        let opened = open_run_parts(self.config, self.log.clone(), self.producer.clone(), self.stop.clone()).await?;
        let RunParts { toolbox, memory, blobs } = opened;
        Ok(self.agents(&toolbox, &memory, &blobs))
    }

    /// `projector` over the database, and who keeps documents: in MongoDB where one is set, reports where a bucket is.
    pub async fn start_projector(&self) -> Result<Vec<WorkerHandle>, StackError> {
        let sql = open_sql(self.config).await?;
        let store = open_documents(self.config, &sql).await?;
        let bucket = self.bucket().await?;
        let ((projector, _), (documents, _)) = (self.projector(&sql), self.documents(&store, bucket.as_ref()));
        Ok(vec![projector, documents])
    }

    /// `trainers` over the bucket.
    pub async fn start_trainers(&self) -> Result<Vec<WorkerHandle>, StackError> {
        Ok(self.trainers(&open_blobs(self.config).await?))
    }

    /// `analyzers` over the bucket.
    pub async fn start_analyzers(&self) -> Result<Vec<WorkerHandle>, StackError> {
        Ok(self.analyzers(&open_blobs(self.config).await?))
    }
}
