//! What is said about documents on their way into a collection: `riverrun.ingest.*`.

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::common::{BlobRef, Failure};
use crate::ids::{DocumentId, EventId, IngestId};
use crate::names::{Collection, CollectionName, Namespace};

mod chunks;
mod collections;
mod tuning;

pub use chunks::{Chunk, ChunkEvent, ChunksEmbedded, ChunksReady, EmbeddedChunk, EmbeddingEvent, LeafRun};
pub use collections::{
    CollectionRebuildFailed, CollectionRebuilding, CollectionRebuilt, CollectionReembedFailed, CollectionReembedded,
    CollectionReembedding, CollectionWithdrawn,
};
pub use tuning::{CollectionTuneFailed, CollectionTuned, CollectionTuning, SearchGain, TuneCollection};

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
    /// Asks for the searches of a collection to be tuned to judgements.
    TuneCollection = "riverrun.ingest.TuneCollection", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "tune"]);
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
        /// What people should know of the document although it could be read, such as pages without text; older events say nothing.
        notes: Vec<String>,
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
    /// What `skipped` is made of; older events do not say it.
    pub left_out: Vec<LeftOut>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Files that were left out for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Stable, lower snake case, such as `no_reader` or `excluded`.
    pub reason: String,
    /// With its dot, where the reason has to do with it.
    pub extension: Option<String>,
    /// How many.
    pub files: i64,
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
    /// The collection's searches are being tuned.
    CollectionTuning = "riverrun.ingest.CollectionTuning", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "tuning"]);
    /// The collection is searched with what was learned.
    CollectionTuned = "riverrun.ingest.CollectionTuned", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "tuned"]);
    /// Nothing was learned.
    CollectionTuneFailed = "riverrun.ingest.CollectionTuneFailed", key |e| e.ingest_id.to_string(), id |e| EventId::derive(&[&e.ingest_id.to_string(), "tune_failed"]);
}
