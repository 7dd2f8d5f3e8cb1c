//! The projector: from events to read models.
//!
//! It reads every partition itself, outside of any group: where it goes on is written beside the rows, in the same
//! transaction (`READ-1`).

use riverrun_log::{LogConfig, Producer, Record, Schemas};
use riverrun_schemas::agent::AgentEvent;
use riverrun_schemas::finetune::FinetuneEvent;
use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::memory::MemoryEvent;
use riverrun_schemas::projects::ProjectEvent;
use riverrun_schemas::{DecodeError, Decoded, Topic};
use riverrun_stores::read_models::{self, LogRecord, PROJECTED_TOPICS, Projected};
use riverrun_stores::{Sql, StoreError};
use tokio_util::sync::CancellationToken;

use crate::follower::{self, FollowerConfig, Read, View};
use crate::runtime::WorkerHandle;

/// What the projector works with.
#[derive(Debug, Clone)]
pub struct ProjectorConfig {
    /// How to reach the log.
    pub log: LogConfig,
    /// Writes dead letters.
    pub producer: Producer,
    /// Reads records of any version.
    pub schemas: Schemas,
    /// Where the read models are.
    pub sql: Sql,
    /// Cancelled once the read models show what was on the log when the projector began.
    pub caught_up: CancellationToken,
}

/// Keeps the read models up to date until `stop` is cancelled. One projector a database.
pub fn spawn(config: ProjectorConfig, stop: CancellationToken) -> WorkerHandle {
    let ProjectorConfig { log, producer, schemas, sql, caught_up } = config;
    follower::spawn(ReadModels { sql }, FollowerConfig { log, producer, schemas, caught_up }, stop)
}

struct ReadModels {
    sql: Sql,
}

impl View for ReadModels {
    type Event = Projected;
    type Batch = Vec<LogRecord>;

    const NAME: &'static str = "projector";
    const KEEPS: &'static str = "the read models";
    const TOPICS: &'static [Topic] = &PROJECTED_TOPICS;
    const ANSWERS_FOR: &'static [Topic] = &PROJECTED_TOPICS;
    const MAX_BATCH: usize = 512;

    async fn next_offset(&self, topic: Topic, partition: i32) -> Result<i64, StoreError> {
        read_models::next_offset(&self.sql, topic, partition).await
    }

    fn decode(schemas: &Schemas, topic: Topic, record: &Record) -> Result<Decoded<Projected>, DecodeError> {
        Ok(match topic {
            Topic::AgentEvents => schemas.decode::<AgentEvent>(record)?.map(Projected::Agent),
            Topic::IngestEvents => schemas.decode::<IngestEvent>(record)?.map(Projected::Ingest),
            Topic::MemoryEvents => schemas.decode::<MemoryEvent>(record)?.map(Projected::Memory),
            Topic::FinetuneEvents => schemas.decode::<FinetuneEvent>(record)?.map(Projected::Finetune),
            Topic::ProjectsEvents => schemas.decode::<ProjectEvent>(record)?.map(Projected::Project),
            Topic::AgentCommands
            | Topic::ProjectsCommands
            | Topic::IngestCommands
            | Topic::IngestChunks
            | Topic::IngestEmbeddings
            | Topic::Tokens
            | Topic::ToolsCalls
            | Topic::ToolsResults
            | Topic::Documents
            | Topic::FinetuneCommands
            | Topic::Canvases => Decoded::Event(Projected::Nothing),
        })
    }

    fn batch(records: Vec<Read<Projected>>) -> Vec<LogRecord> {
        let record = |Read { topic, partition, offset, event }| {
            let body = event.unwrap_or(Projected::Nothing);
            LogRecord { topic, partition, offset, body }
        };
        records.into_iter().map(record).collect()
    }

    async fn write(&self, records: &Vec<LogRecord>) -> Result<(), StoreError> {
        let applied = read_models::apply(&self.sql, records).await?;
        for (reason, events) in &applied.ignored {
            tracing::info!(reason, events, "events of runs were ignored");
        }
        Ok(())
    }

    async fn clear(&self) -> Result<(), StoreError> {
        read_models::rebuild(&self.sql).await
    }
}
