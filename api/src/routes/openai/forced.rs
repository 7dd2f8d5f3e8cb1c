//! Calls that a client insists on. No provider is told so, since each says it otherwise and some can't: the answer is held to a schema that only
//! a call satisfies, and is then given as that call.

use riverrun_models::{ChatReply, FinishReason, ToolCall, ToolSpec};
use riverrun_schemas::EventId;
use serde_json::{Value, json};

/// What a client leaves to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// Whether it calls, and what.
    Auto,
    /// It calls nothing.
    None,
    /// What it calls.
    Required,
    /// The arguments of this tool.
    Named(String),
}

/// Reads `tool_choice`.
pub(super) fn choice_of(given: Option<&Value>) -> Result<Choice, &'static str> {
    let Some(given) = given else { return Ok(Choice::Auto) };
    let named = given["function"]["name"].as_str().map(|name| Choice::Named(name.to_owned()));
    let word = match given.as_str() {
        Some("auto") => Some(Choice::Auto),
        Some("none") => Some(Choice::None),
        Some("required") => Some(Choice::Required),
        Some(_) | None => None,
    };
    word.or(named).ok_or("must be auto, none, required or a function with its name")
}

/// How the answer stands for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Forced {
    /// It is the arguments of this tool.
    Arguments(String),
    /// It has the tool's `name` and its `arguments`.
    Call,
}

impl Forced {
    /// A call of one of the tools; none where there are no tools.
    pub(super) fn of(tools: &[ToolSpec]) -> Option<Self> {
        match tools {
            [] => None,
            [only] => Some(Self::Arguments(only.name.clone())),
            [_, ..] => Some(Self::Call),
        }
    }

    /// What the answer is held to.
    pub(super) fn schema(&self, tools: &[ToolSpec]) -> Value {
        match (self, tools) {
            (Self::Arguments(_), [tool, ..]) => object(&tool.parameters),
            (Self::Arguments(_) | Self::Call, _) => {
                let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
                let arguments: Vec<Value> = tools.iter().map(|tool| nested(&tool.parameters)).collect();
                json!({
                    "type": "object",
                    "properties": {"name": {"type": "string", "enum": names}, "arguments": {"anyOf": arguments}},
                    "required": ["name", "arguments"],
                    "additionalProperties": false,
                })
            }
        }
    }

    /// The answer as a call. A model that called by itself has done what was asked, and what names no tool stays a text.
    pub(super) fn into_call(self, reply: ChatReply) -> ChatReply {
        if !reply.tool_calls.is_empty() {
            return reply;
        }
        let Some((name, arguments)) = self.read(&reply.text) else { return reply };
        let finish = match reply.finish {
            cut @ (FinishReason::Length | FinishReason::Repetition) => cut,
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Cancelled => FinishReason::ToolCalls,
        };
        let call = ToolCall { id: format!("call_{}", EventId::new()), name, arguments };
        ChatReply { text: String::new(), tool_calls: vec![call], finish, ..reply }
    }

    fn read(self, text: &str) -> Option<(String, Value)> {
        match self {
            // What was cut off is passed on as it is, as the arguments of other calls are.
            Self::Arguments(name) => {
                let arguments = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
                Some((name, arguments))
            }
            Self::Call => {
                let mut call: Value = serde_json::from_str(text).ok()?;
                let name = call["name"].as_str()?.to_owned();
                Some((name, call["arguments"].take()))
            }
        }
    }
}

/// Arguments are an object even where a schema does not say so.
fn object(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        fields.entry("type").or_insert_with(|| json!("object"));
    }
    schema
}

/// The schema within another one. What refers to its own root, as definitions do, would refer to nothing there: then any object will do.
fn nested(schema: &Value) -> Value {
    let defines = ["$defs", "definitions"].iter().any(|name| schema.get(*name).is_some());
    if defines { json!({"type": "object"}) } else { object(schema) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, parameters: Value) -> ToolSpec {
        ToolSpec { name: name.to_owned(), description: String::new(), parameters }
    }

    fn reply(text: &str, finish: FinishReason) -> ChatReply {
        let usage = riverrun_models::Usage::default();
        ChatReply { text: text.to_owned(), tool_calls: Vec::new(), usage, finish, model: "m".to_owned() }
    }

    #[test]
    fn given_choices_of_clients_when_they_are_read_then_words_and_functions_count() {
        let named = json!({"type": "function", "function": {"name": "f"}});
        for (given, choice) in [
            (json!("auto"), Some(Choice::Auto)),
            (json!("none"), Some(Choice::None)),
            (json!("required"), Some(Choice::Required)),
            (named, Some(Choice::Named("f".to_owned()))),
            (json!("any"), None),
            (json!({"type": "allowed_tools"}), None),
        ] {
            assert_eq!(choice_of(Some(&given)).ok(), choice, "{given}");
        }
        assert_eq!(choice_of(None), Ok(Choice::Auto));
    }

    #[test]
    fn given_tools_when_a_call_is_forced_then_only_a_call_satisfies_the_schema() {
        let city = json!({"properties": {"city": {"type": "string"}}, "required": ["city"]});
        let one = [tool("weather", city)];
        let forced = Forced::of(&one).unwrap();
        assert_eq!(forced.schema(&one)["type"], "object");
        let defined = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}});
        let several = [one[0].clone(), tool("other", defined)];
        let schema = Forced::of(&several).unwrap().schema(&several);
        assert_eq!(schema["properties"]["name"]["enum"], json!(["weather", "other"]));
        assert_eq!(schema["properties"]["arguments"]["anyOf"][1], json!({"type": "object"}));
        assert_eq!(Forced::of(&[]), None);
    }

    #[test]
    fn given_answers_when_a_call_is_forced_then_they_are_that_call_and_a_cut_one_is_said_to_be_cut() {
        let named = || Forced::Arguments("weather".to_owned());
        let whole = named().into_call(reply(r#"{"city":"Graz"}"#, FinishReason::Stop));
        assert_eq!((whole.text.as_str(), whole.finish), ("", FinishReason::ToolCalls));
        assert_eq!(
            (whole.tool_calls[0].name.as_str(), &whole.tool_calls[0].arguments),
            ("weather", &json!({"city": "Graz"}))
        );
        let cut = named().into_call(reply(r#"{"city":"Gr"#, FinishReason::Length));
        assert_eq!((cut.finish, &cut.tool_calls[0].arguments), (FinishReason::Length, &json!(r#"{"city":"Gr"#)));
        let called = Forced::Call.into_call(reply(r#"{"name":"other","arguments":{"a":1}}"#, FinishReason::Stop));
        assert_eq!((called.tool_calls[0].name.as_str(), &called.tool_calls[0].arguments), ("other", &json!({"a": 1})));
        let talk = Forced::Call.into_call(reply("I would rather talk.", FinishReason::Stop));
        assert_eq!((talk.text.as_str(), talk.tool_calls.len()), ("I would rather talk.", 0));
    }
}
