//! What is to go goes, by age, by size or by a newer record of its key, and nothing else.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_retention_when_time_or_size_is_exceeded_then_old_segments_go_and_new_records_stay() {
    for setting in [("retention.bytes", "3000"), ("retention.ms", "600000")] {
        let folder = TempDir::new().unwrap();
        let mut config = config(&folder);
        config.housekeeping_interval = Duration::from_millis(50);
        let broker = Broker::start(config).await.unwrap();
        create(&broker, "t", 1, &[("segment.bytes", "1000"), setting]).await;
        let producer = producer(broker.local_addr());
        // Written an hour ago, as far as the records say.
        let old =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64 - 3_600_000;
        for i in 0..100 {
            let value = format!("old {i}");
            let record = FutureRecord::to("t").partition(0).key("k").payload(&value).timestamp(old);
            producer.send(record, PATIENCE).await.unwrap();
        }
        send(&producer, "t", 0, "k", "new").await;
        let stats = || broker.topics()[0].partitions[0].clone();
        eventually("retention", || stats().start_offset > 20 && stats().size_bytes < 5000).await;
        let messages = read_all(broker.local_addr(), "t", 1, "read_committed").await;
        assert_eq!(values(&messages).last().map(String::as_str), Some("new"));
        assert_eq!(messages[0].offset(), stats().start_offset);
        broker.shutdown().await;
        let broker = start(&folder).await;
        assert!(broker.topics()[0].partitions[0].start_offset > 20);
        assert_eq!(send(&self::producer(broker.local_addr()), "t", 0, "k", "next").await, 101);
        broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_records_without_a_time_when_retention_passes_then_it_counts_from_when_they_came() {
    const OLD: i64 = 20;
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    create(&broker, "t", 1, &[("segment.bytes", "1000"), ("retention.ms", "-1")]).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut stream = connect(address);
        for i in 0..60 {
            assert_eq!(wire::produce(&mut stream, "t", if i < OLD { 1_000 } else { -1 }), (0, i));
        }
    })
    .await;
    let admin: AdminClient<DefaultClientContext> = client(address).create().unwrap();
    let change =
        AlterConfig::new(ResourceSpecifier::Topic("t")).set("segment.bytes", "1000").set("retention.ms", "600000");
    assert!(admin.alter_configs(&[change], &AdminOptions::new()).await.unwrap()[0].is_ok());
    broker.shutdown().await;
    let mut config = config(&folder);
    config.housekeeping_interval = Duration::from_millis(50);
    let broker = Broker::start(config).await.unwrap();
    // A pass takes whatever may go at once.
    eventually("retention", || stats(&broker).start_offset > 0).await;
    let stats = stats(&broker);
    assert!(stats.start_offset < 2 * OLD, "records without a time are kept: {}", stats.start_offset);
    assert_eq!(stats.end_offset, 60);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_records_of_a_time_that_is_far_ahead_when_retention_passes_then_they_are_refused_or_go_as_others_do() {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    config.housekeeping_interval = Duration::from_millis(50);
    let broker = Broker::start(config).await.unwrap();
    let unbounded = ("message.timestamp.after.max.ms", "9223372036854775807");
    create(&broker, "t", 1, &[("segment.bytes", "1000"), ("retention.ms", "1"), unbounded]).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut stream = connect(address);
        assert_eq!(wire::produce(&mut stream, "bounded", i64::MAX), (ResponseError::InvalidTimestamp.code(), -1));
        for i in 0..60 {
            assert_eq!(wire::produce(&mut stream, "t", i64::MAX), (0, i));
        }
    })
    .await;
    let start = || broker.topics().into_iter().find(|topic| topic.name == "t").map(|t| t.partitions[0].start_offset);
    eventually("retention", || start() == Some(60)).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_compacted_topic_when_cleaned_then_the_last_record_of_each_key_stays_at_its_offset() {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    config.housekeeping_interval = Duration::from_millis(50);
    let broker = Broker::start(config).await.unwrap();
    let settings = [("cleanup.policy", "compact"), ("segment.bytes", "1500"), ("min.cleanable.dirty.ratio", "0.01")];
    create(&broker, "t", 1, &settings).await;
    let producer = producer(broker.local_addr());
    for round in 0..20 {
        for key in 0..5 {
            send(&producer, "t", 0, &format!("k{key}"), &format!("{key} in round {round}")).await;
        }
    }
    eventually("compaction", || broker.topics()[0].partitions[0].size_bytes < 3500).await;
    let check = async |broker: &Broker| {
        let messages = read_all(broker.local_addr(), "t", 1, "read_committed").await;
        assert!(messages.windows(2).all(|pair| pair[0].offset() < pair[1].offset()), "offsets ascend");
        for (key, message) in messages.iter().rev().take(5).rev().enumerate() {
            assert_eq!(message.payload(), Some(format!("{key} in round 19").as_bytes()));
            assert_eq!(message.offset(), 95 + key as i64);
        }
    };
    check(&broker).await;
    broker.shutdown().await;
    files(&folder, "t", 0, "idx").iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let broker = start(&folder).await;
    check(&broker).await;
    assert_eq!(send(&self::producer(broker.local_addr()), "t", 0, "k", "next").await, 100);
    broker.shutdown().await;
}
