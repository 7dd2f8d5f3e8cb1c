//! A run of an agent behind the shape of a chat. The run is on the log like every other: a client that goes away leaves it running.

use axum::Json as Reply;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use riverrun_models::{Message, Role};
use serde_json::{Value, json};

use super::chat::{Head, sse};
use super::error::error_body;
use super::{AUTO, fields, request, usage};
use crate::accept;
use crate::error::{ApiError, run_failed};
use crate::hub::StreamEnd;
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::openai::CompletionBody;
use crate::wire::{RunBody, RunMessage, RunStatus, RunView, StepView};

/// Answers a chat by a run, or by the one that the same key started.
pub(super) async fn complete(
    state: AppState,
    agent: &str,
    key: Option<&str>,
    body: CompletionBody,
) -> Result<Response, ApiError> {
    let slot = state.stream_slot()?;
    let streams = body.stream.unwrap_or(false);
    let with_usage = body.stream_options.as_ref().is_some_and(|options| options.include_usage);
    let head = Head::new(&body.model);
    let offered = body.tools.as_ref().map_or(0, Vec::len);
    let run = run_body(agent, body)?;
    let accepted = accept::run(&state, key, run).await?;
    let run_stream = state.hub().run_stream(accepted.run_id, 0, false);
    if !streams {
        let ended = run_stream.result().await;
        drop(slot);
        let (result, answer) = match ended.and_then(|result| answer(&result).map(|answer| (result, answer))) {
            Ok(answered) => answered,
            Err(error) => return Ok(not_again(error)),
        };
        let message = json!({"role": "assistant", "content": answer, "refusal": null, "run_id": result.run_id});
        return Ok(Reply(with_unused(head.completion(message, "stop", tokens(&result)), offered)).into_response());
    }
    let first = with_unused(head.first(), offered);
    let chunks = run_stream.into_stream().flat_map(move |item| {
        let _ = &slot;
        stream::iter(chunks(&head, item, with_usage))
    });
    Ok(sse(stream::iter([first]).chain(chunks)))
}

/// An answer, or its first chunk, that says how many of the client's tools stay unused: beside OpenAI's fields, which have no place for it.
fn with_unused(mut answer: Value, offered: usize) -> Value {
    if offered > 0 {
        answer["unused_tools"] = json!(offered);
    }
    answer
}

/// The run that a conversation asks for. A run has one task: what was said before stands in front of the last words.
fn run_body(agent: &str, body: CompletionBody) -> Result<RunBody, ApiError> {
    let mut checks = Checks::default();
    fields::check(&mut checks, &body);
    check_form(&mut checks, &body);
    let messages = request::messages(&mut checks, body.messages);
    checks.finish()?;
    Ok(RunBody {
        task: task(&messages),
        agent: (agent != AUTO).then(|| agent.to_owned()),
        namespace: body.namespace,
        temperature: body.temperature.map(f64::from),
        ..RunBody::default()
    })
}

/// An agent answers in words of its own, once, and with tools of its own: those of a client are an offer, which some clients make with every
/// message, and which a model may leave as it is. What insists on a call can't be had.
fn check_form(checks: &mut Checks, body: &CompletionBody) {
    let is_word = |given: &Option<Value>, words: &[&str]| {
        given.as_ref().is_none_or(|given| given.as_str().is_some_and(|word| words.contains(&word)))
    };
    checks.require(body.n.is_none_or(|n| n == 1), "n", "must be 1");
    checks.require(is_word(&body.tool_choice, &["auto", "none"]), "tool_choice", "is the agent's own; leave it out");
    let kind = body.response_format.as_ref().map(|format| format["type"].clone()).filter(|kind| !kind.is_null());
    checks.require(is_word(&kind, &["text"]), "response_format", "can only be text for an agent");
    for (name, given) in [("frequency_penalty", body.frequency_penalty), ("presence_penalty", body.presence_penalty)] {
        checks.require(given.is_none_or(|given| given == 0.0), name, "can only be 0 for an agent; leave it out");
    }
    let effort = is_word(&body.reasoning_effort, &["none"]);
    checks.require(effort, "reasoning_effort", "can only be none for an agent: its runs say how they think");
    let stops = body.stop.as_ref().is_some_and(|stop| !stop.is_empty());
    checks.require(!stops, "stop", "ends no answer of an agent; leave it out");
}

