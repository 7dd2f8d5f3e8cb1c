//! The second version of Cohere's API, as documented at docs.cohere.com.

use std::ops::ControlFlow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::gathered::Gathered;
use super::openai::wire_tools;
use super::protocol::{EmbedPart, Embedded, Fault, Listed, Protocol, changes, first_given, json, ranks_in};
use super::{number, set};
use crate::http::Call;
use crate::http::refusal::message_of;
use crate::provider::{ChatRequest, DeltaSink, EmbedPurpose, FinishReason, Message, ModelKind, Usage};

/// A tool call's place in a message beyond this is refused: it comes from the server.
const MAX_INDEX: usize = 4096;

/// Cohere's protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cohere;

impl Protocol for Cohere {
    fn chat(&self, request: &ChatRequest) -> Option<Call> {
        let messages: Vec<Value> = request.messages.iter().map(wire_message).collect();
        let mut body = json!({"model": request.model, "messages": messages, "stream": true});
        set(&mut body, "temperature", request.temperature.map(number));
        set(&mut body, "p", request.top_p.map(number));
        set(&mut body, "k", request.top_k.map(Value::from));
        set(&mut body, "frequency_penalty", request.frequency_penalty.map(number));
        set(&mut body, "presence_penalty", request.presence_penalty.map(number));
        set(&mut body, "max_tokens", request.max_tokens.map(Value::from));
        set(&mut body, "seed", request.seed.map(Value::from));
        set(&mut body, "stop_sequences", (!request.stop.is_empty()).then(|| json!(request.stop)));
        match &request.response_schema {
            // The service refuses tools beside it.
            Some(schema) => {
                set(&mut body, "response_format", Some(json!({"type": "json_object", "json_schema": schema})));
            }
            None => set(&mut body, "tools", (!request.tools.is_empty()).then(|| wire_tools(&request.tools))),
        }
        Some(Call::post("/v2/chat", body))
    }

