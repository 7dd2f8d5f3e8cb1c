//! Model providers and their models.

use axum::Json;
use axum::extract::{FromRef, State};
use riverrun_models::{ModelInfo, ModelKind, ProviderKind};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::Query;
use crate::state::Core;
use crate::wire::{Items, ModelEntry, Problem, ProviderEntry};

pub(super) fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(providers)).routes(routes!(models))
}

/// The model providers, with whether they have a key.
#[utoipa::path(get, path = "/providers", tag = "models", responses((status = 200, body = Items<ProviderEntry>)))]
async fn providers(State(core): State<Core>) -> Json<Items<ProviderEntry>> {
    let items = core
        .models()
        .providers()
        .into_iter()
        .map(|provider| ProviderEntry {
            kind: match provider.kind {
                ProviderKind::Local => "local",
                ProviderKind::Server => "server",
                ProviderKind::Hosted => "hosted",
            }
            .to_owned(),
            name: provider.name,
            default: provider.default,
            has_key: provider.has_key,
            address: provider.address,
        })
        .collect();
    Json(Items { items })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ModelsQuery {
    /// The provider; the default one when left out.
    provider: Option<String>,
}

/// The models of a provider.
#[utoipa::path(get, path = "/models", tag = "models", params(ModelsQuery),
    responses((status = 200, body = Items<ModelEntry>), (status = 422, body = Problem), (status = 503, description = "the provider does not answer", body = Problem)))]
async fn models(
    State(core): State<Core>,
    Query(query): Query<ModelsQuery>,
) -> Result<Json<Items<ModelEntry>>, ApiError> {
    let items = core.models().list_models(query.provider.as_deref()).await?;
    Ok(Json(Items { items: items.into_iter().map(entry).collect() }))
}

/// A model as the API shows it.
pub fn entry(model: ModelInfo) -> ModelEntry {
    let kind = match model.kind {
        ModelKind::Chat => "chat",
        ModelKind::Embed => "embed",
        ModelKind::Rerank => "rerank",
        ModelKind::Unknown => "unknown",
    };
    ModelEntry {
        name: model.name,
        provider: model.provider,
        kind: kind.to_owned(),
        present: model.present,
        size_bytes: model.size_bytes,
        loaded_bytes: model.loaded_bytes,
        context_tokens: model.context_tokens,
        dimensions: model.dimensions,
        source: model.source,
    }
}
