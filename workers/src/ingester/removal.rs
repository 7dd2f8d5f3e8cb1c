//! What is said when a document or a collection is to go, or the rows that a query gives no more.
//!
//! A document's removal follows its chunks through chunks and embeddings, in their order: whatever was on its way is
//! indexed before it, and removed by it. What the documents of a collection or a query are is asked of the log, from its first event on.

use std::collections::BTreeMap;

use riverrun_knowledge::sources::batch_of;
use riverrun_log::admin::Admin;
use riverrun_log::{LogConfig, LogError, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::ingest::{
    ChunksWithdrawn, CollectionWithdrawn, DeleteCollection, DeleteDocument, DocumentWithdrawn, IngestEvent, StartIngest,
};
use riverrun_schemas::{CollectionName, Decoded, DocumentId, IngestId, Namespace, Topic, now_ms};
use riverrun_stores::warehouse::TableInfo;

use super::log_retry;
use crate::about::about;
use crate::runtime::WorkError;

/// Finds the documents of collections.
#[derive(Debug)]
pub(super) struct Removal {
    log: LogConfig,
    schemas: Schemas,
}

/// A document goes: its tables are gone already, its chunks follow.
pub(super) fn withdrawn(delete: &DeleteDocument, tables: &[TableInfo]) -> (DocumentWithdrawn, ChunksWithdrawn) {
    let rows = tables.iter().map(|table| table.rows).sum();
    let tables = i64::try_from(tables.len()).unwrap_or(i64::MAX);
    (about!(delete, DocumentWithdrawn { tables, rows }), about!(delete, ChunksWithdrawn { tables, rows }))
}

impl Removal {
    pub(super) fn new(log: LogConfig, schemas: Schemas) -> Self {
        Self { log, schemas }
    }

    /// One command for each document that was handed in before the request, and how many they are.
    pub(super) async fn collection(
        &self,
        delete: &DeleteCollection,
    ) -> Result<(CollectionWithdrawn, Vec<DeleteDocument>), WorkError> {
        let documents = self.documents(Asked::Collection(delete)).await.map_err(|error| log_retry(&error))?;
        let event = CollectionWithdrawn {
            ingest_id: delete.ingest_id,
            namespace: delete.namespace.clone(),
            collection: delete.collection.clone(),
            documents: i64::try_from(documents.len()).unwrap_or(i64::MAX),
            at: now_ms(),
        };
        let command = |(document_id, source)| DeleteDocument {
            document_id,
            ingest_id: delete.ingest_id,
            namespace: delete.namespace.clone(),
            collection: delete.collection.clone(),
            source,
            at: now_ms(),
        };
        Ok((event, documents.into_iter().map(command).collect()))
    }

    /// One command for each document of a query's rows behind the first `kept`: the query, whose documents are named by `base`, gives so
    /// many rows no more. Each is a removal of its own, whose id follows from the request.
    pub(super) async fn batches(
        &self,
        start: &StartIngest,
        base: &str,
        kept: usize,
    ) -> Result<Vec<DeleteDocument>, WorkError> {
        let documents =
            self.documents(Asked::Batches { start, base, kept }).await.map_err(|error| log_retry(&error))?;
        let command = |(document_id, source)| DeleteDocument {
            document_id,
            ingest_id: removal_id(start, document_id),
            namespace: start.namespace.clone(),
            collection: start.collection.clone(),
            source,
            at: now_ms(),
        };
        Ok(documents.into_iter().map(command).collect())
    }

    async fn documents(&self, asked: Asked<'_>) -> Result<BTreeMap<DocumentId, String>, LogError> {
        let mut found = Census { asked, documents: BTreeMap::new() };
        let topic = Topic::IngestEvents.name();
        for partition in 0..Admin::new(&self.log)?.partitions(topic).await? {
            let partition = TopicPartition::new(topic, partition);
            let mut range = Tail::read_range(&self.log, partition, StartAt::Beginning).await?;
            while let Some(record) = range.next().await? {
                if let Ok(Decoded::Event(event)) = self.schemas.decode::<IngestEvent>(&record) {
                    found.apply(event);
                }
            }
        }
        Ok(found.documents)
    }
}

/// The removal of a document that a query gives no rows for any more.
fn removal_id(start: &StartIngest, document: DocumentId) -> IngestId {
    IngestId::derive(&["rows-gone", &start.ingest_id.to_string(), &document.to_string()])
}

/// Which documents a request removes.
#[derive(Clone, Copy)]
enum Asked<'d> {
    /// All of a collection that were handed in before it.
    Collection(&'d DeleteCollection),
    /// Those of a query's rows behind the first `kept`.
    Batches { start: &'d StartIngest, base: &'d str, kept: usize },
}

impl Asked<'_> {
    fn is_here(self, namespace: &Namespace, collection: &CollectionName) -> bool {
        match self {
            Self::Collection(delete) => *namespace == delete.namespace && *collection == delete.collection,
            Self::Batches { start, .. } => *namespace == start.namespace && *collection == start.collection,
        }
    }

    /// Whether it removes a document that was split.
    fn means_split(self, source: &str, at: i64) -> bool {
        match self {
            Self::Collection(delete) => at <= delete.at,
            Self::Batches { .. } => self.means_queued(source),
        }
    }

    /// Whether it removes a document of which may be no more than that it was handed in: one that failed is to be seen, too.
    fn means_queued(self, source: &str) -> bool {
        match self {
            Self::Collection(_) => false,
            Self::Batches { base, kept, .. } => {
                batch_of(source).is_some_and(|(of, number)| of == base && number > kept)
            }
        }
    }

    /// Whether a removal is this very request's.
    fn is_own(self, removal: IngestId, document: DocumentId) -> bool {
        match self {
            Self::Collection(delete) => removal == delete.ingest_id,
            Self::Batches { start, .. } => removal == removal_id(start, document),
        }
    }
}

