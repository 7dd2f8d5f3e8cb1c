//! The body of a chat.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::dialect::{Dialect, JsonMode};
use crate::provider::{ChatRequest, Message, ToolSpec};
use crate::remote::{number, set};

pub(super) fn chat_body(request: &ChatRequest, dialect: &Dialect) -> Value {
    let mut body = json!({"model": request.model, "messages": messages(request, dialect), "stream": true});
    set(&mut body, "stream_options", dialect.stream_usage.then(|| json!({"include_usage": true})));
    // A temperature that a model refuses is left out: every run has one, and the model's own is the only one that it has.
    let own_sampling = dialect.samples_itself(&request.model);
    set(&mut body, "temperature", request.temperature.filter(|_| !own_sampling).map(number));
    set(&mut body, "top_p", request.top_p.filter(|_| !own_sampling).map(number));
    let penalized = dialect.penalties && !own_sampling;
    set(&mut body, "frequency_penalty", request.frequency_penalty.filter(|_| penalized).map(number));
    set(&mut body, "presence_penalty", request.presence_penalty.filter(|_| penalized).map(number));
    set(&mut body, dialect.max_tokens, request.max_tokens.map(Value::from));
    if let Some(field) = dialect.seed {
        set(&mut body, field, request.seed.map(Value::from));
    }
    if dialect.sampling {
        set(&mut body, "top_k", request.top_k.map(Value::from));
        set(&mut body, "min_p", request.min_p.map(number));
        set(&mut body, dialect.repeat, request.repeat_penalty.map(number));
    }
    set(&mut body, "stop", (!request.stop.is_empty()).then(|| json!(request.stop)));
    set(&mut body, "tools", (!request.tools.is_empty()).then(|| wire_tools(&request.tools)));
    set(
        &mut body,
        "response_format",
        request.response_schema.as_ref().map(|schema| response_format(schema, dialect.json)),
    );
    body
}

fn messages(request: &ChatRequest, dialect: &Dialect) -> Vec<Value> {
    let mut messages: Vec<Value> =
        request.messages.iter().map(|message| wire_message(message, dialect.short_ids)).collect();
    if let (Some(schema), JsonMode::Object) = (&request.response_schema, dialect.json) {
        let text =
            format!("Answer with one JSON value that satisfies this JSON schema, and with nothing else:\n{schema}");
        messages.insert(0, json!({"role": "system", "content": text}));
    }
    messages
}

