//! From the fields of OpenAI's API to a request of the adapter. What can't be honoured is refused, not ignored.

use riverrun_models::{ChatRequest, Grammar, Message, Role, ToolCall, ToolSpec};
use serde_json::{Value, json};

use super::fields;
use super::forced::{self, Choice, Forced};
use super::thinking;
use crate::error::ApiError;
use crate::submit::Checks;
use crate::wire::openai::{CompletionBody, CompletionMessage, OneOrMany};

/// Most messages of a conversation.
const MAX_MESSAGES: usize = 500;
/// Most tools of a request.
const MAX_TOOLS: usize = 128;
/// Most texts that end an answer.
const MAX_STOPS: usize = 16;

/// The request of a chat, and the call that its answer must be.
pub(super) fn chat_request(body: CompletionBody) -> Result<(ChatRequest, Option<Forced>), ApiError> {
    let mut checks = Checks::default();
    fields::check(&mut checks, &body);
    let thinking = thinking::asked(&mut checks, &body);
    let messages = messages(&mut checks, body.messages);
    checks.require(body.n.is_none_or(|n| n == 1), "n", "must be 1");
    checks.temperature(body.temperature);
    checks.between("frequency_penalty", body.frequency_penalty, -2.0..=2.0);
    checks.between("presence_penalty", body.presence_penalty, -2.0..=2.0);
    checks.above_zero("max_tokens", body.max_tokens);
    checks.above_zero("max_completion_tokens", body.max_completion_tokens);
    let tools = tools(&mut checks, body.tools.unwrap_or_default().into_iter().map(|tool| tool.function));
    let (tools, forced) = choose(&mut checks, body.tool_choice.as_ref(), tools);
    let (response_schema, grammar) = match &forced {
        Some(forced) => (Some(forced.schema(&tools)), None),
        None => form(&mut checks, body.response_format.as_ref()),
    };
    let stop = body.stop.map(OneOrMany::into_vec).unwrap_or_default();
    checks.require(stop.len() <= MAX_STOPS, "stop", format!("has {}; at most {MAX_STOPS} are read", stop.len()));
    checks.require(stop.iter().all(|text| !text.is_empty()), "stop", "must not hold an empty text");
    checks.finish()?;
    let request = ChatRequest {
        model: super::model_name(&body.model),
        messages,
        tools,
        response_schema,
        grammar,
        temperature: body.temperature,
        top_p: body.top_p,
        top_k: body.top_k,
        min_p: body.min_p,
        repeat_penalty: body.repeat_penalty,
        frequency_penalty: body.frequency_penalty,
        presence_penalty: body.presence_penalty,
        max_tokens: body.max_completion_tokens.or(body.max_tokens),
        stop,
        seed: body.seed.map(i64::cast_unsigned),
        thinking,
    };
    Ok((request, forced))
}

/// The messages, with their texts.
pub(super) fn messages(checks: &mut Checks, given: Vec<CompletionMessage>) -> Vec<Message> {
    checks.require(!given.is_empty(), "messages", "must not be empty");
    let count = given.len();
    checks.require(count <= MAX_MESSAGES, "messages", format!("has {count}; at most {MAX_MESSAGES} are read"));
    given.into_iter().take(MAX_MESSAGES).enumerate().filter_map(|(index, one)| message(checks, index, one)).collect()
}

fn message(checks: &mut Checks, index: usize, given: CompletionMessage) -> Option<Message> {
    let field = |name: &str| format!("messages[{index}].{name}");
    let role = match given.role.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => {
            checks.refuse(&field("role"), "must be system, developer, user, assistant or tool");
            return None;
        }
    };
    let content = checks.take(&field("content"), text(given.content.as_ref()))?;
    let old_call = given.function_call.is_some_and(|call| !call.is_null());
    checks.require(!old_call, &field("function_call"), "is not read; give tool_calls");
    checks.require(role != Role::Tool || given.tool_call_id.is_some(), &field("tool_call_id"), "is missing");
    let calls = given.tool_calls.unwrap_or_default().into_iter().map(|call| ToolCall {
        id: call.id,
        name: call.function.name,
        arguments: arguments(call.function.arguments),
    });
    Some(Message { role, content, tool_calls: calls.collect(), tool_call_id: given.tool_call_id })
}

