//! What is said about documents on their way into a collection: `riverrun.ingest.*`.

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::common::{BlobRef, Failure};
use crate::ids::{ChunkId, DocumentId, EventId, IngestId};
use crate::names::{Collection, CollectionName, Namespace};

/// The id of a source within a collection.
pub fn document_id(collection: &Collection, source: &str) -> DocumentId {
    DocumentId::derive(&[collection.namespace.as_str(), collection.name.as_str(), source])
}

/// Asks for a source to be read into a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartIngest {
    /// Drawn by the caller, or derived from its idempotency key.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// An absolute path that the worker can read, an address, or a topic. Never has a password in it.
    pub source: String,
    /// Forces the source's type; `None` infers it from name and content.
    pub source_type: Option<String>,
    /// The collection's embedding model.
    pub embed_model: String,
    /// Most characters, or tokens, of a chunk.
    pub chunk_size: i64,
    /// Characters, or tokens, that neighbours share at most.
    pub chunk_overlap: i64,
    /// The caller's own JSON object, kept with each document.
    pub metadata_json: Option<String>,
    /// SQL of a database, or a filter as JSON.
    pub query: Option<String>,
    /// Globs of what to read below a folder, archive or repository; none means everything.
    pub include: Vec<String>,
    /// Globs of what to leave out.
    pub exclude: Vec<String>,
    /// How many links away from the first page of a web site is read.
    pub depth: Option<i32>,
    /// Whether the address is a sitemap, whose pages are read.
    pub sitemap: bool,
    /// The source's bytes, when it was handed in with the request.
    pub content: Option<BlobRef>,
    /// Warehouse table of a tabular source.
    pub table: Option<String>,
    /// How texts are split; `None` goes by the type of the source.
    pub strategy: Option<String>,
    /// What sizes count: `characters` or `tokens`; `None` means characters.
    pub chunk_unit: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Hands in one document whose bytes are in the blob store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubmitDocument {
    /// Derived from namespace, collection and source.
    pub document_id: DocumentId,
    /// The request that it is part of.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// Where it came from.
    pub source: String,
    /// Forces the source's type.
    pub source_type: Option<String>,
    /// The document's bytes as they were found.
    pub content: BlobRef,
    /// The collection's embedding model.
    pub embed_model: String,
    /// Most characters, or tokens, of a chunk.
    pub chunk_size: i64,
    /// Characters, or tokens, that neighbours share at most.
    pub chunk_overlap: i64,
    /// The caller's own JSON object.
    pub metadata_json: Option<String>,
    /// Warehouse table of a tabular source.
    pub table: Option<String>,
    /// How texts are split; `None` goes by the type of the source.
    pub strategy: Option<String>,
    /// What sizes count: `characters` or `tokens`; `None` means characters.
    pub chunk_unit: Option<String>,
    /// Whether it is taken in although it is in the collection unchanged: its chunks were lost.
    pub again: bool,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks for every document of a collection to be removed: those that were handed in before it was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeleteCollection {
    /// The request: drawn by the caller, or derived from its idempotency key.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks for every chunk of a collection to be embedded with another model. Searches go on with the old one until all are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReembedCollection {
    /// The request: drawn by the caller, or derived from its idempotency key.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The model that it is to have.
    pub embed_model: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Asks for keywords and vectors of a collection to be made again from the log, where they are not what the log says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RebuildCollection {
    /// The request: drawn by the caller, or derived from its idempotency key.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// Whether what is there is set aside first, instead of being completed.
    pub afresh: bool,
    /// Milliseconds since the epoch.
    pub at: i64,
}

event_set! {
    /// Commands to the ingester.
    IngestCommand on IngestCommands;
    /// Asks for a source to be read.
    StartIngest = "riverrun.ingest.StartIngest", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "start"]);
    /// Hands in one document.
    SubmitDocument = "riverrun.ingest.SubmitDocument", key |e| e.document_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), &e.document_id.to_string(), "submit"]), trace |e| e.ingest_id.into();
    /// Asks for a document to be removed.
    DeleteDocument = "riverrun.ingest.DeleteDocument", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "delete");
    /// Asks for every document of a collection to be removed.
    DeleteCollection = "riverrun.ingest.DeleteCollection", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "delete"]);
    /// Asks for every chunk of a collection to be embedded with another model.
    ReembedCollection = "riverrun.ingest.ReembedCollection", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "reembed"]);
    /// Asks for keywords and vectors of a collection to be made again from the log.
    RebuildCollection = "riverrun.ingest.RebuildCollection", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), if e.afresh { "rebuild afresh" } else { "rebuild" }]);
    /// Asks for the next step of the summaries above a document's chunks.
    BuildTree = "riverrun.ingest.BuildTree", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, &format!("tree {}", e.step));
}

