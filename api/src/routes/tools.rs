//! Tool manifests.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Json;
use axum::extract::{FromRef, State};
use riverrun_agents::tools::{Hit, Search, SearchFailure, ToolManifest, Toolbox, warehouse_query};
use riverrun_schemas::agent::ToolEffect;
use riverrun_schemas::{CollectionName, Namespace};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::Query;
use crate::state::Core;
use crate::submit::Checks;
use crate::wire::{Items, ToolEntry};

pub(super) fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(tools))
}

/// Describing a tool calls nothing; whoever calls tools has a real one.
struct Uncalled;

#[async_trait]
impl Search for Uncalled {
    async fn search(
        &self,
        _: &Namespace,
        _: Option<&[CollectionName]>,
        _: &str,
        _: usize,
    ) -> Result<Vec<Hit>, SearchFailure> {
        Err(SearchFailure("the catalog of tools calls none".to_owned()))
    }
}

/// Manifests of the tools that every process has.
pub(crate) fn builtin() -> Vec<ToolManifest> {
    let mut manifests = Toolbox::builtin(Arc::new(Uncalled)).manifests();
    manifests.push(warehouse_query::manifest());
    manifests
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ToolsQuery {
    /// The namespace whose tools are shown; `default` when left out.
    namespace: Option<String>,
}

/// The tools that agents of a namespace can use.
#[utoipa::path(get, path = "/tools", tag = "agents", params(ToolsQuery), responses((status = 200, body = Items<ToolEntry>)))]
async fn tools(State(core): State<Core>, Query(query): Query<ToolsQuery>) -> Result<Json<Items<ToolEntry>>, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(query.namespace.as_deref());
    checks.finish()?;
    let items = core.tools().iter().filter(|tool| tool.is_in(&namespace)).map(|tool| entry(tool, &namespace)).collect();
    Ok(Json(Items { items }))
}

fn entry(tool: &ToolManifest, namespace: &Namespace) -> ToolEntry {
    let effect = match tool.effect {
        ToolEffect::None => "none",
        ToolEffect::Idempotent => "idempotent",
        ToolEffect::External | ToolEffect::Unknown => "external",
    };
    ToolEntry {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        effect: effect.to_owned(),
        source: tool.source.to_string(),
        namespace: namespace.to_string(),
    }
}
