//! Memories by nearness: the only way to the vectors of conversations.
//!
//! They lie in a vector store of their own, in one collection for each namespace and embedding model; no name that a user can
//! choose leads there. Every call names a conversation, and nothing of another one is found: `EPI-1` the filter is put on
//! here and not by callers, and what the store finds is compared once more, by its whole name.

use std::sync::Arc;

use riverrun_schemas::{ChunkId, Collection, CollectionName, DocumentId, Namespace, Session};
use tokio::sync::Mutex;

use crate::chunk::{ChunkFilter, MAX_HITS, StoredChunk, Versions};
use crate::error::StoreError;
use crate::vectors::{VectorPoint, VectorStore};

/// A memory to be found by its vector.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodePoint {
    /// Id of an episode or note.
    pub id: String,
    /// Its words.
    pub text: String,
    /// Of the embedding model that the call names.
    pub vector: Vec<f32>,
}

/// A memory that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeHit {
    /// Id of an episode or note.
    pub id: String,
    /// Its words.
    pub text: String,
    /// Cosine similarity, -1 to 1.
    pub score: f32,
}

/// The vectors of conversations. Cheap to clone.
#[derive(Clone)]
pub struct Episodes {
    vectors: Arc<dyn VectorStore>,
    /// `VEC-2`: who writes is alone from the first write to the flush.
    writing: Arc<Mutex<()>>,
}

impl Episodes {
    /// Over a vector store that holds nothing else.
    pub fn new(vectors: Arc<dyn VectorStore>) -> Self {
        Self { vectors, writing: Arc::default() }
    }

    /// Writes memories of a conversation, durably; those that are there are replaced.
    pub async fn remember(
        &self,
        session: &Session,
        model: &str,
        dimensions: usize,
        points: Vec<EpisodePoint>,
    ) -> Result<(), StoreError> {
        let collection = collection(&session.namespace, model);
        let points = points.into_iter().map(|point| stored(session, point)).collect();
        let _alone = self.writing.lock().await;
        self.vectors.ensure(&collection, dimensions, model).await?;
        self.vectors.upsert(&collection, points).await?;
        self.vectors.flush(&collection).await
    }

    /// The `k` memories of the conversation nearest to `vector`, best first; at most [`MAX_HITS`].
    pub async fn recall(
        &self,
        session: &Session,
        model: &str,
        vector: &[f32],
        k: usize,
    ) -> Result<Vec<EpisodeHit>, StoreError> {
        let own = document(session);
        let filter = ChunkFilter { documents: vec![own], ..ChunkFilter::default() };
        let collection = collection(&session.namespace, model);
        let hits = match self.vectors.search(&collection, vector, k.min(MAX_HITS), &filter).await {
            Err(StoreError::NoCollection(_)) => return Ok(Vec::new()),
            other => other?,
        };
        Ok(hits
            .into_iter()
            .filter(|hit| hit.chunk.document_id == own && hit.chunk.source == session.key())
            .map(|hit| EpisodeHit { id: hit.chunk.version, text: hit.chunk.text, score: hit.score })
            .collect())
    }

    /// Removes memories of the conversation, whatever model they were embedded with; all of them when no id is named.
    /// Returns how many there were.
    pub async fn forget(&self, session: &Session, ids: Option<&[String]>) -> Result<usize, StoreError> {
        let _alone = self.writing.lock().await;
        let mut removed = 0;
        for collection in self.collections(&session.namespace).await? {
            let mut here = 0;
            for versions in versions(ids) {
                here += self.vectors.delete_document(&collection, &document(session), &versions).await?;
            }
            if here > 0 {
                self.vectors.flush(&collection).await?;
            }
            removed += here;
        }
        Ok(removed)
    }

    /// How many memories of the conversation there are; of those named, when some are.
    pub async fn count(&self, session: &Session, ids: Option<&[String]>) -> Result<usize, StoreError> {
        let mut found = 0;
        for collection in self.collections(&session.namespace).await? {
            for versions in versions(ids) {
                found += self.vectors.count_document(&collection, &document(session), &versions).await?;
            }
        }
        Ok(found)
    }

    /// Nothing was ever kept, or all of it is gone: it is made again from the log.
    pub async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.vectors.list().await?.is_empty())
    }

    async fn collections(&self, namespace: &Namespace) -> Result<Vec<Collection>, StoreError> {
        let all = self.vectors.list().await?;
        Ok(all.into_iter().map(|info| info.collection).filter(|there| there.namespace == *namespace).collect())
    }
}

fn versions(ids: Option<&[String]>) -> Vec<Versions> {
    match ids {
        None => vec![Versions::All],
        Some(ids) => ids.iter().cloned().map(Versions::Only).collect(),
    }
}

/// A conversation stands where a document does: the store filters by it.
fn document(session: &Session) -> DocumentId {
    DocumentId::derive(&["memory", session.namespace.as_str(), session.name.as_str()])
}

fn collection(namespace: &Namespace, model: &str) -> Collection {
    let name: CollectionName = format!("m{}", DocumentId::derive(&["memory model", model]).as_uuid())
        .parse()
        .unwrap_or_else(|error| unreachable!("hex digits and dashes are a name: {error}"));
    Collection::new(namespace.clone(), name)
}

fn stored(session: &Session, point: EpisodePoint) -> VectorPoint {
    let chunk_id = ChunkId::derive(&["memory", session.namespace.as_str(), session.name.as_str(), &point.id]);
    let chunk = StoredChunk {
        chunk_id,
        document_id: document(session),
        version: point.id,
        source: session.key(),
        ordinal: 0,
        start: 0,
        end: i64::try_from(point.text.len()).unwrap_or(i64::MAX),
        text: point.text,
        page: None,
        heading: None,
        tags: Vec::new(),
        layer: 0,
        leaves: Vec::new(),
    };
    VectorPoint { chunk, vector: point.vector }
}
