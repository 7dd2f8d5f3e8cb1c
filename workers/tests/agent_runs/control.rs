//! given a run that waits, forks, or shares a session, when words come to it, then this becomes of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use riverrun_log::partition_of;
use riverrun_schemas::agent::{
    AgentEvent, ApprovalPolicy, CancelRun, DecideApproval, Decision, ForkRun, ForkedFrom, ResumeRun, RunOutcome,
    RunRequest, SessionPolicy, StartRun, Step, StepKind, ToolEffect,
};
use riverrun_schemas::{RunId, Topic, now_ms};

use super::common::{World, ends, request};
use super::{WHOLE, doomed, kinds};

const AT_ONCE: Duration = Duration::ZERO;

fn steps(events: &[AgentEvent], run_id: RunId) -> Vec<Step> {
    events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::RunAdvanced(advance) if advance.run_id == run_id => Some(advance.steps.clone()),
            _ => None,
        })
        .flatten()
        .collect()
}

fn question(events: &[AgentEvent], run_id: RunId) -> Option<Step> {
    steps(events, run_id).into_iter().find(|step| step.kind == StepKind::Approval)
}

fn claims(events: &[AgentEvent], run_id: RunId) -> usize {
    events.iter().filter(|event| matches!(event, AgentEvent::RunClaimed(c) if c.run_id == run_id)).count()
}

async fn start_with(world: &World, request: RunRequest) -> RunId {
    let run_id = RunId::new();
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
    run_id
}

/// Waits for the run's question; gives its step.
async fn asked(world: &World, run_id: RunId) -> Step {
    let events = world.until("the run asks", |events| question(events, run_id).is_some()).await;
    question(&events, run_id).unwrap()
}

async fn answer(world: &World, run_id: RunId, step: i64, decision: Decision) {
    let note = Some("says the test".to_owned());
    world.command(DecideApproval { run_id, step, decision, note, at: now_ms() }.into()).await;
}

