//! Vectors of chunks: found again by nearness.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use riverrun_schemas::{ChunkId, Collection, DocumentId};
use serde::{Deserialize, Serialize};

use crate::agreement::{ChunkKey, KeyPage};
use crate::chunk::{ChunkFilter, StoredChunk, Versions};
use crate::error::StoreError;
use crate::gaps::Damage;

pub mod edge;
pub mod qdrant;

/// A chunk to be found by its vector.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorPoint {
    /// The chunk.
    pub chunk: StoredChunk,
    /// As long as the collection's vectors, every number finite. Its length in the geometric sense does not matter.
    pub vector: Vec<f32>,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorHit {
    /// The chunk.
    pub chunk: StoredChunk,
    /// Cosine similarity, -1 to 1.
    pub score: f32,
}

/// What a collection remembers about its vectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionInfo {
    /// The collection.
    #[serde(flatten)]
    pub collection: Collection,
    /// The embedding model that all of its vectors are made with.
    pub model: String,
    /// Their length.
    pub dimensions: usize,
}

/// Vectors by collection. A collection holds vectors of one model and refuses those of another.
///
/// `VEC-1` what was written before a `flush` that returned `Ok` is there after a crash; what was written after it may not be.
///
/// `VEC-2` a write or a `flush` that failed may have lost everything since the last one that did not: who writes to a
/// collection does so alone from the first write to the `flush`, and begins again when one fails.
#[async_trait]
pub trait VectorStore: Send + Sync + 'static {
    /// Makes the collection if there is none; refuses if there is one of another model or another length.
    async fn ensure(&self, collection: &Collection, dimensions: usize, model: &str) -> Result<(), StoreError>;

    /// What the collection remembers; `None` when there is none.
    async fn info(&self, collection: &Collection) -> Result<Option<CollectionInfo>, StoreError>;

    /// Writes points; those whose chunk is there are replaced.
    async fn upsert(&self, collection: &Collection, points: Vec<VectorPoint>) -> Result<(), StoreError>;

    /// Removes the document's chunks of those versions; returns how many there were.
    async fn delete_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError>;

    /// Removes the document's chunks of every version but `keep_version`; returns how many there were.
    async fn delete_document_except(
        &self,
        collection: &Collection,
        document: &DocumentId,
        keep_version: &str,
    ) -> Result<usize, StoreError> {
        self.delete_document(collection, document, &Versions::Except(keep_version.to_owned())).await
    }

    /// How many chunks of the document's versions there are; 0 when there is no such collection.
    async fn count_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError>;

    /// The `k` chunks nearest to `vector`, best first, equal scores by chunk id. At most [`crate::MAX_HITS`].
    async fn search(
        &self,
        collection: &Collection,
        vector: &[f32],
        k: usize,
        filter: &ChunkFilter,
    ) -> Result<Vec<VectorHit>, StoreError>;

    /// How many chunks there are; 0 when there is no such collection.
    async fn count(&self, collection: &Collection) -> Result<usize, StoreError>;

    /// How many chunks each document has.
    async fn documents(&self, collection: &Collection) -> Result<BTreeMap<DocumentId, usize>, StoreError>;

    /// The same of these documents; one without a chunk is left out.
    async fn count_documents(
        &self,
        collection: &Collection,
        documents: &[DocumentId],
    ) -> Result<BTreeMap<DocumentId, usize>, StoreError>;

    /// Up to `limit` chunks from this id on, in the order of their ids; none when there is no such collection.
    async fn keys(
        &self,
        collection: &Collection,
        from: Option<ChunkId>,
        limit: usize,
    ) -> Result<KeyPage<ChunkKey>, StoreError>;

    /// Makes what was written durable.
    async fn flush(&self, collection: &Collection) -> Result<(), StoreError>;

    /// Removes the collection; false when there was none.
    async fn drop_collection(&self, collection: &Collection) -> Result<bool, StoreError>;

    /// Every collection, by physical name.
    async fn list(&self) -> Result<Vec<CollectionInfo>, StoreError>;

    /// The document's chunks of every version, by version and place.
    async fn chunks(&self, _collection: &Collection, _document: &DocumentId) -> Result<Vec<StoredChunk>, StoreError> {
        Err(StoreError::Unsupported("read the chunks of a document back"))
    }

    /// The same with their vectors, in the order in which they lie. A vector points where it pointed when it was written, and may have
    /// another length in the geometric sense.
    async fn points(&self, _collection: &Collection, _document: &DocumentId) -> Result<Vec<VectorPoint>, StoreError> {
        Err(StoreError::Unsupported("read the vectors of a document back"))
    }

    /// Collections of the same names that nobody searches, where one is made anew; `None` where the store has none.
    fn shadows(&self) -> Option<Arc<dyn VectorStore>> {
        None
    }

    /// `VEC-3` what the collection's shadow holds becomes the collection, at once and durably: a search sees wholly the old or wholly
    /// the new. The shadow was flushed and is gone afterwards; nobody writes to the collection meanwhile (`VEC-2`).
    async fn swap(&self, _collection: &Collection) -> Result<(), StoreError> {
        Err(StoreError::Unsupported("swap a collection"))
    }

    /// Reads everything in the collection, so that damage shows as [`StoreError::Index`]. Nothing to do where a server looks after it.
    async fn verify(&self, _collection: &Collection) -> Result<(), StoreError> {
        Ok(())
    }

    /// Takes the collection's data away for `reason`, keeping some of what was taken away last where that is possible; false when there
    /// was none. Nobody writes to the collection meanwhile (`VEC-2`).
    async fn set_aside(&self, collection: &Collection, _reason: &str) -> Result<bool, StoreError> {
        self.drop_collection(collection).await
    }

    /// What was set aside since the process started.
    fn damaged(&self) -> Vec<Damage> {
        Vec::new()
    }

    /// The version of the server that holds the vectors, which is asked for it; `None` where they are in this process.
    async fn server_version(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }
}

/// A collection holds vectors of one model.
fn must_match(stored: CollectionInfo, wanted: CollectionInfo) -> Result<(), StoreError> {
    if stored == wanted {
        return Ok(());
    }
    Err(StoreError::EmbeddingMismatch {
        collection: stored.collection,
        stored_model: stored.model,
        stored_dimensions: stored.dimensions,
        wanted_model: wanted.model,
        wanted_dimensions: wanted.dimensions,
    })
}
