//! One way for every command to speak to the API: to a running server over HTTP, or to the same router in this process.
//! What `--json` prints is what the API said.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode, header};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use reqwest::Certificate;
use reqwest::redirect::Policy;
use riverrun_api::wire::Problem;
use riverrun_models::Secret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tower::ServiceExt;

use crate::error::{CliError, Exit, WRITABLE};
use crate::settings::RemoteServer;

/// Longest answer that is not a stream, in bytes.
const MAX_ANSWER: usize = 256 << 20;
/// Longest line of an event stream, in bytes: a whole run.
const MAX_LINE: usize = 256 << 20;
/// How long a server elsewhere may take to take a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// A command follows by itself what it asked for (RFC 7240).
const PREFER: (&str, &str) = ("prefer", "respond-async");

/// Where the API is.
#[derive(Clone)]
pub enum Client {
    /// In this process.
    InProcess(Router),
    /// At a server.
    Http {
        /// Keeps connections.
        http: reqwest::Client,
        /// Such as `http://127.0.0.1:8000`.
        base: String,
        /// For servers that want one.
        token: Option<Secret>,
        /// What helps where nobody answers there.
        fix: &'static str,
    },
}

/// The answer to a request, its body still to come.
struct Answer {
    status: StatusCode,
    body: BoxStream<'static, Result<Bytes, String>>,
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// Its name; `message` when it has none.
    pub name: String,
    /// Its data.
    pub data: String,
}

impl SseEvent {
    /// The data as a value.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CliError> {
        serde_json::from_str(&self.data).map_err(|error| garbled(&format!("event {:?}: {error}", self.name)))
    }

    /// The failure that an `error` event tells of.
    pub fn failure(&self) -> CliError {
        self.json::<Problem>().map_or_else(|error| error, CliError::from)
    }
}

fn garbled(what: &str) -> CliError {
    CliError::new(Exit::Failed, format!("the answer can't be read: {what}"))
        .hint("the server may be of another version: riverrun --version")
}

/// Text for a query or a path segment.
pub fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// A path with those parameters that have a value.
pub fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given: Vec<_> =
        parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", encode(value.as_deref()?)))).collect();
    if given.is_empty() { path.to_owned() } else { format!("{path}?{}", given.join("&")) }
}

impl Client {
    /// A running server.
    pub fn server(base: &str, token: Option<Secret>) -> Result<Self, CliError> {
        // Loopback only: an outside proxy has no business between a command and its server.
        let http = reqwest::Client::builder()
            .no_proxy()
            .build()
            .map_err(|error| CliError::new(Exit::Failed, format!("HTTP client: {error}")))?;
        Ok(Client::Http { http, base: base.to_owned(), token, fix: "start it again: riverrun serve" })
    }

