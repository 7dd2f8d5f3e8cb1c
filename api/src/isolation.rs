//! Whoever names a namespace sees nothing of another: also where an id alone would do.
//!
//! Runs, chains, ingests, removals, re-embeddings, tunings and rebuilds are found by their ids, which no one guesses, but where they follow from a key that somebody does. With `?namespace=` a caller says where it must be; what is
//! elsewhere is then as unknown as what never was. Whoever comes with a token that is bound to namespaces says so without
//! the parameter, too. It is checked here, in front of every route below `/runs/{id}`, `/chains/{id}`, `/ingest/{id}`,
//! `/deletions/{id}`, `/reembeddings/{id}`, `/tunings/{id}` and `/rebuilds/{id}` and their WebSockets, those to come included, and for every id in path and query alike.

use std::borrow::Cow;
use std::convert::identity;

use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use riverrun_schemas::{ChainId, IngestId, Namespace, RunId};
use riverrun_stores::read_models::{deletions, rebuilds, reembeddings, tunings};
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, Paths};
use utoipa::openapi::schema::{ObjectBuilder, Type};

use crate::access::caller;
use crate::chains::unknown as unknown_chain;
use crate::error::ApiError;
use crate::extract::id;
use crate::hub::{unknown_ingest, unknown_run};
use crate::routes::deletions::unknown_deletion;
use crate::routes::rebuilds::unknown_rebuild;
use crate::routes::reembeddings::unknown_reembedding;
use crate::routes::tunings::unknown_tuning;
use crate::state::AppState;
use crate::submit::Checks;

const PARAMETER: &str = "namespace";
/// Below these, an id says what is meant.
const PLACES: [&str; 7] =
    ["/runs/", "/chains/", "/ingest/", "/deletions/", "/reembeddings/", "/tunings/", "/rebuilds/"];

/// Answers 404 for what is in another namespace than the one named; hands on everything else, without the parameter.
pub(crate) async fn check(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let asked = match Asked::of(request.uri()) {
        Ok(Some(asked)) => asked,
        Ok(None) => return next.run(request).await,
        Err(error) => return error.into_response(),
    };
    // What was done can't be taken back where it turns out later whose it was done to.
    let looked =
        if request.method().is_safe() { asked.look(&state).await } else { asked.find(&state).await.map(|()| true) };
    let is_there = match looked {
        Ok(is_there) => is_there,
        Err(error) => return error.into_response(),
    };
    caller::looked_at(&asked.namespaces[0]);
    if asked.is_named {
        *request.uri_mut() = without_parameter(request.uri());
    }
    let response = next.run(request).await;
    let status = response.status();
    let answers = status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS;
    if is_there || !answers {
        return response;
    }
    // It came after the look: a stream waits for a run that nobody knows yet.
    match asked.look(&state).await {
        Ok(_) => response,
        Err(error) => error.into_response(),
    }
}

/// What a request names, and where it must be.
struct Asked {
    /// At least one.
    namespaces: Vec<Namespace>,
    /// Whether the query says so.
    is_named: bool,
    /// What may be an id.
    texts: Vec<String>,
}

impl Asked {
    /// `None` where nothing is to be looked at.
    fn of(uri: &Uri) -> Result<Option<Self>, ApiError> {
        let Some(id) = named(uri.path()) else { return Ok(None) };
        // A query that can't be read is the route's to refuse; the id in the path counts all the same.
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
        let given = pairs.iter().find(|(name, _)| name == PARAMETER).map(|(_, given)| given.as_str());
        let namespaces = match given {
            None => caller::bound_to(),
            Some(given) => {
                let mut checks = Checks::default();
                let namespace = checks.namespace(Some(given));
                checks.finish()?;
                vec![namespace]
            }
        };
        let is_named = given.is_some();
        let texts = std::iter::once(id.into_owned()).chain(pairs.into_iter().map(|(_, value)| value)).collect();
        Ok((!namespaces.is_empty()).then_some(Self { namespaces, is_named, texts }))
    }

    /// Whether all that it names is there; 404 for what is elsewhere.
    async fn look(&self, state: &AppState) -> Result<bool, ApiError> {
        let mut all = true;
        for text in &self.texts {
            all &= must_be_in(state, &self.namespaces, text).await?;
        }
        Ok(all)
    }

    /// The same, where a run that another process may have accepted just now is waited for as the routes do; 404 also for what is nowhere.
    async fn find(&self, state: &AppState) -> Result<(), ApiError> {
        for text in &self.texts {
            let mut is_there = must_be_in(state, &self.namespaces, text).await?;
            if !is_there && comes_soon(state, text).await? {
                is_there = must_be_in(state, &self.namespaces, text).await?;
            }
            if !is_there {
                return Err(unknown(text));
            }
        }
        Ok(())
    }
}

/// The id of an address below one of the places, as the route reads it: however its characters are written.
fn named(path: &str) -> Option<Cow<'_, str>> {
    let path = path.strip_prefix("/ws").unwrap_or(path);
    let below = PLACES.iter().find_map(|place| path.strip_prefix(place))?;
    let id = below.split('/').next().filter(|id| !id.is_empty())?;
    Some(percent_decode_str(id).decode_utf8_lossy())
}

async fn comes_soon(state: &AppState, text: &str) -> Result<bool, ApiError> {
    let Ok(run_id) = text.parse() else { return Ok(false) };
    Ok(state.hub().run_or_soon(run_id).await?.is_some())
}

