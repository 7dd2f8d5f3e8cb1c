//! Fine-tuning: datasets, trainings, versions of models. The projection and its queries.
//!
//! `TUNE-1` a training has at most one end, and nothing counts behind it. `TUNE-2` what a worker writes counts while no other has
//! claimed the training with a higher epoch. `TUNE-3` of a training one version comes out, and versions count in the order of
//! the log. `TUNE-4` a version is `ready` only when it has passed its gate.

use riverrun_schemas::finetune::{
    DatasetRegistered, FinetuneAccepted, FinetuneEvent, FinetuneFinished, FinetuneOutcome, FinetuneProgressed,
    ModelRegistered, ModelStage, ModelStaged,
};
use riverrun_schemas::{BlobRef, Failure, FinetuneId};
use serde_json::Value;
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::finetune_views::{
    AdapterFiles, DatasetRunsView, DatasetView, GateView, JobView, ModelVersionView, StepLossView, stage_name,
};
use crate::read_models::model_cards;
use crate::read_models::page::{Page, PageRequest, TimeCursor};
use crate::read_models::run_views::failure_view;
use crate::read_models::runs::number_text;
use crate::read_models::time::Timestamp;
use crate::read_models::usage;
use crate::sql::{DbConnection, DbRow, Sql, storable};

/// Steps that are read at a time.
const STEPS: i64 = 1_000;

/// Folds one event into the tables.
pub(crate) async fn apply(connection: &mut DbConnection, event: &FinetuneEvent) -> Result<(), StoreError> {
    match event {
        FinetuneEvent::DatasetRegistered(event) => dataset(connection, event).await,
        FinetuneEvent::FinetuneAccepted(event) => accepted(connection, event).await,
        FinetuneEvent::FinetuneClaimed(event) => {
            sqlx::query(
                "UPDATE finetune_jobs SET epoch = $2, status = 'running', started_at = COALESCE(started_at, $3)
                 WHERE job_id = $1 AND finished_at IS NULL AND epoch < $2",
            )
            .bind(event.job_id.to_string())
            .bind(event.epoch)
            .bind(event.at)
            .execute(connection)
            .await?;
            Ok(())
        }
        FinetuneEvent::FinetuneProgressed(event) => progressed(connection, event).await,
        // The worker hears of it; the training ends with its own event.
        FinetuneEvent::FinetuneCancelRequested(_) => Ok(()),
        FinetuneEvent::FinetuneFinished(event) => finished(connection, event).await,
        FinetuneEvent::ModelRegistered(event) => registered(connection, event).await,
        FinetuneEvent::ModelStaged(event) => staged(connection, event).await,
        FinetuneEvent::ModelProbed(event) => model_cards::probed(connection, event).await,
        FinetuneEvent::ModelUsed(event) => usage::used(connection, event).await,
    }
}

async fn dataset(connection: &mut DbConnection, event: &DatasetRegistered) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO finetune_datasets (name, format, sha256, size_bytes, media_type, examples, train_examples, eval_examples, duplicates, tokens, warnings, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT (name) DO UPDATE SET format = excluded.format, sha256 = excluded.sha256, size_bytes = excluded.size_bytes,
           media_type = excluded.media_type, examples = excluded.examples, train_examples = excluded.train_examples,
           eval_examples = excluded.eval_examples, duplicates = excluded.duplicates, tokens = excluded.tokens,
           warnings = excluded.warnings, created_at = excluded.created_at",
    )
    .bind(storable(&event.name))
    .bind(storable(&event.format))
    .bind(&event.content.sha256)
    .bind(event.content.size_bytes)
    .bind(&event.content.media_type)
    .bind(event.examples)
    .bind(event.train_examples)
    .bind(event.eval_examples)
    .bind(event.duplicates)
    .bind(event.tokens_json.as_deref().map(storable))
    .bind(storable(&event.warnings_json))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

async fn accepted(connection: &mut DbConnection, event: &FinetuneAccepted) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO finetune_jobs (job_id, name, dataset, dataset_sha256, base_model, plan, status, epoch, step, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, 'queued', 0, 0, $7) ON CONFLICT (job_id) DO NOTHING",
    )
    .bind(event.job_id.to_string())
    .bind(storable(&event.name))
    .bind(storable(&event.dataset))
    .bind(&event.content.sha256)
    .bind(storable(&event.base_model))
    .bind(storable(&event.plan_json))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

