//! The one error of the API: every failure becomes an RFC 9457 problem document with a stable code and a hint.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use riverrun_log::LogError;
use riverrun_log::broker::StorageFault;
use riverrun_models::ModelError;
use riverrun_schemas::NameError;
use riverrun_stores::StoreError;

use crate::wire::{FailureView, FieldError, Problem};

/// Media type of problem documents.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A request that can't be answered as it wished.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub struct ApiError {
    status: StatusCode,
    code: String,
    detail: String,
    hint: Option<String>,
    errors: Vec<FieldError>,
    run_id: Option<String>,
    retry_after_s: Option<u64>,
}

impl ApiError {
    /// A failure; `code` is stable, `detail` says what failed and the value it failed on.
    pub fn new(status: StatusCode, code: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            status,
            code: code.into(),
            detail: detail.into(),
            hint: None,
            errors: Vec::new(),
            run_id: None,
            retry_after_s: None,
        }
    }

    /// 404.
    pub fn not_found(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// 422 for fields of a body or a query.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let detail =
            errors.iter().map(|error| format!("{}: {}", error.field, error.reason)).collect::<Vec<_>>().join("; ");
        Self { errors, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request", detail) }
    }

    /// 422 for lines of a dataset; `detail` counts all of them, also those that are not among `errors`.
    pub fn invalid_lines(detail: impl Into<String>, errors: Vec<FieldError>) -> Self {
        Self { errors, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_dataset", detail) }
    }

    /// 422 for one field.
    pub fn field(field: &str, reason: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(field, reason)])
    }

    /// The same for a part of a larger body: each field is named with the place of the part.
    pub(crate) fn below(self, place: &str) -> Self {
        if self.errors.is_empty() {
            return self;
        }
        let errors =
            self.errors.into_iter().map(|error| FieldError::new(format!("{place}.{}", error.field), error.reason));
        Self { hint: self.hint, ..Self::invalid(errors.collect()) }
    }

    /// 409.
    pub fn conflict(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// 429: a limit is reached for now.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self { retry_after_s: Some(1), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", detail) }
    }

    /// Says after which time it may be tried again, in whole seconds, at least one.
    pub(crate) fn retry_after(mut self, wait: std::time::Duration) -> Self {
        self.retry_after_s = Some(wait.as_secs_f64().ceil().max(1.0) as u64);
        self
    }

    /// 503: the process is stopping. What it has accepted goes on, by another one or by the next.
    pub(crate) fn shutting_down() -> Self {
        let stopping = Self::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", "the process is stopping");
        Self { retry_after_s: Some(1), ..stopping }.hint("what was accepted goes on; ask for it when a server is there")
    }

    /// 500: a defect of ours.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    /// Adds the fix.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Replaces the code.
    pub fn code_as(mut self, code: impl Into<String>) -> Self {
        self.code = code.into();
        self
    }

    /// Names the run that the failure is about.
    pub fn about_run(mut self, run_id: impl ToString) -> Self {
        self.run_id = Some(run_id.to_string());
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The stable code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The problem document.
    pub fn problem(&self) -> Problem {
        Problem {
            kind: format!("urn:riverrun:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code.clone(),
            hint: self.hint.clone(),
            errors: self.errors.clone(),
            run_id: self.run_id.clone(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::warn!(code = self.code, status = self.status.as_u16(), error = self.detail, "request failed");
        }
        let body = serde_json::to_vec(&self.problem()).unwrap_or_default(); // strings and numbers: can't fail
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        (self.status, headers, body).into_response()
    }
}

fn with_hint(error: ApiError, hint: Option<String>) -> ApiError {
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

impl From<LogError> for ApiError {
    fn from(error: LogError) -> Self {
        let status = match &error {
            LogError::NotFound(_) => StatusCode::NOT_FOUND,
            LogError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            LogError::Encode(_) => StatusCode::INTERNAL_SERVER_ERROR,
            LogError::Storage(trouble) if trouble.fault == StorageFault::Full => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        with_hint(Self::new(status, error.code(), error.to_string()), error.hint().map(str::to_owned))
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::NoCollection(_) => StatusCode::NOT_FOUND,
            StoreError::Cursor(_) => StatusCode::UNPROCESSABLE_ENTITY,
            StoreError::EmbeddingMismatch { .. } | StoreError::Dimensions { .. } => StatusCode::CONFLICT,
            StoreError::NotFinite(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        with_hint(Self::new(status, error.code(), error.to_string()), error.hint())
    }
}

impl From<ModelError> for ApiError {
    fn from(error: ModelError) -> Self {
        let status = match &error {
            ModelError::RuntimeDown { .. }
            | ModelError::ModelMissing { .. }
            | ModelError::ModelUnreadable { .. }
            | ModelError::Unauthorized { .. }
            | ModelError::BadResponse { .. }
            | ModelError::Timeout { .. } => StatusCode::SERVICE_UNAVAILABLE,
            ModelError::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            ModelError::ContextOverflow { .. }
            | ModelError::BadRequest { .. }
            | ModelError::Unsupported { .. }
            | ModelError::UnknownProvider { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            ModelError::Cancelled | ModelError::BadPrices { .. } | ModelError::Internal { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        let mut answer = with_hint(Self::new(status, error.code(), error.to_string()), error.hint());
        if let ModelError::RateLimited { retry_after, .. } = &error {
            answer.retry_after_s = Some(retry_after.map_or(1, |wait| wait.as_secs().max(1)));
        }
        answer
    }
}

impl From<NameError> for ApiError {
    fn from(error: NameError) -> Self {
        Self::field(error.kind, error.to_string())
    }
}

/// A run that failed, as an answer of the status that its route has for that.
pub fn run_failed(status: StatusCode, error: &FailureView, run_id: impl ToString) -> ApiError {
    let answer = ApiError::new(status, error.code.clone(), error.message.clone()).about_run(run_id);
    with_hint(answer, error.hint.clone())
}

/// The route is not there.
pub async fn no_route(uri: axum::http::Uri) -> ApiError {
    ApiError::not_found("route_not_found", format!("there is nothing at {}", uri.path()))
        .hint("GET /docs shows every route")
}

/// The route is there and the method is not.
pub async fn no_method(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} does not take {method}", uri.path()),
    )
    .hint("GET /docs shows the methods of every route")
}

#[cfg(test)]
mod tests {
    use riverrun_log::broker::StorageTrouble;

    use super::*;

    #[test]
    fn given_a_log_that_can_not_be_written_when_it_refuses_then_a_full_disk_has_its_own_status_and_each_its_fix() {
        for (fault, status, code) in [
            (StorageFault::Full, 507, "log_disk_full"),
            (StorageFault::ReadOnly, 503, "log_not_writable"),
            (StorageFault::NoHandles, 503, "log_not_writable"),
            (StorageFault::Other, 503, "log_not_writable"),
        ] {
            let trouble = StorageTrouble {
                path: "/data/broker/topics/t/0".into(),
                fault,
                error: "No space left on device".to_owned(),
                since_ms: 0,
                fix: "free space in /data/broker".to_owned(),
            };
            let problem = ApiError::from(LogError::Storage(Box::new(trouble))).problem();
            assert_eq!((problem.status, problem.code.as_str()), (status, code));
            assert!(problem.detail.contains("/data/broker/topics/t/0: No space left on device"), "{problem:?}");
            assert_eq!(problem.hint.as_deref(), Some("free space in /data/broker"));
        }
    }
}
