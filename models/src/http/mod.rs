//! What the providers behind HTTP share: one client, retries, limits, errors.

pub(crate) mod client;
pub(crate) mod frames;
pub(crate) mod lines;
pub(crate) mod pieces;
pub(crate) mod refusal;
pub(crate) mod sigv4;

use std::error::Error as _;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use crate::error::ModelError;
use crate::secret::Secret;
use crate::settings::Access;
use client::LazyClient;
use refusal::{is_bad_key, is_missing_model, is_out_of_quota, message_of, overflow_of, retry_delay_of};
use sigv4::{Signed, Signer};

/// An answer that is read at once may have this many bytes: 4,096 vectors of 1,024 numbers in JSON fit.
const MAX_BODY_BYTES: usize = 128 << 20;
/// The body of an error is read up to here: some servers put the whole request into it, prompt and all.
const MAX_ERROR_BYTES: usize = 1 << 20;
/// How often a request that was answered with "too many" or "not now" is sent again.
const RETRIES: u32 = 2;
/// A server that asks for a longer wait gets its wait passed on to the caller instead.
pub(crate) const MAX_RETRY_WAIT: Duration = Duration::from_secs(20);
/// "Overloaded", which is in no standard.
const OVERLOADED: u16 = 529;
/// What one service answers when the model behind it fails.
const FAILED_DEPENDENCY: u16 = 424;
const JSON: &str = "application/json";

/// How a server wants its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    /// `Authorization: Bearer …`.
    Bearer,
    /// In a header of its own.
    Header(&'static str),
}

/// A model server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) provider: &'static str,
    /// Without a trailing slash.
    pub(crate) address: String,
    pub(crate) key: Option<Secret>,
    /// Signs requests where there is no key.
    pub(crate) signer: Option<Signer>,
    /// What requests carry beside it.
    pub(crate) access: Access,
    pub(crate) auth: Auth,
    /// Headers of every request.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// The setting that holds the key, for errors.
    pub(crate) key_setting: String,
    /// What to do when it does not answer.
    pub(crate) fix: String,
    pub(crate) timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) client: LazyClient,
}

/// One request of a protocol.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Behind the server's address; begins with a slash.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
}

impl Call {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Call { method: Method::GET, path: path.into(), body: None }
    }

    pub(crate) fn post(path: impl Into<String>, body: Value) -> Self {
        Call { method: Method::POST, path: path.into(), body: Some(body) }
    }
}

