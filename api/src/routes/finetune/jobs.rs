//! Trainings: estimated, asked for, listed, cancelled.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use riverrun_models::ModelKind;
use riverrun_schemas::finetune::{
    FinetuneAccepted, FinetuneCancelRequested, FinetuneCommand, FinetuneFinished, FinetuneOutcome, StartFinetune,
};
use riverrun_schemas::{BlobRef, FinetuneId, now_ms};
use riverrun_stores::read_models::finetune_views::RUNS;
use riverrun_stores::read_models::{DatasetView, JobView, finetune};
use riverrun_training::{Method, Plan, Target, estimate};
use riverrun_workers::trainer::served_base_hint;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{datasets, plan, tell};
use crate::accept::{COMPONENT, key_conflict};
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, OptionalJson, Path, Query, id};
use crate::routes::runs::location;
use crate::state::AppState;
use crate::submit::{Checks, one_of};
use crate::wait::until;
use crate::wire::{
    CancelBody, EstimateView, FinetuneBody, FinetuneCancelled, FinetuneDefaults, FinetuneJobAccepted, LoraBody,
    MethodEntry, Page, Problem,
};

/// How long an answer waits for the read model.
const PATIENCE: Duration = Duration::from_secs(5);
const MEDIA_TYPE: &str = "application/x-ndjson";
const STATUSES: [&str; 5] = ["queued", "running", "succeeded", "failed", "cancelled"];

/// An answer that says where the training is.
type Accepted<T> = (StatusCode, HeaderMap, Reply<T>);

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(defaults))
        .routes(routes!(estimate_job))
        .routes(routes!(start, list))
        .routes(routes!(show))
        .routes(routes!(cancel))
}

/// What a training has that says nothing else, and what there is to choose from.
#[utoipa::path(get, path = "/finetune/defaults", tag = "finetune", responses((status = 200, body = FinetuneDefaults)))]
async fn defaults(State(state): State<AppState>) -> Result<Reply<FinetuneDefaults>, ApiError> {
    let models = state.core().models();
    let there = models.list_models(Some("local")).await?;
    let usual = Plan::default();
    let method = |method: Method| {
        let refused = method.check().err().map(|error| error.to_string());
        MethodEntry { name: method.as_str().to_owned(), available: refused.is_none(), reason: refused }
    };
    let chat = there.into_iter().filter(|model| model.present && model.kind == ModelKind::Chat);
    Ok(Reply(FinetuneDefaults {
        base_model: models.default_chat_model().to_owned(),
        base_models: chat.map(|model| model.name).collect(),
        methods: Method::ALL.into_iter().map(method).collect(),
        max_steps: usual.max_steps,
        lora: LoraBody {
            rank: Some(usual.lora.rank),
            alpha: Some(usual.lora.alpha),
            dropout: Some(usual.lora.dropout),
            targets: Some(Target::ALL.iter().map(|target| target.as_str().to_owned()).collect()),
        },
        learning_rate: usual.learning_rate,
        batch_size: usual.batch_size,
        seq_len: usual.seq_len,
        seed: usual.seed,
    }))
}

/// Time and memory of a training, before it is asked for.
#[utoipa::path(post, path = "/finetune/estimate", tag = "finetune", request_body = FinetuneBody,
    responses((status = 200, body = EstimateView), (status = 404, description = "no such dataset or base model", body = Problem), (status = 422, body = Problem)))]
async fn estimate_job(
    State(state): State<AppState>,
    Json(body): Json<FinetuneBody>,
) -> Result<Reply<EstimateView>, ApiError> {
    let asked = Asked::of(&state, &body).await?;
    let Some(folder) = plan::base_folder(state.core().models(), &asked.base_model)? else {
        let what = format!("base model {:?} is not there", asked.base_model);
        let served = served_base_hint(state.core().models(), &asked.base_model);
        let hint = served.unwrap_or_else(|| format!("riverrun models pull {}", asked.base_model));
        return Err(ApiError::not_found("model_missing", what).hint(hint));
    };
    let load = plan::load(&asked.plan, &asked.dataset);
    Ok(Reply(plan::view(plan::estimated(asked.plan, load, folder).await?)))
}

