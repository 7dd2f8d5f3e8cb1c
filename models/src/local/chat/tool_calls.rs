//! Finds tool calls in an answer: the `<tool_call>` JSON of the Hermes and Qwen templates, and, because small models forget the marks, an
//! answer that is nothing but such JSON (also in a code block or `<tools>`) and names an offered tool.

use serde_json::{Map, Value};

use super::output::TOOL_CALL_OPEN;

const TOOL_CALL_CLOSE: &str = "</tool_call>";

/// A call before it has an id.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Value,
}

/// An answer taken apart.
#[derive(Debug, PartialEq)]
pub(super) struct Parsed {
    /// The answer's text up to here stands before every call.
    pub(super) prefix_end: usize,
    /// Text between and behind the calls.
    pub(super) tail: String,
    pub(super) calls: Vec<Call>,
}

/// Takes an answer apart; nothing when it holds no readable call, and is then text as it is.
pub(super) fn parse(text: &str, is_offered: impl Fn(&str) -> bool) -> Option<Parsed> {
    marked(text).or_else(|| bare(text, is_offered))
}

fn marked(text: &str) -> Option<Parsed> {
    let prefix_end = text.find(TOOL_CALL_OPEN)?;
    let mut calls = Vec::new();
    let mut tail = String::new();
    let mut rest = &text[prefix_end..];
    while let Some(start) = rest.find(TOOL_CALL_OPEN) {
        tail.push_str(rest[..start].trim());
        let body = &rest[start + TOOL_CALL_OPEN.len()..];
        // The last call may lack its end: the end-of-turn token came first.
        let (body, behind) = body.split_once(TOOL_CALL_CLOSE).unwrap_or((body, ""));
        let value: Value = serde_json::from_str(body.trim()).ok()?;
        calls.push(call_of(value)?);
        rest = behind;
    }
    tail.push_str(rest.trim());
    Some(Parsed { prefix_end, tail, calls })
}

fn bare(text: &str, is_offered: impl Fn(&str) -> bool) -> Option<Parsed> {
    let value: Value = serde_json::from_str(unwrap(text)).ok()?;
    let calls = match value {
        Value::Array(values) if !values.is_empty() => values.into_iter().map(call_of).collect::<Option<Vec<_>>>()?,
        value => vec![call_of(value)?],
    };
    calls.iter().all(|call| is_offered(&call.name)).then(|| Parsed { prefix_end: 0, tail: String::new(), calls })
}

/// Takes off a code block or `<tools>` around the whole answer.
fn unwrap(text: &str) -> &str {
    let text = text.trim();
    let inner = text
        .strip_prefix("```")
        .and_then(|inner| inner.strip_suffix("```"))
        .map(|inner| inner.strip_prefix("json").unwrap_or(inner))
        .or_else(|| text.strip_prefix("<tools>").and_then(|inner| inner.strip_suffix("</tools>")));
    inner.unwrap_or(text).trim()
}

/// `{"name": …, "arguments": {…}}`; some models say `parameters`, some quote the arguments once more.
fn call_of(value: Value) -> Option<Call> {
    let Value::Object(mut object) = value else { return None };
    let name = object.get("name")?.as_str()?.to_owned();
    let arguments = match object.remove("arguments").or_else(|| object.remove("parameters")) {
        Some(Value::String(quoted)) => serde_json::from_str(&quoted).ok()?,
        Some(arguments) => arguments,
        None => Value::Object(Map::new()),
    };
    (!name.is_empty() && arguments.is_object()).then_some(Call { name, arguments })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calls(text: &str) -> Option<Vec<Call>> {
        parse(text, |name| name == "clock").map(|parsed| parsed.calls)
    }

    fn clock(arguments: Value) -> Call {
        Call { name: "clock".into(), arguments }
    }

    #[test]
    fn given_marked_calls_when_they_are_parsed_then_text_and_calls_part() {
        let text = "Let me see.\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>\n<tool_call>{\"name\":\"other\",\"arguments\":\"{\\\"a\\\":1}\"}";
        let parsed = parse(text, |_| false).unwrap();
        assert_eq!(&text[..parsed.prefix_end], "Let me see.\n");
        assert_eq!(parsed.tail, "");
        assert_eq!(
            parsed.calls,
            [clock(json!({"zone": "UTC"})), Call { name: "other".into(), arguments: json!({"a": 1}) }]
        );
    }

    #[test]
    fn given_bare_calls_when_they_are_parsed_then_only_offered_tools_count() {
        for text in [
            r#"{"name": "clock", "arguments": {}}"#,
            r#"{"name": "clock", "parameters": {}}"#,
            r#"{"name": "clock"}"#,
            "```json\n{\"name\": \"clock\", \"arguments\": {}}\n```",
            "<tools>\n{\"name\": \"clock\", \"arguments\": {}}\n</tools>",
            r#"[{"name": "clock", "arguments": {}}]"#,
        ] {
            assert_eq!(calls(text), Some(vec![clock(json!({}))]), "{text}");
        }
        for text in [
            r#"{"name": "Ann", "arguments": {}}"#,
            r#"{"name": "clock", "arguments": [1]}"#,
            r#"say {"name": "clock"}"#,
            r#"{"title": "clock"}"#,
            "[]",
            "12:00",
            "",
        ] {
            assert_eq!(calls(text), None, "{text}");
        }
    }

    #[test]
    fn given_a_broken_call_when_it_is_parsed_then_the_answer_stays_text() {
        assert_eq!(calls("<tool_call>{\"name\": \"clock\", </tool_call>"), None);
    }
}
