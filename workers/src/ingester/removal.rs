//! What is said when a document or a collection is to go.
//!
//! A document's removal follows its chunks through chunks and embeddings, in their order: whatever was on its way is
//! indexed before it, and removed by it. What the documents of a collection are is asked of the log.

use std::collections::BTreeMap;

use riverrun_log::admin::Admin;
use riverrun_log::{LogConfig, LogError, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::ingest::{
    ChunksWithdrawn, CollectionWithdrawn, DeleteCollection, DeleteDocument, DocumentWithdrawn, IngestEvent,
};
use riverrun_schemas::{Decoded, DocumentId, Topic, now_ms};
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
        let documents = self.documents(delete).await.map_err(|error| log_retry(&error))?;
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

    async fn documents(&self, delete: &DeleteCollection) -> Result<BTreeMap<DocumentId, String>, LogError> {
        let mut found = Census { delete, documents: BTreeMap::new() };
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

/// The documents of a collection that a request to remove them means. Pure.
struct Census<'d> {
    delete: &'d DeleteCollection,
    documents: BTreeMap<DocumentId, String>,
}

impl Census<'_> {
    fn apply(&mut self, event: IngestEvent) {
        match event {
            IngestEvent::DocumentChunked(e) => {
                let here = e.namespace == self.delete.namespace && e.collection == self.delete.collection;
                if here && e.at <= self.delete.at {
                    self.documents.insert(e.document_id, e.source);
                }
            }
            // One that this very request took away is counted again when its command is handed in again.
            IngestEvent::DocumentWithdrawn(e) => {
                if e.ingest_id != self.delete.ingest_id {
                    self.documents.remove(&e.document_id);
                }
            }
            IngestEvent::DocumentQueued(_)
            | IngestEvent::DocumentUnchanged(_)
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
