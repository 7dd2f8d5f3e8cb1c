//! given a model runtime that can't hold a reply to a schema, when a run needs an action, then it is asked without one and no
//! error is raised.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use riverrun_schemas::RunId;
use riverrun_schemas::agent::{RunOutcome, ToolEffect};
use serde_json::{Value, json};
use wiremock::matchers::path;
use wiremock::{Mock, Request, ResponseTemplate};

use super::common::World;

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