fn task(messages: &[Message]) -> String {
    match messages {
        [only] => only.content.clone(),
        [before @ .., last] => {
            let line = |message: &Message| {
                let who = match message.role {
                    Role::System => "Instructions",
                    Role::User => "User",
                    Role::Assistant => "Assistant",
                    Role::Tool => "Tool",
                };
                format!("{who}: {}", message.content)
            };
            let before: Vec<String> = before.iter().map(line).collect();
            format!("The conversation so far:\n{}\n\nThe task:\n{}", before.join("\n"), last.content)
        }
        [] => String::new(),
    }
}

fn answer(result: &RunView) -> Result<String, ApiError> {
    match (&result.error, result.status) {
        (_, RunStatus::Cancelled) => {
            let detail = format!("run {} was cancelled", result.run_id);
            Err(ApiError::conflict("run_cancelled", detail).about_run(result.run_id))
        }
        (Some(error), _) => Err(run_failed(status_of(&error.code), error, result.run_id)),
        (None, _) => Ok(result.answer.clone().unwrap_or_default()),
    }
}

/// The status of an answer for a run that failed: that of a chat of a model that fails so.
fn status_of(code: &str) -> StatusCode {
    match code {
        // What was asked for can't be had so.
        "context_overflow" | "model_bad_request" | "model_unsupported" | "unknown_provider" | "unknown_agent"
        | "unknown_tool" | "empty_task" | "budget_tokens" | "budget_seconds" | "loop_detected" | "event_too_large" => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        "model_rate_limited" => StatusCode::TOO_MANY_REQUESTS,
        "model_runtime_down"
        | "model_missing"
        | "model_unreadable"
        | "model_unauthorized"
        | "model_bad_response"
        | "model_timeout"
        | "log_unavailable"
        | "log_not_writable"
        | "blob_store_unavailable" => StatusCode::SERVICE_UNAVAILABLE,
        "log_disk_full" => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Why a run gives no answer here. OpenAI's clients make a request again by themselves that was answered with 409 or from 500 on, unless
/// this header says no: it would be another run, of what was stopped, goes on or may have taken effect.
fn not_again(error: ApiError) -> Response {
    let mut response = error.into_response();
    response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    response
}

fn tokens(result: &RunView) -> Value {
    let count = |tokens: i64| u64::try_from(tokens).unwrap_or(0);
    let used = &result.usage;
    usage(count(used.prompt_tokens), count(used.completion_tokens), count(used.cached_prompt_tokens))
}

/// The chunks that a message of a run's stream becomes.
fn chunks(head: &Head, item: Result<RunMessage, StreamEnd>, with_usage: bool) -> Vec<Value> {
    match item {
        Ok(RunMessage::Start { .. } | RunMessage::Token { .. }) => Vec::new(),
        Ok(RunMessage::Step { step, .. }) => {
            reasoning(&step).map(|text| head.chunk(json!({"reasoning_content": text}), None)).into_iter().collect()
        }
        Ok(RunMessage::Final { result, .. }) => match answer(&result) {
            Err(error) => vec![error_body(&error.problem())],
            Ok(answer) => {
                let mut chunks =
                    vec![head.chunk(json!({"content": answer}), None), head.chunk(json!({}), Some("stop"))];
                if with_usage {
                    chunks.push(head.usage_chunk(tokens(&result)));
                }
                chunks
            }
        },
        Err(StreamEnd::TooSlow) => {
            let error = ApiError::busy("the reader is too slow; the run goes on");
            vec![error_body(&error.problem())]
        }
        Err(StreamEnd::Failed(error)) => vec![error_body(&error.problem())],
    }
}

/// A step in words; none for the answer, which is the content.
fn reasoning(step: &StepView) -> Option<String> {
    let kind = serde_json::to_value(step.kind).ok()?;
    let kind = kind.as_str()?.to_owned();
    if kind == "answer" {
        return None;
    }
    let what = match (&step.tool, &step.text) {
        (Some(tool), _) if kind == "tool_call" => format!("{} {}", tool.name, tool.arguments),
        (Some(tool), None) => tool.name.clone(),
        (_, Some(text)) => text.clone(),
        (None, None) => return None,
    };
    Some(format!("[{kind}] {what}\n"))
}

#[cfg(test)]
mod tests {
    use super::super::error::status;
    use super::*;
    use crate::wire::FailureView;

    #[test]
    fn given_a_run_that_failed_when_its_chat_is_answered_then_only_a_defect_is_500() {
        for (code, answered, shown) in [
            ("context_overflow", 400, "context_length_exceeded"),
            ("model_bad_request", 400, "model_bad_request"),
            ("unknown_provider", 400, "unknown_provider"),
            ("budget_tokens", 400, "budget_tokens"),
            ("budget_seconds", 400, "budget_seconds"),
            ("loop_detected", 400, "loop_detected"),
            ("model_rate_limited", 429, "model_rate_limited"),
            ("model_missing", 404, "model_not_found"),
            ("model_runtime_down", 503, "model_runtime_down"),
            ("model_unauthorized", 503, "model_unauthorized"),
            ("model_timeout", 503, "model_timeout"),
            ("blob_store_unavailable", 503, "blob_store_unavailable"),
            ("log_disk_full", 507, "log_disk_full"),
            ("internal", 500, "internal"),
            ("worker_lost", 500, "worker_lost"),
            ("model_internal", 500, "model_internal"),
        ] {
            let error =
                FailureView { code: code.to_owned(), message: "it is so".to_owned(), hint: Some("do so".to_owned()) };
            let problem = run_failed(status_of(code), &error, "run_x").problem();
            assert_eq!(status(&problem).as_u16(), answered, "{code}");
            let body = error_body(&problem);
            assert_eq!(
                (&body["error"]["code"], &body["error"]["message"]),
                (&json!(shown), &json!("it is so (do so)"))
            );
        }
    }

    #[test]
    fn given_a_conversation_when_it_becomes_a_task_then_the_last_words_are_the_task() {
        assert_eq!(task(&[Message::user("add")]), "add");
        let long = task(&[Message::system("short"), Message::user("a"), Message::assistant("b"), Message::user("c")]);
        assert_eq!(long, "The conversation so far:\nInstructions: short\nUser: a\nAssistant: b\n\nThe task:\nc");
    }

    #[test]
    fn given_what_an_agent_can_not_do_when_it_is_asked_for_then_the_field_is_named_and_what_changes_nothing_passes() {
        let read = |field: &str, value: Value| {
            let body = json!({"messages": [{"role": "user", "content": "x"}], field: value});
            run_body("react", serde_json::from_value(body).unwrap())
        };
        for (field, value) in [
            ("n", json!(2)),
            ("tool_choice", json!("required")),
            ("tool_choice", json!({"type": "function", "function": {"name": "f"}})),
            ("response_format", json!({"type": "json_object"})),
            ("stop", json!(["end"])),
            ("reasoning_effort", json!("high")),
            ("logprobs", json!(true)),
            ("frequency_penalty", json!(0.5)),
            ("presence_penalty", json!(-1)),
        ] {
            assert_eq!(read(field, value).unwrap_err().problem().errors[0].field, field);
        }
        for (field, value) in [
            ("n", json!(1)),
            ("tool_choice", json!("auto")),
            ("tools", json!([{"type": "function", "function": {"name": "f"}}])),
            ("response_format", json!({"type": "text"})),
            ("stop", json!([])),
            ("reasoning_effort", json!("none")),
            ("frequency_penalty", json!(0)),
            ("presence_penalty", json!(0.0)),
            ("max_tokens", json!(1_000)),
        ] {
            assert!(read(field, value).is_ok(), "{field}");
        }
    }
}
