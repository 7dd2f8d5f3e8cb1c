//! given a tool that can't be reached, when a run calls it again, then the call is made, and it was the first that was.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use riverrun_agents::state::NOT_SENT;
use riverrun_agents::tools::{Tool, ToolContext, ToolError, ToolManifest};
use riverrun_schemas::RunId;
use riverrun_schemas::agent::{AgentEvent, RunOutcome, StepKind, ToolEffect, ToolUse};
use serde_json::{Value, json};
use wiremock::{Request, Respond, ResponseTemplate};

use super::common::World;

/// A shop that is away for two calls.
struct Shop {
    calls: Arc<AtomicUsize>,
}

#[async_trait]
impl Tool for Shop {
    fn manifest(&self) -> ToolManifest {
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        ToolManifest::builtin("order", "Orders.", schema, ToolEffect::Idempotent)
    }

    async fn call(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        match self.calls.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(ToolError::NotSent("the shop does not answer".into())),
            _ => Ok(json!("ordered")),
        }
    }
}

/// Orders until something was ordered, then answers.
pub(super) struct Customer;

impl Respond for Customer {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let done = body["messages"].to_string().contains("ordered");
        let tool = if done { "answer" } else { "order" };
        let text = if body["format"].is_object() {
            json!({ "thought": "next", "tool": tool, "arguments": {} }).to_string()
        } else {
            "it is on its way".to_owned()
        };
        let piece = json!({ "model": "scripted", "message": { "role": "assistant", "content": text }, "done": false });
        let end = json!({ "model": "scripted", "message": { "role": "assistant", "content": "" }, "done": true,
            "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5 });
        ResponseTemplate::new(200).set_body_string(format!("{piece}\n{end}\n"))
    }
}

fn results(events: &[AgentEvent]) -> Vec<ToolUse> {
    let steps = events.iter().filter_map(|event| match event {
        AgentEvent::RunAdvanced(advanced) => Some(&advanced.steps),
        _ => None,
    });
    steps.flatten().filter(|step| step.kind == StepKind::ToolResult).filter_map(|step| step.tool.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tool_that_reaches_nobody_when_it_is_back_then_the_same_call_is_made_and_the_run_is_no_loop() {
    let calls = Arc::new(AtomicUsize::new(0));
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let world = world.with(Customer, None, Arc::new(Shop { calls: calls.clone() })).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = RunId::new();
    world.start(run_id).await;
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.stop_reason.as_str()), (RunOutcome::Succeeded, "answered"));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let results = results(&world.events().await);
    let told: Vec<Option<&str>> = results.iter().map(|result| result.result_json.as_deref()).collect();
    assert_eq!(told, [Some(NOT_SENT), Some(NOT_SENT), Some("\"ordered\"")]);
    assert!(results[0].error.is_some() && results[2].error.is_none());
}
