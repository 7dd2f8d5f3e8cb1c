//! From events to the store: what each does to the document that it is about, those before it in the batch included.

use std::collections::HashMap;

use riverrun_schemas::Topic;
use riverrun_schemas::canvases::CanvasEvent;
use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::projects::ProjectEvent;

use super::{Change, DocumentKey, DocumentStore, KeptDocument, canvases, reports, sources};
use crate::error::StoreError;

/// Topics that documents are made of.
pub const DOCUMENT_TOPICS: [Topic; 3] = [Topic::Canvases, Topic::IngestEvents, Topic::ProjectsEvents];

/// An event that documents are made of.
#[derive(Debug, Clone)]
pub enum DocumentEvent {
    /// Of a canvas.
    Canvas(CanvasEvent),
    /// Of a document of a collection.
    Ingest(IngestEvent),
    /// Of a project.
    Project {
        /// The event.
        event: ProjectEvent,
        /// The text that [`super::report_of`] names; `None` where it is nowhere.
        report: Option<String>,
    },
}

impl From<CanvasEvent> for DocumentEvent {
    fn from(event: CanvasEvent) -> Self {
        Self::Canvas(event)
    }
}

impl From<IngestEvent> for DocumentEvent {
    fn from(event: IngestEvent) -> Self {
        Self::Ingest(event)
    }
}

impl From<ProjectEvent> for DocumentEvent {
    fn from(event: ProjectEvent) -> Self {
        Self::Project { event, report: None }
    }
}

impl DocumentEvent {
    /// The one document that it is about.
    fn key(&self) -> Option<DocumentKey> {
        match self {
            Self::Canvas(event) => {
                let (namespace, id) = event.canvas();
                Some(DocumentKey::canvas(namespace, id))
            }
            Self::Ingest(event) => sources::key(event),
            Self::Project { event, .. } => reports::key(event),
        }
    }

    /// What it does, given that document as it is.
    fn change(&self, before: Option<&KeptDocument>, offset: i64) -> Option<Change> {
        match self {
            Self::Canvas(event) => canvases::change(before, event, offset),
            Self::Ingest(event) => sources::change(before, event, offset),
            Self::Project { event, report } => reports::change(before, event, report.as_deref(), offset),
        }
    }
}

/// Brings records of one partition of one of [`DOCUMENT_TOPICS`] into the store, in the log's order; `None` is a record without an
/// event that this build can read. Those before the store's position are skipped.
pub async fn project(
    store: &dyn DocumentStore,
    topic: Topic,
    partition: i32,
    records: &[(i64, Option<DocumentEvent>)],
) -> Result<(), StoreError> {
    let next = store.next_offset(topic, partition).await?;
    let (mut batch, mut reached) = (Batch::default(), next);
    for (offset, event) in records {
        if *offset < next {
            continue;
        }
        reached = offset + 1;
        let Some(event) = event else { continue };
        let before = match event.key() {
            None => None,
            Some(key) => batch.before(store, key).await?,
        };
        if let Some(change) = event.change(before.as_ref(), *offset) {
            batch.add(change);
        }
    }
    if reached == next {
        return Ok(());
    }
    store.write(topic, partition, &batch.changes, reached).await
}

/// The changes of a batch, one a document, and what the documents are after them.
#[derive(Default)]
struct Batch {
    known: HashMap<DocumentKey, Option<KeptDocument>>,
    changes: Vec<Change>,
}

impl Batch {
    /// A document as it is after the changes so far.
    async fn before(
        &mut self,
        store: &dyn DocumentStore,
        key: DocumentKey,
    ) -> Result<Option<KeptDocument>, StoreError> {
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let gone = self.changes.iter().any(|change| change.removes_below(&key));
        let found = if gone { None } else { store.get(&key).await? };
        self.known.insert(key, found.clone());
        Ok(found)
    }

    /// Of several changes of a document only the last has to be written: it stands for all before it.
    fn add(&mut self, change: Change) {
        match &change {
            Change::Put(document) => {
                self.changes.retain(|earlier| !earlier.is_of(&document.key));
                self.known.insert(document.key.clone(), Some(document.clone()));
            }
            Change::Remove { key, .. } => {
                self.changes.retain(|earlier| !earlier.is_of(key));
                self.known.insert(key.clone(), None);
            }
            Change::RemoveBelow { key, .. } => {
                self.changes.retain(|earlier| !earlier.key().is_below(key));
                self.known.iter_mut().filter(|(known, _)| known.is_below(key)).for_each(|(_, known)| *known = None);
            }
        }
        self.changes.push(change);
    }
}
