//! Any server that speaks OpenAI's API: llama.cpp, vLLM, LM Studio, OpenAI itself.

use std::ops::ControlFlow;
use std::time::Instant;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::ModelError;
use crate::http::Server;
use crate::http::lines::{SseParser, for_each_line};
use crate::provider::{
    ChatReply, ChatRequest, DeltaSink, EmbedReply, EmbedRequest, FinishReason, Message, ModelInfo, ModelKind,
    ProbeReport, Provider, RerankRequest, ToolCall, ToolSpec, Usage,
};
use crate::settings::{DEFAULT_OPENAI_ADDRESS, ModelSettings};

const NAME: &str = "openai";
const KEY_SETTING: &str = "RIVERRUN_OPENAI_API_KEY";
/// Calls in one message beyond this are refused: the index comes from the server.
const MAX_TOOL_CALLS: usize = 128;

/// A server that speaks OpenAI's API.
#[derive(Debug, Clone)]
pub struct OpenAi {
    server: Server,
    hosted: bool,
}

impl OpenAi {
    /// The server of `RIVERRUN_OPENAI_BASE_URL`, or OpenAI's own.
    pub fn new(settings: &ModelSettings) -> Result<Self, ModelError> {
        let address =
            settings.openai_base_url.as_deref().map_or_else(|| DEFAULT_OPENAI_ADDRESS.to_owned(), with_version);
        let hosted = address.starts_with("https://api.openai.com");
        let fix = "check RIVERRUN_OPENAI_BASE_URL and that the server runs".to_owned();
        let server = Server::new(NAME, address, settings.openai_api_key.clone(), KEY_SETTING, fix, settings)?;
        Ok(OpenAi { server, hosted })
    }

    /// The server's address.
    pub fn address(&self) -> &str {
        &self.server.address
    }

    /// True for OpenAI's own service, which does nothing without a key.
    pub fn is_hosted(&self) -> bool {
        self.hosted
    }

    /// Whether a key is set.
    pub fn has_key(&self) -> bool {
        self.server.key.is_some()
    }

    /// Says so before the network does when the hosted service is asked without a key.
    fn ready(&self) -> Result<(), ModelError> {
        if self.hosted && self.server.key.is_none() {
            return Err(ModelError::Unauthorized {
                provider: NAME.to_owned(),
                reason: "no key is set".to_owned(),
                setting: KEY_SETTING.to_owned(),
            });
        }
        Ok(())
    }

