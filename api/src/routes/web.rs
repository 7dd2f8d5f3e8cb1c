//! The web pages, which are part of the program. They are open to whoever may speak to the API at all; what they show
//! they ask of the API like any other client.

use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, VARY,
};
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
/// What the pages' build puts behind the name of a text for its gzip; it is no page of its own.
const PACKED: &str = ".gz";

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
    (name != POLICY && !name.ends_with(PACKED)).then(|| Pages::get(&name)).flatten().map(|file| (name, file))
}

fn answer(name: &str, file: EmbeddedFile, headers: &HeaderMap) -> Response {
    let packed = if takes_gzip(headers) { Pages::get(&format!("{name}{PACKED}")) } else { None };
    let is_packed = packed.is_some();
    let kind = HeaderValue::from_str(file.metadata.mimetype());
    let file = packed.unwrap_or(file);
    // Of what is sent: each encoding has a tag of its own.
    let hash: String = file.metadata.sha256_hash().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{hash}\"");
    let cache = if name.starts_with(IMMUTABLE) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let known = headers.get(IF_NONE_MATCH).is_some_and(|given| given.as_bytes() == tag.as_bytes());
    let mut response =
        if known { StatusCode::NOT_MODIFIED.into_response() } else { file.data.into_owned().into_response() };
    let out = response.headers_mut();
    out.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    out.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    out.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_packed && !known {
        out.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        out.insert(ETAG, tag);
    }
    if let Ok(kind) = kind {
        out.insert(CONTENT_TYPE, kind);
    }
    if name.ends_with(".html")
        && let Some(policy) = policy()
    {
        out.insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Whether the client takes gzip: by its name, else by `*`, and not where its quality is zero (RFC 9110, 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let given = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for offer in given.flat_map(|value| value.split(',')) {
        let mut parts = offer.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default();
        let taken = !parts.any(is_zero_quality);
        if coding.eq_ignore_ascii_case("gzip") {
            return taken;
        }
        if coding == "*" {
            any = taken;
        }
    }
    any
}

fn is_zero_quality(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("q") && value.trim().parse::<f32>().is_ok_and(|quality| quality <= 0.0)
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
        for path in [
            "/nothing",
            "/../Cargo.toml",
            "/%2e%2e/Cargo.toml",
            "/content-security-policy.txt",
            "/index.html.gz",
            "//etc/passwd",
        ] {
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

    #[test]
    fn given_what_a_client_takes_then_gzip_is_sent_only_to_those_that_take_it() {
        for (given, takes) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("*", true),
            ("br, *;q=0.1", true),
            ("", false),
            ("br, deflate", false),
            ("gzip;q=0", false),
            ("*, gzip; q=0.0", false),
            ("*;q=0", false),
            ("x-gzip-like", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(given))]);
            assert_eq!(takes_gzip(&headers), takes, "{given}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    async fn size_of(response: Response) -> usize {
        axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().len()
    }

    #[tokio::test]
    async fn given_a_script_when_the_client_takes_gzip_then_it_is_sent_as_such_under_a_tag_of_its_own() {
        let Some(script) = Pages::iter().find(|name| Pages::get(&format!("{name}{PACKED}")).is_some()) else { return };
        let path = format!("/{script}");
        let (plain, packed) = (get(&path, &[]).await, get(&path, &[(ACCEPT_ENCODING, "gzip")]).await);
        assert_eq!(plain.headers().get(CONTENT_ENCODING), None);
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(plain.headers()[CONTENT_TYPE], packed.headers()[CONTENT_TYPE]);
        assert_ne!(plain.headers()[ETAG], packed.headers()[ETAG]);
        for response in [&plain, &packed] {
            assert_eq!(response.headers()[VARY], "accept-encoding");
        }
        let tag = packed.headers()[ETAG].to_str().unwrap().to_owned();
        let again = get(&path, &[(ACCEPT_ENCODING, "gzip"), (IF_NONE_MATCH, &tag)]).await;
        assert_eq!((again.status(), again.headers().get(CONTENT_ENCODING)), (StatusCode::NOT_MODIFIED, None));
        assert!(size_of(packed).await < size_of(plain).await);
    }
}
