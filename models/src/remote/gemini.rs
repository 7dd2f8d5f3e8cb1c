//! Google's Gemini API, as documented at ai.google.dev.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::gathered::Gathered;
use super::openai::encoded;
use super::protocol::{EmbedPart, Embedded, Fault, Listed, Protocol, changes, first_given, json};
use super::{number, set};
use crate::http::Call;
use crate::http::refusal::message_of;
use crate::provider::{ChatRequest, DeltaSink, EmbedPurpose, FinishReason, Message, ModelKind, Role, ToolCall, Usage};

/// What the API documents for calls whose signature is not known: newer models want one with each call of theirs, and a conversation may
/// come from another model.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Reasons that end an answer because of what it says; asked again, it ends so again.
const WITHHELD: [&str; 6] = ["SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"];

/// The Gemini protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gemini;

impl Protocol for Gemini {
    fn chat(&self, request: &ChatRequest) -> Option<Call> {
        let path = format!("/models/{}:streamGenerateContent?alt=sse", encoded(&request.model));
        let mut body = prompt(request);
        let config = config(request);
        if config != json!({}) {
            body["generationConfig"] = config;
        }
        Some(Call::post(path, body))
    }

    fn leaves_out(&self, request: &ChatRequest) -> Option<&'static str> {
        first_given(&[("min_p", changes(request.min_p, 0.0)), ("repeat_penalty", changes(request.repeat_penalty, 1.0))])
    }

    fn gather(
        &self,
        event: &[u8],
        gathered: &mut Gathered,
        sink: &mut dyn DeltaSink,
    ) -> Result<ControlFlow<()>, Fault> {
        let chunk: Chunk = json(event)?;
        if let Some(error) = chunk.error {
            let said = message_of(event);
            return Err(if matches!(error.code, 429 | 503) { Fault::Busy(said) } else { Fault::Broken(said) });
        }
        if let Some(reason) = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason) {
            gathered.withheld = Some(reason);
        }
        if let Some(usage) = chunk.usage_metadata {
            let completion_tokens = usage.candidates_token_count + usage.thoughts_token_count;
            let prompt_tokens = usage.prompt_token_count;
            let cached_prompt_tokens = usage.cached_content_token_count.min(prompt_tokens);
            gathered.usage = Usage { prompt_tokens, completion_tokens, cached_prompt_tokens, ..Usage::default() };
        }
        // One candidate is asked for.
        let Some(candidate) = chunk.candidates.into_iter().next() else { return Ok(ControlFlow::Continue(())) };
        for part in candidate.content.unwrap_or_default().parts {
            if let Some(call) = part.function_call {
                gathered.whole_call(call.id.as_deref(), &call.name, &call.args.unwrap_or_else(|| json!({})))?;
            } else if !part.thought {
                gathered.say(&part.text.unwrap_or_default(), sink);
            }
        }
        if let Some(reason) = candidate.finish_reason {
            gathered.finish = Some(match reason.as_str() {
                "STOP" | "FINISH_REASON_UNSPECIFIED" => FinishReason::Stop,
                "MAX_TOKENS" => FinishReason::Length,
                withheld if WITHHELD.contains(&withheld) => {
                    gathered.withheld = Some(reason);
                    FinishReason::Stop
                }
                other => return Err(Fault::Broken(format!("it ended its answer because of {other}"))),
            });
        }
        Ok(ControlFlow::Continue(()))
    }

    fn list(&self) -> Option<Call> {
        Some(Call::get("/models?pageSize=1000"))
    }

    fn listed(&self, body: &[u8]) -> Result<Vec<Listed>, Fault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Entry {
            name: String,
            #[serde(default)]
            input_token_limit: Option<u64>,
            #[serde(default)]
            supported_generation_methods: Vec<String>,
        }
        #[derive(Deserialize)]
        struct Listing {
            #[serde(default)]
            models: Vec<Entry>,
        }
        let listing: Listing = json(body)?;
        let listed = |entry: Entry| {
            let can = |method: &str| entry.supported_generation_methods.iter().any(|one| one == method);
            let kind = match (can("generateContent"), can("embedContent")) {
                (true, _) => ModelKind::Chat,
                (false, true) => ModelKind::Embed,
                (false, false) => ModelKind::Unknown,
            };
            let name = entry.name.strip_prefix("models/").unwrap_or(&entry.name);
            Listed { kind, context_tokens: entry.input_token_limit, ..Listed::named(name) }
        };
        Ok(listing.models.into_iter().map(listed).collect())
    }

    fn embed(&self, part: EmbedPart<'_>) -> Option<Call> {
        let purpose = match part.purpose {
            EmbedPurpose::Document => "RETRIEVAL_DOCUMENT",
            EmbedPurpose::Query => "RETRIEVAL_QUERY",
        };
        let model = format!("models/{}", part.model);
        let requests: Vec<Value> = part
            .inputs
            .iter()
            .map(|text| {
                let mut one = json!({"model": model, "content": {"parts": [{"text": text}]}, "taskType": purpose});
                set(&mut one, "outputDimensionality", part.dimensions.map(Value::from));
                one
            })
            .collect();
        let path = format!("/models/{}:batchEmbedContents", encoded(part.model));
        Some(Call::post(path, json!({"requests": requests})))
    }

    fn embedded(&self, body: &[u8]) -> Result<Embedded, Fault> {
        #[derive(Deserialize)]
        struct Entry {
            values: Vec<f32>,
        }
        #[derive(Deserialize)]
        struct Answer {
            embeddings: Vec<Entry>,
        }
        let answer: Answer = json(body)?;
        Ok((answer.embeddings.into_iter().map(|entry| entry.values).collect(), Usage::default()))
    }

    fn takes_dimensions(&self, _model: &str) -> bool {
        true
    }

    fn embed_batch(&self, _model: &str) -> usize {
        100
    }

    fn count_prompt(&self, request: &ChatRequest) -> Option<Call> {
        let mut body = prompt(request);
        body["model"] = json!(format!("models/{}", request.model));
        let path = format!("/models/{}:countTokens", encoded(&request.model));
        Some(Call::post(path, json!({"generateContentRequest": body})))
    }

    fn count_text(&self, model: &str, text: &str) -> Option<Call> {
        let body = json!({"contents": [{"role": "user", "parts": [{"text": text}]}]});
        Some(Call::post(format!("/models/{}:countTokens", encoded(model)), body))
    }

    fn counted(&self, body: &[u8]) -> Result<Option<usize>, Fault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer {
            #[serde(default)]
            total_tokens: usize,
        }
        json::<Answer>(body).map(|answer| Some(answer.total_tokens))
    }
}

