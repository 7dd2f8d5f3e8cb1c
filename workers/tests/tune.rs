//! The tuner against a real broker, real vectors and real blobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_knowledge::retrieval::{JudgedQuestion, QueryAdapter};
use riverrun_log::{BlobStore, ObjectStoreBlobs};
use riverrun_schemas::ingest::{CollectionTuned, IngestCommand, IngestEvent, TuneCollection};
use riverrun_schemas::{BlobRef, ChunkId, Collection, DocumentId, IngestId, Topic, now_ms};
use riverrun_stores::keywords::tantivy_index::{TantivyConfig, TantivyIndex};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{StoredChunk, VectorPoint, VectorStore};
use riverrun_workers::runtime::testkit::{Stack, eventually};
use riverrun_workers::runtime::{self, WorkerHandle};
use riverrun_workers::tuner::Tuner;
use tokio_util::sync::CancellationToken;

mod models;

use models::{ALL, GatedModels};

const DIMENSIONS: usize = 8;
const MODEL: &str = "seeded";
const DOCUMENTS: usize = 60;

/// Numbers from -1 to 1 that follow from a seed.
fn vector(seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_add(7);
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    // The first ones of near seeds are near.
    number();
    (0..DIMENSIONS).map(|_| number()).collect()
}

fn turned(vector: &[f32]) -> Vec<f32> {
    vector.iter().rev().copied().collect()
}

/// A question is a number, from which its vector follows.
fn by_number(text: &str) -> Vec<f32> {
    vector(text.parse().unwrap())
}

struct World {
    stack: Stack,
    vectors: Arc<EdgeVectors>,
    keywords: Arc<TantivyIndex>,
    blobs: Arc<dyn BlobStore>,
    notes: Collection,
    _folder: tempfile::TempDir,
}

impl World {
    /// A collection of documents whose vectors follow from their numbers, and who tunes it; it ends with the runtime.
    async fn new(placed: impl Fn(Vec<f32>) -> Vec<f32>) -> Self {
        let world = Self::without_tuner(placed).await;
        world.tuner(GatedModels::embedding(by_number, ALL));
        world
    }

    async fn without_tuner(placed: impl Fn(Vec<f32>) -> Vec<f32>) -> Self {
        let (stack, folder) = (Stack::start().await, tempfile::tempdir().unwrap());
        let vectors = Arc::new(EdgeVectors::open(EdgeConfig::at(folder.path().join("vectors"))).unwrap());
        let keywords = TantivyIndex::open(TantivyConfig::at(folder.path().join("keywords"))).unwrap();
        let blobs: Arc<dyn BlobStore> = Arc::new(ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap());
        let notes = Collection::new("default".parse().unwrap(), "notes".parse().unwrap());
        write(&*vectors, &notes, MODEL, placed).await;
        Self { stack, vectors, keywords: Arc::new(keywords), blobs, notes, _folder: folder }
    }

    fn tuner(&self, models: Arc<GatedModels>) -> WorkerHandle {
        let tuner = Tuner::new(self.vectors.clone(), self.keywords.clone(), models, self.blobs.clone());
        runtime::spawn(tuner, self.stack.config(), CancellationToken::new())
    }

    async fn judged(&self, questions: usize) -> Option<BlobRef> {
        self.keep((0..questions).map(judged)).await
    }

    async fn keep(&self, judged: impl Iterator<Item = JudgedQuestion>) -> Option<BlobRef> {
        self.put(serde_json::to_vec(&judged.collect::<Vec<_>>()).unwrap()).await
    }

    async fn put(&self, bytes: Vec<u8>) -> Option<BlobRef> {
        Some(self.blobs.put_bytes(bytes.into(), "application/json").await.unwrap())
    }

    /// Asks, and waits for the end.
    async fn tune(&self, key: &str, collection: &Collection, judgements: Option<BlobRef>) -> IngestEvent {
        let ingest_id = IngestId::derive(&[key]);
        let Collection { namespace, name } = collection.clone();
        let command = TuneCollection { ingest_id, namespace, collection: name, judgements, at: now_ms() };
        self.stack.send(&[IngestCommand::from(command)]).await;
        self.end(ingest_id).await
    }

