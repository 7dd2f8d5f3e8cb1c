//! given runs that wait, when another process takes their partitions, then it goes on with them.

use std::collections::BTreeSet;
use std::time::Duration;

use riverrun_log::{GroupConfig, GroupConsumer, Outgoing, TransactionalProducer, partition_of};
use riverrun_schemas::agent::{AgentEvent, RunClaimed, RunResumed, ToolEffect};
use riverrun_schemas::{RunId, Topic, now_ms};

use super::common::World;

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(600);

fn claims(events: &[AgentEvent]) -> Vec<&RunClaimed> {
    events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::RunClaimed(claim) => Some(claim),
            _ => None,
        })
        .collect()
}

fn partition(run_id: RunId) -> i32 {
    partition_of(run_id.to_string().as_bytes(), Topic::AgentEvents.spec().partitions)
}

#[tokio::test(flavor = "multi_thread")]
async fn given_more_waiting_runs_than_turns_when_one_process_takes_all_partitions_then_it_begins_with_runs_of_each() {
    const RUNS: usize = 200;
    const TURNS: usize = 64;
    let world = World::new(ToolEffect::None, Duration::ZERO, FOR_EVER).await;
    let (first, _stop) = world.worker("w");
    let runs: Vec<RunId> = (0..RUNS).map(|_| RunId::new()).collect();
    for run_id in &runs {
        world.start(*run_id).await;
    }
    let before = world
        .until("all are accepted and the first are driven", |events| {
            let accepted = events.iter().filter(|event| matches!(event, AgentEvent::RunAccepted(_))).count();
            accepted == RUNS && claims(events).len() == TURNS
        })
        .await;
    first.kill();
    let dead: BTreeSet<&str> = claims(&before).iter().map(|claim| claim.worker.as_str()).collect();
    assert_eq!(dead.len(), 1);

    let (_second, _stop) = world.worker("w");
    let after = world.until("as many are driven again", |events| claims(events).len() == 2 * TURNS).await;
    let taken: Vec<RunId> =
        claims(&after).iter().filter(|claim| !dead.contains(claim.worker.as_str())).map(|claim| claim.run_id).collect();
    assert_eq!(taken.len(), TURNS, "no more than there are turns");
    let of = |runs: &[RunId]| runs.iter().map(|run_id| partition(*run_id)).collect::<BTreeSet<i32>>();
    assert_eq!(of(&taken), of(&runs), "none waits for all of another");
    // Within a partition the oldest come first.
    let expected: BTreeSet<RunId> = runs
        .iter()
        .filter(|run_id| {
            let older = runs.iter().take_while(|other| other != run_id);
            let ahead = older.filter(|other| partition(**other) == partition(**run_id)).count();
            ahead < taken.iter().filter(|other| partition(**other) == partition(**run_id)).count()
        })
        .copied()
        .collect();
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_the_mark_of_a_transaction_behind_the_last_event_when_a_partition_is_taken_then_its_past_has_an_end() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let other =
        GroupConsumer::join(world.log(), &GroupConfig::new("other", vec!["riverrun.documents".into()])).unwrap();
    let producer = TransactionalProducer::open(world.log(), "other").await.unwrap();
    // Of a run that nobody knows: only the offsets matter.
    let event = AgentEvent::from(RunResumed { run_id: RunId::new(), at: now_ms() });
    let outputs: Vec<Outgoing> = (0..Topic::AgentEvents.spec().partitions)
        .map(|number| Outgoing::event(&event, "test", None).unwrap().to_partition(number))
        .collect();
    producer.run(&outputs, &[], other.metadata().unwrap()).await.unwrap();
    drop(other);

    let (_worker, _stop) = world.worker("w");
    let run_id = RunId::new();
    world.start(run_id).await;
    world.finished(run_id).await;
}
