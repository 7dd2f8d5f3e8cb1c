//! How many runs are open, for whoever watches the system. Costs as much as there are open runs, however many have ended.

use std::collections::BTreeMap;

use sqlx::Row;

use crate::error::StoreError;
use crate::sql::Sql;

/// The open runs in figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenRunCounts {
    /// By status.
    pub by_status: BTreeMap<String, i64>,
    /// When the oldest was accepted, in milliseconds since the epoch.
    pub oldest_at: Option<i64>,
    /// Those that are driven and of which nothing was heard since the given moment.
    pub silent: i64,
}

/// Counts the open runs; a running one whose last step is before `silent_since` (milliseconds since the epoch) is silent.
pub async fn open_run_counts(sql: &Sql, silent_since: i64) -> Result<OpenRunCounts, StoreError> {
    let rows = sqlx::query(
        "SELECT r.status AS status, COUNT(*) AS runs, MIN(r.created_at) AS oldest_at,
                SUM(CASE WHEN r.status = 'running' AND COALESCE(s.at, r.created_at) < $1 THEN 1 ELSE 0 END) AS silent
         FROM runs r LEFT JOIN run_steps s ON s.run_id = r.run_id AND s.seq = r.last_seq
         WHERE r.finished_at IS NULL
         GROUP BY r.status",
    )
    .bind(silent_since)
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let mut counts = OpenRunCounts::default();
    for row in rows {
        let oldest: Option<i64> = row.try_get("oldest_at")?;
        counts.by_status.insert(row.try_get("status")?, row.try_get("runs")?);
        counts.oldest_at = counts.oldest_at.into_iter().chain(oldest).min();
        counts.silent += row.try_get::<i64, _>("silent")?;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::RunId;

    use super::*;
    use crate::read_models::testing::{accepted, advanced, claimed, finished, fresh, of_run, records};
    use crate::read_models::{Projected, apply};

    #[tokio::test]
    async fn given_open_and_ended_runs_when_they_are_counted_then_only_open_ones_count_and_silent_ones_are_told() {
        let (_folder, sql) = fresh().await;
        assert_eq!(open_run_counts(&sql, 0).await.unwrap(), OpenRunCounts::default());
        let run = |name: &str| RunId::derive(&[name]);
        let events = [
            of_run(accepted(), run("queued")),
            of_run(accepted(), run("running")),
            of_run(claimed(1, "a"), run("running")),
            of_run(advanced(1, 1..3), run("running")),
            of_run(accepted(), run("ended")),
            of_run(claimed(1, "a"), run("ended")),
            of_run(finished(1), run("ended")),
        ];
        apply(&sql, &records(events, Projected::Agent)).await.unwrap();
        let counts = open_run_counts(&sql, 1_004).await.unwrap();
        assert_eq!(counts.by_status, BTreeMap::from([("queued".to_owned(), 1), ("running".to_owned(), 1)]));
        assert_eq!((counts.oldest_at, counts.silent), (Some(1_000), 0), "its last step is at 1004");
        assert_eq!(open_run_counts(&sql, 1_005).await.unwrap().silent, 1);
    }
}
