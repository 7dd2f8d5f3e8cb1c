//! Versions of models: the registry, stages, the adapter's files.

use std::path::PathBuf;
use std::time::Duration;

use axum::Json as Reply;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use riverrun_schemas::finetune::{ModelStage, ModelStaged};
use riverrun_schemas::{BlobRef, not_there, now_ms};
use riverrun_stores::read_models::finetune_views::AdapterFiles;
use riverrun_stores::read_models::{ModelVersionView, finetune};
use riverrun_training::base::GGUF_FILE;
use riverrun_training::export;
use tokio_util::io::ReaderStream;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{PageQuery, tell};
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::state::AppState;
use crate::wait::until;
use crate::wire::{Page, Problem, StageBody};

/// How long an answer waits for the read model.
const PATIENCE: Duration = Duration::from_secs(5);
/// The file of a version's examples.
const DATASET: &str = "dataset.jsonl";

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show)).routes(routes!(stage)).routes(routes!(file))
}

/// Versions of models, the newest first.
#[utoipa::path(get, path = "/finetune/registry", tag = "finetune", params(PageQuery),
    responses((status = 200, body = Page<ModelVersionView>), (status = 422, body = Problem)))]
async fn list(
    State(state): State<AppState>,
    Query(query): Query<PageQuery>,
) -> Result<Reply<Page<ModelVersionView>>, ApiError> {
    let page = finetune::models(&state.parts().sql, &query.page()?).await?;
    Ok(Reply(Page { items: page.items, next_cursor: page.next_cursor }))
}

/// The examples by their hash, which is all that a version knows of them.
fn examples(sha256: String) -> BlobRef {
    BlobRef { sha256, size_bytes: 0, media_type: "application/x-ndjson".to_owned() }
}

fn unknown(model: &str, version: &str) -> ApiError {
    let shown = |text: &str| text.chars().take(80).collect::<String>();
    let what = format!("there is no version {:?} of {:?}", shown(version), shown(model));
    ApiError::not_found("model_version_not_found", what).hint("riverrun finetune registry")
}

fn number(model: &str, version: &str) -> Result<i64, ApiError> {
    version.parse().map_err(|_| unknown(model, version))
}

async fn find(state: &AppState, model: &str, version: i64) -> Result<(ModelVersionView, AdapterFiles), ApiError> {
    finetune::model(&state.parts().sql, model, version).await?.ok_or_else(|| unknown(model, &version.to_string()))
}

/// A version of a model, with where it comes from.
#[utoipa::path(get, path = "/finetune/registry/{model}/{version}", tag = "finetune",
    params(("model" = String, Path), ("version" = i64, Path)),
    responses((status = 200, body = ModelVersionView), (status = 404, body = Problem)))]
async fn show(
    State(state): State<AppState>,
    Path((model, version)): Path<(String, String)>,
) -> Result<Reply<ModelVersionView>, ApiError> {
    let (view, _) = find(&state, &model, number(&model, &version)?).await?;
    Ok(Reply(view))
}

/// Says what a version is for. The model's name without a version means the one that was made `ready` last; a version that has
/// not passed its gate can't be.
#[utoipa::path(post, path = "/finetune/registry/{model}/{version}/stage", tag = "finetune", request_body = StageBody,
    params(("model" = String, Path), ("version" = i64, Path)),
    responses((status = 200, body = ModelVersionView), (status = 404, body = Problem), (status = 409, description = "gate_not_passed", body = Problem), (status = 422, body = Problem)))]
async fn stage(
    State(state): State<AppState>,
    Path((model, version)): Path<(String, String)>,
    Json(body): Json<StageBody>,
) -> Result<Reply<ModelVersionView>, ApiError> {
    let stage = ModelStage::by_name(&body.stage)
        .ok_or_else(|| ApiError::field("stage", not_there(&body.stage, ModelStage::ALL.map(ModelStage::as_str))))?;
    let version = number(&model, &version)?;
    let (view, _) = find(&state, &model, version).await?;
    if stage == ModelStage::Ready && !view.gate.passed {
        let reason = view.gate.reason.unwrap_or_else(|| "it was not tried".to_owned());
        let model = &view.chat_model;
        return Err(ApiError::conflict("gate_not_passed", format!("{model} can't be ready: {reason}")).hint(format!(
            "another training makes the next version; where this one has a merged model, riverrun chat --model {model} PROMPT tries it"
        )));
    }
    let small = i32::try_from(version).map_err(|_| ApiError::field("version", "is too large"))?;
    tell(&state, ModelStaged { model: model.clone(), version: small, stage, at: now_ms() }).await?;
    let view = settled(&state, &model, version, stage).await?;
    point(&state, &model, version, stage)?;
    Ok(Reply(view))
}

