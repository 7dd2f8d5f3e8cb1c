//! Runs and their steps.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use riverrun_schemas::agent::{
    AgentEvent, ForkedFrom, RunAccepted, RunAdvanced, RunApprovalDecided, RunCancelRequested, RunClaimed, RunFinished,
    RunRequest, Step,
};
use riverrun_schemas::{ChainId, RunId, Usage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::page::{Page, PageRequest, TimeCursor};
use crate::read_models::run_fold::{RunGate, Verdict};
use crate::read_models::run_views::{
    ChainLinkView, DecisionView, ForkView, RunStatus, RunSummary, RunView, StepView, citation_view, failure_view,
    json_or_text, pending_approvals, step_view, usage_view,
};
use crate::read_models::time::Timestamp;
use crate::read_models::within::Within;
use crate::sql::{DbConnection, DbRow, Sql, storable};

/// Runs that one statement asks for: less than either database takes values.
const IDS_AT_ONCE: usize = 1_000;

// ---- projection ----

/// Gates of the runs that a batch has met, so that each is read once a batch.
#[derive(Default)]
pub(crate) struct Gates(HashMap<RunId, RunGate>);

impl Gates {
    async fn of(&mut self, connection: &mut DbConnection, run_id: RunId) -> Result<&mut RunGate, StoreError> {
        use std::collections::hash_map::Entry;
        match self.0.entry(run_id) {
            Entry::Occupied(gate) => Ok(gate.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(stored_gate(connection, run_id).await?)),
        }
    }
}

/// Folds one event into the tables; `place` is the record's partition and offset.
pub(crate) async fn apply(
    connection: &mut DbConnection,
    gates: &mut Gates,
    place: (i32, i64),
    event: &AgentEvent,
) -> Result<Verdict, StoreError> {
    let gate = gates.of(connection, event.run_id()).await?;
    let verdict = gate.admit(event);
    if verdict != Verdict::Admitted {
        if gate.accepted {
            count_ignored(connection, event.run_id()).await?;
        }
        return Ok(verdict);
    }
    match event {
        AgentEvent::RunAccepted(event) => accept(connection, place, event).await?,
        AgentEvent::RunClaimed(event) => {
            claim(connection, event).await?;
            stand(connection, event.run_id, gate).await?;
        }
        AgentEvent::RunAdvanced(event) => {
            advance(connection, event).await?;
            stand(connection, event.run_id, gate).await?;
        }
        AgentEvent::RunApprovalDecided(event) => {
            decide(connection, event).await?;
            stand(connection, event.run_id, gate).await?;
        }
        AgentEvent::RunCancelRequested(event) => request_cancel(connection, event).await?,
        AgentEvent::RunResumed(_) | AgentEvent::RunSnapshotted(_) => {}
        AgentEvent::RunFinished(event) => finish(connection, event).await?,
    }
    Ok(verdict)
}

/// Writes down where an open run stands, which follows from its gate.
async fn stand(connection: &mut DbConnection, run_id: RunId, gate: &RunGate) -> Result<(), StoreError> {
    sqlx::query("UPDATE runs SET status = $2, waiting = $3 WHERE run_id = $1")
        .bind(run_id.to_string())
        .bind(RunStatus::of_open(gate).as_str())
        .bind(to_json(&gate.waiting))
        .execute(connection)
        .await?;
    Ok(())
}

async fn stored_gate(connection: &mut DbConnection, run_id: RunId) -> Result<RunGate, StoreError> {
    let row = sqlx::query("SELECT run_id, epoch, owner, last_seq, waiting, finished_at FROM runs WHERE run_id = $1")
        .bind(run_id.to_string())
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else { return Ok(RunGate::default()) };
    Ok(RunGate {
        accepted: true,
        epoch: row.try_get("epoch")?,
        owner: row.try_get("owner")?,
        last_seq: row.try_get("last_seq")?,
        waiting: waiting(&row)?,
        ended: row.try_get::<Option<i64>, _>("finished_at")?.is_some(),
    })
}

async fn count_ignored(connection: &mut DbConnection, run_id: RunId) -> Result<(), StoreError> {
    sqlx::query("UPDATE runs SET ignored_events = ignored_events + 1 WHERE run_id = $1")
        .bind(run_id.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

async fn accept(
    connection: &mut DbConnection,
    (partition, offset): (i32, i64),
    event: &RunAccepted,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO runs (run_id, namespace, status, agent, request, epoch, last_seq, prompt_tokens, completion_tokens, citations,
                           ignored_events, log_partition, log_offset, created_at, session, forked_from, forked_at_seq, chain_id)
         VALUES ($1, $2, $3, $4, $5, 0, 0, 0, 0, '[]', 0, $6, $7, $8, $9, $10, $11, $12)",
    )
    .bind(event.run_id.to_string())
    .bind(event.request.namespace.as_str())
    .bind(RunStatus::Queued.as_str())
    .bind(event.request.agent.as_deref().map(storable))
    .bind(to_json(&event.request))
    .bind(i64::from(partition))
    .bind(offset)
    .bind(event.at)
    .bind(event.request.session.as_deref().map(storable))
    .bind(event.forked_from.as_ref().map(|from| from.run_id.to_string()))
    .bind(event.forked_from.as_ref().map(|from| from.at_seq))
    .bind(event.request.chain.as_ref().map(|link| link.chain_id.to_string()))
    .execute(&mut *connection)
    .await?;
    for (before, place) in event.request.after.iter().zip(0i64..) {
        sqlx::query("INSERT INTO run_after (run_id, place, before_id) VALUES ($1, $2, $3)")
            .bind(event.run_id.to_string())
            .bind(place)
            .bind(before.to_string())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

async fn claim(connection: &mut DbConnection, event: &RunClaimed) -> Result<(), StoreError> {
    sqlx::query("UPDATE runs SET epoch = $2, owner = $3 WHERE run_id = $1")
        .bind(event.run_id.to_string())
        .bind(event.epoch)
        .bind(storable(&event.worker))
        .execute(connection)
        .await?;
    Ok(())
}

/// No step counts for more tokens in a sum: sums of what others wrote must stay numbers.
const MAX_STEP_TOKENS: i64 = 1 << 40;

async fn advance(connection: &mut DbConnection, event: &RunAdvanced) -> Result<(), StoreError> {
    let Some(last) = event.steps.last() else { return Ok(()) };
    let mut used = Usage::default();
    for step in &event.steps {
        used += step.usage.unwrap_or_default();
        sqlx::query("INSERT INTO run_steps (run_id, seq, kind, step, at) VALUES ($1, $2, $3, $4, $5)")
            .bind(event.run_id.to_string())
            .bind(step.seq)
            .bind(kind_name(step))
            .bind(to_json(step))
            .bind(step.at)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query(
        "UPDATE runs SET last_seq = $2, agent = $3, prompt_tokens = prompt_tokens + $4, completion_tokens = completion_tokens + $5,
                         cost_usd = COALESCE(cost_usd + CAST($6 AS DOUBLE PRECISION), cost_usd, CAST($6 AS DOUBLE PRECISION)),
                         unpriced_tokens = unpriced_tokens + $7, cached_prompt_tokens = cached_prompt_tokens + $8, cache_write_tokens = cache_write_tokens + $9
         WHERE run_id = $1",
    )
    .bind(event.run_id.to_string())
    .bind(last.seq)
    .bind(storable(&last.agent))
    .bind(used.prompt_tokens.clamp(0, MAX_STEP_TOKENS))
    .bind(used.completion_tokens.clamp(0, MAX_STEP_TOKENS))
    .bind(number_text(used.cost_usd))
    .bind(used.unpriced_tokens.clamp(0, MAX_STEP_TOKENS))
    .bind(used.cached_prompt_tokens.clamp(0, MAX_STEP_TOKENS))
    .bind(used.cache_write_tokens.clamp(0, MAX_STEP_TOKENS))
    .execute(connection)
    .await?;
    Ok(())
}

/// Puts what a person said beside the question. The gate lets one answer through, and only behind its step.
async fn decide(connection: &mut DbConnection, event: &RunApprovalDecided) -> Result<(), StoreError> {
    sqlx::query("UPDATE run_steps SET decision = $3 WHERE run_id = $1 AND seq = $2")
        .bind(event.run_id.to_string())
        .bind(event.step)
        .bind(to_json(event))
        .execute(connection)
        .await?;
    Ok(())
}

async fn request_cancel(connection: &mut DbConnection, event: &RunCancelRequested) -> Result<(), StoreError> {
    sqlx::query("UPDATE runs SET cancel_requested_at = COALESCE(cancel_requested_at, $2) WHERE run_id = $1")
        .bind(event.run_id.to_string())
        .bind(event.at)
        .execute(connection)
        .await?;
    Ok(())
}

/// The end's usage replaces the sum of the steps': it also counts model calls that no step came of. An end before an agent was at work
/// names none, and the one that was asked for stays.
async fn finish(connection: &mut DbConnection, event: &RunFinished) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE runs SET status = $2, waiting = '{}', agent = COALESCE(NULLIF($3, ''), agent), answer = $4, citations = $5, stop_reason = $6, error = $7, prompt_tokens = $8,
                         completion_tokens = $9, cost_usd = CAST($10 AS DOUBLE PRECISION), finished_at = $11,
                         unpriced_tokens = $12, cached_prompt_tokens = $13, cache_write_tokens = $14
         WHERE run_id = $1",
    )
    .bind(event.run_id.to_string())
    .bind(RunStatus::from(event.status).as_str())
    .bind(storable(&event.agent))
    .bind(event.answer.as_deref().map(storable))
    .bind(to_json(&event.citations))
    .bind(storable(&event.stop_reason))
    .bind(event.error.as_ref().map(to_json))
    .bind(event.usage.prompt_tokens)
    .bind(event.usage.completion_tokens)
    .bind(number_text(event.usage.cost_usd))
    .bind(event.at)
    .bind(event.usage.unpriced_tokens)
    .bind(event.usage.cached_prompt_tokens)
    .bind(event.usage.cache_write_tokens)
    .execute(connection)
    .await?;
    Ok(())
}

/// A number that may be missing, as text that the statement casts: the common driver names another type to PostgreSQL for
/// a missing one than for one that is there, and a prepared statement takes only the type that came first.
pub(crate) fn number_text(number: Option<f64>) -> Option<String> {
    number.map(|number| number.to_string())
}

pub(crate) fn to_json<T: Serialize>(value: &T) -> String {
    // Types of schemas have string keys only and no failing serializers.
    serde_json::to_string(value).unwrap_or_else(|error| unreachable!("events are always JSON: {error}"))
}

fn kind_name(step: &Step) -> String {
    match serde_json::to_value(step.kind) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a step kind is a JSON string, not {other:?}"),
    }
}

// ---- queries ----

/// Which runs a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only those in this status.
    pub status: Option<RunStatus>,
    /// Only those of this agent type.
    pub agent: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Only those of this chain.
    pub chain: Option<ChainId>,
}

/// The run with its steps; `None` when there is none of that id there.
pub async fn run(sql: &Sql, within: Within<'_>, run_id: RunId) -> Result<Option<RunView>, StoreError> {
    // One transaction, so that the steps are those of the row.
    let attempt = async {
        let mut transaction = sql.snapshot().await?;
        let row = sqlx::query("SELECT * FROM runs WHERE run_id = $1 AND (CAST($2 AS TEXT) IS NULL OR namespace = $2)")
            .bind(run_id.to_string())
            .bind(within.as_sql())
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let steps = steps_after(&mut transaction, run_id, 0, i64::MAX).await?;
        Ok(Some(run_view(&row, steps)?))
    };
    attempt.await.map_err(|error: StoreError| error.at(sql.path()))
}

/// The steps behind `after`, in order.
pub async fn steps(sql: &Sql, run_id: RunId, after: i64) -> Result<Vec<StepView>, StoreError> {
    let mut connection = sql.reader().acquire().await?;
    steps_after(&mut connection, run_id, after, i64::MAX).await.map_err(|error| error.at(sql.path()))
}

/// At most so many steps behind `after`, in order.
pub async fn steps_page(sql: &Sql, run_id: RunId, after: i64, most: u32) -> Result<Vec<StepView>, StoreError> {
    let mut connection = sql.reader().acquire().await?;
    steps_after(&mut connection, run_id, after, most.into()).await.map_err(|error| error.at(sql.path()))
}

/// The first of these runs that is not there.
pub async fn first_missing(
    sql: &Sql,
    within: Within<'_>,
    run_ids: &BTreeSet<RunId>,
) -> Result<Option<RunId>, StoreError> {
    let wanted: Vec<RunId> = run_ids.iter().copied().collect();
    for asked in wanted.chunks(IDS_AT_ONCE) {
        let known = known_of(sql, within, asked).await.map_err(|error| error.at(sql.path()))?;
        if let Some(missing) = asked.iter().find(|run_id| !known.contains(&run_id.to_string())) {
            return Ok(Some(*missing));
        }
    }
    Ok(None)
}

/// Those of the runs that are there.
async fn known_of(sql: &Sql, within: Within<'_>, run_ids: &[RunId]) -> Result<HashSet<String>, StoreError> {
    let numbers: Vec<String> = (2..run_ids.len() + 2).map(|number| format!("${number}")).collect();
    let statement = format!(
        "SELECT run_id FROM runs WHERE (CAST($1 AS TEXT) IS NULL OR namespace = $1) AND run_id IN ({})",
        numbers.join(", ")
    );
    // Numbers of places and texts of this file. A connection need not keep a statement that is as long as what it was asked for.
    let mut query = sqlx::query(sqlx::AssertSqlSafe(statement)).persistent(false).bind(within.as_sql());
    for run_id in run_ids {
        query = query.bind(run_id.to_string());
    }
    let rows = query.fetch_all(sql.reader()).await?;
    rows.iter().map(|row| row.try_get("run_id").map_err(StoreError::from)).collect()
}

/// Runs, newest first.
pub async fn list(
    sql: &Sql,
    within: Within<'_>,
    filter: &RunFilter,
    page: &PageRequest,
) -> Result<Page<RunSummary>, StoreError> {
    let from = page.cursor.as_deref().map(TimeCursor::decode).transpose()?;
    let rows = sqlx::query(
        "SELECT run_id, status, namespace, request, agent, last_seq, prompt_tokens, completion_tokens, cost_usd, unpriced_tokens, cached_prompt_tokens,
                cache_write_tokens, stop_reason, created_at, finished_at, session, forked_from, forked_at_seq
         FROM runs
         WHERE (CAST($1 AS TEXT) IS NULL OR namespace = $1)
           AND (CAST($2 AS TEXT) IS NULL OR status = $2)
           AND (CAST($3 AS TEXT) IS NULL OR agent = $3)
           AND (CAST($7 AS TEXT) IS NULL OR session = $7)
           AND (CAST($8 AS TEXT) IS NULL OR chain_id = $8)
           AND (CAST($4 AS BIGINT) IS NULL OR created_at < $4 OR (created_at = $4 AND run_id < $5))
         ORDER BY created_at DESC, run_id DESC
         LIMIT $6",
    )
    .bind(within.as_sql())
    .bind(filter.status.map(RunStatus::as_str))
    .bind(filter.agent.as_deref().map(storable))
    .bind(from.as_ref().map(|cursor| cursor.at))
    .bind(from.as_ref().map(|cursor| cursor.id.clone()))
    .bind(page.limit() + 1)
    .bind(filter.session.as_deref().map(storable))
    .bind(filter.chain.map(|chain| chain.to_string()))
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let items = rows.iter().map(run_summary).collect::<Result<Vec<_>, _>>()?;
    Ok(Page::of(items, page.limit(), |run| TimeCursor::encode(run.created_at.0, &run.run_id.to_string())))
}

async fn steps_after(
    connection: &mut DbConnection,
    run_id: RunId,
    after: i64,
    most: i64,
) -> Result<Vec<StepView>, StoreError> {
    let rows = sqlx::query("SELECT step, decision FROM run_steps WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3")
        .bind(run_id.to_string())
        .bind(after)
        .bind(most)
        .fetch_all(connection)
        .await?;
    let key = run_id.to_string();
    rows.iter().map(|row| stored_step(row, &key)).collect()
}

fn stored_step(row: &DbRow, key: &str) -> Result<StepView, StoreError> {
    let step: Step = from_json("run_steps", key, row.try_get("step")?)?;
    let decision: Option<String> = row.try_get("decision")?;
    let decided = |text: &str| from_json::<RunApprovalDecided>("run_steps", key, text);
    let decision = decision.as_deref().map(decided).transpose()?.as_ref().map(DecisionView::from);
    Ok(StepView { decision, ..step_view(&step) })
}

pub(crate) fn run_view(row: &DbRow, steps: Vec<StepView>) -> Result<RunView, StoreError> {
    let key: String = row.try_get("run_id")?;
    let request: RunRequest = from_json("runs", &key, row.try_get("request")?)?;
    let citations: Vec<riverrun_schemas::agent::Citation> = from_json("runs", &key, row.try_get("citations")?)?;
    let error: Option<String> = row.try_get("error")?;
    let error = error.as_deref().map(|text| from_json::<riverrun_schemas::Failure>("runs", &key, text)).transpose()?;
    let pending_approvals = pending_approvals(&steps, &waiting(row)?);
    Ok(RunView {
        run_id: id("runs", &key)?,
        status: status(row)?,
        namespace: row.try_get("namespace")?,
        task: request.task,
        agent: row.try_get("agent")?,
        answer: row.try_get("answer")?,
        citations: citations.iter().map(citation_view).collect(),
        steps,
        pending_approvals,
        session: request.session,
        forked_from: forked_from(row)?.as_ref().map(ForkView::from),
        after: request.after,
        chain: request.chain.as_ref().map(ChainLinkView::from),
        usage: usage_view(&usage(row)?),
        stop_reason: row.try_get("stop_reason")?,
        trace_id: None,
        error: error.as_ref().map(failure_view),
        metadata: request.metadata_json.as_deref().map(json_or_text),
        created_at: Timestamp(row.try_get("created_at")?),
        finished_at: row.try_get::<Option<i64>, _>("finished_at")?.map(Timestamp),
    })
}

fn run_summary(row: &DbRow) -> Result<RunSummary, StoreError> {
    let key: String = row.try_get("run_id")?;
    let request: RunRequest = from_json("runs", &key, row.try_get("request")?)?;
    Ok(RunSummary {
        run_id: id("runs", &key)?,
        status: status(row)?,
        namespace: row.try_get("namespace")?,
        task: request.task,
        agent: row.try_get("agent")?,
        steps: row.try_get("last_seq")?,
        session: row.try_get("session")?,
        forked_from: forked_from(row)?.as_ref().map(ForkView::from),
        chain: request.chain.as_ref().map(ChainLinkView::from),
        usage: usage_view(&usage(row)?),
        stop_reason: row.try_get("stop_reason")?,
        created_at: Timestamp(row.try_get("created_at")?),
        finished_at: row.try_get::<Option<i64>, _>("finished_at")?.map(Timestamp),
    })
}

/// The unanswered approval steps of a row of `runs`.
pub(crate) fn waiting(row: &DbRow) -> Result<BTreeMap<i64, String>, StoreError> {
    let (key, text): (String, String) = (row.try_get("run_id")?, row.try_get("waiting")?);
    from_json("runs", &key, &text)
}

/// Where a row of `runs` branched off, if it did.
pub(crate) fn forked_from(row: &DbRow) -> Result<Option<ForkedFrom>, StoreError> {
    let (source, at_seq): (Option<String>, Option<i64>) = (row.try_get("forked_from")?, row.try_get("forked_at_seq")?);
    source.map(|run| Ok(ForkedFrom { run_id: id("runs", &run)?, at_seq: at_seq.unwrap_or(0) })).transpose()
}

fn usage(row: &DbRow) -> Result<Usage, StoreError> {
    Ok(Usage {
        prompt_tokens: row.try_get("prompt_tokens")?,
        completion_tokens: row.try_get("completion_tokens")?,
        cost_usd: row.try_get("cost_usd")?,
        unpriced_tokens: row.try_get("unpriced_tokens")?,
        cached_prompt_tokens: row.try_get("cached_prompt_tokens")?,
        cache_write_tokens: row.try_get("cache_write_tokens")?,
    })
}

pub(crate) fn status(row: &DbRow) -> Result<RunStatus, StoreError> {
    let (key, status): (String, String) = (row.try_get("run_id")?, row.try_get("status")?);
    status.parse().map_err(|reason| StoreError::Row { table: "runs", key, reason })
}

pub(crate) fn id<T: std::str::FromStr<Err: std::fmt::Display>>(
    table: &'static str,
    text: &str,
) -> Result<T, StoreError> {
    text.parse().map_err(|error: T::Err| StoreError::Row { table, key: text.to_owned(), reason: error.to_string() })
}

pub(crate) fn from_json<T: DeserializeOwned>(table: &'static str, key: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Row {
        table,
        key: key.to_owned(),
        reason: error.to_string(),
    })
}
