//! The agent catalog.

use axum::Json;
use axum::extract::FromRef;
use riverrun_agents::catalog;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::Core;
use crate::wire::{AgentEntry, Items};

pub(super) fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(agents))
}

/// The agent types, with what they can do.
#[utoipa::path(get, path = "/agents", tag = "agents", responses((status = 200, body = Items<AgentEntry>)))]
async fn agents() -> Json<Items<AgentEntry>> {
    let items = catalog()
        .into_iter()
        .map(|manifest| AgentEntry {
            name: manifest.name.to_owned(),
            description: manifest.description.to_owned(),
            capabilities: manifest.capabilities.iter().map(|word| (*word).to_owned()).collect(),
            tags: manifest.tags.iter().map(|word| (*word).to_owned()).collect(),
        })
        .collect();
    Json(Items { items })
}
