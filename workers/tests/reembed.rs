//! The reembedder against a real broker and real vectors.

use std::sync::Arc;

use riverrun_models::ModelError;
use riverrun_schemas::ingest::{IngestCommand, IngestEvent, ReembedCollection};
use riverrun_schemas::{ChunkId, Collection, DocumentId, IngestId, now_ms};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{ChunkFilter, StoredChunk, VectorPoint, VectorStore, Versions};
use riverrun_workers::reembedder::Reembedder;
use riverrun_workers::runtime::testkit::{Stack, eventually};
use riverrun_workers::runtime::{self, WorkerHandle};
use riverrun_workers::turns::Turns;
use tokio_util::sync::CancellationToken;

mod models;

use models::{ALL, GatedModels, by_length};

const OLD: &str = "old";
const NEW: &str = "new";

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
    let (_worker, _stop) = world.reembedder(GatedModels::embedding(by_length, ALL));
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
    let models = GatedModels::embedding(by_length, 2);
    let (_worker, _stop) = world.reembedder(models.clone());
    let request = world.ask("a").await;
    eventually("the second document's turn", || async { (models.calls() >= 3).then_some(()) }).await;
    assert_eq!(world.model().await, OLD, "searches go on with what there is");
    // As many chunks as before: counts alone don't tell.
    world.write("0", "v2", 5).await;
    world.write("3", "v1", 2).await;
    world.vectors.delete_document(&world.notes, &DocumentId::derive(&["2"]), &Versions::All).await.unwrap();
    world.vectors.flush(&world.notes).await.unwrap();
    models.open();
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
    let models = GatedModels::embedding(by_length, 4);
    let (worker, _stop) = world.reembedder(models.clone());
    let request = world.ask("a").await;
    eventually("half of it", || async { (models.calls() >= 5).then_some(()) }).await;
    worker.kill();
    let rest = GatedModels::embedding(by_length, ALL);
    let (_worker, _stop) = world.reembedder(rest.clone());
    assert!(matches!(world.end(request).await, IngestEvent::CollectionReembedded(_)));
    assert_eq!(world.model().await, NEW);
    // Three of six documents were written; a kill may lose what was not flushed, never more than all of it.
    let again = rest.calls();
    assert!((3..=7).contains(&again), "{again} batches");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_model_that_fails_or_no_collection_when_asked_then_it_is_said_with_the_fix_and_nothing_changes() {
    let world = World::with_documents(1).await;
    let error = ModelError::Unsupported { provider: "x".to_owned(), what: "embed".to_owned() };
    let (_worker, _stop) = world.reembedder(GatedModels::failing(error));
    let IngestEvent::CollectionReembedFailed(failed) = world.end(world.ask("a").await).await else { panic!("done") };
    assert_eq!(failed.error.code, ModelError::Unsupported { provider: String::new(), what: String::new() }.code());
    assert_eq!((world.model().await, world.chunks("0").await.len()), (OLD.to_owned(), 5));

    let empty = World::new().await;
    let (_worker, _stop) = empty.reembedder(GatedModels::embedding(by_length, 9));
    let IngestEvent::CollectionReembedFailed(failed) = empty.end(empty.ask("a").await).await else { panic!("done") };
    assert!(failed.error.code == "collection_not_found" && failed.error.hint.is_some(), "{:?}", failed.error);
}
