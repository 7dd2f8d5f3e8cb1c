//! Summaries above chunks, with the ingester, against a real broker.

use std::sync::Arc;

use bytes::Bytes;
use riverrun_log::{BlobStore, ObjectStoreBlobs, Schemas};
use riverrun_schemas::ingest::{
    Chunk, ChunkEvent, DeleteDocument, IngestCommand, IngestEvent, SubmitDocument, document_id,
};
use riverrun_schemas::{Collection, IngestId, now_ms};
use riverrun_workers::ingester::{Ingester, IngesterConfig};
use riverrun_workers::runtime::testkit::{Stack, eventually};
use riverrun_workers::runtime::{self, WorkerHandle};
use riverrun_workers::tree_builder::TreeBuilder;
use tokio_util::sync::CancellationToken;

mod models;

use models::{ALL, GatedModels};

const SOURCE: &str = "/docs/rivers.txt";

fn by_letters(text: &str) -> Vec<f32> {
    let sum: u32 = text.bytes().map(u32::from).sum();
    vec![(sum % 17) as f32, (sum % 5) as f32, 1.0]
}

struct World {
    stack: Stack,
    blobs: Arc<dyn BlobStore>,
    notes: Collection,
    _folder: tempfile::TempDir,
    _ingester: WorkerHandle,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let blobs: Arc<dyn BlobStore> = Arc::new(ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap());
        let stack = Stack::start().await;
        let config = IngesterConfig::default();
        let ingester = Ingester::new(stack.log().clone(), Schemas::built_in(), blobs.clone(), config);
        let _ingester = runtime::spawn(ingester, stack.config(), CancellationToken::new());
        let notes = Collection::new("default".parse().unwrap(), "notes".parse().unwrap());
        Self { stack, blobs, notes, _folder: folder, _ingester }
    }

    fn builder(&self, models: Arc<GatedModels>) -> WorkerHandle {
        let builder = TreeBuilder::new(self.stack.log().clone(), Schemas::built_in(), self.blobs.clone(), models);
        runtime::spawn(builder, self.stack.config(), CancellationToken::new())
    }

    /// Hands in a text of so many paragraphs, each of which is a chunk.
    async fn hand_in(&self, paragraphs: usize, key: &str) -> IngestId {
        let paragraph = |n: usize| format!("River number {n} {}", "flows to the sea ".repeat(10 + n % 5));
        let text = (0..paragraphs).map(paragraph).collect::<Vec<_>>().join("\n\n");
        let content = self.blobs.put_bytes(Bytes::from(text), "text/plain").await.unwrap();
        let ingest_id = IngestId::derive(&[key]);
        let command = SubmitDocument {
            document_id: document_id(&self.notes, SOURCE),
            ingest_id,
            namespace: self.notes.namespace.clone(),
            collection: self.notes.name.clone(),
            source: SOURCE.to_owned(),
            source_type: None,
            content,
            embed_model: "m".to_owned(),
            chunk_size: 300,
            chunk_overlap: 0,
            metadata_json: None,
            table: None,
            strategy: Some("raptor".to_owned()),
            chunk_unit: None,
            again: false,
            at: now_ms(),
        };
        self.stack.send(&[IngestCommand::from(command)]).await;
        ingest_id
    }

    /// The chunks that went to the embedder, once all batches did.
    async fn chunks(&self) -> Vec<Chunk> {
        eventually("the chunks", || async {
            let mut batches = Vec::new();
            for event in self.stack.events::<ChunkEvent>().await {
                if let ChunkEvent::ChunksReady(ready) = event {
                    batches.push(ready);
                }
            }
            let all = batches.first().is_some_and(|first| batches.len() >= first.batches as usize);
            all.then(|| batches.into_iter().flat_map(|ready| ready.chunks).collect())
        })
        .await
    }
}

fn assert_tree(chunks: &[Chunk]) -> usize {
    let summaries: Vec<&Chunk> = chunks.iter().filter(|chunk| chunk.layer > 0).collect();
    let leaves = chunks.len() - summaries.len();
    assert!(chunks.iter().enumerate().all(|(at, chunk)| chunk.ordinal as usize == at));
    let top = summaries.last().unwrap();
    assert_eq!(top.leaves.len(), 1, "{top:?}");
    assert_eq!((top.leaves[0].first, top.leaves[0].last), (0, leaves as i32 - 1));
    assert_eq!((top.start, top.end), (chunks[0].start, chunks[leaves - 1].end));
    summaries.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_long_document_when_it_is_ingested_with_raptor_then_summaries_stand_above_its_chunks() {
    let world = World::new().await;
    let models = GatedModels::summarizing(by_letters, ALL);
    let _builder = world.builder(models.clone());
    world.hand_in(40, "a").await;
    let chunks = world.chunks().await;
    assert_eq!(assert_tree(&chunks), models.calls());
    assert!(chunks.iter().filter(|chunk| chunk.layer > 0).all(|chunk| chunk.text.starts_with("summary ")));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_document_of_few_chunks_when_it_is_ingested_with_raptor_then_nobody_is_asked_for_summaries() {
    let world = World::new().await;
    world.hand_in(2, "a").await;
    assert!(world.chunks().await.iter().all(|chunk| chunk.layer == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_kill_half_way_when_it_goes_on_then_at_most_one_summary_is_made_again() {
    let world = World::new().await;
    let models = GatedModels::summarizing(by_letters, 3);
    let builder = world.builder(models.clone());
    world.hand_in(40, "a").await;
    eventually("the fourth summary", || async { (models.calls() >= 4).then_some(()) }).await;
    builder.kill();
    let rest = GatedModels::summarizing(by_letters, ALL);
    let _builder = world.builder(rest.clone());
    let summaries = assert_tree(&world.chunks().await);
    let written = 3 + rest.calls();
    assert!((summaries..=summaries + 1).contains(&written), "{written} for {summaries}");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_removal_meanwhile_when_the_next_step_comes_then_the_request_ends_and_no_chunk_goes_on() {
    let world = World::new().await;
    let models = GatedModels::summarizing(by_letters, 1);
    let _builder = world.builder(models.clone());
    let ingest_id = world.hand_in(40, "a").await;
    eventually("the second summary", || async { (models.calls() >= 2).then_some(()) }).await;
    let delete = DeleteDocument {
        document_id: document_id(&world.notes, SOURCE),
        ingest_id: IngestId::derive(&["delete"]),
        namespace: world.notes.namespace.clone(),
        collection: world.notes.name.clone(),
        source: SOURCE.to_owned(),
        at: now_ms(),
    };
    world.stack.send(&[IngestCommand::from(delete)]).await;
    eventually("the withdrawal", || async {
        let events = world.stack.events::<IngestEvent>().await;
        events.iter().any(|event| matches!(event, IngestEvent::DocumentWithdrawn(_))).then_some(())
    })
    .await;
    models.open();
    let failed = eventually("the end of the request", || async {
        world.stack.events::<IngestEvent>().await.into_iter().find_map(|event| match event {
            IngestEvent::DocumentFailed(failed) if failed.ingest_id == ingest_id => Some(failed),
            _ => None,
        })
    })
    .await;
    assert_eq!((failed.stage.as_str(), failed.error.code.as_str()), ("summarize", "superseded"));
    let events = world.stack.events::<ChunkEvent>().await;
    assert!(events.iter().all(|event| matches!(event, ChunkEvent::ChunksWithdrawn(_))), "{events:?}");
}
