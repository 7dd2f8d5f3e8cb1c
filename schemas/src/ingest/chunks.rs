//! Chunks on their way to the indexes: before they have vectors, and with them.

use serde::{Deserialize, Serialize};

use super::{ChunksWithdrawn, EmbeddingsWithdrawn, document_event};
use crate::codec::event_set;
use crate::common::BlobRef;
use crate::ids::{ChunkId, DocumentId, EventId, IngestId};
use crate::names::{CollectionName, Namespace};

/// Neighbouring chunks of layer 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafRun {
    /// Ordinal of the first.
    pub first: i32,
    /// Ordinal of the last.
    pub last: i32,
    /// First byte in the stored text.
    pub start: i64,
    /// First byte after it.
    pub end: i64,
}

/// A span of the stored text, or a summary of such spans: that lies from the first byte of its first chunk to the last of its last one,
/// and its text is a model's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// Derived from document, version and span.
    pub chunk_id: ChunkId,
    /// Place among the document's chunks, from 0.
    pub ordinal: i32,
    /// First byte in the stored text.
    pub start: i64,
    /// First byte after it.
    pub end: i64,
    /// `stored_text[start..end]`, or the summary.
    pub text: String,
    /// Page, from 1, where the format has pages.
    pub page: Option<i32>,
    /// The headings above it, joined by ` > `.
    pub heading: Option<String>,
    /// 0 is a span of the text; above it is a summary of what lies below.
    pub layer: i32,
    /// Of a summary: the chunks that it was made of, in reading order.
    pub leaves: Vec<LeafRun>,
}

/// A chunk and its vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbeddedChunk {
    /// The chunk's id.
    pub chunk_id: ChunkId,
    /// Place among the document's chunks, from 0.
    pub ordinal: i32,
    /// First byte in the stored text.
    pub start: i64,
    /// First byte after it.
    pub end: i64,
    /// `stored_text[start..end]`, or the summary.
    pub text: String,
    /// Page, from 1, where the format has pages.
    pub page: Option<i32>,
    /// The headings above it, joined by ` > `.
    pub heading: Option<String>,
    /// 0 is a span of the text; above it is a summary of what lies below.
    pub layer: i32,
    /// Of a summary: the chunks that it was made of, in reading order.
    pub leaves: Vec<LeafRun>,
    /// 32-bit little-endian floats.
    #[serde(with = "apache_avro::serde::bytes")]
    pub vector: Vec<u8>,
}

impl EmbeddedChunk {
    /// Joins a chunk and its vector.
    pub fn new(chunk: Chunk, vector: &[f32]) -> Self {
        let Chunk { chunk_id, ordinal, start, end, text, page, heading, layer, leaves } = chunk;
        Self {
            chunk_id,
            ordinal,
            start,
            end,
            text,
            page,
            heading,
            layer,
            leaves,
            vector: vector.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    /// The vector as numbers; `None` when its length is not a multiple of four bytes.
    pub fn floats(&self) -> Option<Vec<f32>> {
        let (words, rest) = self.vector.as_chunks::<4>();
        rest.is_empty().then(|| words.iter().map(|w| f32::from_le_bytes(*w)).collect())
    }
}

/// Declares a batch of a document's chunks: the fields that both stages share, then its own.
macro_rules! chunk_batches {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            /// The document.
            pub document_id: DocumentId,
            /// The request that it is part of.
            pub ingest_id: IngestId,
            /// Where the collection is.
            pub namespace: Namespace,
            /// The collection.
            pub collection: CollectionName,
            /// Where the document came from.
            pub source: String,
            /// The document's version.
            pub version: String,
            /// The collection's embedding model.
            pub embed_model: String,
            /// Which batch of the version this is, from 0.
            pub batch: i32,
            /// How many batches the version has.
            pub batches: i32,
            /// The caller's own JSON object, for filters.
            pub metadata_json: Option<String>,
            /// Milliseconds since the epoch.
            pub at: i64,
            $($(#[$fdoc])* pub $field: $type,)*
        }

        impl $name {
            fn id(&self) -> EventId {
                EventId::derive(&[&self.ingest_id.to_string(), &self.document_id.to_string(), stringify!($name), &self.batch.to_string()])
            }
        }
    )+};
}

chunk_batches! {
    /// Chunks of one document version, to be embedded.
    ChunksReady {
        /// In reading order.
        chunks: Vec<Chunk>,
        /// The stored text, when its chunks are embedded within it (late chunking).
        context: Option<BlobRef>,
    }
    /// Chunks of one document version with their vectors.
    ChunksEmbedded {
        /// Length of each vector.
        dimensions: i32,
        /// In reading order.
        chunks: Vec<EmbeddedChunk>,
    }
}

event_set! {
    /// Chunks to be embedded.
    ChunkEvent on IngestChunks;
    /// A batch of them.
    ChunksReady = "riverrun.ingest.ChunksReady", key |e| e.document_id.to_string(), id |e| e.id();
    /// The document behind them is being removed.
    ChunksWithdrawn = "riverrun.ingest.ChunksWithdrawn", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "chunks withdrawn");
}

event_set! {
    /// Chunks with vectors.
    EmbeddingEvent on IngestEmbeddings;
    /// A batch of them.
    ChunksEmbedded = "riverrun.ingest.ChunksEmbedded", key |e| e.document_id.to_string(), id |e| e.id();
    /// The document behind them is being removed.
    EmbeddingsWithdrawn = "riverrun.ingest.EmbeddingsWithdrawn", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "embeddings withdrawn");
}
