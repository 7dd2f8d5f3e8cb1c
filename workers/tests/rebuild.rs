//! The rebuilder beside the indexer, against a real broker and real indexes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_schemas::ingest::{
    Chunk, ChunkEvent, ChunksEmbedded, ChunksReady, CollectionRebuilt, CollectionReembedded, DocumentIndexed,
    EmbeddedChunk, EmbeddingEvent, EmbeddingsWithdrawn, IngestCommand, IngestEvent, RebuildCollection,
};
use riverrun_schemas::{ChunkId, Collection, DocumentId, IngestId, now_ms};
use riverrun_stores::keywords::tantivy_index::{TantivyConfig, TantivyIndex};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{ChunkFilter, Gaps, KeywordIndex, VectorStore, Versions};
use riverrun_workers::indexer::Indexer;
use riverrun_workers::rebuilder::Rebuilder;
use riverrun_workers::runtime::testkit::{Stack, eventually};
use riverrun_workers::runtime::{self, WorkerHandle};
use tokio_util::sync::CancellationToken;

#[path = "rebuild/meanwhile.rs"]
mod meanwhile;
mod models;
#[path = "rebuild/torn.rs"]
mod torn;

use models::{ALL, GatedModels, by_length};

const OLD: &str = "old";
const NEW: &str = "new";
/// Chunks of a batch.
const BATCH: i32 = 3;

/// The log and the folder: what stays when a process ends.
struct World {
    stack: Stack,
    notes: Collection,
    folder: tempfile::TempDir,
}

/// Indexes, indexer and rebuilder.
struct Process {
    vectors: EdgeVectors,
    keywords: TantivyIndex,
    gaps: Gaps,
    workers: Vec<WorkerHandle>,
}

fn document(name: &str) -> DocumentId {
    DocumentId::derive(&[name])
}

/// The request that a version came with.
fn ingest(name: &str, version: &str) -> IngestId {
    IngestId::derive(&[name, version])
}

fn chunk(name: &str, version: &str, ordinal: i32) -> Chunk {
    Chunk {
        chunk_id: ChunkId::derive(&[name, version, &ordinal.to_string()]),
        ordinal,
        start: i64::from(ordinal),
        end: i64::from(ordinal) + 1,
        text: format!("words of {name} in {version}"),
        page: None,
        heading: None,
        layer: 0,
        leaves: Vec::new(),
    }
}

macro_rules! of_document {
    ($world:expr, $event:ident { $($field:tt)* }, $name:expr, $ingest:expr) => {
        $event {
            document_id: document($name),
            ingest_id: $ingest,
            namespace: $world.notes.namespace.clone(),
            collection: $world.notes.name.clone(),
            source: format!("/{}", $name),
            at: now_ms(),
            $($field)*
        }
    };
}

impl World {
    async fn new() -> Self {
        let notes = Collection::new("default".parse().unwrap(), "notes".parse().unwrap());
        Self { stack: Stack::start().await, notes, folder: tempfile::tempdir().unwrap() }
    }

    fn start(&self, models: Arc<GatedModels>) -> Process {
        let vectors = EdgeVectors::open(EdgeConfig::at(self.root("vectors"))).unwrap();
        let keywords = TantivyIndex::open(TantivyConfig::at(self.root("keywords"))).unwrap();
        self.start_on(vectors, keywords, models)
    }

    fn start_on(&self, vectors: EdgeVectors, keywords: TantivyIndex, models: Arc<GatedModels>) -> Process {
        let (gaps, stop) = (Gaps::default(), CancellationToken::new());
        let (shared_vectors, shared_keywords) = (Arc::new(vectors.clone()), Arc::new(keywords.clone()));
        let indexer = Indexer::new(shared_vectors.clone(), shared_keywords.clone());
        let both = (indexer.turns(), gaps.clone());
        let rebuilder = Rebuilder::new(shared_vectors, shared_keywords, models, both, stop.clone());
        let workers = vec![
            runtime::spawn(indexer, self.stack.config(), stop.clone()),
            runtime::spawn(rebuilder, self.stack.config(), stop.clone()),
        ];
        Process { vectors, keywords, gaps, workers }
    }