/// The documents that a request to remove them means. Pure.
struct Census<'d> {
    asked: Asked<'d>,
    documents: BTreeMap<DocumentId, String>,
}

impl Census<'_> {
    fn apply(&mut self, event: IngestEvent) {
        match event {
            IngestEvent::DocumentChunked(e) => {
                if self.asked.is_here(&e.namespace, &e.collection) && self.asked.means_split(&e.source, e.at) {
                    self.documents.insert(e.document_id, e.source);
                }
            }
            IngestEvent::DocumentQueued(e) => {
                if self.asked.is_here(&e.namespace, &e.collection) && self.asked.means_queued(&e.source) {
                    self.documents.insert(e.document_id, e.source);
                }
            }
            // One that this very request took away is counted again when its command is handed in again.
            IngestEvent::DocumentWithdrawn(e) => {
                if !self.asked.is_own(e.ingest_id, e.document_id) {
                    self.documents.remove(&e.document_id);
                }
            }
            IngestEvent::DocumentUnchanged(_)
            | IngestEvent::DocumentEmbedded(_)
            | IngestEvent::DocumentIndexed(_)
            | IngestEvent::DocumentFailed(_)
            | IngestEvent::DocumentDeleted(_)
            | IngestEvent::CollectionWithdrawn(_)
            | IngestEvent::CollectionReembedding(_)
            | IngestEvent::CollectionReembedded(_)
            | IngestEvent::CollectionReembedFailed(_)
            | IngestEvent::CollectionRebuilding(_)
            | IngestEvent::CollectionRebuilt(_)
            | IngestEvent::CollectionRebuildFailed(_)
            | IngestEvent::CollectionTuning(_)
            | IngestEvent::CollectionTuned(_)
            | IngestEvent::CollectionTuneFailed(_)
            | IngestEvent::IngestScanned(_)
            | IngestEvent::IngestFailed(_) => {}
        }
    }
}
