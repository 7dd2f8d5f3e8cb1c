//! Which scope each operation wants, and how it comes by its namespace. One line an operation; what is not listed is for
//! operators only, and `given_the_openapi_document_…` fails until it is.

use axum::http::Method;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{OpenApi, RefOr};

use super::scope::Scope;

/// What a request must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: probes and the login.
    Open,
    /// A token, whatever it may do.
    Token,
    /// A token with that scope.
    Scope(Scope),
}

/// How an operation comes by its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It holds nothing of any.
    Nowhere,
    /// The request names it; a token's first one, or the default one, where it does not.
    Named,
    /// The query may name it and shows every one where it does not; for a bound token, its first one.
    Listed,
    /// An id in the path stands for something that is in one.
    ById,
    /// The path names it; a token's first one, or the default one, where it does not.
    Path,
    /// A message names it after the answer has begun.
    Later,
    /// It concerns everyone: not for bound tokens.
    Everywhere,
}

impl Reach {
    /// Whether no answer may be given without a namespace having been looked at.
    pub(crate) fn must_look(self) -> bool {
        match self {
            Reach::Named | Reach::Listed | Reach::ById | Reach::Path => true,
            Reach::Nowhere | Reach::Later | Reach::Everywhere => false,
        }
    }
}

/// Name of the security scheme in the OpenAPI document.
const SCHEME: &str = "bearer";
/// What stands for an operation that nobody listed.
const UNLISTED: (Need, Reach) = (Need::Scope(Scope::Admin), Reach::Everywhere);

const READ: Need = Need::Scope(Scope::Read);
const RUN: Need = Need::Scope(Scope::Run);
const INGEST: Need = Need::Scope(Scope::Ingest);
const TRAIN: Need = Need::Scope(Scope::Train);
const ADMIN: Need = Need::Scope(Scope::Admin);

type Line = (&'static str, &'static str, Need, Reach);