    async fn stream(
        &self,
        request: &ChatRequest,
        sink: &mut dyn DeltaSink,
        reply: &mut Gathered,
    ) -> Result<(), ModelError> {
        let body = chat_body(request, self.hosted);
        let response =
            self.server.post("/chat/completions", &body).await.map_err(|error| explain(error, &request.model))?;
        let mut events = SseParser::default();
        let done = for_each_line(&self.server, response, |line| {
            let Some(data) = events.push(line) else { return Ok(ControlFlow::Continue(())) };
            if data == b"[DONE]" {
                return Ok(ControlFlow::Break(()));
            }
            let chunk: Chunk = serde_json::from_slice(&data).map_err(|error| {
                self.server.bad_response(None, format!("an event of the stream is no JSON: {error}"))
            })?;
            if !chunk.error.is_null() {
                return Err(self.server.bad_response(None, crate::http::message_of(&data)));
            }
            reply.take(chunk, sink).map_err(|reason| self.server.bad_response(None, reason))?;
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        // Some servers end without the mark; the finish reason says the answer is whole.
        if !done && reply.finish.is_none() {
            return Err(self.server.bad_response(None, "the stream ended before the answer did"));
        }
        Ok(())
    }
}

#[async_trait]
impl Provider for OpenAi {
    fn name(&self) -> &str {
        NAME
    }

    async fn list_models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        #[derive(Deserialize)]
        struct Entry {
            id: String,
            #[serde(default)]
            max_model_len: Option<u64>,
        }
        #[derive(Deserialize)]
        struct Listing {
            data: Vec<Entry>,
        }
        self.ready()?;
        let listing: Listing = self.server.get_json("/models").await?;
        let info = |entry: Entry| ModelInfo {
            name: entry.id,
            provider: NAME.to_owned(),
            kind: ModelKind::Unknown,
            present: true,
            size_bytes: None,
            context_tokens: entry.max_model_len,
            dimensions: None,
            source: Some(self.server.address.clone()),
        };
        Ok(listing.data.into_iter().map(info).collect())
    }

    async fn chat(
        &self,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        self.ready()?;
        let mut gathered = Gathered::default();
        let outcome = tokio::select! {
            biased;
            // Dropping the other branch drops the connection, which is how the server learns of it.
            () = cancel.cancelled() => None,
            outcome = self.server.within(self.stream(&request, sink, &mut gathered)) => Some(outcome),
        };
        match outcome {
            Some(Err(error)) => Err(error),
            Some(Ok(())) => Ok(gathered.into_reply(request.model, None)),
            None => Ok(gathered.into_reply(request.model, Some(FinishReason::Cancelled))),
        }
    }

    async fn embed(&self, request: EmbedRequest) -> Result<EmbedReply, ModelError> {
        #[derive(Deserialize)]
        struct Entry {
            index: usize,
            embedding: Vec<f32>,
        }
        #[derive(Deserialize)]
        struct Answer {
            data: Vec<Entry>,
            #[serde(default)]
            usage: WireUsage,
        }
        self.ready()?;
        let count = request.inputs.len();
        if count == 0 {
            return Ok(EmbedReply {
                model: request.model,
                vectors: vec![],
                dimensions: 0,
                truncated: 0,
                usage: Usage::default(),
            });
        }
        let body = json!({"model": request.model, "input": request.inputs, "encoding_format": "float"});
        let mut answer: Answer =
            self.server.post_json("/embeddings", &body).await.map_err(|error| explain(error, &request.model))?;
        answer.data.sort_by_key(|entry| entry.index);
        if answer.data.iter().enumerate().any(|(position, entry)| position != entry.index) {
            return Err(self.server.bad_response(None, "the vectors' indexes are not 0 to n"));
        }
        let vectors: Vec<Vec<f32>> = answer.data.into_iter().map(|entry| entry.embedding).collect();
        let dimensions = crate::checked_dimensions(NAME, &vectors, count)?;
        Ok(EmbedReply { model: request.model, vectors, dimensions, truncated: 0, usage: answer.usage.into() })
    }

    /// The shape that Jina, vLLM and llama.cpp share; OpenAI itself has none.
    async fn rerank(&self, request: RerankRequest) -> Result<Vec<f32>, ModelError> {
        #[derive(Deserialize)]
        struct Entry {
            index: usize,
            relevance_score: f32,
        }
        #[derive(Deserialize)]
        struct Answer {
            results: Vec<Entry>,
        }
        if self.hosted {
            return Err(ModelError::unsupported(NAME, "re-rank"));
        }
        let body = json!({"model": request.model, "query": request.query, "documents": request.documents});
        let answer: Answer =
            self.server.post_json("/rerank", &body).await.map_err(|error| explain(error, &request.model))?;
        let mut scores = vec![None; request.documents.len()];
        for entry in answer.results {
            match scores.get_mut(entry.index) {
                Some(score) => *score = Some(entry.relevance_score),
                None => {
                    return Err(self
                        .server
                        .bad_response(None, format!("it scores a document {} that was not sent", entry.index)));
                }
            }
        }
        scores
            .into_iter()
            .collect::<Option<Vec<f32>>>()
            .ok_or_else(|| self.server.bad_response(None, "it leaves documents without a score"))
    }

    async fn probe(&self) -> Result<ProbeReport, ModelError> {
        let start = Instant::now();
        let models = self.list_models().await?.len();
        let latency_ms = start.elapsed().as_millis() as u64;
        Ok(ProbeReport {
            provider: NAME.to_owned(),
            address: Some(self.server.address.clone()),
            version: None,
            latency_ms,
            models,
        })
    }

    /// `/tokenize` of llama.cpp (`content` → `tokens`) and vLLM (`prompt` → `count`); it lies beside `/v1`.
    async fn count_tokens(&self, model: &str, text: &str) -> Result<usize, ModelError> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            count: Option<usize>,
            #[serde(default)]
            tokens: Option<Vec<Value>>,
        }
        let unsupported = || ModelError::unsupported(NAME, "count tokens: the server shows no tokenizer");
        let Some(root) = self.server.address.strip_suffix("/v1").filter(|_| !self.hosted) else {
            return Err(unsupported());
        };
        let server = self.server.at(root);
        let body = json!({"model": model, "content": text, "prompt": text});
        let answer: Answer = match server.post_json("/tokenize", &body).await {
            Err(ModelError::BadRequest { .. }) => return Err(unsupported()),
            answer => answer?,
        };
        answer.count.or(answer.tokens.map(|tokens| tokens.len())).ok_or_else(unsupported)
    }
}

