//! Finds tool calls in an answer: those behind a mark, as the models of [`FORMATS`] write them, and, because small models forget the marks
//! and Llama has none, an answer that is nothing but the JSON of calls (also in a code block or `<tools>`) and names offered tools.
//!
//! A call that is broken is none, and the whole answer is then text as it is.

use serde_json::{Map, Value};

use crate::provider::ToolSpec;

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

/// Calls, and the text behind them.
type Taken<'t> = Option<(Vec<Call>, &'t str)>;

/// How a family of models writes calls.
struct Format {
    /// Stands before each.
    mark: &'static str,
    /// Reads what is behind the mark.
    read: for<'t> fn(&'t str, &[ToolSpec]) -> Taken<'t>,
}

/// The ways that are known. A further one is a row here and, where its marks are control tokens, in [`CONTROL_MARKS`].
static FORMATS: [Format; 4] = [
    Format { mark: "<tool_call>", read: hermes },
    Format { mark: "[TOOL_CALLS]", read: mistral },
    Format { mark: "<|python_tag|>", read: llama },
    // Qwen3-Coder leaves out the `<tool_call>` around it now and then.
    Format { mark: FUNCTION, read: function },
];

/// Marks that are control tokens in the vocabularies of their models: they are read as text.
pub(super) const CONTROL_MARKS: [&str; 4] = ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<|python_tag|>"];

const HERMES_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const PARAMETER: &str = "<parameter=";
/// Around the whole answer.
const TOOLS: &str = "<tools>";
const FENCE: &str = "```";

/// All marks that stand before a call.
pub(super) fn marks() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.mark)
}

/// Where the first mark of a text begins.
pub(super) fn first_mark(text: &str) -> Option<usize> {
    marks().filter_map(|mark| text.find(mark)).min()
}

/// Whether an answer that begins so may be a call as a whole. What is none at some length is none when it is longer.
pub(super) fn may_begin(text: &str) -> bool {
    let begun = text.trim_start();
    let may_be = |mark: &str| mark.starts_with(begun) || begun.starts_with(mark);
    let listed = begun.strip_prefix('[').map(str::trim_start);
    begun.starts_with('{')
        || listed.is_some_and(|item| item.is_empty() || item.starts_with('{'))
        || may_be(TOOLS)
        || may_be(FENCE)
        || marks().any(may_be)
}

/// Takes an answer apart; nothing when it holds no readable call, and is then text as it is.
pub(super) fn parse(text: &str, tools: &[ToolSpec]) -> Option<Parsed> {
    marked(text, tools).or_else(|| bare(text, tools))
}

fn marked(text: &str, tools: &[ToolSpec]) -> Option<Parsed> {
    let prefix_end = first_mark(text)?;
    let mut parsed = Parsed { prefix_end, tail: String::new(), calls: Vec::new() };
    let mut rest = &text[prefix_end..];
    while let Some((at, format)) = next_format(rest) {
        parsed.tail.push_str(rest[..at].trim());
        let (calls, behind) = (format.read)(&rest[at + format.mark.len()..], tools)?;
        parsed.calls.extend(calls);
        rest = behind;
    }
    parsed.tail.push_str(rest.trim());
    Some(parsed)
}

fn next_format(text: &str) -> Option<(usize, &'static Format)> {
    let found = FORMATS.iter().filter_map(|format| text.find(format.mark).map(|at| (at, format)));
    found.min_by_key(|(at, _)| *at)
}

/// `<tool_call>{"name": …, "arguments": {…}}</tool_call>` of Hermes and Qwen, or Qwen3-Coder's function between the same marks.
fn hermes<'t>(text: &'t str, tools: &[ToolSpec]) -> Taken<'t> {
    if let Some(body) = text.trim_start().strip_prefix(FUNCTION) {
        return function(body, tools);
    }
    let (value, behind) = json(text)?;
    Some((calls_of(value)?, without_end(behind)?))
}