fn response_format(schema: &Value, mode: JsonMode) -> Value {
    match mode {
        JsonMode::Object => json!({"type": "json_object"}),
        // OpenAI refuses strict mode for schemas outside its subset.
        JsonMode::Schema => {
            json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": is_strict(schema)}})
        }
    }
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

/// An id of nine letters and digits that follows from any other.
pub(crate) fn short_id(id: &str) -> String {
    if id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    let hash = Sha256::digest(id.as_bytes());
    hash.iter().take(5).map(|byte| format!("{byte:02x}")).collect::<String>().chars().take(9).collect()
}

fn wire_message(message: &Message, short_ids: bool) -> Value {
    let wire_id = |id: &str| if short_ids { short_id(id) } else { id.to_owned() };
    let mut entry = json!({"role": message.role.as_str(), "content": message.content});
    if !message.tool_calls.is_empty() {
        entry["tool_calls"] = message
            .tool_calls
            .iter()
            .map(|call| {
                let arguments = call.arguments.to_string();
                json!({"id": wire_id(&call.id), "type": "function", "function": {"name": call.name, "arguments": arguments}})
            })
            .collect();
    }
    if let Some(id) = &message.tool_call_id {
        entry["tool_call_id"] = json!(wire_id(id));
    }
    entry
}

/// Tools in the shape that OpenAI's, Cohere's and Ollama's protocols and the chat templates share.
pub(crate) fn wire_tools(tools: &[ToolSpec]) -> Value {
    tools
        .iter()
        .map(|tool| {
            json!({"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}})
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::dialect::{OPENAI, PLAIN, SERVER};
    use super::*;

    #[test]
    fn given_schemas_when_strictness_is_judged_then_only_closed_ones_are_strict() {
        let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
        assert!(is_strict(&closed));
        assert!(!is_strict(&json!({"type": "object", "properties": {"a": {"type": "string"}}})));
        let nested = json!({"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"], "additionalProperties": false});
        assert!(!is_strict(&nested));
    }

    #[test]
    fn given_models_that_choose_how_they_sample_when_a_body_is_made_then_it_does_not_say() {
        for (model, temperature) in [
            ("gpt-5-mini", Value::Null),
            ("o3", Value::Null),
            ("gpt-4o", json!(0.2)),
            ("gpt-5-chat-latest", json!(0.2)),
        ] {
            let request = ChatRequest {
                model: model.into(),
                temperature: Some(0.2),
                frequency_penalty: Some(0.2),
                presence_penalty: Some(0.2),
                ..ChatRequest::default()
            };
            let body = chat_body(&request, &OPENAI);
            for field in ["temperature", "frequency_penalty", "presence_penalty"] {
                assert_eq!(body[field], temperature, "{model} {field}");
            }
        }
    }

    #[test]
    fn given_a_service_with_short_ids_when_calls_are_sent_then_call_and_result_have_the_same_one() {
        let call = crate::provider::ToolCall { id: "call_1".into(), name: "f".into(), arguments: json!({}) };
        let call = wire_message(&Message { tool_calls: vec![call], ..Message::assistant("") }, true);
        let id = call["tool_calls"][0]["id"].as_str().unwrap();
        assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
        assert_eq!(wire_message(&Message::tool("call_1", "x"), true)["tool_call_id"], id);
        assert_eq!(wire_message(&Message::tool("abcDEF123", "x"), true)["tool_call_id"], "abcDEF123");
    }

    #[test]
    fn given_dialects_when_a_body_is_made_then_only_fields_that_the_service_knows_are_in_it() {
        let request = ChatRequest {
            messages: vec![Message::user("x")],
            response_schema: Some(json!({"type": "array"})),
            temperature: Some(0.2),
            max_tokens: Some(5),
            seed: Some(7),
            top_k: Some(3),
            min_p: Some(0.05),
            repeat_penalty: Some(1.1),
            frequency_penalty: Some(0.5),
            presence_penalty: Some(-0.5),
            ..ChatRequest::default()
        };
        let own = chat_body(&request, &OPENAI);
        assert_eq!(
            (&own["max_completion_tokens"], &own["temperature"], &own["top_k"]),
            (&json!(5), &json!(0.2), &Value::Null)
        );
        let server = chat_body(&request, &SERVER);
        assert_eq!((&server["max_tokens"], &server["top_k"], &server["min_p"]), (&json!(5), &json!(3), &json!(0.05)));
        assert_eq!(server["repeat_penalty"], json!(1.1));
        for body in [&own, &server] {
            assert_eq!((&body["frequency_penalty"], &body["presence_penalty"]), (&json!(0.5), &json!(-0.5)));
        }
        let deaf = chat_body(&request, &Dialect { penalties: false, ..PLAIN });
        assert_eq!((&deaf["frequency_penalty"], &deaf["presence_penalty"]), (&Value::Null, &Value::Null));
        let plain = Dialect { stream_usage: false, seed: Some("random_seed"), json: JsonMode::Object, ..PLAIN };
        let plain = chat_body(&request, &plain);
        assert_eq!(
            (&plain["random_seed"], &plain["seed"], &plain["stream_options"]),
            (&json!(7), &Value::Null, &Value::Null)
        );
        assert_eq!(plain["response_format"], json!({"type": "json_object"}));
        assert!(plain["messages"][0]["content"].as_str().unwrap().contains(r#"{"type":"array"}"#));
    }
}
