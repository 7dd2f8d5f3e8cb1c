//! The keeper of documents: from events of canvases to the document store.
//!
//! Like the projector it reads every partition itself, outside of any group: where it goes on is kept beside the documents, so that
//! a store that was lost, or is an older copy, is made again from the log (`DOC-1`).

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_log::{LogConfig, Producer, Record, Schemas};
use riverrun_schemas::canvases::CanvasEvent;
use riverrun_schemas::{DecodeError, Decoded, Topic};
use riverrun_stores::documents::project;
use riverrun_stores::{DocumentStore, StoreError};
use tokio_util::sync::CancellationToken;

use crate::follower::{self, FollowerConfig, Read, View};
use crate::runtime::WorkerHandle;

/// What the keeper works with.
#[derive(Clone)]
pub struct DocumentsConfig {
    /// How to reach the log.
    pub log: LogConfig,
    /// Writes dead letters.
    pub producer: Producer,
    /// Reads records of any version.
    pub schemas: Schemas,
    /// Where the documents are.
    pub store: Arc<dyn DocumentStore>,
    /// Cancelled once the store shows what was on the log when the keeper began.
    pub caught_up: CancellationToken,
}

/// Keeps the store up to date until `stop` is cancelled.
pub fn spawn(config: DocumentsConfig, stop: CancellationToken) -> WorkerHandle {
    let DocumentsConfig { log, producer, schemas, store, caught_up } = config;
    follower::spawn(Documents { store }, FollowerConfig { log, producer, schemas, caught_up }, stop)
}

struct Documents {
    store: Arc<dyn DocumentStore>,
}

impl View for Documents {
    type Event = CanvasEvent;
    /// A partition's events with their offsets.
    type Batch = BTreeMap<i32, Vec<(i64, Option<CanvasEvent>)>>;

    const NAME: &'static str = "documents";
    const KEEPS: &'static str = "the documents";
    const TOPICS: &'static [Topic] = &[Topic::Canvases];
    const MAX_BATCH: usize = 256;

    async fn next_offset(&self, topic: Topic, partition: i32) -> Result<i64, StoreError> {
        self.store.next_offset(topic, partition).await
    }

    fn decode(schemas: &Schemas, _: Topic, record: &Record) -> Result<Decoded<CanvasEvent>, DecodeError> {
        schemas.decode(record)
    }

    fn batch(records: Vec<Read<CanvasEvent>>) -> Self::Batch {
        let mut partitions = Self::Batch::new();
        for read in records {
            partitions.entry(read.partition).or_default().push((read.offset, read.event));
        }
        partitions
    }

    async fn write(&self, partitions: &Self::Batch) -> Result<(), StoreError> {
        for (partition, events) in partitions {
            project(self.store.as_ref(), *partition, events).await?;
        }
        Ok(())
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.store.clear().await
    }
}
