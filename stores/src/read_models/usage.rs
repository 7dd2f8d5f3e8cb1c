//! What runs used: sums over the table of runs.

use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::run_views::UsageView;
use crate::read_models::within::Within;
use crate::sql::Sql;

/// Groups of an answer at most; those that used most come first.
const MAX_GROUPS: i64 = 500;

/// What runs are summed by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// Their namespace.
    #[default]
    Namespace,
    /// The conversation that they belong to.
    Session,
    /// The model that they asked for.
    Model,
    /// The agent type.
    Agent,
}

impl UsageBy {
    /// The expression; what a run does not say is the empty text.
    fn expression(self) -> &'static str {
        match self {
            UsageBy::Namespace => "namespace",
            UsageBy::Session => "COALESCE(json_extract(request, '$.session'), '')",
            UsageBy::Model => {
                "CASE WHEN json_extract(request, '$.provider') IS NULL THEN '' ELSE json_extract(request, '$.provider') || '/' END \
                 || COALESCE(json_extract(request, '$.model'), '')"
            }
            UsageBy::Agent => "COALESCE(agent, '')",
        }
    }
}

/// What the runs of a group used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageSum {
    /// The group; empty for runs that name none, which for models means the default one.
    pub key: String,
    /// How many runs.
    pub runs: i64,
    /// Their tokens, and the cost of those whose price is known.
    pub usage: UsageView,
}

/// Sums over the runs that were accepted at or after `since_ms`, by group, the largest first.
pub async fn usage(
    sql: &Sql,
    by: UsageBy,
    within: Within<'_>,
    since_ms: Option<i64>,
) -> Result<Vec<UsageSum>, StoreError> {
    // The expression is one of four texts of this file.
    let query = format!(
        "SELECT {} AS usage_key, COUNT(*) AS runs, CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens, CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens, SUM(cost_usd) AS cost_usd
         FROM runs
         WHERE (CAST($1 AS TEXT) IS NULL OR namespace = $1) AND (CAST($2 AS BIGINT) IS NULL OR created_at >= $2)
         GROUP BY usage_key ORDER BY SUM(prompt_tokens + completion_tokens) DESC, usage_key LIMIT $3",
        by.expression()
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(within.as_sql())
        .bind(since_ms)
        .bind(MAX_GROUPS)
        .fetch_all(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter()
        .map(|row| {
            let (prompt_tokens, completion_tokens): (i64, i64) =
                (row.try_get("prompt_tokens")?, row.try_get("completion_tokens")?);
            let total_tokens = prompt_tokens + completion_tokens;
            let cost_usd = row.try_get("cost_usd")?;
            let usage = UsageView { prompt_tokens, completion_tokens, total_tokens, cost_usd };
            Ok(UsageSum { key: row.try_get("usage_key")?, runs: row.try_get("runs")?, usage })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::{AgentEvent, RunAccepted};
    use riverrun_schemas::{RunId, Topic};

    use super::*;
    use crate::read_models::testing::{accepted, claimed, finished, fresh, of_run};
    use crate::read_models::{LogRecord, Projected, apply};

    /// Three ended runs of 40 and 5 tokens each: two of the default namespace and model, one of another.
    async fn three_runs() -> (tempfile::TempDir, Sql) {
        let (folder, sql) = fresh().await;
        let mut records = Vec::new();
        for number in 0..3_i64 {
            let run_id = RunId::derive(&["usage", &number.to_string()]);
            let AgentEvent::RunAccepted(event) = accepted() else { unreachable!() };
            let mut request = event.request.clone();
            if number == 2 {
                request.namespace = "other".parse().unwrap();
                request.session = Some("s".into());
                (request.provider, request.model) = (Some("openai".into()), Some("gpt-4o".into()));
            } else {
                request.model = None;
            }
            let event = RunAccepted { run_id, request, forked_from: None, at: number * 1_000 };
            let events = [event.into(), of_run(claimed(1, "a"), run_id), of_run(finished(1), run_id)];
            records.extend(events.into_iter().map(Projected::Agent));
        }
        let record = |(offset, body)| LogRecord { topic: Topic::AgentEvents, partition: 0, offset, body };
        let records: Vec<LogRecord> = (0..).zip(records).map(record).collect();
        apply(&sql, &records).await.unwrap();
        (folder, sql)
    }

    #[tokio::test]
    async fn given_runs_when_their_usage_is_summed_then_groups_and_filters_hold() {
        let (_folder, sql) = three_runs().await;
        for (by, expected) in [
            (UsageBy::Namespace, [("default", 2), ("other", 1)].as_slice()),
            (UsageBy::Session, &[("", 2), ("s", 1)]),
            (UsageBy::Model, &[("", 2), ("openai/gpt-4o", 1)]),
            (UsageBy::Agent, &[("react", 3)]),
        ] {
            let sums = usage(&sql, by, Within::EveryNamespace, None).await.unwrap();
            let found: Vec<(&str, i64)> = sums.iter().map(|sum| (sum.key.as_str(), sum.runs)).collect();
            assert_eq!(found, expected, "{by:?}");
            assert!(sums.iter().all(|sum| sum.usage.total_tokens == 45 * sum.runs && sum.usage.cost_usd.is_none()));
        }
        let other = usage(&sql, UsageBy::Namespace, Within::Namespace(&"other".parse().unwrap()), None).await.unwrap();
        assert_eq!(other.len(), 1);
        let late = usage(&sql, UsageBy::Namespace, Within::EveryNamespace, Some(1_000)).await.unwrap();
        assert_eq!(late.iter().map(|sum| sum.runs).sum::<i64>(), 2);
    }
}
