//! The steps that a new branch of a run begins with.

use riverrun_schemas::RunId;
use riverrun_schemas::agent::Step;
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::runs::from_json;
use crate::sql::Sql;

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
