//! Requests with every check around them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, redirect};
use url::Url;

use super::error::WebError;
use super::policy::{WebPolicy, shown};
use super::resolve::{GuardedResolver, Lookup, SystemLookup};

const CONNECT_TIME: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("riverrun/", env!("CARGO_PKG_VERSION"));

/// Where a fetch stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// Largest body.
    pub max_bytes: usize,
    /// From the first lookup to the last byte, redirects included.
    pub timeout: Duration,
    /// Most redirects.
    pub max_redirects: usize,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { max_bytes: 20 << 20, timeout: Duration::from_secs(30), max_redirects: 5 }
    }
}

/// What was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Where the last redirect led.
    pub final_url: String,
    /// HTTP status.
    pub status: u16,
    /// As the server names it.
    pub content_type: Option<String>,
    /// All of it.
    pub body: Vec<u8>,
}

/// The methods of HTTP that requests may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebMethod {
    /// Reads.
    Get,
    /// Sends.
    Post,
    /// Replaces.
    Put,
    /// Changes.
    Patch,
    /// Removes.
    Delete,
}

impl WebMethod {
    fn method(self) -> Method {
        match self {
            WebMethod::Get => Method::GET,
            WebMethod::Post => Method::POST,
            WebMethod::Put => Method::PUT,
            WebMethod::Patch => Method::PATCH,
            WebMethod::Delete => Method::DELETE,
        }
    }
}

/// A request with its own method, headers and body.
#[derive(Clone)]
pub struct WebRequest {
    /// What is asked.
    pub method: WebMethod,
    /// Where.
    pub url: String,
    /// Sent to the origin of `url` and to no other. Values may be secret: they are in no error and no log.
    pub headers: Vec<(String, String)>,
    /// Sent with its media type.
    pub body: Option<(String, Vec<u8>)>,
}

/// Fetches from the public internet and from what the operator opened, and from nowhere else. Clones share connections.
///
/// The client is made when it is first needed: reading the root certificates takes a good part of a start.
#[derive(Clone)]
pub struct GuardedClient {
    http: Arc<OnceLock<Result<Client, WebError>>>,
    policy: Arc<WebPolicy>,
    lookup: Arc<dyn Lookup>,
    connect_time: Duration,
}

