//! Ollama's native API (`/api/chat`, `/api/embed`, `/api/tags`, `/api/version`), as documented in its `docs/api.md`.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Instant;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::ModelError;
use crate::http::Server;
use crate::http::lines::for_each_line;
use crate::provider::{
    ChatReply, ChatRequest, DeltaSink, EmbedReply, EmbedRequest, FinishReason, Message, ModelInfo, ModelKind,
    ProbeReport, Provider, RerankRequest, ToolCall, Usage,
};
use crate::settings::{DEFAULT_OLLAMA_ADDRESS, ModelSettings};

const NAME: &str = "ollama";

/// A server that speaks Ollama's API.
#[derive(Debug, Clone)]
pub struct Ollama {
    server: Server,
    context_tokens: usize,
}

impl Ollama {
    /// The server of `RIVERRUN_MODEL_RUNTIME_BASE_URL`, or the one at Ollama's default address.
    pub fn new(settings: &ModelSettings) -> Result<Self, ModelError> {
        let address = settings.runtime_base_url.clone().unwrap_or_else(|| DEFAULT_OLLAMA_ADDRESS.to_owned());
        let fix = "start it with `ollama serve`, or set RIVERRUN_MODEL_RUNTIME_BASE_URL to its address, or unset that to use the in-process runtime";
        let server = Server::new(NAME, address, None, "RIVERRUN_MODEL_RUNTIME_BASE_URL", fix.to_owned(), settings)?;
        Ok(Ollama { server, context_tokens: settings.context_tokens })
    }

    /// The server's address.
    pub fn address(&self) -> &str {
        &self.server.address
    }

    async fn stream(
        &self,
        request: &ChatRequest,
        sink: &mut dyn DeltaSink,
        reply: &mut Gathered,
    ) -> Result<(), ModelError> {
        let body = chat_body(request, self.context_tokens);
        let response = self.server.post("/api/chat", &body).await.map_err(|error| explain(error, &request.model))?;
        let ended = for_each_line(&self.server, response, |line| {
            if line.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            let line: ChatLine = serde_json::from_slice(line)
                .map_err(|error| self.server.bad_response(None, format!("a line of the stream is no JSON: {error}")))?;
            if let Some(error) = line.error {
                return Err(self.server.bad_response(None, error));
            }
            Ok(reply.take(line, sink))
        })
        .await?;
        if !ended {
            return Err(self.server.bad_response(None, "the stream ended before the answer did"));
        }
        if reply.usage.prompt_tokens >= self.context_tokens as u64 {
            tracing::warn!(model = %request.model, context_tokens = self.context_tokens, "the prompt fills the whole context; the server may have cut it");
        }
        Ok(())
    }
}

#[async_trait]
impl Provider for Ollama {
    fn name(&self) -> &str {
        NAME
    }

    async fn list_models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        let tags: Tags = self.server.get_json("/api/tags").await?;
        Ok(tags.models.into_iter().map(|tag| tag.into_info(&self.server.address)).collect())
    }

    async fn chat(
        &self,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
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
        let body = json!({"model": request.model, "input": request.inputs});
        let answer: EmbedAnswer =
            self.server.post_json("/api/embed", &body).await.map_err(|error| explain(error, &request.model))?;
        let usage = Usage { prompt_tokens: answer.prompt_eval_count, completion_tokens: 0 };
        let dimensions = crate::checked_dimensions(NAME, &answer.embeddings, count)?;
        Ok(EmbedReply { model: request.model, vectors: answer.embeddings, dimensions, truncated: 0, usage })
    }

    async fn rerank(&self, _request: RerankRequest) -> Result<Vec<f32>, ModelError> {
        Err(ModelError::unsupported(NAME, "re-rank"))
    }

    async fn probe(&self) -> Result<ProbeReport, ModelError> {
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        let start = Instant::now();
        let version: Version = self.server.get_json("/api/version").await?;
        let latency_ms = start.elapsed().as_millis() as u64;
        let models = self.list_models().await?.len();
        Ok(ProbeReport {
            provider: NAME.to_owned(),
            address: Some(self.server.address.clone()),
            version: Some(version.version),
            latency_ms,
            models,
        })
    }

    async fn count_tokens(&self, _model: &str, _text: &str) -> Result<usize, ModelError> {
        Err(ModelError::unsupported(NAME, "count tokens: its API does not show the tokenizer"))
    }

    async fn context_tokens(&self, _model: &str) -> Result<usize, ModelError> {
        // What `num_ctx` asks for.
        Ok(self.context_tokens)
    }
}

/// What the stream brought so far.
#[derive(Debug, Default)]
struct Gathered {
    text: String,
    tool_calls: Vec<ToolCall>,
    usage: Usage,
    done_reason: Option<String>,
}

impl Gathered {
    fn take(&mut self, line: ChatLine, sink: &mut dyn DeltaSink) -> ControlFlow<()> {
        if let Some(message) = line.message {
            if !message.content.is_empty() {
                sink.delta(&message.content);
                self.text.push_str(&message.content);
            }
            for call in message.tool_calls {
                let id = call.id.unwrap_or_else(|| format!("call_{}", self.tool_calls.len() + 1));
                self.tool_calls.push(ToolCall { id, name: call.function.name, arguments: call.function.arguments });
            }
        }
        if !line.done {
            return ControlFlow::Continue(());
        }
        self.done_reason = line.done_reason;
        self.usage = Usage { prompt_tokens: line.prompt_eval_count, completion_tokens: line.eval_count };
        ControlFlow::Break(())
    }

