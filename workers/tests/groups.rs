//! Order, sharing, stopping and dying: nothing is lost, and nothing that was committed comes again.

mod echo;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use echo::{Echo, PER_KEY, PER_PARTITION, command, commands, source};
use riverrun_log::{
    GroupConfig, GroupConsumer, LogConfig, Outgoing, Producer, StartAt, Tail, TopicPartition, TransactionalProducer,
};
use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::{Envelope, Topic};
use riverrun_workers::runtime::testkit::{Stack, eventually};
use riverrun_workers::runtime::{DeliveryMode, Lanes, RuntimeConfig, WorkerState, spawn};
use tokio_util::sync::CancellationToken;

const TOPIC: Topic = Topic::IngestCommands;

/// How often each event id is on the topic, by the source it tells of.
async fn copies(stack: &Stack) -> BTreeMap<String, usize> {
    let mut copies = BTreeMap::new();
    for event in stack.events::<IngestEvent>().await {
        *copies.entry(source(&event)).or_default() += 1;
    }
    copies
}

fn sources(commands: &[riverrun_schemas::ingest::IngestCommand]) -> BTreeSet<String> {
    let of = |command: &riverrun_schemas::ingest::IngestCommand| match command {
        riverrun_schemas::ingest::IngestCommand::SubmitDocument(submit) => submit.source.clone(),
        other => panic!("unexpected {other:?}"),
    };
    commands.iter().map(of).collect()
}

#[tokio::test]
async fn given_many_keys_on_parallel_lanes_then_each_key_keeps_its_order_and_lanes_run_beside_each_other() {
    for lanes in [PER_KEY, PER_PARTITION] {
        let stack = Stack::start().await;
        let echo = Echo { pause: Duration::from_millis(1), ..Echo::new(lanes) };
        let all = commands(20, 10);
        stack.send(&all).await;
        let stop = CancellationToken::new();
        let handle = spawn(echo.clone(), stack.config(), stop.clone());
        stack.drained("echo", TOPIC).await;
        let done = echo.done.lock().clone();
        assert_eq!(done.len(), all.len(), "each once");
        for document in 0..20 {
            let prefix = format!("d{document}/");
            let numbers: Vec<_> = done
                .iter()
                .filter(|s| s.starts_with(&prefix))
                .map(|s| s.split('/').nth(1).unwrap().parse::<usize>().unwrap())
                .collect();
            assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        }
        assert!(echo.most_working.load(std::sync::atomic::Ordering::SeqCst) > 1);
        stop.cancel();
        handle.join().await.unwrap();
    }
}

#[tokio::test]
async fn given_two_instances_when_one_stops_then_the_other_takes_over_and_nothing_is_lost_or_doubled() {
    for mode in [DeliveryMode::AtLeastOnce, DeliveryMode::Transactional] {
        let stack = Stack::start().await;
        let echo = Echo { mode, pause: Duration::from_millis(1), ..Echo::new(PER_KEY) };
        let (stop_first, stop_second) = (CancellationToken::new(), CancellationToken::new());
        let first = spawn(echo.clone(), stack.config(), stop_first.clone());
        let second = spawn(echo.clone(), stack.config(), stop_second.clone());
        eventually("both have partitions", || async {
            (first.status().partitions == 3 && second.status().partitions == 3).then_some(())
        })
        .await;
        let all = commands(30, 10);
        let (before, after) = all.split_at(200);
        stack.send(before).await;
        eventually("half of it", || async { (echo.done.lock().len() > 100).then_some(()) }).await;
        stop_first.cancel();
        first.join().await.unwrap();
        stack.send(after).await;
        eventually("all partitions", || async { (second.status().partitions == 6).then_some(()) }).await;
        stack.drained("echo", TOPIC).await;
        let copies = copies(&stack).await;
        assert_eq!(copies.keys().cloned().collect::<BTreeSet<_>>(), sources(&all));
        assert!(copies.values().all(|n| *n == 1), "{mode:?}: a graceful stop repeats nothing");
        stop_second.cancel();
        second.join().await.unwrap();
    }
}

