use std::collections::BTreeMap;

use riverrun_schemas::IngestId;
use riverrun_stores::documents::SourceVersion;
use riverrun_stores::read_models::document_views::{IngestStatus, IngestView as StoredIngest};
use riverrun_stores::read_models::{
    CollectionView, DocumentVersionView, DocumentView, FailureView, IngestFailureView, IngestNoteView,
    LeftOutFilesView, Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A source to read into a collection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IngestBody {
    /// What to read: the path of a file, folder or archive on the server, under one of `RIVERRUN_INGEST_ROOTS`; an address of a
    /// page (`https://…`), a repository (`https://….git`), a database (`postgres://…`, `mysql://…`, `sqlite:/…`) or a collection
    /// (`mongodb://host/database/collection`). A password is named, never written: `${RIVERRUN_SOURCE_…}`.
    pub source: String,
    /// The collection; made when it is not there.
    pub collection: String,
    /// Its namespace; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Forces the type of the source, such as `text`, `pdf` or `url`; left out, it is inferred.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    /// Warehouse table for a tabular source or a query; of a folder, an archive or several files each with rows gets its name behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// What to read of a database: one SELECT, or for `mongo` a filter as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Chunking strategy: `recursive`, `markdown`, `late` or `raptor`; left out, it goes by the type of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Where embeddings are made: `default`, or `hf` for a model of the hub that runs in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embed_backend: Option<String>,
    /// Most characters, or tokens, of a chunk; `RIVERRUN_CHUNK_SIZE` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_size: Option<i64>,
    /// Characters, or tokens, that neighbouring chunks share at most; `RIVERRUN_CHUNK_OVERLAP` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_overlap: Option<i64>,
    /// What both count: `characters`, or `tokens` of the embedding model; `RIVERRUN_CHUNK_UNIT` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_unit: Option<String>,
    /// Globs of what to read below a folder, archive, repository or site, as in a `.gitignore`; none means everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Globs of what to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// How many links away from the first page of a site is read, 0 to 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Whether the address is a sitemap, whose pages are read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sitemap: bool,
    /// An object of yours, at most 16 KiB, kept with each document; `filter` of a search looks at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(additional_properties)]
    pub metadata: Option<Map<String, Value>>,
}

/// A document with its versions, and what is known of the bytes that they were made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentDetail {
    /// The document.
    #[serde(flatten)]
    pub document: DocumentView,
    /// The versions whose stored text can be read, oldest first.
    pub versions: Vec<DocumentVersionView>,
    /// What is known of the bytes that versions were made of, from the document store: oldest first, the newest 32. Left out until the
    /// store has read of them, and while it can't be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_versions: Vec<SourceVersion>,
}

/// What stands under the name of a collection, whether there is one of it or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CollectionStanding {
    /// The collection; null while nothing of it can be found.
    pub collection: Option<CollectionView>,
    /// The newest removal of everything in it; null when there was none. Whoever fills the collection and finds another one than the time
    /// before fills another collection.
    #[schema(value_type = Option<String>)]
    pub removed_by: Option<IngestId>,
}

/// Whether the parts of a collection agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CollectionCheck {
    /// The collection.
    pub collection: String,
    /// Its namespace.
    pub namespace: String,
    /// Chunks that the read model counts.
    pub chunks: usize,
    /// Chunks in the vector store.
    pub vectors: usize,
    /// Chunks in the keyword index.
    pub keywords: usize,
    /// Documents whose chunks are not the same in all three, at most 1,000; none in a collection in order.
    pub orphans: Vec<Orphan>,
    /// Chunks of these that one of the two indexes lacks or should not have, at most 200. What both lack has no id here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<CheckedChunk>,
    /// Whether there were so many documents that differ that not all were looked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Chunks that vectors or keywords lack.
    #[serde(default)]
    pub missing: usize,
    /// Chunks in vectors or keywords that are of no version that a search should find.
    #[serde(default)]
    pub surplus: usize,
    /// What is wrong with it otherwise: an index that can't be read or was set aside, a rebuild that goes on or needs somebody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<FailureView>,
}

impl CollectionCheck {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.orphans.is_empty() && self.problems.is_empty()
    }
}

/// Keywords and vectors of a collection made again from the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebuildBody {
    /// Whether what is there is set aside first; left out, it is completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub afresh: Option<bool>,
    /// The collection's namespace; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A document whose chunks are not everywhere alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Orphan {
    /// The document.
    pub document_id: String,
    /// Chunks that the read model counts; 0 when it knows no such document.
    pub chunks: usize,
    /// Chunks in the vector store.
    pub vectors: usize,
    /// Chunks in the keyword index.
    pub keywords: usize,
}

/// A chunk that is not where it should be, or is where it should not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckedChunk {
    /// The chunk.
    pub chunk_id: String,
    /// Its document.
    pub document_id: String,
    /// The version of the document that it is of.
    pub version: String,
    /// Which indexes have it.
    pub held_by: Vec<IndexName>,
    /// What is wrong.
    pub fault: ChunkFault,
}

/// One of the two indexes of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IndexName {
    /// The vector store.
    Vectors,
    /// The keyword index.
    Keywords,
}