/// Declares an event about a document: the five fields that all share, then its own.
macro_rules! document_events {
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
            $($(#[$fdoc])* pub $field: $type,)*
            /// Milliseconds since the epoch.
            pub at: i64,
        }
    )+};
}

document_events! {
    /// The document was handed in.
    DocumentQueued {
        /// Its bytes as they were found.
        content: BlobRef,
    }
    /// The same content is in the collection already; nothing was done.
    DocumentUnchanged {
        /// Hash of content and chunking.
        version: String,
    }
    /// The document's text was stored and split.
    DocumentChunked {
        /// Hash of content and chunking.
        version: String,
        /// The stored text that spans count in.
        text: BlobRef,
        /// How many chunks it has.
        chunks: i64,
        /// The collection's embedding model.
        embed_model: String,
        /// The document's own title.
        title: Option<String>,
        /// The caller's own JSON object.
        metadata_json: Option<String>,
        /// Who the document says that it is by.
        author: Option<String>,
        /// Its last page, where the format has pages.
        pages: Option<i32>,
        /// What its bytes were decoded from, such as `UTF-8`; `None` where the format is no text.
        encoding: Option<String>,
        /// Media type of the format that it was read as; older events do not say it.
        read_as: Option<String>,
        /// When its bytes were read from where they are, in milliseconds since the epoch; older events do not say it.
        fetched_at: Option<i64>,
        /// Forces the source's type.
        source_type: Option<String>,
        /// How texts are split; `None` goes by the type of the source.
        strategy: Option<String>,
        /// Most characters, or tokens, of a chunk; 0 where it was not written down.
        chunk_size: i64,
        /// Characters, or tokens, that neighbours share at most.
        chunk_overlap: i64,
        /// What sizes count: `characters` or `tokens`; `None` means characters.
        chunk_unit: Option<String>,
        /// Warehouse table of a tabular source.
        table: Option<String>,
    }
    /// Every chunk of the version has a vector.
    DocumentEmbedded {
        /// The version.
        version: String,
        /// How many chunks it has.
        chunks: i64,
        /// Length of each vector.
        dimensions: i32,
    }
    /// Every chunk of the version can be found; chunks of other versions are gone.
    DocumentIndexed {
        /// The version.
        version: String,
        /// How many chunks it has.
        chunks: i64,
        /// Chunks of older versions that were removed.
        removed_chunks: i64,
        /// The collection's embedding model.
        embed_model: String,
        /// Length of each vector.
        dimensions: i32,
    }
    /// The document could not be taken in.
    DocumentFailed {
        /// `ingest`, `summarize`, `embed` or `index`.
        stage: String,
        /// Why.
        error: Failure,
    }
    /// Asks for the document to be removed from everything that is made of it.
    DeleteDocument {}
    /// Asks for the next step of the summaries above a document's chunks: each step hands in the one after it.
    BuildTree {
        /// The version.
        version: String,
        /// The collection's embedding model.
        embed_model: String,
        /// The caller's own JSON object, for filters.
        metadata_json: Option<String>,
        /// The chunks and summaries so far.
        tree: Option<BlobRef>,
        /// The newest result of the layer that is being made, which names the one before it.
        last: Option<BlobRef>,
        /// Results of the layer so far.
        next: i32,
        /// From 0, over all layers.
        step: i32,
        /// Nothing is to be summarised any more.
        done: bool,
    }
    /// The document counts no more; its chunks are being removed.
    DocumentWithdrawn {
        /// Warehouse tables that went.
        tables: i64,
        /// Their rows.
        rows: i64,
    }
    /// Follows the document's chunks on their way, so that none of them comes behind their removal.
    ChunksWithdrawn {
        /// Warehouse tables that went.
        tables: i64,
        /// Their rows.
        rows: i64,
    }
    /// Follows the document's vectors on their way; who reads it removes them.
    EmbeddingsWithdrawn {
        /// Warehouse tables that went.
        tables: i64,
        /// Their rows.
        rows: i64,
    }
    /// Nothing finds the document any more: what was removed. A removal that a crash cut in two tells of its second part.
    DocumentDeleted {
        /// Chunks that went from the vector store.
        vectors: i64,
        /// Chunks that went from the keyword index.
        keywords: i64,
        /// Warehouse tables that went.
        tables: i64,
        /// Their rows.
        rows: i64,
    }
}

