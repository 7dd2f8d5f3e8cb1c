//! given a run whose fold can't be read while the store is away, when the store is back, then the run goes on by itself.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use riverrun_agents::RunState;
use riverrun_log::{BlobStore, ObjectStoreBlobs, Producer, partition_of};
use riverrun_schemas::agent::{
    AgentEvent, CancelRun, RunAccepted, RunClaimed, RunOutcome, RunRequest, RunSnapshotted, ToolEffect,
};
use riverrun_schemas::{RunId, Topic, now_ms};

use super::common::{World, ends, request};

const AT_ONCE: Duration = Duration::ZERO;

fn partition(run_id: RunId) -> i32 {
    partition_of(run_id.to_string().as_bytes(), Topic::AgentEvents.spec().partitions)
}

/// A run of which the log has nothing but a snapshot, since the rest was too old to be kept, and whose fold is in a store that is
/// away. Gives where the store is meanwhile.
async fn interrupted(world: &World, run_id: RunId) -> PathBuf {
    let request = RunRequest {
        provider: Some("ollama".into()),
        model: Some("scripted".into()),
        max_iters: Some(8),
        temperature: Some(0.0),
        ..request()
    };
    let mut state = RunState::accepted(&RunAccepted { run_id, request, forked_from: None, at: now_ms() });
    state.apply(&RunClaimed { run_id, epoch: 1, worker: "lost".into(), at: now_ms() }.into());
    let blobs = ObjectStoreBlobs::local(&world.blobs()).unwrap();
    let json = serde_json::to_vec(&state).unwrap();
    let state = blobs.put_bytes(json.into(), "application/json").await.unwrap();
    let snapshot = RunSnapshotted { run_id, epoch: 1, seq: 0, accepted_offset: 0, next_offset: 0, state, at: now_ms() };
    let producer = Producer::new(world.log()).unwrap();
    producer.send_to_partition(&AgentEvent::from(snapshot), partition(run_id), "test", None).await.unwrap();
    let away = world.blobs().with_extension("away");
    std::fs::rename(world.blobs(), &away).unwrap();
    away
}

fn bring_back(world: &World, away: &Path) {
    std::fs::remove_dir_all(world.blobs()).unwrap();
    std::fs::rename(away, world.blobs()).unwrap();
}

/// Another run of the same partition.
fn neighbour_of(run_id: RunId) -> RunId {
    std::iter::repeat_with(RunId::new).find(|other| partition(*other) == partition(run_id)).unwrap()
}

/// A run of the same partition goes from its command to its end.
async fn a_neighbour_ends(world: &World, run_id: RunId) {
    let neighbour = neighbour_of(run_id);
    world.start(neighbour).await;
    assert_eq!(world.finished(neighbour).await.status, RunOutcome::Succeeded);
    assert_eq!(ends(&world.events().await, run_id), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_that_can_not_be_read_when_the_store_is_back_then_it_goes_on_and_its_neighbour_did_not_wait() {
    let world = World::new(ToolEffect::None, AT_ONCE, AT_ONCE).await;
    let run_id = RunId::new();
    let away = interrupted(&world, run_id).await;
    let (_worker, _stop) = world.worker("w");
    a_neighbour_ends(&world, run_id).await;
    bring_back(&world, &away);
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.epoch), (RunOutcome::Succeeded, 2));
    assert_eq!(world.calls.load(Ordering::SeqCst), 2, "one call of each run");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_that_can_not_be_read_when_it_is_cancelled_then_it_ends_without_the_store_and_only_once() {
    let world = World::new(ToolEffect::None, AT_ONCE, AT_ONCE).await;
    let run_id = RunId::new();
    let away = interrupted(&world, run_id).await;
    let (_worker, _stop) = world.worker("w");
    a_neighbour_ends(&world, run_id).await;
    world.command(CancelRun { run_id, reason: Some("enough".into()), at: now_ms() }.into()).await;
    let end = world.finished(run_id).await;
    assert_eq!((end.status, end.stop_reason.as_str()), (RunOutcome::Cancelled, "cancelled"));
    bring_back(&world, &away);
    let (_second, _stop) = world.worker("v");
    let neighbour = neighbour_of(run_id);
    world.start(neighbour).await;
    world.finished(neighbour).await;
    assert_eq!((ends(&world.events().await, run_id), world.calls.load(Ordering::SeqCst)), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_that_can_not_be_read_when_another_process_starts_with_the_store_then_it_still_finds_the_run() {
    let world = World::new(ToolEffect::None, AT_ONCE, AT_ONCE).await;
    let run_id = RunId::new();
    let away = interrupted(&world, run_id).await;
    let (first, stop) = world.worker("w");
    a_neighbour_ends(&world, run_id).await;
    world.without_lag().await;
    stop.cancel();
    first.join().await.unwrap();
    bring_back(&world, &away);
    let (_second, _stop) = world.worker("w");
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Succeeded);
}
