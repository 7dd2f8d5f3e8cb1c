//! Extractors that refuse precisely: each failure is a problem document that names the field.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use http_body_util::LengthLimitError;
use riverrun_schemas::IdError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use utoipa::IntoParams;

use crate::config::MAX_JSON_BYTES;
use crate::error::ApiError;
use crate::strict::Strict;
use crate::unambiguous::Unambiguous;
use crate::wire::FieldError;

/// `?namespace=` and nothing else.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceQuery {
    /// The namespace; `default` when left out.
    pub(crate) namespace: Option<String>,
}

/// A JSON body: 415 without `application/json`, 413 over the limit, 400 when it is no JSON, 422 when it has the wrong
/// shape.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        check_json(request.headers())?;
        parse(&whole_body(request.into_body(), MAX_JSON_BYTES).await?).map(Self)
    }
}

/// As [`Json`], and no body at all reads as the type's default.
#[derive(Debug, Clone)]
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let typed = check_json(request.headers());
        let bytes = whole_body(request.into_body(), MAX_JSON_BYTES).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        typed?;
        parse(&bytes).map(Self)
    }
}

/// A body of at most so many bytes.
pub(crate) async fn whole_body(body: Body, limit_bytes: usize) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body, limit_bytes).await.map_err(|error| {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(cause) = source {
            if cause.is::<LengthLimitError>() {
                return too_large(limit_bytes);
            }
            source = cause.source();
        }
        ApiError::new(StatusCode::BAD_REQUEST, "unreadable_body", format!("the body can't be read: {error}"))
    })
}

/// 413 with the limit.
pub fn too_large(limit_bytes: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        format!("the body is larger than {limit_bytes} bytes"),
    )
    .hint("documents are handed in by multipart upload; tasks that need much text refer to a collection")
}

fn check_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        return Ok(());
    }
    let shown = if given.is_empty() {
        "missing".to_owned()
    } else {
        format!("{:?}", given.chars().take(80).collect::<String>())
    };
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        format!("the content type is {shown}"),
    )
    .hint("send the body with the header `Content-Type: application/json`"))
}

/// Reads JSON into a type; the error names the field. No object may name a field twice, at any depth.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // As JSON of any shape first. Read into a type at once, a value that can't be an enum would be reported as a fault of syntax, and
    // of two fields below one that may hold anything, the last would be taken.
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let Unambiguous(value) = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match inner.classify() {
            serde_json::error::Category::Data => wrong_shape(path, &inner.to_string()),
            _ => unreadable(&inner),
        }
    })?;
    deserializer.end().map_err(|error| unreadable(&error))?;
    of_value(value)
}

/// The same of JSON that was read.
pub fn of_value<T: DeserializeOwned>(value: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(Strict(value))
        .map_err(|error| wrong_shape(error.path().to_string(), &error.inner().to_string()))
}

fn unreadable(error: &serde_json::Error) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", format!("the body is not valid JSON: {error}"))
}

fn wrong_shape(path: String, message: &str) -> ApiError {
    // serde says where in the text it was; the path says it better.
    let reason = message.split(" at line ").next().unwrap_or(message).to_owned();
    let named = reason
        .strip_prefix("missing field `")
        .or_else(|| reason.strip_prefix("unknown field `"))
        .or_else(|| reason.strip_prefix("duplicate field `"))
        .and_then(|rest| rest.split('`').next());
    let field = match (path.as_str(), named) {
        (".", Some(name)) => name.to_owned(),
        (path, Some(name)) if !reason.starts_with("unknown") => format!("{path}.{name}"),
        _ => path,
    };
    ApiError::invalid(vec![FieldError::new(field, reason)])
}

/// The query string: 422 that names the parameter.
#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        axum::extract::Query::<T>::try_from_uri(&parts.uri)
            .map(|query| Self(query.0))
            .map_err(|rejection| wrong_query(&parts.uri, &rejection.body_text()))
    }
}