/// What the stream brought so far.
#[derive(Debug, Default)]
struct Gathered {
    text: String,
    calls: Vec<PartialCall>,
    usage: Usage,
    finish: Option<String>,
}

#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    name: String,
    arguments: String,
}

impl Gathered {
    fn take(&mut self, chunk: Chunk, sink: &mut dyn DeltaSink) -> Result<(), String> {
        if let Some(usage) = chunk.usage {
            self.usage = usage.into();
        }
        // One choice is asked for.
        let Some(choice) = chunk.choices.into_iter().next() else { return Ok(()) };
        if let Some(content) = choice.delta.content.filter(|content| !content.is_empty()) {
            sink.delta(&content);
            self.text.push_str(&content);
        }
        for call in choice.delta.tool_calls.unwrap_or_default() {
            if call.index >= MAX_TOOL_CALLS {
                return Err(format!("it calls more than {MAX_TOOL_CALLS} tools at once"));
            }
            if call.index >= self.calls.len() {
                self.calls.resize_with(call.index + 1, PartialCall::default);
            }
            let partial = &mut self.calls[call.index];
            partial.id.push_str(&call.id.unwrap_or_default());
            if let Some(function) = call.function {
                partial.name.push_str(&function.name.unwrap_or_default());
                partial.arguments.push_str(&function.arguments.unwrap_or_default());
            }
        }
        if choice.finish_reason.is_some() {
            self.finish = choice.finish_reason;
        }
        Ok(())
    }

    fn into_reply(self, model: String, finish: Option<FinishReason>) -> ChatReply {
        // A call that was cut off in the middle is no call.
        let whole = finish.is_none();
        let tool_calls: Vec<ToolCall> = self
            .calls
            .into_iter()
            .enumerate()
            .filter(|(_, call)| whole && !call.name.is_empty())
            .map(into_call)
            .collect();
        let finish = finish.unwrap_or(match self.finish.as_deref() {
            _ if !tool_calls.is_empty() => FinishReason::ToolCalls,
            Some("length") => FinishReason::Length,
            _ => FinishReason::Stop,
        });
        ChatReply { text: self.text, tool_calls, usage: self.usage, finish, model }
    }
}

fn into_call((position, call): (usize, PartialCall)) -> ToolCall {
    let id = if call.id.is_empty() { format!("call_{}", position + 1) } else { call.id };
    let arguments = match call.arguments.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    ToolCall { id, name: call.name, arguments }
}

/// Adds `/v1` to an address that names only a server.
fn with_version(address: &str) -> String {
    let address = address.trim_end_matches('/');
    match reqwest::Url::parse(address) {
        Ok(url) if url.path() == "/" => format!("{address}/v1"),
        _ => address.to_owned(),
    }
}

