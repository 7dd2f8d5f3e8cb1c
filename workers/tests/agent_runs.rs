//! Runs against a real broker: each ends exactly once, whatever happens to the worker.

#[path = "agent_runs/chains.rs"]
mod chains;
mod common;
#[path = "agent_runs/control.rs"]
mod control;
#[path = "agent_runs/in_time.rs"]
mod in_time;
#[path = "agent_runs/lost.rs"]
mod lost;
#[path = "agent_runs/outgrown.rs"]
mod outgrown;
#[path = "agent_runs/refused.rs"]
mod refused;
#[path = "agent_runs/stuck_store.rs"]
mod stuck_store;
#[path = "agent_runs/texts.rs"]
mod texts;
#[path = "agent_runs/turnover.rs"]
mod turnover;
#[path = "agent_runs/unconstrained.rs"]
mod unconstrained;
#[path = "agent_runs/unread.rs"]
mod unread;
#[path = "agent_runs/unsent.rs"]
mod unsent;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{World, ends, request};
use riverrun_log::partition_of;
use riverrun_schemas::agent::{AgentEvent, CancelRun, RunOutcome, RunRequest, StartRun, StepKind, ToolEffect};
use riverrun_schemas::{RunId, Topic, now_ms};

fn kinds(events: &[AgentEvent], run_id: RunId) -> Vec<(i64, StepKind)> {
    events
        .iter()
        .filter_map(|e| match e {
            AgentEvent::RunAdvanced(a) if a.run_id == run_id => Some(a),
            _ => None,
        })
        .flat_map(|a| a.steps.iter().map(|s| (s.seq, s.kind)))
        .collect()
}

const WHOLE: [(i64, StepKind); 5] = [
    (1, StepKind::Thought),
    (2, StepKind::ToolCall),
    (3, StepKind::ToolResult),
    (4, StepKind::Thought),
    (5, StepKind::Answer),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_from_command_to_one_answer() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = RunId::new();
    world.start(run_id).await;
    let end = world.finished(run_id).await;
    assert_eq!(
        (end.status, end.stop_reason.as_str(), end.answer.as_deref()),
        (RunOutcome::Succeeded, "answered", Some("it was counted"))
    );
    assert_eq!((end.usage.prompt_tokens, end.usage.completion_tokens), (30, 15));
    let events = world.events().await;
    assert_eq!(kinds(&events, run_id), WHOLE);
    assert_eq!((world.calls.load(Ordering::SeqCst), world.requests.load(Ordering::SeqCst)), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_comes_twice_starts_one_run() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = RunId::new();
    world.start(run_id).await;
    world.start(run_id).await;
    world.finished(run_id).await;
    world.start(run_id).await;
    // A later run of the same partition's key space shows that the copy was passed by.
    let other = RunId::new();
    world.start(other).await;
    world.finished(other).await;
    assert_eq!(ends(&world.events().await, run_id), 1);
    assert_eq!(world.calls.load(Ordering::SeqCst), 2);
}

fn partition(run_id: &RunId) -> i32 {
    partition_of(run_id.to_string().as_bytes(), Topic::AgentCommands.spec().partitions)
}

/// Ids of one partition.
fn together<const N: usize>() -> [RunId; N] {
    let first = RunId::new();
    let mut fitting = std::iter::repeat_with(RunId::new).filter(|run_id| partition(run_id) == partition(&first));
    std::array::from_fn(|_| fitting.next().unwrap())
}

/// A worker whose process dies: its tasks are dropped where they stand.
fn doomed(world: &World, instance: &'static str) -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let guard = runtime.enter();
    let worker = world.worker(instance);
    drop(guard);
    std::mem::forget(worker);
    runtime
}

async fn survives(
    effect: ToolEffect,
    model_delay: Duration,
    tool_delay: Duration,
    dies_when: impl Fn(&[AgentEvent]) -> bool,
) -> (World, RunId) {
    let world = World::new(effect, model_delay, tool_delay).await;
    let run_id = RunId::new();
    let first = doomed(&world, "w");
    world.start(run_id).await;
    world.until("the moment to die", dies_when).await;
    first.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    world.finished(run_id).await;
    (world, run_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_during_a_model_call_the_run_goes_on_and_finished_calls_are_not_repeated() {
    let (world, run_id) = survives(ToolEffect::External, Duration::from_millis(300), Duration::ZERO, |events| {
        events
            .iter()
            .any(|e| matches!(e, AgentEvent::RunAdvanced(a) if a.steps.iter().any(|s| s.kind == StepKind::ToolResult)))
    })
    .await;
    let events = world.events().await;
    assert_eq!(kinds(&events, run_id), WHOLE);
    assert_eq!(ends(&events, run_id), 1);
    assert_eq!(world.calls.load(Ordering::SeqCst), 1, "the tool was used once");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_during_a_repeatable_tool_it_is_used_again() {
    let (world, run_id) = survives(ToolEffect::None, Duration::ZERO, Duration::from_millis(800), |events| {
        events
            .iter()
            .any(|e| matches!(e, AgentEvent::RunAdvanced(a) if a.steps.iter().any(|s| s.kind == StepKind::ToolCall)))
    })
    .await;
    let events = world.events().await;
    assert_eq!((kinds(&events, run_id), ends(&events, run_id)), (WHOLE.to_vec(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_ends_while_its_model_still_writes() {
    let world = World::new(ToolEffect::None, Duration::from_secs(20), Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = RunId::new();
    world.start(run_id).await;
    world.until("the run is driven", |events| events.iter().any(|e| matches!(e, AgentEvent::RunClaimed(_)))).await;
    world.command(CancelRun { run_id, reason: Some("enough".into()), at: now_ms() }.into()).await;
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.stop_reason.as_str()), (RunOutcome::Cancelled, "cancelled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_asks_for_what_does_not_exist_ends_as_failed_with_the_names_that_do() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");
    for (request, code) in [
        (RunRequest { agent: Some("root".into()), ..request() }, "unknown_agent"),
        (RunRequest { tools: Some(vec!["shell".into()]), ..request() }, "unknown_tool"),
        (RunRequest { task: " ".into(), ..request() }, "empty_task"),
    ] {
        let run_id = RunId::new();
        world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
        let end = world.finished(run_id).await;
        assert_eq!((end.status, end.error.unwrap().code.as_str()), (RunOutcome::Failed, code));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_worker_takes_over_and_the_first_ones_late_events_are_void() {
    let world = World::new(ToolEffect::None, Duration::from_millis(400), Duration::ZERO).await;
    let run_id = RunId::new();
    let (first, stop_first) = world.worker("w1");
    world.start(run_id).await;
    world.until("the first claim", |events| events.iter().any(|e| matches!(e, AgentEvent::RunClaimed(_)))).await;
    let (_second, _stop) = world.worker("w2");
    stop_first.cancel();
    first.join().await.unwrap();
    world.finished(run_id).await;
    let events = world.events().await;
    assert_eq!((ends(&events, run_id), kinds(&events, run_id).len()), (1, 5));
}