/// Waits until the read model shows the stage.
async fn settled(state: &AppState, model: &str, version: i64, stage: ModelStage) -> Result<ModelVersionView, ApiError> {
    let shown = until(PATIENCE, || async {
        let (view, _) = find(state, model, version).await?;
        Ok::<_, ApiError>((view.stage == stage.as_str()).then_some(view))
    });
    match shown.await? {
        Some(view) => Ok(view),
        None => Ok(find(state, model, version).await?.0),
    }
}

/// Lets the model's name mean a version that is ready, and no more one that is not.
fn point(state: &AppState, model: &str, version: i64, stage: ModelStage) -> Result<(), ApiError> {
    let models = &state.core().models().settings().cache_dir;
    let folder = export::merged_folder(models, model, version);
    let meant = std::fs::read_link(models.join(model)).ok();
    let means_this = meant.is_some_and(|meant| Some(meant.as_os_str()) == folder.file_name());
    match stage {
        ModelStage::Ready if folder.is_dir() => Ok(export::point(models, model, Some(version))?),
        ModelStage::Candidate | ModelStage::Retired if means_this => Ok(export::point(models, model, None)?),
        ModelStage::Ready | ModelStage::Candidate | ModelStage::Retired | ModelStage::Unknown => Ok(()),
    }
}

/// A file of a version: of its adapter, in the layout of PEFT, `adapter_model.safetensors` or `adapter_config.json`; the merged model,
/// `model.gguf`, where this server has it; or the examples that it was trained on, `dataset.jsonl`, with their runs where they were
/// made of runs.
#[utoipa::path(get, path = "/finetune/registry/{model}/{version}/files/{file}", tag = "finetune",
    params(("model" = String, Path), ("version" = i64, Path), ("file" = String, Path)),
    responses((status = 200, description = "the file", content_type = "application/octet-stream", body = Vec<u8>), (status = 404, body = Problem)))]
async fn file(
    State(state): State<AppState>,
    Path((model, version, file)): Path<(String, String, String)>,
) -> Result<Response, ApiError> {
    let (view, files) = find(&state, &model, number(&model, &version)?).await?;
    let content = match file.as_str() {
        export::ADAPTER_WEIGHTS => state.parts().blobs.get(&files.weights).await?,
        export::ADAPTER_CONFIG => files.config.into_bytes().into(),
        GGUF_FILE => return merged(&state, &view).await,
        DATASET => state.parts().blobs.get(&examples(view.dataset_sha256)).await?,
        _ => {
            return Err(ApiError::not_found("not_found", "a version has no such file").hint(format!(
                "{}, {}, {GGUF_FILE} or {DATASET}",
                export::ADAPTER_WEIGHTS,
                export::ADAPTER_CONFIG
            )));
        }
    };
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\"")),
    ];
    Ok((headers, content).into_response())
}

/// The merged model of a version. It is too large for the blob store, and lies where its trainer keeps models.
async fn merged(state: &AppState, view: &ModelVersionView) -> Result<Response, ApiError> {
    let folder = export::merged_folder(&state.core().models().settings().cache_dir, &view.model, view.version);
    let path = folder.join(GGUF_FILE);
    let file = match tokio::fs::File::open(&path).await {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(no_merged(view, path)),
        Err(error) => return Err(unreadable(&path, &error)),
    };
    let length = file.metadata().await.map_err(|error| unreadable(&path, &error))?.len();
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{}.gguf\"", view.chat_model)),
        (CONTENT_LENGTH, length.to_string()),
    ];
    Ok((headers, Body::from_stream(ReaderStream::new(file))).into_response())
}

fn no_merged(view: &ModelVersionView, path: PathBuf) -> ApiError {
    let what = format!("{} has no merged model on this server: {} is not there", view.chat_model, path.display());
    let gate = match &view.gate.reason {
        Some(reason) if !view.gate.passed => format!("; it did not pass its gate: {reason}"),
        Some(_) | None => String::new(),
    };
    ApiError::not_found("merged_model_missing", what).hint(format!(
        "it lies in RIVERRUN_MODELS_CACHE_DIR of the process that trained it{gate}; the adapter can be exported"
    ))
}

fn unreadable(path: &std::path::Path, error: &std::io::Error) -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "merged_model_unreadable",
        format!("{} can't be read: {error}", path.display()),
    )
}
