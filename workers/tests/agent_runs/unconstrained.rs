//! given a model runtime that can't hold a reply to a schema, when a run needs an action, then it is asked without one and no
//! error is raised.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use riverrun_schemas::agent::{RunOutcome, RunRequest, StartRun, ToolEffect};
use riverrun_schemas::{RunId, now_ms};
use serde_json::{Value, json};
use wiremock::matchers::path;
use wiremock::{Mock, Request, ResponseTemplate};

use super::common::{World, request};

/// Services charge for calls that break off, too.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_break_off_behind_their_prompt_count_in_what_a_run_used() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let model = move |_: &Request| {
        count.fetch_add(1, Ordering::SeqCst);
        let began = json!({ "choices": [{ "delta": { "content": "it" }, "finish_reason": null }],
            "usage": { "prompt_tokens": 100, "completion_tokens": 1 } });
        let broke = json!({ "error": { "message": "it broke" } });
        ResponseTemplate::new(200).set_body_raw(format!("data: {began}\n\ndata: {broke}\n\n"), "text/event-stream")
    };
    Mock::given(path("/v1/chat/completions")).respond_with(model).mount(world.model()).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = RunId::new();
    let (provider, model) = (Some("llamacpp".to_owned()), Some("served".to_owned()));
    let request = RunRequest { provider, model, ..request() };
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
    let end = world.finished(run_id).await;
    let tries = i64::try_from(asked.load(Ordering::SeqCst)).unwrap();
    assert_eq!(end.status, RunOutcome::Failed, "{end:?}");
    assert!(tries > 0);
    assert_eq!((end.usage.prompt_tokens, end.usage.completion_tokens), (100 * tries, tries));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_refuses_the_schema_is_asked_without_it() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    let model = move |request: &Request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        if body["format"].is_object() {
            count.fetch_add(1, Ordering::SeqCst);
            return ResponseTemplate::new(400).set_body_json(json!({ "error": "the format is not supported" }));
        }
        let piece =
            json!({ "model": "scripted", "message": { "role": "assistant", "content": "it is so" }, "done": false });
        let end = json!({ "model": "scripted", "message": { "role": "assistant", "content": "" }, "done": true,
            "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5 });
        ResponseTemplate::new(200).set_body_string(format!("{piece}\n{end}\n"))
    };
    world.model().reset().await;
    Mock::given(path("/api/chat")).respond_with(model).mount(world.model()).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = RunId::new();
    world.start(run_id).await;
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("it is so")), "{end:?}");
    assert_eq!(refused.load(Ordering::SeqCst), 1, "each call is tried once with its schema");
}