async fn progressed(connection: &mut DbConnection, event: &FinetuneProgressed) -> Result<(), StoreError> {
    let counts = sqlx::query(
        "UPDATE finetune_jobs SET step = CASE WHEN step < $3 THEN $3 ELSE step END, loss = $4, learning_rate = $5, tokens_per_s = $6, eta_s = $7,
           eval_loss = COALESCE(CAST($8 AS DOUBLE PRECISION), eval_loss)
         WHERE job_id = $1 AND epoch = $2 AND finished_at IS NULL",
    )
    .bind(event.job_id.to_string())
    .bind(event.epoch)
    .bind(event.step)
    .bind(event.loss)
    .bind(event.learning_rate)
    .bind(event.tokens_per_s)
    .bind(event.eta_s)
    .bind(number_text(event.eval_loss))
    .execute(&mut *connection)
    .await?;
    if counts.rows_affected() == 0 {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO finetune_steps (job_id, step, loss, learning_rate, tokens_per_s, eta_s, eval_loss)
         VALUES ($1, $2, $3, $4, $5, $6, CAST($7 AS DOUBLE PRECISION)) ON CONFLICT (job_id, step) DO NOTHING",
    )
    .bind(event.job_id.to_string())
    .bind(event.step)
    .bind(event.loss)
    .bind(event.learning_rate)
    .bind(event.tokens_per_s)
    .bind(event.eta_s)
    .bind(number_text(event.eval_loss))
    .execute(connection)
    .await?;
    Ok(())
}

async fn finished(connection: &mut DbConnection, event: &FinetuneFinished) -> Result<(), StoreError> {
    let status = match event.status {
        FinetuneOutcome::Succeeded => "succeeded",
        FinetuneOutcome::Failed | FinetuneOutcome::Unknown => "failed",
        FinetuneOutcome::Cancelled => "cancelled",
    };
    let error = event.error.as_ref().map(serde_json::to_string).transpose();
    let error = error.map_err(|error| row("finetune_jobs", event.job_id, error))?;
    sqlx::query(
        "UPDATE finetune_jobs SET status = $3, loss = COALESCE(CAST($4 AS DOUBLE PRECISION), loss), eval_loss = COALESCE(CAST($5 AS DOUBLE PRECISION), eval_loss), model = $6, error = $7, finished_at = $8,
           eta_s = NULL
         WHERE job_id = $1 AND epoch <= $2 AND finished_at IS NULL",
    )
    .bind(event.job_id.to_string())
    .bind(event.epoch)
    .bind(status)
    .bind(number_text(event.loss))
    .bind(number_text(event.eval_loss))
    .bind(event.model.as_deref().map(storable))
    .bind(error)
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

async fn registered(connection: &mut DbConnection, event: &ModelRegistered) -> Result<(), StoreError> {
    let first = if event.gate_passed { ModelStage::Ready } else { ModelStage::Candidate };
    sqlx::query(
        "INSERT INTO finetune_models (model, version, job_id, base_model, method, dataset_sha256, metrics, adapter_sha256, adapter_bytes, adapter_type,
           adapter_config, merged_bytes, gate_passed, gate_reason, stage, created_at)
         SELECT $1, COALESCE(MAX(version), 0) + 1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15 FROM finetune_models WHERE model = $1
         ON CONFLICT (job_id) DO NOTHING",
    )
    .bind(storable(&event.model))
    .bind(event.job_id.to_string())
    .bind(storable(&event.base_model))
    .bind(storable(&event.method))
    .bind(storable(&event.dataset_sha256))
    .bind(storable(&event.metrics_json))
    .bind(&event.adapter.sha256)
    .bind(event.adapter.size_bytes)
    .bind(&event.adapter.media_type)
    .bind(storable(&event.adapter_config))
    .bind(event.merged_bytes)
    .bind(i64::from(event.gate_passed))
    .bind(event.gate_reason.as_deref().map(storable))
    .bind(first.as_str())
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

async fn staged(connection: &mut DbConnection, event: &ModelStaged) -> Result<(), StoreError> {
    let Some(stage) = stage_name(event.stage) else { return Ok(()) };
    sqlx::query(
        "UPDATE finetune_models SET stage = $3 WHERE model = $1 AND version = $2 AND ($3 <> 'ready' OR gate_passed = 1)",
    )
    .bind(storable(&event.model))
    .bind(i64::from(event.version))
    .bind(stage)
    .execute(connection)
    .await?;
    Ok(())
}

fn row(table: &'static str, key: impl ToString, error: impl std::fmt::Display) -> StoreError {
    StoreError::Row { table, key: key.to_string(), reason: error.to_string() }
}

fn json(table: &'static str, key: &str, text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|error| row(table, key, error))
}

fn dataset_view(found: &DbRow) -> Result<DatasetView, StoreError> {
    const TABLE: &str = "finetune_datasets";
    let name: String = found.try_get("name")?;
    let tokens: Option<String> = found.try_get("tokens")?;
    let warnings: String = found.try_get("warnings")?;
    let mut warnings = json(TABLE, &name, &warnings)?;
    Ok(DatasetView {
        format: found.try_get("format")?,
        sha256: found.try_get("sha256")?,
        examples: found.try_get("examples")?,
        train_examples: found.try_get("train_examples")?,
        eval_examples: found.try_get("eval_examples")?,
        duplicates: found.try_get("duplicates")?,
        size_bytes: found.try_get("size_bytes")?,
        tokens: tokens.map(|text| json(TABLE, &name, &text)).transpose()?,
        runs: DatasetRunsView::take(&mut warnings),
        warnings,
        created_at: Timestamp(found.try_get("created_at")?),
        name,
    })
}

fn job_view(found: &DbRow) -> Result<JobView, StoreError> {
    const TABLE: &str = "finetune_jobs";
    let job_id: String = found.try_get("job_id")?;
    let plan: String = found.try_get("plan")?;
    let settings = json(TABLE, &job_id, &plan)?;
    let error: Option<String> = found.try_get("error")?;
    let error: Option<Failure> =
        error.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| row(TABLE, &job_id, error))?;
    let started_at: Option<i64> = found.try_get("started_at")?;
    let finished_at: Option<i64> = found.try_get("finished_at")?;
    Ok(JobView {
        name: found.try_get("name")?,
        method: settings["method"].as_str().unwrap_or_default().to_owned(),
        dataset: found.try_get("dataset")?,
        dataset_sha256: found.try_get("dataset_sha256")?,
        base_model: found.try_get("base_model")?,
        status: found.try_get("status")?,
        step: found.try_get("step")?,
        max_steps: settings["max_steps"].as_i64().unwrap_or_default(),
        loss: found.try_get("loss")?,
        eval_loss: found.try_get("eval_loss")?,
        learning_rate: found.try_get("learning_rate")?,
        tokens_per_s: found.try_get("tokens_per_s")?,
        eta_s: found.try_get("eta_s")?,
        settings,
        model: found.try_get("model")?,
        error: error.as_ref().map(failure_view),
        created_at: Timestamp(found.try_get("created_at")?),
        started_at: started_at.map(Timestamp),
        finished_at: finished_at.map(Timestamp),
        job_id,
    })
}