/// What of a request the model reads.
fn prompt(request: &ChatRequest) -> Value {
    let mut body = json!({"contents": contents(&request.messages, &request.model)});
    let system: Vec<Value> = request
        .messages
        .iter()
        .filter(|message| message.role == Role::System)
        .map(|message| json!({"text": message.content}))
        .collect();
    if !system.is_empty() {
        body["systemInstruction"] = json!({"parts": system});
    }
    if !request.tools.is_empty() {
        let tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters})
            })
            .collect();
        body["tools"] = json!([{"functionDeclarations": tools}]);
        if request.response_schema.is_some() {
            // The answer is JSON: the tools are only shown.
            body["toolConfig"] = json!({"functionCallingConfig": {"mode": "NONE"}});
        }
    }
    body
}

fn config(request: &ChatRequest) -> Value {
    let mut config = json!({});
    set(&mut config, "temperature", request.temperature.map(number));
    set(&mut config, "topP", request.top_p.map(number));
    set(&mut config, "topK", request.top_k.map(Value::from));
    set(&mut config, "frequencyPenalty", request.frequency_penalty.map(number));
    set(&mut config, "presencePenalty", request.presence_penalty.map(number));
    set(&mut config, "maxOutputTokens", request.max_tokens.map(Value::from));
    set(&mut config, "seed", request.seed.map(|seed| json!((seed ^ (seed >> 31)) & 0x7fff_ffff)));
    set(&mut config, "stopSequences", (!request.stop.is_empty()).then(|| json!(request.stop)));
    if let Some(schema) = &request.response_schema {
        set(&mut config, "responseMimeType", Some(json!("application/json")));
        set(&mut config, "responseJsonSchema", Some(schema.clone()));
    }
    config
}

