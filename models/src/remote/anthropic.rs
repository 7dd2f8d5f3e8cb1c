//! Anthropic's Messages API, as documented at docs.anthropic.com.

use std::ops::ControlFlow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::forced::{ANSWER, DESCRIPTION, answer_schema, arguments_schema, take_answer};
use super::gathered::Gathered;
use super::protocol::{Fault, Listed, Protocol, changes, first_given, json};
use super::{number, set};
use crate::http::Call;
use crate::http::refusal::message_of;
use crate::provider::{ChatRequest, DeltaSink, FinishReason, Message, ModelKind, Role, ToolSpec, Usage};

/// The API wants a bound; this is what every model of it can write.
const DEFAULT_MAX_TOKENS: u32 = 4096;

/// The Messages protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anthropic;

impl Protocol for Anthropic {
    fn chat(&self, request: &ChatRequest) -> Option<Call> {
        let mut body = prompt(request);
        body["stream"] = json!(true);
        body["max_tokens"] = json!(request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS));
        set(&mut body, "temperature", request.temperature.map(number));
        set(&mut body, "top_p", request.top_p.map(number));
        set(&mut body, "top_k", request.top_k.map(Value::from));
        set(&mut body, "stop_sequences", (!request.stop.is_empty()).then(|| json!(request.stop)));
        Some(Call::post("/v1/messages", body))
    }

    fn leaves_out(&self, request: &ChatRequest) -> Option<&'static str> {
        first_given(&[
            ("seed", request.seed.is_some()),
            ("min_p", changes(request.min_p, 0.0)),
            ("repeat_penalty", changes(request.repeat_penalty, 1.0)),
            ("frequency_penalty", changes(request.frequency_penalty, 0.0)),
            ("presence_penalty", changes(request.presence_penalty, 0.0)),
        ])
    }

    fn gather(
        &self,
        event: &[u8],
        gathered: &mut Gathered,
        sink: &mut dyn DeltaSink,
    ) -> Result<ControlFlow<()>, Fault> {
        match json(event)? {
            Event::MessageStart { message } => gathered.usage = message.usage.of_prompt(),
            Event::ContentBlockStart { index, content_block } => match content_block {
                Block::Text { text } => gathered.say(&text, sink),
                Block::ToolUse { id, name } => gathered.call(index, &id, &name, "")?,
                Block::Other => {}
            },
            Event::ContentBlockDelta { index, delta } => match delta {
                Piece::TextDelta { text } => gathered.say(&text, sink),
                Piece::InputJsonDelta { partial_json } => gathered.call(index, "", "", &partial_json)?,
                Piece::Other => {}
            },
            Event::ContentBlockStop { index } => take_answer(index, gathered, sink)?,
            Event::MessageDelta { delta, usage } => {
                gathered.usage.completion_tokens = usage.output_tokens;
                gathered.withheld = delta.stop_reason.clone().filter(|reason| reason == "refusal");
                gathered.finish = delta.stop_reason.map(|reason| match reason.as_str() {
                    "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
                    "tool_use" => FinishReason::ToolCalls,
                    _ => FinishReason::Stop,
                });
            }
            Event::MessageStop => return Ok(ControlFlow::Break(())),
            Event::Error { error } => {
                let said = message_of(event);
                return Err(match error.kind.as_str() {
                    "overloaded_error" | "rate_limit_error" => Fault::Busy(said),
                    _ => Fault::Broken(said),
                });
            }
            Event::Other => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn list(&self) -> Option<Call> {
        Some(Call::get("/v1/models?limit=1000"))
    }

    fn listed(&self, body: &[u8]) -> Result<Vec<Listed>, Fault> {
        #[derive(Deserialize)]
        struct Entry {
            id: String,
            #[serde(default)]
            max_input_tokens: Option<u64>,
        }
        #[derive(Deserialize)]
        struct Listing {
            data: Vec<Entry>,
        }
        let listing: Listing = json(body)?;
        let listed = |entry: Entry| Listed {
            kind: ModelKind::Chat,
            context_tokens: entry.max_input_tokens,
            ..Listed::named(entry.id)
        };
        Ok(listing.data.into_iter().map(listed).collect())
    }

    fn count_prompt(&self, request: &ChatRequest) -> Option<Call> {
        Some(Call::post("/v1/messages/count_tokens", prompt(request)))
    }

    fn count_text(&self, model: &str, text: &str) -> Option<Call> {
        let request =
            ChatRequest { model: model.to_owned(), messages: vec![Message::user(text)], ..ChatRequest::default() };
        self.count_prompt(&request)
    }

    fn counted(&self, body: &[u8]) -> Result<Option<usize>, Fault> {
        #[derive(Deserialize)]
        struct Answer {
            input_tokens: usize,
        }
        json::<Answer>(body).map(|answer| Some(answer.input_tokens))
    }
}

/// What of a request the model reads.
fn prompt(request: &ChatRequest) -> Value {
    let mut body = json!({"model": request.model, "messages": messages(&request.messages)});
    let system: Vec<&str> = request
        .messages
        .iter()
        .filter(|message| message.role == Role::System)
        .map(|message| message.content.as_str())
        .collect();
    if !system.is_empty() {
        body["system"] = json!(system.join("\n\n"));
    }
    let mut tools: Vec<Value> = request.tools.iter().filter(|tool| tool.name != ANSWER).map(wire_tool).collect();
    if let Some(schema) = &request.response_schema {
        tools.push(json!({
            "name": ANSWER,
            "description": DESCRIPTION,
            "input_schema": answer_schema(schema),
        }));
        body["tool_choice"] = json!({"type": "tool", "name": ANSWER});
    }
    if !tools.is_empty() {
        body["tools"] = json!(tools);
    }
    body
}

fn wire_tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": arguments_schema(tool)})
}

