//! What must survive: restarts, torn writes, damage, full disks, failing syncs, and `kill -9`.

mod common;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use kafka_protocol::ResponseError;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use riverrun_broker::{Broker, Disk, DiskFile, OpenMode, PartitionStats, RealDisk, StartError};
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

/// The real disk with two switches.
#[derive(Default)]
struct Switches {
    full: AtomicBool,
    syncs_fail: AtomicBool,
}

struct FaultyDisk(Arc<Switches>);
struct FaultyFile(Arc<dyn DiskFile>, Arc<Switches>);

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FaultyFile(RealDisk.open(path, mode)?, self.0.clone())))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        RealDisk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(buffer, position)
    }
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if self.1.full.load(Ordering::SeqCst) {
            // Half of it fits, as on a real disk.
            self.0.write_all_at(&bytes[..bytes.len() / 2], position)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_all_at(bytes, position)
    }
    fn sync_data(&self) -> io::Result<()> {
        if self.1.syncs_fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("the medium is broken"));
        }
        self.0.sync_data()
    }
    fn set_len(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
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
    while admin.describe_configs(&[ResourceSpecifier::Topic("refused")], &options).await.unwrap()[0].is_ok() {
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

/// Not a test of its own: the process that [`given_kill_9_under_load`] kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
#[expect(clippy::print_stdout, reason = "the parent process reads the address there")]
async fn child_broker() {
    let Ok(folder) = std::env::var("BROKER_CHILD_DIR") else { return };
    let listen = std::env::var("BROKER_CHILD_LISTEN").unwrap().parse().unwrap();
    let mut config = riverrun_broker::BrokerConfig::new(folder).listen(listen);
    config.segment_bytes = 100_000;
    let broker = Broker::start(config).await.unwrap();
    println!("\nlistening {}", broker.local_addr());
    std::future::pending::<()>().await;
}

/// How often the broker is killed, and how long it lives: three times, or `BROKER_KILLS` times and then not for long.
fn kills() -> (u32, Duration) {
    match std::env::var("BROKER_KILLS") {
        Ok(text) => (text.parse().expect("BROKER_KILLS is a number"), Duration::from_millis(150)),
        Err(_) => (3, Duration::from_millis(500)),
    }
}

fn spawn_broker(folder: &TempDir, listen: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_broker", "--nocapture"])
        .env("BROKER_CHILD_DIR", folder.path())
        .env("BROKER_CHILD_LISTEN", listen)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("listening ").map(str::to_owned));
    (child, address.expect("the child listens"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_kill_9_under_load_when_restarted_then_everything_acknowledged_is_there_once_in_its_place() {
    let folder = TempDir::new().unwrap();
    let (mut child, address) = spawn_broker(&folder, "127.0.0.1:0");
    let producer: FutureProducer = {
        let mut config = client(address.parse().unwrap());
        config.set("enable.idempotence", "true").set("linger.ms", "1").set("message.timeout.ms", "30000");
        config.set("reconnect.backoff.max.ms", "100").create().unwrap()
    };
    send(&producer, "t", 0, "first", "first").await;
    let stop = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicU64::new(0));
    let senders: Vec<_> = (0..16)
        .map(|_| {
            let (producer, stop, next) = (producer.clone(), stop.clone(), next.clone());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let id = next.fetch_add(1, Ordering::SeqCst).to_string();
                    let record = FutureRecord::to("t").partition(0).key(&id).payload(&id);
                    if let Ok(delivery) = producer.send(record, PATIENCE).await {
                        acknowledged.push((id, delivery.offset));
                    }
                }
                acknowledged
            })
        })
        .collect();
    let (kills, pause) = kills();
    // Each sender begins another record only when its last one was answered.
    let goes_on = || {
        let enough = next.load(Ordering::SeqCst) + 64;
        let next = next.clone();
        move || next.load(Ordering::SeqCst) > enough
    };
    for _ in 0..kills {
        eventually("load", goes_on()).await;
        tokio::time::sleep(pause).await;
        child.kill().unwrap();
        child.wait().unwrap();
        (child, _) = spawn_broker(&folder, &address);
    }
    eventually("load after the last kill", goes_on()).await;
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for sender in senders {
        acknowledged.extend(sender.await.unwrap());
    }
    let messages = read_all(address.parse().unwrap(), "t", 1, "read_committed").await;
    child.kill().unwrap();
    child.wait().unwrap();
    let mut found: HashMap<String, Vec<i64>> = HashMap::new();
    for message in &messages {
        let id = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
        found.entry(id).or_default().push(message.offset());
    }
    assert!(acknowledged.len() > 100, "there was load: {}", acknowledged.len());
    for (id, offset) in &acknowledged {
        assert_eq!(found.get(id), Some(&vec![*offset]), "record {id}");
    }
}

/// Counts how often a member's partitions change.
#[derive(Default)]
struct Rebalances(AtomicUsize);

