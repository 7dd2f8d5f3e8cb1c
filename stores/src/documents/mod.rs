//! Documents that are kept whole: in the SQL database of the read models, or in MongoDB.
//!
//! Kept are canvases, what is known of the sources of documents, and reports of analyses of projects.
//!
//! - `DOC-1` the store is a projection of the log: lost, older or of another log, it becomes what the log says ([`project`]).
//! - `DOC-2` a change is written with the log's offset and never over one of a higher offset, and the position moves behind the
//!   changes: a batch may come twice, and two projectors may be at work, as processes of a cluster that is rolled over are.

use async_trait::async_trait;
use riverrun_schemas::{AnalysisId, CanvasId, DocumentId, Namespace, ProjectId, Topic};

use crate::error::StoreError;
use crate::read_models::{Page, PageRequest};

mod canvases;
mod mongo_store;
mod projecting;
mod reports;
mod sources;
mod sql_store;

pub use mongo_store::MongoDocuments;
pub use projecting::{DOCUMENT_TOPICS, DocumentEvent, project};
pub use reports::{MAX_REPORT_BYTES, report_of};
pub use sources::{HandedIn, MAX_SOURCE_VERSIONS, SourceDocument, SourceVersion};
pub use sql_store::SqlDocuments;

/// What parts an id and those below it: a project and its analyses. No part has one in it.
const BELOW: char = '.';
/// The character right behind it, in the order of bytes.
const BEHIND_BELOW: char = '/';

/// What kind of document it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// A canvas.
    Canvas,
    /// Metadata of the bytes that a document of a collection was made of, version by version: a [`SourceDocument`].
    Source,
    /// The report of an analysis of a project.
    Report,
}

impl DocumentKind {
    /// Its name in the stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            DocumentKind::Canvas => "canvas",
            DocumentKind::Source => "source",
            DocumentKind::Report => "report",
        }
    }
}

/// Which document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// Its kind.
    pub kind: DocumentKind,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its id within kind and namespace.
    pub id: String,
}

impl DocumentKey {
    /// A canvas.
    pub fn canvas(namespace: &Namespace, id: &CanvasId) -> Self {
        Self { kind: DocumentKind::Canvas, namespace: namespace.clone(), id: id.as_str().to_owned() }
    }

    /// The metadata of a document's sources.
    pub fn source(namespace: &Namespace, id: DocumentId) -> Self {
        Self { kind: DocumentKind::Source, namespace: namespace.clone(), id: id.to_string() }
    }

    /// The report of an analysis.
    pub fn report(namespace: &Namespace, project: ProjectId, analysis: AnalysisId) -> Self {
        Self { kind: DocumentKind::Report, namespace: namespace.clone(), id: format!("{project}{BELOW}{analysis}") }
    }

    /// What all reports of a project are below.
    fn reports(namespace: &Namespace, project: ProjectId) -> Self {
        Self { kind: DocumentKind::Report, namespace: namespace.clone(), id: project.to_string() }
    }

    /// Whether its id is that of `above` with something behind it.
    fn is_below(&self, above: &DocumentKey) -> bool {
        self.kind == above.kind
            && self.namespace == above.namespace
            && self.id.strip_prefix(above.id.as_str()).is_some_and(|rest| rest.starts_with(BELOW))
    }

    /// Ids below its own lie between these two.
    fn range_below(&self) -> (String, String) {
        (format!("{}{BELOW}", self.id), format!("{}{BEHIND_BELOW}", self.id))
    }
}

/// A document as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDocument {
    /// Which one.
    pub key: DocumentKey,
    /// Its name for people.
    pub name: String,
    /// Counts from 1.
    pub revision: i64,
    /// When that was written, in milliseconds since the epoch.
    pub at: i64,
    /// Offset of the event that it is of.
    pub offset: i64,
    /// The requests that made the last revisions, newest last.
    pub saves: Vec<String>,
    /// Its JSON, byte for byte as it was given.
    pub body: String,
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentEntry {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Its revision.
    pub revision: i64,
    /// When that was written, in milliseconds since the epoch.
    pub at: i64,
    /// Length of its JSON, in bytes.
    pub size_bytes: i64,
}

/// What an event does to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is so now.
    Put(KeptDocument),
    /// It is gone.
    Remove {
        /// Which one.
        key: DocumentKey,
        /// Offset of the event.
        offset: i64,
    },
    /// All whose ids are below that id are gone, such as the reports of a project.
    RemoveBelow {
        /// Below which one.
        key: DocumentKey,
        /// Offset of the event.
        offset: i64,
    },
}

impl Change {
    fn key(&self) -> &DocumentKey {
        match self {
            Change::Put(document) => &document.key,
            Change::Remove { key, .. } | Change::RemoveBelow { key, .. } => key,
        }
    }

    /// Whether it is of that document and of no other.
    fn is_of(&self, document: &DocumentKey) -> bool {
        match self {
            Change::Put(kept) => kept.key == *document,
            Change::Remove { key, .. } => key == document,
            Change::RemoveBelow { .. } => false,
        }
    }

    /// Whether it removes that document together with others.
    fn removes_below(&self, document: &DocumentKey) -> bool {
        match self {
            Change::RemoveBelow { key, .. } => document.is_below(key),
            Change::Put(_) | Change::Remove { .. } => false,
        }
    }
}

/// What a store tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentsInfo {
    /// `sqlite`, `postgresql` or `mongodb`.
    pub kind: &'static str,
    /// A file, or an address without a password.
    pub place: String,
}

/// Documents by kind, namespace and id.
#[async_trait]
pub trait DocumentStore: Send + Sync + 'static {
    /// What it is and where; nothing is asked.
    fn info(&self) -> DocumentsInfo;

    /// Asks it for its version, for `diagnose`.
    async fn version(&self) -> Result<String, StoreError>;

    /// Offset of the first record of the partition that is not in the documents yet; 0 when none was read.
    async fn next_offset(&self, topic: Topic, partition: i32) -> Result<i64, StoreError>;

    /// Writes changes of one partition, in the log's order, and then how far they reach (`DOC-2`).
    async fn write(&self, topic: Topic, partition: i32, changes: &[Change], next_offset: i64)
    -> Result<(), StoreError>;

    /// Forgets every document and then how far the log was read.
    async fn clear(&self) -> Result<(), StoreError>;

    /// A document.
    async fn get(&self, key: &DocumentKey) -> Result<Option<KeptDocument>, StoreError>;

    /// The documents of a kind in a namespace, by id.
    async fn list(
        &self,
        kind: DocumentKind,
        namespace: &Namespace,
        page: &PageRequest,
    ) -> Result<Page<DocumentEntry>, StoreError>;

    /// How many there are.
    async fn count(&self, kind: DocumentKind, namespace: &Namespace) -> Result<u64, StoreError>;
}

/// Where a list goes on: behind an id.
fn after(kind: DocumentKind, page: &PageRequest) -> Result<String, StoreError> {
    let Some(cursor) = page.cursor.as_deref() else { return Ok(String::new()) };
    let known = match kind {
        DocumentKind::Canvas => cursor.parse::<CanvasId>().is_ok(),
        DocumentKind::Source => cursor.parse::<DocumentId>().is_ok(),
        DocumentKind::Report => cursor.split_once(BELOW).is_some_and(|(project, analysis)| {
            project.parse::<ProjectId>().is_ok() && analysis.parse::<AnalysisId>().is_ok()
        }),
    };
    if known { Ok(cursor.to_owned()) } else { Err(StoreError::Cursor(cursor.chars().take(80).collect())) }
}