impl Server {
    fn request(&self, call: &Call) -> Result<RequestBuilder, ModelError> {
        let url = format!("{}{}", self.address, call.path);
        let body = call.body.as_ref().map(serde_json::to_vec).transpose().map_err(ModelError::internal)?;
        let mut request = self.client.get()?.request(call.method.clone(), &url);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, JSON);
        }
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = &self.key {
            let (name, value) = self.key_header();
            let mut value =
                HeaderValue::from_str(&value.replace("{}", key.expose())).map_err(|_| self.key_of_no_header())?;
            value.set_sensitive(true);
            request = request.header(name, value);
        } else if let Some(signer) = &self.signer {
            let content_type = body.is_some().then_some(JSON);
            let body = body.as_deref().unwrap_or_default();
            let signed = Signed { method: call.method.as_str(), url: &url, content_type, body };
            let headers = signer.headers(signed, SystemTime::now()).map_err(|_| self.key_of_no_header())?;
            request = request.headers(headers);
        }
        if !self.access.headers().is_empty() {
            request = request.headers(self.access.headers().clone());
        }
        Ok(match body {
            Some(body) => request.body(body),
            None => request,
        })
    }

    fn key_of_no_header(&self) -> ModelError {
        ModelError::bad_request(self.provider, format!("{} holds characters that no key has", self.key_setting))
    }

    /// The header of the key, and its value with `{}` for the key.
    fn key_header(&self) -> (HeaderName, &'static str) {
        match self.auth {
            Auth::Bearer => (reqwest::header::AUTHORIZATION, "Bearer {}"),
            Auth::Header(name) => (HeaderName::from_static(name), "{}"),
        }
    }

    /// Sends a request and reads its whole answer, within the time for a request.
    pub(crate) async fn ask(&self, call: &Call) -> Result<Vec<u8>, ModelError> {
        self.within(async { self.read_body(self.send(call).await?, MAX_BODY_BYTES).await }).await
    }

    /// Bounds a whole request.
    pub(crate) async fn within<T>(&self, work: impl Future<Output = Result<T, ModelError>>) -> Result<T, ModelError> {
        match tokio::time::timeout(self.timeout, work).await {
            Ok(result) => result,
            Err(_) => Err(ModelError::Timeout {
                provider: self.provider.to_owned(),
                limit: self.timeout,
                what: " for the whole request",
            }),
        }
    }

    /// Sends a request and answers the response once its status is a success. What is refused for now is sent again a little later.
    pub(crate) async fn send(&self, call: &Call) -> Result<Response, ModelError> {
        let mut attempt = 0;
        loop {
            let response = self.request(call)?.send().await.map_err(|error| self.failed(&error))?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let told = retry_after(response.headers());
            let body = self.error_body(response).await;
            let wait = told.or_else(|| retry_delay_of(&body));
            let busy = matches!(status.as_u16(), 429 | 502 | 503 | OVERLOADED) && !is_out_of_quota(&body);
            match retry_wait(attempt, wait).filter(|_| busy) {
                Some(pause) => {
                    tracing::debug!(provider = self.provider, %status, ?pause, "server is busy, trying again");
                    tokio::time::sleep(pause).await;
                    attempt += 1;
                }
                None => return Err(self.refused(status, wait, &body)),
            }
        }
    }

    async fn read_body(&self, response: Response, limit: usize) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(block) = stream.next().await {
            tokio::task::coop::consume_budget().await;
            let block = block.map_err(|error| self.failed(&error))?;
            if body.len() + block.len() > limit {
                return Err(self.bad_response(None, format!("it is larger than {limit} bytes")));
            }
            body.extend_from_slice(&block);
        }
        Ok(body)
    }

    /// The body of an error as far as it comes in time, or its beginning where it is long: what it says stands there.
    async fn error_body(&self, response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        let mut stream = response.bytes_stream();
        let reading = async {
            while let Some(Ok(block)) = stream.next().await {
                body.extend_from_slice(&block);
                if body.len() >= MAX_ERROR_BYTES {
                    break;
                }
            }
        };
        if tokio::time::timeout(self.idle_timeout, reading).await.is_err() {
            tracing::debug!(provider = self.provider, "the body of an error did not end in time");
        }
        body.truncate(MAX_ERROR_BYTES);
        body
    }

    /// What a refusal means.
    fn refused(&self, status: StatusCode, wait: Option<Duration>, body: &[u8]) -> ModelError {
        let said = self.redact(&message_of(body));
        let reason = if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
        let provider = self.provider.to_owned();
        match status.as_u16() {
            429 if is_out_of_quota(body) => ModelError::BadRequest { provider, reason },
            429 | OVERLOADED => {
                let reason = if said.is_empty() { reason } else { said };
                ModelError::RateLimited { provider, reason, retry_after: wait }
            }
            408 | 504 => ModelError::Timeout { provider, limit: self.timeout, what: " at the server" },
            code if matches!(code, 401 | 403) || is_bad_key(body) => {
                ModelError::Unauthorized { provider, reason, setting: self.key_setting.clone(), fix: None }
            }
            code @ 300..400 => {
                let fix = "redirects are not followed, so its address must be the one that it leads to";
                self.bad_response(Some(code), format!("{status}: {fix}"))
            }
            FAILED_DEPENDENCY => self.bad_response(Some(FAILED_DEPENDENCY), reason),
            code => overflow_of(body).unwrap_or_else(|| match code {
                404 => self.missing(reason),
                400..500 if is_missing_model(body) => self.missing(reason),
                400..500 => ModelError::BadRequest { provider, reason },
                _ => self.bad_response(Some(code), reason),
            }),
        }
    }

    /// The model, or the whole path, is not there; who asked for a model says which.
    fn missing(&self, reason: String) -> ModelError {
        ModelError::ModelMissing {
            model: String::new(),
            reason: format!("the server answered {reason}"),
            fix: format!("`riverrun models --provider {}` lists what it has", self.provider),
        }
    }

    /// What a failure of the connection means.
    pub(crate) fn failed(&self, error: &reqwest::Error) -> ModelError {
        if error.is_connect() {
            return ModelError::RuntimeDown {
                provider: self.provider.to_owned(),
                address: self.address.clone(),
                reason: reason(error),
                fix: self.fix.clone(),
            };
        }
        if error.is_timeout() {
            return ModelError::Timeout {
                provider: self.provider.to_owned(),
                limit: self.idle_timeout,
                what: " without sending anything",
            };
        }
        self.bad_response(None, reason(error))
    }

    pub(crate) fn bad_response(&self, status: Option<u16>, reason: impl AsRef<str>) -> ModelError {
        ModelError::bad_response(self.provider, status, self.redact(reason.as_ref()))
    }

    /// A text from outside, short and without the key.
    pub(crate) fn redact(&self, text: &str) -> String {
        let text = self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text));
        let text = self.signer.as_ref().map_or_else(|| text.clone(), |signer| signer.redact(&text));
        let text = self.access.redact(&text);
        text.chars().take(400).collect()
    }
}

