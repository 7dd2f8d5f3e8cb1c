//! The reembedder against a real broker and real vectors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use riverrun_knowledge::LanguageModels;
use riverrun_models::{ChatReply, ChatRequest, DeltaSink, EmbedPurpose, EmbedReply, ModelError, Reranker, Usage};
use riverrun_schemas::ingest::{IngestCommand, IngestEvent, ReembedCollection};
use riverrun_schemas::{ChunkId, Collection, DocumentId, IngestId, now_ms};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{ChunkFilter, StoredChunk, VectorPoint, VectorStore, Versions};
use riverrun_workers::reembedder::Reembedder;
use riverrun_workers::runtime::testkit::{Stack, eventually};
use riverrun_workers::runtime::{self, WorkerHandle};
use riverrun_workers::turns::Turns;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

const OLD: &str = "old";
const NEW: &str = "new";

/// Vectors of three numbers; a batch waits until it may go on.
struct GatedModels {
    gate: Semaphore,
    calls: AtomicUsize,
    error: Option<ModelError>,
}

impl GatedModels {
    fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self { gate: Semaphore::new(permits), calls: AtomicUsize::new(0), error: None })
    }
}

#[async_trait]
impl LanguageModels for GatedModels {
    async fn embed(
        &self,
        model: Option<&str>,
        inputs: Vec<String>,
        _purpose: EmbedPurpose,
    ) -> Result<EmbedReply, ModelError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.gate.acquire().await.unwrap().forget();
        Ok(EmbedReply {
            model: model.unwrap().to_owned(),
            vectors: inputs.iter().map(|text| vec![1.0, text.len() as f32, 0.5]).collect(),
            dimensions: 3,
            truncated: 0,
            usage: Usage::default(),
        })
    }

    fn reranker(&self) -> Reranker {
        Reranker::Off
    }

    async fn rerank(&self, _query: String, _documents: Vec<String>) -> Result<Vec<f32>, ModelError> {
        Err(ModelError::Cancelled)
    }

    async fn chat(
        &self,
        _provider: Option<&str>,
        _request: ChatRequest,
        _sink: &mut dyn DeltaSink,
        _cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        Err(ModelError::Cancelled)
    }

    async fn count_prompt(&self, _provider: Option<&str>, _request: &ChatRequest) -> Result<usize, ModelError> {
        Err(ModelError::Cancelled)
    }

    async fn context_tokens(&self, _provider: Option<&str>, _model: &str) -> Result<usize, ModelError> {
        Err(ModelError::Cancelled)
    }
}

