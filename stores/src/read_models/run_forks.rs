//! Runs that branched off others, and the steps that a new branch begins with.

use riverrun_schemas::RunId;
use riverrun_schemas::agent::Step;
use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::run_views::{ForkView, RunStatus};
use crate::read_models::runs::{forked_from, from_json, id, status};
use crate::read_models::time::Timestamp;
use crate::sql::{DbConnection, DbRow, Sql};

/// Most runs of a tree that are shown.
pub const MAX_TREE: i64 = 1_000;
/// How far up the root of a tree is looked for.
const MAX_DEPTH: usize = 1_000;

/// A run of a tree of forks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TreeNode {
    /// The run.
    #[schema(value_type = String)]
    pub run_id: RunId,
    /// Where it branched off; null for the root.
    pub forked_from: Option<ForkView>,
    /// Where it is.
    pub status: RunStatus,
    /// The agent type at work.
    pub agent: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// What it was asked to do.
    pub task: String,
    /// How many steps it has, the copied ones included.
    pub steps: i64,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// A run's first `count` steps, whole; fewer when there are fewer.
pub async fn first_steps(sql: &Sql, run_id: RunId, count: i64) -> Result<Vec<Step>, StoreError> {
    let key = run_id.to_string();
    let rows = sqlx::query("SELECT step FROM run_steps WHERE run_id = $1 AND seq <= $2 ORDER BY seq")
        .bind(&key)
        .bind(count)
        .fetch_all(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter().map(|row| from_json("run_steps", &key, row.try_get("step")?)).collect()
}

/// Everything that branched off the same root as this run, the root first, each behind the run that it branched off;
/// empty when there is no such run. At most [`MAX_TREE`].
pub async fn tree(sql: &Sql, run_id: RunId) -> Result<Vec<TreeNode>, StoreError> {
    let attempt = async {
        let mut transaction = sql.snapshot().await?;
        let root = root_of(&mut transaction, run_id).await?;
        let rows = sqlx::query(
            "WITH RECURSIVE branch (run_id) AS (
                 SELECT run_id FROM runs WHERE run_id = $1
                 UNION SELECT runs.run_id FROM runs JOIN branch ON runs.forked_from = branch.run_id
             )
             SELECT runs.run_id, status, agent, request, last_seq, forked_from, forked_at_seq, created_at
             FROM runs JOIN branch ON runs.run_id = branch.run_id
             ORDER BY created_at, runs.run_id LIMIT $2",
        )
        .bind(root.to_string())
        .bind(MAX_TREE)
        .fetch_all(&mut *transaction)
        .await?;
        rows.iter().map(node).collect::<Result<Vec<_>, StoreError>>()
    };
    attempt.await.map_err(|error: StoreError| error.at(sql.path()))
}

/// The run at the top; a source that is not there ends the way up.
async fn root_of(connection: &mut DbConnection, run_id: RunId) -> Result<RunId, StoreError> {
    let mut root = run_id;
    for _ in 0..MAX_DEPTH {
        let row = sqlx::query(
            "SELECT forked_from, forked_at_seq FROM runs
             WHERE run_id = $1 AND forked_from IN (SELECT run_id FROM runs)",
        )
        .bind(root.to_string())
        .fetch_optional(&mut *connection)
        .await?;
        match row.as_ref().map(forked_from).transpose()?.flatten() {
            Some(from) if from.run_id != root => root = from.run_id,
            _ => break,
        }
    }
    Ok(root)
}

fn node(row: &DbRow) -> Result<TreeNode, StoreError> {
    let key: String = row.try_get("run_id")?;
    let request: riverrun_schemas::agent::RunRequest = from_json("runs", &key, row.try_get("request")?)?;
    Ok(TreeNode {
        run_id: id("runs", &key)?,
        forked_from: forked_from(row)?.as_ref().map(ForkView::from),
        status: status(row)?,
        agent: row.try_get("agent")?,
        model: request.model,
        task: request.task,
        steps: row.try_get("last_seq")?,
        created_at: Timestamp(row.try_get("created_at")?),
    })
}