    fn leaves_out(&self, request: &ChatRequest) -> Option<&'static str> {
        first_given(&[
            ("min_p", changes(request.min_p, 0.0)),
            ("repeat_penalty", changes(request.repeat_penalty, 1.0)),
            ("frequency_penalty", is_beyond(request.frequency_penalty)),
            ("presence_penalty", is_beyond(request.presence_penalty)),
        ])
    }

    fn gather(
        &self,
        event: &[u8],
        gathered: &mut Gathered,
        sink: &mut dyn DeltaSink,
    ) -> Result<ControlFlow<()>, Fault> {
        if event == b"[DONE]" {
            return Ok(ControlFlow::Break(()));
        }
        let event_value: Event = json(event)?;
        match event_value.kind.as_str() {
            "content-delta" => {
                let text = &event_value.delta["message"]["content"]["text"];
                gathered.say(text.as_str().unwrap_or_default(), sink);
            }
            "tool-call-start" | "tool-call-delta" => {
                if event_value.index > MAX_INDEX {
                    return Err(Fault::Broken(format!("it numbers a tool call {}", event_value.index)));
                }
                let call = &event_value.delta["message"]["tool_calls"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let function = &call["function"];
                let (id, name, arguments) = (text(&call["id"]), text(&function["name"]), text(&function["arguments"]));
                gathered.call(event_value.index, &id, &name, &arguments)?;
            }
            "message-end" => {
                let tokens = &event_value.delta["usage"]["tokens"];
                let count = |name: &str| tokens[name].as_f64().unwrap_or(0.0) as u64;
                gathered.usage = Usage {
                    prompt_tokens: count("input_tokens"),
                    completion_tokens: count("output_tokens"),
                    ..Usage::default()
                };
                gathered.finish = Some(match event_value.delta["finish_reason"].as_str().unwrap_or_default() {
                    "MAX_TOKENS" => FinishReason::Length,
                    "TOOL_CALL" => FinishReason::ToolCalls,
                    "ERROR" | "TIMEOUT" => {
                        let reason =
                            event_value.delta["error"].as_str().unwrap_or("the model failed within its answer");
                        return Err(reason.into());
                    }
                    _ => FinishReason::Stop,
                });
                return Ok(ControlFlow::Break(()));
            }
            "" => return Err(Fault::Broken(message_of(event))),
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn list(&self) -> Option<Call> {
        Some(Call::get("/v1/models?page_size=1000"))
    }

    fn listed(&self, body: &[u8]) -> Result<Vec<Listed>, Fault> {
        #[derive(Deserialize)]
        struct Entry {
            name: String,
            #[serde(default)]
            endpoints: Vec<String>,
            #[serde(default)]
            context_length: Option<f64>,
        }
        #[derive(Deserialize)]
        struct Listing {
            models: Vec<Entry>,
        }
        let listing: Listing = json(body)?;
        let listed = |entry: Entry| {
            let can = |endpoint: &str| entry.endpoints.iter().any(|one| one == endpoint);
            let kinds = [("chat", ModelKind::Chat), ("embed", ModelKind::Embed), ("rerank", ModelKind::Rerank)];
            let kind =
                kinds.into_iter().find(|(endpoint, _)| can(endpoint)).map_or(ModelKind::Unknown, |found| found.1);
            Listed {
                kind,
                context_tokens: entry.context_length.map(|tokens| tokens as u64),
                ..Listed::named(entry.name)
            }
        };
        Ok(listing.models.into_iter().map(listed).collect())
    }

    fn embed(&self, part: EmbedPart<'_>) -> Option<Call> {
        let purpose = match part.purpose {
            EmbedPurpose::Document => "search_document",
            EmbedPurpose::Query => "search_query",
        };
        let mut body = json!({
            "model": part.model, "texts": part.inputs, "input_type": purpose, "embedding_types": ["float"],
            "truncate": if part.cut { "END" } else { "NONE" },
        });
        set(&mut body, "output_dimension", part.dimensions.map(Value::from));
        Some(Call::post("/v2/embed", body))
    }

    fn can_cut(&self, _model: &str) -> bool {
        true
    }

    fn takes_dimensions(&self, _model: &str) -> bool {
        true
    }

    fn embedded(&self, body: &[u8]) -> Result<Embedded, Fault> {
        #[derive(Deserialize)]
        struct Floats {
            float: Vec<Vec<f32>>,
        }
        #[derive(Deserialize)]
        struct Answer {
            embeddings: Floats,
            #[serde(default)]
            meta: Value,
        }
        let answer: Answer = json(body)?;
        let tokens = answer.meta["billed_units"]["input_tokens"].as_f64().unwrap_or(0.0) as u64;
        Ok((answer.embeddings.float, Usage { prompt_tokens: tokens, completion_tokens: 0, ..Usage::default() }))
    }

    fn embed_batch(&self, _model: &str) -> usize {
        96
    }

    fn rerank(&self, model: &str, query: &str, documents: &[String]) -> Option<Call> {
        Some(Call::post("/v2/rerank", json!({"model": model, "query": query, "documents": documents})))
    }

    fn ranked(&self, body: &[u8]) -> Result<Vec<(usize, f32)>, Fault> {
        ranks_in(body, "results")
    }

    fn count_text(&self, model: &str, text: &str) -> Option<Call> {
        Some(Call::post("/v1/tokenize", json!({"model": model, "text": text})))
    }

    fn counted(&self, body: &[u8]) -> Result<Option<usize>, Fault> {
        #[derive(Deserialize)]
        struct Answer {
            tokens: Vec<i64>,
        }
        json::<Answer>(body).map(|answer| Some(answer.tokens.len()))
    }
}

/// The service has penalties of 0 to 1.
fn is_beyond(penalty: Option<f32>) -> bool {
    penalty.is_some_and(|penalty| !(0.0..=1.0).contains(&penalty))
}

fn wire_message(message: &Message) -> Value {
    let mut entry = json!({"role": message.role.as_str(), "content": message.content});
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| {
            let arguments = call.arguments.to_string();
            json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
        });
        entry["tool_calls"] = calls.collect();
        // The service refuses empty content beside calls.
        if message.content.is_empty()
            && let Some(map) = entry.as_object_mut()
        {
            map.remove("content");
        }
    }
    if let Some(id) = &message.tool_call_id {
        entry["tool_call_id"] = json!(id);
    }
    entry
}

#[derive(Deserialize)]
struct Event {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    index: usize,
    #[serde(default)]
    delta: Value,
}
