//! Errors of `/v1` in OpenAI's shape, whatever part of the server they come from: clients of that API read nothing else.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::{Value, json};

use crate::error::PROBLEM_JSON;
use crate::wire::Problem;

/// A problem document is never larger.
const MAX_PROBLEM: usize = 1 << 20;

/// Turns problem documents of `/v1` into errors of OpenAI's shape.
pub(crate) async fn reshape(request: Request, next: Next) -> Response {
    let ours = request.uri().path().starts_with("/v1/");
    let response = next.run(request).await;
    let problem = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == PROBLEM_JSON.as_bytes());
    if !(ours && problem) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, MAX_PROBLEM).await.unwrap_or_default();
    let Ok(problem) = serde_json::from_slice::<Problem>(&bytes) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    parts.status = status(&problem);
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(error_body(&problem).to_string()))
}

/// OpenAI's API knows 400 where ours says 422, and a model that is not there is not found.
pub(super) fn status(problem: &Problem) -> StatusCode {
    match problem.code.as_str() {
        "model_missing" => StatusCode::NOT_FOUND,
        _ if problem.status == 422 => StatusCode::BAD_REQUEST,
        _ => StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// The error object.
pub(super) fn error_body(problem: &Problem) -> Value {
    let status = status(problem);
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    };
    let code = match problem.code.as_str() {
        "context_overflow" => "context_length_exceeded",
        "model_missing" => "model_not_found",
        other => other,
    };
    let message = match &problem.hint {
        Some(hint) => format!("{} ({hint})", problem.detail),
        None => problem.detail.clone(),
    };
    let param = problem.errors.first().map(|error| error.field.as_str());
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ApiError;

    #[test]
    fn given_problems_when_they_are_reshaped_then_clients_know_them() {
        let missing = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "model_missing", "no m").hint("pull it").problem();
        assert_eq!(status(&missing), StatusCode::NOT_FOUND);
        assert_eq!(error_body(&missing)["error"]["code"], "model_not_found");
        assert_eq!(error_body(&missing)["error"]["message"], "no m (pull it)");
        let field = ApiError::field("n", "must be 1").problem();
        assert_eq!(status(&field), StatusCode::BAD_REQUEST);
        assert_eq!(error_body(&field)["error"]["param"], "n");
        let long = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "context_overflow", "x").problem();
        assert_eq!(error_body(&long)["error"]["code"], "context_length_exceeded");
    }
}
