//! How far the read models have read the log.

use riverrun_schemas::Topic;
use serde::Serialize;
use sqlx::Row;

use crate::error::StoreError;
use crate::sql::{DbConnection, Sql};

/// The topics that read models are made of.
pub const PROJECTED_TOPICS: [Topic; 5] =
    [Topic::AgentEvents, Topic::IngestEvents, Topic::MemoryEvents, Topic::FinetuneEvents, Topic::ProjectsEvents];

/// How far one partition was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// The read model.
    pub projection: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Offset of the first record that is not in the rows yet.
    pub next_offset: i64,
}

/// The read model that a topic feeds.
pub(crate) fn projection_of(topic: Topic) -> Option<&'static str> {
    match topic {
        Topic::AgentEvents => Some("runs"),
        Topic::IngestEvents => Some("documents"),
        Topic::MemoryEvents => Some("memory"),
        Topic::FinetuneEvents => Some("finetune"),
        Topic::ProjectsEvents => Some("projects"),
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
        | Topic::Canvases => None,
    }
}

/// Offset of the first record of the partition that is not in the rows yet; 0 when none was read.
pub async fn next_offset(sql: &Sql, topic: Topic, partition: i32) -> Result<i64, StoreError> {
    let mut connection = sql.reader().acquire().await.map_err(StoreError::from)?;
    stored(&mut connection, topic, partition).await.map_err(|error| error.at(sql.path()))
}

/// Every checkpoint, by projection, topic and partition.
pub async fn checkpoints(sql: &Sql) -> Result<Vec<Checkpoint>, StoreError> {
    let mut connection = sql.reader().acquire().await?;
    all(&mut connection).await.map_err(|error| error.at(sql.path()))
}

pub(crate) async fn all(connection: &mut DbConnection) -> Result<Vec<Checkpoint>, StoreError> {
    let rows = sqlx::query(
        "SELECT projection, topic, partition, next_offset FROM checkpoints ORDER BY projection, topic, partition",
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Checkpoint {
                projection: row.try_get("projection")?,
                topic: row.try_get("topic")?,
                partition: partition_number(row.try_get("partition")?),
                next_offset: row.try_get("next_offset")?,
            })
        })
        .collect()
}

fn partition_number(stored: i64) -> i32 {
    i32::try_from(stored).unwrap_or(i32::MAX)
}

pub(crate) async fn stored(connection: &mut DbConnection, topic: Topic, partition: i32) -> Result<i64, StoreError> {
    let Some(projection) = projection_of(topic) else { return Ok(0) };
    let found: Option<i64> = sqlx::query_scalar(
        "SELECT next_offset FROM checkpoints WHERE projection = $1 AND topic = $2 AND partition = $3",
    )
    .bind(projection)
    .bind(topic.name())
    .bind(i64::from(partition))
    .fetch_optional(connection)
    .await?;
    Ok(found.unwrap_or(0))
}

pub(crate) async fn store(
    connection: &mut DbConnection,
    topic: Topic,
    partition: i32,
    next_offset: i64,
) -> Result<(), StoreError> {
    let Some(projection) = projection_of(topic) else { return Ok(()) };
    sqlx::query(
        "INSERT INTO checkpoints (projection, topic, partition, next_offset) VALUES ($1, $2, $3, $4)
         ON CONFLICT (projection, topic, partition) DO UPDATE SET next_offset = excluded.next_offset",
    )
    .bind(projection)
    .bind(topic.name())
    .bind(i64::from(partition))
    .bind(next_offset)
    .execute(connection)
    .await?;
    Ok(())
}