/// 404 for an id of which nothing is known.
fn unknown(text: &str) -> ApiError {
    if let Ok(run_id) = text.parse() {
        return unknown_run(run_id);
    }
    if let Ok(chain_id) = text.parse() {
        return unknown_chain(chain_id);
    }
    id(text).map_or_else(identity, unknown_ingest)
}

/// Whether it is there; the error where that is elsewhere.
fn is_in(namespaces: &[Namespace], found: Option<&str>, unknown: ApiError) -> Result<bool, ApiError> {
    match found {
        Some(found) if namespaces.iter().all(|namespace| found != namespace.as_str()) => Err(unknown),
        found => Ok(found.is_some()),
    }
}

/// Whether what the text names is there, as is every text that is no id; 404 where it is elsewhere.
async fn must_be_in(state: &AppState, namespaces: &[Namespace], text: &str) -> Result<bool, ApiError> {
    if let Ok(run_id) = text.parse::<RunId>() {
        let request = state.hub().request(run_id).await?;
        return is_in(namespaces, request.as_ref().map(|request| request.namespace.as_str()), unknown_run(run_id));
    }
    if let Ok(chain_id) = text.parse::<ChainId>() {
        let chain = state.hub().chain(chain_id).await?;
        return is_in(namespaces, chain.as_ref().map(|chain| chain.namespace.as_str()), unknown_chain(chain_id));
    }
    let Ok(ingest_id) = text.parse::<IngestId>() else { return Ok(true) };
    let ingest = state.hub().ingest(ingest_id).await?;
    let mut is_there =
        is_in(namespaces, ingest.as_ref().map(|ingest| ingest.namespace.as_str()), unknown_ingest(ingest_id))?;
    let sql = &state.parts().sql;
    let deletion = deletions::deletion(sql, ingest_id).await?;
    is_there |= is_in(namespaces, deletion.as_ref().map(|view| view.namespace.as_str()), unknown_deletion(ingest_id))?;
    let reembedding = reembeddings::reembedding(sql, ingest_id).await?;
    is_there |=
        is_in(namespaces, reembedding.as_ref().map(|view| view.namespace.as_str()), unknown_reembedding(ingest_id))?;
    let tuning = tunings::tuning(sql, ingest_id).await?;
    is_there |= is_in(namespaces, tuning.as_ref().map(|view| view.namespace.as_str()), unknown_tuning(ingest_id))?;
    let rebuild = rebuilds::rebuild(sql, ingest_id).await?;
    is_there |= is_in(namespaces, rebuild.as_ref().map(|view| view.namespace.as_str()), unknown_rebuild(ingest_id))?;
    Ok(is_there)
}

fn without_parameter(uri: &Uri) -> Uri {
    let ours = |pair: &&str| pair.split('=').next() != Some(PARAMETER);
    let rest = uri.query().unwrap_or_default().split('&').filter(ours).collect::<Vec<_>>().join("&");
    let path = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{rest}", uri.path()) };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = path.parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Writes the parameter into the OpenAPI document, beside every operation that takes it.
pub(crate) fn describe(paths: &mut Paths) {
    for (path, item) in &mut paths.paths {
        if named(path).is_none() {
            continue;
        }
        for operation in [&mut item.get, &mut item.post, &mut item.put, &mut item.delete, &mut item.patch] {
            operation.iter_mut().for_each(add_parameter);
        }
    }
}

fn add_parameter(operation: &mut Operation) {
    let parameters = operation.parameters.get_or_insert_default();
    if parameters.iter().any(|parameter| matches!(parameter, RefOr::T(parameter) if parameter.name == PARAMETER)) {
        return;
    }
    let parameter = ParameterBuilder::new()
        .name(PARAMETER)
        .parameter_in(ParameterIn::Query)
        .description(Some("where it must be: what is in another namespace is answered as unknown"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build();
    parameters.push(RefOr::T(parameter));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_addresses_when_they_are_looked_at_then_only_those_with_an_id_are_checked() {
        for (path, id) in [
            ("/runs", None),
            ("/runs/", None),
            ("/runs/run_x", Some("run_x")),
            ("/chains", None),
            ("/chains/chn_x/cancel", Some("chn_x")),
            ("/runs/run_x/approvals/3", Some("run_x")),
            ("/ws/runs/run_x", Some("run_x")),
            ("/ingest", None),
            ("/ingest/ing_x", Some("ing_x")),
            ("/ws/ingest/ing_x", Some("ing_x")),
            ("/deletions/ing_x", Some("ing_x")),
            ("/ws/agent", None),
            ("/runsome/x", None),
            ("/runs/%72un%5fx/tree", Some("run_x")),
            ("/ws/runs/run_%78", Some("run_x")),
            ("/runs/%2572un_x", Some("%72un_x")),
            ("/runs/run_x%2Ftree", Some("run_x/tree")),
        ] {
            assert_eq!(named(path).as_deref(), id, "{path}");
        }
    }

    #[test]
    fn given_a_query_when_the_parameter_is_taken_out_then_the_rest_stays_as_it_was() {
        for (with, without) in [
            ("/runs/x?namespace=a", "/runs/x"),
            ("/runs/x?after=3&namespace=a&tokens=true", "/runs/x?after=3&tokens=true"),
            ("/runs/x?namespaces=a", "/runs/x?namespaces=a"),
            ("/runs/x?q=a%26namespace%3Db", "/runs/x?q=a%26namespace%3Db"),
        ] {
            assert_eq!(without_parameter(&with.parse().unwrap()).to_string(), without);
        }
    }
}
