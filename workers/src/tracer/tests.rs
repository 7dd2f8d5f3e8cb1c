use std::collections::BTreeMap;

use riverrun_log::Outgoing;
use riverrun_schemas::agent::{RunOutcome, StepKind};
use riverrun_schemas::{Topic, TraceId};
use tokio_util::sync::CancellationToken;

use super::testing::*;
use super::*;
use crate::runtime::testkit::{Stack, eventually, twice};
use crate::runtime::{WorkerHandle, spawn};

fn tracer(config: OtlpConfig) -> Tracer {
    Tracer::new(TracingService::new(TracingSettings::On(Box::new(config))), "local", "tiny")
}

fn start(stack: &Stack, config: OtlpConfig) -> WorkerHandle {
    spawn(tracer(config), stack.config(), CancellationToken::new())
}

/// Writes events to one partition, as the agent worker does.
async fn send(stack: &Stack, events: &[AgentEvent]) {
    let records = events.iter().map(|event| Outgoing::event(event, "test", None).unwrap().to_partition(0)).collect();
    stack.send_records(records).await;
}

/// Names by span id of what the service has.
async fn told(receiver: &Receiver) -> BTreeMap<Vec<u8>, String> {
    receiver.spans().await.into_iter().map(|span| (span.span_id, span.name)).collect()
}

async fn wait_for(receiver: &Receiver, spans: usize) -> BTreeMap<Vec<u8>, String> {
    let all = || async { Some(told(receiver).await).filter(|told| told.len() >= spans) };
    eventually(format!("{spans} spans"), all).await
}

const WHOLE: usize = 9;

#[tokio::test]
async fn given_a_batch_that_comes_twice_when_it_is_handled_then_nothing_is_told_anew() {
    let receiver = Receiver::taking().await;
    let tracer = tracer(receiver.config());
    twice(&tracer, whole("a")).await;
    assert_eq!(receiver.spans().await.len(), WHOLE);
}

#[tokio::test]
async fn given_a_run_on_the_log_when_two_tracers_tell_it_then_the_service_gets_the_same_spans() {
    let receiver = Receiver::taking().await;
    for _ in 0..2 {
        let tracer = tracer(receiver.config());
        twice(&tracer, whole("a")).await;
    }
    let spans = receiver.spans().await;
    let (first, second) = spans.split_at(WHOLE);
    assert_eq!(first, second);
}

#[tokio::test]
async fn given_a_tracer_that_dies_within_a_run_when_another_goes_on_then_the_run_is_told_whole_and_nothing_twice() {
    let (stack, receiver) = (Stack::start().await, Receiver::taking().await);
    let events = whole("open");
    send(&stack, &whole("before")).await;
    send(&stack, &events[..4]).await;
    send(&stack, &whole("between")).await;
    let first = start(&stack, receiver.config());
    wait_for(&receiver, 2 * WHOLE + 4).await;
    stack.drained(NAME, Topic::AgentEvents).await;
    first.stop();
    first.join().await.unwrap();

    send(&stack, &events[4..]).await;
    let second = start(&stack, receiver.config());
    let told = wait_for(&receiver, 3 * WHOLE).await;
    assert_eq!(told.len(), 3 * WHOLE);
    assert_eq!(receiver.spans().await.len(), 3 * WHOLE, "nothing was told twice");
    let root = TraceId::from(run_id("open")).root();
    assert_eq!(told[&root.bytes().to_vec()], "invoke_agent react");
    stack.drained(NAME, Topic::AgentEvents).await;
    second.stop();
    second.join().await.unwrap();
}

#[tokio::test]
async fn given_a_service_that_is_away_when_runs_end_then_they_are_given_up_and_the_next_are_told() {
    let (stack, receiver) = (Stack::start().await, Receiver::start().await);
    receiver.answer(wiremock::ResponseTemplate::new(503)).await;
    let config = OtlpConfig { patience: Duration::from_millis(300), ..receiver.config() };
    let service = TracingService::new(TracingSettings::On(Box::new(config)));
    let worker = spawn(Tracer::new(service.clone(), "local", "tiny"), stack.config(), CancellationToken::new());
    send(&stack, &whole("lost")).await;
    stack.drained(NAME, Topic::AgentEvents).await;
    assert_eq!((service.figures().dropped, service.status().state), (WHOLE as u64, TracingState::Down));
    assert!(stack.letters(Topic::AgentEvents).await.is_empty());

    receiver.answer(wiremock::ResponseTemplate::new(200)).await;
    send(&stack, &whole("told")).await;
    assert_eq!(wait_for(&receiver, WHOLE).await.len(), WHOLE);
    assert_eq!(service.status().state, TracingState::Up);
    worker.stop();
    worker.join().await.unwrap();
}

#[test]
fn given_open_and_ended_runs_when_an_offset_is_committed_then_the_note_is_where_the_oldest_open_run_begins() {
    let (mut traces, defaults) = (PartitionTraces::default(), Defaults::default());
    let mut offset = 0;
    let mut fold = |traces: &mut PartitionTraces, events: &[AgentEvent]| {
        for event in events {
            traces.fold(&[(At { offset, outside: None }, event)], &defaults);
            offset += 1;
        }
    };
    fold(&mut traces, &whole("ended")); // offsets 0 to 6
    fold(&mut traces, &whole("open")[..3]); // 7 to 9
    fold(&mut traces, &whole("late")); // 10 to 16
    // A commit of an older offset: what has ended behind it was open there.
    assert_eq!(traces.fold_from(3), 0);
    assert_eq!(traces.fold_from(7), 7);
    assert_eq!(traces.fold_from(17), 7);
    fold(&mut traces, &whole("open")[3..]); // 17 to 20
    assert_eq!(traces.fold_from(18), 7);
    assert_eq!(traces.fold_from(21), 21);
    // A late copy of an acceptance opens nothing.
    fold(&mut traces, &whole("open")[..1]);
    assert_eq!(traces.fold_from(22), 22);
}

#[test]
fn given_more_open_runs_than_are_kept_when_they_are_folded_then_the_oldest_are_let_go() {
    let (mut traces, defaults) = (PartitionTraces::default(), Defaults::default());
    for offset in 0..1_100 {
        let event: AgentEvent = accepted(&offset.to_string()).into();
        traces.fold(&[(At { offset, outside: None }, &event)], &defaults);
    }
    assert_eq!(traces.fold_from(1_100), 100);
    let step = advanced("0", 0, vec![words(1, StepKind::Answer, 2_000)]);
    let end = finished("0", 0, RunOutcome::Failed, 2_000);
    let spans = traces
        .fold(&[(At { offset: 1_100, outside: None }, &step), (At { offset: 1_101, outside: None }, &end)], &defaults);
    assert!(spans.is_empty());
}
