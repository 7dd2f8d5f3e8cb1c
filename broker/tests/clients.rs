//! Stock clients against the broker: what a user of Kafka expects to work.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::*;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use riverrun_broker::Broker;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_records_of_every_codec_when_consumed_then_they_are_the_same_in_order() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    for (codec, partition) in [("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)] {
        let producer: rdkafka::producer::FutureProducer = client(broker.local_addr())
            .set("compression.type", codec)
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .create()
            .unwrap();
        admin(&broker)
            .create_topics(&[NewTopic::new(codec, 5, TopicReplication::Fixed(1))], &AdminOptions::new())
            .await
            .unwrap();
        let sent = (0..100).map(|i| {
            let (producer, codec) = (producer.clone(), codec.to_owned());
            async move {
                let headers = OwnedHeaders::new().insert(Header { key: "i", value: Some(&i.to_string()) });
                let (key, value) = (format!("k{i}"), format!("value {i}"));
                let record = FutureRecord::to(&codec).partition(partition).key(&key).payload(&value).headers(headers);
                producer.send(record, PATIENCE).await.unwrap();
            }
        });
        futures::future::join_all(sent).await;
        let messages = read_all(broker.local_addr(), codec, 5, "read_committed").await;
        assert_eq!(messages.len(), 100, "{codec}");
        for (at, message) in messages.iter().enumerate() {
            assert_eq!((message.offset(), message.partition()), (at as i64, partition));
            assert_eq!(message.headers().unwrap().get(0).value.unwrap(), at.to_string().as_bytes());
        }
    }
    broker.shutdown().await;
}

fn admin(broker: &riverrun_broker::Broker) -> AdminClient<DefaultClientContext> {
    client(broker.local_addr()).create().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_topics_when_administered_then_each_change_shows() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let (admin, options) = (admin(&broker), AdminOptions::new());
    let topic = || NewTopic::new("t", 2, TopicReplication::Fixed(1)).set("retention.ms", "1000");
    assert!(admin.create_topics(&[topic()], &options).await.unwrap()[0].is_ok());
    assert!(admin.create_topics(&[topic()], &options).await.unwrap()[0].is_err(), "exists already");
    for bad in [
        NewTopic::new("a/b", 1, TopicReplication::Fixed(1)),
        NewTopic::new("x", 1, TopicReplication::Fixed(2)),
        NewTopic::new("y", 1, TopicReplication::Fixed(1)).set("no.such.setting", "1"),
    ] {
        assert!(admin.create_topics(&[bad], &options).await.unwrap()[0].is_err());
    }
    let specifier = ResourceSpecifier::Topic("t");
    let described = admin.describe_configs(&[specifier], &options).await.unwrap().remove(0).unwrap();
    assert_eq!(described.get("retention.ms").unwrap().value.as_deref(), Some("1000"));
    let change = AlterConfig::new(ResourceSpecifier::Topic("t")).set("retention.ms", "2000");
    assert!(admin.alter_configs(&[change], &options).await.unwrap()[0].is_ok());
    let described =
        admin.describe_configs(&[ResourceSpecifier::Topic("t")], &options).await.unwrap().remove(0).unwrap();
    assert_eq!(described.get("retention.ms").unwrap().value.as_deref(), Some("2000"));
    assert!(admin.create_partitions(&[NewPartitions::new("t", 4)], &options).await.unwrap()[0].is_ok());
    assert_eq!(broker.topics()[0].partitions.len(), 4);
    let producer = producer(broker.local_addr());
    for i in 0..10 {
        send(&producer, "t", 0, "k", &i.to_string()).await;
    }
    let mut before = TopicPartitionList::new();
    before.add_partition_offset("t", 0, Offset::Offset(4)).unwrap();
    admin.delete_records(&before, &options).await.unwrap();
    let messages = read_all(broker.local_addr(), "t", 1, "read_uncommitted").await;
    assert_eq!(messages.iter().map(Message::offset).collect::<Vec<_>>(), (4..10).collect::<Vec<_>>());
    assert!(admin.delete_topics(&["t"], &options).await.unwrap()[0].is_ok());
    assert!(broker.topics().is_empty());
    // Restarted, everything is as it was left.
    broker.shutdown().await;
    let broker = start(&folder).await;
    assert!(broker.topics().is_empty());
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_timestamps_when_offsets_are_asked_by_time_then_the_first_at_or_after_is_found() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let producer = producer(broker.local_addr());
    // Recent, or retention would take the records.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let base = i64::try_from(now.as_millis()).unwrap() - 3_600_000;
    for i in 0..50 {
        let record = FutureRecord::<str, str>::to("times").payload("x").timestamp(base + i * 1000);
        producer.send(record, PATIENCE).await.unwrap();
    }
    let consumer = Arc::new(reader(broker.local_addr(), "times", 1, "read_uncommitted"));
    for (asked, expected) in [
        (base - 5, Offset::Offset(0)),
        (base + 20_500, Offset::Offset(21)),
        (base + 49_000, Offset::Offset(49)),
        (base + 60_000, Offset::End),
    ] {
        let mut times = TopicPartitionList::new();
        times.add_partition_offset("times", 0, Offset::Offset(asked)).unwrap();
        let asking = consumer.clone();
        let found = blocking(move || asking.offsets_for_times(times, PATIENCE)).await.unwrap();
        assert_eq!(found.elements()[0].offset(), expected, "at {asked}");
    }
    broker.shutdown().await;
}

