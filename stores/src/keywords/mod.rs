//! Words of chunks: found again by BM25.

use std::collections::BTreeMap;

use async_trait::async_trait;
use riverrun_schemas::{ChunkId, Collection, DocumentId};

use crate::agreement::{ChunkKey, KeyPage};
use crate::chunk::{ChunkFilter, StoredChunk, Versions};
use crate::error::StoreError;
use crate::gaps::Damage;

pub mod qdrant_index;
pub mod tantivy_index;
pub mod unspaced;

mod forms;
mod tokens;
mod words;

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct KeywordHit {
    /// The chunk.
    pub chunk: StoredChunk,
    /// BM25 score, above 0; comparable within one search only.
    pub score: f32,
}

/// Words by collection.
///
/// `KEY-1` what was written before a `commit` that returned `Ok` is found from then on and is there after a crash. What was written
/// after it is not found yet and is gone after a crash in this process, and found as soon as it is written on a server.
///
/// `KEY-2` a write or a `commit` that failed may have lost everything since the last one that did not: who writes to a
/// collection does so alone from the first write to the `commit`, and begins again when one fails.
#[async_trait]
pub trait KeywordIndex: Send + Sync + 'static {
    /// Writes chunks, making the collection if there is none; those that are there are replaced.
    async fn upsert(&self, collection: &Collection, chunks: Vec<StoredChunk>) -> Result<(), StoreError>;

    /// Removes the document's chunks of those versions; returns how many of the committed ones go.
    async fn delete_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError>;

    /// Removes the document's chunks of every version but `keep_version`; returns how many of the committed ones go.
    async fn delete_document_except(
        &self,
        collection: &Collection,
        document: &DocumentId,
        keep_version: &str,
    ) -> Result<usize, StoreError> {
        self.delete_document(collection, document, &Versions::Except(keep_version.to_owned())).await
    }

    /// The `k` chunks that match the words of `query` best, best first, equal scores by chunk id. Any text is a query: it is
    /// cut into words, and a chunk needs to have one of them. At most [`crate::MAX_HITS`].
    async fn search(
        &self,
        collection: &Collection,
        query: &str,
        k: usize,
        filter: &ChunkFilter,
    ) -> Result<Vec<KeywordHit>, StoreError>;

    /// How many committed chunks there are; 0 when there is no such collection.
    async fn count(&self, collection: &Collection) -> Result<usize, StoreError>;

    /// How many chunks each document has that is committed.
    async fn documents(&self, collection: &Collection) -> Result<BTreeMap<DocumentId, usize>, StoreError>;

    /// The same of these documents; one without a chunk is left out.
    async fn count_documents(
        &self,
        collection: &Collection,
        documents: &[DocumentId],
    ) -> Result<BTreeMap<DocumentId, usize>, StoreError>;

    /// Up to `limit` committed chunks from this id on, in the order of their ids; none when there is no such collection.
    async fn ids(
        &self,
        collection: &Collection,
        from: Option<ChunkId>,
        limit: usize,
    ) -> Result<KeyPage<ChunkId>, StoreError>;

    /// What these committed chunks are parts of; what is not there is left out.
    async fn keys_of(&self, collection: &Collection, chunks: &[ChunkId]) -> Result<Vec<ChunkKey>, StoreError>;

    /// Makes what was written durable and found.
    async fn commit(&self, collection: &Collection) -> Result<(), StoreError>;

    /// Removes the collection; false when there was none.
    async fn drop_collection(&self, collection: &Collection) -> Result<bool, StoreError>;

    /// How many committed chunks of the document's versions there are; 0 when there is no such collection.
    async fn count_document(
        &self,
        _collection: &Collection,
        _document: &DocumentId,
        _versions: &Versions,
    ) -> Result<usize, StoreError> {
        Err(StoreError::Unsupported("count the chunks of a version"))
    }

    /// Whether there is such a collection, without opening it where that can be told.
    async fn exists(&self, collection: &Collection) -> Result<bool, StoreError> {
        Ok(self.count(collection).await? > 0)
    }

    /// Reads everything in the collection, so that damage shows as [`StoreError::Index`]. Nothing to do where a server looks after it.
    async fn verify(&self, _collection: &Collection) -> Result<(), StoreError> {
        Ok(())
    }

    /// Takes the collection's data away for `reason`, keeping some of what was taken away last where that is possible; false when there
    /// was none. Nobody writes to the collection meanwhile (`KEY-2`).
    async fn set_aside(&self, collection: &Collection, _reason: &str) -> Result<bool, StoreError> {
        self.drop_collection(collection).await
    }

    /// What was set aside since the process started.
    fn damaged(&self) -> Vec<Damage> {
        Vec::new()
    }

    /// The version of the server that holds the words, which is asked for it; `None` where they are in this process.
    async fn server_version(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }
}
