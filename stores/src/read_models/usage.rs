//! What models were used for: sums over the table of runs, and over that of calls outside of runs.

use riverrun_schemas::finetune::ModelUsed;
use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::run_views::UsageView;
use crate::read_models::runs::number_text;
use crate::read_models::within::Within;
use crate::sql::{DbConnection, Sql, storable};

/// Groups of an answer at most; those that used most come first.
const MAX_GROUPS: i64 = 500;

/// What runs and calls are summed by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// Their namespace.
    #[default]
    Namespace,
    /// The conversation that they belong to.
    Session,
    /// The model: as `provider/model`, the one that answers.
    Model,
    /// The agent type; calls have none.
    Agent,
    /// What for: `run`, or what a call was made for.
    Purpose,
}

impl UsageBy {
    /// The expression over runs; what a run does not say is the empty text.
    fn of_runs(self) -> &'static str {
        match self {
            UsageBy::Namespace => "namespace",
            UsageBy::Session => "COALESCE(json_extract(request, '$.session'), '')",
            UsageBy::Model => {
                "CASE WHEN json_extract(request, '$.provider') IS NULL THEN '' ELSE json_extract(request, '$.provider') || '/' END \
                 || COALESCE(json_extract(request, '$.model'), '')"
            }
            UsageBy::Agent => "COALESCE(agent, '')",
            UsageBy::Purpose => "CAST('run' AS TEXT)",
        }
    }

    /// The expression over calls.
    fn of_calls(self) -> &'static str {
        match self {
            UsageBy::Namespace => "namespace",
            UsageBy::Session => "COALESCE(session, '')",
            UsageBy::Model => "provider || '/' || model",
            UsageBy::Agent => "CAST('' AS TEXT)",
            UsageBy::Purpose => "purpose",
        }
    }
}

/// What the runs and calls of a group used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageSum {
    /// The group; empty for runs that name none, which for models means the default one.
    pub key: String,
    /// How many runs.
    pub runs: i64,
    /// How many model calls outside of runs.
    #[serde(default)]
    pub calls: i64,
    /// Their tokens, and the cost of those whose price is known; the others are its `unpriced_tokens`.
    pub usage: UsageView,
}

/// Takes down what calls used. A sum that comes twice counts once.
pub(crate) async fn used(connection: &mut DbConnection, event: &ModelUsed) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO model_calls (use_id, namespace, session, purpose, provider, model, calls, prompt_tokens, completion_tokens, cost_usd, at_ms,
                                  unpriced_tokens, cached_prompt_tokens, cache_write_tokens)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, CAST($10 AS DOUBLE PRECISION), $11, $12, $13, $14)
         ON CONFLICT (use_id) DO NOTHING",
    )
    .bind(event.use_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.session.as_deref().map(storable))
    .bind(storable(&event.purpose))
    .bind(storable(&event.provider))
    .bind(storable(&event.model))
    .bind(event.calls)
    .bind(event.usage.prompt_tokens)
    .bind(event.usage.completion_tokens)
    // As text: see `number_text`.
    .bind(number_text(event.usage.cost_usd))
    .bind(event.at)
    .bind(event.usage.unpriced_tokens)
    .bind(event.usage.cached_prompt_tokens)
    .bind(event.usage.cache_write_tokens)
    .execute(connection)
    .await?;
    Ok(())
}

