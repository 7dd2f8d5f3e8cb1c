//! What the providers behind HTTP share: one client, retries, limits, errors.

pub(crate) mod lines;

use std::error::Error as _;
use std::time::Duration;

use futures::StreamExt;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::catalog::clip;
use crate::error::ModelError;
use crate::secret::Secret;
use crate::settings::ModelSettings;

/// An answer that is read at once may have this many bytes: 4,096 vectors of 1,024 numbers in JSON fit.
const MAX_BODY_BYTES: usize = 128 << 20;
/// The body of an error is read up to here.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// How often a request that was answered with "too many" or "not now" is sent again.
const RETRIES: u32 = 2;
/// A server that asks for a longer wait gets its wait passed on to the caller instead.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(20);

/// A model server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) provider: &'static str,
    /// Without a trailing slash.
    pub(crate) address: String,
    pub(crate) key: Option<Secret>,
    /// The setting that holds the key, for errors.
    pub(crate) key_setting: &'static str,
    /// What to do when it does not answer.
    pub(crate) fix: String,
    pub(crate) timeout: Duration,
    pub(crate) idle_timeout: Duration,
    client: Client,
}

impl Server {
    pub(crate) fn new(
        provider: &'static str,
        address: String,
        key: Option<Secret>,
        key_setting: &'static str,
        fix: String,
        settings: &ModelSettings,
    ) -> Result<Self, ModelError> {
        let client = Client::builder()
            .user_agent(concat!("riverrun/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(settings.connect_timeout)
            .read_timeout(settings.idle_timeout)
            // A redirect would carry prompts, and perhaps the key, to a place that nobody configured.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(ModelError::internal)?;
        let (timeout, idle_timeout) = (settings.timeout, settings.idle_timeout);
        Ok(Server { provider, address, key, key_setting, fix, timeout, idle_timeout, client })
    }

    /// The same server under another path.
    pub(crate) fn at(&self, address: &str) -> Self {
        Server { address: address.to_owned(), ..self.clone() }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.address));
        match &self.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        }
    }

    /// Posts JSON and answers the response once its status is a success.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Response, ModelError> {
        self.send(|| self.request(Method::POST, path).json(body)).await
    }

    /// Posts JSON and reads the whole answer, within the time for a request.
    pub(crate) async fn post_json<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, ModelError> {
        self.within(async { self.read_json(self.post(path, body).await?).await }).await
    }

    /// Gets JSON, within the time for a request.
    pub(crate) async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, ModelError> {
        self.within(async { self.read_json(self.send(|| self.request(Method::GET, path)).await?).await }).await
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

    async fn send(&self, request: impl Fn() -> RequestBuilder) -> Result<Response, ModelError> {
        let mut attempt = 0;
        loop {
            let response = request().send().await.map_err(|error| self.failed(&error))?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
            let wait = retry_after(&response);
            match retry_wait(attempt, wait).filter(|_| busy) {
                Some(pause) => {
                    tracing::debug!(provider = self.provider, %status, ?pause, "server is busy, trying again");
                    tokio::time::sleep(pause).await;
                    attempt += 1;
                }
                None => return Err(self.refused(status, wait, response).await),
            }
        }
    }

    async fn read_json<T: DeserializeOwned>(&self, response: Response) -> Result<T, ModelError> {
        let body = self.read_body(response, MAX_BODY_BYTES).await?;
        serde_json::from_slice(&body).map_err(|error| {
            let start = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
            self.bad_response(None, format!("it is not the expected JSON: {error}; it begins with '{}'", clip(&start)))
        })
    }

    async fn read_body(&self, response: Response, limit: usize) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(block) = stream.next().await {
            let block = block.map_err(|error| self.failed(&error))?;
            if body.len() + block.len() > limit {
                return Err(self.bad_response(None, format!("it is larger than {limit} bytes")));
            }
            body.extend_from_slice(&block);
        }
        Ok(body)
    }

    /// Reads the body of an error and says what it means.
    async fn refused(&self, status: StatusCode, wait: Option<Duration>, response: Response) -> ModelError {
        let body = match tokio::time::timeout(self.idle_timeout, self.read_body(response, MAX_ERROR_BYTES)).await {
            Ok(Ok(body)) => body,
            _ => Vec::new(),
        };
        let reason = self.redact(&message_of(&body));
        let provider = self.provider.to_owned();
        match status.as_u16() {
            401 | 403 => ModelError::Unauthorized {
                provider,
                reason: format!("{status}: {reason}"),
                setting: self.key_setting.to_owned(),
            },
            429 => ModelError::RateLimited { provider, reason, retry_after: wait },
            408 | 504 => ModelError::Timeout { provider, limit: self.timeout, what: " at the server" },
            400 | 404 | 405 | 413 | 415 | 422 => {
                overflow_of(&body).unwrap_or(ModelError::BadRequest { provider, reason: format!("{status}: {reason}") })
            }
            code => overflow_of(&body).unwrap_or_else(|| self.bad_response(Some(code), format!("{status}: {reason}"))),
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
        text.chars().take(400).collect()
    }
}