/// A request that can be done, as far as it shows.
struct Asked {
    plan: Plan,
    dataset: DatasetView,
    base_model: String,
}

impl Asked {
    async fn of(state: &AppState, body: &FinetuneBody) -> Result<Self, ApiError> {
        let plan = plan::plan_of(body)?;
        let dataset = datasets::find(state, &body.dataset).await?;
        plan::check_format(&plan, &dataset)?;
        let models = state.core().models();
        check_free(state, &body.name)?;
        Ok(Self { plan, dataset, base_model: plan::base_model(body, models) })
    }
}

/// A name that a model has which was not trained here would hide that model, or be hidden by it.
fn check_free(state: &AppState, name: &str) -> Result<(), ApiError> {
    let Some(folder) = plan::base_folder(state.core().models(), name)? else { return Ok(()) };
    let trained = folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains('@'));
    if trained {
        return Ok(());
    }
    Err(ApiError::field("name", format!("{name:?} is a model of its own in {}", folder.display()))
        .hint("train under another name"))
}

/// Asks for a training. What can't fit and what needs a GPU is refused before it exists.
#[utoipa::path(post, path = "/finetune/jobs", tag = "finetune", request_body = FinetuneBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same training")),
    responses((status = 202, body = FinetuneJobAccepted), (status = 404, description = "no such dataset", body = Problem),
        (status = 409, description = "the key was used with another body", body = Problem), (status = 422, description = "cuda_required, does_not_fit, or a field that can't be", body = Problem)))]
async fn start(
    State(state): State<AppState>,
    key: IdempotencyKey,
    Json(body): Json<FinetuneBody>,
) -> Result<Accepted<FinetuneJobAccepted>, ApiError> {
    let asked = Asked::of(&state, &body).await?;
    let job_id = key.0.as_deref().map_or_else(FinetuneId::new, |key| FinetuneId::derive(&["idempotency-key", key]));
    let command = command(job_id, &body.name, &asked)?;
    if let Some(known) = finetune::job(&state.parts().sql, job_id).await? {
        return same(&known, &command, key.0.as_deref().unwrap_or_default()).map(|()| accepted(job_id));
    }
    if let Some(folder) = plan::base_folder(state.core().models(), &asked.base_model)? {
        let load = plan::load(&asked.plan, &asked.dataset);
        estimate::check(&plan::estimated(asked.plan.clone(), load, folder).await?)?;
    }
    // The command is the training; the event only shows it while it waits, and the worker writes the same one again.
    state.parts().producer.send(&FinetuneCommand::StartFinetune(command.clone()), COMPONENT, None).await?;
    tell(&state, FinetuneAccepted::from(&command)).await?;
    // Whoever has the answer may ask for the training at once.
    until(PATIENCE, || finetune::job(&state.parts().sql, job_id)).await?;
    Ok(accepted(job_id))
}

fn accepted(job_id: FinetuneId) -> Accepted<FinetuneJobAccepted> {
    let body = FinetuneJobAccepted { job_id: job_id.to_string(), stream: format!("/ws/finetune/{job_id}") };
    (StatusCode::ACCEPTED, place(job_id), Reply(body))
}

fn place(job_id: FinetuneId) -> HeaderMap {
    location(&format!("/finetune/jobs/{job_id}"))
}

fn command(job_id: FinetuneId, name: &str, asked: &Asked) -> Result<StartFinetune, ApiError> {
    let Asked { plan, dataset, base_model } = asked;
    let mut plan = serde_json::to_value(plan).map_err(|error| ApiError::internal(error.to_string()))?;
    if let Some(runs) = &dataset.runs {
        // The dataset's name may mean another one later; what comes out is to tell of these.
        plan[RUNS] = serde_json::to_value(runs).map_err(|error| ApiError::internal(error.to_string()))?;
    }
    Ok(StartFinetune {
        job_id,
        name: name.to_owned(),
        dataset: dataset.name.clone(),
        content: BlobRef {
            sha256: dataset.sha256.clone(),
            size_bytes: dataset.size_bytes,
            media_type: MEDIA_TYPE.to_owned(),
        },
        format: dataset.format.clone(),
        base_model: base_model.clone(),
        plan_json: plan.to_string(),
        at: now_ms(),
    })
}

