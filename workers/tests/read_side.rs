//! Projector and indexer against a real broker, a real database and real indexes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riverrun_log::{EmbeddedBroker, LogConfig, Outgoing, Producer, Schemas, StartAt, Tail, TopicPartition, admin};
use riverrun_schemas::agent::{
    AgentEvent, RunAccepted, RunAdvanced, RunClaimed, RunFinished, RunOutcome, RunRequest, Step, StepKind,
};
use riverrun_schemas::codec::no_other_schemas;
use riverrun_schemas::ingest::{
    Chunk, ChunksEmbedded, DocumentDeleted, DocumentIndexed, DocumentWithdrawn, EmbeddedChunk, EmbeddingEvent,
    EmbeddingsWithdrawn, IngestEvent, IngestScanned, document_id,
};
use riverrun_schemas::{ChunkId, Collection, Decoded, IngestId, RunId, Topic, Usage, topics};
use riverrun_stores::keywords::tantivy_index::{TantivyConfig, TantivyIndex};
use riverrun_stores::read_models::run_views::RunStatus;
use riverrun_stores::read_models::{PageRequest, Within, deletions, documents, runs};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{ChunkFilter, KeywordIndex, Sql, VectorStore};
use riverrun_workers::indexer::Indexer;
use riverrun_workers::projector::{self, ProjectorConfig};
use riverrun_workers::runtime::{self, RuntimeConfig, WorkerHandle};
use tokio_util::sync::CancellationToken;

#[path = "read_side/indexing.rs"]
mod indexing;

const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    broker: EmbeddedBroker,
    log: LogConfig,
    producer: Producer,
    folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::over(folder, "broker").await
    }

    async fn over(folder: tempfile::TempDir, broker_folder: &str) -> Self {
        let broker = EmbeddedBroker::start(&folder.path().join(broker_folder), 0).await.unwrap();
        let log = LogConfig::new(broker.address().to_string(), "test");
        admin::ensure_topics(&log, topics::all_specs()).await.unwrap();
        let producer = Producer::new(&log).unwrap();
        Self { broker, log, producer, folder }
    }

    /// The same folder with another, empty log.
    async fn with_new_log(self) -> Self {
        let Self { broker, folder, .. } = self;
        broker.stop().await;
        Self::over(folder, "another broker").await
    }

    async fn sql(&self) -> Sql {
        Sql::open(self.folder.path().join("read.db")).await.unwrap()
    }

    fn projector(&self, sql: &Sql) -> (WorkerHandle, CancellationToken) {
        let stop = CancellationToken::new();
        let config = ProjectorConfig {
            log: self.log.clone(),
            producer: self.producer.clone(),
            schemas: Schemas::built_in(),
            sql: sql.clone(),
            caught_up: CancellationToken::new(),
        };
        (projector::spawn(config, stop.clone()), stop)
    }

    async fn say(&self, event: impl Into<AgentEvent>) {
        self.producer.send(&event.into(), "test", None).await.unwrap();
    }

    async fn records(&self, topic: &str, partitions: i32) -> Vec<riverrun_log::Record> {
        let mut all = Vec::new();
        for partition in 0..partitions {
            let range =
                Tail::read_range(&self.log, TopicPartition::new(topic, partition), StartAt::Beginning).await.unwrap();
            all.extend(range.collect().await.unwrap());
        }
        all
    }

    async fn ingest_events(&self) -> Vec<IngestEvent> {
        let records = self.records(Topic::IngestEvents.name(), Topic::IngestEvents.spec().partitions).await;
        records
            .iter()
            .map(|record| match record.decode::<IngestEvent>(&no_other_schemas).unwrap() {
                Decoded::Event(event) => event,
                Decoded::UnknownType { record } => panic!("{record}"),
            })
            .collect()
    }
}

/// Waits for a condition.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, check: impl Fn() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn accepted(run_id: RunId) -> RunAccepted {
    let request = RunRequest {
        task: "add".into(),
        agent: Some("react".into()),
        namespace: "default".parse().unwrap(),
        ..RunRequest::default()
    };
    RunAccepted { run_id, request, forked_from: None, at: 1_000 }
}

fn finished(run_id: RunId, epoch: i64) -> RunFinished {
    RunFinished {
        run_id,
        epoch,
        status: RunOutcome::Succeeded,
        agent: "react".into(),
        answer: Some("2".into()),
        citations: vec![],
        usage: Usage::default(),
        stop_reason: "answered".into(),
        error: None,
        at: 2_000,
    }
}

