//! Documents that are kept whole: in the SQL database of the read models, or in MongoDB.
//!
//! - `DOC-1` the store is a projection of the log: lost, older or of another log, it becomes what the log says ([`project`]).
//! - `DOC-2` a change is written with the log's offset and never over one of a higher offset, and the position moves behind the
//!   changes: a batch may come twice, and two projectors may be at work, as processes of a cluster that is rolled over are.

use std::collections::HashMap;

use async_trait::async_trait;
use riverrun_schemas::canvases::CanvasEvent;
use riverrun_schemas::{CanvasId, Namespace, Topic};

use crate::error::StoreError;
use crate::read_models::{Page, PageRequest};

mod canvases;
mod mongo_store;
mod sql_store;

pub use mongo_store::MongoDocuments;
pub use sql_store::SqlDocuments;

/// What kind of document it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// A canvas.
    Canvas,
}

impl DocumentKind {
    /// Its name in the stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            DocumentKind::Canvas => "canvas",
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

/// Brings records of one partition of `riverrun.canvases` into the store, in the log's order; `None` is a record without an event
/// that this build can read. Those before the store's position are skipped.
pub async fn project(
    store: &dyn DocumentStore,
    partition: i32,
    records: &[(i64, Option<CanvasEvent>)],
) -> Result<(), StoreError> {
    let next = store.next_offset(Topic::Canvases, partition).await?;
    let mut known: HashMap<DocumentKey, Option<KeptDocument>> = HashMap::new();
    let (mut changes, mut reached) = (Vec::new(), next);
    for (offset, event) in records {
        if *offset < next {
            continue;
        }
        reached = offset + 1;
        let Some(event) = event else { continue };
        let (namespace, id) = event.canvas();
        let key = DocumentKey::canvas(namespace, id);
        let before = match known.get(&key) {
            Some(before) => before.clone(),
            None => store.get(&key).await?,
        };
        let change = canvases::change(before.as_ref(), event, *offset);
        let after = match &change {
            None => before,
            Some(Change::Put(document)) => Some(document.clone()),
            Some(Change::Remove { .. }) => None,
        };
        known.insert(key, after);
        changes.extend(change);
    }
    if reached == next {
        return Ok(());
    }
    store.write(Topic::Canvases, partition, &changes, reached).await
}

/// Where a list goes on: behind an id.
fn after(page: &PageRequest) -> Result<String, StoreError> {
    match page.cursor.as_deref() {
        None => Ok(String::new()),
        Some(cursor) => match cursor.parse::<CanvasId>() {
            Ok(id) => Ok(id.as_str().to_owned()),
            Err(_) => Err(StoreError::Cursor(cursor.chars().take(80).collect())),
        },
    }
}