/// What the standard library says of a text that is no whole number of a type.
const NO_NUMBER: [&str; 4] =
    ["invalid digit found in string", "number too ", "cannot parse integer from empty string", "number would be zero"];

fn wrong_query(uri: &Uri, message: &str) -> ApiError {
    let message = message.strip_prefix("Failed to deserialize query string: ").unwrap_or(message);
    let (path, reason) = message.split_once(": ").unwrap_or((".", message));
    let pairs =
        axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
    match pairs.into_iter().find(|(name, _)| name == path) {
        Some((name, value)) if NO_NUMBER.iter().any(|start| reason.starts_with(start)) => {
            ApiError::field(&name, format!("is {value:?}, which is no whole number that can stand here"))
        }
        _ => wrong_shape(path.to_owned(), reason),
    }
}

/// What stands in the places of the path: 400 where that is no text.
#[derive(Debug, Clone)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        read.map(|path| Self(path.0)).map_err(|rejection| {
            let detail = format!("the path {:?} can't be read: {}", parts.uri.path(), rejection.body_text());
            ApiError::new(rejection.status(), "invalid_path", detail)
                .hint("percent-encode what stands in a path as UTF-8")
        })
    }
}

/// A typed id in the path: 404 when the text is none, since nothing can be found there. The hint is what lists such ids, where something does.
pub fn id<T: std::str::FromStr<Err = IdError>>(text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error: IdError| {
        let unknown = ApiError::not_found("not_found", error.to_string());
        match error.kind() {
            "run" => unknown.hint("riverrun runs ls"),
            "document" => unknown.hint("riverrun docs ls -c COLLECTION"),
            "project" => unknown.hint("riverrun project ls"),
            "training" => unknown.hint("riverrun finetune jobs"),
            _ => unknown,
        }
    })
}

/// The `Idempotency-Key` of a request that writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(pub Option<String>);

