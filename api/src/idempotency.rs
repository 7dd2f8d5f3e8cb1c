//! `Idempotency-Key` of every POST that writes: a repeat gets the first answer and starts nothing.
//!
//! - `API-3` what was answered with success is kept for a day under caller, path, namespace and key, in the cache of the
//!   process or the one that processes share. The same key with another body is refused. What failed is not kept: where
//!   nothing was started, the same request may be sent again, and what was started is found by its id, with its failure.
//! - `API-4` a cache may forget. Behind it, the ids of whatever is started follow from namespace and key, whoever sends it, so
//!   that a repeat after a restart finds what was started on the log, and starts nothing either; another body under the key is
//!   refused there, too ([`crate::keyed`]). `docs/api.md` names what can't be compared there.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequestParts, MatchedPath, Query, Request, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use riverrun_log::blobs::sha256_hex;
use riverrun_schemas::Namespace;
use riverrun_stores::Cache;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, Paths};
use utoipa::openapi::schema::{ObjectBuilder, Type};

use crate::accept::key_conflict;
use crate::access::caller;
use crate::config::{MAX_JSON_BYTES, MAX_UPLOAD_BYTES};
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, whole_body};
use crate::state::AppState;

const HEADER: &str = "Idempotency-Key";
/// POSTs that write nothing which a repeat would write again. Every other one takes a key.
const READING: [&str; 10] = [
    "/auth/session",
    "/chat",
    "/embed",
    "/finetune/estimate",
    "/rag/ask",
    "/rag/search",
    "/subjects/{subject}",
    "/subjects/{subject}/versions",
    "/v1/embeddings",
    "/warehouse/query",
];
/// How long an answer is kept.
pub(crate) const KEEP: Duration = Duration::from_secs(24 * 3_600);
/// Largest answer that is kept, in bytes. A larger one is made anew, by what the key started.
const MAX_ANSWER_BYTES: usize = 512 << 10;

/// Answers a repeat with what was answered first, and keeps what is answered now.
pub(crate) async fn keep(State(state): State<AppState>, request: Request, next: Next) -> Response {
    match writes(&request) {
        true => handled(&state, request, next).await.unwrap_or_else(IntoResponse::into_response),
        false => next.run(request).await,
    }
}

fn writes(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    *request.method() == Method::POST && route.is_some_and(takes_key)
}

/// Whether a POST of this route writes.
fn takes_key(route: &str) -> bool {
    let route = route.strip_prefix("/registry").unwrap_or(route);
    !READING.contains(&route)
}

async fn handled(state: &AppState, request: Request, next: Next) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let IdempotencyKey(key) = IdempotencyKey::from_request_parts(&mut parts, state).await?;
    let Some(key) = key else { return Ok(next.run(Request::from_parts(parts, body)).await) };
    let limit = if form_boundary(&parts).is_some() { MAX_UPLOAD_BYTES } else { MAX_JSON_BYTES };
    let body = whole_body(body, limit).await?;
    let asked = Asked::read(&parts, &body, &key);
    let request = Request::from_parts(parts, Body::from(body));
    // What can't be read is the route's to refuse.
    let Some(asked) = asked else { return Ok(next.run(request).await) };
    let _turn = state.turns().take(&asked.place).await;
    let cache: &dyn Cache = state.core().cache().as_ref();
    match Kept::find(cache, &asked.place).await {
        Some(kept) if kept.request == asked.request => kept.again(),
        Some(_) if !asked.is_form => Err(key_conflict(&key, "request")),
        // Whether two forms hold the same, the route knows better.
        Some(_) | None => Kept::keep(cache, asked, next.run(request).await).await,
    }
}

/// The boundary of a `multipart/form-data` body.
fn form_boundary(parts: &Parts) -> Option<&str> {
    let given = parts.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let (kind, rest) = given.split_once(';')?;
    let boundary = rest.split(';').find_map(|one| one.trim().strip_prefix("boundary="))?;
    kind.trim().eq_ignore_ascii_case("multipart/form-data").then(|| boundary.trim_matches('"'))
}

/// What a request asks for.
struct Asked {
    /// What its answer is kept under: who asked where, in which namespace, with which key.
    place: String,
    /// A hash of all that it says.
    request: String,
    is_form: bool,
}