    async fn end(&self, ingest_id: IngestId) -> IngestEvent {
        eventually("the end", || async {
            self.stack.events::<IngestEvent>().await.into_iter().find(|event| match event {
                IngestEvent::CollectionTuned(e) => e.ingest_id == ingest_id,
                IngestEvent::CollectionTuneFailed(e) => e.ingest_id == ingest_id,
                _ => false,
            })
        })
        .await
    }

    async fn tuned(&self, key: &str, judgements: Option<BlobRef>) -> CollectionTuned {
        match self.tune(key, &self.notes, judgements).await {
            IngestEvent::CollectionTuned(tuned) => tuned,
            other => panic!("{other:?}"),
        }
    }

    async fn code(&self, key: &str, collection: &Collection, judgements: Option<BlobRef>) -> String {
        match self.tune(key, collection, judgements).await {
            IngestEvent::CollectionTuneFailed(failed) => failed.error.code,
            other => panic!("{other:?}"),
        }
    }
}

/// Writes the documents; those who look for them by the vectors of their numbers find them where they are `placed`.
async fn write(vectors: &dyn VectorStore, collection: &Collection, model: &str, placed: impl Fn(Vec<f32>) -> Vec<f32>) {
    let point = |number: usize| VectorPoint { chunk: chunk(number), vector: placed(vector(number as u64)) };
    vectors.ensure(collection, DIMENSIONS, model).await.unwrap();
    vectors.upsert(collection, (0..DOCUMENTS).map(point).collect()).await.unwrap();
    vectors.flush(collection).await.unwrap();
}

/// A question that looks for the document of its number.
fn judged(number: usize) -> JudgedQuestion {
    let documents = BTreeMap::from([(document(number), 2.0), (document(number + 1), 0.0)]);
    JudgedQuestion { query: number.to_string(), documents }
}

fn document(number: usize) -> DocumentId {
    DocumentId::derive(&[&number.to_string()])
}

