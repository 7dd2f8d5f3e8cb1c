//! The way into the read models: records of the log, in batches, each batch one transaction.

use std::collections::HashMap;

use riverrun_schemas::Topic;
use riverrun_schemas::agent::AgentEvent;
use riverrun_schemas::finetune::FinetuneEvent;
use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::memory::MemoryEvent;
use riverrun_schemas::projects::ProjectEvent;

use crate::error::StoreError;
use crate::read_models::run_fold::Verdict;
use crate::read_models::{checkpoint, documents, finetune, memory, projects, runs};
use crate::sql::{DbConnection, Sql};

/// A record of a projected topic.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// Its topic.
    pub topic: Topic,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// What it says.
    pub body: Projected,
}

/// What a record says to the read models.
#[derive(Debug, Clone, PartialEq)]
pub enum Projected {
    /// An event of a run.
    Agent(AgentEvent),
    /// An event of a document or of a request to read some.
    Ingest(IngestEvent),
    /// An event of a conversation.
    Memory(MemoryEvent),
    /// An event of a dataset, a training or a model.
    Finetune(FinetuneEvent),
    /// An event of a project.
    Project(ProjectEvent),
    /// Nothing that this build can read: only the checkpoint moves.
    Nothing,
}

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Records that changed rows.
    pub applied: usize,
    /// Records that the fold left out, by reason.
    pub ignored: HashMap<&'static str, usize>,
    /// Records that were in the rows already.
    pub known: usize,
    /// Records without anything for the read models.
    pub nothing: usize,
}

/// Writes a batch and how far it reaches in one transaction. Records of one partition must come in offset order; those
/// before the partition's checkpoint are skipped, so a batch may be handed in again.
pub async fn apply(sql: &Sql, batch: &[LogRecord]) -> Result<Applied, StoreError> {
    if batch.is_empty() {
        return Ok(Applied::default());
    }
    let attempt = async {
        let mut transaction = sql.begin().await?;
        let applied = apply_all(&mut transaction, batch).await?;
        transaction.commit().await?;
        Ok(applied)
    };
    attempt.await.map_err(|error: StoreError| error.at(sql.path()))
}

async fn apply_all(connection: &mut DbConnection, batch: &[LogRecord]) -> Result<Applied, StoreError> {
    let mut next_offsets: HashMap<(Topic, i32), i64> = HashMap::new();
    let mut gates = runs::Gates::default();
    let mut outcome = Applied::default();
    for record in batch {
        let place = (record.topic, record.partition);
        let next = match next_offsets.get(&place) {
            Some(next) => *next,
            None => checkpoint::stored(connection, record.topic, record.partition).await?,
        };
        if record.offset < next {
            outcome.known += 1;
            next_offsets.entry(place).or_insert(next);
            continue;
        }
        match &record.body {
            Projected::Agent(event) => {
                match runs::apply(connection, &mut gates, (record.partition, record.offset), event).await? {
                    Verdict::Admitted => outcome.applied += 1,
                    Verdict::Ignored(void) => *outcome.ignored.entry(void.as_str()).or_default() += 1,
                }
            }
            Projected::Ingest(event) => {
                documents::apply(connection, event).await?;
                outcome.applied += 1;
            }
            Projected::Memory(event) => {
                memory::apply(connection, event).await?;
                outcome.applied += 1;
            }
            Projected::Finetune(event) => {
                finetune::apply(connection, event).await?;
                outcome.applied += 1;
            }
            Projected::Project(event) => {
                projects::apply(connection, event).await?;
                outcome.applied += 1;
            }
            Projected::Nothing => outcome.nothing += 1,
        }
        next_offsets.insert(place, record.offset + 1);
    }
    for ((topic, partition), next) in next_offsets {
        checkpoint::store(connection, topic, partition, next).await?;
    }
    Ok(outcome)
}

/// Empties every read model and forgets how far it was read: whoever feeds them starts again at offset 0.
pub async fn rebuild(sql: &Sql) -> Result<(), StoreError> {
    let attempt = async {
        let mut transaction = sql.begin().await?;
        for table in [
            "DELETE FROM run_steps",
            "DELETE FROM run_after",
            "DELETE FROM runs",
            "DELETE FROM ingest_documents",
            "DELETE FROM ingests",
            "DELETE FROM document_versions",
            "DELETE FROM documents",
            "DELETE FROM collections",
            "DELETE FROM memory_receipts",
            "DELETE FROM memory_sources",
            "DELETE FROM memory_items",
            "DELETE FROM memory_summaries",
            "DELETE FROM memory_turns",
            "DELETE FROM deleted_documents",
            "DELETE FROM deletions",
            "DELETE FROM reembeddings",
            "DELETE FROM tunings",
            "DELETE FROM rebuilds",
            "DELETE FROM finetune_steps",
            "DELETE FROM finetune_jobs",
            "DELETE FROM finetune_models",
            "DELETE FROM finetune_datasets",
            "DELETE FROM model_cards",
            "DELETE FROM model_calls",
            "DELETE FROM project_changes",
            "DELETE FROM project_proposals",
            "DELETE FROM project_analyses",
            "DELETE FROM projects",
            "DELETE FROM checkpoints",
        ] {
            sqlx::query(table).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    };
    attempt.await.map_err(|error: StoreError| error.at(sql.path()))
}
