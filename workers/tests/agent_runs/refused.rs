//! given a command whose run can't be accepted, when it is given up, then its run has failed once, and the others of its session go on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use riverrun_log::{MAX_EVENT_BYTES, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::{
    AgentCommand, AgentEvent, RunAccepted, RunOutcome, RunRequest, SessionPolicy, StartRun, ToolEffect,
};
use riverrun_schemas::{EventSet, RunId, Topic, now_ms};

use super::common::{World, ends, request};
use super::together;

/// A command that fits on the log to the byte: its acceptance, which has the defaults besides, does not.
fn barely_written(run_id: RunId, request: RunRequest) -> AgentCommand {
    let of = |task: String| -> AgentCommand {
        StartRun { run_id, request: RunRequest { task, ..request.clone() }, at: now_ms() }.into()
    };
    // An empty text has a length of one byte, one of this size a length of three.
    let around = of(String::new()).encode().unwrap().len() + 2;
    let command = of("x".repeat(MAX_EVENT_BYTES - around));
    assert_eq!(command.encode().unwrap().len(), MAX_EVENT_BYTES);
    command
}

async fn letters(world: &World) -> Vec<riverrun_log::DeadLetter> {
    let topic = format!("{}{}", Topic::AgentCommands.name(), riverrun_log::dead_letters::SUFFIX);
    let range = Tail::read_range(world.log(), TopicPartition::new(topic, 0), StartAt::Beginning).await.unwrap();
    range.collect().await.unwrap().iter().filter_map(riverrun_log::DeadLetter::read).collect()
}

fn acceptances(events: &[AgentEvent], run_id: RunId) -> Vec<&RunAccepted> {
    let accepted = events.iter().filter_map(|event| match event {
        AgentEvent::RunAccepted(accepted) if accepted.run_id == run_id => Some(accepted),
        _ => None,
    });
    accepted.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_that_does_not_fit_on_the_log_when_its_command_is_given_up_then_it_has_failed_and_says_why() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let (_worker, _stop) = world.worker("w");
    let [run_id, after] = together();
    let command = barely_written(run_id, request());
    world.command(command.clone()).await;
    let end = world.finished(run_id).await;
    let error = end.error.unwrap();
    assert_eq!((end.status, error.code.as_str(), end.epoch), (RunOutcome::Failed, "event_too_large", 0));
    assert!(error.hint.unwrap().contains("riverrun dlq"), "{}", error.message);
    let written = letters(&world).await;
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].payload.as_deref(), Some(command.encode().unwrap().as_slice()));
    // Handed in again it is the command of a run that has ended; one behind it shows that it was passed by.
    world.command(command).await;
    world.start(after).await;
    assert_eq!(world.finished(after).await.status, RunOutcome::Succeeded);
    let events = world.events().await;
    let accepted = acceptances(&events, run_id);
    assert_eq!((accepted.len(), ends(&events, run_id), letters(&world).await.len()), (1, 1, 1));
    assert!(accepted[0].request.task.starts_with("xxx"), "its words are there, as far as they fit");
    assert_eq!(world.calls.load(Ordering::SeqCst), 1, "only the other one was driven");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_that_would_take_its_session_over_when_it_can_not_be_accepted_then_nobody_makes_room_for_it() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::from_millis(500)).await;
    let (_worker, _stop) = world.worker("w");
    let [first, refused, last] = together();
    let of_session = || RunRequest { session: Some("talk".into()), ..request() };
    world.command(StartRun { run_id: first, request: of_session(), at: now_ms() }.into()).await;
    world.called().await;
    let interrupting = RunRequest { session_policy: SessionPolicy::Interrupt, ..of_session() };
    world.command(barely_written(refused, interrupting)).await;
    world.command(StartRun { run_id: last, request: of_session(), at: now_ms() }.into()).await;
    assert_eq!(world.finished(refused).await.status, RunOutcome::Failed);
    assert_eq!(world.finished(first).await.status, RunOutcome::Succeeded);
    assert_eq!(world.finished(last).await.status, RunOutcome::Succeeded);
    let events = world.events().await;
    let cancels = events.iter().filter(|event| matches!(event, AgentEvent::RunCancelRequested(_))).count();
    assert_eq!((cancels, ends(&events, refused)), (0, 1));
}
