//! Forms (`multipart/form-data`) and their fields, each with a limit.

use std::collections::HashSet;

use axum::body::Bytes;
use axum::extract::multipart::{Field, Multipart, MultipartError};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;

use crate::config::MAX_UPLOAD_BYTES;
use crate::error::ApiError;
use crate::extract::too_large;

/// Whether a request brings a form.
pub(super) fn is_form(request: &Request) -> bool {
    let given = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.trim_start().to_ascii_lowercase().starts_with("multipart/form-data")
}

/// The form that a request brings.
pub(super) async fn of(request: Request) -> Result<Multipart, ApiError> {
    let form = Multipart::from_request(request, &()).await;
    form.map_err(|rejection| ApiError::new(StatusCode::BAD_REQUEST, "invalid_multipart", rejection.body_text()))
}

/// The next field; none behind the last one.
pub(super) async fn next(form: &mut Multipart) -> Result<Option<Field<'_>>, ApiError> {
    form.next_field().await.map_err(unreadable)
}

/// The fields of a form that came and may not come again: which of two counts nobody has said.
#[derive(Debug, Default)]
pub(super) struct Once(HashSet<String>);

impl Once {
    /// Refuses a field that has come.
    pub(super) fn take(&mut self, name: &str) -> Result<(), ApiError> {
        if self.0.insert(name.to_owned()) { Ok(()) } else { Err(ApiError::field(name, "came twice in the form")) }
    }
}

/// The content of a field, of at most so many bytes.
pub(super) async fn bytes(mut field: Field<'_>, limit: usize) -> Result<Bytes, ApiError> {
    let mut content = Vec::new();
    while let Some(chunk) = field.chunk().await.map_err(unreadable)? {
        if content.len() + chunk.len() > limit {
            return Err(too_large(limit));
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content.into())
}

/// The same as text.
pub(super) async fn text(field: Field<'_>, limit: usize) -> Result<String, ApiError> {
    let name = field.name().unwrap_or_default().to_owned();
    String::from_utf8(bytes(field, limit).await?.into()).map_err(|_| ApiError::field(&name, "is not valid UTF-8"))
}

fn unreadable(error: MultipartError) -> ApiError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(MAX_UPLOAD_BYTES),
        _ => ApiError::new(StatusCode::BAD_REQUEST, "invalid_multipart", error.body_text()),
    }
}