fn model_view(found: &DbRow) -> Result<ModelVersionView, StoreError> {
    let model: String = found.try_get("model")?;
    let version: i64 = found.try_get("version")?;
    let metrics: String = found.try_get("metrics")?;
    let (merged, adapter): (i64, i64) = (found.try_get("merged_bytes")?, found.try_get("adapter_bytes")?);
    let passed: i64 = found.try_get("gate_passed")?;
    let chat_model = format!("{model}@{version}");
    let plan: Option<String> = found.try_get("job_plan")?;
    let plan = plan.map(|text| json("finetune_jobs", &chat_model, &text)).transpose()?;
    Ok(ModelVersionView {
        base_model: found.try_get("base_model")?,
        method: found.try_get("method")?,
        metrics: json("finetune_models", &chat_model, &metrics)?,
        dataset: found.try_get("job_dataset")?,
        dataset_sha256: found.try_get("dataset_sha256")?,
        runs: plan.as_ref().and_then(DatasetRunsView::of_plan),
        adapter_sha256: found.try_get("adapter_sha256")?,
        size_bytes: if merged > 0 { merged } else { adapter },
        job_id: found.try_get("job_id")?,
        created_at: Timestamp(found.try_get("created_at")?),
        stage: found.try_get("stage")?,
        gate: GateView { passed: passed == 1, reason: found.try_get("gate_reason")? },
        chat_model,
        model,
        version,
    })
}

/// A dataset by its name.
pub async fn find_dataset(sql: &Sql, name: &str) -> Result<Option<DatasetView>, StoreError> {
    let query = sqlx::query("SELECT * FROM finetune_datasets WHERE name = $1").bind(storable(name));
    let found = query.fetch_optional(sql.reader()).await;
    found.map_err(|error| StoreError::from(error).at(sql.path()))?.as_ref().map(dataset_view).transpose()
}

/// Datasets, the newest first.
pub async fn datasets(sql: &Sql, page: &PageRequest) -> Result<Page<DatasetView>, StoreError> {
    let (at, id) = after(page)?;
    let rows = sqlx::query(
        "SELECT * FROM finetune_datasets WHERE (CAST($1 AS BIGINT) IS NULL OR created_at < $1 OR (created_at = $1 AND name < $2))
         ORDER BY created_at DESC, name DESC LIMIT $3",
    )
    .bind(at)
    .bind(id)
    .bind(page.limit() + 1)
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let items = rows.iter().map(dataset_view).collect::<Result<_, _>>()?;
    Ok(Page::of(items, page.limit(), |item: &DatasetView| TimeCursor::encode(item.created_at.0, &item.name)))
}