    /// A server elsewhere. What it answers is taken from its own address alone: a redirection is none.
    pub fn remote(server: &RemoteServer, token: Option<Secret>) -> Result<Self, CliError> {
        let failed =
            |error: reqwest::Error| CliError::new(Exit::Failed, format!("HTTP client: {}", root_cause(&error)));
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT_PATIENCE).redirect(Policy::none());
        if server.is_loopback() {
            http = http.no_proxy();
        }
        if let Some(pem) = &server.ca_pem {
            http = http.tls_certs_merge(Certificate::from_pem_bundle(pem).map_err(failed)?);
        }
        let fix = "check RIVERRUN_SERVER (the authorities of a certificate are in RIVERRUN_SERVER_CA_FILE), and that riverrun serve runs there";
        Ok(Client::Http { http: http.build().map_err(failed)?, base: server.url.clone(), token, fix })
    }

    /// The version of the server; what is wrong with its address where no riverrun answers there.
    pub async fn version(&self) -> Result<String, CliError> {
        #[derive(Deserialize)]
        struct Hello {
            version: String,
        }
        let answer = self.send(Method::GET, "/health", None).await?;
        let status = answer.status;
        let hello = serde_json::from_slice::<Hello>(&collect(answer).await?);
        match hello {
            Ok(hello) if status.is_success() => Ok(hello.version),
            Ok(_) | Err(_) => {
                let what = format!("what RIVERRUN_SERVER names is no server of riverrun: GET /health answers {status}");
                Err(CliError::new(Exit::Failed, what).hint(
                    "set it to the address of riverrun serve, with https:// and the path that a proxy has for it",
                ))
            }
        }
    }

    /// Reads something.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.call(Method::GET, path, None).await
    }

    /// Asks for something to be done.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CliError> {
        let body = serde_json::to_value(body).map_err(std::io::Error::other)?;
        self.call(Method::POST, path, Some(body)).await
    }

    /// Puts something at its place.
    pub async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CliError> {
        let body = serde_json::to_value(body).map_err(std::io::Error::other)?;
        self.call(Method::PUT, path, Some(body)).await
    }

    /// Asks for something to be removed.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.call(Method::DELETE, path, None).await
    }

    /// Hands in a form with files.
    pub async fn post_form<T: DeserializeOwned>(&self, path: &str, parts: Vec<FormPart>) -> Result<T, CliError> {
        let boundary = boundary_for(&parts);
        let body = Content {
            media_type: format!("multipart/form-data; boundary={boundary}"),
            bytes: form_bytes(&parts, &boundary),
        };
        read_answer(self.send_content(Method::POST, path, Some(body)).await?).await
    }

    /// Reads a file of any size into `to`. What was there before stays until all of it has come.
    pub async fn save(&self, path: &str, to: &Path) -> Result<(), CliError> {
        let answer = self.send(Method::GET, path, None).await?;
        if !answer.status.is_success() {
            let status = answer.status;
            return Err(failure(status, &collect(answer).await?));
        }
        let mut beside = to.as_os_str().to_owned();
        beside.push(".part");
        let beside = PathBuf::from(beside);
        let saved = match write(answer, &beside).await {
            Ok(()) => tokio::fs::rename(&beside, to).await.map_err(|error| unwritable(to, &error)),
            Err(error) => Err(error),
        };
        if saved.is_err() {
            let _ = tokio::fs::remove_file(&beside).await; // perhaps it was never made
        }
        saved
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<Value>) -> Result<T, CliError> {
        read_answer(self.send(method, path, body).await?).await
    }

    /// Reads something that is no JSON.
    pub async fn bytes(&self, path: &str) -> Result<Vec<u8>, CliError> {
        let answer = self.send(Method::GET, path, None).await?;
        let status = answer.status;
        let bytes = collect(answer).await?;
        if status.is_success() { Ok(bytes) } else { Err(failure(status, &bytes)) }
    }

    /// Reads an event stream. A failure before it begins is the error.
    pub async fn events(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<impl Stream<Item = Result<SseEvent, CliError>> + use<>, CliError> {
        let answer = self.send(method, path, body).await?;
        if !answer.status.is_success() {
            let status = answer.status;
            return Err(failure(status, &collect(answer).await?));
        }
        Ok(parse_events(answer.body))
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Answer, CliError> {
        let json =
            |body: Value| Content { media_type: "application/json".to_owned(), bytes: body.to_string().into_bytes() };
        self.send_content(method, path, body.map(json)).await
    }

    async fn send_content(&self, method: Method, path: &str, body: Option<Content>) -> Result<Answer, CliError> {
        match self {
            Client::InProcess(router) => {
                let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
                let request = request.header(PREFER.0, PREFER.1);
                let request = match body {
                    Some(body) => request.header(header::CONTENT_TYPE, body.media_type).body(Body::from(body.bytes)),
                    None => request.body(Body::empty()),
                };
                let request =
                    request.map_err(|error| CliError::new(Exit::Usage, format!("{path:?} is no path: {error}")))?;
                let response = router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
                let status = response.status();
                Ok(Answer {
                    status,
                    body: response.into_body().into_data_stream().map_err(|error| error.to_string()).boxed(),
                })
            }
            Client::Http { http, base, token, fix } => {
                let mut request = http.request(method, format!("{base}{path}")).header(PREFER.0, PREFER.1);
                if let Some(body) = body {
                    request = request.header(header::CONTENT_TYPE, body.media_type).body(body.bytes);
                }
                if let Some(token) = token {
                    request = request.bearer_auth(token.expose());
                }
                let response = request.send().await.map_err(|error| {
                    CliError::new(
                        Exit::ServiceDown,
                        format!("the server at {base} does not answer: {}", root_cause(&error)),
                    )
                    .hint(*fix)
                })?;
                let status = response.status();
                Ok(Answer { status, body: response.bytes_stream().map_err(|error| root_cause(&error)).boxed() })
            }
        }
    }
}

/// A part of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormPart {
    name: &'static str,
    file: Option<String>,
    content: Vec<u8>,
}