/// What is wrong with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChunkFault {
    /// The other index lacks it.
    Missing,
    /// It is of a document, or a version of one, that no search should find.
    Surplus,
}

/// Another embedding model for a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReembedBody {
    /// The model that it is to have; the default one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The collection's namespace; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Judgements that the searches of a collection are tuned to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TuneBody {
    /// Judged questions, at most 2,000, each once. Ten at least must have a relevant document in the collection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judgements: Vec<JudgementBody>,
    /// Whether searches are to be as without tuning, instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<bool>,
    /// The collection's namespace; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A question with what people found of documents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgementBody {
    /// The question; at most 16 KiB.
    pub query: String,
    /// Grades by document, 0 to 10, at most 1,000: a document's id, its source, or its file's name without extension. Above 0 is
    /// relevant, and what is not judged is not. Documents that the collection does not have count for nothing.
    pub documents: BTreeMap<String, f64>,
}

/// The request was accepted: its command is on the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngestAccepted {
    /// The request.
    pub ingest_id: String,
    /// How many documents it has, where that is known already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<i64>,
    /// Path of the WebSocket that shows its progress.
    pub stream: String,
}

/// Where a request is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IngestView {
    /// The request.
    pub ingest_id: String,
    /// `running`, `done` (every document has ended, some of them perhaps as failed) or `failed` (nothing was taken in).
    pub status: String,
    /// Where the collection is.
    pub namespace: String,
    /// The collection.
    pub collection: String,
    /// What is read; null until it was.
    pub source: Option<String>,
    /// How many documents it has; null until the source was read.
    pub documents: Option<i64>,
    /// Files left out on purpose, such as ignored ones.
    pub skipped: i64,
    /// What `skipped` is made of: counts by reason and extension, forty at most. Left out where nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutFilesView>,
    /// Documents that were handed in and are not split yet.
    pub queued: i64,
    /// Documents that are split and have no vectors yet.
    pub chunked: i64,
    /// Documents that have vectors and can't be found yet.
    pub embedded: i64,
    /// Documents whose every chunk can be found.
    pub indexed: i64,
    /// Documents that were in the collection already with this content.
    pub unchanged: i64,
    /// Documents that could not be taken in.
    pub failed: i64,
    /// Chunks of its documents so far.
    pub chunks: i64,
    /// The first hundred documents that failed, and why.
    pub failures: Vec<IngestFailureView>,
    /// The first hundred documents that were taken in and of which people should know something, such as pages without text. Left out where
    /// there is nothing to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<IngestNoteView>,
    /// Why the source could not be read at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When its last document ended; null before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

impl IngestView {
    /// What the read model has, with the number of chunks.
    pub(crate) fn new(stored: StoredIngest, chunks: i64) -> Self {
        let status = match stored.status {
            IngestStatus::Running => "running",
            IngestStatus::Succeeded | IngestStatus::Partial => "done",
            IngestStatus::Failed => "failed",
        };
        let counts = stored.documents;
        Self {
            ingest_id: stored.ingest_id.to_string(),
            status: status.to_owned(),
            namespace: stored.namespace.to_string(),
            collection: stored.collection.to_string(),
            source: stored.source,
            documents: counts.total,
            skipped: stored.skipped.unwrap_or(0),
            left_out: stored.left_out,
            queued: counts.queued,
            chunked: counts.chunked,
            embedded: counts.embedded,
            indexed: counts.indexed,
            unchanged: counts.unchanged,
            failed: counts.failed,
            chunks,
            failures: stored.failures,
            notes: stored.notes,
            error: stored.error,
            created_at: stored.created_at,
            finished_at: stored.finished_at,
        }
    }

    /// Whether nothing more will happen.
    pub fn ended(&self) -> bool {
        self.status != "running"
    }
}

/// What `/ws/ingest/{id}` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum IngestMessage {
    /// The stream begins.
    Start {
        /// The request.
        ingest_id: String,
    },
    /// Something changed.
    Progress {
        /// The request as it is now.
        ingest: Box<IngestView>,
    },
    /// The request has ended.
    Final {
        /// The request as it ended.
        ingest: Box<IngestView>,
    },
}

/// A record that could not be handled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterEntry {
    /// `<topic>.dlq:<offset>`: names the dead letter in `dlq show` and `dlq redrive`.
    pub id: String,
    /// The topic that the record was on.
    pub topic: String,
    /// Its partition there.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// The consumer group that gave it up.
    pub group: String,
    /// Stable, lower snake case.
    pub code: String,
    /// What went wrong.
    pub reason: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The schema id in its frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_id: Option<u32>,
    /// The record's key, as far as it is text.
    pub key: Option<String>,
    /// Length of the record.
    pub size_bytes: usize,
    /// When it was given up.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What became of it: `open`, `redriven` or `dropped`.
    pub status: String,
    /// The record's bytes in base 64; only where one dead letter was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
}

/// The record is on its topic again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Redriven {
    /// The dead letter.
    pub id: String,
    /// Where the record is now.
    pub topic: String,
    /// Its partition there.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
}