/// The pause before the next try; none when there is no further try or it would be too long.
fn retry_wait(attempt: u32, asked: Option<Duration>) -> Option<Duration> {
    let wait = asked.unwrap_or(Duration::from_millis(500 << attempt.min(8)));
    (attempt < RETRIES && wait <= MAX_RETRY_WAIT).then_some(wait)
}

/// `Retry-After`, in seconds or as a date; some services tell milliseconds beside it.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let millis = text(HeaderName::from_static("retry-after-ms")).and_then(|millis| millis.parse().ok());
    millis.map(Duration::from_millis).or_else(|| wait_of(text(RETRY_AFTER)?, SystemTime::now()))
}

fn wait_of(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or(Duration::ZERO))
}

/// The innermost message of an error chain says what happened; reqwest's own outermost one only repeats the address.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_waits_when_the_next_try_is_planned_then_tries_and_waits_are_bounded() {
        assert_eq!(retry_wait(0, None), Some(Duration::from_millis(500)));
        assert_eq!(retry_wait(1, Some(Duration::from_secs(3))), Some(Duration::from_secs(3)));
        assert_eq!(retry_wait(0, Some(Duration::from_secs(3600))), None);
        assert_eq!(retry_wait(RETRIES, None), None);
    }

    #[test]
    fn given_retry_after_when_it_is_read_then_seconds_and_dates_both_count() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2026 07:28:00 GMT").unwrap();
        assert_eq!(wait_of("7", now), Some(Duration::from_secs(7)));
        assert_eq!(wait_of("0.25", now), Some(Duration::from_millis(250)));
        assert_eq!((wait_of("-1", now), wait_of("inf", now)), (None, None));
        assert_eq!(wait_of("Wed, 21 Oct 2026 07:28:30 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(wait_of("Wed, 21 Oct 2026 07:27:30 GMT", now), Some(Duration::ZERO));
        assert_eq!(wait_of("soon", now), None);
    }

    #[test]
    fn given_a_wait_in_milliseconds_when_it_is_read_then_it_counts_before_whole_seconds() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs
                .iter()
                .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect()
        };
        let both: HeaderMap = headers(&[("retry-after", "2"), ("retry-after-ms", "1300")]);
        assert_eq!(retry_after(&both), Some(Duration::from_millis(1300)));
        let seconds: HeaderMap = headers(&[("retry-after", "2"), ("retry-after-ms", "soon")]);
        assert_eq!(retry_after(&seconds), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
