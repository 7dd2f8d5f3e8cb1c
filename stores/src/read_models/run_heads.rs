//! Runs in short, for those who follow the log beside the read model.

use riverrun_schemas::RunId;
use riverrun_schemas::agent::RunRequest;
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::checkpoint::{self, Checkpoint};
use crate::read_models::run_fold::RunGate;
use crate::read_models::run_views::RunStatus;
use crate::read_models::runs::{from_json, id, waiting};
use crate::sql::Sql;

/// A run without what happened in it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunHead {
    /// Where it is.
    pub status: RunStatus,
    /// The agent type at work.
    pub agent: Option<String>,
    /// What it was asked to do, as it was accepted.
    pub request: RunRequest,
}

/// The run in short; `None` when there is none.
pub async fn head(sql: &Sql, run_id: RunId) -> Result<Option<RunHead>, StoreError> {
    let key = run_id.to_string();
    let row = sqlx::query("SELECT status, agent, request FROM runs WHERE run_id = $1")
        .bind(&key)
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.map(|row| {
        let status: String = row.try_get("status")?;
        let status = status.parse().map_err(|reason| StoreError::Row { table: "runs", key: key.clone(), reason })?;
        Ok(RunHead { status, agent: row.try_get("agent")?, request: from_json("runs", &key, row.try_get("request")?)? })
    })
    .transpose()
}

/// The runs that have not ended, and how far the read models were at that very moment: whoever folds on from those
/// offsets with these gates misses nothing and counts nothing twice.
#[derive(Debug, Clone, Default)]
pub struct OpenRuns {
    /// How far the read models had read.
    pub checkpoints: Vec<Checkpoint>,
    /// What the events so far let through next.
    pub gates: Vec<(RunId, RunGate)>,
}

/// The open runs of one moment.
pub async fn open_runs(sql: &Sql) -> Result<OpenRuns, StoreError> {
    let attempt = async {
        let mut transaction = sql.snapshot().await?;
        let checkpoints = checkpoint::all(&mut transaction).await?;
        let rows = sqlx::query("SELECT run_id, epoch, owner, last_seq, waiting FROM runs WHERE finished_at IS NULL")
            .fetch_all(&mut *transaction)
            .await?;
        let gates = rows
            .into_iter()
            .map(|row| {
                let run_id = id("runs", row.try_get("run_id")?)?;
                let gate = RunGate {
                    accepted: true,
                    epoch: row.try_get("epoch")?,
                    owner: row.try_get("owner")?,
                    last_seq: row.try_get("last_seq")?,
                    waiting: waiting(&row)?,
                    ended: false,
                };
                Ok((run_id, gate))
            })
            .collect::<Result<_, StoreError>>()?;
        Ok(OpenRuns { checkpoints, gates })
    };
    attempt.await.map_err(|error: StoreError| error.at(sql.path()))
}