impl FormPart {
    /// A text.
    pub fn text(name: &'static str, text: &str) -> Self {
        Self { name, file: None, content: text.as_bytes().to_vec() }
    }

    /// A file with a name, in which nothing can end the line that it stands in.
    pub fn file(name: &'static str, file: &str, content: Vec<u8>) -> Self {
        let is_unfit = |c: char| c.is_control() || matches!(c, '"' | '\\');
        Self { name, file: Some(file.replace(is_unfit, "_")), content }
    }
}

/// A body with its media type.
struct Content {
    media_type: String,
    bytes: Vec<u8>,
}

/// A line that is in none of the parts (RFC 2046).
fn boundary_for(parts: &[FormPart]) -> String {
    let holds = |boundary: &str| {
        let wanted = boundary.as_bytes();
        parts.iter().any(|part| part.content.windows(wanted.len()).any(|window| window == wanted))
    };
    let mut boundary = "riverrun-form-boundary".to_owned();
    while holds(&boundary) {
        boundary.push('x');
    }
    boundary
}

fn form_bytes(parts: &[FormPart], boundary: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        let file = part.file.as_ref().map_or(String::new(), |file| format!("; filename=\"{file}\""));
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"{file}\r\n\r\n", part.name);
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(&part.content);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    bytes
}

async fn read_answer<T: DeserializeOwned>(answer: Answer) -> Result<T, CliError> {
    let status = answer.status;
    let bytes = collect(answer).await?;
    if !status.is_success() {
        return Err(failure(status, &bytes));
    }
    serde_json::from_slice(&bytes).map_err(|error| garbled(&error.to_string()))
}

/// The innermost reason, which is the one that helps.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

async fn collect(mut answer: Answer) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.body.next().await {
        bytes.extend_from_slice(&chunk.map_err(|error| broken(&error))?);
        if bytes.len() > MAX_ANSWER {
            return Err(garbled(&format!("it has more than {MAX_ANSWER} bytes")));
        }
    }
    Ok(bytes)
}