/// Turns alternate: what follows one another from the same side is one message, and the results of tools are the user's.
fn messages(messages: &[Message]) -> Vec<Value> {
    let mut wire: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message.role {
            Role::System => continue,
            Role::User => ("user", text_block(&message.content)),
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                ("user", vec![json!({"type": "tool_result", "tool_use_id": id, "content": message.content})])
            }
            Role::Assistant => {
                let mut blocks = text_block(&message.content);
                let calls = message.tool_calls.iter();
                // The arguments must be an object even where the model wrote something else.
                blocks.extend(calls.map(|call| {
                    let input = if call.arguments.is_object() { call.arguments.clone() } else { json!({}) };
                    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
                }));
                ("assistant", blocks)
            }
        };
        match wire.last_mut() {
            Some((last, all)) if *last == role => all.extend(blocks),
            _ => wire.push((role, blocks)),
        }
    }
    // The service refuses messages without content.
    wire.retain(|(_, blocks)| !blocks.is_empty());
    wire.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn text_block(text: &str) -> Vec<Value> {
    if text.trim().is_empty() { Vec::new() } else { vec![json!({"type": "text", "text": text})] }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: usize,
        content_block: Block,
    },
    ContentBlockDelta {
        index: usize,
        delta: Piece,
    },
    ContentBlockStop {
        index: usize,
    },
    MessageDelta {
        delta: Stop,
        #[serde(default)]
        usage: WireUsage,
    },
    MessageStop,
    Error {
        error: WireError,
    },
    /// `ping`, and what may come to be.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    usage: WireUsage,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece {
    TextDelta {
        text: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Stop {
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct WireError {
    #[serde(default, rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: u64,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: u64,
}

impl WireUsage {
    /// All that the model read, cached or not. What it writes is counted at the end.
    fn of_prompt(&self) -> Usage {
        let cached_prompt_tokens = self.cache_read_input_tokens.unwrap_or(0);
        let cache_write_tokens = self.cache_creation_input_tokens.unwrap_or(0);
        let prompt_tokens = self.input_tokens + cache_write_tokens + cached_prompt_tokens;
        Usage { prompt_tokens, cached_prompt_tokens, cache_write_tokens, ..Usage::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ToolCall;

    #[test]
    fn given_a_conversation_when_it_is_sent_then_turns_alternate_and_results_are_the_users() {
        let call = |id: &str| ToolCall { id: id.into(), name: "clock".into(), arguments: json!("{bad") };
        let wire = messages(&[
            Message::system("be short"),
            Message::user("a"),
            Message::user("b"),
            Message { tool_calls: vec![call("1"), call("2")], ..Message::assistant("") },
            Message::tool("1", "x"),
            Message::tool("2", "y"),
            Message::assistant(" "),
        ]);
        let roles: Vec<&str> = wire.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        assert_eq!(wire[1]["content"][0], json!({"type": "tool_use", "id": "1", "name": "clock", "input": {}}));
        assert_eq!(wire[2]["content"][1], json!({"type": "tool_result", "tool_use_id": "2", "content": "y"}));
    }

    #[test]
    fn given_a_schema_of_no_object_when_it_is_asked_for_then_the_answer_is_taken_out_of_its_argument() {
        assert_eq!(answer_schema(&json!({"type": "array"}))["properties"]["value"], json!({"type": "array"}));
        assert_eq!(answer_schema(&json!({"type": "object"})), json!({"type": "object"}));
        for (kind, arguments, text) in
            [("array", r#"{"value":[1,2]}"#, "[1,2]"), ("object", r#"{"value": 1}"#, r#"{"value": 1}"#)]
        {
            let mut gathered =
                Gathered::of(&ChatRequest { response_schema: Some(json!({ "type": kind })), ..ChatRequest::default() });
            gathered.call(0, "id", ANSWER, arguments).unwrap();
            take_answer(0, &mut gathered, &mut crate::provider::NoDeltas).unwrap();
            let reply = gathered.into_reply("m".into(), false);
            assert_eq!((reply.text.as_str(), reply.tool_calls.len()), (text, 0));
        }
    }
}