fn member(broker: &riverrun_broker::Broker, strategy: &str, instance: Option<&str>) -> Arc<StreamConsumer> {
    let mut config = client(broker.local_addr());
    config
        .set("group.id", "g")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "2000")
        .set("heartbeat.interval.ms", "200")
        .set("fetch.wait.max.ms", "100")
        .set("partition.assignment.strategy", strategy);
    if let Some(instance) = instance {
        config.set("group.instance.id", instance);
    }
    let consumer: StreamConsumer = config.create().unwrap();
    consumer.subscribe(&["t"]).unwrap();
    let consumer = Arc::new(consumer);
    let polling = Arc::downgrade(&consumer);
    tokio::spawn(async move {
        while let Some(consumer) = polling.upgrade() {
            if let Ok(Ok(message)) = tokio::time::timeout(Duration::from_millis(50), consumer.recv()).await {
                let _ = consumer.commit_message(&message, CommitMode::Async);
            }
        }
    });
    consumer
}

fn owned(consumers: &[Arc<StreamConsumer>]) -> Vec<BTreeSet<i32>> {
    let of = |consumer: &Arc<StreamConsumer>| {
        consumer.assignment().map(|list| list.elements().iter().map(|e| e.partition()).collect()).unwrap_or_default()
    };
    consumers.iter().map(of).collect()
}

fn is_shared_out(consumers: &[Arc<StreamConsumer>], partitions: usize) -> bool {
    let owned = owned(consumers);
    let distinct: BTreeSet<i32> = owned.iter().flatten().copied().collect();
    let total: usize = owned.iter().map(BTreeSet::len).sum();
    distinct.len() == partitions && total == partitions && owned.iter().all(|one| !one.is_empty())
}

