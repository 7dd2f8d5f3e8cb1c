//! Collections, documents and requests to read them, as everybody sees them.

use riverrun_schemas::{CollectionName, DocumentId, IngestId, Namespace};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::read_models::run_views::FailureView;
use crate::read_models::time::Timestamp;

/// What the vectors of a collection are made with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EmbeddingView {
    /// The embedding model.
    pub model: String,
    /// Length of its vectors.
    pub dimensions: i64,
}

/// A collection that holds something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CollectionView {
    /// Its name.
    #[schema(value_type = String)]
    pub name: CollectionName,
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// `<namespace>__<name>`: its name in vector store and keyword index.
    pub physical_name: String,
    /// Documents that a search can find.
    pub documents: i64,
    /// Their chunks.
    pub chunks: i64,
    /// What its vectors are made with.
    pub embedding: EmbeddingView,
    /// When a document was last indexed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// Where a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DocumentStatus {
    /// Handed in.
    Queued,
    /// Split.
    Chunked,
    /// Every chunk has a vector.
    Embedded,
    /// Every chunk can be found.
    Indexed,
    /// The same content was there already.
    Unchanged,
    /// It could not be taken in.
    Failed,
    /// It is being removed.
    Deleting,
}

impl DocumentStatus {
    /// All, in the order in which a document goes through them.
    pub const ALL: [DocumentStatus; 7] = [
        DocumentStatus::Queued,
        DocumentStatus::Chunked,
        DocumentStatus::Embedded,
        DocumentStatus::Indexed,
        DocumentStatus::Unchanged,
        DocumentStatus::Failed,
        DocumentStatus::Deleting,
    ];

    /// The name in JSON and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            DocumentStatus::Queued => "queued",
            DocumentStatus::Chunked => "chunked",
            DocumentStatus::Embedded => "embedded",
            DocumentStatus::Indexed => "indexed",
            DocumentStatus::Unchanged => "unchanged",
            DocumentStatus::Failed => "failed",
            DocumentStatus::Deleting => "deleting",
        }
    }

    /// Whether nothing more happens to the document in this request.
    pub fn ended(self) -> bool {
        match self {
            DocumentStatus::Queued | DocumentStatus::Chunked | DocumentStatus::Embedded => false,
            DocumentStatus::Indexed | DocumentStatus::Unchanged | DocumentStatus::Failed | DocumentStatus::Deleting => {
                true
            }
        }
    }
}

impl std::str::FromStr for DocumentStatus {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        DocumentStatus::ALL
            .into_iter()
            .find(|status| status.as_str() == value)
            .ok_or_else(|| format!("{value:?} is not a document status"))
    }
}

/// A source within a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentView {
    /// The document.
    #[schema(value_type = String)]
    pub document_id: DocumentId,
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its collection.
    #[schema(value_type = String)]
    pub collection: CollectionName,
    /// Where it came from.
    pub source: String,
    /// Its own title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where it is in the request that touched it last.
    pub status: DocumentStatus,
    /// That request.
    #[schema(value_type = String)]
    pub ingest_id: IngestId,
    /// The version that was split last; null before.
    pub version: Option<String>,
    /// How many chunks of it a search finds: those of `indexed_version`, 0 while there is none.
    pub chunks: i64,
    /// The version that a search finds; null while there is none.
    pub indexed_version: Option<String>,
    /// The caller's own JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
    /// When it was first handed in.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When something last happened to it.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// A version of a document that was split.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentVersionView {
    /// The version.
    pub version: String,
    /// How many chunks it has.
    pub chunks: i64,
    /// SHA-256 of the stored text that its spans count in, lower-case hex.
    pub text_sha256: String,
    /// Length of that text.
    pub text_size_bytes: i64,
    /// When it was split.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// Where a request to read a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IngestStatus {
    /// Documents are on their way.
    Running,
    /// Every document is in.
    Succeeded,
    /// Some documents are in, some failed.
    Partial,
    /// No document is in, or the source could not be read.
    Failed,
}