impl Asked {
    /// `None` for a body that is neither a form nor JSON.
    fn read(parts: &Parts, body: &Bytes, key: &str) -> Option<Self> {
        let query = parts.uri.query().unwrap_or_default();
        let boundary = form_boundary(parts);
        let (content, named) = match boundary {
            Some(boundary) => (form_hash(boundary.as_bytes(), body), None),
            None if body.is_empty() => (String::new(), None),
            None => {
                let mut value: Value = serde_json::from_slice(body).ok()?;
                // Neither spaces nor the order of fields make it another one.
                value.sort_all_objects();
                let named = value.get("namespace").and_then(Value::as_str).map(str::to_owned);
                (value.to_string(), named)
            }
        };
        let namespace = named.or_else(|| named_in_query(parts)).unwrap_or_default();
        let who = caller::current().map(|caller| caller.name().to_owned()).unwrap_or_default();
        Some(Self {
            place: format!("idempotency:{}", hash(&[&who, parts.uri.path(), &namespace, key])),
            request: hash(&[query, &content]),
            is_form: boundary.is_some(),
        })
    }
}

fn named_in_query(parts: &Parts) -> Option<String> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).ok()?.0;
    pairs.into_iter().find(|(name, _)| name == "namespace").map(|(_, given)| given)
}

fn hash(texts: &[&str]) -> String {
    // As JSON, so that no two lists of texts are the same bytes. Texts: can't fail.
    sha256_hex(&serde_json::to_vec(texts).unwrap_or_default())
}