    fn root(&self, kind: &str) -> PathBuf {
        self.folder.path().join(kind)
    }

    fn index(&self, kind: &str) -> PathBuf {
        self.root(kind).join(self.notes.physical_name())
    }

    fn kept(&self, kind: &str) -> usize {
        std::fs::read_dir(self.root(kind).join(".set-aside")).map_or(0, Iterator::count)
    }

    /// A version of a document as the embedder writes it.
    async fn write(&self, name: &str, version: &str, chunks: i32, model: &str) {
        let vector: &[f32] = if model == OLD { &[1.0, 2.0] } else { &[1.0, 2.0, 3.0] };
        let batches = (chunks + BATCH - 1) / BATCH;
        let batch = |batch: i32| {
            let of_batch = (batch * BATCH)..chunks.min((batch + 1) * BATCH);
            let chunks = of_batch.map(|n| EmbeddedChunk::new(chunk(name, version, n), vector)).collect();
            let event = of_document!(
                self,
                ChunksEmbedded {
                    version: version.to_owned(),
                    embed_model: model.to_owned(),
                    batch,
                    batches,
                    metadata_json: None,
                    dimensions: i32::try_from(vector.len()).unwrap(),
                    chunks,
                },
                name,
                ingest(name, version)
            );
            EmbeddingEvent::from(event)
        };
        self.stack.send(&(0..batches).map(batch).collect::<Vec<_>>()).await;
    }

    /// The same, until the indexer has said that it is found.
    async fn index_version(&self, name: &str, version: &str, chunks: i32, model: &str) {
        self.write(name, version, chunks, model).await;
        eventually(format!("{name} {version}"), || async {
            self.stack.events::<IngestEvent>().await.into_iter().find_map(|event| match event {
                IngestEvent::DocumentIndexed(e) if e.ingest_id == ingest(name, version) => Some(()),
                _ => None,
            })
        })
        .await;
    }

    async fn withdraw(&self, name: &str) {
        let request = IngestId::derive(&["removal", name]);
        let event = of_document!(self, EmbeddingsWithdrawn { tables: 0, rows: 0 }, name, request);
        self.stack.send(&[EmbeddingEvent::from(event)]).await;
    }

    async fn ask(&self, key: &str, afresh: bool) -> IngestId {
        let ingest_id = IngestId::derive(&["rebuild", key]);
        let (namespace, collection) = (self.notes.namespace.clone(), self.notes.name.clone());
        let command = RebuildCollection { ingest_id, namespace, collection, afresh, at: now_ms() };
        self.stack.send(&[IngestCommand::from(command)]).await;
        ingest_id
    }

    async fn end(&self, request: IngestId) -> CollectionRebuilt {
        eventually("the end", || async {
            self.stack.events::<IngestEvent>().await.into_iter().find_map(|event| match event {
                IngestEvent::CollectionRebuilt(e) if e.ingest_id == request => Some(e),
                IngestEvent::CollectionRebuildFailed(e) if e.ingest_id == request => panic!("{:?}", e.error),
                _ => None,
            })
        })
        .await
    }

    /// Three documents, of which one has a second version.
    async fn with_documents(&self) -> Process {
        let process = self.start(GatedModels::embedding(by_length, 0));
        for name in ["a", "b", "c"] {
            self.index_version(name, "v1", 5, OLD).await;
        }
        self.index_version("b", "v2", 7, OLD).await;
        process
    }

    /// From here on the collection has another model, as the reembedder says it.
    async fn reembedded(&self) {
        let event = CollectionReembedded {
            ingest_id: IngestId::derive(&["reembed"]),
            namespace: self.notes.namespace.clone(),
            collection: self.notes.name.clone(),
            embed_model: NEW.to_owned(),
            dimensions: 3,
            documents: 3,
            chunks: 17,
            at: now_ms() + 1_000,
        };
        self.stack.send(&[IngestEvent::from(event)]).await;
    }
}