impl ClientContext for Rebalances {}

impl ConsumerContext for Rebalances {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_kill_9_when_restarted_then_members_of_groups_keep_their_partitions() {
    let folder = TempDir::new().unwrap();
    let (mut child, address) = spawn_broker(&folder, "127.0.0.1:0");
    let producer = producer(address.parse().unwrap());
    send(&producer, "t", 0, "k", "first").await;
    let member = |group: &str, instance: Option<&str>| -> StreamConsumer<Rebalances> {
        let mut config = client(address.parse().unwrap());
        config.set("group.id", group).set("auto.offset.reset", "earliest").set("enable.auto.commit", "false");
        config.set("heartbeat.interval.ms", "200").set("reconnect.backoff.max.ms", "100");
        if let Some(instance) = instance {
            config.set("group.instance.id", instance);
        }
        let consumer: StreamConsumer<Rebalances> = config.create_with_context(Rebalances::default()).unwrap();
        consumer.subscribe(&["t"]).unwrap();
        consumer
    };
    let members = [member("dynamic", None), member("static", Some("one"))];
    for value in ["first", "second", "third"] {
        for member in &members {
            // A client also tells that the broker was away.
            let next = async {
                loop {
                    if let Ok(message) = member.recv().await {
                        return message;
                    }
                }
            };
            let message = tokio::time::timeout(PATIENCE, next).await.expect("a record");
            assert_eq!(message.payload(), Some(value.as_bytes()));
            // It is durable, and so is whatever the broker wrote down before it.
            member.commit_message(&message, CommitMode::Sync).unwrap();
        }
        if value != "third" {
            child.kill().unwrap();
            child.wait().unwrap();
            (child, _) = spawn_broker(&folder, &address);
            send(&producer, "t", 0, "k", if value == "first" { "second" } else { "third" }).await;
        }
    }
    let rebalances = members.each_ref().map(|member| member.context().0.load(Ordering::SeqCst));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(rebalances, [1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_kill_9_within_transactions_when_restarted_then_each_is_whole_or_absent() {
    let folder = TempDir::new().unwrap();
    let (mut child, address) = spawn_broker(&folder, "127.0.0.1:0");
    let setup = producer(address.parse().unwrap());
    for topic in ["a", "b"] {
        send(&setup, topic, 0, "k", "setup").await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (running, to) = (stop.clone(), address.clone());
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = commits.clone();
    let writer = std::thread::spawn(move || {
        let mut committed = Vec::new();
        let mut id = 0;
        while !running.load(Ordering::SeqCst) {
            let mut config = client(to.parse().unwrap());
            config
                .set("transactional.id", "x")
                .set("reconnect.backoff.max.ms", "100")
                .set("message.timeout.ms", "5000");
            let producer: FutureProducer = config.set("transaction.timeout.ms", "6000").create().unwrap();
            if producer.init_transactions(Duration::from_secs(10)).is_err() {
                continue;
            }
            // A producer goes on until something fails, then a new one takes over.
            while !running.load(Ordering::SeqCst) && producer.begin_transaction().is_ok() {
                id += 1;
                let value = id.to_string();
                let queued = ["a", "b"]
                    .map(|topic| producer.send_result(FutureRecord::to(topic).partition(0).key("k").payload(&value)));
                if queued.iter().any(Result::is_err) || producer.commit_transaction(Duration::from_secs(10)).is_err() {
                    break;
                }
                committed.push(value);
                counted.store(committed.len(), Ordering::SeqCst);
            }
        }
        committed
    });
    let (kills, pause) = kills();
    let commits_go_on = || {
        let enough = commits.load(Ordering::SeqCst) + 2;
        let commits = commits.clone();
        move || commits.load(Ordering::SeqCst) > enough
    };
    for _ in 0..kills {
        eventually("commits", commits_go_on()).await;
        tokio::time::sleep(pause).await;
        child.kill().unwrap();
        child.wait().unwrap();
        (child, _) = spawn_broker(&folder, &address);
    }
    eventually("commits after the last kill", commits_go_on()).await;
    stop.store(true, Ordering::SeqCst);
    let committed = blocking(move || writer.join().unwrap()).await;
    // The last producer may have left a transaction open: its successor ends it.
    let successor: FutureProducer = client(address.parse().unwrap()).set("transactional.id", "x").create().unwrap();
    blocking(move || successor.init_transactions(PATIENCE)).await.unwrap();
    let (a, b) = (
        values(&read_all(address.parse().unwrap(), "a", 1, "read_committed").await),
        values(&read_all(address.parse().unwrap(), "b", 1, "read_committed").await),
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(a, b, "both topics hold the same transactions");
    assert!(committed.len() > 10, "there was load: {}", committed.len());
    let mut once = a.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), a.len(), "nothing is there twice");
    for id in &committed {
        assert!(once.binary_search(id).is_ok(), "committed transaction {id} is there");
    }
}

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