fn advanced(run_id: RunId, epoch: i64, seq: i64) -> RunAdvanced {
    let step = Step {
        seq,
        kind: StepKind::Thought,
        agent: "react".into(),
        text: Some("so".into()),
        tool: None,
        usage: None,
        at: 1_500,
    };
    RunAdvanced { run_id, epoch, steps: vec![step] }
}

async fn run_status(sql: &Sql, run_id: RunId) -> Option<(RunStatus, usize)> {
    runs::run(sql, Within::EveryNamespace, run_id).await.unwrap().map(|run| (run.status, run.steps.len()))
}

#[tokio::test(flavor = "multi_thread")]
async fn given_events_then_the_read_models_follow_and_go_on_after_a_kill() {
    let world = World::new().await;
    let sql = world.sql().await;
    let (projector, _) = world.projector(&sql);
    let run = RunId::new();
    world.say(accepted(run)).await;
    world.say(RunClaimed { run_id: run, epoch: 1, worker: "a".into(), at: 1_001 }).await;
    world.say(advanced(run, 1, 1)).await;
    until("the first step", || async { run_status(&sql, run).await.filter(|seen| *seen == (RunStatus::Running, 1)) })
        .await;

    projector.kill();
    world.say(RunClaimed { run_id: run, epoch: 2, worker: "b".into(), at: 1_002 }).await;
    world.say(finished(run, 1)).await; // from the dead
    world.say(advanced(run, 2, 2)).await;
    world.say(finished(run, 2)).await;
    let (projector, stop) = world.projector(&sql);
    until("the end", || async { run_status(&sql, run).await.filter(|seen| *seen == (RunStatus::Succeeded, 2)) }).await;
    stop.cancel();
    projector.join().await.unwrap();

    // The same from the beginning.
    let before = runs::run(&sql, Within::EveryNamespace, run).await.unwrap();
    riverrun_stores::read_models::rebuild(&sql).await.unwrap();
    assert_eq!(run_status(&sql, run).await, None);
    let (_projector, _) = world.projector(&sql);
    until("the rebuilt end", || async {
        run_status(&sql, run).await.filter(|seen| *seen == (RunStatus::Succeeded, 2))
    })
    .await;
    assert_eq!(runs::run(&sql, Within::EveryNamespace, run).await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_records_that_can_not_be_read_then_they_are_dead_letters_and_the_others_are_projected() {
    let world = World::new().await;
    let sql = world.sql().await;
    let run = RunId::new();
    let poison = |bytes: &'static [u8]| Outgoing {
        topic: Topic::AgentEvents.name().into(),
        partition: None,
        key: Some(run.to_string().into_bytes().into()),
        payload: Some(bytes.into()),
        headers: vec![],
    };
    world.producer.send_one(poison(b"")).await.unwrap();
    world.say(accepted(run)).await;
    world.producer.send_one(poison(b"\x00\x00\x00\x00\x01garbage")).await.unwrap();
    world.producer.send_one(poison(b"\x00\xff\xff\xff\xffwho knows")).await.unwrap();
    world.producer.send_one(Outgoing { payload: None, ..poison(b"") }).await.unwrap();
    world.say(finished(run, 0)).await;
    let (projector, stop) = world.projector(&sql);
    until("the end", || async { run_status(&sql, run).await.filter(|seen| seen.0 == RunStatus::Succeeded) }).await;
    let letters = world.records(&Topic::AgentEvents.dead_letters(), 1).await;
    assert_eq!(letters.len(), 4);
    assert_eq!(projector.status().dead_letters, 4);
    stop.cancel();
    projector.join().await.unwrap();
    // Read on, not read again.
    let (projector, _) = world.projector(&sql);
    let other = RunId::new();
    world.say(accepted(other)).await;
    until("the other run", || async { run_status(&sql, other).await }).await;
    assert_eq!(projector.status().dead_letters, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_rows_that_know_more_than_the_log_then_they_are_rebuilt_from_it() {
    let world = World::new().await;
    let sql = world.sql().await;
    let (projector, stop) = world.projector(&sql);
    let old: Vec<RunId> = (0..20).map(|_| RunId::new()).collect();
    for run in &old {
        world.say(accepted(*run)).await;
    }
    for run in &old {
        until("a run", || run_status(&sql, *run)).await;
    }
    stop.cancel();
    projector.join().await.unwrap();

    let world = world.with_new_log().await;
    let run = RunId::new();
    world.say(accepted(run)).await;
    let (_projector, _) = world.projector(&sql);
    until("the run of the new log", || run_status(&sql, run)).await;
    let all =
        runs::list(&sql, Within::EveryNamespace, &runs::RunFilter::default(), &PageRequest::default()).await.unwrap();
    assert_eq!(all.items.len(), 1, "runs of the old log are gone");
}