impl std::fmt::Debug for GuardedClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardedClient").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl GuardedClient {
    /// A client with the system's name resolution.
    pub fn new(policy: WebPolicy) -> Self {
        Self::with_lookup(policy, Arc::new(SystemLookup))
    }

    /// The same with another name resolution, whose answers are checked alike.
    pub fn with_lookup(policy: WebPolicy, lookup: Arc<dyn Lookup>) -> Self {
        Self { http: Arc::default(), policy: Arc::new(policy), lookup, connect_time: CONNECT_TIME }
    }

    /// One that gives up connecting after that time, where it is less than the usual one: whoever waits hardly longer than
    /// that must still learn that nothing was sent.
    #[must_use]
    pub fn connecting_within(&self, time: Duration) -> Self {
        if time >= self.connect_time {
            return self.clone();
        }
        Self { http: Arc::default(), connect_time: time, ..self.clone() }
    }

    fn http(&self) -> Result<&Client, WebError> {
        let built = self.http.get_or_init(|| {
            Client::builder()
                .dns_resolver(Arc::new(GuardedResolver { policy: self.policy.clone(), lookup: self.lookup.clone() }))
                .redirect(redirect::Policy::none())
                .no_proxy()
                .referer(false)
                .no_gzip()
                .no_brotli()
                .no_deflate()
                .no_zstd()
                .connect_timeout(self.connect_time)
                .user_agent(USER_AGENT)
                .build()
                .map_err(|error| WebError::Connection {
                    host: "the client".to_owned(),
                    reason: error.to_string(),
                    may_have_sent: false,
                })
        });
        built.as_ref().map_err(Clone::clone)
    }

    /// What it may reach.
    pub fn policy(&self) -> &WebPolicy {
        &self.policy
    }

    /// The connector inside, for protocols that speak HTTP themselves: it resolves names with the same checks and follows
    /// no redirect. The caller checks the URL with [`WebPolicy::check_url`] first, since an address in a URL is not resolved.
    ///
    /// # Errors
    /// When TLS can't be set up.
    pub fn connector(&self) -> Result<Client, WebError> {
        self.http().cloned()
    }

    /// Reads a URL, following redirects. Any status is an answer.
    pub async fn get(&self, url: &str, limits: FetchLimits) -> Result<Fetched, WebError> {
        let request = WebRequest { method: WebMethod::Get, url: url.to_owned(), headers: Vec::new(), body: None };
        self.send(request, limits).await
    }

    /// Sends a request. Redirects are followed for [`WebMethod::Get`] only; others answer with their 3xx.
    pub async fn send(&self, request: WebRequest, limits: FetchLimits) -> Result<Fetched, WebError> {
        let url = self.policy.check_url(&request.url)?;
        tokio::time::timeout(limits.timeout, self.follow(url, request, limits))
            .await
            .unwrap_or(Err(WebError::TimedOut { limit: limits.timeout }))
    }

    async fn follow(&self, first: Url, request: WebRequest, limits: FetchLimits) -> Result<Fetched, WebError> {
        let mut headers = header_map(&request.headers)?;
        let mut url = first.clone();
        for _ in 0..=limits.max_redirects {
            let response = self.once(&url, &request, headers.clone()).await?;
            if !(request.method == WebMethod::Get && is_redirect(response.status())) {
                return read(response, &url, limits.max_bytes).await;
            }
            let next = target(&url, &response)?;
            self.policy.check(&next)?;
            if next.origin() != first.origin() {
                headers.clear();
            }
            url = next;
        }
        Err(WebError::Redirects { limit: limits.max_redirects })
    }

    async fn once(&self, url: &Url, request: &WebRequest, headers: HeaderMap) -> Result<Response, WebError> {
        let mut sent = self
            .http()?
            .request(request.method.method(), url.clone())
            .headers(headers)
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some((media_type, body)) = &request.body {
            sent = sent.header(CONTENT_TYPE, media_type).body(body.clone());
        }
        let response = sent.send().await.map_err(|error| failed(url, &error))?;
        // WEB-2 once more, on the socket itself.
        if let Some(at) = response.remote_addr() {
            self.policy.check_address(url.host_str().unwrap_or_default(), at.ip())?;
        }
        Ok(response)
    }
}

fn header_map(pairs: &[(String, String)]) -> Result<HeaderMap, WebError> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let wrong = || WebError::BadUrl { url: String::new(), reason: format!("header {name:?} can't be sent") };
        let name: reqwest::header::HeaderName = name.parse().map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn target(from: &Url, response: &Response) -> Result<Url, WebError> {
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    location.and_then(|location| from.join(location).ok()).ok_or(WebError::BadRedirect)
}

async fn read(mut response: Response, url: &Url, max_bytes: usize) -> Result<Fetched, WebError> {
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if let Some(coding) = text(CONTENT_ENCODING).filter(|coding| !coding.trim().eq_ignore_ascii_case("identity")) {
        return Err(WebError::Coded { coding: coding.chars().take(40).collect() });
    }
    let content_type = text(CONTENT_TYPE);
    let too_large = WebError::TooLarge { limit: max_bytes };
    let declared = response.content_length().unwrap_or(0);
    if declared > u64::try_from(max_bytes).unwrap_or(u64::MAX) {
        return Err(too_large);
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| failed(url, &error))? {
        if body.len() + piece.len() > max_bytes {
            return Err(too_large);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Fetched { final_url: url.to_string(), status: response.status().as_u16(), content_type, body })
}

/// The refusal inside, or what went wrong with the connection, without the URL, whose query may hold a secret.
fn failed(url: &Url, error: &reqwest::Error) -> WebError {
    let mut reason = "the request can't be sent".to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(refused) = inner.downcast_ref::<WebError>() {
            return refused.clone();
        }
        reason = inner.to_string();
        cause = inner.source();
    }
    if error.is_timeout() && error.is_connect() {
        reason = "it can't be connected to in time".to_owned();
    }
    let host = url.host_str().map_or_else(|| shown(url.as_str()), str::to_owned);
    let may_have_sent = !error.is_connect() && !error.is_builder();
    WebError::Connection { host, reason: reason.chars().take(200).collect(), may_have_sent }
}
