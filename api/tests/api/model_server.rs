//! A model server that speaks Ollama's API and answers by a script in the task: `[[steps=2 delay_ms=20 id=a]]` asks for two
//! calculator calls, one a turn, then answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// How often each script was asked for something.
pub(crate) type Asked = Arc<Mutex<HashMap<String, usize>>>;

/// Starts the server; gives its address and what it was asked.
pub(crate) async fn start() -> (String, Asked) {
    let asked = Asked::default();
    let routes = Router::new()
        .route("/api/version", get(|| async { Json(json!({ "version": "0.0.0-test" })) }))
        .route("/api/tags", get(|| async { Json(json!({ "models": [{ "name": "stub" }, { "name": "stub-embed" }] })) }))
        .route(
            "/api/show",
            post(|| async {
                Json(json!({ "model_info": { "stub.context_length": 8192 }, "capabilities": ["completion"] }))
            }),
        )
        .route("/api/chat", post(chat))
        .route("/api/embed", post(embed))
        .with_state(asked.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (format!("http://{address}"), asked)
}

fn script(messages: &[Value]) -> HashMap<String, String> {
    let texts = messages.iter().filter_map(|message| message["content"].as_str());
    let script = texts.filter_map(|text| text.split_once("[[")?.1.split_once("]]").map(|(script, _)| script)).next();
    script
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

async fn chat(State(asked): State<Asked>, Json(body): Json<Value>) -> String {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let script = script(&messages);
    let number = |name: &str| script.get(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let texts = messages.iter().filter_map(|message| message["content"].as_str());
    let results: u64 = texts.map(|text| text.matches("<observation tool=").count() as u64).sum();
    *asked.lock().entry(script.get("id").cloned().unwrap_or_default()).or_default() += 1;
    tokio::time::sleep(Duration::from_millis(number("delay_ms"))).await;
    let acts = body.get("format").is_some_and(|format| !format.is_null());
    let content = if acts && results < number("steps") {
        json!({ "thought": "next", "tool": "calculator", "arguments": { "expression": format!("{results} + 1") } })
            .to_string()
    } else if acts {
        json!({ "thought": "enough", "tool": "answer", "arguments": {} }).to_string()
    } else if let Some(rewritten) = rewritten(&messages) {
        rewritten
    } else if script.is_empty() {
        "It is as the notes say [1].".to_owned()
    } else {
        format!("done after {results} steps")
    };
    let model = &body["model"];
    let (first, rest) = content.split_at(content.len() / 2);
    let line = |text: &str| {
        json!({ "model": model, "message": { "role": "assistant", "content": text }, "done": false }).to_string()
    };
    let end = json!({ "model": model, "message": { "role": "assistant", "content": "" }, "done": true, "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5 });
    format!("{}\n{}\n{end}\n", line(first), line(rest))
}

/// A file that was asked to be rewritten, in its block: what it returned first, it returns otherwise.
fn rewritten(messages: &[Value]) -> Option<String> {
    let content = |message: &Value| message["content"].as_str().map(str::to_owned);
    content(messages.first()?).filter(|text| text.starts_with("You rewrite one source file."))?;
    let asked = content(messages.last()?)?;
    let (_, file) = asked.split_once("```\n")?;
    let file = file.strip_suffix("```")?;
    Some(format!("```\n{}```\n", file.replacen("return 1", "return 3", 1)))
}

/// Texts that share words point into nearby directions. One that says that it is too long is refused, unless it may be cut.
async fn embed(Json(body): Json<Value>) -> Result<Json<Value>, (StatusCode, Json<Value>)> {
    let inputs = match &body["input"] {
        Value::Array(inputs) => inputs.clone(),
        one => vec![one.clone()],
    };
    let is_long = |text: &Value| text.as_str().is_some_and(|text| text.contains("[[too long]]"));
    if body["truncate"] == false && inputs.iter().any(is_long) {
        let error = json!({ "error": "the input length exceeds the context length" });
        return Err((StatusCode::BAD_REQUEST, Json(error)));
    }
    let vector = |text: &Value| {
        let mut vector = vec![0.0_f32; 64];
        for word in text
            .as_str()
            .unwrap_or_default()
            .to_lowercase()
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
        {
            vector[word.bytes().fold(7_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(usize::from(byte)))
                % 64] += 1.0;
        }
        vector[0] += 0.01;
        vector
    };
    Ok(Json(
        json!({ "model": body["model"], "embeddings": inputs.iter().map(vector).collect::<Vec<_>>(), "prompt_eval_count": inputs.len() }),
    ))
}