/// Writes a body as it comes.
async fn write(mut answer: Answer, to: &Path) -> Result<(), CliError> {
    let mut file = tokio::fs::File::create(to).await.map_err(|error| unwritable(to, &error))?;
    while let Some(chunk) = answer.body.next().await {
        let chunk = chunk.map_err(|error| broken(&error))?;
        file.write_all(&chunk).await.map_err(|error| unwritable(to, &error))?;
    }
    file.sync_all().await.map_err(|error| unwritable(to, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::new(Exit::Failed, format!("{} can't be written: {error}", path.display())).hint(WRITABLE)
}

fn broken(reason: &str) -> CliError {
    CliError::new(Exit::Failed, format!("the connection broke: {reason}"))
        .hint("what was accepted goes on: riverrun runs ls")
}

fn failure(status: StatusCode, bytes: &[u8]) -> CliError {
    match serde_json::from_slice::<Problem>(bytes) {
        Ok(problem) => problem.into(),
        Err(_) => garbled(&format!("status {status}: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]))),
    }
}

/// Events of a `text/event-stream` body (<https://html.spec.whatwg.org/multipage/server-sent-events.html>), as far as the
/// API uses them: `event`, `data`, comments.
fn parse_events(body: BoxStream<'static, Result<Bytes, String>>) -> impl Stream<Item = Result<SseEvent, CliError>> {
    let state = (body, Parser::default(), false);
    futures::stream::unfold(state, |(mut body, mut parser, ended)| async move {
        if ended {
            return None;
        }
        loop {
            if let Some(event) = parser.ready.pop_front() {
                return Some((Ok(event), (body, parser, false)));
            }
            match body.next().await {
                None => return None,
                Some(Err(error)) => return Some((Err(broken(&error)), (body, parser, true))),
                Some(Ok(bytes)) => {
                    if !parser.feed(&bytes) {
                        return Some((Err(garbled("an event is too long")), (body, parser, true)));
                    }
                }
            }
        }
    })
}

#[derive(Default)]
struct Parser {
    line: Vec<u8>,
    name: Option<String>,
    data: Vec<String>,
    ready: std::collections::VecDeque<SseEvent>,
}

impl Parser {
    /// False when a line is longer than lines may be.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.take(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
            }
        }
        self.line.len() <= MAX_LINE
    }

    fn take(&mut self, line: &str) {
        if line.is_empty() {
            let (name, data) = (self.name.take(), std::mem::take(&mut self.data));
            if !data.is_empty() {
                self.ready
                    .push_back(SseEvent { name: name.unwrap_or_else(|| "message".to_owned()), data: data.join("\n") });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = Some(value.to_owned()),
            "data" => self.data.push(value.to_owned()),
            _ => {} // comments, ids, and what a later version adds
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_an_event_stream_in_any_pieces_when_it_is_parsed_then_the_events_are_the_same() {
        let text = ": hello\n\nevent: step\nid: 3\ndata: {\"a\":\ndata: 1}\n\ndata: x\r\n\r\nevent: lone\n\n";
        let expected = [
            SseEvent { name: "step".into(), data: "{\"a\":\n1}".into() },
            SseEvent { name: "message".into(), data: "x".into() },
        ];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            for chunk in text.as_bytes().chunks(size) {
                assert!(parser.feed(chunk));
            }
            assert_eq!(Vec::from(parser.ready), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn given_a_form_then_its_boundary_is_in_no_part_and_every_byte_is_there() {
        let file = b"--riverrun-form-boundary\r\n\x00\xff".to_vec();
        let parts = [FormPart::text("name", "a"), FormPart::file("file", "f\"\r\n\\\u{e9}.jsonl", file.clone())];
        let boundary = boundary_for(&parts);
        assert_eq!(boundary, "riverrun-form-boundaryx");
        let bytes = form_bytes(&parts, &boundary);
        assert!(bytes.windows(file.len()).any(|window| window == file));
        let head = "name=\"file\"; filename=\"f____\u{e9}.jsonl\"\r\n\r\n".as_bytes();
        assert!(bytes.windows(head.len()).any(|window| window == head));
        assert!(
            bytes.starts_with(b"--riverrun-form-boundaryx\r\n") && bytes.ends_with(b"--riverrun-form-boundaryx--\r\n")
        );
    }

    #[tokio::test]
    async fn given_a_file_that_breaks_off_then_what_was_there_stays_and_a_whole_one_replaces_it() {
        let half = || async { Body::from_stream(futures::stream::iter([Ok("half"), Err("cut off")])) };
        let router = Router::new()
            .route("/whole", axum::routing::get(|| async { "whole" }))
            .route("/half", axum::routing::get(half));
        let client = Client::InProcess(router);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, "old").unwrap();
        for wrong in ["/half", "/none"] {
            client.save(wrong, &path).await.unwrap_err();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "old", "{wrong}");
        }
        client.save("/whole", &path).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn given_parameters_when_a_path_is_made_then_they_are_encoded_and_those_without_value_left_out() {
        assert_eq!(with_query("/runs", &[("a", None), ("b", None)]), "/runs");
        assert_eq!(
            with_query("/runs", &[("status", Some("a&b=ü".into())), ("b", None), ("limit", Some("5".into()))]),
            "/runs?status=a%26b%3D%C3%BC&limit=5"
        );
    }
}