impl IngestStatus {
    /// Whether nothing more happens in the request.
    pub fn ended(self) -> bool {
        match self {
            IngestStatus::Running => false,
            IngestStatus::Succeeded | IngestStatus::Partial | IngestStatus::Failed => true,
        }
    }
}

/// How many documents of a request are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentCounts {
    /// How many there are; null until the source was read.
    pub total: Option<i64>,
    /// Handed in.
    pub queued: i64,
    /// Split.
    pub chunked: i64,
    /// With vectors.
    pub embedded: i64,
    /// Found by searches.
    pub indexed: i64,
    /// There before.
    pub unchanged: i64,
    /// Not taken in.
    pub failed: i64,
}

impl DocumentCounts {
    pub(crate) fn add(&mut self, status: DocumentStatus, documents: i64) {
        match status {
            DocumentStatus::Queued => self.queued += documents,
            DocumentStatus::Chunked => self.chunked += documents,
            DocumentStatus::Embedded => self.embedded += documents,
            DocumentStatus::Indexed => self.indexed += documents,
            DocumentStatus::Unchanged => self.unchanged += documents,
            DocumentStatus::Failed => self.failed += documents,
            // No request to take documents in has any of these.
            DocumentStatus::Deleting => {}
        }
    }

    /// Documents to which nothing more happens.
    pub fn ended(&self) -> i64 {
        self.indexed + self.unchanged + self.failed
    }

    /// What the request came to so far: it has ended when as many documents have ended as the source had.
    pub fn status(&self) -> IngestStatus {
        match self.total {
            Some(total) if self.ended() >= total => match (self.failed, self.indexed + self.unchanged) {
                (0, _) => IngestStatus::Succeeded,
                (_, 0) => IngestStatus::Failed,
                (_, _) => IngestStatus::Partial,
            },
            Some(_) | None => IngestStatus::Running,
        }
    }
}

/// A document that a request could not take in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngestFailureView {
    /// The document.
    #[schema(value_type = String)]
    pub document_id: DocumentId,
    /// Where it came from.
    pub source: String,
    /// `ingest`, `embed` or `index`.
    pub stage: String,
    /// Why.
    pub error: FailureView,
}

/// What people should know of a document although it could be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngestNoteView {
    /// The document.
    #[schema(value_type = String)]
    pub document_id: DocumentId,
    /// Where it came from.
    pub source: String,
    /// What, such as how many of its pages are pictures without text; a few at most.
    pub notes: Vec<String>,
}

/// Files that were left out on purpose, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOutFilesView {
    /// Stable, lower snake case: `no_reader` (nothing reads its extension), `archive` (an archive in a folder, which is not opened), `not_text`
    /// (no extension, and no text), `hidden_or_ignored` (a folder counts as one), `link`, `excluded` (by a glob), `twice` (read under another
    /// address), `beyond_limit`.
    pub reason: String,
    /// With its dot, where the reason has to do with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// How many.
    pub files: i64,
}

/// A request to read a source into a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IngestView {
    /// The request.
    #[schema(value_type = String)]
    pub ingest_id: IngestId,
    /// Where it is.
    pub status: IngestStatus,
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its collection.
    #[schema(value_type = String)]
    pub collection: CollectionName,
    /// What is read; null until it was.
    pub source: Option<String>,
    /// How many documents are where.
    pub documents: DocumentCounts,
    /// Files left out on purpose; null until the source was read.
    pub skipped: Option<i64>,
    /// What `skipped` is made of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutFilesView>,
    /// The first hundred documents with something that people should know, by source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<IngestNoteView>,
    /// The first hundred documents that failed, by source.
    pub failures: Vec<IngestFailureView>,
    /// Why the source could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
    /// When the first of its events was written.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When the last of its documents ended; null before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}
