//! Whether a model thinks before it answers, as clients say it: OpenAI's `reasoning_effort`, and the `chat_template_kwargs` of vLLM, SGLang and
//! llama.cpp. Templates know on and off, no measure between.

use serde_json::Value;

use crate::submit::Checks;
use crate::wire::openai::CompletionBody;

const EFFORT: &str = "reasoning_effort";
const KWARGS: &str = "chat_template_kwargs";
const SWITCH: &str = "enable_thinking";

/// What is asked for; none where nothing is.
pub(super) fn asked(checks: &mut Checks, body: &CompletionBody) -> Option<bool> {
    let effort = checks.take(EFFORT, effort(body.reasoning_effort.as_ref())).flatten();
    let switch = checks.take(KWARGS, switch(body.chat_template_kwargs.as_ref())).flatten();
    let agree = effort.is_none() || switch.is_none() || effort == switch;
    checks.require(agree, KWARGS, "says another thing than reasoning_effort; give one of them");
    effort.or(switch)
}

/// The field of what only a model in the process is told. That an answer comes without thoughts is so with every other provider, too.
pub(super) fn only_here(body: &CompletionBody) -> Option<&'static str> {
    let thinks = matches!(effort(body.reasoning_effort.as_ref()), Ok(Some(true)));
    let switched = matches!(switch(body.chat_template_kwargs.as_ref()), Ok(Some(_)));
    if switched { Some(KWARGS) } else { thinks.then_some(EFFORT) }
}

fn effort(given: Option<&Value>) -> Result<Option<bool>, &'static str> {
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_str() {
            Some("none") => Ok(Some(false)),
            Some("minimal" | "low" | "medium" | "high" | "xhigh") => Ok(Some(true)),
            Some(_) | None => Err("must be none, minimal, low, medium, high or xhigh"),
        },
    }
}

fn switch(given: Option<&Value>) -> Result<Option<bool>, &'static str> {
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(fields)) if fields.keys().all(|key| key == SWITCH) => match fields.get(SWITCH) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(on)) => Ok(Some(*on)),
            Some(_) => Err("has an enable_thinking that is neither true nor false"),
        },
        Some(_) => Err("can only be an object with enable_thinking: nothing else is passed to templates"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<(Option<bool>, Option<&'static str>), String> {
        let body: CompletionBody = serde_json::from_value(body).unwrap();
        let mut checks = Checks::default();
        let asked = asked(&mut checks, &body);
        match checks.finish() {
            Ok(()) => Ok((asked, only_here(&body))),
            Err(error) => Err(error.problem().errors[0].field.clone()),
        }
    }

    #[test]
    fn given_the_ways_of_clients_when_they_are_read_then_they_say_on_or_off_and_who_can_be_told() {
        for (body, wanted) in [
            (json!({}), (None, None)),
            (json!({"reasoning_effort": null, "chat_template_kwargs": null}), (None, None)),
            (json!({"chat_template_kwargs": {}}), (None, None)),
            (json!({"reasoning_effort": "none"}), (Some(false), None)),
            (json!({"reasoning_effort": "low"}), (Some(true), Some(EFFORT))),
            (json!({"reasoning_effort": "xhigh"}), (Some(true), Some(EFFORT))),
            (json!({"chat_template_kwargs": {"enable_thinking": false}}), (Some(false), Some(KWARGS))),
            (
                json!({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": true}}),
                (Some(true), Some(KWARGS)),
            ),
        ] {
            assert_eq!(read(body.clone()), Ok(wanted), "{body}");
        }
    }

    #[test]
    fn given_what_no_template_takes_when_it_is_read_then_the_field_is_named() {
        for (body, field) in [
            (json!({"reasoning_effort": "much"}), EFFORT),
            (json!({"reasoning_effort": 3}), EFFORT),
            (json!({"chat_template_kwargs": {"enable_thinking": "no"}}), KWARGS),
            (json!({"chat_template_kwargs": {"enable_thinking": true, "colour": "red"}}), KWARGS),
            (json!({"chat_template_kwargs": [1]}), KWARGS),
            (json!({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true}}), KWARGS),
        ] {
            assert_eq!(read(body.clone()), Err(field.to_owned()), "{body}");
        }
    }
}