const OPERATIONS: &[Line] = &[
    ("GET", "/health", Need::Open, Reach::Nowhere),
    ("GET", "/ready", Need::Open, Reach::Nowhere),
    ("GET", "/metrics", Need::Open, Reach::Nowhere),
    ("GET", "/auth/session", Need::Open, Reach::Nowhere),
    ("POST", "/auth/session", Need::Open, Reach::Nowhere),
    ("DELETE", "/auth/session", Need::Open, Reach::Nowhere),
    ("GET", "/diagnose", READ, Reach::Nowhere),
    ("GET", "/agents", READ, Reach::Nowhere),
    ("GET", "/providers", READ, Reach::Nowhere),
    ("GET", "/models", READ, Reach::Nowhere),
    ("GET", "/models/cards", READ, Reach::Nowhere),
    // Its card is everyone's.
    ("POST", "/models/probe", RUN, Reach::Everywhere),
    ("GET", "/topics", READ, Reach::Nowhere),
    ("POST", "/chat", RUN, Reach::Nowhere),
    ("POST", "/embed", RUN, Reach::Nowhere),
    ("GET", "/v1/models", READ, Reach::Nowhere),
    ("GET", "/v1/models/{*name}", READ, Reach::Nowhere),
    // A chat of a model keeps nothing, one of an agent is a run: whether a namespace is looked at depends on the body.
    ("POST", "/v1/chat/completions", RUN, Reach::Later),
    ("POST", "/v1/embeddings", RUN, Reach::Nowhere),
    ("GET", "/tools", READ, Reach::Named),
    ("POST", "/tools/{name}/call", RUN, Reach::Named),
    ("POST", "/agent/run", RUN, Reach::Named),
    ("GET", "/runs", READ, Reach::Listed),
    ("POST", "/runs", RUN, Reach::Named),
    ("POST", "/chains", RUN, Reach::Named),
    ("GET", "/canvases", READ, Reach::Named),
    ("GET", "/canvases/{id}", READ, Reach::Named),
    ("PUT", "/canvases/{id}", RUN, Reach::Named),
    ("DELETE", "/canvases/{id}", RUN, Reach::Named),
    ("GET", "/chains/{id}", READ, Reach::ById),
    ("POST", "/chains/{id}/cancel", RUN, Reach::ById),
    ("GET", "/runs/{id}", READ, Reach::ById),
    ("GET", "/runs/{id}/compare", READ, Reach::ById),
    ("GET", "/runs/{id}/events", READ, Reach::ById),
    ("GET", "/runs/{id}/steps", READ, Reach::ById),
    ("GET", "/runs/{id}/tree", READ, Reach::ById),
    ("POST", "/runs/{id}/approvals/{step}", RUN, Reach::ById),
    ("POST", "/runs/{id}/cancel", RUN, Reach::ById),
    ("POST", "/runs/{id}/fork", RUN, Reach::ById),
    ("POST", "/runs/{id}/resume", RUN, Reach::ById),
    ("GET", "/usage", READ, Reach::Listed),
    ("POST", "/rag/search", READ, Reach::Named),
    ("POST", "/rag/ask", RUN, Reach::Named),
    ("GET", "/collections", READ, Reach::Listed),
    ("GET", "/collections/{name}/check", READ, Reach::Named),
    ("GET", "/collections/{name}/standing", READ, Reach::Named),
    ("DELETE", "/collections/{name}", INGEST, Reach::Named),
    ("GET", "/documents", READ, Reach::Named),
    ("GET", "/documents/{id}", READ, Reach::Named),
    ("GET", "/documents/{id}/text", READ, Reach::Named),
    ("DELETE", "/documents/{id}", INGEST, Reach::Named),
    ("POST", "/collections/{name}/reembed", INGEST, Reach::Named),
    ("GET", "/reembeddings/{id}", READ, Reach::ById),
    ("POST", "/collections/{name}/tune", INGEST, Reach::Named),
    ("GET", "/tunings/{id}", READ, Reach::ById),
    ("POST", "/collections/{name}/rebuild", INGEST, Reach::Named),
    ("GET", "/rebuilds/{id}", READ, Reach::ById),
    ("GET", "/deletions/{id}", READ, Reach::ById),
    ("POST", "/ingest", INGEST, Reach::Named),
    ("GET", "/ingest/{id}", READ, Reach::ById),
    ("GET", "/warehouse/tables", READ, Reach::Named),
    ("POST", "/warehouse/query", READ, Reach::Named),
    ("GET", "/memory/context", READ, Reach::Named),
    ("GET", "/memory/turns", READ, Reach::Named),
    ("GET", "/memory/why", READ, Reach::Named),
    ("POST", "/memory/turns", RUN, Reach::Named),
    ("POST", "/memory/chat", RUN, Reach::Named),
    ("DELETE", "/memory", RUN, Reach::Named),
    // Data sets, jobs and models that were trained are of no namespace.
    ("GET", "/finetune/datasets", READ, Reach::Everywhere),
    ("POST", "/finetune/datasets", TRAIN, Reach::Everywhere),
    ("GET", "/finetune/datasets/{name}", READ, Reach::Everywhere),
    ("GET", "/finetune/defaults", READ, Reach::Everywhere),
    ("POST", "/finetune/estimate", READ, Reach::Everywhere),
    ("GET", "/finetune/jobs", READ, Reach::Everywhere),
    ("POST", "/finetune/jobs", TRAIN, Reach::Everywhere),
    ("GET", "/finetune/jobs/{id}", READ, Reach::Everywhere),
    ("POST", "/finetune/jobs/{id}/cancel", TRAIN, Reach::Everywhere),
    ("GET", "/finetune/registry", READ, Reach::Everywhere),
    ("GET", "/finetune/registry/{model}/{version}", READ, Reach::Everywhere),
    ("GET", "/finetune/registry/{model}/{version}/files/{file}", READ, Reach::Everywhere),
    ("POST", "/finetune/registry/{model}/{version}/stage", TRAIN, Reach::Everywhere),
    // So are projects.
    ("GET", "/projects", READ, Reach::Everywhere),
    ("POST", "/projects/import", INGEST, Reach::Everywhere),
    ("GET", "/projects/tools", READ, Reach::Everywhere),
    ("POST", "/projects/tools", ADMIN, Reach::Everywhere),
    ("DELETE", "/projects/tools/{name}", ADMIN, Reach::Everywhere),
    ("GET", "/projects/{id}", READ, Reach::Everywhere),
    ("DELETE", "/projects/{id}", INGEST, Reach::Everywhere),
    ("POST", "/projects/{id}/analyze", RUN, Reach::Everywhere),
    ("GET", "/projects/{id}/report", READ, Reach::Everywhere),
    ("GET", "/projects/{id}/analyses", READ, Reach::Everywhere),
    ("GET", "/projects/{id}/trend", READ, Reach::Everywhere),
    ("GET", "/projects/{id}/files", READ, Reach::Everywhere),
    ("GET", "/projects/{id}/file", READ, Reach::Everywhere),
    ("POST", "/projects/{id}/improve", RUN, Reach::Everywhere),
    ("GET", "/projects/{id}/proposals", READ, Reach::Everywhere),
    ("GET", "/projects/{id}/proposals/{proposal}", READ, Reach::Everywhere),
    ("POST", "/projects/{id}/apply", INGEST, Reach::Everywhere),
    ("POST", "/projects/{id}/revert", INGEST, Reach::Everywhere),
    ("GET", "/projects/{id}/patch", READ, Reach::Everywhere),
    ("GET", "/dlq", ADMIN, Reach::Everywhere),
    ("GET", "/dlq/{id}", ADMIN, Reach::Everywhere),
    ("POST", "/dlq/{id}/drop", ADMIN, Reach::Everywhere),
    ("POST", "/dlq/{id}/redrive", ADMIN, Reach::Everywhere),
    ("GET", "/blobs", ADMIN, Reach::Everywhere),
    ("GET", "/blobs/check", ADMIN, Reach::Everywhere),
    ("POST", "/blobs/sweep", ADMIN, Reach::Everywhere),
    // The schema registry: schemas are public, and nothing is written through it.
    ("GET", "/schemas/types", READ, Reach::Nowhere),
    ("GET", "/schemas/ids/{id}", READ, Reach::Nowhere),
    ("GET", "/schemas/ids/{id}/schema", READ, Reach::Nowhere),
    ("GET", "/schemas/ids/{id}/subjects", READ, Reach::Nowhere),
    ("GET", "/schemas/ids/{id}/versions", READ, Reach::Nowhere),
    ("GET", "/subjects", READ, Reach::Nowhere),
    ("POST", "/subjects/{subject}", READ, Reach::Nowhere),
    ("GET", "/subjects/{subject}/versions", READ, Reach::Nowhere),
    ("POST", "/subjects/{subject}/versions", READ, Reach::Nowhere),
    ("GET", "/subjects/{subject}/versions/{version}", READ, Reach::Nowhere),
    ("GET", "/subjects/{subject}/versions/{version}/schema", READ, Reach::Nowhere),
    ("GET", "/config", READ, Reach::Nowhere),
    ("GET", "/config/{subject}", READ, Reach::Nowhere),
    ("GET", "/mode", READ, Reach::Nowhere),
    // Outside of the OpenAPI document.
    ("GET", "/ws/agent", RUN, Reach::Later),
    ("GET", "/ws/runs/{id}", READ, Reach::ById),
    ("GET", "/ws/ingest/{id}", READ, Reach::ById),
    ("GET", "/ws/finetune/{id}", READ, Reach::Everywhere),
];

