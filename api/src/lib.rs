//! The HTTP and WebSocket API: accepts work by putting commands on the log, answers from read models, and follows the log
//! for whoever watches. It drives nothing itself: when a connection goes, the run goes on.
//!
//! - `API-1` 202 is said only after the broker has acknowledged the command.
//! - `API-2` every error is a problem document with a stable code ([`error`]).
//! - `API-3` a repeat with its `Idempotency-Key` gets the first answer and starts nothing (`idempotency`).
//! - `HUB-1` a stream shows each step once and one end, from whatever point it begins ([`hub`]).

pub mod accept;
pub mod access;
mod adapters;
mod answer_cache;
mod blob_sweeps;
mod broker_figures;
pub mod canvas_document;
mod chains;
mod collection_check;
pub mod config;
pub mod crew;
mod documents;
mod drain;
mod encoding;
pub mod error;
pub mod extract;
pub mod figures;
pub(crate) mod forks;
pub mod guard;
mod health_page;
pub mod hub;
mod idempotency;
mod index_guard;
pub mod ingest_source;
mod isolation;
mod kept;
mod keyed;
pub mod mcp;
pub mod metrics;
mod prefer;
mod queries;
pub mod remember;
pub mod reservations;
pub mod routes;
pub mod services;
pub mod stack;
pub mod state;
mod strict;
pub mod submit;
mod unambiguous;
mod wait;
pub mod wire;
pub mod worker_figures;
mod ws;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware;
use tower::ServiceBuilder;
use tower_http::cors::{AllowOrigin, CorsLayer};
use tower_http::set_header::SetResponseHeaderLayer;

pub use config::ApiConfig;
pub use error::ApiError;
pub use routes::docs::openapi;
pub use state::{AppState, Core, ToolParts};

use config::{MAX_JSON_BYTES, MAX_UPLOAD_BYTES};

/// The whole API.
pub fn app(state: AppState) -> Router {
    let core = state.core().clone();
    let (core_routes, core_document) = routes::core::<AppState>().split_for_parts();
    let (stack_routes, stack_document) = routes::stack().split_for_parts();
    let without_query = queries::WithoutQuery::of(&[&core_document, &stack_document]);
    let unasked = middleware::from_fn_with_state(without_query, queries::check);
    let isolated = middleware::from_fn_with_state(state.clone(), isolation::check);
    let idempotent = middleware::from_fn_with_state(state.clone(), idempotency::keep);
    let core_routes = core_routes.merge(routes::registry::alias()).layer(unasked.clone()).layer(idempotent.clone());
    // Behind the isolation, which takes its parameter out of the query.
    let plain = core_routes.merge(stack_routes.layer(unasked).layer(idempotent).layer(isolated.clone()));
    let mcp = mcp::router(plain.clone().with_state(state.clone()));
    let routes = plain.merge(ws::router().layer(isolated)).with_state(state);
    wrap(routes.merge(routes::docs::router()).merge(mcp), core)
}

/// The routes that need neither log nor stores, for commands that start neither.
pub fn light_app(core: Core) -> Router {
    let (routes, _) = routes::core::<Core>().split_for_parts();
    wrap(routes.with_state(core.clone()), core)
}

/// What stands around every route.
fn wrap(routes: Router, core: Core) -> Router {
    let config = core.config().clone();
    let nosniff =
        SetResponseHeaderLayer::overriding(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // As one layer, from the outside in: each of several would be boxed by itself in every route, and copied with all below it for each
    // request.
    let around = ServiceBuilder::new()
        .layer(middleware::from_fn(drain::drain))
        .layer(middleware::from_fn_with_state(core.clone(), metrics::count))
        .layer(nosniff)
        .layer(middleware::from_fn(routes::openai::reshape))
        .layer(middleware::from_fn_with_state(config.clone(), guard::check))
        .layer(middleware::from_fn_with_state(core, access::check::check))
        .layer(middleware::from_fn(encoding::check))
        .layer(DefaultBodyLimit::max(MAX_JSON_BYTES));
    let routes = routes.fallback(routes::web::page).method_not_allowed_fallback(error::no_method).layer(around);
    match cors(&config.allowed_origins) {
        Some(cors) => routes.layer(cors),
        None => routes,
    }
}

/// Answers for pages of configured origins; none otherwise.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    (!origins.is_empty()).then(|| {
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
            .allow_headers([
                header::CONTENT_TYPE,
                header::AUTHORIZATION,
                HeaderName::from_static("idempotency-key"),
                HeaderName::from_static("last-event-id"),
                HeaderName::from_static("prefer"),
            ])
            .expose_headers([header::LOCATION, header::RETRY_AFTER])
    })
}

/// Largest body of an upload, for the route that takes them.
pub(crate) fn upload_limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(MAX_UPLOAD_BYTES)
}

#[cfg(test)]
#[path = "../../fuzz/harness.rs"]
mod fuzz;