/// Turns, with what follows one another from the same side put together. A tool's result names its tool here.
fn contents(messages: &[Message], model: &str) -> Vec<Value> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut wire: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let text = (!message.content.is_empty()).then(|| json!({"text": message.content}));
        let (role, parts) = match message.role {
            Role::System => continue,
            Role::User => ("user", text.into_iter().collect()),
            Role::Tool => {
                let name = message.tool_call_id.as_deref().and_then(|id| names.get(id)).copied().unwrap_or_default();
                // The response must be an object.
                let result = serde_json::from_str::<Value>(&message.content).ok().filter(Value::is_object);
                let result = result.unwrap_or_else(|| json!({"result": message.content}));
                ("user", vec![json!({"functionResponse": {"name": name, "response": result}})])
            }
            Role::Assistant => {
                names.extend(message.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str())));
                let calls = message.tool_calls.iter().map(|call| call_part(call, model));
                ("model", text.into_iter().chain(calls).collect::<Vec<Value>>())
            }
        };
        match wire.last_mut() {
            Some((last, all)) if *last == role => all.extend(parts),
            _ => wire.push((role, parts)),
        }
    }
    wire.retain(|(_, parts)| !parts.is_empty());
    wire.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn call_part(call: &ToolCall, model: &str) -> Value {
    let arguments = if call.arguments.is_object() { call.arguments.clone() } else { json!({}) };
    let mut part = json!({"functionCall": {"name": call.name, "args": arguments}});
    if model.starts_with("gemini-3") {
        part["thoughtSignature"] = json!(NO_SIGNATURE);
    }
    part
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk {
    #[serde(default)]
    error: Option<WireError>,
    #[serde(default)]
    candidates: Vec<Candidate>,
    #[serde(default)]
    usage_metadata: Option<UsageMetadata>,
    #[serde(default)]
    prompt_feedback: Option<Feedback>,
}

#[derive(Deserialize)]
struct WireError {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    #[serde(default)]
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Content {
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    #[serde(default)]
    text: Option<String>,
    /// What the model thinks before it answers.
    #[serde(default)]
    thought: bool,
    #[serde(default)]
    function_call: Option<FunctionCall>,
}

#[derive(Deserialize)]
struct FunctionCall {
    #[serde(default)]
    id: Option<String>,
    name: String,
    #[serde(default)]
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct UsageMetadata {
    prompt_token_count: u64,
    candidates_token_count: u64,
    thoughts_token_count: u64,
    /// Part of the prompt's count.
    cached_content_token_count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_conversation_when_it_is_sent_then_results_name_their_tool_and_new_models_get_a_signature() {
        let call = ToolCall { id: "1".into(), name: "clock".into(), arguments: json!({"zone": "UTC"}) };
        let messages = [
            Message::system("be short"),
            Message::user("time?"),
            Message { tool_calls: vec![call], ..Message::assistant("") },
            Message::tool("1", "12:00"),
        ];
        let wire = contents(&messages, "gemini-2.5-flash");
        assert_eq!(
            wire[1],
            json!({"role": "model", "parts": [{"functionCall": {"name": "clock", "args": {"zone": "UTC"}}}]})
        );
        assert_eq!(
            wire[2]["parts"][0],
            json!({"functionResponse": {"name": "clock", "response": {"result": "12:00"}}})
        );
        assert_eq!(contents(&messages, "gemini-3-pro")[1]["parts"][0]["thoughtSignature"], json!(NO_SIGNATURE));
    }
}
