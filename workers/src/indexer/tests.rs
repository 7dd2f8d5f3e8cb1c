use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use riverrun_schemas::ingest::Chunk;
use riverrun_schemas::{ChunkId, DocumentId, IngestId};
use riverrun_stores::keywords::tantivy_index::{TantivyConfig, TantivyIndex};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{ChunkFilter, ChunkKey, KeyPage, KeywordHit};

use super::*;
use crate::runtime::testkit;

/// Keywords that are handed on with the commit, of which every third fails and loses all that was written since the last one.
struct Losing {
    index: TantivyIndex,
    written: Mutex<Vec<StoredChunk>>,
    commits: AtomicUsize,
}

#[async_trait]
impl KeywordIndex for Losing {
    async fn upsert(&self, _: &Collection, chunks: Vec<StoredChunk>) -> Result<(), StoreError> {
        self.written.lock().extend(chunks);
        Ok(())
    }

    async fn commit(&self, collection: &Collection) -> Result<(), StoreError> {
        let written = std::mem::take(&mut *self.written.lock());
        if self.commits.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            return Err(StoreError::ShuttingDown);
        }
        self.index.upsert(collection, written).await?;
        self.index.commit(collection).await
    }

    async fn delete_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError> {
        self.index.delete_document(collection, document, versions).await
    }

    async fn search(
        &self,
        collection: &Collection,
        query: &str,
        k: usize,
        filter: &ChunkFilter,
    ) -> Result<Vec<KeywordHit>, StoreError> {
        self.index.search(collection, query, k, filter).await
    }

    async fn count(&self, collection: &Collection) -> Result<usize, StoreError> {
        self.index.count(collection).await
    }

    async fn documents(&self, collection: &Collection) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        self.index.documents(collection).await
    }

    async fn count_documents(
        &self,
        collection: &Collection,
        documents: &[DocumentId],
    ) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        self.index.count_documents(collection, documents).await
    }

    async fn ids(
        &self,
        collection: &Collection,
        from: Option<ChunkId>,
        limit: usize,
    ) -> Result<KeyPage<ChunkId>, StoreError> {
        self.index.ids(collection, from, limit).await
    }

    async fn keys_of(&self, collection: &Collection, chunks: &[ChunkId]) -> Result<Vec<ChunkKey>, StoreError> {
        self.index.keys_of(collection, chunks).await
    }

    async fn drop_collection(&self, collection: &Collection) -> Result<bool, StoreError> {
        self.index.drop_collection(collection).await
    }
}

fn notes() -> Collection {
    Collection::new("default".parse().unwrap(), "notes".parse().unwrap())
}

/// A document of one chunk, whole in one record.
fn document(lane: usize, number: usize) -> EmbeddingEvent {
    let source = format!("/{lane}/{number}.md");
    let text = format!("words of {source}");
    let chunk = Chunk {
        chunk_id: ChunkId::derive(&[&source]),
        ordinal: 0,
        start: 0,
        end: text.len() as i64,
        text,
        page: None,
        heading: None,
        layer: 0,
        leaves: Vec::new(),
    };
    ChunksEmbedded {
        document_id: DocumentId::derive(&[&source]),
        ingest_id: IngestId::derive(&["1"]),
        namespace: notes().namespace,
        collection: notes().name,
        source,
        version: "v1".into(),
        embed_model: "tiny".into(),
        batch: 0,
        batches: 1,
        metadata_json: None,
        at: 1,
        dimensions: 2,
        chunks: vec![EmbeddedChunk::new(chunk, &[1.0, number as f32])],
    }
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_lanes_that_share_commits_of_which_some_fail_then_what_is_said_to_be_indexed_is_found_and_commits_are_fewer()
 {
    const LANES: usize = 6;
    const DOCUMENTS: usize = 20;
    let folder = tempfile::tempdir().unwrap();
    let vectors = EdgeVectors::open(EdgeConfig::at(folder.path().join("vectors"))).unwrap();
    let index = TantivyIndex::open(TantivyConfig::at(folder.path().join("keywords"))).unwrap();
    let keywords = Arc::new(Losing { index: index.clone(), written: Mutex::default(), commits: AtomicUsize::new(0) });
    let indexer = Arc::new(Indexer::new(Arc::new(vectors.clone()), keywords.clone()));
    let lanes = (0..LANES).map(|lane| {
        let (indexer, index) = (indexer.clone(), index.clone());
        tokio::spawn(async move {
            let context = testkit::context(NAME);
            let mut tries = 0;
            for number in 0..DOCUMENTS {
                let batch = testkit::deliveries([document(lane, number)]);
                // As the loop does: again, until it is done.
                let said = loop {
                    tries += 1;
                    if let Ok(said) = indexer.handle(&batch, &context).await {
                        break said;
                    }
                };
                assert_eq!(said.len(), 1, "the document's end");
                let id = DocumentId::derive(&[&format!("/{lane}/{number}.md")]);
                let found = index.count_document(&notes(), &id, &Versions::All).await.unwrap();
                assert_eq!(found, 1, "document {number} of lane {lane} is said to be indexed");
            }
            tries
        })
    });
    let tries: usize = futures::future::join_all(lanes).await.into_iter().map(Result::unwrap).sum();
    assert!(tries > LANES * DOCUMENTS, "some commits failed");
    assert_eq!(index.count(&notes()).await.unwrap(), LANES * DOCUMENTS);
    assert_eq!(vectors.count(&notes()).await.unwrap(), LANES * DOCUMENTS);
    let commits = keywords.commits.load(Ordering::Relaxed);
    assert!(commits < tries, "{commits} commits for {tries} batches: none was shared");
}
