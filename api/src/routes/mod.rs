//! One file a resource, each with its router and its part of the OpenAPI document.

pub mod agents;
mod auth;
mod awaited;
mod blobs;
mod canvases;
mod chains;
pub mod chat;
pub mod collections;
mod context;
pub mod dead_letters;
pub mod deletions;
pub mod docs;
mod document_text;
pub mod documents;
pub(crate) mod finetune;
mod form;
pub mod health;
pub mod ingest;
pub mod memory;
pub(crate) mod model_cards;
pub mod models;
pub(crate) mod openai;
mod project_tools;
pub mod projects;
pub mod rag;
pub mod rebuilds;
pub mod reembeddings;
pub mod registry;
pub mod run_control;
mod run_steps;
pub mod runs;
pub mod tools;
pub mod topics;
pub mod tunings;
mod upload;
mod usage;
pub mod warehouse;
pub(crate) mod web;

use axum::extract::FromRef;
use utoipa_axum::router::OpenApiRouter;

use crate::state::{AppState, Core, OpenLog};

/// Routes that need neither log nor stores.
pub(crate) fn core<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
    OpenLog: FromRef<S>,
{
    OpenApiRouter::new()
        .merge(agents::router())
        .merge(auth::router())
        .merge(tools::router())
        .merge(project_tools::router())
        .merge(models::router())
        .merge(chat::router())
        .merge(topics::router())
        .merge(registry::router())
}

/// Routes that need them.
pub(crate) fn stack() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .merge(health::router())
        .merge(collections::router())
        .merge(documents::router())
        .merge(document_text::router())
        .merge(runs::router())
        .merge(run_control::router())
        .merge(run_steps::router())
        .merge(chains::router())
        .merge(canvases::router())
        .merge(rag::router())
        .merge(ingest::router())
        .merge(tools::stack_router())
        .merge(memory::router())
        .merge(dead_letters::router())
        .merge(blobs::router())
        .merge(openai::router())
        .merge(usage::router())
        .merge(deletions::router())
        .merge(reembeddings::router())
        .merge(rebuilds::router())
        .merge(tunings::router())
        .merge(warehouse::router())
        .merge(finetune::router())
        .merge(model_cards::router())
        .merge(projects::router())
}
