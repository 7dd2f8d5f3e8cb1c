//! Decoding that is held to a JSON schema or a grammar, by llguidance.

use std::sync::OnceLock;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::sampling::LlamaSampler;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value, json};

use crate::error::ModelError;
use crate::provider::{ChatRequest, Grammar};

/// A string without a bound of its own gets this one, in characters: a small model that begins to repeat itself would else never close it.
const MAX_STRING: u64 = 2048;
/// An array without a bound of its own gets this one.
const MAX_ITEMS: u64 = 64;
/// Nesting of a schema beyond this is refused.
const MAX_DEPTH: usize = 64;
/// A longer grammar is refused, in bytes.
const MAX_GRAMMAR: usize = 64 << 10;

/// Compiles schemas and grammars for one model. Its table over the vocabulary takes some hundred milliseconds and is built at the first of them.
#[derive(Default)]
pub(super) struct Constraints {
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl Constraints {
    /// A sampler that lets through only what leads to an answer of the wanted form; none where any will do.
    pub(super) fn sampler(
        &self,
        model: &LlamaModel,
        request: &ChatRequest,
    ) -> Result<Option<LlamaSampler>, ModelError> {
        match (&request.response_schema, &request.grammar) {
            (None, None) => Ok(None),
            (Some(schema), None) => {
                let grammar = TopLevelGrammar::from_json_schema(bounded_schema(schema)?);
                self.compiled(model, grammar, "the response schema").map(Some)
            }
            (None, Some(grammar)) => self.compiled(model, checked_grammar(grammar)?, "the grammar").map(Some),
            (Some(_), Some(_)) => {
                Err(ModelError::bad_request(super::NAME, "a response schema and a grammar can't both be followed"))
            }
        }
    }

    fn compiled(&self, model: &LlamaModel, grammar: TopLevelGrammar, what: &str) -> Result<LlamaSampler, ModelError> {
        let factory = self.factory.get_or_init(|| {
            let mut factory = ParserFactory::new_simple(&LlamaSampler::llguidance_tok_env(model))
                .map_err(|error| error.to_string())?;
            factory.quiet();
            Ok(factory)
        });
        let factory =
            factory.as_ref().map_err(|reason| ModelError::internal(format!("no constrained decoding: {reason}")))?;
        let matcher = Matcher::new(factory.create_parser(grammar));
        match matcher.get_error() {
            None => Ok(LlamaSampler::from(matcher)),
            Some(reason) => {
                let reason: String = reason.lines().next().unwrap_or_default().chars().take(300).collect();
                Err(ModelError::bad_request(super::NAME, format!("{what} can't be used: {reason}")))
            }
        }
    }
}

fn checked_grammar(grammar: &Grammar) -> Result<TopLevelGrammar, ModelError> {
    let (Grammar::Lark(text) | Grammar::Regex(text)) = grammar;
    if text.trim().is_empty() || text.len() > MAX_GRAMMAR {
        let reason = format!("the grammar has {} bytes, not 1 to {MAX_GRAMMAR}", text.len());
        return Err(ModelError::bad_request(super::NAME, reason));
    }
    Ok(match grammar {
        Grammar::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
        Grammar::Regex(text) => TopLevelGrammar::from_regex(text),
    })
}

/// The schema with bounds on strings and arrays that have none, and compact JSON as the only layout, so that generation ends.
fn bounded_schema(schema: &Value) -> Result<Value, ModelError> {
    let mut schema = match schema {
        Value::Object(map) => map.clone(),
        Value::Bool(true) => Map::new(),
        other => {
            return Err(ModelError::bad_request(
                super::NAME,
                format!("the response schema is no JSON schema: {}", kind(other)),
            ));
        }
    };
    bound_map(&mut schema, 0)?;
    schema.insert(
        "x-guidance".to_owned(),
        json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "}),
    );
    Ok(Value::Object(schema))
}

fn bound(value: &mut Value, depth: usize) -> Result<(), ModelError> {
    match value {
        Value::Object(map) => bound_map(map, depth),
        Value::Array(items) => items.iter_mut().try_for_each(|item| bound(item, depth + 1)),
        _ => Ok(()),
    }
}

fn bound_map(map: &mut Map<String, Value>, depth: usize) -> Result<(), ModelError> {
    if depth > MAX_DEPTH {
        return Err(ModelError::bad_request(super::NAME, format!("the response schema nests deeper than {MAX_DEPTH}")));
    }
    let is = |name: &str| match map.get("type") {
        Some(Value::String(one)) => one == name,
        Some(Value::Array(several)) => several.iter().any(|one| one == name),
        _ => false,
    };
    let closed = ["enum", "const", "pattern", "format", "$ref"].iter().any(|key| map.contains_key(*key));
    let (string, array) = (is("string") && !closed, is("array") && !closed);
    if string && !map.contains_key("maxLength") {
        let least = map.get("minLength").and_then(Value::as_u64).unwrap_or(0);
        map.insert("maxLength".to_owned(), json!(MAX_STRING.max(least)));
    }
    if array && !map.contains_key("maxItems") {
        let least = map.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        map.insert("maxItems".to_owned(), json!(MAX_ITEMS.max(least)));
    }
    for (key, value) in map.iter_mut() {
        // Below these stand values, not schemas.
        if !matches!(key.as_str(), "enum" | "const" | "default" | "examples" | "required" | "type") {
            bound(value, depth + 1)?;
        }
    }
    Ok(())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "it is null",
        Value::Bool(_) => "it allows nothing",
        Value::Number(_) => "it is a number",
        Value::String(_) => "it is a string",
        Value::Array(_) => "it is an array",
        Value::Object(_) => "it is an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_schema_when_it_is_bounded_then_open_strings_and_arrays_get_a_bound_and_the_rest_stays() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"type": ["string", "null"], "maxLength": 5},
                "c": {"enum": ["x", {"type": "string"}]},
                "d": {"type": "array", "items": {"type": "string", "minLength": 9000}},
                "type": {"type": "string", "pattern": "^a+$"},
            },
        });
        let bounded = bounded_schema(&schema).unwrap();
        let properties = &bounded["properties"];
        assert_eq!(properties["a"]["maxLength"], MAX_STRING);
        assert_eq!(properties["b"]["maxLength"], 5);
        assert_eq!(properties["c"], schema["properties"]["c"]);
        assert_eq!(
            (&properties["d"]["maxItems"], &properties["d"]["items"]["maxLength"]),
            (&json!(MAX_ITEMS), &json!(9000))
        );
        assert_eq!(properties["type"], schema["properties"]["type"]);
    }

    #[test]
    fn given_what_is_no_schema_when_it_is_bounded_then_it_is_refused() {
        let mut deep = json!({"type": "string"});
        for _ in 0..200 {
            deep = json!({"items": deep});
        }
        for schema in [json!(null), json!(3), json!("x"), json!([]), json!(false), deep] {
            assert_eq!(bounded_schema(&schema).unwrap_err().code(), "model_bad_request");
        }
        assert!(bounded_schema(&json!(true)).is_ok());
    }
}