/// Chunks that both indexes have of each document.
type Counts = BTreeMap<DocumentId, usize>;

fn counts(expected: &[(&str, usize)]) -> Counts {
    expected.iter().map(|(name, chunks)| (document(name), *chunks)).collect()
}

impl Process {
    async fn has(&self, world: &World) -> (Counts, Counts) {
        let vectors = self.vectors.documents(&world.notes).await.unwrap();
        (vectors, self.keywords.documents(&world.notes).await.unwrap())
    }

    async fn holds(&self, world: &World, expected: &[(&str, usize)]) {
        assert_eq!(self.has(world).await, (counts(expected), counts(expected)));
    }

    /// Every chunk of `version` is found by its words, and none of another version of the document.
    async fn finds(&self, world: &World, name: &str, version: &str) {
        let filter = ChunkFilter { documents: vec![document(name)], ..ChunkFilter::default() };
        let hits = self.keywords.search(&world.notes, "words", 100, &filter).await.unwrap();
        assert!(!hits.is_empty() && hits.iter().all(|hit| hit.chunk.version == version), "{hits:?}");
        let all = self.vectors.chunks(&world.notes, &document(name)).await.unwrap();
        assert!(!all.is_empty() && all.iter().all(|chunk| chunk.version == version), "{all:?}");
    }

    async fn end(self) {
        for worker in self.workers {
            worker.stop();
            worker.join().await.unwrap();
        }
    }

    /// Ends as a crash would, but for the indexes: of these one process has one at a time.
    fn kill(self) -> (EdgeVectors, TantivyIndex) {
        self.workers.into_iter().for_each(WorkerHandle::kill);
        (self.vectors, self.keywords)
    }
}

/// What a whole collection of [`World::with_documents`] has.
const WHOLE: &[(&str, usize)] = &[("a", 5), ("b", 7), ("c", 5)];

#[tokio::test(flavor = "multi_thread")]
async fn given_indexes_that_are_gone_when_asked_then_all_is_there_again_and_no_model_is_asked() {
    let world = World::new().await;
    world.with_documents().await.end().await;
    for (round, lost) in [&["vectors"][..], &["keywords"], &["vectors", "keywords"], &[]].into_iter().enumerate() {
        for kind in lost {
            std::fs::remove_dir_all(world.index(kind)).unwrap();
        }
        let models = GatedModels::embedding(by_length, 0);
        let process = world.start(models.clone());
        let done = world.end(world.ask(&round.to_string(), false).await).await;
        let written = |kind: &str| if lost.contains(&kind) { 17 } else { 0 };
        assert_eq!((done.vectors, done.keywords), (written("vectors"), written("keywords")), "{lost:?}");
        assert_eq!((done.documents, done.chunks, done.embedded, done.removed), (3, 17, 0, 0));
        assert_eq!((done.missing, done.embed_model.as_str(), models.calls()), (0, OLD, 0));
        process.holds(&world, WHOLE).await;
        process.finds(&world, "b", "v2").await;
        let hits = process.vectors.search(&world.notes, &[1.0, 2.0], 100, &ChunkFilter::default()).await.unwrap();
        assert_eq!(hits.len(), 17);
        assert!(process.gaps.all().is_empty());
        process.end().await;
    }
}