/// What an operation wants; `None` for one that nobody listed.
pub(crate) fn listed(method: &str, route: &str) -> Option<(Need, Reach)> {
    let (_, _, need, reach) = OPERATIONS.iter().find(|line| line.0 == method && line.1 == route)?;
    Some((*need, *reach))
}

/// What a request wants. `route` is the pattern that it matched; `None` where nothing did, which is a page or no route.
pub(crate) fn of(method: &Method, route: Option<&str>) -> (Need, Reach) {
    let Some(route) = route else { return (Need::Token, Reach::Nowhere) };
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    if let Some(alias) = route.strip_prefix("/registry")
        && alias.starts_with('/')
    {
        return listed(method, alias).unwrap_or(UNLISTED);
    }
    if route == "/openapi.json" || route == "/docs" || route.starts_with("/docs/") {
        return (READ, Reach::Nowhere);
    }
    if matches!(route, "/mcp" | "/mcp/{namespace}") {
        return (RUN, Reach::Path);
    }
    listed(method, route).unwrap_or(UNLISTED)
}

/// Writes the scopes into the OpenAPI document, beside every operation that wants one.
pub(crate) fn describe(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let operations = [
            ("GET", &mut item.get),
            ("POST", &mut item.post),
            ("PUT", &mut item.put),
            ("DELETE", &mut item.delete),
            ("PATCH", &mut item.patch),
        ];
        for (method, operation) in operations {
            if let Some(operation) = operation
                && let (Need::Scope(scope), _) = listed(method, path).unwrap_or(UNLISTED)
            {
                operation.security = Some(vec![SecurityRequirement::new(SCHEME, [scope.as_str()])]);
            }
        }
    }
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    document.components.get_or_insert_default().add_security_scheme(SCHEME, RefOr::T(bearer));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn given_the_openapi_document_when_its_operations_are_looked_up_then_each_has_a_scope_here() {
        let document = serde_json::to_value(crate::openapi()).unwrap();
        let mut missing = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
                if ["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method.as_str())
                    && listed(&method, path).is_none()
                {
                    missing.push(format!("{method} {path}"));
                }
            }
        }
        assert!(missing.is_empty(), "say in api/src/access/operations.rs which scope is wanted by {missing:#?}");
    }

    #[test]
    fn given_operations_when_they_are_listed_then_each_is_once_and_only_these_are_open() {
        let names: BTreeSet<_> = OPERATIONS.iter().map(|line| (line.0, line.1)).collect();
        assert_eq!(names.len(), OPERATIONS.len(), "an operation is listed twice");
        let open: Vec<_> = OPERATIONS.iter().filter(|line| line.2 == Need::Open).map(|line| line.1).collect();
        assert_eq!(open, ["/health", "/ready", "/metrics", "/auth/session", "/auth/session", "/auth/session"]);
        // Whoever may only look changes nothing.
        let asks = [
            "/rag/search",
            "/warehouse/query",
            "/finetune/estimate",
            "/subjects/{subject}",
            "/subjects/{subject}/versions",
        ];
        for (method, route, need, _) in OPERATIONS {
            let harmless = *method == "GET" || asks.contains(route);
            assert!(*need != READ || harmless, "{method} {route}");
        }
    }

    #[test]
    fn given_routes_beside_the_document_when_they_are_asked_for_then_none_is_open() {
        for (method, route, need) in [
            ("GET", None, Need::Token),
            ("GET", Some("/openapi.json"), READ),
            ("GET", Some("/docs/{*rest}"), READ),
            ("POST", Some("/mcp/{namespace}"), RUN),
            ("HEAD", Some("/runs"), READ),
            ("GET", Some("/registry/subjects"), READ),
            ("PUT", Some("/runs"), ADMIN),
            ("GET", Some("/nobody/listed/this"), ADMIN),
        ] {
            assert_eq!(of(&method.parse().unwrap(), route).0, need, "{method} {route:?}");
        }
    }
}