fn chunk(number: usize) -> StoredChunk {
    StoredChunk {
        chunk_id: ChunkId::derive(&[&number.to_string()]),
        document_id: document(number),
        version: "v1".to_owned(),
        source: format!("/{number}"),
        ordinal: 0,
        start: 0,
        end: 4,
        text: format!("note {number}"),
        page: None,
        heading: None,
        tags: Vec::new(),
        layer: 0,
        leaves: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_questions_that_point_aside_when_a_collection_is_tuned_then_others_point_to_what_is_relevant() {
    let world = World::new(|vector| turned(&vector)).await;
    let judgements = world.judged(40).await;
    let tuned = world.tuned("a", judgements.clone()).await;
    assert_eq!((tuned.queries, tuned.embed_model.as_str()), (40, MODEL));
    let names: Vec<&str> = tuned.gains.iter().map(|gain| gain.search.as_str()).collect();
    assert_eq!(names, ["dense", "hybrid", "scores"]);
    for gain in &tuned.gains {
        assert!(gain.ndcg_after > gain.ndcg_before + 0.2 && gain.recall_after >= gain.recall_before, "{gain:?}");
    }
    let begun = world.stack.events::<IngestEvent>().await.into_iter().find_map(|event| match event {
        IngestEvent::CollectionTuning(begun) => Some(begun.queries),
        _ => None,
    });
    assert_eq!(begun, Some(40));
    // What was learned holds for questions that nobody has judged, too.
    let bytes = world.blobs.get(tuned.adapter.as_ref().unwrap()).await.unwrap();
    let adapter = QueryAdapter::from_bytes(DIMENSIONS, &bytes).unwrap();
    let mut first = 0;
    for new in 40..DOCUMENTS {
        let moved = adapter.apply(&vector(new as u64));
        let hits = world.vectors.search(&world.notes, &moved, 3, &Default::default()).await.unwrap();
        first += usize::from(hits.iter().any(|hit| hit.chunk.document_id == document(new)));
    }
    assert!(first > 10, "{first} of 20");
    // JUDGE-2.
    let backwards = world.keep((0..40).rev().map(judged)).await;
    assert_ne!(backwards, judgements);
    assert_eq!(world.tuned("b", backwards).await.adapter, tuned.adapter);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_searches_that_can_not_be_better_when_a_collection_is_tuned_then_they_stay_as_they_are() {
    let world = World::new(|vector| vector).await;
    let judgements = world.judged(20).await;
    let tuned = world.tuned("a", judgements).await;
    assert_eq!((tuned.adapter, tuned.gains[0].ndcg_before), (None, 1.0));
    let off = world.tuned("off", None).await;
    assert_eq!((off.adapter, off.queries, off.gains.len()), (None, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_judgements_that_say_too_little_or_are_none_when_a_collection_is_tuned_then_the_reason_is_told() {
    let world = World::new(|vector| turned(&vector)).await;
    let judgements = world.judged(9).await;
    assert_eq!(world.code("few", &world.notes, judgements.clone()).await, "too_few_judgements");
    let nowhere = Collection::new("default".parse().unwrap(), "nowhere".parse().unwrap());
    assert_eq!(world.code("nowhere", &nowhere, judgements).await, "collection_not_found");
    let text = world.put(b"no list".to_vec()).await;
    assert_eq!(world.code("text", &world.notes, text).await, "bad_judgements");
    let gone = BlobRef { sha256: "0".repeat(64), size_bytes: 1, media_type: "application/json".to_owned() };
    assert_eq!(world.code("gone", &world.notes, Some(gone)).await, "blob_not_found");
    // Those that a document which isn't here is relevant to say nothing.
    let all = |documents: &[(usize, f64)]| {
        let documents: BTreeMap<DocumentId, f64> =
            documents.iter().map(|(number, grade)| (document(*number), *grade)).collect();
        (0..20).map(move |number| JudgedQuestion { query: number.to_string(), documents: documents.clone() })
    };
    let strange = world.keep(all(&[(1_000, 1.0)])).await;
    assert_eq!(world.code("strange", &world.notes, strange).await, "too_few_judgements");
    let nothing = world.keep(all(&[(1, 0.0), (2, 0.0)])).await;
    assert_eq!(world.code("nothing", &world.notes, nothing).await, "too_few_judgements");
    // Whoever writes to the log has not asked the API, which refuses these.
    let endless = world.keep(all(&[(1, 1e300)])).await;
    assert_eq!(world.code("endless", &world.notes, endless).await, "bad_judgements");
    let twice = world.keep((0..20).map(judged).chain([judged(3)])).await;
    assert_eq!(world.code("twice", &world.notes, twice).await, "bad_judgements");
    assert!(world.stack.letters(Topic::IngestCommands).await.is_empty(), "all of it is said, and nothing is left over");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_collection_that_changes_while_it_is_learned_from_when_that_ends_then_it_is_not_searched_so() {
    for code in ["collection_not_found", "collection_changed"] {
        let world = World::without_tuner(|vector| turned(&vector)).await;
        let models = GatedModels::embedding(by_number, 0);
        world.tuner(models.clone());
        let judgements = world.judged(20).await;
        let meanwhile = async {
            eventually("the questions at the model", || async { (models.calls() > 0).then_some(()) }).await;
            if code == "collection_not_found" {
                world.vectors.drop_collection(&world.notes).await.unwrap();
            } else {
                let shadows = world.vectors.shadows().unwrap();
                write(&*shadows, &world.notes, "another", |vector| turned(&vector)).await;
                world.vectors.swap(&world.notes).await.unwrap();
            }
            models.open();
        };
        let (ended, ()) = tokio::join!(world.code("a", &world.notes, judgements), meanwhile);
        assert_eq!(ended, code);
        assert!(world.stack.letters(Topic::IngestCommands).await.is_empty(), "{code}: that is no dead letter");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_kill_while_it_is_learned_when_it_comes_again_then_it_ends_as_without() {
    let world = World::without_tuner(|vector| turned(&vector)).await;
    let models = GatedModels::embedding(by_number, 0);
    let worker = world.tuner(models.clone());
    let judgements = world.judged(20).await;
    let meanwhile = async {
        eventually("the questions at the model", || async { (models.calls() > 0).then_some(()) }).await;
        worker.kill();
        world.tuner(GatedModels::embedding(by_number, ALL));
    };
    let (tuned, ()) = tokio::join!(world.tuned("a", judgements.clone()), meanwhile);
    assert!(tuned.adapter.is_some() && tuned.queries == 20, "{tuned:?}");
    assert_eq!(world.tuned("b", judgements).await.adapter, tuned.adapter);
}
