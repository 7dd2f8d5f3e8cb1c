//! given runs of which some wait for others, when workers come and go, then each begins with the answers and ends once.

use std::time::Duration;

use riverrun_schemas::agent::{AgentCommand, AgentEvent, CancelRun, RunOutcome, RunRequest, StartRun, ToolEffect};
use riverrun_schemas::{RunId, now_ms};

use super::common::{World, ends, request};
use super::{doomed, partition, together};

/// An id of another partition.
fn apart_from(other: RunId) -> RunId {
    std::iter::repeat_with(RunId::new).find(|run_id| partition(run_id) != partition(&other)).unwrap()
}

/// Asks for a run that waits for others. The command is handed in twice, as redelivery does.
async fn start(world: &World, run_id: RunId, after: &[RunId], request: RunRequest) {
    let request = RunRequest { after: after.to_vec(), ..request };
    let command = AgentCommand::from(StartRun { run_id, request, at: now_ms() });
    world.command(command.clone()).await;
    world.command(command).await;
}

/// A request that ends as failed.
fn failing() -> RunRequest {
    RunRequest { agent: Some("root".into()), ..request() }
}

async fn accepted(world: &World, run_id: RunId) {
    let is = |event: &AgentEvent| matches!(event, AgentEvent::RunAccepted(accepted) if accepted.run_id == run_id);
    world.until("the run is accepted", |events| events.iter().any(is)).await;
}

/// Each of these runs has one end, and it is this one.
async fn end_as(world: &World, expected: &[(RunId, RunOutcome, &str)]) {
    for (run_id, status, reason) in expected {
        let end = world.finished(*run_id).await;
        assert_eq!((end.status, end.stop_reason.as_str()), (*status, *reason), "{end:?}");
    }
    let events = world.events().await;
    for (run_id, ..) in expected {
        assert_eq!(ends(&events, *run_id), 1);
    }
}

