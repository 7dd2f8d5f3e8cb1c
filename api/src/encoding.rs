//! Bodies are read as they come: one that is packed (`Content-Encoding`) is refused by its name, before it is taken for broken
//! JSON or a broken form.

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;

/// Lets a request through, or answers it with 415 when its body is packed.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    match judge(request.headers()) {
        Err(error) if !request.body().is_end_stream() => error.into_response(),
        _ => next.run(request).await,
    }
}

fn judge(headers: &HeaderMap) -> Result<(), ApiError> {
    for value in headers.get_all(CONTENT_ENCODING) {
        let given = String::from_utf8_lossy(value.as_bytes());
        let packed = |name: &str| !name.trim().is_empty() && !name.trim().eq_ignore_ascii_case("identity");
        if given.split(',').any(packed) {
            let shown: String = given.chars().take(80).collect();
            let detail = format!("the content encoding is {shown:?}");
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", detail)
                .hint("send the body as it is, without `Content-Encoding`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn given_encodings_when_they_are_judged_then_only_none_and_identity_pass() {
        let judged = |given: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(given));
            judge(&headers).map_err(|error| error.status().as_u16())
        };
        assert!(judge(&HeaderMap::new()).is_ok());
        for given in ["", "identity", "Identity", "identity, identity"] {
            assert_eq!(judged(given), Ok(()), "{given}");
        }
        for given in ["gzip", "br", "GZIP", "identity, gzip", "deflate", "zstd", "x"] {
            assert_eq!(judged(given), Err(415), "{given}");
        }
    }
}
