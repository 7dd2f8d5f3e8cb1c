//! Fields of OpenAI's API that no answer here can satisfy. A value that changes nothing passes, as clients write defaults out; any other is
//! refused by its field's name, since an answer that passes it over would not be the one that was asked for.

use serde_json::Value;

use crate::submit::Checks;
use crate::wire::openai::CompletionBody;

/// A field, whether a value of it changes nothing, and what to do about others.
struct Field<'b> {
    name: &'static str,
    given: Option<&'b Value>,
    passes: fn(&Value) -> bool,
    fix: &'static str,
}

/// Refuses what can't be had.
pub(super) fn check(checks: &mut Checks, body: &CompletionBody) {
    for Field { name, given, passes, fix } in fields(body) {
        checks.require(given.is_none_or(|value| value.is_null() || passes(value)), name, fix);
    }
}

fn field<'b>(name: &'static str, given: &'b Option<Value>, passes: fn(&Value) -> bool, fix: &'static str) -> Field<'b> {
    Field { name, given: given.as_ref(), passes, fix }
}

fn fields(body: &CompletionBody) -> [Field<'_>; 11] {
    [
        field("logprobs", &body.logprobs, is_false, "can only be false: probabilities of tokens are not told"),
        field("top_logprobs", &body.top_logprobs, is_zero, "can only be 0: probabilities of tokens are not told"),
        field("logit_bias", &body.logit_bias, is_empty, "can only be empty: tokens have other numbers in every model"),
        field("functions", &body.functions, is_empty, "are not read; give tools"),
        field("function_call", &body.function_call, calls_nothing, "is not read; give tool_choice"),
        field("modalities", &body.modalities, is_text, "can only be [\"text\"]"),
        field("audio", &body.audio, nothing, "is not written; leave it out"),
        field("web_search_options", &body.web_search_options, nothing, "is not done; an agent has tools that fetch"),
        field(
            "verbosity",
            &body.verbosity,
            is_medium,
            "can only be medium; say in a message how long an answer may be",
        ),
        field("store", &body.store, is_false, "can only be false: completions are not kept; an agent's runs are"),
        field("service_tier", &body.service_tier, is_usual, "can only be auto or default"),
    ]
}

fn nothing(_: &Value) -> bool {
    false
}

fn is_false(value: &Value) -> bool {
    *value == Value::Bool(false)
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn is_one_of(value: &Value, words: &[&str]) -> bool {
    value.as_str().is_some_and(|word| words.contains(&word))
}

fn calls_nothing(value: &Value) -> bool {
    is_one_of(value, &["auto", "none"])
}

fn is_medium(value: &Value) -> bool {
    is_one_of(value, &["medium"])
}

fn is_usual(value: &Value) -> bool {
    is_one_of(value, &["auto", "default"])
}

fn is_text(value: &Value) -> bool {
    value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| is_one_of(kind, &["text"])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(body: Value) -> Vec<String> {
        let mut checks = Checks::default();
        check(&mut checks, &serde_json::from_value(body).unwrap());
        let errors = checks.finish().err().map(|error| error.problem().errors).unwrap_or_default();
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn given_values_that_change_nothing_when_they_are_checked_then_they_pass() {
        let defaults = json!({
            "logprobs": false, "top_logprobs": 0, "logit_bias": {}, "frequency_penalty": 0, "presence_penalty": 0.0, "functions": [],
            "function_call": "auto", "modalities": ["text"], "audio": null, "web_search_options": null,
            "verbosity": "medium", "store": false, "service_tier": "auto", "parallel_tool_calls": true, "n": 1,
            "user": "ann", "safety_identifier": "a", "prompt_cache_key": "b", "metadata": {"c": "d"}, "prediction": null,
        });
        assert!(refused(defaults.clone()).is_empty());
        let nulls: serde_json::Map<_, _> =
            defaults.as_object().unwrap().keys().map(|name| (name.clone(), Value::Null)).collect();
        assert!(refused(Value::Object(nulls)).is_empty(), "clients write null for what they leave out");
        assert!(refused(json!({})).is_empty());
    }

    #[test]
    fn given_values_that_can_not_be_had_when_they_are_checked_then_each_field_is_named() {
        let asked = json!({
            "logprobs": true, "top_logprobs": 3, "logit_bias": {"50256": -100},
            "functions": [{"name": "f"}], "function_call": {"name": "f"}, "modalities": ["text", "audio"], "audio": {"voice": "alloy"},
            "web_search_options": {}, "verbosity": "low", "store": true, "service_tier": "flex",
        });
        let names: Vec<&String> = asked.as_object().unwrap().keys().collect();
        let mut found = refused(asked.clone());
        found.sort();
        let mut wanted: Vec<String> = names.into_iter().cloned().collect();
        wanted.sort();
        assert_eq!(found, wanted);
    }
}
