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

fn notes(name: &str) -> Collection {
    Collection::new("default".parse().unwrap(), name.parse().unwrap())
}

/// The batches of a document version of `chunks` chunks, two a batch.
fn embedded(
    collection: &Collection,
    source: &str,
    version: &str,
    ingest: u32,
    chunks: i32,
    dimensions: usize,
) -> Vec<EmbeddingEvent> {
    let batches = (chunks + 1) / 2;
    let event = |batch: i32| {
        let chunk = |ordinal: i32| {
            let text = format!("{version} words of {source} number {ordinal}");
            let chunk = Chunk {
                chunk_id: ChunkId::derive(&[source, version, &ordinal.to_string()]),
                ordinal,
                start: 0,
                end: text.len() as i64,
                text,
                page: None,
                heading: None,
                layer: 0,
                leaves: Vec::new(),
            };
            let mut vector = vec![0.5; dimensions];
            vector[0] = 1.0 + ordinal as f32;
            EmbeddedChunk::new(chunk, &vector)
        };
        ChunksEmbedded {
            document_id: document_id(collection, source),
            ingest_id: IngestId::derive(&[&ingest.to_string()]),
            namespace: collection.namespace.clone(),
            collection: collection.name.clone(),
            source: source.into(),
            version: version.into(),
            embed_model: format!("model of {dimensions}"),
            batch,
            batches,
            metadata_json: None,
            at: 1,
            dimensions: dimensions as i32,
            chunks: (batch * 2..(batch * 2 + 2).min(chunks)).map(chunk).collect(),
        }
        .into()
    };
    (0..batches).map(event).collect()
}

struct Indexes {
    vectors: EdgeVectors,
    keywords: TantivyIndex,
}

impl Indexes {
    fn open(folder: &Path) -> Self {
        Self {
            vectors: EdgeVectors::open(EdgeConfig::at(folder.join("vectors"))).unwrap(),
            keywords: TantivyIndex::open(TantivyConfig::at(folder.join("keywords"))).unwrap(),
        }
    }

    fn indexer(&self, world: &World) -> (WorkerHandle, CancellationToken) {
        let stop = CancellationToken::new();
        let mut config = RuntimeConfig::new(world.log.clone(), world.producer.clone());
        config.backoff_base = Duration::from_millis(20);
        let indexer = Indexer::new(Arc::new(self.vectors.clone()), Arc::new(self.keywords.clone()));
        (runtime::spawn(indexer, config, stop.clone()), stop)
    }

    async fn found(&self, collection: &Collection, words: &str) -> Vec<String> {
        let hits = self.keywords.search(collection, words, 100, &ChunkFilter::default()).await.unwrap();
        hits.into_iter().map(|hit| hit.chunk.version).collect()
    }
}

async fn send(world: &World, events: Vec<EmbeddingEvent>) {
    world
        .producer
        .send_many(events.iter().map(|event| Outgoing::event(event, "test", None).unwrap()).collect())
        .await
        .unwrap();
}