/// The documents of a collection are being removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionWithdrawn {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// How many: each of them gets a [`DocumentDeleted`].
    pub documents: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The chunks of a collection are being embedded anew, beside those that are searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionReembedding {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The model that it has.
    pub from_model: String,
    /// The model that it is to have.
    pub embed_model: String,
    /// Documents that it has now.
    pub documents: i64,
    /// Chunks that it has now.
    pub chunks: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The collection is searched with the new model from here on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionReembedded {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The model that it has.
    pub embed_model: String,
    /// Length of each vector.
    pub dimensions: i32,
    /// Documents in it.
    pub documents: i64,
    /// Chunks in it.
    pub chunks: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The collection could not be embedded anew and is as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionReembedFailed {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The model that it was to have.
    pub embed_model: String,
    /// Why.
    pub error: Failure,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Keywords and vectors of the collection are being made again; until it is done searches may lack some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionRebuilding {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// What was found, such as a missing index.
    pub reason: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Keywords and vectors of the collection are what the log says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionRebuilt {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The collection's embedding model; empty when it holds nothing.
    pub embed_model: String,
    /// Documents that it holds.
    pub documents: i64,
    /// Chunks that it holds.
    pub chunks: i64,
    /// Chunks whose vectors were written again.
    pub vectors: i64,
    /// Chunks whose keywords were written again.
    pub keywords: i64,
    /// Those of them that were embedded anew, because the log has no vector of the collection's model.
    pub embedded: i64,
    /// Documents that nothing on the log stands for any more and that were removed.
    pub removed: i64,
    /// Documents whose chunks are not on the log any more.
    pub missing: i64,
    /// The first hundred of them.
    pub missing_documents: Vec<DocumentId>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The collection could not be made again; what was written of it stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionRebuildFailed {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// Why.
    pub error: Failure,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The source was read; this many documents were handed in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IngestScanned {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// What was read.
    pub source: String,
    /// Documents handed in or refused: each of them gets its own terminal event.
    pub documents: i64,
    /// Files left out on purpose, such as ignored ones.
    pub skipped: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// The source could not be read at all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IngestFailed {
    /// The request.
    pub ingest_id: IngestId,
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// What was to be read.
    pub source: String,
    /// Why.
    pub error: Failure,
    /// Milliseconds since the epoch.
    pub at: i64,
}

fn document_event(ingest: &IngestId, document: &DocumentId, what: &str) -> EventId {
    EventId::derive(&[&ingest.to_string(), &document.to_string(), what])
}

event_set! {
    /// Events of requests (keyed by request) and of documents (keyed by document). A request is done when as many of its
    /// documents as `IngestScanned` says have ended as indexed, unchanged or failed.
    IngestEvent on IngestEvents;
    /// The source was read.
    IngestScanned = "riverrun.ingest.IngestScanned", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "scanned"]);
    /// The source could not be read.
    IngestFailed = "riverrun.ingest.IngestFailed", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "failed"]);
    /// The document was handed in.
    DocumentQueued = "riverrun.ingest.DocumentQueued", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "queued");
    /// Nothing was to do.
    DocumentUnchanged = "riverrun.ingest.DocumentUnchanged", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "unchanged");
    /// The document was split.
    DocumentChunked = "riverrun.ingest.DocumentChunked", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "chunked");
    /// Every chunk has a vector.
    DocumentEmbedded = "riverrun.ingest.DocumentEmbedded", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "embedded");
    /// Every chunk can be found.
    DocumentIndexed = "riverrun.ingest.DocumentIndexed", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "indexed");
    /// The document could not be taken in.
    DocumentFailed = "riverrun.ingest.DocumentFailed", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "failed");
    /// The document counts no more.
    DocumentWithdrawn = "riverrun.ingest.DocumentWithdrawn", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "withdrawn");
    /// Nothing finds the document any more.
    DocumentDeleted = "riverrun.ingest.DocumentDeleted", key |e| e.document_id.to_string(), id |e| document_event(&e.ingest_id, &e.document_id, "deleted");
    /// The documents of a collection are being removed.
    CollectionWithdrawn = "riverrun.ingest.CollectionWithdrawn", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "withdrawn"]);
    /// The chunks of a collection are being embedded anew.
    CollectionReembedding = "riverrun.ingest.CollectionReembedding", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "reembedding"]);
    /// The collection is searched with the new model.
    CollectionReembedded = "riverrun.ingest.CollectionReembedded", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "reembedded"]);
    /// The collection could not be embedded anew.
    CollectionReembedFailed = "riverrun.ingest.CollectionReembedFailed", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "reembed_failed"]);
    /// The collection's keywords and vectors are being made again.
    CollectionRebuilding = "riverrun.ingest.CollectionRebuilding", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "rebuilding"]);
    /// They are what the log says.
    CollectionRebuilt = "riverrun.ingest.CollectionRebuilt", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "rebuilt"]);
    /// They could not be made again.
    CollectionRebuildFailed = "riverrun.ingest.CollectionRebuildFailed", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "rebuild_failed"]);
}

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