fn same(known: &JobView, asked: &StartFinetune, key: &str) -> Result<(), ApiError> {
    let plan: serde_json::Value = serde_json::from_str(&asked.plan_json).unwrap_or_default();
    let same = known.name == asked.name
        && known.dataset_sha256 == asked.content.sha256
        && known.base_model == asked.base_model
        && known.settings == plan;
    if same {
        return Ok(());
    }
    Err(key_conflict(key, "training"))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct JobsQuery {
    /// Only those in this status.
    status: Option<String>,
    /// Most entries; 50 when left out, 500 at most.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Trainings, the newest first.
#[utoipa::path(get, path = "/finetune/jobs", tag = "finetune", params(JobsQuery),
    responses((status = 200, body = Page<JobView>), (status = 422, body = Problem)))]
async fn list(State(state): State<AppState>, Query(query): Query<JobsQuery>) -> Result<Reply<Page<JobView>>, ApiError> {
    let mut checks = Checks::default();
    one_of(&mut checks, "status", query.status.as_deref(), STATUSES.into_iter());
    let page = checks.page(query.limit, query.cursor);
    checks.finish()?;
    let page = finetune::jobs(&state.parts().sql, query.status.as_deref(), &page).await?;
    Ok(Reply(Page { items: page.items, next_cursor: page.next_cursor }))
}

/// A training.
#[utoipa::path(get, path = "/finetune/jobs/{id}", tag = "finetune", params(("id" = String, Path)),
    responses((status = 200, body = JobView), (status = 404, body = Problem)))]
async fn show(State(state): State<AppState>, Path(job_id): Path<String>) -> Result<Reply<JobView>, ApiError> {
    find(&state, id(&job_id)?).await.map(Reply)
}

async fn find(state: &AppState, job_id: FinetuneId) -> Result<JobView, ApiError> {
    finetune::job(&state.parts().sql, job_id).await?.ok_or_else(|| unknown_job(job_id))
}

/// 404 for a training that nobody knows.
pub(crate) fn unknown_job(job_id: FinetuneId) -> ApiError {
    ApiError::not_found("finetune_job_not_found", format!("there is no training {job_id}"))
        .hint("riverrun finetune jobs")
}

/// The end of a training that no worker has claimed: its turn may be hours away. It is void behind a claim (`TUNE-2`), so that it does
/// no harm where the read model is late: the worker hears of the wish.
fn unclaimed_end(job_id: FinetuneId) -> FinetuneFinished {
    FinetuneFinished {
        job_id,
        epoch: 0,
        status: FinetuneOutcome::Cancelled,
        steps: 0,
        loss: None,
        eval_loss: None,
        model: None,
        error: None,
        at: now_ms(),
    }
}

/// Asks a training to stop; it does within a step, and at once where it waits for others.
#[utoipa::path(post, path = "/finetune/jobs/{id}/cancel", tag = "finetune", params(("id" = String, Path)), request_body = CancelBody,
    responses((status = 202, body = FinetuneCancelled), (status = 404, body = Problem), (status = 409, description = "it has ended", body = Problem)))]
async fn cancel(
    State(state): State<AppState>,
    Path(job_id): Path<String>,
    OptionalJson(body): OptionalJson<CancelBody>,
) -> Result<Accepted<FinetuneCancelled>, ApiError> {
    let job_id: FinetuneId = id(&job_id)?;
    let job = find(&state, job_id).await?;
    if job.ended() {
        return Err(ApiError::conflict(
            "finetune_job_ended",
            format!("training {job_id} has ended: it is {}", job.status),
        ));
    }
    let mut checks = Checks::default();
    checks.reason("reason", body.reason.as_deref());
    checks.finish()?;
    tell(&state, FinetuneCancelRequested { job_id, reason: body.reason, at: now_ms() }).await?;
    if job.started_at.is_none() {
        tell(&state, unclaimed_end(job_id)).await?;
    }
    Ok((StatusCode::ACCEPTED, place(job_id), Reply(FinetuneCancelled { job_id: job_id.to_string() })))
}