/// The pause before the next try; none when there is no further try or it would be too long.
fn retry_wait(attempt: u32, asked: Option<Duration>) -> Option<Duration> {
    let wait = asked.unwrap_or(Duration::from_millis(500 << attempt.min(8)));
    (attempt < RETRIES && wait <= MAX_RETRY_WAIT).then_some(wait)
}

/// `Retry-After` in seconds. Its other form, a date, counts as not given.
fn retry_after(response: &Response) -> Option<Duration> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
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

/// The message in the shapes that servers use: `{"error": "…"}`, `{"error": {"message": "…"}}`, `{"message": "…"}`, `{"detail": "…"}`, text.
pub(crate) fn message_of(body: &[u8]) -> String {
    let Ok(json) = serde_json::from_slice::<Value>(body) else {
        return String::from_utf8_lossy(body).trim().chars().take(300).collect();
    };
    let candidates = [&json["error"], &json["error"]["message"], &json["message"], &json["detail"]];
    match candidates.iter().find_map(|value| value.as_str()) {
        Some(message) => message.to_owned(),
        None => json.to_string(),
    }
}

/// Recognizes a prompt that does not fit: OpenAI and vLLM by code, llama.cpp's server by type.
fn overflow_of(body: &[u8]) -> Option<ModelError> {
    let json: Value = serde_json::from_slice(body).ok()?;
    let error = &json["error"];
    let named = error["code"] == "context_length_exceeded" || error["type"] == "exceed_context_size_error";
    let number = |name: &str| error[name].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
    named.then(|| ModelError::ContextOverflow {
        model: String::new(),
        tokens: number("n_prompt_tokens"),
        limit: number("n_ctx"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_error_bodies_when_they_are_read_then_the_message_is_found() {
        for (body, message) in [
            (r#"{"error":"model 'x' not found"}"#, "model 'x' not found"),
            (r#"{"error":{"message":"bad key","code":"invalid_api_key"}}"#, "bad key"),
            (r#"{"detail":"no"}"#, "no"),
            ("upstream gone\n", "upstream gone"),
            ("", ""),
        ] {
            assert_eq!(message_of(body.as_bytes()), message);
        }
    }

    #[test]
    fn given_overflow_errors_when_they_are_read_then_they_are_recognized() {
        let llama = br#"{"error":{"code":400,"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#;
        assert!(matches!(overflow_of(llama), Some(ModelError::ContextOverflow { tokens: 9000, limit: 4096, .. })));
        assert!(overflow_of(br#"{"error":{"code":"context_length_exceeded"}}"#).is_some());
        assert!(overflow_of(br#"{"error":{"code":"other"}}"#).is_none());
    }

    #[test]
    fn given_waits_when_the_next_try_is_planned_then_tries_and_waits_are_bounded() {
        assert_eq!(retry_wait(0, None), Some(Duration::from_millis(500)));
        assert_eq!(retry_wait(1, Some(Duration::from_secs(3))), Some(Duration::from_secs(3)));
        assert_eq!(retry_wait(0, Some(Duration::from_secs(3600))), None);
        assert_eq!(retry_wait(RETRIES, None), None);
    }
}