/// Arguments that a client gives back. None at all are an empty object, which some servers insist on; what is no JSON is kept as a text.
fn arguments(written: String) -> Value {
    if written.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(&written).unwrap_or(Value::String(written))
}

/// A text, or the texts of parts.
fn text(content: Option<&Value>) -> Result<String, &'static str> {
    match content {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let texts: Option<Vec<&str>> =
                parts.iter().map(|part| part["text"].as_str().filter(|_| part["type"] == "text")).collect();
            texts.map(|texts| texts.join("\n")).ok_or("holds a part that is no text; only text is read")
        }
        Some(_) => Err("must be a text or a list of parts"),
    }
}

fn tools(
    checks: &mut Checks,
    given: impl ExactSizeIterator<Item = crate::wire::openai::CompletionToolFunction>,
) -> Vec<ToolSpec> {
    checks.require(given.len() <= MAX_TOOLS, "tools", format!("has {}; at most {MAX_TOOLS} are read", given.len()));
    let spec = |tool: crate::wire::openai::CompletionToolFunction| ToolSpec {
        name: tool.name,
        description: tool.description,
        parameters: if tool.parameters.is_null() {
            json!({"type": "object", "properties": {}})
        } else {
            tool.parameters
        },
    };
    given.map(spec).collect()
}

/// The tools that the model sees, and the call that the client insists on.
fn choose(checks: &mut Checks, choice: Option<&Value>, tools: Vec<ToolSpec>) -> (Vec<ToolSpec>, Option<Forced>) {
    match checks.take("tool_choice", forced::choice_of(choice)) {
        None | Some(Choice::Auto) => (tools, None),
        Some(Choice::None) => (Vec::new(), None),
        Some(Choice::Required) => {
            checks.require(!tools.is_empty(), "tool_choice", "is required, and there are no tools");
            let forced = Forced::of(&tools);
            (tools, forced)
        }
        Some(Choice::Named(name)) => {
            let named: Vec<ToolSpec> = tools.into_iter().filter(|tool| tool.name == name).take(1).collect();
            checks.require(!named.is_empty(), "tool_choice", "names a function that is not among the tools");
            let forced = Forced::of(&named);
            (named, forced)
        }
    }
}

