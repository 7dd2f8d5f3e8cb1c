//! What stands in the query of an operation that takes none is refused: whoever says `?namespace=` there means it, and would be
//! answered for another namespace. Operations that take a query refuse what they do not know themselves ([`crate::extract::Query`]).

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use crate::error::ApiError;

/// Catalogs that are the same for everyone.
const CATALOGS: [&str; 3] = ["/agents", "/providers", "/topics"];
/// Below these, clients of other products ask, which add parameters of their own.
const FOREIGN: [&str; 2] = ["/v1/", "/subjects"];

/// Operations that take no query: all that write and have none in the OpenAPI document, and the catalogs.
#[derive(Debug, Clone)]
pub(crate) struct WithoutQuery(Arc<HashSet<(Method, String)>>);

impl WithoutQuery {
    /// Those of these documents.
    pub(crate) fn of(documents: &[&OpenApi]) -> Self {
        let mut found = HashSet::new();
        for (path, item) in documents.iter().flat_map(|document| &document.paths.paths) {
            if FOREIGN.iter().any(|place| path.starts_with(place)) {
                continue;
            }
            let catalog = item.get.as_ref().filter(|_| CATALOGS.contains(&path.as_str()));
            let operations = [
                (Method::GET, catalog),
                (Method::POST, item.post.as_ref()),
                (Method::PUT, item.put.as_ref()),
                (Method::DELETE, item.delete.as_ref()),
            ];
            for (method, operation) in operations {
                if operation.is_some_and(|operation| !takes_query(operation)) {
                    found.insert((method, path.clone()));
                }
            }
        }
        Self(Arc::new(found))
    }

    fn judge(&self, method: &Method, route: &str, uri: &Uri) -> Result<(), ApiError> {
        if uri.query().is_none_or(str::is_empty) || !self.0.contains(&(method.clone(), route.to_owned())) {
            return Ok(());
        }
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
        let name: String = pairs.first().map_or("query", |(name, _)| name.as_str()).chars().take(80).collect();
        let hint = match *method {
            Method::POST | Method::PUT => "leave the query out; a namespace stands in the body, where one counts",
            _ => "leave the query out",
        };
        Err(ApiError::field(&name, format!("{method} {route} takes no query")).hint(hint))
    }
}

fn takes_query(operation: &Operation) -> bool {
    operation.parameters.iter().flatten().any(|parameter| match parameter {
        RefOr::T(parameter) => parameter.parameter_in == ParameterIn::Query,
        RefOr::Ref(_) => true,
    })
}

/// Lets a request through, or answers it with 422 when it has a query that nobody reads.
pub(crate) async fn check(State(without): State<WithoutQuery>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    match without.judge(request.method(), route, request.uri()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}
