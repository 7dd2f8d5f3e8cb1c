//! Runs that have to end before anything was done for them: whatever they wait for, they wait no longer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riverrun_agents::tools::{Tool, ToolSet};
use riverrun_schemas::agent::{AgentEvent, CancelRun, RunOutcome, RunRequest, StartRun, ToolEffect};
use riverrun_schemas::{Namespace, RunId, now_ms};

use super::common::{World, ends, request};
use super::together;

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(600);

async fn start(world: &World, run_id: RunId, request: RunRequest) {
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
}

async fn claimed(world: &World, run_id: RunId) {
    let is = |event: &AgentEvent| matches!(event, AgentEvent::RunClaimed(claim) if claim.run_id == run_id);
    world.until("the run is claimed", |events| events.iter().any(is)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn given_runs_that_wait_for_a_place_a_session_or_another_run_when_their_seconds_are_over_then_they_end() {
    let world = World::new(ToolEffect::None, FOR_EVER, Duration::ZERO).await.with_places(1, None);
    let (_worker, _stop) = world.worker("w");
    let [first, in_session, behind, follower, without] = together();
    let of_session = |budget_seconds| RunRequest { session: Some("s".into()), budget_seconds, ..request() };
    start(&world, first, of_session(None)).await;
    claimed(&world, first).await;
    start(&world, in_session, of_session(Some(1))).await;
    start(&world, behind, RunRequest { budget_seconds: Some(1), ..request() }).await;
    start(&world, follower, RunRequest { after: vec![first], budget_seconds: Some(1), ..request() }).await;
    start(&world, without, request()).await;
    for run_id in [in_session, behind, follower] {
        let end = world.finished(run_id).await;
        assert_eq!((end.status, end.stop_reason.as_str()), (RunOutcome::Failed, "budget_seconds"), "{end:?}");
        assert_eq!(ends(&world.events().await, run_id), 1);
    }
    let events = world.events().await;
    assert_eq!((ends(&events, first), ends(&events, without)), (0, 0), "those without such a budget go on and wait on");
}

/// Tools of a server that never comes up.
struct NeverReady;

#[async_trait]
impl ToolSet for NeverReady {
    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    async fn prepare(&self, _: &Namespace) {
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_tools_that_never_get_ready_when_runs_are_to_end_then_each_does_whatever_it_waits_for() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let world = world.with_places(1, Some(Arc::new(NeverReady)));
    let (_worker, _stop) = world.worker("w");
    // Their tool is listed by the server, so that nobody knows it yet.
    let wants = |budget_seconds| RunRequest { tools: Some(vec!["far__away".into()]), budget_seconds, ..request() };
    let [first, queued, hurried] = together();
    start(&world, first, wants(None)).await;
    claimed(&world, first).await;
    start(&world, queued, wants(None)).await;
    start(&world, hurried, wants(Some(1))).await;
    let end = world.finished(hurried).await;
    assert_eq!((end.status, end.stop_reason.as_str()), (RunOutcome::Failed, "budget_seconds"), "{end:?}");
    for run_id in [queued, first] {
        world.command(CancelRun { run_id, reason: None, at: now_ms() }.into()).await;
        let end = world.finished(run_id).await;
        assert_eq!((end.status, end.stop_reason.as_str()), (RunOutcome::Cancelled, "cancelled"), "{end:?}");
    }
}