/// One past the last offset of each partition, marks of transactions included.
async fn ends(stack: &Stack) -> BTreeMap<TopicPartition, i64> {
    let partitions = (0..TOPIC.spec().partitions).map(|n| (TopicPartition::new(TOPIC.name(), n), StartAt::End));
    let tail = Tail::open(stack.log(), partitions.collect()).await.unwrap();
    tail.ends_at_open().iter().map(|(partition, end)| (partition.clone(), *end)).collect()
}

#[tokio::test]
async fn given_commands_that_were_written_in_transactions_when_all_are_handled_then_nothing_is_left_and_nothing_is_written_for_it()
 {
    for mode in [DeliveryMode::AtLeastOnce, DeliveryMode::Transactional] {
        let stack = Stack::start().await;
        let all = commands(20, 3);
        let writer =
            GroupConsumer::join(stack.log(), &GroupConfig::new("writer", vec![TOPIC.name().to_owned()])).unwrap();
        let producer = TransactionalProducer::open(stack.log(), "writer").await.unwrap();
        for some in all.chunks(20) {
            let outputs: Vec<_> = some.iter().map(|command| Outgoing::event(command, "test", None).unwrap()).collect();
            producer.run(&outputs, &[], writer.metadata().unwrap()).await.unwrap();
        }
        drop(writer);
        let before = ends(&stack).await;
        assert!(before.values().sum::<i64>() > 60, "there are marks beside the records");
        let echo = Echo { mode, ..Echo::new(PER_KEY) };
        let stop = CancellationToken::new();
        let handle = spawn(echo.clone(), stack.config(), stop.clone());
        // Not one offset is left, although the last of a partition is of a mark.
        stack.drained("echo", TOPIC).await;
        assert_eq!(echo.done.lock().len(), 60, "{mode:?}");
        assert_eq!(ends(&stack).await, before, "{mode:?}: a commit is not on the topic that is read");
        stop.cancel();
        handle.join().await.unwrap();
    }
}

#[tokio::test]
async fn given_a_worker_that_dies_then_its_successor_repeats_only_what_was_not_committed() {
    for mode in [DeliveryMode::AtLeastOnce, DeliveryMode::Transactional] {
        let stack = Stack::start().await;
        let first = Echo { mode, ..Echo::new(PER_KEY) };
        stack.send(&commands(10, 5)).await;
        let handle = spawn(first.clone(), stack.config(), CancellationToken::new());
        stack.drained("echo", TOPIC).await;
        // Its work hangs: nothing of this is committed when it dies.
        let held: Vec<_> = (0..10).map(|n| command(&format!("d{n}"), 5, "hold")).collect();
        stack.send(&held).await;
        eventually("work in progress", || async {
            (first.working.load(std::sync::atomic::Ordering::SeqCst) > 0).then_some(())
        })
        .await;
        handle.kill();

        let second = Echo { mode, ..Echo::new(PER_KEY) };
        let stop = CancellationToken::new();
        let handle = spawn(second.clone(), stack.config(), stop.clone());
        eventually("the rest", || async {
            second.release.notify_waiters();
            (second.done.lock().len() == 10).then_some(())
        })
        .await;
        stack.drained("echo", TOPIC).await;
        assert_eq!(second.done.lock().iter().cloned().collect::<BTreeSet<_>>(), sources(&held));
        assert!(copies(&stack).await.values().all(|n| *n == 1));
        stop.cancel();
        handle.join().await.unwrap();
    }
}

#[tokio::test]
async fn given_work_in_progress_when_asked_to_stop_then_it_is_ended_committed_and_nothing_new_is_begun() {
    let stack = Stack::start().await;
    let echo = Echo { pause: Duration::from_millis(50), ..Echo::new(Lanes::PerKey { parallel: 1, max_batch: 1 }) };
    stack.send(&commands(1, 20)).await;
    let stop = CancellationToken::new();
    let handle = spawn(echo.clone(), stack.config(), stop.clone());
    eventually("a beginning", || async { (!echo.done.lock().is_empty()).then_some(()) }).await;
    stop.cancel();
    handle.join().await.unwrap();
    let done = echo.done.lock().len() as i64;
    assert!(done < 20);
    assert_eq!(stack.lag("echo", TOPIC).await, 20 - done);
    assert_eq!(stack.events::<IngestEvent>().await.len() as i64, done);
}