    fn into_reply(self, model: String, finish: Option<FinishReason>) -> ChatReply {
        let finish = finish.unwrap_or(match self.done_reason.as_deref() {
            _ if !self.tool_calls.is_empty() => FinishReason::ToolCalls,
            Some("length") => FinishReason::Length,
            _ => FinishReason::Stop,
        });
        ChatReply { text: self.text, tool_calls: self.tool_calls, usage: self.usage, finish, model }
    }
}

fn chat_body(request: &ChatRequest, context_tokens: usize) -> Value {
    // Without `num_ctx` the server uses a small context of its own and cuts the prompt silently.
    let mut options = json!({"num_ctx": context_tokens});
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            options[name] = value;
        }
    };
    set("temperature", request.temperature.map(Value::from));
    set("top_p", request.top_p.map(Value::from));
    set("num_predict", request.max_tokens.map(Value::from));
    set("seed", request.seed.map(Value::from));
    set("stop", (!request.stop.is_empty()).then(|| json!(request.stop)));
    let mut body = json!({
        "model": request.model,
        "messages": wire_messages(&request.messages),
        "stream": true,
        "options": options,
    });
    if !request.tools.is_empty() {
        body["tools"] = crate::openai::wire_tools(&request.tools);
    }
    if let Some(schema) = &request.response_schema {
        body["format"] = schema.clone();
    }
    body
}

/// A tool's result names its tool here, so the call that it belongs to is looked up.
fn wire_messages(messages: &[Message]) -> Vec<Value> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut wire = Vec::with_capacity(messages.len());
    for message in messages {
        let mut entry = json!({"role": message.role.as_str(), "content": message.content});
        if !message.tool_calls.is_empty() {
            names.extend(message.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str())));
            entry["tool_calls"] = message
                .tool_calls
                .iter()
                .map(|call| json!({"function": {"name": call.name, "arguments": call.arguments}}))
                .collect();
        }
        if let Some(name) = message.tool_call_id.as_deref().and_then(|id| names.get(id)) {
            entry["tool_name"] = json!(name);
        }
        wire.push(entry);
    }
    wire
}

/// Turns the server's refusals into what they mean for the model that was asked for.
fn explain(error: ModelError, model: &str) -> ModelError {
    match error {
        ModelError::BadRequest { reason, .. } if reason.contains("not found") => ModelError::ModelMissing {
            model: model.to_owned(),
            reason: format!("the Ollama server does not have it ({reason})"),
            fix: format!("`ollama pull {model}`"),
        },
        ModelError::BadRequest { reason, .. } if reason.contains("does not support tools") => {
            ModelError::unsupported(NAME, &format!("call tools with model '{model}'"))
        }
        ModelError::ContextOverflow { tokens, limit, .. } => {
            ModelError::ContextOverflow { model: model.to_owned(), tokens, limit }
        }
        other => other,
    }
}

#[derive(Deserialize)]
struct ChatLine {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    message: Option<WireMessage>,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    done_reason: Option<String>,
    #[serde(default)]
    prompt_eval_count: u64,
    #[serde(default)]
    eval_count: u64,
}

#[derive(Deserialize)]
struct WireMessage {
    #[serde(default)]
    content: String,
    #[serde(default)]
    tool_calls: Vec<WireCall>,
}

#[derive(Deserialize)]
struct WireCall {
    #[serde(default)]
    id: Option<String>,
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct Tags {
    #[serde(default)]
    models: Vec<Tag>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    details: Value,
}

impl Tag {
    fn into_info(self, address: &str) -> ModelInfo {
        // The list does not say what a model is for; encoders of the BERT family cannot chat.
        let family = self.details["family"].as_str().unwrap_or_default();
        let kind = if family.contains("bert") { ModelKind::Embed } else { ModelKind::Unknown };
        ModelInfo {
            name: self.name,
            provider: NAME.to_owned(),
            kind,
            present: true,
            size_bytes: self.size,
            context_tokens: None,
            dimensions: None,
            source: Some(address.to_owned()),
        }
    }
}

#[derive(Deserialize)]
struct EmbedAnswer {
    embeddings: Vec<Vec<f32>>,
    #[serde(default)]
    prompt_eval_count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_conversation_with_tools_when_it_is_sent_then_results_name_their_tool_and_num_ctx_is_set() {
        let call = ToolCall { id: "c1".into(), name: "clock".into(), arguments: json!({"zone": "UTC"}) };
        let assistant = Message { tool_calls: vec![call], ..Message::assistant("") };
        let request = ChatRequest {
            model: "m".into(),
            messages: vec![Message::user("time?"), assistant, Message::tool("c1", "12:00")],
            max_tokens: Some(7),
            ..ChatRequest::default()
        };
        let body = chat_body(&request, 4096);
        assert_eq!(body["options"], json!({"num_ctx": 4096, "num_predict": 7}));
        assert_eq!(body["messages"][1]["tool_calls"][0]["function"]["arguments"], json!({"zone": "UTC"}));
        assert_eq!(body["messages"][2], json!({"role": "tool", "content": "12:00", "tool_name": "clock"}));
    }
}
