//! Ollama's native API (`/api/chat`, `/api/embed`, `/api/tags`, `/api/version`), as documented in its `docs/api.md`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::gathered::Gathered;
use super::openai::wire_tools;
use super::protocol::{EmbedPart, Embedded, Fault, Framing, Listed, Protocol, json};
use super::{number, set};
use crate::http::Call;
use crate::provider::{ChatRequest, DeltaSink, FinishReason, Message, ModelKind, Usage};

/// Ollama's protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ollama {
    /// What `num_ctx` asks for.
    pub(super) context_tokens: usize,
}

impl Protocol for Ollama {
    fn framing(&self) -> Framing {
        Framing::JsonLines
    }

    fn chat(&self, request: &ChatRequest) -> Option<Call> {
        Some(Call::post("/api/chat", chat_body(request, self.context_tokens)))
    }

    fn gather(
        &self,
        event: &[u8],
        gathered: &mut Gathered,
        sink: &mut dyn DeltaSink,
    ) -> Result<ControlFlow<()>, Fault> {
        let line: ChatLine = json(event)?;
        if let Some(error) = line.error {
            return Err(Fault::Broken(error));
        }
        if let Some(message) = line.message {
            gathered.think(message.thinking.as_str().unwrap_or_default(), sink);
            gathered.say(&message.content, sink);
            for call in message.tool_calls {
                gathered.whole_call(call.id.as_deref(), &call.function.name, &call.function.arguments)?;
            }
        }
        if !line.done {
            return Ok(ControlFlow::Continue(()));
        }
        gathered.finish = Some(match line.done_reason.as_deref() {
            Some("length") => FinishReason::Length,
            _ => FinishReason::Stop,
        });
        gathered.usage =
            Usage { prompt_tokens: line.prompt_eval_count, completion_tokens: line.eval_count, ..Usage::default() };
        // A prompt that fills the whole context left no room for an answer: the server has cut it.
        let read = usize::try_from(line.prompt_eval_count).unwrap_or(usize::MAX);
        if read >= self.context_tokens {
            return Err(Fault::Overflow { tokens: read, limit: self.context_tokens });
        }
        Ok(ControlFlow::Break(()))
    }

    fn list(&self) -> Option<Call> {
        Some(Call::get("/api/tags"))
    }

    fn listed(&self, body: &[u8]) -> Result<Vec<Listed>, Fault> {
        let tags: Tags = json(body)?;
        Ok(tags.models.into_iter().map(Listed::from).collect())
    }

    fn embed(&self, part: EmbedPart<'_>) -> Option<Call> {
        let options = json!({"num_ctx": self.context_tokens});
        let body = json!({"model": part.model, "input": part.inputs, "truncate": part.cut, "options": options});
        Some(Call::post("/api/embed", body))
    }

    fn can_cut(&self, _model: &str) -> bool {
        true
    }

    fn embedded(&self, body: &[u8]) -> Result<Embedded, Fault> {
        #[derive(Deserialize)]
        struct Answer {
            embeddings: Vec<Vec<f32>>,
            #[serde(default)]
            prompt_eval_count: u64,
        }
        let answer: Answer = json(body)?;
        Ok((
            answer.embeddings,
            Usage { prompt_tokens: answer.prompt_eval_count, completion_tokens: 0, ..Usage::default() },
        ))
    }

    fn version(&self) -> Option<Call> {
        Some(Call::get("/api/version"))
    }

    fn own_context(&self) -> Option<usize> {
        Some(self.context_tokens)
    }

    fn about(&self, model: &str) -> Option<Call> {
        Some(Call::post("/api/show", json!({"model": model})))
    }

    fn trained_context(&self, body: &[u8]) -> Result<Option<usize>, Fault> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            model_info: serde_json::Map<String, Value>,
        }
        let answer: Answer = json(body)?;
        // The field carries the name of the model's family.
        let is_context = |name: &str| name.split_once('.').is_some_and(|(_, field)| field == "context_length");
        let told = answer.model_info.iter().find(|(name, _)| is_context(name));
        Ok(told.and_then(|(_, tokens)| usize::try_from(tokens.as_u64()?).ok()).filter(|tokens| *tokens > 0))
    }
}

fn chat_body(request: &ChatRequest, context_tokens: usize) -> Value {
    // Without `num_ctx` the server uses a small context of its own and cuts the prompt silently.
    let mut options = json!({"num_ctx": context_tokens});
    set(&mut options, "temperature", request.temperature.map(number));
    set(&mut options, "top_p", request.top_p.map(number));
    set(&mut options, "top_k", request.top_k.map(Value::from));
    set(&mut options, "min_p", request.min_p.map(number));
    set(&mut options, "repeat_penalty", request.repeat_penalty.map(number));
    set(&mut options, "frequency_penalty", request.frequency_penalty.map(number));
    set(&mut options, "presence_penalty", request.presence_penalty.map(number));
    set(&mut options, "num_predict", request.max_tokens.map(Value::from));
    set(&mut options, "seed", request.seed.map(Value::from));
    set(&mut options, "stop", (!request.stop.is_empty()).then(|| json!(request.stop)));
    let mut body = json!({
        "model": request.model,
        "messages": wire_messages(&request.messages),
        "stream": true,
        // A prompt that does not fit is refused, by servers that are new enough; older ones cut it, which `gather` sees.
        "truncate": false,
        "shift": false,
        "options": options,
    });
    if !request.tools.is_empty() {
        body["tools"] = wire_tools(&request.tools);
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
    thinking: Value,
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

impl From<Tag> for Listed {
    fn from(tag: Tag) -> Self {
        // The list does not say what a model is for; encoders of the BERT family cannot chat.
        let family = tag.details["family"].as_str().unwrap_or_default();
        let kind = if family.contains("bert") { ModelKind::Embed } else { ModelKind::Unknown };
        Listed { kind, size_bytes: tag.size, ..Listed::named(tag.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ToolCall;

    #[test]
    fn given_a_conversation_with_tools_when_it_is_sent_then_results_name_their_tool_and_num_ctx_is_set() {
        let call = ToolCall { id: "c1".into(), name: "clock".into(), arguments: json!({"zone": "UTC"}) };
        let assistant = Message { tool_calls: vec![call], ..Message::assistant("") };
        let request = ChatRequest {
            model: "m".into(),
            messages: vec![Message::user("time?"), assistant, Message::tool("c1", "12:00")],
            max_tokens: Some(7),
            frequency_penalty: Some(0.5),
            presence_penalty: Some(-0.5),
            ..ChatRequest::default()
        };
        let body = chat_body(&request, 4096);
        assert_eq!(
            body["options"],
            json!({"num_ctx": 4096, "num_predict": 7, "frequency_penalty": 0.5, "presence_penalty": -0.5})
        );
        assert_eq!(body["messages"][1]["tool_calls"][0]["function"]["arguments"], json!({"zone": "UTC"}));
        assert_eq!(body["messages"][2], json!({"role": "tool", "content": "12:00", "tool_name": "clock"}));
    }
}
