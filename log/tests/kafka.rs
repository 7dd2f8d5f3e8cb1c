//! The client side over the embedded broker: sessions, tails, transactions, administration. Where RIVERRUN_TEST_KAFKA names an Apache Kafka
//! (scripts/apache_kafka.py), over that one instead.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use riverrun_log::admin::{Admin, GroupTopics};
use riverrun_log::{
    AssignedPartition, CommitOffset, EmbeddedBroker, GroupConfig, GroupConsumer, LogConfig, LogError, Outgoing,
    Producer, Record, SessionEvent, StartAt, Tail, TopicPartition, TransactionalProducer, lag,
};
use riverrun_schemas::TopicSpec;
use riverrun_schemas::tokens::{TokenDelta, TokenEvent};
use riverrun_schemas::{RunId, Topic};

const PATIENCE: Duration = Duration::from_secs(90);

static TESTS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The test that this thread does.
    static TEST: Cell<u32> = const { Cell::new(0) };
}

/// A topic's, group's or producer's name that no other test has: they may share a Kafka, also with those of another run.
fn named(what: &str) -> String {
    format!("{what}-{}-{}", std::process::id(), TEST.get())
}

struct Fixture {
    _folder: tempfile::TempDir,
    /// `None` on a Kafka elsewhere.
    broker: Option<EmbeddedBroker>,
    config: LogConfig,
    producer: Producer,
    admin: Admin,
}

async fn given(topics: &[(&str, i32)]) -> Fixture {
    TEST.set(TESTS.fetch_add(1, Ordering::Relaxed));
    let folder = tempfile::tempdir().unwrap();
    let (broker, config) = match std::env::var("RIVERRUN_TEST_KAFKA").ok().filter(|address| !address.is_empty()) {
        Some(address) => (None, LogConfig::new(address, "test")),
        None => {
            let broker = EmbeddedBroker::start(folder.path(), 0).await.unwrap();
            let config = broker.config("test");
            (Some(broker), config)
        }
    };
    let admin = Admin::new(&config).unwrap();
    admin.wait_ready(PATIENCE).await.unwrap();
    let specs: Vec<_> = topics
        .iter()
        .map(|(name, partitions)| TopicSpec { name: named(name), partitions: *partitions, retention_hours: -1 })
        .collect();
    admin.ensure_topics(&specs).await.unwrap();
    admin.ensure_topics(&specs).await.unwrap();
    Fixture { _folder: folder, broker, producer: Producer::new(&config).unwrap(), config, admin }
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new(named("in"), partition)
}

fn out(topic: &str, partition: i32, payload: &str) -> Outgoing {
    Outgoing {
        topic: named(topic).into(),
        partition: Some(partition),
        key: None,
        payload: Some(Bytes::copy_from_slice(payload.as_bytes())),
        headers: vec![("h".into(), b"v".to_vec())],
    }
}

fn text(record: &Record) -> String {
    String::from_utf8(record.payload.clone().unwrap().to_vec()).unwrap()
}

fn member() -> GroupConfig {
    GroupConfig {
        session_timeout: Duration::from_secs(6),
        heartbeat: Duration::from_millis(300),
        ..GroupConfig::new(named("g"), vec![named("in")])
    }
}