fn indexed(events: &[IngestEvent]) -> Vec<&DocumentIndexed> {
    events
        .iter()
        .filter_map(|event| if let IngestEvent::DocumentIndexed(event) = event { Some(event) } else { None })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_chunks_with_vectors_then_they_are_found_before_it_is_said_and_old_versions_are_gone() {
    let world = World::new().await;
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    let collection = notes("notes");
    send(&world, embedded(&collection, "/a", "old", 1, 5, 8)).await;
    send(&world, embedded(&collection, "/b", "old", 1, 2, 8)).await;
    until("both documents", || async { (indexed(&world.ingest_events().await).len() == 2).then_some(()) }).await;
    assert_eq!(
        (indexes.vectors.count(&collection).await.unwrap(), indexes.keywords.count(&collection).await.unwrap()),
        (7, 7)
    );

    send(&world, embedded(&collection, "/a", "new", 2, 3, 8)).await;
    let events = until("the new version", || async {
        Some(world.ingest_events().await).filter(|events| indexed(events).len() == 3)
    })
    .await;
    let last = indexed(&events).into_iter().find(|event| event.version == "new").unwrap();
    assert_eq!((last.chunks, last.removed_chunks, last.dimensions, last.embed_model.as_str()), (3, 5, 8, "model of 8"));
    assert_eq!(
        (indexes.vectors.count(&collection).await.unwrap(), indexes.keywords.count(&collection).await.unwrap()),
        (5, 5)
    );
    assert_eq!(indexes.found(&collection, "old").await.len(), 2, "those of /b");
    let hits = indexes
        .vectors
        .search(
            &collection,
            &[1.0; 8],
            100,
            &ChunkFilter { documents: vec![document_id(&collection, "/a")], ..ChunkFilter::default() },
        )
        .await
        .unwrap();
    assert!(
        hits.len() == 3
            && hits.iter().all(|hit| hit.chunk.version == "new" && hit.chunk.text.contains("new words of /a"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn given_everything_twice_and_a_kill_between_then_there_is_one_copy() {
    let world = World::new().await;
    let collection = notes("notes");
    let indexes = Indexes::open(world.folder.path());
    let (indexer, _) = indexes.indexer(&world);
    for n in 0..20 {
        send(&world, embedded(&collection, &format!("/{n}"), "v", 1, 4, 8)).await;
    }
    until("some document", || async { (!indexed(&world.ingest_events().await).is_empty()).then_some(()) }).await;
    indexer.kill();
    for n in 0..20 {
        send(&world, embedded(&collection, &format!("/{n}"), "v", 1, 4, 8)).await;
    }
    let (_indexer, _) = indexes.indexer(&world);
    let all = |events: &Vec<IngestEvent>| {
        let mut ids: Vec<_> = indexed(events).into_iter().map(|event| event.document_id).collect();
        ids.sort();
        ids.dedup();
        ids.len() == 20 && indexed(events).len() >= 40
    };
    let events = until("all documents", || async { Some(world.ingest_events().await).filter(all) }).await;
    assert!(events.iter().all(|event| matches!(event, IngestEvent::DocumentIndexed(_))), "nothing failed");
    assert_eq!(
        (indexes.vectors.count(&collection).await.unwrap(), indexes.keywords.count(&collection).await.unwrap()),
        (80, 80)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn given_documents_that_can_not_be_indexed_then_they_fail_with_the_fix_and_the_others_do_not() {
    let world = World::new().await;
    let collection = notes("notes");
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    send(&world, embedded(&collection, "/good", "v", 1, 3, 8)).await;
    send(&world, embedded(&notes("other"), "/also good", "v", 1, 3, 16)).await;
    until("the good ones", || async { Some(world.ingest_events().await).filter(|events| indexed(events).len() == 2) })
        .await;
    // Another model.
    send(&world, embedded(&collection, "/other model", "v", 1, 2, 16)).await;
    // A vector cut off.
    let mut cut = embedded(&collection, "/cut", "v", 1, 2, 8);
    let EmbeddingEvent::ChunksEmbedded(event) = &mut cut[0] else { panic!("nothing was withdrawn") };
    event.chunks[1].vector.truncate(9);
    send(&world, cut).await;
    // A batch that never came.
    let mut gap = embedded(&collection, "/gap", "v", 1, 6, 8);
    gap.remove(1);
    send(&world, gap).await;
    send(&world, embedded(&collection, "/good too", "v", 1, 3, 8)).await;
    let failures = |events: &[IngestEvent]| {
        let failed = events.iter().filter_map(|event| {
            if let IngestEvent::DocumentFailed(event) = event { Some(event.clone()) } else { None }
        });
        let mut failed: Vec<_> =
            failed.map(|event| (event.source, event.stage, event.error.code, event.error.hint.is_some())).collect();
        failed.sort();
        failed.dedup();
        failed
    };
    let events = until("the ends", || async {
        Some(world.ingest_events().await).filter(|events| indexed(events).len() == 3 && failures(events).len() == 3)
    })
    .await;
    let expected =
        [("/cut", "vector_damaged"), ("/gap", "chunks_missing"), ("/other model", "embedding_model_mismatch")];
    assert_eq!(
        failures(&events),
        expected.map(|(source, code)| (source.to_owned(), "index".to_owned(), code.to_owned(), true))
    );
    assert_eq!(
        (indexes.vectors.count(&collection).await.unwrap(), indexes.keywords.count(&collection).await.unwrap()),
        (6, 6),
        "nothing of the failed ones is left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_whole_ingest_then_the_read_model_ends_it() {
    let world = World::new().await;
    let sql = world.sql().await;
    let (_projector, _) = world.projector(&sql);
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    let collection = notes("notes");
    let ingest_id = IngestId::derive(&["1"]);
    let scanned = IngestScanned {
        ingest_id,
        namespace: collection.namespace.clone(),
        collection: collection.name.clone(),
        source: "/notes".into(),
        documents: 2,
        skipped: 0,
        at: 1,
    };
    world.producer.send(&IngestEvent::from(scanned), "test", None).await.unwrap();
    send(&world, embedded(&collection, "/a", "v", 1, 3, 8)).await;
    send(&world, embedded(&collection, "/b", "v", 1, 1, 8)).await;
    let view = until("the end of the ingest", || async {
        documents::ingest(&sql, Within::EveryNamespace, ingest_id).await.unwrap().filter(|view| view.status.ended())
    })
    .await;
    assert_eq!((view.documents.indexed, view.documents.failed), (2, 0));
    let collection = documents::collection(&sql, &collection).await.unwrap().unwrap();
    assert_eq!((collection.documents, collection.chunks, collection.embedding.dimensions), (2, 4, 8));
}

fn withdrawn(collection: &Collection, source: &str, request: u32) -> EmbeddingEvent {
    EmbeddingsWithdrawn {
        document_id: document_id(collection, source),
        ingest_id: IngestId::derive(&[&request.to_string()]),
        namespace: collection.namespace.clone(),
        collection: collection.name.clone(),
        source: source.into(),
        tables: 1,
        rows: 20,
        at: 1,
    }
    .into()
}

fn deleted(events: &[IngestEvent]) -> Vec<&DocumentDeleted> {
    events
        .iter()
        .filter_map(|event| if let IngestEvent::DocumentDeleted(event) = event { Some(event) } else { None })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_document_that_is_withdrawn_then_nothing_of_it_is_found_and_the_receipt_counts() {
    let world = World::new().await;
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    let (collection, other) = (notes("notes"), notes("other"));
    send(&world, embedded(&collection, "/a", "v1", 1, 5, 8)).await;
    send(&world, embedded(&collection, "/b", "v1", 1, 3, 8)).await;
    send(&world, embedded(&other, "/a", "v1", 1, 2, 8)).await;
    // Twice, as after a crash between removal and receipt.
    send(&world, vec![withdrawn(&collection, "/a", 2), withdrawn(&collection, "/a", 2)]).await;
    let events = until("two receipts", || async {
        Some(world.ingest_events().await).filter(|events| deleted(events).len() == 2 && indexed(events).len() == 3)
    })
    .await;
    let receipts = deleted(&events);
    assert_eq!((receipts[0].vectors, receipts[0].keywords, receipts[0].tables, receipts[0].rows), (5, 5, 1, 20));
    assert_eq!((receipts[1].vectors, receipts[1].keywords), (0, 0));
    let gone = document_id(&collection, "/a");
    for documents in
        [indexes.vectors.documents(&collection).await.unwrap(), indexes.keywords.documents(&collection).await.unwrap()]
    {
        assert_eq!(documents.into_iter().collect::<Vec<_>>(), [(document_id(&collection, "/b"), 3)], "{gone}");
    }
    assert_eq!(indexes.found(&other, "words").await.len(), 2, "the same source elsewhere stays");

    // The last one takes the collection with it: it may come back with another model.
    send(&world, vec![withdrawn(&collection, "/b", 3)]).await;
    until("the last receipt", || async {
        Some(world.ingest_events().await).filter(|events| deleted(events).len() == 3)
    })
    .await;
    assert!(indexes.vectors.info(&collection).await.unwrap().is_none());
    send(&world, embedded(&collection, "/a", "v2", 4, 1, 16)).await;
    until("the document of another model", || async {
        Some(world.ingest_events().await).filter(|events| indexed(events).len() == 4)
    })
    .await;
    assert_eq!(indexes.found(&collection, "words").await, ["v2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_removal_between_two_versions_then_the_read_model_counts_only_what_is_there() {
    let world = World::new().await;
    let sql = world.sql().await;
    let (_projector, _) = world.projector(&sql);
    let indexes = Indexes::open(world.folder.path());
    let (_indexer, _) = indexes.indexer(&world);
    let collection = notes("notes");
    let document = document_id(&collection, "/a");
    let request = IngestId::derive(&["2"]);
    send(&world, embedded(&collection, "/a", "v1", 1, 4, 8)).await;
    until("the first version", || async { documents::collection(&sql, &collection).await.unwrap() }).await;
    let gone = DocumentWithdrawn {
        document_id: document,
        ingest_id: request,
        namespace: collection.namespace.clone(),
        collection: collection.name.clone(),
        source: "/a".into(),
        tables: 1,
        rows: 20,
        at: 2,
    };
    for _ in 0..2 {
        world.producer.send(&IngestEvent::from(gone.clone()), "test", None).await.unwrap();
    }
    send(&world, vec![withdrawn(&collection, "/a", 2), withdrawn(&collection, "/a", 2)]).await;
    let receipt = until("the receipt", || async {
        deletions::deletion(&sql, request).await.unwrap().filter(|view| view.is_done())
    })
    .await;
    assert_eq!((receipt.documents, receipt.vectors, receipt.keywords, receipt.tables, receipt.rows), (1, 4, 4, 1, 20));
    assert!(documents::collection(&sql, &collection).await.unwrap().is_none());
    assert!(documents::document_in(&sql, &collection.namespace, document).await.unwrap().is_none());
    send(&world, embedded(&collection, "/a", "v2", 3, 2, 8)).await;
    let back = until("the second version", || async { documents::collection(&sql, &collection).await.unwrap() }).await;
    assert_eq!((back.documents, back.chunks), (1, 2));
}
