//! The web pages, which are part of the program. They are open to whoever may speak to the API at all; what they show
//! they ask of the API like any other client.

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::error::{self, ApiError};

#[derive(RustEmbed)]
#[folder = "../web/out"]
#[allow_missing = true]
struct Pages;

/// Written by the pages' build, which leaves no inline script in them.
const POLICY: &str = "content-security-policy.txt";
/// Names of files below change with their content.
const IMMUTABLE: &str = "_next/static/";

/// Whether a request is for a page or a part of one.
pub(crate) fn is_page(method: &Method, path: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && find(path).is_some()
}

/// Answers with the page of that address; anything else is no route.
pub(crate) async fn page(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if !matches!(method, Method::GET | Method::HEAD) {
        return error::no_route(uri).await.into_response();
    }
    match find(uri.path()) {
        Some((name, file)) => answer(&name, file, &headers),
        None if uri.path() == "/" => {
            ApiError::new(StatusCode::NOT_FOUND, "no_web_pages", "this binary carries no web pages")
                .hint("build it by ./x build, which exports them first; the API is described at /docs")
                .into_response()
        }
        None => error::no_route(uri).await.into_response(),
    }
}

fn find(path: &str) -> Option<(String, EmbeddedFile)> {
    let path = path.strip_prefix('/')?;
    let name = if path.is_empty() || path.ends_with('/') { format!("{path}index.html") } else { path.to_owned() };
    (name != POLICY).then(|| Pages::get(&name)).flatten().map(|file| (name, file))
}

fn answer(name: &str, file: EmbeddedFile, headers: &HeaderMap) -> Response {
    let hash: String = file.metadata.sha256_hash().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{hash}\"");
    let cache = if name.starts_with(IMMUTABLE) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let known = headers.get(IF_NONE_MATCH).is_some_and(|given| given.as_bytes() == tag.as_bytes());
    let mut response =
        if known { StatusCode::NOT_MODIFIED.into_response() } else { file.data.into_owned().into_response() };
    let out = response.headers_mut();
    out.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    out.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        out.insert(ETAG, tag);
    }
    if let Ok(kind) = HeaderValue::from_str(file.metadata.mimetype()) {
        out.insert(CONTENT_TYPE, kind);
    }
    if name.ends_with(".html")
        && let Some(policy) = policy()
    {
        out.insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn policy() -> Option<HeaderValue> {
    let file = Pages::get(POLICY)?;
    HeaderValue::from_bytes(file.data.trim_ascii()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(path: &str, headers: &[(axum::http::HeaderName, &str)]) -> Response {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        page(Method::GET, path.parse().unwrap(), headers).await
    }

    #[tokio::test]
    async fn given_an_address_that_is_no_page_then_it_is_no_route() {
        for path in ["/nothing", "/../Cargo.toml", "/%2e%2e/Cargo.toml", "/content-security-policy.txt", "//etc/passwd"]
        {
            assert_eq!(get(path, &[]).await.status(), StatusCode::NOT_FOUND, "{path}");
        }
        assert!(!is_page(&Method::POST, "/"));
    }

    #[tokio::test]
    async fn given_pages_then_each_has_a_strict_policy_and_is_answered_anew_only_when_it_changed() {
        if Pages::get("index.html").is_none() {
            assert_eq!(get("/", &[]).await.status(), StatusCode::NOT_FOUND, "and the hint says how to build them");
            return;
        }
        for path in
            ["/", "/ui/runs/", "/ui/collections/", "/ui/documents/", "/ui/finetuning/", "/ui/projects/", "/ui/system/"]
        {
            let response = get(path, &[]).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
            let scripts = policy.split(';').find(|part| part.trim().starts_with("script-src")).unwrap();
            assert!(policy.contains("default-src 'none'") && scripts.trim() == "script-src 'self'", "{policy}");
            let tag = response.headers()[ETAG].to_str().unwrap().to_owned();
            assert_eq!(get(path, &[(IF_NONE_MATCH, &tag)]).await.status(), StatusCode::NOT_MODIFIED, "{path}");
        }
    }
}