/// Events up to the one that `wanted` takes.
async fn until<T>(consumer: &mut GroupConsumer, mut wanted: impl FnMut(SessionEvent) -> Option<T>) -> T {
    let search = async {
        loop {
            if let Some(found) = wanted(consumer.next().await.unwrap()) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, search).await.expect("the event did not come")
}

fn assignment(event: SessionEvent) -> Option<Vec<AssignedPartition>> {
    match event {
        SessionEvent::Assigned(partitions) if !partitions.is_empty() => Some(partitions),
        _ => None,
    }
}

fn record(event: SessionEvent) -> Option<Record> {
    match event {
        SessionEvent::Record(record) => Some(record),
        _ => None,
    }
}

async fn all(config: &LogConfig, partition: TopicPartition) -> Vec<String> {
    Tail::read_range(config, partition, StartAt::Beginning)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap()
        .iter()
        .map(text)
        .collect()
}

/// Deletes what lies before `offset` in partition 0 of `in`, as retention does.
async fn forget_before(config: &LogConfig, offset: i64) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &config.brokers).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&named("in"), 0, Offset::Offset(offset)).unwrap();
    admin.delete_records(&list, &AdminOptions::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_commit_on_its_way_when_a_member_closes_then_it_has_left_its_group() {
    let fixture = given(&[("in", 1)]).await;
    fixture.producer.send_many((0..10).map(|n| out("in", 0, &n.to_string())).collect()).await.unwrap();
    let client: BaseConsumer = ClientConfig::new().set("bootstrap.servers", &fixture.config.brokers).create().unwrap();
    for offset in 1..=10 {
        let mut consumer = GroupConsumer::join(&fixture.config, &member()).unwrap();
        let assigned = until(&mut consumer, assignment).await;
        consumer.start(&[(at(0), assigned[0].default_start())]).unwrap();
        consumer.commit(&[CommitOffset { partition: at(0), offset, metadata: None }]).unwrap();
        consumer.close().await;
        let groups = client.fetch_group_list(Some(named("g").as_str()), PATIENCE).unwrap();
        let members: Vec<&str> = groups.groups().iter().flat_map(|group| group.members()).map(|one| one.id()).collect();
        assert_eq!(members, [""; 0], "after commit {offset}");
    }
}

#[tokio::test]
async fn given_offsets_committed_with_a_note_when_a_member_comes_back_then_it_is_told_both_and_goes_on_from_there() {
    let fixture = given(&[("in", 1)]).await;
    fixture.producer.send_many((0..3).map(|n| out("in", 0, &n.to_string())).collect()).await.unwrap();
    let mut consumer = GroupConsumer::join(&fixture.config, &member()).unwrap();
    let assigned = until(&mut consumer, assignment).await;
    assert_eq!(
        assigned,
        [AssignedPartition { partition: at(0), committed: None, metadata: String::new(), low: 0, high: 3 }]
    );
    consumer.start(&[(at(0), assigned[0].default_start())]).unwrap();
    let first = until(&mut consumer, record).await;
    assert_eq!((text(&first).as_str(), first.offset, first.header("h")), ("0", 0, Some(&b"v"[..])));
    consumer.commit(&[CommitOffset { partition: at(0), offset: 1, metadata: Some("open run at 7".into()) }]).unwrap();
    until(&mut consumer, |event| match event {
        SessionEvent::Committed { partitions, error } => {
            assert!(error.is_none());
            assert_eq!(partitions, [at(0)]);
            Some(())
        }
        _ => None,
    })
    .await;
    let group = [GroupTopics { group: named("g"), topics: vec![named("in")] }];
    assert_eq!(fixture.admin.lag(&group).await.unwrap()[0].lag, 2);
    consumer
        .commit_now(&[CommitOffset { partition: at(0), offset: 2, metadata: Some("open run at 9".into()) }], PATIENCE)
        .await
        .unwrap();
    consumer.close().await;

    let mut consumer = GroupConsumer::join(&fixture.config, &member()).unwrap();
    let assigned = until(&mut consumer, assignment).await;
    assert_eq!((assigned[0].committed, assigned[0].metadata.as_str()), (Some(2), "open run at 9"));
    // Or from anywhere else, as one does who keeps its own offsets.
    consumer.start(&[(at(0), StartAt::Offset(1))]).unwrap();
    assert_eq!(until(&mut consumer, record).await.offset, 1);
}

#[tokio::test]
async fn given_an_offset_that_is_not_on_the_log_when_started_then_it_is_told_and_reading_begins_at_the_first_record() {
    let fixture = given(&[("in", 1)]).await;
    fixture.producer.send_many((0..5).map(|n| out("in", 0, &n.to_string())).collect()).await.unwrap();
    forget_before(&fixture.config, 2).await;
    for wanted in [0, 99] {
        let mut consumer = GroupConsumer::join(&fixture.config, &member()).unwrap();
        until(&mut consumer, assignment).await;
        consumer.start(&[(at(0), StartAt::Offset(wanted))]).unwrap();
        let gap = until(&mut consumer, |event| match event {
            SessionEvent::OutOfRange(gap) => Some(gap),
            SessionEvent::Record(record) => panic!("a record before the gap: {record:?}"),
            _ => None,
        })
        .await;
        assert_eq!((gap.wanted, gap.low, gap.high), (wanted, 2, 5));
        assert_eq!(text(&until(&mut consumer, record).await), "2");
        consumer.close().await;

        let mut tail = Tail::open(&fixture.config, vec![(at(0), StartAt::Offset(wanted))]).await.unwrap();
        assert_eq!(tail.next().await.unwrap_err().code(), "offset_out_of_range");
        assert_eq!(text(&tail.next().await.unwrap()), "2");
    }
}

#[tokio::test]
async fn given_a_lagging_reader_when_records_fall_off_the_log_then_it_is_told_before_the_next_record() {
    let fixture = given(&[("in", 1)]).await;
    // More than a client reads ahead.
    let big = "x".repeat(100_000);
    fixture.producer.send_many((0..400).map(|_| out("in", 0, &big)).collect()).await.unwrap();
    let mut consumer = GroupConsumer::join(&fixture.config, &member()).unwrap();
    until(&mut consumer, assignment).await;
    consumer.start(&[(at(0), StartAt::Beginning)]).unwrap();
    until(&mut consumer, record).await;
    let mut tail = Tail::open(&fixture.config, vec![(at(0), StartAt::Beginning)]).await.unwrap();
    tail.next().await.unwrap();
    forget_before(&fixture.config, 395).await;
    fixture.producer.send_one(out("in", 0, "last")).await.unwrap();

    let mut next = 1;
    let gap = until(&mut consumer, |event| match event {
        SessionEvent::Record(record) => {
            assert_eq!(record.offset, next, "no silent gap");
            next += 1;
            None
        }
        SessionEvent::OutOfRange(gap) => Some(gap),
        _ => None,
    })
    .await;
    assert_eq!((gap.wanted, gap.low), (next, 395));
    assert_eq!(until(&mut consumer, record).await.offset, 395);

    let (mut next, mut told) = (1, false);
    loop {
        match tail.next().await {
            Ok(record) if told => break assert_eq!(record.offset, 395),
            Ok(record) => {
                assert_eq!(record.offset, next, "no silent gap");
                next += 1;
            }
            Err(LogError::OutOfRange { wanted, low, .. }) => {
                assert_eq!((wanted, low), (next, 395));
                told = true;
            }
            Err(error) => assert!(error.retryable(), "{error}"),
        }
    }
}

#[tokio::test]
async fn given_paused_partitions_then_only_the_others_are_read_until_they_are_resumed() {
    let fixture = given(&[("in", 2)]).await;
    let mut consumer = GroupConsumer::join(&fixture.config, &member()).unwrap();
    until(&mut consumer, assignment).await;
    consumer.start(&[(at(0), StartAt::Beginning), (at(1), StartAt::Beginning)]).unwrap();
    consumer.pause(&[at(0)]).unwrap();
    fixture.producer.send_one(out("in", 0, "a")).await.unwrap();
    fixture.producer.send_one(out("in", 1, "b")).await.unwrap();
    assert_eq!(text(&until(&mut consumer, record).await), "b");
    consumer.resume(&[at(0)]).unwrap();
    assert_eq!(text(&until(&mut consumer, record).await), "a");
    consumer.seek(&at(1), 0).unwrap();
    assert_eq!(text(&until(&mut consumer, record).await), "b");
}

#[tokio::test]
async fn given_members_that_go_without_an_answer_then_others_take_their_partitions() {
    let fixture = given(&[("in", 4)]).await;
    // Dropped at once, dropped with an assignment that nobody answered, dropped while reading.
    drop(GroupConsumer::join(&fixture.config, &member()).unwrap());
    let mut unanswered = GroupConsumer::join(&fixture.config, &member()).unwrap();
    until(&mut unanswered, assignment).await;
    drop(unanswered);
    let mut reading = GroupConsumer::join(&fixture.config, &member()).unwrap();
    let partitions = until(&mut reading, assignment).await;
    reading.start(&partitions.iter().map(|p| (p.partition.clone(), StartAt::Beginning)).collect::<Vec<_>>()).unwrap();
    drop(reading);

    let mut last = GroupConsumer::join(&fixture.config, &member()).unwrap();
    let mut mine = HashSet::new();
    while mine.len() < 4 {
        for partition in until(&mut last, assignment).await {
            last.start(&[(partition.partition.clone(), StartAt::Beginning)]).unwrap();
            mine.insert(partition.partition);
        }
    }
}

#[tokio::test]
async fn given_a_static_member_when_it_comes_back_then_it_has_its_partitions_without_waiting_for_its_old_self() {
    let fixture = given(&[("in", 2)]).await;
    let config = GroupConfig { instance: Some("one".into()), session_timeout: PATIENCE * 4, ..member() };
    for _ in 0..3 {
        let mut consumer = GroupConsumer::join(&fixture.config, &config).unwrap();
        let assigned = until(&mut consumer, assignment).await;
        assert_eq!(assigned.len(), 2);
        consumer.start(&[(at(0), StartAt::Beginning), (at(1), StartAt::Beginning)]).unwrap();
        drop(consumer);
    }
}

#[tokio::test]
async fn given_a_transaction_then_its_outputs_and_offsets_appear_together_or_not_at_all() {
    let fixture = given(&[("in", 1), ("out", 1)]).await;
    fixture.producer.send_many((0..2).map(|n| out("in", 0, &n.to_string())).collect()).await.unwrap();
    let mut consumer = GroupConsumer::join(&fixture.config, &member()).unwrap();
    until(&mut consumer, assignment).await;
    consumer.start(&[(at(0), StartAt::Beginning)]).unwrap();
    until(&mut consumer, record).await;
    let producer = TransactionalProducer::open(&fixture.config, &named("tx")).await.unwrap();
    let offset = |offset| [CommitOffset { partition: at(0), offset, metadata: None }];
    let to_nowhere = [out("out", 0, "lost"), out("out", 7, "there is no such partition")];
    assert!(producer.run(&to_nowhere, &offset(2), consumer.metadata().unwrap()).await.is_err());
    producer.run(&[out("out", 0, "kept")], &offset(1), consumer.metadata().unwrap()).await.unwrap();
    let to = TopicPartition::new(named("out"), 0);
    assert_eq!(all(&fixture.config, to.clone()).await, ["kept"], "and the range ends behind the markers");
    let group = [GroupTopics { group: named("g"), topics: vec![named("in")] }];
    assert_eq!(fixture.admin.lag(&group).await.unwrap()[0].committed, Some(1));

    // Whoever takes the transactional id over fences the one before.
    let successor = TransactionalProducer::open(&fixture.config, &named("tx")).await.unwrap();
    let error = producer.run(&[out("out", 0, "zombie")], &offset(2), consumer.metadata().unwrap()).await.unwrap_err();
    assert_eq!(error.code(), "log_fenced");
    successor.run(&[out("out", 0, "next")], &offset(2), consumer.metadata().unwrap()).await.unwrap();
    assert_eq!(all(&fixture.config, to).await, ["kept", "next"]);
}

/// Writes one record to partition 1 of `in` and takes it back.
async fn abort(config: &LogConfig) {
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", &config.brokers).set("transactional.id", named("aborted"));
    // Named here: it is done on another thread.
    let topic = named("in");
    let aborted = move || {
        let producer: BaseProducer = settings.create().unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        producer.begin_transaction().unwrap();
        let record = BaseRecord::<str, str>::to(&topic).partition(1).payload("never");
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(PATIENCE).unwrap();
        producer.abort_transaction(PATIENCE).unwrap();
    };
    tokio::task::spawn_blocking(aborted).await.unwrap();
}

#[tokio::test]
async fn given_marks_of_transactions_behind_the_last_record_when_all_is_read_then_a_member_may_commit_behind_them() {
    let fixture = given(&[("in", 3)]).await;
    let mut consumer = GroupConsumer::join(&fixture.config, &member()).unwrap();
    until(&mut consumer, assignment).await;
    consumer.start(&[0, 1, 2].map(|n| (at(n), StartAt::Beginning))).unwrap();
    let producer = TransactionalProducer::open(&fixture.config, &named("tx")).await.unwrap();
    producer.run(&[out("in", 0, "a")], &[], consumer.metadata().unwrap()).await.unwrap();
    abort(&fixture.config).await;
    fixture.producer.send_one(out("in", 2, "no mark behind it")).await.unwrap();

    let (mut records, mut passed) = (Vec::new(), BTreeMap::new());
    until(&mut consumer, |event| {
        match event {
            SessionEvent::Record(record) => records.push((record.partition, record.offset)),
            SessionEvent::Passed { partition, next } => {
                assert!(passed.insert(partition.partition, next).is_none(), "told twice");
            }
            _ => {}
        }
        (passed.len() == 2 && records.len() == 2).then_some(())
    })
    .await;
    records.sort_unstable();
    assert_eq!((records, &passed), (vec![(0, 0), (2, 0)], &BTreeMap::from([(0, 2), (1, 2)])));
    assert_eq!([0, 1, 2].map(|n| consumer.position(&at(n))), [Some(2), Some(2), Some(1)]);
    let ends: Vec<_> =
        [(0, 2), (1, 2), (2, 1)].map(|(n, offset)| CommitOffset { partition: at(n), offset, metadata: None }).into();
    consumer.commit_now(&ends, PATIENCE).await.unwrap();
    let group = [GroupTopics { group: named("g"), topics: vec![named("in")] }];
    assert!(fixture.admin.lag(&group).await.unwrap().iter().all(|line| line.lag == 0));

    // A mark that a record follows needs no word of its own.
    producer.run(&[out("in", 0, "b")], &[], consumer.metadata().unwrap()).await.unwrap();
    producer.run(&[out("in", 0, "c")], &[], consumer.metadata().unwrap()).await.unwrap();
    let mut later = Vec::new();
    until(&mut consumer, |event| {
        match event {
            SessionEvent::Record(record) => later.push(record.offset),
            SessionEvent::Passed { partition, next } => {
                assert_eq!((partition, later.last()), (at(0), Some(&(next - 2))))
            }
            _ => {}
        }
        (later.len() == 2).then_some(())
    })
    .await;
    assert_eq!(later, [2, 4]);
    // Who is moved back is not told the position of before.
    consumer.seek(&at(0), 0).unwrap();
    let mut again = Vec::new();
    until(&mut consumer, |event| match event {
        SessionEvent::Record(record) => {
            again.push(record.offset);
            None
        }
        SessionEvent::Passed { next, .. } => {
            assert_eq!((again.as_slice(), next), (&[0, 2, 4][..], 6));
            Some(())
        }
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn given_groups_when_the_broker_of_this_process_is_asked_then_it_says_what_a_client_is_told() {
    let fixture = given(&[("in", 2)]).await;
    let Some(broker) = &fixture.broker else { return };
    fixture.producer.send_many(vec![out("in", 0, "a"), out("in", 0, "b"), out("in", 1, "c")]).await.unwrap();
    let mut consumer = GroupConsumer::join(&fixture.config, &member()).unwrap();
    until(&mut consumer, assignment).await;
    consumer.start(&[(at(0), StartAt::Beginning), (at(1), StartAt::Beginning)]).unwrap();
    let commit = |partition, offset| [CommitOffset { partition: at(partition), offset, metadata: None }];
    consumer.commit_now(&commit(0, 1), PATIENCE).await.unwrap();
    // The marker of a transaction takes an offset too.
    let producer = TransactionalProducer::open(&fixture.config, &named("tx")).await.unwrap();
    producer.run(&[out("in", 1, "d")], &commit(1, 1), consumer.metadata().unwrap()).await.unwrap();

    let of = |group: &str| GroupTopics { group: named(group), topics: vec![named("in")] };
    let groups = [of("g"), of("nobody")];
    let (figures, told) = (broker.figures(), fixture.admin.lag(&groups).await.unwrap());
    assert_eq!(lag::of_groups(&figures, &groups).unwrap(), told);
    assert_eq!((told[0].lag, told[0].committed, told[2].lag, told[2].committed), (1, Some(1), 2, None));
    let ends = fixture.admin.ends(vec![at(0), at(1)]).await.unwrap();
    assert_eq!(lag::ends(&figures, &[at(0), at(1), TopicPartition::new("nowhere", 0)]), ends);
}

#[tokio::test]
async fn given_a_producer_that_has_rested_when_it_writes_again_then_it_hears_of_it() {
    let fixture = given(&[("in", 1)]).await;
    for n in 0..2 {
        assert_eq!(fixture.producer.send_one(out("in", 0, "x")).await.unwrap().offset, n);
        // Longer than its thread looks for reports.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
}

#[tokio::test]
async fn given_a_tail_then_it_begins_where_it_is_told_and_follows() {
    let fixture = given(&[("in", 2)]).await;
    fixture.producer.send_many(vec![out("in", 0, "a"), out("in", 0, "b"), out("in", 1, "c")]).await.unwrap();
    let starts = vec![(at(0), StartAt::Offset(1)), (at(1), StartAt::End)];
    let mut tail = Tail::open(&fixture.config, starts).await.unwrap();
    assert_eq!(tail.end_offsets().await.unwrap(), [(at(0), 2), (at(1), 1)].into());
    assert_eq!(text(&tail.next().await.unwrap()), "b");
    fixture.producer.send_one(out("in", 1, "d")).await.unwrap();
    let last = tail.next().await.unwrap();
    assert_eq!((text(&last).as_str(), last.offset), ("d", 1));
    assert_eq!(all(&fixture.config, at(0)).await, ["a", "b"]);
    let empty = Tail::read_range(&fixture.config, at(0), StartAt::End).await.unwrap();
    assert!(empty.collect().await.unwrap().is_empty());
    let nowhere =
        Tail::open(&fixture.config, vec![(TopicPartition::new(named("nowhere"), 0), StartAt::Beginning)]).await;
    assert!(nowhere.is_err());
}

#[tokio::test]
async fn given_an_event_over_the_limit_then_it_is_refused_with_the_fix() {
    let fixture = given(&[]).await;
    let tokens = TopicSpec { name: Topic::Tokens.name().to_owned(), partitions: 1, retention_hours: -1 };
    fixture.admin.ensure_topics(&[tokens]).await.unwrap();
    let event = |len| TokenEvent::from(TokenDelta { run_id: RunId::derive(&["r"]), seq: 1, text: "x".repeat(len) });
    fixture.producer.send(&event(200_000), "test", None).await.unwrap();
    let error = fixture.producer.send(&event(300_000), "test", None).await.unwrap_err();
    assert_eq!(error.code(), "event_too_large");
    assert!(!error.retryable() && error.to_string().contains("blob store"));
}

#[tokio::test]
async fn given_no_broker_then_waiting_for_one_says_where_it_looked() {
    let admin = Admin::new(&LogConfig::new("127.0.0.1:1", "test")).unwrap();
    let error = admin.wait_ready(Duration::from_millis(200)).await.unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1") && error.retryable(), "{error}");
}
