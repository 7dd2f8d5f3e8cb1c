//! given runs of which some wait for others, when workers come and go, then each begins with the answers and ends once.

use std::time::Duration;

use riverrun_log::partition_of;
use riverrun_schemas::agent::{AgentEvent, CancelRun, RunOutcome, RunRequest, StartRun, ToolEffect};
use riverrun_schemas::{RunId, Topic, now_ms};

use super::common::{World, ends, request};
use super::doomed;

/// Ids of one partition.
fn together<const N: usize>() -> [RunId; N] {
    let partition =
        |run_id: &RunId| partition_of(run_id.to_string().as_bytes(), Topic::AgentCommands.spec().partitions);
    let first = RunId::new();
    let mut fitting = std::iter::repeat_with(RunId::new).filter(|run_id| partition(run_id) == partition(&first));
    std::array::from_fn(|_| fitting.next().unwrap())
}

/// Writes a chain as the API does: whoever waits comes first.
async fn start(world: &World, run_id: RunId, after: &[RunId], request: RunRequest) {
    let request = RunRequest { after: after.to_vec(), ..request };
    world.command(StartRun { run_id, request, at: now_ms() }.into()).await;
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
        let unknown = RunRequest { agent: Some("root".into()), ..request() };
        start(&world, third, &[second], request()).await;
        start(&world, second, &[first], request()).await;
        start(&world, first, &[], if cancelled { request() } else { unknown }).await;
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