/// Sums over the runs that were accepted, and the calls that were taken down, at or after `since_ms`, by group, the largest first.
pub async fn usage(
    sql: &Sql,
    by: UsageBy,
    within: Within<'_>,
    since_ms: Option<i64>,
) -> Result<Vec<UsageSum>, StoreError> {
    // The expressions are texts of this file.
    let query = format!(
        "SELECT usage_key, CAST(SUM(runs) AS BIGINT) AS runs, CAST(SUM(calls) AS BIGINT) AS calls, CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
                CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens, SUM(cost_usd) AS cost_usd,
                CAST(SUM(unpriced_tokens) AS BIGINT) AS unpriced_tokens,
                CAST(SUM(cached_prompt_tokens) AS BIGINT) AS cached_prompt_tokens,
                CAST(SUM(cache_write_tokens) AS BIGINT) AS cache_write_tokens
         FROM (SELECT {} AS usage_key, 1 AS runs, 0 AS calls, prompt_tokens, completion_tokens, cost_usd, unpriced_tokens,
                      cached_prompt_tokens, cache_write_tokens
               FROM runs
               WHERE (CAST($1 AS TEXT) IS NULL OR namespace = $1) AND (CAST($2 AS BIGINT) IS NULL OR created_at >= $2)
               UNION ALL
               SELECT {} AS usage_key, 0 AS runs, calls, prompt_tokens, completion_tokens, cost_usd, unpriced_tokens,
                      cached_prompt_tokens, cache_write_tokens
               FROM model_calls
               WHERE (CAST($1 AS TEXT) IS NULL OR namespace = $1) AND (CAST($2 AS BIGINT) IS NULL OR at_ms >= $2)) AS used
         GROUP BY usage_key ORDER BY SUM(prompt_tokens + completion_tokens) DESC, usage_key LIMIT $3",
        by.of_runs(),
        by.of_calls()
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
            let usage = UsageView {
                prompt_tokens,
                completion_tokens,
                total_tokens: prompt_tokens + completion_tokens,
                cost_usd: row.try_get("cost_usd")?,
                unpriced_tokens: row.try_get("unpriced_tokens")?,
                cached_prompt_tokens: row.try_get("cached_prompt_tokens")?,
                cache_write_tokens: row.try_get("cache_write_tokens")?,
            };
            let (runs, calls) = (row.try_get("runs")?, row.try_get("calls")?);
            Ok(UsageSum { key: row.try_get("usage_key")?, runs, calls, usage })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::{AgentEvent, RunAccepted};
    use riverrun_schemas::finetune::FinetuneEvent;
    use riverrun_schemas::{EventId, RunId};

    use super::*;
    use crate::read_models::testing::{accepted, claimed, finished, fresh, of_run, records};
    use crate::read_models::{Projected, apply, rebuild};

    /// Three ended runs of 40 and 5 tokens each: two of the default namespace and model, one of another.
    async fn three_runs() -> (tempfile::TempDir, Sql) {
        let (folder, sql) = fresh().await;
        let mut all = Vec::new();
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
            all.extend(events);
        }
        apply(&sql, &records(all, Projected::Agent)).await.unwrap();
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
            (UsageBy::Purpose, &[("run", 3)]),
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

    fn used(number: &str, purpose: &str, session: Option<&str>, cost_usd: Option<f64>) -> FinetuneEvent {
        ModelUsed {
            use_id: EventId::derive(&["used", number]),
            namespace: "other".parse().unwrap(),
            session: session.map(Into::into),
            purpose: purpose.into(),
            provider: "openai".into(),
            model: "gpt-4o".into(),
            calls: 2,
            usage: riverrun_schemas::Usage {
                prompt_tokens: 100,
                completion_tokens: 1,
                cost_usd,
                unpriced_tokens: if cost_usd.is_none() { 101 } else { 0 },
                cached_prompt_tokens: 60,
                cache_write_tokens: 7,
            },
            at: 5_000,
        }
        .into()
    }

    #[tokio::test]
    async fn given_calls_outside_of_runs_when_usage_is_summed_then_they_count_once_beside_the_runs_of_their_group() {
        let (_folder, sql) = three_runs().await;
        let events = [
            used("1", "chat", None, Some(0.5)),
            used("2", "memory", Some("s"), None),
            used("1", "chat", None, Some(0.5)),
        ];
        apply(&sql, &records(events, Projected::Finetune)).await.unwrap();
        for (by, expected) in [
            (UsageBy::Namespace, [("other", 1, 4, 247), ("default", 2, 0, 90)].as_slice()),
            (UsageBy::Session, &[("", 2, 2, 191), ("s", 1, 2, 146)]),
            (UsageBy::Model, &[("openai/gpt-4o", 1, 4, 247), ("", 2, 0, 90)]),
            (UsageBy::Agent, &[("", 0, 4, 202), ("react", 3, 0, 135)]),
            (UsageBy::Purpose, &[("run", 3, 0, 135), ("chat", 0, 2, 101), ("memory", 0, 2, 101)]),
        ] {
            let sums = usage(&sql, by, Within::EveryNamespace, None).await.unwrap();
            let found: Vec<_> =
                sums.iter().map(|sum| (sum.key.as_str(), sum.runs, sum.calls, sum.usage.total_tokens)).collect();
            assert_eq!(found, expected, "{by:?}");
        }
        let by_model = usage(&sql, UsageBy::Model, Within::EveryNamespace, Some(3_000)).await.unwrap();
        assert_eq!((by_model.len(), by_model[0].runs, by_model[0].usage.cost_usd), (1, 0, Some(0.5)));
        rebuild(&sql).await.unwrap();
        assert!(usage(&sql, UsageBy::Model, Within::EveryNamespace, None).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn given_runs_and_calls_without_a_price_when_usage_is_summed_then_groups_say_how_many_tokens() {
        let (_folder, sql) = three_runs().await;
        let run_id = RunId::derive(&["usage", "unpriced"]);
        let AgentEvent::RunAccepted(event) = accepted() else { unreachable!() };
        let mut request = event.request.clone();
        (request.namespace, request.session) = ("other".parse().unwrap(), Some("s".into()));
        (request.provider, request.model) = (Some("mistral".into()), Some("mistral-large".into()));
        let accepted = RunAccepted { run_id, request, forked_from: None, at: 4_000 };
        let AgentEvent::RunFinished(mut ended) = finished(1) else { unreachable!() };
        ended.usage.unpriced_tokens = 45;
        let ended = of_run(ended.into(), run_id);
        let mut events = records([accepted.into(), of_run(claimed(1, "a"), run_id), ended], Projected::Agent);
        // The offsets of the other runs are taken.
        events.iter_mut().for_each(|record| record.partition = 1);
        apply(&sql, &events).await.unwrap();
        let events = [used("1", "chat", None, Some(0.5)), used("2", "memory", Some("s"), None)];
        apply(&sql, &records(events, Projected::Finetune)).await.unwrap();
        for (by, expected) in [
            (UsageBy::Namespace, [("other", Some(0.5), 146), ("default", None, 0)].as_slice()),
            (UsageBy::Session, &[("", Some(0.5), 0), ("s", None, 146)]),
            (UsageBy::Model, &[("openai/gpt-4o", Some(0.5), 101), ("", None, 0), ("mistral/mistral-large", None, 45)]),
        ] {
            let sums = usage(&sql, by, Within::EveryNamespace, None).await.unwrap();
            let found: Vec<_> =
                sums.iter().map(|sum| (sum.key.as_str(), sum.usage.cost_usd, sum.usage.unpriced_tokens)).collect();
            assert_eq!(found, expected, "{by:?}");
        }
        let sums = usage(&sql, UsageBy::Namespace, Within::EveryNamespace, None).await.unwrap();
        assert_eq!((sums[0].usage.cached_prompt_tokens, sums[0].usage.cache_write_tokens), (120, 14));
        let run = crate::read_models::runs::run(&sql, Within::EveryNamespace, run_id).await.unwrap().unwrap();
        assert_eq!((run.usage.cost_usd, run.usage.unpriced_tokens), (None, 45), "a run says it of itself");
        let shown = serde_json::to_value(sums[1].usage).unwrap();
        assert!(shown.get("unpriced_tokens").is_none(), "what says nothing is left out: {shown}");
    }
}
