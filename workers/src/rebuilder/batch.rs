//! A batch of chunks, from the log to the indexes.

use riverrun_log::{Record, Schemas};
use riverrun_schemas::ingest::{ChunkEvent, ChunksEmbedded, ChunksReady, EmbeddedChunk, EmbeddingEvent};
use riverrun_schemas::{Decoded, DocumentId, IngestId};
use riverrun_stores::{StoredChunk, VectorPoint};

use super::fold::Origin;
use crate::indexer::{points, stored_chunk};

/// Which indexes lack a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) vectors: bool,
    pub(super) keywords: bool,
}

/// A batch of chunks that an index lacks.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) document: DocumentId,
    pub(super) ingest: IngestId,
    pub(super) version: String,
    /// What its vectors are made with, and their length.
    pub(super) model: String,
    pub(super) dimensions: usize,
    pub(super) needs: Needs,
    pub(super) chunks: Vec<StoredChunk>,
    /// `None` where the log has no usable vectors.
    pub(super) points: Option<Vec<VectorPoint>>,
}

impl Batch {
    /// The batch in a record; `None` when there is none.
    pub(super) fn of(schemas: &Schemas, record: &Record, origin: Origin, needs: Needs) -> Option<Self> {
        match origin {
            Origin::Embeddings => match schemas.decode::<EmbeddingEvent>(record) {
                Ok(Decoded::Event(EmbeddingEvent::ChunksEmbedded(embedded))) => {
                    let points = points(&embedded);
                    Some(Self::new(&embedded, needs, points))
                }
                Ok(Decoded::Event(EmbeddingEvent::EmbeddingsWithdrawn(_)) | Decoded::UnknownType { .. }) | Err(_) => {
                    None
                }
            },
            Origin::Chunks => match schemas.decode::<ChunkEvent>(record) {
                Ok(Decoded::Event(ChunkEvent::ChunksReady(ready))) => {
                    Some(Self::new(&without_vectors(ready), needs, None))
                }
                Ok(Decoded::Event(ChunkEvent::ChunksWithdrawn(_)) | Decoded::UnknownType { .. }) | Err(_) => None,
            },
        }
    }

    fn new(embedded: &ChunksEmbedded, needs: Needs, points: Option<Vec<VectorPoint>>) -> Self {
        Self {
            document: embedded.document_id,
            ingest: embedded.ingest_id,
            version: embedded.version.clone(),
            model: embedded.embed_model.clone(),
            dimensions: usize::try_from(embedded.dimensions).unwrap_or(0),
            needs,
            chunks: embedded.chunks.iter().map(|chunk| stored_chunk(embedded, chunk)).collect(),
            points,
        }
    }
}

/// The batch as it would be on `ingest.embeddings`, but for the vectors.
fn without_vectors(ready: ChunksReady) -> ChunksEmbedded {
    ChunksEmbedded {
        document_id: ready.document_id,
        ingest_id: ready.ingest_id,
        namespace: ready.namespace,
        collection: ready.collection,
        source: ready.source,
        version: ready.version,
        embed_model: ready.embed_model,
        batch: ready.batch,
        batches: ready.batches,
        metadata_json: ready.metadata_json,
        at: ready.at,
        dimensions: 0,
        chunks: ready.chunks.into_iter().map(|chunk| EmbeddedChunk::new(chunk, &[])).collect(),
    }
}