fn wants_approval() -> RunRequest {
    RunRequest { approval: ApprovalPolicy::External, ..request() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_for_approval_across_a_crash_and_makes_the_call_once() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let first = doomed(&world, "w");
    let run_id = start_with(&world, wants_approval()).await;
    let step = asked(&world, run_id).await;
    assert_eq!((step.seq, world.calls.load(Ordering::SeqCst)), (3, 0), "nothing is called before the answer");
    first.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    // Another run shows that the new worker has its partitions, and did not drive the one that waits.
    let other = start_with(&world, request()).await;
    world.finished(other).await;
    assert_eq!(claims(&world.events().await, run_id), 1);
    let calls_before = world.calls.load(Ordering::SeqCst);
    answer(&world, run_id, step.seq, Decision::Approve).await;
    answer(&world, run_id, step.seq, Decision::Deny).await;
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("it was counted")));
    assert_eq!(world.calls.load(Ordering::SeqCst) - calls_before, 1);
    let events = world.events().await;
    assert_eq!(ends(&events, run_id), 1);
    assert_eq!(steps(&events, run_id).iter().map(|step| step.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_that_waits_for_approval_when_lag_is_asked_then_there_is_none_also_after_a_crash() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let first = doomed(&world, "w");
    let run_id = start_with(&world, wants_approval()).await;
    asked(&world, run_id).await;
    world.without_lag().await;
    first.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    let other = start_with(&world, request()).await;
    world.finished(other).await;
    world.without_lag().await;
    let events = world.events().await;
    assert!(question(&events, run_id).is_some() && ends(&events, run_id) == 0, "it still waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_is_not_made_and_the_run_goes_on() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = start_with(&world, wants_approval()).await;
    let step = asked(&world, run_id).await;
    answer(&world, run_id, step.seq, Decision::Deny).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    assert_eq!(world.calls.load(Ordering::SeqCst), 0);
    let events = world.events().await;
    let result = steps(&events, run_id).into_iter().find(|step| step.kind == StepKind::ToolResult).unwrap();
    assert!(result.tool.unwrap().error.unwrap().contains("says the test"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_run_can_be_looked_at_again_and_cancelled() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let (_worker, _stop) = world.worker("w");
    let run_id = start_with(&world, wants_approval()).await;
    asked(&world, run_id).await;
    world.command(ResumeRun { run_id, at: now_ms() }.into()).await;
    world.until("it looks again", |events| claims(events, run_id) == 2).await;
    world.command(CancelRun { run_id, reason: None, at: now_ms() }.into()).await;
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.stop_reason.as_str()), (RunOutcome::Cancelled, "cancelled"));
    assert_eq!(world.calls.load(Ordering::SeqCst), 0);
}

async fn crashed_in_an_outside_call() -> (World, RunId, Step, impl Sized) {
    let world = World::new(ToolEffect::External, AT_ONCE, Duration::from_secs(3)).await;
    let first = doomed(&world, "w");
    let run_id = start_with(&world, request()).await;
    world.called().await;
    first.shutdown_background();
    let worker = world.worker("w");
    let step = asked(&world, run_id).await;
    assert!(step.tool.as_ref().unwrap().error.is_some(), "it says that the outcome is not known");
    (world, run_id, step, worker)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_during_a_tool_with_an_outside_effect_a_person_decides_to_call_again() {
    let (world, run_id, step, _worker) = crashed_in_an_outside_call().await;
    assert_eq!(world.calls.load(Ordering::SeqCst), 1, "not repeated on a guess");
    answer(&world, run_id, step.seq, Decision::Approve).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    assert_eq!(world.calls.load(Ordering::SeqCst), 2, "by a person's word");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_during_a_tool_with_an_outside_effect_a_person_decides_to_go_on_without() {
    let (world, run_id, step, _worker) = crashed_in_an_outside_call().await;
    answer(&world, run_id, step.seq, Decision::Deny).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    assert_eq!(world.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_begins_with_the_steps_of_its_source_and_goes_on_by_itself() {
    let world = World::new(ToolEffect::None, AT_ONCE, AT_ONCE).await;
    let (_worker, _stop) = world.worker("w");
    let source = start_with(&world, request()).await;
    world.finished(source).await;
    let shared: Vec<Step> = steps(&world.events().await, source).into_iter().take(3).collect();
    let run_id = RunId::new();
    let fork = ForkRun {
        run_id,
        forked_from: ForkedFrom { run_id: source, at_seq: 3 },
        request: RunRequest { task: "count otherwise".into(), ..request() },
        steps: shared.clone(),
        steps_blob: None,
        at: now_ms(),
    };
    world.command(fork.clone().into()).await;
    world.command(fork.clone().into()).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    let events = world.events().await;
    assert_eq!((kinds(&events, run_id), ends(&events, run_id)), (WHOLE.to_vec(), 1));
    assert_eq!(steps(&events, run_id)[..3], shared[..]);
    assert_eq!(world.calls.load(Ordering::SeqCst), 1, "the shared call is not made again");

    let broken = ForkRun { run_id: RunId::new(), steps: shared[1..].to_vec(), ..fork };
    world.command(broken.clone().into()).await;
    assert_eq!(world.finished(broken.run_id).await.error.unwrap().code, "fork_history_unusable");
}

/// Ids that lie in one partition, as the API draws them for a session.
fn ids_of_one_partition(count: usize) -> Vec<RunId> {
    let place = |run: &RunId| partition_of(run.to_string().as_bytes(), Topic::AgentCommands.spec().partitions);
    let first = RunId::new();
    let others = std::iter::repeat_with(RunId::new).filter(|run| place(run) == place(&first));
    std::iter::once(first).chain(others).take(count).collect()
}

async fn in_session(world: &World, run_id: RunId, session_policy: SessionPolicy) {
    let request = RunRequest { session: Some("s".into()), session_policy, ..wants_approval() };
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_of_a_session_go_on_one_after_the_other_also_after_a_crash() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let first = doomed(&world, "w");
    let ids = ids_of_one_partition(3);
    for run_id in &ids {
        in_session(&world, *run_id, SessionPolicy::Enqueue).await;
    }
    let step = asked(&world, ids[0]).await;
    first.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    world.command(CancelRun { run_id: ids[2], reason: None, at: now_ms() }.into()).await;
    assert_eq!(world.finished(ids[2]).await.status, RunOutcome::Cancelled, "a queued run ends without its turn");
    assert_eq!(claims(&world.events().await, ids[1]), 0);
    answer(&world, ids[0], step.seq, Decision::Approve).await;
    world.finished(ids[0]).await;
    asked(&world, ids[1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_wants_no_other_in_its_session_is_refused_and_one_that_interrupts_takes_over() {
    let world = World::new(ToolEffect::External, AT_ONCE, AT_ONCE).await;
    let (_worker, _stop) = world.worker("w");
    let ids = ids_of_one_partition(3);
    in_session(&world, ids[0], SessionPolicy::Reject).await;
    asked(&world, ids[0]).await;
    in_session(&world, ids[1], SessionPolicy::Reject).await;
    let end = world.finished(ids[1]).await;
    assert_eq!((end.stop_reason.as_str(), end.error.unwrap().code.as_str()), ("session_busy", "session_busy"));
    in_session(&world, ids[2], SessionPolicy::Interrupt).await;
    assert_eq!(world.finished(ids[0]).await.status, RunOutcome::Cancelled);
    asked(&world, ids[2]).await;
}