/// A training by its id.
pub async fn job(sql: &Sql, job_id: FinetuneId) -> Result<Option<JobView>, StoreError> {
    let query = sqlx::query("SELECT * FROM finetune_jobs WHERE job_id = $1").bind(job_id.to_string());
    let found = query.fetch_optional(sql.reader()).await;
    found.map_err(|error| StoreError::from(error).at(sql.path()))?.as_ref().map(job_view).transpose()
}

/// Trainings, the newest first; those of a status when one is given.
pub async fn jobs(sql: &Sql, status: Option<&str>, page: &PageRequest) -> Result<Page<JobView>, StoreError> {
    let (at, id) = after(page)?;
    let rows = sqlx::query(
        "SELECT * FROM finetune_jobs WHERE (CAST($1 AS BIGINT) IS NULL OR created_at < $1 OR (created_at = $1 AND job_id < $2))
           AND (CAST($4 AS TEXT) IS NULL OR status = $4)
         ORDER BY created_at DESC, job_id DESC LIMIT $3",
    )
    .bind(at)
    .bind(id)
    .bind(page.limit() + 1)
    .bind(status)
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let items = rows.iter().map(job_view).collect::<Result<_, _>>()?;
    Ok(Page::of(items, page.limit(), |item: &JobView| TimeCursor::encode(item.created_at.0, &item.job_id)))
}

/// Steps of a training behind `after`, at most a thousand.
pub async fn steps(sql: &Sql, job_id: FinetuneId, after: i64) -> Result<Vec<StepLossView>, StoreError> {
    let rows = sqlx::query(
        "SELECT step, loss, learning_rate, tokens_per_s, eta_s, eval_loss FROM finetune_steps
         WHERE job_id = $1 AND step > $2 ORDER BY step LIMIT $3",
    )
    .bind(job_id.to_string())
    .bind(after)
    .bind(STEPS)
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter()
        .map(|found| {
            Ok(StepLossView {
                step: found.try_get("step")?,
                loss: found.try_get("loss")?,
                learning_rate: found.try_get("learning_rate")?,
                tokens_per_s: found.try_get("tokens_per_s")?,
                eta_s: found.try_get("eta_s")?,
                eval_loss: found.try_get("eval_loss")?,
            })
        })
        .collect()
}

/// Versions of models, the newest first.
pub async fn models(sql: &Sql, page: &PageRequest) -> Result<Page<ModelVersionView>, StoreError> {
    let (at, id) = after(page)?;
    let rows = sqlx::query(
        "SELECT m.*, j.plan AS job_plan, j.dataset AS job_dataset FROM finetune_models m LEFT JOIN finetune_jobs j ON j.job_id = m.job_id
         WHERE (CAST($1 AS BIGINT) IS NULL OR m.created_at < $1 OR (m.created_at = $1 AND m.job_id < $2))
         ORDER BY m.created_at DESC, m.job_id DESC LIMIT $3",
    )
    .bind(at)
    .bind(id)
    .bind(page.limit() + 1)
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let items = rows.iter().map(model_view).collect::<Result<_, _>>()?;
    Ok(Page::of(items, page.limit(), |item: &ModelVersionView| TimeCursor::encode(item.created_at.0, &item.job_id)))
}

/// A version of a model, with its adapter's files.
pub async fn model(
    sql: &Sql,
    model: &str,
    version: i64,
) -> Result<Option<(ModelVersionView, AdapterFiles)>, StoreError> {
    let query = sqlx::query(
        "SELECT m.*, j.plan AS job_plan, j.dataset AS job_dataset FROM finetune_models m LEFT JOIN finetune_jobs j ON j.job_id = m.job_id
         WHERE m.model = $1 AND m.version = $2",
    );
    let found = query.bind(storable(model)).bind(version).fetch_optional(sql.reader()).await;
    let Some(found) = found.map_err(|error| StoreError::from(error).at(sql.path()))? else { return Ok(None) };
    let weights = BlobRef {
        sha256: found.try_get("adapter_sha256")?,
        size_bytes: found.try_get("adapter_bytes")?,
        media_type: found.try_get("adapter_type")?,
    };
    Ok(Some((model_view(&found)?, AdapterFiles { weights, config: found.try_get("adapter_config")? })))
}

fn after(page: &PageRequest) -> Result<(Option<i64>, String), StoreError> {
    match page.cursor.as_deref().map(TimeCursor::decode).transpose()? {
        Some(TimeCursor { at, id }) => Ok((Some(at), id)),
        None => Ok((None, String::new())),
    }
}

#[cfg(test)]
mod tests;
