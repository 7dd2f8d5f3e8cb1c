//! A model that follows a script: so many tool calls, then an answer. It speaks Ollama's chat API on loopback, and keeps
//! nothing: what comes next follows from the observations in the conversation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use clap::ValueEnum;
use futures::StreamExt;
use serde_json::{Value, json};

use super::harness;
use super::ledger::LEDGER;
use crate::error::CliError;

/// What the model does to one of ten calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mood {
    /// Nothing
    Good,
    /// It answers 500
    Error,
    /// It never answers
    Hang,
    /// It writes a byte a second
    Drip,
    /// It writes without end
    Flood,
}

/// The script.
#[derive(Debug, Clone)]
pub(super) struct Script {
    /// Tool calls before the answer.
    pub(super) calls: u32,
    /// Every so many calls the ledger is used, from the first on; the others calculate.
    pub(super) ledger_every: u32,
    /// How long a reply takes.
    pub(super) delay: Duration,
    /// What happens to one of ten calls.
    pub(super) mood: Mood,
}

impl Script {
    /// Steps of a run that nothing happens to.
    pub(super) fn steps(&self) -> i64 {
        3 * i64::from(self.calls) + 2
    }

    fn reply(&self, request: &Value) -> String {
        let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let observed: usize = messages
            .iter()
            .filter(|message| message["role"] == "user")
            .filter_map(|message| message["content"].as_str())
            .map(|text| text.matches("<observation tool").count())
            .sum();
        let done = observed >= self.calls as usize;
        match (request["format"].is_object(), done) {
            (false, _) => "the books are closed".to_owned(),
            (true, true) => json!({ "thought": "all is booked", "tool": "answer", "arguments": {} }).to_string(),
            (true, false) if observed.is_multiple_of(self.ledger_every as usize) => {
                json!({ "thought": "book it", "tool": LEDGER, "arguments": { "amount": observed } }).to_string()
            }
            (true, false) => {
                let expression = format!("{observed}+1");
                json!({ "thought": "count", "tool": "calculator", "arguments": { "expression": expression } })
                    .to_string()
            }
        }
    }
}

/// The model, which is good until it is told otherwise. It ends with the process.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) address: String,
    server: Arc<Server>,
}

impl Model {
    /// From now on its mood is that of its script.
    pub(super) fn turn(&self) {
        self.server.turned.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Server {
    script: Script,
    asked: AtomicUsize,
    turned: AtomicBool,
}

/// Starts the model.
pub(super) async fn start(script: Script) -> Result<Model, CliError> {
    let listener =
        tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(|error| harness("the scripted model", error))?;
    let address = listener.local_addr().map_err(|error| harness("the scripted model", error))?;
    let server = Arc::new(Server { script, asked: AtomicUsize::new(0), turned: AtomicBool::new(false) });
    let router = Router::new().route("/api/chat", post(chat)).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(Model { address: format!("http://{address}"), server })
}

async fn chat(State(server): State<Arc<Server>>, Json(request): Json<Value>) -> Response {
    let asked = server.asked.fetch_add(1, Ordering::Relaxed);
    let turned = server.turned.load(Ordering::Relaxed);
    let mood = if turned && asked % 10 == 9 { server.script.mood } else { Mood::Good };
    let piece = |text: &str| json!({ "message": { "role": "assistant", "content": text }, "done": false });
    match mood {
        Mood::Good => {
            tokio::time::sleep(server.script.delay).await;
            let end = json!({ "message": { "role": "assistant", "content": "" }, "done": true, "done_reason": "stop",
                "prompt_eval_count": 10, "eval_count": 5 });
            format!("{}\n{end}\n", piece(&server.script.reply(&request))).into_response()
        }
        Mood::Error => (StatusCode::INTERNAL_SERVER_ERROR, "out of order").into_response(),
        Mood::Hang => std::future::pending().await,
        Mood::Drip | Mood::Flood => {
            let (pause, text) = match mood {
                Mood::Drip => (Duration::from_secs(1), "x".to_owned()),
                _ => (Duration::ZERO, "x".repeat(64 << 10)),
            };
            let line = format!("{}\n", piece(&text));
            let endless = futures::stream::repeat(line).then(move |line| async move {
                tokio::time::sleep(pause).await;
                Ok::<_, std::convert::Infallible>(line)
            });
            Body::from_stream(endless).into_response()
        }
    }
}