async fn members_share(strategy: &str) {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let topic = NewTopic::new("t", 6, TopicReplication::Fixed(1));
    admin(&broker).create_topics(&[topic], &AdminOptions::new()).await.unwrap();
    let producer = producer(broker.local_addr());
    let mut consumers = Vec::new();
    for _ in 0..3 {
        consumers.push(member(&broker, strategy, None));
        eventually("a shared out topic", || is_shared_out(&consumers, 6)).await;
    }
    for i in 0..30 {
        send(&producer, "t", i % 6, "k", &i.to_string()).await;
    }
    let committed =
        || broker.groups().iter().flat_map(|group| group.offsets.clone()).map(|(_, _, offset, _)| offset).sum::<i64>();
    eventually("all committed", || committed() == 30).await;
    let info = broker.groups().remove(0);
    assert_eq!((info.id.as_str(), info.state, info.members.len()), ("g", "Stable", 3));
    // One leaves.
    drop(consumers.pop());
    eventually("a shared out topic again", || is_shared_out(&consumers, 6)).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_an_eager_group_when_members_come_and_go_then_each_partition_has_one_owner() {
    members_share("range").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_cooperative_group_when_members_come_and_go_then_each_partition_has_one_owner() {
    members_share("cooperative-sticky").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_offsets_that_have_had_their_time_when_the_last_member_goes_then_they_go_and_the_group_is_forgotten() {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    config.offsets_retention = Duration::ZERO;
    config.housekeeping_interval = Duration::from_millis(20);
    let broker = Broker::start(config).await.unwrap();
    let producer = producer(broker.local_addr());
    send(&producer, "t", 0, "k", "first").await;
    let consumer = member(&broker, "range", None);
    let committed = || broker.groups().first().and_then(|group| group.offsets.first().map(|(_, _, offset, _)| *offset));
    eventually("the first is committed", || committed() == Some(1)).await;
    // Housekeeping has come by many times when this one is committed, too.
    send(&producer, "t", 0, "k", "second").await;
    eventually("the second is committed", || committed() == Some(2)).await;
    drop(consumer);
    eventually("the group is forgotten", || broker.groups().is_empty()).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_static_member_when_it_comes_back_then_the_group_does_not_rebalance() {
    for assignor in ["range", "cooperative-sticky"] {
        let folder = TempDir::new().unwrap();
        let broker = start(&folder).await;
        let topic = NewTopic::new("t", 4, TopicReplication::Fixed(1));
        admin(&broker).create_topics(&[topic], &AdminOptions::new()).await.unwrap();
        let mut consumers = vec![member(&broker, assignor, Some("a")), member(&broker, assignor, Some("b"))];
        eventually("a shared out topic", || is_shared_out(&consumers, 4)).await;
        let before = owned(&consumers);
        // A static member does not leave when it closes, and takes its partitions again when it is back.
        drop(consumers.pop());
        consumers.push(member(&broker, assignor, Some("b")));
        eventually("the same owners", || owned(&consumers) == before).await;
        broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_transactions_when_committed_aborted_and_fenced_then_read_committed_sees_the_committed_ones() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let address = broker.local_addr();
    let topic = NewTopic::new("t", 2, TopicReplication::Fixed(1));
    admin(&broker).create_topics(&[topic], &AdminOptions::new()).await.unwrap();
    let transactional = move || {
        let producer: rdkafka::producer::FutureProducer = client(address)
            .set("transactional.id", "x")
            .set("transaction.timeout.ms", "10000")
            .set("message.timeout.ms", "5000")
            .create()
            .unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        producer
    };
    let first = blocking(transactional).await;
    let run = async |producer: &rdkafka::producer::FutureProducer, word: &str, commit: bool| {
        producer.begin_transaction().unwrap();
        for partition in 0..2 {
            send(producer, "t", partition, "k", word).await;
        }
        let ending = producer.clone();
        blocking(move || if commit { ending.commit_transaction(PATIENCE) } else { ending.abort_transaction(PATIENCE) })
            .await
    };
    run(&first, "one", true).await.unwrap();
    run(&first, "aborted", false).await.unwrap();
    run(&first, "two", true).await.unwrap();
    // Left open, then fenced by a successor.
    first.begin_transaction().unwrap();
    send(&first, "t", 0, "k", "orphan").await;
    let committed = |mut words: Vec<String>| {
        words.sort();
        words
    };
    let expected = ["one", "one", "two", "two"].map(String::from).to_vec();
    let seen = values(&read_all(address, "t", 2, "read_committed").await);
    assert_eq!(committed(seen), expected);
    let second = blocking(transactional).await;
    assert!(
        blocking({
            let first = first.clone();
            move || first.commit_transaction(PATIENCE)
        })
        .await
        .is_err(),
        "fenced"
    );
    run(&second, "three", true).await.unwrap();
    let expected = ["one", "one", "three", "three", "two", "two"].map(String::from).to_vec();
    assert_eq!(committed(values(&read_all(address, "t", 2, "read_committed").await)), expected);
    let everything = read_all(address, "t", 2, "read_uncommitted").await;
    assert_eq!(everything.len(), 9, "aborted records are there for who wants them");
    // And after a start.
    broker.shutdown().await;
    let broker = start(&folder).await;
    assert_eq!(committed(values(&read_all(broker.local_addr(), "t", 2, "read_committed").await)), expected);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_offsets_in_a_transaction_when_it_ends_then_they_count_only_if_it_commits() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let address = broker.local_addr();
    let plain = producer(address);
    for i in 0..5 {
        send(&plain, "in", 0, "k", &i.to_string()).await;
    }
    let consumer: StreamConsumer = client(address)
        .set("group.id", "g")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    consumer.subscribe(&["in"]).unwrap();
    tokio::time::timeout(PATIENCE, consumer.recv()).await.unwrap().unwrap();
    let metadata = Arc::new(consumer.group_metadata().unwrap());
    let transactional: rdkafka::producer::FutureProducer =
        client(address).set("transactional.id", "y").create().unwrap();
    let initial = transactional.clone();
    blocking(move || initial.init_transactions(PATIENCE)).await.unwrap();
    let offset = |broker: &riverrun_broker::Broker| {
        broker.groups().iter().flat_map(|group| group.offsets.clone()).map(|(_, _, offset, _)| offset).next()
    };
    for (position, commit, expected) in [(2, false, None), (3, true, Some(3)), (4, false, Some(3))] {
        transactional.begin_transaction().unwrap();
        send(&transactional, "out", 0, "k", "x").await;
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset("in", 0, Offset::Offset(position)).unwrap();
        let (ending, metadata) = (transactional.clone(), metadata.clone());
        blocking(move || {
            ending.send_offsets_to_transaction(&offsets, &metadata, PATIENCE).unwrap();
            if commit {
                ending.commit_transaction(PATIENCE).unwrap()
            } else {
                ending.abort_transaction(PATIENCE).unwrap()
            }
        })
        .await;
        assert_eq!(offset(&broker), expected);
    }
    broker.shutdown().await;
    let broker = start(&folder).await;
    assert_eq!(offset(&broker), Some(3));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_reader_that_waits_when_it_asks_something_else_then_it_is_answered_before_the_wait_is_over() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let (address, options) = (broker.local_addr(), AdminOptions::new());
    admin(&broker).create_topics(&[NewTopic::new("t", 1, TopicReplication::Fixed(1))], &options).await.unwrap();
    let consumer: StreamConsumer = client(address)
        .set("group.id", "readers")
        .set("fetch.wait.max.ms", "60000")
        // Who gathers is taken at its word about the wait.
        .set("fetch.min.bytes", "100000")
        .create()
        .unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset("t", 0, Offset::Offset(0)).unwrap();
    consumer.assign(&assignment).unwrap();
    let consumer = Arc::new(consumer);
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(300), consumer.recv()).await.is_err(), "nothing to read");
        let asked = consumer.clone();
        let bounds = blocking(move || asked.fetch_watermarks("t", 0, PATIENCE)).await;
        assert_eq!(bounds.unwrap(), (0, 0));
    }
    // What is there when the wait ends is sent, even if it is less than was wanted.
    send(&producer(address), "t", 0, "k", "v").await;
    let asked = consumer.clone();
    blocking(move || asked.fetch_watermarks("t", 0, PATIENCE)).await.unwrap();
    let message = tokio::time::timeout(PATIENCE, consumer.recv()).await.unwrap().unwrap();
    assert_eq!(message.payload(), Some(b"v".as_slice()));
}
