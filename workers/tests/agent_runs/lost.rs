//! given runs that other workers claimed and were lost with, when a worker takes them, then this becomes of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use riverrun_log::{Producer, partition_of};
use riverrun_schemas::agent::{
    AgentEvent, RunAccepted, RunClaimed, RunOutcome, RunRequest, RunResumed, Step, StepKind, ToolEffect,
};
use riverrun_schemas::{RunId, Topic, now_ms};

use super::common::{World, ends, request};

const AT_ONCE: Duration = Duration::ZERO;

fn claim(run_id: RunId, epoch: i64) -> AgentEvent {
    RunClaimed { run_id, epoch, worker: format!("lost-{epoch}"), at: now_ms() }.into()
}

fn claims(events: &[AgentEvent], run_id: RunId) -> Vec<&RunClaimed> {
    events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::RunClaimed(claim) if claim.run_id == run_id => Some(claim),
            _ => None,
        })
        .collect()
}

fn steps(events: &[AgentEvent], run_id: RunId) -> Vec<&Step> {
    events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::RunAdvanced(advance) if advance.run_id == run_id => Some(&advance.steps),
            _ => None,
        })
        .flatten()
        .collect()
}

/// A run as workers that were lost have left it: accepted, then claimed so often, with words of a person behind some
/// of the claims.
pub(super) async fn left_behind(world: &World, run_id: RunId, claimed: i64, resumed_behind: Option<i64>) {
    let producer = Producer::new(world.log()).unwrap();
    let partition = partition_of(run_id.to_string().as_bytes(), Topic::AgentEvents.spec().partitions);
    let request = RunRequest {
        provider: Some("ollama".into()),
        model: Some("scripted".into()),
        max_iters: Some(8),
        temperature: Some(0.0),
        ..request()
    };
    let mut events: Vec<AgentEvent> = vec![RunAccepted { run_id, request, forked_from: None, at: now_ms() }.into()];
    for epoch in 1..=claimed {
        events.push(claim(run_id, epoch));
        if resumed_behind == Some(epoch) {
            events.push(RunResumed { run_id, at: now_ms() }.into());
        }
    }
    for event in events {
        producer.send_to_partition(&event, partition, "test", None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_that_ten_workers_in_a_row_were_lost_with_when_another_takes_it_then_it_fails_before_its_step() {
    let world = World::new(ToolEffect::None, AT_ONCE, AT_ONCE).await;
    let run_id = RunId::new();
    left_behind(&world, run_id, 10, None).await;
    let (_worker, _stop) = world.worker("w");
    let end = world.finished(run_id).await;
    let error = end.error.unwrap();
    assert_eq!(
        (end.status, end.stop_reason.as_str(), error.code.as_str()),
        (RunOutcome::Failed, "worker_lost", "worker_lost")
    );
    assert_eq!(
        error.message,
        "10 workers in a row ended while they worked on step 1 (a model call of ollama/scripted)"
    );
    let events = world.events().await;
    assert_eq!((ends(&events, run_id), steps(&events, run_id).len(), end.epoch), (1, 0, 11));
    assert_eq!(world.requests.load(Ordering::SeqCst), 0, "no model was asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_fewer_lost_workers_or_words_of_a_person_between_them_when_another_takes_the_run_then_it_goes_on() {
    let world = World::new(ToolEffect::None, AT_ONCE, AT_ONCE).await;
    let (nine, resumed) = (RunId::new(), RunId::new());
    left_behind(&world, nine, 9, None).await;
    left_behind(&world, resumed, 15, Some(7)).await;
    let (_worker, _stop) = world.worker("w");
    for run_id in [nine, resumed] {
        assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_several_runs_that_may_have_ended_their_workers_when_one_takes_them_then_each_is_alone_until_its_first_step()
 {
    let world = World::new(ToolEffect::None, AT_ONCE, AT_ONCE).await;
    let runs: Vec<RunId> = (0..4).map(|_| RunId::new()).collect();
    for run_id in &runs {
        left_behind(&world, *run_id, 3, None).await;
    }
    let (_worker, _stop) = world.worker("w");
    for run_id in &runs {
        assert_eq!(world.finished(*run_id).await.status, RunOutcome::Succeeded);
    }
    let events = world.events().await;
    // When each was claimed and had its first step, by the one clock of the one worker.
    let mut spans: Vec<(i64, i64)> = runs
        .iter()
        .map(|run_id| (claims(&events, *run_id).last().unwrap().at, steps(&events, *run_id)[0].at))
        .collect();
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
    assert!(runs.iter().all(|run_id| steps(&events, *run_id)[0].kind == StepKind::Thought));
}