#[tokio::test]
async fn given_work_that_does_not_end_when_asked_to_stop_then_it_is_dropped_in_time_and_comes_again() {
    let stack = Stack::start().await;
    let config = RuntimeConfig { stop_patience: Duration::from_millis(100), ..stack.config() };
    let echo = Echo::new(PER_KEY);
    stack.send(&[command("a", 0, "hold"), command("b", 0, "ok")]).await;
    let stop = CancellationToken::new();
    let handle = spawn(echo.clone(), config, stop.clone());
    stack.wait_for_events::<IngestEvent>(1).await;
    stop.cancel();
    handle.join().await.unwrap();
    assert_eq!(stack.lag("echo", TOPIC).await, 1);
}

#[tokio::test]
async fn given_more_than_the_queue_holds_then_partitions_pause_and_everything_is_handled_once() {
    let stack = Stack::start().await;
    let config = RuntimeConfig { queue_records: 8, ..stack.config() };
    let echo = Echo::new(PER_KEY);
    let all = commands(40, 25);
    stack.send(&all).await;
    let stop = CancellationToken::new();
    let handle = spawn(echo.clone(), config, stop.clone());
    eventually("everything", || async {
        assert!(handle.status().in_work <= 6 * 16, "the queue is bounded");
        (echo.done.lock().len() >= all.len()).then_some(())
    })
    .await;
    stack.drained("echo", TOPIC).await;
    assert_eq!(echo.done.lock().len(), all.len());
    stop.cancel();
    handle.join().await.unwrap();
}

#[tokio::test]
async fn given_a_broker_that_goes_and_comes_back_then_work_goes_on_and_the_worker_says_both() {
    for mode in [DeliveryMode::AtLeastOnce, DeliveryMode::Transactional] {
        let mut stack = Stack::start().await;
        let echo = Echo { mode, ..Echo::new(PER_KEY) };
        let stop = CancellationToken::new();
        let handle = spawn(echo.clone(), stack.config(), stop.clone());
        stack.send(&commands(10, 2)).await;
        stack.drained("echo", TOPIC).await;
        stack
            .without_broker(async {
                eventually("trouble", || async { (handle.status().state == WorkerState::Troubled).then_some(()) })
                    .await;
            })
            .await;
        let more: Vec<_> = (0..10).map(|n| command(&format!("d{n}"), 2, "ok")).collect();
        stack.send(&more).await;
        stack.drained("echo", TOPIC).await;
        eventually("health", || async { (handle.status().state == WorkerState::Running).then_some(()) }).await;
        assert_eq!(copies(&stack).await.len(), 30);
        assert_eq!(handle.lag().await.unwrap().values().sum::<i64>(), 0);
        stop.cancel();
        handle.join().await.unwrap();
    }
}

#[tokio::test]
async fn given_an_event_when_answered_then_the_answer_names_its_cause_and_goes_on_with_its_trace() {
    let stack = Stack::start().await;
    let mut outgoing = Outgoing::event(&command("a", 0, "ok"), "test", None).unwrap();
    outgoing.headers.push(("traceparent".into(), b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_vec()));
    let id = outgoing.event_id();
    stack.send_records(vec![outgoing]).await;
    let stop = CancellationToken::new();
    let handle = spawn(Echo::new(PER_KEY), stack.config(), stop.clone());
    stack.wait_for_events::<IngestEvent>(1).await;
    let envelope: Envelope = stack.records(Topic::IngestEvents.name()).await[0].envelope();
    assert_eq!(envelope.cause, Some(id));
    assert!(envelope.traceparent.unwrap().contains("0af7651916cd43dd8448eb211c80319c"));
    stop.cancel();
    handle.join().await.unwrap();
}

#[tokio::test]
async fn given_a_log_that_is_away_when_a_worker_of_transactions_is_stopped_between_two_tries_then_it_ends() {
    let log = LogConfig::new("127.0.0.1:1", "test");
    let pause = Duration::from_secs(3600);
    let usual = RuntimeConfig::new(log.clone(), Producer::new(&log).unwrap());
    let config = RuntimeConfig { backoff_base: pause, backoff_max: pause, ..usual };
    let stop = CancellationToken::new();
    let handle = spawn(Echo { mode: DeliveryMode::Transactional, ..Echo::new(PER_KEY) }, config, stop.clone());
    eventually("its first failure", || async { handle.status().trouble }).await;
    stop.cancel();
    handle.join().await.unwrap();
}