fn chat_body(request: &ChatRequest, hosted: bool) -> Value {
    let mut body = json!({
        "model": request.model,
        "messages": request.messages.iter().map(wire_message).collect::<Vec<_>>(),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[name] = value;
        }
    };
    set("temperature", request.temperature.map(Value::from));
    set("top_p", request.top_p.map(Value::from));
    // OpenAI renamed the field; compatible servers know the old name.
    set(if hosted { "max_completion_tokens" } else { "max_tokens" }, request.max_tokens.map(Value::from));
    set("seed", request.seed.map(Value::from));
    set("stop", (!request.stop.is_empty()).then(|| json!(request.stop)));
    set("tools", (!request.tools.is_empty()).then(|| wire_tools(&request.tools)));
    set("response_format", request.response_schema.as_ref().map(response_format));
    body
}

fn response_format(schema: &Value) -> Value {
    // OpenAI refuses strict mode for schemas outside its subset.
    json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": is_strict(schema)}})
}

/// Whether every object of a schema closes itself and requires all of its properties.
fn is_strict(schema: &Value) -> bool {
    let own = match schema.get("properties").and_then(Value::as_object) {
        Some(properties) => {
            let required = schema["required"].as_array().map_or(0, Vec::len);
            schema["additionalProperties"] == json!(false) && required == properties.len()
        }
        None => schema["type"] != "object",
    };
    own && match schema {
        Value::Object(map) => map.values().all(|value| !value.is_object() && !value.is_array() || is_strict(value)),
        Value::Array(items) => items.iter().all(|value| !value.is_object() || is_strict(value)),
        _ => true,
    }
}

fn wire_message(message: &Message) -> Value {
    let mut entry = json!({"role": message.role.as_str(), "content": message.content});
    if !message.tool_calls.is_empty() {
        entry["tool_calls"] = message
            .tool_calls
            .iter()
            .map(|call| {
                let arguments = call.arguments.to_string();
                json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
            })
            .collect();
    }
    if let Some(id) = &message.tool_call_id {
        entry["tool_call_id"] = json!(id);
    }
    entry
}

/// Tools in the shape that OpenAI's and Ollama's APIs and the chat templates share.
pub(crate) fn wire_tools(tools: &[ToolSpec]) -> Value {
    tools
        .iter()
        .map(|tool| {
            json!({"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}})
        })
        .collect()
}

/// Turns the server's refusals into what they mean for the model that was asked for.
fn explain(error: ModelError, model: &str) -> ModelError {
    match error {
        ModelError::BadRequest { reason, .. } if reason.starts_with("404") => ModelError::ModelMissing {
            model: model.to_owned(),
            reason: format!("the server answered {reason}"),
            fix: "`riverrun models --provider openai` lists what it has".to_owned(),
        },
        ModelError::ContextOverflow { tokens, limit, .. } => {
            ModelError::ContextOverflow { model: model.to_owned(), tokens, limit }
        }
        other => other,
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    error: Value,
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize)]
struct CallDelta {
    #[serde(default)]
    index: usize,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
}

#[derive(Default, Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        Usage { prompt_tokens: usage.prompt_tokens, completion_tokens: usage.completion_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_addresses_when_the_version_is_added_then_only_bare_servers_change() {
        assert_eq!(with_version("http://127.0.0.1:8080"), "http://127.0.0.1:8080/v1");
        assert_eq!(with_version("http://127.0.0.1:8080/"), "http://127.0.0.1:8080/v1");
        assert_eq!(with_version("https://gate.example/openai/v1"), "https://gate.example/openai/v1");
    }

    #[test]
    fn given_schemas_when_strictness_is_judged_then_only_closed_ones_are_strict() {
        let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
        assert!(is_strict(&closed));
        assert!(!is_strict(&json!({"type": "object", "properties": {"a": {"type": "string"}}})));
        let nested = json!({"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"], "additionalProperties": false});
        assert!(!is_strict(&nested));
    }
}