struct World {
    stack: Stack,
    vectors: EdgeVectors,
    notes: Collection,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let vectors = EdgeVectors::open(EdgeConfig::at(folder.path().join("vectors"))).unwrap();
        let notes = Collection::new("default".parse().unwrap(), "notes".parse().unwrap());
        Self { stack: Stack::start().await, vectors, notes, _folder: folder }
    }

    async fn with_documents(count: usize) -> Self {
        let world = Self::new().await;
        for document in 0..count {
            world.write(&document.to_string(), "v1", 5).await;
        }
        world
    }

    /// Writes a version of a document as the indexer does.
    async fn write(&self, document: &str, version: &str, chunks: i32) {
        let chunk = |ordinal: i32| StoredChunk {
            chunk_id: ChunkId::derive(&[document, version, &ordinal.to_string()]),
            document_id: DocumentId::derive(&[document]),
            version: version.to_owned(),
            source: format!("/{document}"),
            ordinal,
            start: 0,
            end: 4,
            text: format!("words {ordinal}"),
            page: None,
            heading: None,
            tags: Vec::new(),
            layer: 0,
            leaves: Vec::new(),
        };
        let points = (0..chunks).map(|ordinal| VectorPoint { chunk: chunk(ordinal), vector: vec![1.0, 2.0] }).collect();
        self.vectors.ensure(&self.notes, 2, OLD).await.unwrap();
        self.vectors.upsert(&self.notes, points).await.unwrap();
        let old = Versions::Except(version.to_owned());
        self.vectors.delete_document(&self.notes, &DocumentId::derive(&[document]), &old).await.unwrap();
        self.vectors.flush(&self.notes).await.unwrap();
    }

    fn reembedder(&self, models: Arc<GatedModels>) -> (WorkerHandle, CancellationToken) {
        let stop = CancellationToken::new();
        let reembedder = Reembedder::new(Arc::new(self.vectors.clone()), models, Turns::default());
        (runtime::spawn(reembedder, self.stack.config(), stop.clone()), stop)
    }

    async fn ask(&self, key: &str) -> IngestId {
        let ingest_id = IngestId::derive(&[key]);
        let command = ReembedCollection {
            ingest_id,
            namespace: self.notes.namespace.clone(),
            collection: self.notes.name.clone(),
            embed_model: NEW.to_owned(),
            at: now_ms(),
        };
        self.stack.send(&[IngestCommand::from(command)]).await;
        ingest_id
    }

    async fn end(&self, ingest_id: IngestId) -> IngestEvent {
        eventually("the end", || async {
            self.stack.events::<IngestEvent>().await.into_iter().find(|event| match event {
                IngestEvent::CollectionReembedded(e) => e.ingest_id == ingest_id,
                IngestEvent::CollectionReembedFailed(e) => e.ingest_id == ingest_id,
                _ => false,
            })
        })
        .await
    }

    async fn model(&self) -> String {
        self.vectors.info(&self.notes).await.unwrap().unwrap().model
    }

    async fn chunks(&self, document: &str) -> Vec<StoredChunk> {
        self.vectors.chunks(&self.notes, &DocumentId::derive(&[document])).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_collection_when_it_is_embedded_anew_then_its_chunks_are_the_same_and_its_vectors_of_the_new_model() {
    let world = World::with_documents(4).await;
    let before = world.chunks("2").await;
    let (_worker, _stop) = world.reembedder(GatedModels::new(1_000));
    let IngestEvent::CollectionReembedded(done) = world.end(world.ask("a").await).await else { panic!("it failed") };
    assert_eq!((done.embed_model.as_str(), done.dimensions, done.documents, done.chunks), (NEW, 3, 4, 20));
    assert_eq!(world.model().await, NEW);
    assert_eq!(world.chunks("2").await, before);
    let hits = world.vectors.search(&world.notes, &[1.0, 7.0, 0.5], 100, &ChunkFilter::default()).await.unwrap();
    assert_eq!(hits.len(), 20);
    let begun = world.stack.events::<IngestEvent>().await.into_iter().find_map(|event| match event {
        IngestEvent::CollectionReembedding(begun) => Some(begun),
        _ => None,
    });
    assert_eq!(begun.map(|begun| (begun.from_model, begun.documents, begun.chunks)), Some((OLD.to_owned(), 4, 20)));
    // Asked again there is nothing to do, and it is said.
    assert!(matches!(world.end(world.ask("b").await).await, IngestEvent::CollectionReembedded(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_documents_that_change_meanwhile_when_it_is_done_then_the_collection_has_what_was_indexed_last() {
    let world = World::with_documents(3).await;
    // The first batches only: the length of the vectors, and the first document.
    let models = GatedModels::new(2);
    let (_worker, _stop) = world.reembedder(models.clone());
    let request = world.ask("a").await;
    eventually("the second document's turn", || async { (models.calls.load(Ordering::Relaxed) >= 3).then_some(()) })
        .await;
    assert_eq!(world.model().await, OLD, "searches go on with what there is");
    // As many chunks as before: counts alone don't tell.
    world.write("0", "v2", 5).await;
    world.write("3", "v1", 2).await;
    world.vectors.delete_document(&world.notes, &DocumentId::derive(&["2"]), &Versions::All).await.unwrap();
    world.vectors.flush(&world.notes).await.unwrap();
    models.gate.add_permits(1_000);
    let IngestEvent::CollectionReembedded(done) = world.end(request).await else { panic!("it failed") };
    assert_eq!((done.documents, done.chunks), (3, 12));
    assert!(world.chunks("0").await.iter().all(|chunk| chunk.version == "v2"));
    assert_eq!(
        (world.chunks("0").await.len(), world.chunks("2").await.len(), world.chunks("3").await.len()),
        (5, 0, 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_kill_half_way_when_it_goes_on_then_what_was_embedded_is_not_embedded_again() {
    let world = World::with_documents(6).await;
    let models = GatedModels::new(4);
    let (worker, _stop) = world.reembedder(models.clone());
    let request = world.ask("a").await;
    eventually("half of it", || async { (models.calls.load(Ordering::Relaxed) >= 5).then_some(()) }).await;
    worker.kill();
    let rest = GatedModels::new(1_000);
    let (_worker, _stop) = world.reembedder(rest.clone());
    assert!(matches!(world.end(request).await, IngestEvent::CollectionReembedded(_)));
    assert_eq!(world.model().await, NEW);
    // Three of six documents were written; a kill may lose what was not flushed, never more than all of it.
    let again = rest.calls.load(Ordering::Relaxed);
    assert!((3..=7).contains(&again), "{again} batches");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_model_that_fails_or_no_collection_when_asked_then_it_is_said_with_the_fix_and_nothing_changes() {
    let world = World::with_documents(1).await;
    let error = ModelError::Unsupported { provider: "x".to_owned(), what: "embed".to_owned() };
    let models = GatedModels { gate: Semaphore::new(0), calls: AtomicUsize::new(0), error: Some(error) };
    let (_worker, _stop) = world.reembedder(Arc::new(models));
    let IngestEvent::CollectionReembedFailed(failed) = world.end(world.ask("a").await).await else { panic!("done") };
    assert_eq!(failed.error.code, ModelError::Unsupported { provider: String::new(), what: String::new() }.code());
    assert_eq!((world.model().await, world.chunks("0").await.len()), (OLD.to_owned(), 5));

    let empty = World::new().await;
    let (_worker, _stop) = empty.reembedder(GatedModels::new(9));
    let IngestEvent::CollectionReembedFailed(failed) = empty.end(empty.ask("a").await).await else { panic!("done") };
    assert!(failed.error.code == "collection_not_found" && failed.error.hint.is_some(), "{:?}", failed.error);
}