/// The schema or the grammar that the answer must satisfy.
fn form(checks: &mut Checks, format: Option<&Value>) -> (Option<Value>, Option<Grammar>) {
    let Some(format) = format else { return (None, None) };
    let mut text = |field: &str| {
        let text = format[field].as_str().unwrap_or_default().to_owned();
        checks.require(!text.is_empty(), &format!("response_format.{field}"), "must be a text");
        text
    };
    match format["type"].as_str() {
        None | Some("text") => (None, None),
        Some("json_object") => (Some(json!({"type": "object"})), None),
        Some("json_schema") => {
            let schema = &format["json_schema"]["schema"];
            checks.require(schema.is_object(), "response_format.json_schema.schema", "must be a JSON schema");
            (Some(schema.clone()), None)
        }
        Some("grammar") => (None, Some(Grammar::Lark(text("grammar")))),
        Some("regex") => (None, Some(Grammar::Regex(text("regex")))),
        Some(_) => {
            checks.refuse("response_format.type", "must be text, json_object, json_schema, grammar or regex");
            (None, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: Value) -> Result<ChatRequest, ApiError> {
        chat_request(serde_json::from_value(body).unwrap()).map(|(request, _)| request)
    }

    #[test]
    fn given_bodies_of_clients_when_they_are_read_then_every_form_of_a_field_counts() {
        let read = request(json!({
            "model": "default", "user": "ignored", "n": 1, "max_completion_tokens": 7, "stop": "x", "seed": -1,
            "frequency_penalty": 0.5, "presence_penalty": -1, "reasoning_effort": "none",
            "messages": [
                {"role": "developer", "content": "be short"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "2"},
            ],
            "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto",
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array"}}},
        }))
        .unwrap();
        assert_eq!(
            (read.model.as_str(), read.max_tokens, read.stop.as_slice()),
            ("", Some(7), ["x".to_owned()].as_slice())
        );
        assert_eq!((read.frequency_penalty, read.presence_penalty), (Some(0.5), Some(-1.0)));
        assert_eq!(read.thinking, Some(false));
        assert_eq!((read.messages[0].role, read.messages[1].content.as_str()), (Role::System, "a\nb"));
        assert_eq!(read.messages[2].tool_calls[0].arguments, json!({"a": 1}));
        assert_eq!(read.tools[0].parameters["type"], "object");
        assert_eq!(read.response_schema, Some(json!({"type": "array"})));
    }

    #[test]
    fn given_clients_that_write_null_when_bodies_are_read_then_it_is_as_if_left_out() {
        let read = request(json!({
            "model": null, "stream": null, "stream_options": {"include_usage": null}, "stop": null, "tool_choice": null,
            "messages": [
                {"role": "user", "content": "x", "tool_calls": null, "tool_call_id": null},
                {"role": "assistant", "content": null, "tool_calls": [{"id": null, "function": {"name": "f", "arguments": null}}]},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}],
            "response_format": null,
        }))
        .unwrap();
        assert_eq!((read.model.as_str(), read.tools[0].description.as_str()), ("", ""));
        let call = &read.messages[1].tool_calls[0];
        assert_eq!((call.name.as_str(), &call.arguments), ("f", &json!({})));
    }

    #[test]
    fn given_a_grammar_when_it_is_read_then_it_takes_the_place_of_a_schema() {
        let user = json!([{"role": "user", "content": "x"}]);
        for (format, grammar) in [
            (json!({"type": "grammar", "grammar": "start: \"a\""}), Grammar::Lark("start: \"a\"".into())),
            (json!({"type": "regex", "regex": "a+"}), Grammar::Regex("a+".into())),
        ] {
            let read = request(json!({"messages": user, "response_format": format})).unwrap();
            assert_eq!((read.grammar, read.response_schema), (Some(grammar), None));
        }
    }

    #[test]
    fn given_what_can_not_be_had_when_it_is_asked_for_then_the_field_is_named() {
        let user = json!([{"role": "user", "content": "x"}]);
        for (body, field) in [
            (json!({"messages": []}), "messages"),
            (json!({"messages": user, "n": 2}), "n"),
            (json!({"messages": user, "logprobs": true}), "logprobs"),
            (
                json!({"messages": [{"role": "assistant", "content": null, "function_call": {"name": "f"}}]}),
                "messages[0].function_call",
            ),
            (json!({"messages": user, "temperature": 3}), "temperature"),
            (json!({"messages": user, "frequency_penalty": 2.5}), "frequency_penalty"),
            (json!({"messages": user, "presence_penalty": -3}), "presence_penalty"),
            (json!({"messages": user, "max_tokens": 0}), "max_tokens"),
            (json!({"messages": user, "reasoning_effort": "much"}), "reasoning_effort"),
            (json!({"messages": user, "chat_template_kwargs": {"x": 1}}), "chat_template_kwargs"),
            (json!({"messages": user, "max_completion_tokens": 0}), "max_completion_tokens"),
            (json!({"messages": user, "tool_choice": "required", "tools": []}), "tool_choice"),
            (json!({"messages": user, "tool_choice": {"type": "function", "function": {"name": "f"}}}), "tool_choice"),
            (json!({"messages": user, "response_format": {"type": "yaml"}}), "response_format.type"),
            (json!({"messages": user, "response_format": {"type": "grammar"}}), "response_format.grammar"),
            (json!({"messages": user, "response_format": {"type": "regex", "regex": 7}}), "response_format.regex"),
            (json!({"messages": [{"role": "robot", "content": "x"}]}), "messages[0].role"),
            (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].tool_call_id"),
            (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "messages[0].content"),
        ] {
            assert_eq!(request(body.clone()).unwrap_err().problem().errors[0].field, field, "{body}");
        }
    }
}