/// Longest key, in characters.
const MAX_KEY: usize = 255;

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut given = parts.headers.get_all("idempotency-key").iter();
        let Some(value) = given.next() else { return Ok(Self(None)) };
        if given.any(|other| other != value) {
            return Err(ApiError::field("Idempotency-Key", "came twice, with different keys"));
        }
        match value.to_str() {
            Ok(key) if !key.trim().is_empty() && key.len() <= MAX_KEY => Ok(Self(Some(key.trim().to_owned()))),
            _ => Err(ApiError::field("Idempotency-Key", format!("must have 1 to {MAX_KEY} visible ASCII characters"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::{DocumentId, FinetuneId, IngestId, ProjectId, RunId};
    use serde_json::json;

    use super::*;
    use crate::wire::RunBody;

    fn problem(body: &str) -> crate::wire::Problem {
        parse::<RunBody>(body.as_bytes()).unwrap_err().problem()
    }

    #[test]
    fn given_words_that_are_no_id_when_they_are_looked_up_then_the_hint_lists_such_ids() {
        fn hint<T: std::str::FromStr<Err = IdError>>() -> Option<String> {
            let problem = id::<T>("RUN_ID").err().unwrap().problem();
            assert_eq!((problem.status, problem.code.as_str()), (404, "not_found"));
            problem.hint
        }
        assert_eq!(hint::<RunId>().as_deref(), Some("riverrun runs ls"));
        assert_eq!(hint::<DocumentId>().as_deref(), Some("riverrun docs ls -c COLLECTION"));
        assert_eq!(hint::<ProjectId>().as_deref(), Some("riverrun project ls"));
        assert_eq!(hint::<FinetuneId>().as_deref(), Some("riverrun finetune jobs"));
        assert_eq!(hint::<IngestId>(), None, "nothing lists ingests");
    }

    #[test]
    fn given_parameters_that_can_not_be_when_they_are_read_then_each_is_named_with_its_value() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only whether they can be read counts")]
        struct Asked {
            collection: String,
            limit: Option<u16>,
        }
        for (query, field, reason) in [
            ("limit=3", "collection", "missing field `collection`"),
            ("collection=c&x=1", "x", "unknown field `x`, expected `collection` or `limit`"),
            ("collection=c&collection=d", "collection", "duplicate field `collection`"),
            ("collection=c&limit=abc", "limit", "is \"abc\", which is no whole number that can stand here"),
            ("collection=c&limit=", "limit", "is \"\", which is no whole number that can stand here"),
            ("collection=c&limit=70000", "limit", "is \"70000\", which is no whole number that can stand here"),
            ("collection=c&limit=-1", "limit", "is \"-1\", which is no whole number that can stand here"),
        ] {
            let uri: Uri = format!("/documents?{query}").parse().unwrap();
            let message = axum::extract::Query::<Asked>::try_from_uri(&uri).unwrap_err().body_text();
            let errors = wrong_query(&uri, &message).problem().errors;
            assert_eq!(errors.len(), 1, "{query}");
            assert_eq!((errors[0].field.as_str(), errors[0].reason.as_str()), (field, reason), "{query}");
        }
    }

    #[test]
    fn given_bodies_that_are_no_json_when_they_are_read_then_the_answer_is_400() {
        let deep = "[".repeat(10_000);
        for body in ["", "{", "{\"task\": \"x\"} trailing", "{'task': 1}", "\u{0}", &deep, "{\"metadata\": 1e999}"] {
            let problem = problem(body);
            assert!(
                (problem.status, problem.code.as_str()) == (400, "invalid_json") || problem.status == 422,
                "{body:.40}: {problem:?}"
            );
        }
        assert_eq!(problem("{").status, 400);
    }

    #[test]
    fn given_bodies_of_a_wrong_shape_when_they_are_read_then_the_field_is_named() {
        for (body, field) in [
            (json!({"task": 123}), "task"),
            (json!({}), "task"),
            (json!([]), "."),
            (json!(["x"]), "."),
            (json!({"task": "x", "budget": {"tokens": "many"}}), "budget.tokens"),
            (json!({"task": "x", "budget": {"token": 1}}), "budget.token"),
            (json!({"task": "x", "tools": ["a", 2]}), "tools[1]"),
            (json!({"task": "x", "approval": "sometimes"}), "approval"),
            (json!({"task": "x", "approval": 1}), "approval"),
            (json!({"task": "x", "approval": {}}), "approval"),
            (json!({"task": "x", "session_policy": []}), "session_policy"),
            (json!({"task": "x", "metadata": [1]}), "metadata"),
            (json!({"task": "x", "nonsense": 1}), "nonsense"),
        ] {
            let problem = problem(&body.to_string());
            assert_eq!((problem.status, problem.code.as_str()), (422, "invalid_request"), "{body}");
            assert_eq!(problem.errors[0].field, field, "{body}: {problem:?}");
        }
    }

    #[test]
    fn given_a_field_that_comes_twice_at_any_depth_when_a_body_is_read_then_it_is_named_and_none_of_the_two_is_taken() {
        for (body, field) in [
            (r#"{"task": "x", "task": "y"}"#, "task"),
            (r#"{"task": "x", "budget": {"tokens": 1, "tokens": 1}}"#, "budget.tokens"),
            (r#"{"task": "x", "metadata": {"a": 1, "a": 2}}"#, "metadata.a"),
            (r#"{"task": "x", "metadata": {"a": [{"b": {"c": 1, "\u0063": 2}}]}}"#, "metadata.a[0].b.c"),
        ] {
            let problem = problem(body);
            assert_eq!((problem.status, problem.code.as_str()), (422, "invalid_request"), "{body}");
            assert_eq!(problem.errors[0].field, field, "{body}: {problem:?}");
            assert!(problem.errors[0].reason.starts_with("duplicate field"), "{body}: {problem:?}");
        }
    }
}
