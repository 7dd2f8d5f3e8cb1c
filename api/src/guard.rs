//! From where the API may be spoken to: `Host` and `Origin`, against DNS rebinding and foreign pages. Who may do what is
//! decided behind it, in [`access`](crate::access).

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN, UPGRADE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::config::{ApiConfig, SharedConfig};
use crate::error::ApiError;

/// Routes that probes call by any name.
const OPEN: &[&str] = &["/health", "/ready", "/metrics"];

/// Lets a request through or answers it with 403.
pub async fn check(State(config): State<SharedConfig>, request: Request, next: Next) -> Response {
    match judge(&config, request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn judge(config: &ApiConfig, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    if OPEN.contains(&uri.path()) {
        return Ok(());
    }
    check_host(config, uri, headers)?;
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if !reads || headers.contains_key(UPGRADE) {
        check_origin(config, headers)?;
    }
    Ok(())
}

fn check_host(config: &ApiConfig, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        // RFC 9112, 3.2: whoever stands in between may have gone by another one.
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "invalid_host",
            "the request has more than one Host header",
        ));
    }
    let given =
        host.and_then(|value| value.to_str().ok()).or_else(|| uri.authority().map(|authority| authority.as_str()));
    let name = given.map(host_name).unwrap_or_default();
    if is_loopback(name) || config.allowed_hosts.iter().any(|host| host.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "host_not_allowed",
        format!("requests for host {name:?} are not answered"),
    )
    .hint("add the name to RIVERRUN_API_ALLOWED_HOSTS"))
}

fn check_origin(config: &ApiConfig, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(origin) = headers.get(ORIGIN) else {
        // A browser that hides the origin still says that the page is a foreign one.
        let cross_site = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
        return if cross_site { Err(foreign("a page that hides its origin")) } else { Ok(()) };
    };
    let origin = origin.to_str().unwrap_or_default();
    let host = origin.split_once("://").map(|(_, rest)| host_name(rest)).unwrap_or_default();
    if is_loopback(host) || config.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    Err(foreign(&format!("origin {:?}", origin.chars().take(120).collect::<String>())))
}

fn foreign(who: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "origin_not_allowed", format!("{who} may not use this API"))
        .hint("add the origin, such as https://console.example, to RIVERRUN_API_ALLOWED_ORIGINS")
}

/// Whether an origin is that of a `Host` header, port included.
pub(crate) fn equals_host(origin: &str, host: &str) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority).unwrap_or_default();
    !authority.is_empty() && authority.eq_ignore_ascii_case(host.trim())
}

/// The host without its port.
fn host_name(authority: &str) -> &str {
    let authority = authority.trim();
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = authority.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((host, "")) => host,
            Some((host, behind)) if behind.strip_prefix(':').is_some_and(is_port) => host,
            // A name that only begins like an address.
            _ => authority,
        };
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => authority,
    }
}

/// Whether a name can only mean this machine.
pub fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(config: &ApiConfig, method: &str, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        judge(config, &method.parse().unwrap(), &path.parse().unwrap(), &headers)
            .map_or_else(|error: ApiError| error.status().as_u16(), |()| 200)
    }

    #[test]
    fn given_hosts_and_origins_when_a_request_comes_then_only_loopback_and_the_configured_pass() {
        let config = ApiConfig {
            allowed_hosts: vec!["runs.example".into()],
            allowed_origins: vec!["https://console.example".into()],
            ..ApiConfig::default()
        };
        for (expected, method, path, headers) in [
            (200, "POST", "/runs", vec![("host", "127.0.0.1:8000")]),
            (200, "POST", "/runs", vec![("host", "localhost")]),
            (200, "POST", "/runs", vec![("host", "[::1]:8000")]),
            (200, "POST", "/runs", vec![("host", "runs.example:443")]),
            (403, "POST", "/runs", vec![("host", "evil.example")]),
            (403, "GET", "/runs", vec![("host", "evil.example:8000")]),
            (403, "POST", "/runs", vec![("host", "127.0.0.1.evil.example")]),
            (403, "POST", "/runs", vec![("host", "localhost.evil.example")]),
            (403, "POST", "/runs", vec![("host", "[::1].evil.example")]),
            (403, "POST", "/runs", vec![("host", "[::1]:8000.evil.example")]),
            (403, "POST", "/runs", vec![("host", "[::1")]),
            (403, "POST", "/runs", vec![("host", "localhost"), ("origin", "http://[::1].evil.example")]),
            (403, "POST", "/runs", vec![]),
            (400, "GET", "/runs", vec![("host", "localhost"), ("host", "evil.example")]),
            (400, "GET", "/runs", vec![("host", "localhost"), ("host", "localhost")]),
            (200, "GET", "/health", vec![("host", "10.0.0.7")]),
            (200, "POST", "/runs", vec![("host", "localhost"), ("origin", "http://localhost:3000")]),
            (200, "POST", "/runs", vec![("host", "localhost"), ("origin", "https://console.example")]),
            (403, "POST", "/runs", vec![("host", "localhost"), ("origin", "https://evil.example")]),
            (403, "POST", "/runs", vec![("host", "localhost"), ("origin", "http://localhost.evil.example")]),
            (403, "POST", "/runs", vec![("host", "localhost"), ("origin", "null")]),
            (403, "POST", "/runs", vec![("host", "localhost"), ("sec-fetch-site", "cross-site")]),
            (
                403,
                "GET",
                "/ws/agent",
                vec![("host", "localhost"), ("upgrade", "websocket"), ("origin", "https://evil.example")],
            ),
            (200, "GET", "/ws/agent", vec![("host", "localhost"), ("upgrade", "websocket")]),
        ] {
            assert_eq!(status(&config, method, path, &headers), expected, "{method} {path} {headers:?}");
        }
    }
}