/// What is behind `</tool_call>`. The last call may lack it: the end-of-turn token came first.
fn without_end(text: &str) -> Option<&str> {
    let text = text.trim_start();
    if text.is_empty() { Some(text) } else { text.strip_prefix(HERMES_END) }
}

/// `<function=NAME><parameter=KEY>VALUE</parameter></function>`. The mark is taken off already.
fn function<'t>(text: &'t str, tools: &[ToolSpec]) -> Taken<'t> {
    let (name, mut rest) = text.split_once('>')?;
    let name = named(name)?;
    let tool = tools.iter().find(|tool| tool.name == name);
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix("</function>") {
            let behind = behind.trim_start();
            let call = Call { name, arguments: Value::Object(arguments) };
            return Some((vec![call], behind.strip_prefix(HERMES_END).unwrap_or(behind)));
        }
        let (key, body) = rest.strip_prefix(PARAMETER)?.split_once('>')?;
        let (value, behind) = body.split_once("</parameter>")?;
        let schema = tool.map(|tool| &tool.parameters["properties"][key]);
        arguments.insert(named(key)?, value_of(value, schema));
        rest = behind;
    }
}

/// A value as its schema has it: a text where that says so, or where it is no JSON. A line break after and before the marks is the layout's.
fn value_of(written: &str, schema: Option<&Value>) -> Value {
    let written = written.strip_prefix('\n').unwrap_or(written);
    let written = written.strip_suffix('\n').unwrap_or(written);
    let is_text = match schema.map(|schema| &schema["type"]) {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        Some(_) | None => false,
    };
    let value = if is_text { None } else { serde_json::from_str(written).ok() };
    value.unwrap_or_else(|| Value::String(written.to_owned()))
}

/// `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]` of Mistral's earlier models, `[TOOL_CALLS]NAME[ARGS]{…}` of its later ones, some with
/// `[CALL_ID]ID` between.
fn mistral<'t>(text: &'t str, _: &[ToolSpec]) -> Taken<'t> {
    if text.trim_start().starts_with('[') {
        let (value, behind) = json(text)?;
        return Some((calls_of(value)?, behind));
    }
    let (head, body) = text.split_once("[ARGS]")?;
    let name = head.split_once("[CALL_ID]").map_or(head, |(name, _)| name);
    let (arguments, behind) = json(body)?;
    arguments.is_object().then_some((vec![Call { name: named(name)?, arguments }], behind))
}

/// `<|python_tag|>{"name": …, "parameters": {…}}` of Llama, several with `;` between them. Python behind the mark is no call.
fn llama<'t>(text: &'t str, _: &[ToolSpec]) -> Taken<'t> {
    several(text)
}

/// Calls with `;` or white space between them.
fn several(text: &str) -> Taken<'_> {
    let (value, mut rest) = json(text)?;
    let mut calls = calls_of(value)?;
    loop {
        let next = rest.trim_start();
        let next = next.strip_prefix(';').unwrap_or(next).trim_start();
        if !next.starts_with('{') {
            return Some((calls, next));
        }
        let (value, behind) = json(next)?;
        calls.extend(calls_of(value)?);
        rest = behind;
    }
}

fn bare(text: &str, tools: &[ToolSpec]) -> Option<Parsed> {
    let (calls, rest) = several(unwrap(text))?;
    let is_offered = |call: &Call| tools.iter().any(|tool| tool.name == call.name);
    let whole = rest.is_empty() && calls.iter().all(is_offered);
    whole.then(|| Parsed { prefix_end: 0, tail: String::new(), calls })
}

/// Takes off a code block or `<tools>` around the whole answer.
fn unwrap(text: &str) -> &str {
    let text = text.trim();
    let inner = text
        .strip_prefix(FENCE)
        .and_then(|inner| inner.strip_suffix(FENCE))
        .map(|inner| inner.strip_prefix("json").unwrap_or(inner))
        .or_else(|| text.strip_prefix(TOOLS).and_then(|inner| inner.strip_suffix("</tools>")));
    inner.unwrap_or(text).trim()
}

