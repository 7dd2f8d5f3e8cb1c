//! What must survive: restarts, torn writes, damage, full disks, failing syncs, and `kill -9`.

mod common;
#[path = "durability/kills.rs"]
mod kills;
#[path = "durability/refusals.rs"]
mod refusals;
#[path = "durability/retention.rs"]
mod retention;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use common::faulty_disk::{FaultyDisk, Switches};
use common::*;
use kafka_protocol::ResponseError;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use riverrun_broker::{Broker, PartitionStats, StartError, StorageFault};
use tempfile::TempDir;

async fn create(broker: &Broker, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> = client(broker.local_addr()).create().unwrap();
    let new =
        settings.iter().fold(NewTopic::new(topic, partitions, TopicReplication::Fixed(1)), |new, (k, v)| new.set(k, v));
    admin.create_topics(&[new], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_many_segments_when_restarted_cleanly_or_without_checkpoints_then_every_record_is_there() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    create(&broker, "t", 1, &[("segment.bytes", "2000")]).await;
    let producer = producer(broker.local_addr());
    for i in 0..200 {
        send(&producer, "t", 0, "k", &format!("value {i}")).await;
    }
    let expected: Vec<String> = (0..200).map(|i| format!("value {i}")).collect();
    broker.shutdown().await;
    assert!(files(&folder, "t", 0, "log").len() > 5, "the log has several segments");
    for remove_checkpoints in [false, true] {
        if remove_checkpoints {
            files(&folder, "t", 0, "idx").iter().for_each(|file| std::fs::remove_file(file).unwrap());
        }
        let broker = start(&folder).await;
        assert_eq!(values(&read_all(broker.local_addr(), "t", 1, "read_committed").await), expected);
        broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_partition_of_few_records_when_it_has_been_without_a_checkpoint_long_enough_then_it_gets_one() {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    config.housekeeping_interval = Duration::from_millis(20);
    config.checkpoint_interval = Duration::ZERO;
    let broker = Broker::start(config).await.unwrap();
    let producer = producer(broker.local_addr());
    for end in 1..=2 {
        send(&producer, "t", 0, "k", "v").await;
        let says = format!("\"end_offset\":{end},");
        eventually("a checkpoint", || {
            let found = files(&folder, "t", 0, "idx");
            found.iter().any(|file| std::fs::read(file).is_ok_and(|it| String::from_utf8_lossy(&it).contains(&says)))
        })
        .await;
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_torn_tail_when_started_then_it_is_cut_off_and_the_log_goes_on() {
    for garbage in [&b"\0\0\0\0\0\0\0\x09torn"[..], &[0; 500], &[0xff; 3]] {
        let folder = TempDir::new().unwrap();
        let broker = start(&folder).await;
        let first = producer(broker.local_addr());
        for i in 0..5 {
            send(&first, "t", 0, "k", &i.to_string()).await;
        }
        broker.shutdown().await;
        let file = files(&folder, "t", 0, "log").remove(0);
        let size = std::fs::metadata(&file).unwrap().len();
        std::fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(garbage).unwrap();
        let broker = start(&folder).await;
        assert_eq!(std::fs::metadata(&file).unwrap().len(), size);
        assert_eq!(std::fs::read(&files(&folder, "t", 0, "torn")[0]).unwrap(), garbage, "nothing is thrown away");
        assert_eq!(send(&producer(broker.local_addr()), "t", 0, "k", "5").await, 5);
        assert_eq!(
            values(&read_all(broker.local_addr(), "t", 1, "read_committed").await),
            ["0", "1", "2", "3", "4", "5"]
        );
        broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_damage_in_the_middle_when_started_then_the_partition_says_so_and_keeps_its_file() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let first = producer(broker.local_addr());
    for i in 0..6 {
        send(&first, "t", 0, "k", &format!("value {i}")).await;
    }
    send(&first, "other", 0, "k", "sound").await;
    broker.shutdown().await;
    files(&folder, "t", 0, "idx").iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let file = files(&folder, "t", 0, "log").remove(0);
    let size = std::fs::metadata(&file).unwrap().len();
    let mut damaged = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    damaged.seek(SeekFrom::Start(size / 2)).unwrap();
    damaged.write_all(&[0xaa; 4]).unwrap();
    drop(damaged);
    let broker = start(&folder).await;
    let stats = stats(&broker);
    let error = stats.error.as_ref().expect("the damage is reported");
    assert!(error.contains("corrupt at byte") && error.contains("restore"), "{error}");
    assert_eq!(stats.end_offset, 3, "readable up to the last good offset");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), size, "nothing is cut off");
    assert_eq!(answer_to_a_record(&broker).await, REFUSED, "a damaged partition takes nothing");
    send(&producer(broker.local_addr()), "other", 0, "k", "goes on").await;
    assert_eq!(values(&read_all(broker.local_addr(), "other", 1, "read_committed").await), ["sound", "goes on"]);
    broker.shutdown().await;
}

/// A broker over six records of topic `t` that were written, checkpointed, and then changed on the disk.
async fn over_changed(folder: &TempDir, change: impl Fn(&std::path::Path)) -> Broker {
    let broker = start(folder).await;
    let first = producer(broker.local_addr());
    for i in 0..6 {
        send(&first, "t", 0, "k", &format!("value {i}")).await;
    }
    broker.shutdown().await;
    assert_eq!(files(folder, "t", 0, "idx").len(), 1, "all of it is checkpointed");
    change(&files(folder, "t", 0, "log")[0]);
    start(folder).await
}

/// What a record for topic `t` is answered with where nothing is taken: Kafka's code and no offset.
const REFUSED: (i16, i64) = (56, -1);

async fn answer_to_a_record(broker: &Broker) -> (i16, i64) {
    assert_eq!(ResponseError::KafkaStorageError.code(), REFUSED.0);
    let address = broker.local_addr();
    blocking(move || wire::produce(&mut connect(address), "t", 1_000)).await
}

/// What topic `t` tells of its only partition.
fn stats(broker: &Broker) -> PartitionStats {
    broker.topics().into_iter().find(|topic| topic.name == "t").unwrap().partitions.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_segment_that_is_gone_when_started_then_its_checkpoint_tells_and_what_is_left_is_read() {
    for (segment_bytes, is_first) in [("1000", true), ("1000", false), ("1000000", false)] {
        let folder = TempDir::new().unwrap();
        let broker = start(&folder).await;
        create(&broker, "t", 1, &[("segment.bytes", segment_bytes)]).await;
        let first = producer(broker.local_addr());
        for i in 0..40 {
            send(&first, "t", 0, "k", &format!("value {i}")).await;
        }
        broker.shutdown().await;
        let logs = files(&folder, "t", 0, "log");
        let gone = if is_first { &logs[0] } else { &logs[logs.len() - 1] };
        std::fs::remove_file(gone).unwrap();
        // A file is named by its first offset.
        let begin = |file: &Path| -> i64 {
            let name = file.file_stem().unwrap().to_str().unwrap();
            name.split_once('-').unwrap().0.parse().unwrap()
        };
        let (start_offset, end_offset) = if is_first { (begin(&logs[1]), 40) } else { (0, begin(gone)) };
        let broker = start(&folder).await;
        let error = stats(&broker).error.expect("the loss is told");
        let name = gone.file_name().unwrap().to_str().unwrap();
        assert!(error.contains(&format!("{name} is missing and had ")), "{error}");
        let stats = stats(&broker);
        assert_eq!((stats.start_offset, stats.end_offset), (start_offset, end_offset), "{error}");
        assert_eq!(answer_to_a_record(&broker).await, REFUSED, "{error}");
        if start_offset < end_offset {
            let reader = reader(broker.local_addr(), "t", 1, "read_committed");
            let message = tokio::time::timeout(PATIENCE, reader.recv()).await.unwrap().unwrap();
            assert_eq!(message.offset(), start_offset, "{error}");
        }
        broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_file_that_has_lost_what_was_synced_when_started_then_the_log_is_not_shortened_in_silence() {
    let folder = TempDir::new().unwrap();
    let broker = over_changed(&folder, |file| {
        // At the end of a batch: nothing in the file itself tells.
        let half = std::fs::metadata(file).unwrap().len() / 2;
        std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(half).unwrap();
    })
    .await;
    let error = stats(&broker).error.expect("the loss is told");
    assert!(error.contains("ends at byte") && error.contains("readable up to offset 3"), "{error}");
    assert_eq!(answer_to_a_record(&broker).await, REFUSED, "offsets that were given out are not given out again");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_damage_that_a_checkpoint_covers_when_read_then_what_stands_before_it_comes_and_the_damage_is_told() {
    let folder = TempDir::new().unwrap();
    let broker = over_changed(&folder, |file| {
        let mut bytes = std::fs::read(file).unwrap();
        let middle = bytes.len() / 2 + 65; // in a record of the fourth batch
        bytes[middle] ^= 1;
        std::fs::write(file, bytes).unwrap();
    })
    .await;
    assert_eq!(stats(&broker).error, None, "a start does not look there");
    let reader = reader(broker.local_addr(), "t", 1, "read_committed");
    for expected in ["value 0", "value 1", "value 2"] {
        let message = tokio::time::timeout(PATIENCE, reader.recv()).await.unwrap().unwrap();
        assert_eq!(message.payload(), Some(expected.as_bytes()));
    }
    // The client asks for what comes next by itself.
    let asks_on = async { while reader.recv().await.is_err() {} };
    let told = eventually("the damage is told", || stats(&broker).error.is_some());
    tokio::select! {
        () = told => {}
        () = asks_on => panic!("a damaged record was handed out"),
    }
    assert!(stats(&broker).error.unwrap().contains("damaged from offset 3"), "{:?}", stats(&broker).error);
    assert_eq!(send(&producer(broker.local_addr()), "t", 0, "k", "value 6").await, 6, "writes go on");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_an_address_or_folder_in_use_when_started_then_the_error_names_it() {
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let broker = start(&folder).await;
    let same_address = config(&other).listen(broker.local_addr());
    match Broker::start(same_address).await {
        Err(StartError::AddressInUse { address }) => assert_eq!(address, broker.local_addr()),
        other => panic!("{:?}", other.map(|_| ())),
    }
    match Broker::start(config(&folder)).await {
        Err(error @ StartError::DataDirInUse { .. }) => {
            assert!(error.to_string().contains(folder.path().to_str().unwrap()))
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
    broker.shutdown().await;
    start(&folder).await.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_disk_that_is_whole_again_when_nobody_writes_then_logs_are_mended_and_refused_topics_taken_back() {
    let folder = TempDir::new().unwrap();
    let switches = Arc::new(Switches::default());
    let mut config = config(&folder).with_disk(Arc::new(FaultyDisk(switches.clone())));
    config.housekeeping_interval = Duration::from_millis(20);
    let broker = Broker::start(config).await.unwrap();
    let address = broker.local_addr();
    send(&producer(address), "t", 0, "k", "before").await;
    switches.syncs_fail.store(true, Ordering::SeqCst);
    let hasty: FutureProducer =
        client(address).set("message.timeout.ms", "30000").set("retries", "0").create().unwrap();
    let refused = hasty.send(FutureRecord::to("t").partition(0).key("k").payload("lost"), PATIENCE).await;
    assert!(refused.is_err() && stats(&broker).error.is_some());
    switches.syncs_fail.store(false, Ordering::SeqCst);
    eventually("the log takes records again", || stats(&broker).error.is_none()).await;

    let (admin, options): (AdminClient<DefaultClientContext>, _) =
        (client(address).create().unwrap(), AdminOptions::new());
    switches.full.store(true, Ordering::SeqCst);
    let refused =
        admin.create_topics(&[NewTopic::new("refused", 1, TopicReplication::Fixed(1))], &options).await.unwrap();
    assert!(refused[0].is_err());
    switches.full.store(false, Ordering::SeqCst);
    let since = std::time::Instant::now();
    let known = async || {
        let answers = admin.describe_configs(&[ResourceSpecifier::Topic("refused")], &options).await.unwrap();
        // The client says Ok with no settings when the broker says that there is no such topic.
        answers[0].as_ref().is_ok_and(|topic| !topic.entries.is_empty())
    };
    while known().await {
        assert!(since.elapsed() < PATIENCE, "the topic is not taken back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    broker.shutdown().await;
    let broker = start(&folder).await;
    let names: Vec<String> = broker.topics().into_iter().map(|topic| topic.name).collect();
    assert_eq!(names, ["t"]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_changes_that_were_refused_when_started_with_or_without_room_then_nothing_of_them_is_there() {
    for (what, fails) in [("partitions", "full"), ("partitions", "sync"), ("settings", "full"), ("settings", "sync")] {
        for mended in [false, true] {
            let folder = TempDir::new().unwrap();
            let switches = Arc::new(Switches::default());
            let switch = if fails == "full" { &switches.full } else { &switches.syncs_fail };
            // Nobody else is to take anything back.
            let mut config = config(&folder).with_disk(Arc::new(FaultyDisk(switches.clone())));
            config.housekeeping_interval = PATIENCE;
            let broker = Broker::start(config).await.unwrap();
            create(&broker, "t", 1, &[]).await;
            let (admin, options): (AdminClient<DefaultClientContext>, _) =
                (client(broker.local_addr()).create().unwrap(), AdminOptions::new());
            switch.store(true, Ordering::SeqCst);
            if what == "partitions" {
                assert!(admin.create_partitions(&[NewPartitions::new("t", 3)], &options).await.unwrap()[0].is_err());
            } else {
                let change = AlterConfig::new(ResourceSpecifier::Topic("t")).set("retention.ms", "1");
                // This client does not say how it ended: what is there afterwards does.
                admin.alter_configs(&[change], &options).await.unwrap()[0].as_ref().unwrap();
            }
            switch.store(!mended, Ordering::SeqCst);
            let later = || NewTopic::new("later", 1, TopicReplication::Fixed(1));
            let since = std::time::Instant::now();
            while mended && admin.create_topics(&[later()], &options).await.unwrap()[0].is_err() {
                assert!(since.elapsed() < PATIENCE, "the journal takes nothing");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            broker.shutdown().await;
            let broker = start(&folder).await;
            let topics = broker.topics();
            let topic = topics.iter().find(|topic| topic.name == "t").unwrap();
            let found = (topics.len(), topic.partitions.len(), topic.retention_ms);
            let expected = (1 + usize::from(mended), 1, Some(604_800_000));
            assert_eq!(found, expected, "{what}, {fails}, mended: {mended}");
            broker.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_full_disk_or_a_failing_sync_when_it_passes_then_nothing_unsynced_was_acknowledged_and_all_goes_on() {
    let folder = TempDir::new().unwrap();
    let switches = Arc::new(Switches::default());
    let broker = Broker::start(config(&folder).with_disk(Arc::new(FaultyDisk(switches.clone())))).await.unwrap();
    let address = broker.local_addr();
    let patient = producer(address);
    send(&patient, "t", 0, "k", "before").await;
    for (switch, word) in [(&switches.full, "full"), (&switches.syncs_fail, "sync")] {
        switch.store(true, Ordering::SeqCst);
        let plain: FutureProducer =
            client(address).set("message.timeout.ms", "400").set("retries", "0").create().unwrap();
        for _ in 0..3 {
            let refused = plain.send(FutureRecord::to("t").partition(0).key("k").payload("lost"), PATIENCE).await;
            assert!(refused.is_err(), "acknowledged although the disk failed");
        }
        assert_eq!(broker.topics()[0].partitions[0].end_offset, if word == "full" { 1 } else { 2 });
        // A patient producer gets through as soon as there is room.
        let sending = patient.clone();
        let waiting = tokio::spawn(async move { send(&sending, "t", 0, "k", word).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        switch.store(false, Ordering::SeqCst);
        waiting.await.unwrap();
    }
    let expected = ["before", "full", "sync"];
    assert_eq!(values(&read_all(address, "t", 1, "read_committed").await), expected);
    broker.shutdown().await;
    let broker = start(&folder).await;
    assert_eq!(values(&read_all(broker.local_addr(), "t", 1, "read_committed").await), expected);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_disk_that_fails_when_asked_then_the_broker_says_where_since_when_and_the_fix_until_it_writes_again() {
    let folder = TempDir::new().unwrap();
    let switches = Arc::new(Switches::default());
    let broker = Broker::start(config(&folder).with_disk(Arc::new(FaultyDisk(switches.clone())))).await.unwrap();
    let (address, figures) = (broker.local_addr(), broker.figures());
    send(&producer(address), "t", 0, "k", "before").await;
    assert_eq!(figures.storage_trouble(), None);
    let hasty: FutureProducer =
        client(address).set("message.timeout.ms", "30000").set("retries", "0").create().unwrap();
    for (switch, fault) in [(&switches.full, StorageFault::Full), (&switches.syncs_fail, StorageFault::Other)] {
        switch.store(true, Ordering::SeqCst);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let refused = hasty.send(FutureRecord::to("t").partition(0).key("k").payload("lost"), PATIENCE).await;
            assert!(refused.is_err(), "{fault:?}");
            seen.push(figures.storage_trouble().expect("a trouble"));
        }
        assert_eq!((seen[0].fault, seen[0].since_ms), (fault, seen[1].since_ms), "it began with the first");
        assert!(seen[0].path.starts_with(folder.path()) && seen[0].path != folder.path(), "{seen:?}");
        assert!(seen[0].fix.contains(folder.path().to_str().unwrap()), "{seen:?}");
        switch.store(false, Ordering::SeqCst);
        // Nobody writes.
        eventually("the trouble is over", || figures.storage_trouble().is_none()).await;
    }
    broker.shutdown().await;
    assert_eq!(figures.storage_trouble(), None);
    assert!(!folder.path().join("probe.tmp").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_damaged_journal_when_started_then_a_torn_end_is_cut_and_damage_before_is_refused() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    for topic in ["a", "b", "c"] {
        create(&broker, topic, 1, &[]).await;
    }
    broker.shutdown().await;
    let journal = folder.path().join("meta.journal");
    let good = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, [&good[..], b"RRJ1\0\0\0\x50torn"].concat()).unwrap();
    let broker = start(&folder).await;
    assert_eq!(broker.topics().len(), 3);
    broker.shutdown().await;
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 0xff;
    std::fs::write(&journal, &bad).unwrap();
    match Broker::start(config(&folder)).await {
        Err(StartError::Journal(error)) => assert!(error.to_string().contains("corrupt at byte"), "{error}"),
        other => panic!("{:?}", other.map(|_| ())),
    }
    assert_eq!(std::fs::read(&journal).unwrap(), bad, "the journal is left alone");
}