/// A hash of what a form holds: clients draw a new boundary for each request.
fn form_hash(boundary: &[u8], body: &[u8]) -> String {
    let mut hash = Sha256::new();
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        let behind = line.strip_prefix(b"--").and_then(|rest| rest.strip_prefix(boundary));
        hash.update(behind.unwrap_or(line));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An answer that was given.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    request: String,
    /// The namespace that was looked at for it: who gets it again must still be allowed there.
    namespace: Option<Namespace>,
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Kept {
    async fn find(cache: &dyn Cache, place: &str) -> Option<Self> {
        serde_json::from_slice(&cache.get(place).await?).ok()
    }

    /// Keeps an answer that says success and is whole; gives it on in any case.
    async fn keep(cache: &dyn Cache, asked: Asked, response: Response) -> Result<Response, ApiError> {
        let size = response.body().size_hint().exact(); // a stream has none
        if !response.status().is_success() || size.is_none_or(|bytes| bytes > MAX_ANSWER_BYTES as u64) {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = axum::body::to_bytes(body, MAX_ANSWER_BYTES)
            .await
            .map_err(|error| ApiError::internal(format!("the answer can't be read: {error}")))?;
        let text = |name: &HeaderName| Some((name.to_string(), head.headers.get(name)?.to_str().ok()?.to_owned()));
        if let Ok(words) = str::from_utf8(&body) {
            let kept = Self {
                request: asked.request,
                namespace: caller::current().and_then(|caller| caller.namespace()),
                status: head.status.as_u16(),
                headers: [CONTENT_TYPE, LOCATION].iter().filter_map(text).collect(),
                body: words.to_owned(),
            };
            // Texts: can't fail.
            cache.put(&asked.place, serde_json::to_vec(&kept).unwrap_or_default(), KEEP).await;
        }
        Ok(Response::from_parts(head, Body::from(body)))
    }

    /// The same answer.
    fn again(self) -> Result<Response, ApiError> {
        if let Some(namespace) = &self.namespace {
            caller::admit(namespace)?;
        }
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).map_err(|error| ApiError::internal(error.to_string()))?;
        for (name, value) in self.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        Ok(response)
    }
}

/// Requests with a key that are handled now: of two that arrive together, the second waits for the answer of the first.
#[derive(Default)]
pub(crate) struct Turns {
    /// No more than there are requests and streams in work.
    held: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// Waits until nobody else holds the place.
    pub(crate) async fn take(&self, place: &str) -> OwnedMutexGuard<()> {
        self.lock_of(place).lock_owned().await
    }

    fn lock_of(&self, place: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut held = self.held.lock();
        held.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = held.get(place).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::<tokio::sync::Mutex<()>>::default();
        held.insert(place.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

/// Writes the header into the OpenAPI document, beside every operation that takes it.
pub(crate) fn describe(paths: &mut Paths) {
    for (path, item) in &mut paths.paths {
        if takes_key(path) {
            item.post.iter_mut().for_each(add_header);
        }
    }
}

fn add_header(operation: &mut Operation) {
    let parameters = operation.parameters.get_or_insert_default();
    if parameters.iter().any(|parameter| matches!(parameter, RefOr::T(parameter) if parameter.name == HEADER)) {
        return;
    }
    let parameter = ParameterBuilder::new()
        .name(HEADER)
        .parameter_in(ParameterIn::Header)
        .description(Some("a repeat with the same key gets the first answer and starts nothing"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build();
    parameters.push(RefOr::T(parameter));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kind: &str, uri: &str, body: &str) -> Option<Asked> {
        let (parts, ()) = axum::http::Request::post(uri).header(CONTENT_TYPE, kind).body(()).unwrap().into_parts();
        Asked::read(&parts, &Bytes::copy_from_slice(body.as_bytes()), "k")
    }

    #[test]
    fn given_requests_when_they_are_compared_then_only_what_they_say_counts() {
        let json = |uri: &str, body: &str| asked("application/json", uri, body).unwrap();
        let first = json("/runs", r#"{"task": "x", "metadata": {"a": 1, "b": 2}}"#);
        let same = json("/runs", r#"{"metadata":{"b":2,"a":1},"task":"x"}"#);
        assert_eq!((&first.place, &first.request), (&same.place, &same.request));
        for (uri, body) in [
            ("/runs", r#"{"task": "y", "metadata": {"a": 1, "b": 2}}"#),
            ("/runs", ""),
            ("/runs?again=true", r#"{"task": "x", "metadata": {"a": 1, "b": 2}}"#),
        ] {
            let other = json(uri, body);
            assert_eq!(other.place, first.place, "{uri} {body}");
            assert_ne!(other.request, first.request, "{uri} {body}");
        }
        for (uri, body) in [
            ("/agent/run", r#"{"task": "x"}"#),
            ("/runs", r#"{"task": "x", "namespace": "other"}"#),
            ("/runs?namespace=other", r#"{"task": "x"}"#),
        ] {
            assert_ne!(json(uri, body).place, first.place, "{uri} {body}");
        }
        assert!(asked("application/json", "/runs", "{").is_none());
    }

    #[test]
    fn given_forms_when_they_are_compared_then_their_boundaries_do_not_count() {
        let form = |boundary: &str, text: &str| {
            let kind = format!("multipart/form-data; boundary=\"{boundary}\"");
            let head = "content-disposition: form-data; name=\"file\"; filename=\"a\"";
            let body = format!("--{boundary}\r\n{head}\r\n\r\n{text}\r\n--{boundary}--\r\n");
            asked(&kind, "/ingest", &body).unwrap()
        };
        let first = form("one", "a text");
        assert!(first.is_form);
        assert_eq!(first.request, form("another", "a text").request);
        assert_ne!(first.request, form("one", "a text of another kind").request);
    }

    #[tokio::test]
    async fn given_a_key_in_work_when_it_comes_again_then_it_waits_and_others_do_not() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        drop(turns.take("b").await);
        let second = turns.lock_of("a");
        assert!(second.try_lock().is_err());
        drop(first);
        assert!(second.try_lock().is_ok());
        drop(second);
        drop(turns.take("c").await);
        assert_eq!(turns.held.lock().len(), 1, "what nobody holds is forgotten");
    }

    #[test]
    fn given_the_openapi_document_when_it_names_what_reads_then_each_of_these_is_there_and_every_other_post_takes_a_key()
     {
        let document = serde_json::to_value(crate::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        for route in READING {
            assert!(paths.get(route).is_some_and(|item| item.get("post").is_some()), "{route} is no POST");
        }
        for (path, item) in paths.iter().filter(|(_, item)| item.get("post").is_some()) {
            let parameters = item["post"]["parameters"].as_array().cloned().unwrap_or_default();
            let named = parameters.iter().filter(|one| one["name"] == HEADER && one["in"] == "header").count();
            assert_eq!(named, usize::from(takes_key(path)), "{path}");
        }
    }
}