fn place(events: &[AgentEvent], is: impl Fn(&AgentEvent) -> bool) -> usize {
    events.iter().position(is).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_goes_on_across_a_crash_and_every_run_of_it_ends_once() {
    let world = World::new(ToolEffect::None, Duration::from_millis(100), Duration::ZERO).await;
    let worker = doomed(&world, "w");
    let [first, left, right, last] = together();
    let with_input = || RunRequest { task: "go on: {{input}}".into(), ..request() };
    start(&world, last, &[left, right], with_input()).await;
    start(&world, right, &[first], with_input()).await;
    start(&world, left, &[first], with_input()).await;
    start(&world, first, &[], request()).await;
    world.until("the first has ended", |events| ends(events, first) == 1).await;
    worker.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    let end = world.finished(last).await;
    assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("it was counted")));
    let events = world.events().await;
    for run_id in [first, left, right, last] {
        assert_eq!(ends(&events, run_id), 1);
    }
    let claimed = |run: RunId| place(&events, |event| matches!(event, AgentEvent::RunClaimed(c) if c.run_id == run));
    let ended = |run: RunId| place(&events, |event| matches!(event, AgentEvent::RunFinished(f) if f.run_id == run));
    for (before, behind) in [(first, left), (first, right), (left, last), (right, last)] {
        assert!(ended(before) < claimed(behind), "{before} before {behind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_an_answer_ends_all_that_wait_for_it_with_its_name() {
    let world = World::new(ToolEffect::None, Duration::from_millis(200), Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");
    for (cancelled, status, code) in
        [(false, RunOutcome::Failed, "predecessor_failed"), (true, RunOutcome::Cancelled, "predecessor_cancelled")]
    {
        let [first, second, third] = together();
        start(&world, third, &[second], request()).await;
        start(&world, second, &[first], request()).await;
        start(&world, first, &[], if cancelled { request() } else { failing() }).await;
        if cancelled {
            world.command(CancelRun { run_id: first, reason: None, at: now_ms() }.into()).await;
        }
        for (run_id, before) in [(second, first), (third, second)] {
            let end = world.finished(run_id).await;
            let error = end.error.unwrap();
            assert_eq!((end.status, end.stop_reason.as_str(), error.code.as_str()), (status, code, code));
            assert!(error.message.contains(&before.to_string()), "{error:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_asked_for_when_those_before_it_have_ended_begins_or_ends_by_what_the_log_says_of_them() {
    use RunOutcome::{Cancelled, Failed, Succeeded};
    let world = World::new(ToolEffect::None, Duration::from_millis(100), Duration::ZERO).await;
    let worker = doomed(&world, "w");
    let [answers, fails, stopped, later, a, b, c, join, d, e, f] = together();
    start(&world, answers, &[], request()).await;
    start(&world, fails, &[], failing()).await;
    start(&world, stopped, &[], request()).await;
    world.command(CancelRun { run_id: stopped, reason: None, at: now_ms() }.into()).await;
    for before in [answers, fails, stopped] {
        world.finished(before).await;
    }
    for (run_id, before) in [(a, answers), (b, fails), (c, stopped)] {
        start(&world, run_id, &[before], request()).await;
    }
    // One of its two has ended, the other is not known yet.
    start(&world, join, &[later, answers], request()).await;
    accepted(&world, join).await;
    start(&world, later, &[], request()).await;
    let given =
        [(a, Succeeded, "answered"), (b, Failed, "predecessor_failed"), (c, Cancelled, "predecessor_cancelled")];
    end_as(&world, &given).await;
    end_as(&world, &[(later, Succeeded, "answered"), (join, Succeeded, "answered")]).await;
    // A worker that has folded nothing of them.
    worker.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    for (run_id, before) in [(d, answers), (e, fails), (f, stopped)] {
        start(&world, run_id, &[before], request()).await;
    }
    let given =
        [(d, Succeeded, "answered"), (e, Failed, "predecessor_failed"), (f, Cancelled, "predecessor_cancelled")];
    end_as(&world, &given).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_for_one_of_another_partition_in_either_order() {
    use RunOutcome::{Failed, Succeeded};
    let world = World::new(ToolEffect::None, Duration::from_millis(50), Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");
    let [early, late, fails] = [RunId::new(), RunId::new(), RunId::new()];
    let [behind, before, follows] = [apart_from(early), apart_from(late), apart_from(fails)];
    start(&world, early, &[], request()).await;
    start(&world, before, &[late], request()).await;
    start(&world, follows, &[fails], request()).await;
    world.finished(early).await;
    start(&world, behind, &[early], request()).await;
    accepted(&world, before).await;
    start(&world, late, &[], request()).await;
    start(&world, fails, &[], failing()).await;
    let given =
        [(behind, Succeeded, "answered"), (before, Succeeded, "answered"), (follows, Failed, "predecessor_failed")];
    end_as(&world, &given).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_one_that_nobody_asks_for_ends_with_a_reason_and_one_that_comes_after_a_crash_is_waited_for()
 {
    use RunOutcome::{Failed, Succeeded};
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let worker = doomed(&world, "w");
    let [waits, comes, follows, lost, never, circle, back] = together();
    start(&world, waits, &[comes], request()).await;
    accepted(&world, waits).await;
    worker.shutdown_background();
    let (_worker, _stop) = world.worker("w");
    start(&world, comes, &[], request()).await;
    start(&world, follows, &[lost], request()).await;
    start(&world, lost, &[never, comes], request()).await;
    start(&world, circle, &[back], request()).await;
    start(&world, back, &[circle], request()).await;
    let given = [
        (waits, Succeeded, "answered"),
        (lost, Failed, "predecessor_unknown"),
        (follows, Failed, "predecessor_failed"),
        (back, Failed, "predecessor_circular"),
        (circle, Failed, "predecessor_failed"),
    ];
    end_as(&world, &given).await;
    let error = world.finished(lost).await.error.unwrap();
    assert!(error.message.contains(&never.to_string()), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_wait_are_cancelled_at_once_whoever_they_wait_for() {
    let world = World::new(ToolEffect::None, Duration::from_secs(20), Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");
    let [first, second, third, never] = together();
    start(&world, third, &[second], request()).await;
    start(&world, second, &[first, never], request()).await;
    start(&world, first, &[], request()).await;
    world.until("the first is driven", |events| events.iter().any(|e| matches!(e, AgentEvent::RunClaimed(_)))).await;
    for run_id in [third, second, first] {
        world.command(CancelRun { run_id, reason: Some("the chain is stopped".into()), at: now_ms() }.into()).await;
    }
    let end = |run_id| (run_id, RunOutcome::Cancelled, "cancelled");
    end_as(&world, &[end(first), end(second), end(third)]).await;
}