/// The JSON value that a text begins with, and what is behind it.
fn json(text: &str) -> Option<(Value, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let behind = text.get(values.byte_offset()..)?;
    Some((value, behind))
}

/// A call, or a list of at least one.
fn calls_of(value: Value) -> Option<Vec<Call>> {
    match value {
        Value::Array(values) if values.is_empty() => None,
        Value::Array(values) => values.into_iter().map(call_of).collect(),
        value => Some(vec![call_of(value)?]),
    }
}

/// `{"name": …, "arguments": {…}}`; Llama says `parameters`, some quote the arguments once more.
fn call_of(value: Value) -> Option<Call> {
    let Value::Object(mut object) = value else { return None };
    let name = named(object.get("name")?.as_str()?)?;
    let arguments = match object.remove("arguments").or_else(|| object.remove("parameters")) {
        Some(Value::String(quoted)) => serde_json::from_str(&quoted).ok()?,
        Some(arguments) => arguments,
        None => Value::Object(Map::new()),
    };
    arguments.is_object().then_some(Call { name, arguments })
}

/// A name of one line.
fn named(name: &str) -> Option<String> {
    let name = name.trim();
    (!name.is_empty() && !name.contains(['\n', '<', '>'])).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> Vec<ToolSpec> {
        let parameters = json!({"type": "object", "properties": {
            "zone": {"type": "string"}, "digits": {"type": "integer"}, "either": {"type": ["string", "null"]},
        }});
        vec![ToolSpec { name: "clock".into(), description: String::new(), parameters }]
    }

    fn calls(text: &str) -> Option<Vec<Call>> {
        parse(text, &tools()).map(|parsed| parsed.calls)
    }

    fn call(name: &str, arguments: Value) -> Call {
        Call { name: name.into(), arguments }
    }

    fn clock(arguments: Value) -> Call {
        call("clock", arguments)
    }

    #[test]
    fn given_marked_calls_when_they_are_parsed_then_text_and_calls_part() {
        let text = "Let me see.\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>\n<tool_call>{\"name\":\"other\",\"arguments\":\"{\\\"a\\\":1}\"}";
        let parsed = parse(text, &[]).unwrap();
        assert_eq!(&text[..parsed.prefix_end], "Let me see.\n");
        assert_eq!(parsed.tail, "");
        assert_eq!(parsed.calls, [clock(json!({"zone": "UTC"})), call("other", json!({"a": 1}))]);
    }

    #[test]
    fn given_a_call_whose_argument_holds_the_mark_of_its_end_when_it_is_parsed_then_it_is_part_of_the_argument() {
        let text = "<tool_call>{\"name\": \"clock\", \"arguments\": {\"zone\": \"</tool_call>\"}}</tool_call> done";
        let parsed = parse(text, &[]).unwrap();
        assert_eq!((parsed.calls, parsed.tail.as_str()), (vec![clock(json!({"zone": "</tool_call>"}))], "done"));
    }

    #[test]
    fn given_the_ways_in_which_families_write_calls_when_they_are_parsed_then_the_calls_are_the_same() {
        let two = [clock(json!({"zone": "UTC"})), call("other", json!({}))];
        for text in [
            "[TOOL_CALLS] [{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}, \"id\": \"abcdefghi\"}, {\"name\": \"other\"}]",
            "[TOOL_CALLS]clock[ARGS]{\"zone\": \"UTC\"}[TOOL_CALLS]other[ARGS]{}",
            "[TOOL_CALLS]clock[CALL_ID]abcdefghi[ARGS]{\"zone\": \"UTC\"}[TOOL_CALLS]other[CALL_ID]bcdefghij[ARGS]{}",
            "<|python_tag|>{\"name\": \"clock\", \"parameters\": {\"zone\": \"UTC\"}}; {\"name\": \"other\", \"parameters\": {}}",
            "<|python_tag|>{\"type\": \"function\", \"name\": \"clock\", \"parameters\": {\"zone\": \"UTC\"}}<|python_tag|>{\"name\": \"other\"}",
            "<tool_call>\n<function=clock>\n<parameter=zone>\nUTC\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=other>\n</function>\n</tool_call>",
            "<function=clock><parameter=zone>UTC</parameter></function>\n</tool_call>\n<function=other></function>",
        ] {
            let parsed = parse(text, &tools()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((parsed.calls.as_slice(), parsed.prefix_end, parsed.tail.as_str()), (&two[..], 0, ""), "{text}");
            let behind = format!("So:\n{text}");
            let parsed = parse(&behind, &tools()).unwrap_or_else(|| panic!("{behind}"));
            assert_eq!((parsed.calls.as_slice(), &behind[..parsed.prefix_end]), (&two[..], "So:\n"), "{behind}");
        }
    }

    #[test]
    fn given_values_between_marks_when_they_are_parsed_then_they_are_what_the_schema_says_or_json_or_text() {
        let text = "<tool_call><function=clock><parameter=zone>\n12\n</parameter><parameter=digits>2</parameter><parameter=either>null</parameter><parameter=more>{\"a\": [true]}</parameter><parameter=code>\n\nif a < b:\n  c\n</parameter></function></tool_call>";
        let wanted =
            json!({"zone": "12", "digits": 2, "either": "null", "more": {"a": [true]}, "code": "\nif a < b:\n  c"});
        assert_eq!(calls(text), Some(vec![clock(wanted)]));
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
        let several =
            "{\"name\": \"clock\", \"parameters\": {}}; {\"name\": \"clock\", \"parameters\": {\"digits\": 1}}";
        assert_eq!(calls(several), Some(vec![clock(json!({})), clock(json!({"digits": 1}))]));
        for text in [
            r#"{"name": "Ann", "arguments": {}}"#,
            r#"{"name": "clock"}; {"name": "Ann"}"#,
            r#"{"name": "clock", "arguments": [1]}"#,
            r#"{"name": "clock"} is what I would call"#,
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
    fn given_broken_calls_when_they_are_parsed_then_the_answer_stays_text() {
        for text in [
            "<tool_call>{\"name\": \"clock\", </tool_call>",
            "<tool_call>{\"name\": \"clock\"} and more</tool_call>",
            "<tool_call></tool_call>",
            "<tool_call>{\"name\": \"clock\"}</tool_call><tool_call>{",
            "[TOOL_CALLS]",
            "[TOOL_CALLS][]",
            "[TOOL_CALLS][{\"name\": \"clock\"",
            "[TOOL_CALLS]clock",
            "[TOOL_CALLS]clock[ARGS]",
            "[TOOL_CALLS]clock[ARGS]{\"zone\": ",
            "[TOOL_CALLS]clock[ARGS][1]",
            "[TOOL_CALLS][ARGS]{}",
            "<|python_tag|>",
            "<|python_tag|>brave_search.call(query=\"time\")",
            "<|python_tag|>{\"name\": \"clock\"}; {\"name\"",
            "<tool_call><function=clock>",
            "<tool_call><function=clock><parameter=zone>UTC",
            "<tool_call><function=clock><parameter=zone>UTC</parameter>",
            "<tool_call><function=clock>UTC</function></tool_call>",
            "<tool_call><function=></function></tool_call>",
            "The mark is <function=name>.",
        ] {
            assert_eq!(calls(text), None, "{text}");
        }
    }

    #[test]
    fn given_any_beginning_of_a_call_when_it_is_looked_at_then_it_may_be_one() {
        for text in [
            " <tool_call>{",
            "<function=a>",
            "[TOOL_CALLS]a[ARGS]",
            "[ {\"name\"",
            "<|python_tag|>{",
            "```json\n{",
            "<tools>\n",
            "{\"name\"",
        ] {
            for end in 0..=text.len() {
                assert!(may_begin(&text[..end]), "{}", &text[..end]);
            }
        }
        for text in ["<b>", "[1]", "[a", "`a", "A", "<|im_end|>", "[TOOL]", "\"{"] {
            assert!(!may_begin(text), "{text}");
        }
    }
}
