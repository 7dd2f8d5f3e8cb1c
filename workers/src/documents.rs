//! The keeper of documents: from events of canvases, of documents of collections and of projects to the document store.
//!
//! Like the projector it reads every partition itself, outside of any group: where it goes on is kept beside the documents, so that
//! a store that was lost, or is an older copy, is made again from the log (`DOC-1`).

use std::collections::HashMap;
use std::sync::Arc;

use riverrun_log::{BlobStore, LogConfig, Producer, Record, Schemas};
use riverrun_schemas::canvases::CanvasEvent;
use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::projects::ProjectEvent;
use riverrun_schemas::{BlobRef, DecodeError, Decoded, Topic};
use riverrun_stores::documents::{DOCUMENT_TOPICS, DocumentEvent, project, report_of};
use riverrun_stores::{DocumentStore, StoreError};
use tokio_util::sync::CancellationToken;

use crate::follower::{self, FollowerConfig, Read, View};
use crate::runtime::WorkerHandle;

/// About most bytes of reports that are written together.
const MAX_REPORTS_BYTES: usize = 8 << 20;

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
    /// Where the reports are that events name. Without it reports are left to a keeper that has it: their place in the log stays.
    pub blobs: Option<Arc<dyn BlobStore>>,
    /// Cancelled once the store shows what was on the log when the keeper began.
    pub caught_up: CancellationToken,
}

/// Keeps the store up to date until `stop` is cancelled.
pub fn spawn(config: DocumentsConfig, stop: CancellationToken) -> WorkerHandle {
    let DocumentsConfig { log, producer, schemas, store, blobs, caught_up } = config;
    follower::spawn(Documents { store, blobs }, FollowerConfig { log, producer, schemas, caught_up }, stop)
}

struct Documents {
    store: Arc<dyn DocumentStore>,
    blobs: Option<Arc<dyn BlobStore>>,
}

/// Events with their offsets, in the order of the log.
type Events = Vec<(i64, Option<DocumentEvent>)>;

impl View for Documents {
    type Event = DocumentEvent;
    /// The events of a partition.
    type Batch = HashMap<(Topic, i32), Events>;

    const NAME: &'static str = "documents";
    const KEEPS: &'static str = "the documents";
    const TOPICS: &'static [Topic] = &DOCUMENT_TOPICS;
    // The projector, which is in the same process, reads the others too.
    const ANSWERS_FOR: &'static [Topic] = &[Topic::Canvases];
    const MAX_BATCH: usize = 256;

    async fn next_offset(&self, topic: Topic, partition: i32) -> Result<i64, StoreError> {
        self.store.next_offset(topic, partition).await
    }

    fn decode(schemas: &Schemas, topic: Topic, record: &Record) -> Result<Decoded<DocumentEvent>, DecodeError> {
        Ok(match topic {
            Topic::Canvases => schemas.decode::<CanvasEvent>(record)?.map(DocumentEvent::from),
            Topic::IngestEvents => schemas.decode::<IngestEvent>(record)?.map(DocumentEvent::from),
            Topic::ProjectsEvents => schemas.decode::<ProjectEvent>(record)?.map(DocumentEvent::from),
            // Nobody asks for these.
            Topic::AgentCommands
            | Topic::AgentEvents
            | Topic::ProjectsCommands
            | Topic::IngestCommands
            | Topic::IngestChunks
            | Topic::IngestEmbeddings
            | Topic::MemoryEvents
            | Topic::Tokens
            | Topic::ToolsCalls
            | Topic::ToolsResults
            | Topic::Documents
            | Topic::FinetuneCommands
            | Topic::FinetuneEvents => Decoded::UnknownType { record: topic.name().to_owned() },
        })
    }

    fn batch(records: Vec<Read<DocumentEvent>>) -> Self::Batch {
        let mut partitions = Self::Batch::new();
        for Read { topic, partition, offset, event } in records {
            partitions.entry((topic, partition)).or_default().push((offset, event));
        }
        partitions
    }

    async fn write(&self, partitions: &Self::Batch) -> Result<(), StoreError> {
        for ((topic, partition), events) in partitions {
            if *topic == Topic::ProjectsEvents {
                self.write_reports(*partition, events).await?;
            } else {
                project(self.store.as_ref(), *topic, *partition, events).await?;
            }
        }
        Ok(())
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.store.clear().await
    }
}

impl Documents {
    /// Writes events of projects with the reports that they name, a part of them at a time: reports are large.
    async fn write_reports(&self, partition: i32, events: &[(i64, Option<DocumentEvent>)]) -> Result<(), StoreError> {
        let Some(blobs) = &self.blobs else { return Ok(()) };
        let topic = Topic::ProjectsEvents;
        let next = self.store.next_offset(topic, partition).await?;
        let (mut part, mut bytes) = (Events::new(), 0);
        for (offset, event) in events.iter().filter(|(offset, _)| *offset >= next) {
            let mut event = event.clone();
            if let Some(DocumentEvent::Project { event, report }) = &mut event
                && let Some(named) = report_of(event)
            {
                *report = text(blobs.as_ref(), named).await?;
                bytes += report.as_ref().map_or(0, String::len);
            }
            part.push((*offset, event));
            if bytes >= MAX_REPORTS_BYTES {
                project(self.store.as_ref(), topic, partition, &part).await?;
                part.clear();
                bytes = 0;
            }
        }
        project(self.store.as_ref(), topic, partition, &part).await
    }
}

/// The text of a report; `None` when it is not to be had any more. A blob store that is away is waited for.
async fn text(blobs: &dyn BlobStore, report: &BlobRef) -> Result<Option<String>, StoreError> {
    match blobs.get(report).await {
        Ok(bytes) => Ok(String::from_utf8(bytes.to_vec()).ok()),
        Err(error) if error.retryable() => Err(StoreError::Server {
            service: "the blob store",
            address: "RIVERRUN_S3_BUCKET, or the data folder where it is unset".to_owned(),
            reason: error.to_string(),
            fix: "bring it back: riverrun diagnose tells where it is".to_owned(),
        }),
        Err(error) => {
            tracing::warn!(error = %error, "a report can't be read and is not kept");
            Ok(None)
        }
    }
}