/// Files that are cut, filled with garbage, and gone, one of each at a time.
fn garbled(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn given_files_of_an_index_that_are_garbage_when_asked_then_nothing_panics_and_the_collection_is_whole_again() {
    let world = World::new().await;
    world.with_documents().await.end().await;
    let mut round = 0;
    for (kind, which) in [("keywords", "meta.json"), ("vectors", "collection.json"), ("vectors", "edge_config.json")] {
        for damage in ["cut", "garbage"] {
            let file = garbled(&world.index(kind)).into_iter().find(|path| path.ends_with(which)).unwrap();
            let length = std::fs::metadata(&file).unwrap().len() as usize;
            let content = if damage == "cut" { Vec::new() } else { vec![0xa5; length.max(16)] };
            std::fs::write(&file, content).unwrap();
            let process = world.start(GatedModels::embedding(by_length, 0));
            round += 1;
            world.end(world.ask(&round.to_string(), false).await).await;
            process.holds(&world, WHOLE).await;
            process.finds(&world, "b", "v2").await;
            process.end().await;
        }
    }
    assert!(world.kept("keywords") <= 2 && world.kept("vectors") <= 2, "what is kept has a limit");
    assert!(world.kept("keywords") + world.kept("vectors") > 0, "and something is kept");

    // Whatever holds the words: the checksum tells.
    let segment =
        garbled(&world.index("keywords")).into_iter().find(|path| path.extension().is_some_and(|e| e == "store"));
    let segment = segment.unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&segment, bytes).unwrap();
    let process = world.start(GatedModels::embedding(by_length, 0));
    let done = world.end(world.ask("flipped", false).await).await;
    assert_eq!((done.keywords, done.vectors), (17, 0));
    process.holds(&world, WHOLE).await;
    process.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_embeddings_that_are_not_on_the_log_then_chunks_are_embedded_anew_and_what_is_nowhere_is_named() {
    let world = World::new().await;
    let models = GatedModels::embedding(by_length, ALL);
    let process = world.start(models.clone());
    world.index_version("a", "v1", 5, OLD).await;
    // Two documents whose vectors fell off the log, one of them with its chunks.
    for name in ["chunked", "lost"] {
        let event = of_document!(
            world,
            DocumentIndexed {
                version: "v1".to_owned(),
                chunks: 2,
                removed_chunks: 0,
                embed_model: OLD.to_owned(),
                dimensions: 2,
            },
            name,
            ingest(name, "v1")
        );
        world.stack.send(&[IngestEvent::from(event)]).await;
    }
    let ready = of_document!(
        world,
        ChunksReady {
            version: "v1".to_owned(),
            embed_model: OLD.to_owned(),
            batch: 0,
            batches: 1,
            metadata_json: None,
            chunks: vec![chunk("chunked", "v1", 0), chunk("chunked", "v1", 1)],
            context: None,
        },
        "chunked",
        ingest("chunked", "v1")
    );
    world.stack.send(&[ChunkEvent::from(ready)]).await;
    process.end().await;
    // The model gives vectors of three numbers now: all of them are made with it.
    for kind in ["vectors", "keywords"] {
        std::fs::remove_dir_all(world.index(kind)).unwrap();
    }
    world.reembedded().await;
    let process = world.start(models);
    let done = world.end(world.ask("lost", false).await).await;
    assert_eq!((done.missing, done.missing_documents.as_slice()), (1, &[document("lost")][..]));
    assert_eq!((done.embedded, done.documents), (7, 2));
    process.holds(&world, &[("a", 5), ("chunked", 2)]).await;
    let gap = process.gaps.of(&world.notes).unwrap();
    assert!(gap.reason.contains("not on the log") && gap.fix(&world.notes).contains("rebuild"), "{gap:?}");
    process.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_collection_that_nobody_ever_heard_of_when_asked_then_nothing_is_made_and_it_ends() {
    let world = World::new().await;
    let process = world.start(GatedModels::embedding(by_length, 0));
    let done = world.end(world.ask("nothing", false).await).await;
    assert_eq!((done.documents, done.vectors, done.missing, done.embed_model.as_str()), (0, 0, 0, ""));
    assert_eq!(process.vectors.info(&world.notes).await.unwrap(), None);
    let nothing = process.vectors.count_document(&world.notes, &document("a"), &Versions::All).await.unwrap();
    assert_eq!(nothing, 0);
    process.end().await;
}
