//! The login of the web pages: a token in a cookie that scripts can't read and that no other site's page sends.
//!
//! The cookie holds the token itself, so that every process knows it, it ends when the token is revoked, and whoever has
//! the stored hashes can make none.

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use axum::http::{HeaderMap, HeaderValue};

use crate::guard::equals_host;

/// Name of the cookie.
pub(crate) const COOKIE_NAME: &str = "riverrun_session";
/// How long a login holds, in seconds.
const MAX_AGE_S: u32 = 12 * 3_600;
/// The subprotocol that WebSocket clients ask for who put their token beside it.
pub(crate) const WS_PROTOCOL: &str = "riverrun";
/// How that token's subprotocol begins.
const WS_BEARER: &str = "riverrun.bearer.";

/// How a token was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// By nothing.
    Nothing,
    /// In a header, which no page of another site can set unasked.
    Header,
    /// In the cookie, which browsers send by themselves.
    Cookie,
}

impl Via {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Via::Nothing => "nothing",
            Via::Header => "header",
            Via::Cookie => "cookie",
        }
    }
}

/// The token of a request, by `Authorization`, by the subprotocol of a WebSocket, or by the cookie, in this order.
pub(crate) fn presented(headers: &HeaderMap) -> (Option<&str>, Via) {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let token = value.to_str().ok().and_then(bearer);
        return (token, Via::Header);
    }
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let beside = protocols.flat_map(|line| line.split(',')).find_map(|name| name.trim().strip_prefix(WS_BEARER));
    if let Some(token) = beside {
        return (Some(token), Via::Header);
    }
    match cookie(headers) {
        Some(token) => (Some(token), Via::Cookie),
        None => (None, Via::Nothing),
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, value)| *name == COOKIE_NAME && !value.is_empty())
        .map(|(_, value)| value)
}

/// Whether a request that changes something, or opens a WebSocket, comes from a page of this server or of an allowed
/// origin: what a browser sends by itself is no proof that its user wants it.
pub(crate) fn is_from_own_page(headers: &HeaderMap, allowed: &[String]) -> bool {
    let text = |value: Option<&HeaderValue>| value.and_then(|value| value.to_str().ok()).map(str::to_owned);
    match text(headers.get(ORIGIN)) {
        Some(origin) => {
            let host = text(headers.get(HOST)).unwrap_or_default();
            equals_host(&origin, &host) || allowed.iter().any(|one| one.eq_ignore_ascii_case(&origin))
        }
        None => headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin"),
    }
}

/// Sets the cookie. `None` for a token with characters that cookies can't carry.
pub(crate) fn set_cookie(token: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte);
    if token.is_empty() || token.len() > 1_024 || !token.bytes().all(fits) {
        return None;
    }
    HeaderValue::from_str(&cookie_line(token, MAX_AGE_S, headers)).ok()
}

/// Takes it away.
pub(crate) fn clear_cookie(headers: &HeaderMap) -> HeaderValue {
    HeaderValue::from_str(&cookie_line("", 0, headers)).unwrap_or(HeaderValue::from_static("")) // only ASCII of ours
}

fn cookie_line(value: &str, max_age_s: u32, headers: &HeaderMap) -> String {
    let secure = headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE_NAME}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn given_ways_to_present_a_token_when_a_request_comes_then_it_is_found_and_a_header_goes_first() {
        for (expected, given) in [
            ((Some("t"), Via::Header), vec![("authorization", "Bearer t")]),
            ((Some("t"), Via::Header), vec![("authorization", "bearer  t ")]),
            ((None, Via::Header), vec![("authorization", "Basic t"), ("cookie", "riverrun_session=c")]),
            ((Some("t"), Via::Header), vec![("authorization", "Bearer t"), ("cookie", "riverrun_session=c")]),
            ((Some("t"), Via::Header), vec![("sec-websocket-protocol", "riverrun, riverrun.bearer.t")]),
            ((Some("c"), Via::Cookie), vec![("cookie", "a=b; riverrun_session=c; d=e")]),
            ((None, Via::Nothing), vec![("cookie", "a=b; riverrun_session=; xriverrun_session=c")]),
            ((None, Via::Nothing), vec![]),
        ] {
            assert_eq!(presented(&headers(&given)), expected, "{given:?}");
        }
    }

    #[test]
    fn given_a_cookie_when_a_page_asks_then_only_one_of_the_same_origin_or_an_allowed_one_counts() {
        let allowed = vec!["https://console.example".to_owned()];
        for (expected, given) in [
            (true, vec![("host", "127.0.0.1:8000"), ("origin", "http://127.0.0.1:8000")]),
            (true, vec![("host", "runs.example"), ("origin", "https://runs.example")]),
            (true, vec![("host", "runs.example"), ("origin", "https://console.example")]),
            (true, vec![("host", "127.0.0.1:8000"), ("sec-fetch-site", "same-origin")]),
            (false, vec![("host", "127.0.0.1:8000"), ("origin", "http://127.0.0.1:3000")]),
            (false, vec![("host", "127.0.0.1:8000"), ("origin", "http://localhost:8000")]),
            (false, vec![("host", "127.0.0.1:8000"), ("origin", "null")]),
            (false, vec![("host", "127.0.0.1:8000"), ("sec-fetch-site", "same-site")]),
            (false, vec![("host", "127.0.0.1:8000")]),
        ] {
            assert_eq!(is_from_own_page(&headers(&given), &allowed), expected, "{given:?}");
        }
    }

    #[test]
    fn given_a_login_when_its_cookie_is_set_then_scripts_and_other_sites_do_not_get_at_it() {
        let line = set_cookie("rr_0", &headers(&[("origin", "https://runs.example")])).unwrap();
        let line = line.to_str().unwrap();
        for part in ["riverrun_session=rr_0;", "HttpOnly", "SameSite=Strict", "Path=/", "Secure"] {
            assert!(line.contains(part), "{line}");
        }
        let plain = set_cookie("rr_0", &headers(&[("origin", "http://127.0.0.1:8000")])).unwrap();
        assert!(!plain.to_str().unwrap().contains("Secure"));
        for bad in ["", "a b", "a;b", "a\"b", "a,b", "ä", "a\r\nb"] {
            assert!(set_cookie(bad, &HeaderMap::new()).is_none(), "{bad:?}");
        }
        assert!(clear_cookie(&HeaderMap::new()).to_str().unwrap().contains("Max-Age=0"));
    }
}
