//! The API that other clients already speak: OpenAI's, for models and for agents.

mod agent;
mod chat;
mod embeddings;
mod error;
mod fields;
mod forced;
mod request;
mod thinking;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json as Reply;
use axum::extract::State;
use axum::response::Response;
use futures::future::join_all;
use riverrun_agents::catalog;
use riverrun_models::{ModelInfo, ModelKind, Models, ProviderKind};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, Path};
use crate::state::AppState;
use crate::wire::openai::CompletionBody;
pub(crate) use error::reshape;

/// Names of agents begin with this.
const AGENT: &str = "agent/";
/// The agent name that lets the supervisor choose.
const AUTO: &str = "auto";
/// How long a provider is waited for when models are listed.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(completions))
        .routes(routes!(embeddings::embeddings))
        .routes(routes!(list))
        .route("/v1/models/{*name}", axum::routing::get(show))
}

/// A chat of a model or of an agent, in the shape of OpenAI's API. `agent/<name>` is a run on the log: its answer is the content, its steps
/// are `reasoning_content`, as is what a model in the process thinks before it answers. Errors of `/v1` have OpenAI's shape.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "openai", request_body = CompletionBody, responses(
    (status = 200, description = "a `chat.completion`, or with `stream: true` server-sent events of `chat.completion.chunk`")))]
async fn completions(
    State(state): State<AppState>,
    key: IdempotencyKey,
    Json(body): Json<CompletionBody>,
) -> Result<Response, ApiError> {
    match body.model.strip_prefix(AGENT).map(str::to_owned) {
        Some(agent) => agent::complete(state, &agent, key.0.as_deref(), body).await,
        None => chat::complete(state, body).await,
    }
}

/// The models that are at hand, and the agents: those of this process, and those of every provider that is set up and answers.
#[utoipa::path(get, path = "/v1/models", tag = "openai", responses((status = 200, description = "a `list` of `model`s")))]
async fn list(State(state): State<AppState>) -> Reply<Value> {
    Reply(json!({"object": "list", "data": entries(state.core().models()).await}))
}

/// One of them. Its name may hold a slash.
async fn show(State(state): State<AppState>, Path(name): Path<String>) -> Result<Reply<Value>, ApiError> {
    let found = entries(state.core().models()).await.into_iter().find(|entry| entry["id"] == name.as_str());
    found.map(Reply).ok_or_else(|| {
        let shown: String = name.chars().take(80).collect();
        ApiError::not_found("model_missing", format!("there is no model {shown:?}")).hint("GET /v1/models lists them")
    })
}

async fn entries(models: &Models) -> Vec<Value> {
    let entry = |id: String, owner: &str| json!({"id": id, "object": "model", "created": 0, "owned_by": owner});
    let catalog = catalog();
    let agents = catalog.iter().map(|manifest| manifest.name).chain([AUTO]);
    let mut entries: Vec<Value> = agents.map(|name| entry(format!("{AGENT}{name}"), "riverrun")).collect();
    let providers: Vec<_> = models.providers().into_iter().filter(|provider| is_set_up(models, provider)).collect();
    let listings = providers.iter().map(|provider| async {
        match tokio::time::timeout(PATIENCE, models.list_models(Some(&provider.name))).await {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => {
                tracing::warn!(provider = provider.name, %error, "models of a provider are not listed");
                Vec::new()
            }
            Err(_) => {
                tracing::warn!(provider = provider.name, "models of a provider are not listed: it does not answer");
                Vec::new()
            }
        }
    });
    let listed: Vec<ModelInfo> = join_all(listings).await.into_iter().flatten().collect();
    let usable = listed.into_iter().filter(|model| model.present && model.kind != ModelKind::Rerank);
    entries.extend(usable.map(|model| entry(format!("{}/{}", model.provider, model.name), &model.provider)));
    entries
}

/// Whether the operator has set a provider up: asking all others would only wait for what is not there.
fn is_set_up(models: &Models, provider: &riverrun_models::ProviderInfo) -> bool {
    provider.default
        || provider.has_key == Some(true)
        || provider.kind == ProviderKind::Local
        || models.settings().addresses.contains_key(&provider.name)
}

/// The name of a model as the adapter takes it: the default one for none.
fn model_name(name: &str) -> String {
    if name == "default" { String::new() } else { name.to_owned() }
}

/// Seconds since the epoch.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The tokens in OpenAI's shape; `cached` are those of the prompt that the provider says it had in its cache.
fn usage(prompt: u64, completion: u64, cached: u64) -> Value {
    let mut usage =
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion});
    if cached > 0 {
        usage["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    usage
}
