//! What stays within bounds however many partitions there are: open files, and the work that is done while nobody asks.

#![cfg(target_os = "linux")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::wire::join;
use common::*;
use kafka_protocol::messages::ApiKey;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::FutureProducer;
use riverrun_broker::Broker;
use tempfile::TempDir;

const PARTITIONS: i32 = 1_000;
const OPEN_FILES: usize = 20;

/// How many segment files below `folder` this process holds open.
fn open_segments(folder: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let files = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    files.filter(|file| file.starts_with(folder) && file.extension().is_some_and(|name| name == "log")).count()
}

/// Processor time that this process has used, in hundredths of a second.
fn cpu_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // Fields 14 and 15 of proc(5), of which two stand before the bracket.
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Waits for a second in which no more than a fifth of a processor is used; what loops never gets there.
async fn come_to_rest() {
    let since = Instant::now();
    loop {
        let before = cpu_time();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let used = cpu_time() - before;
        if used <= 20 {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{used} % of a processor are used while nobody asks for anything");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn given_a_thousand_partitions_when_written_and_read_then_few_files_are_open_and_the_broker_rests() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let mut config = config(&folder);
    config.max_open_files = OPEN_FILES;
    let broker = Broker::start(config).await.unwrap();
    let address = broker.local_addr();
    {
        let admin: AdminClient<DefaultClientContext> = client(address).create().unwrap();
        let topic = NewTopic::new("t", PARTITIONS, TopicReplication::Fixed(1));
        admin.create_topics(&[topic], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
    }
    {
        // The first record of each partition makes a folder and syncs those above.
        let producer: FutureProducer = client(address).set("message.timeout.ms", "58000").create().unwrap();
        let writing: Vec<_> = (0..PARTITIONS)
            .map(|partition| {
                let producer = producer.clone();
                tokio::spawn(async move { send(&producer, "t", partition, "k", "v").await })
            })
            .collect();
        for written in writing {
            assert_eq!(written.await.unwrap(), 0);
        }
    }
    eventually("few open files after writing", || open_segments(&path) <= OPEN_FILES).await;
    let read = read_all(address, "t", PARTITIONS, "read_uncommitted").await;
    assert_eq!(read.len(), PARTITIONS as usize);
    eventually("few open files after reading", || open_segments(&path) <= OPEN_FILES).await;
    come_to_rest().await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn given_large_requests_behind_one_that_waits_when_sent_then_one_of_them_is_held_and_the_others_are_read_later() {
    const LARGE: usize = 2 << 20;
    const COUNT: usize = 24;
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let (address, figures) = (broker.local_addr(), broker.figures());
    blocking(move || {
        let received = || usize::try_from(figures.read().unwrap().received_bytes).unwrap();
        let (mut first, mut second, mut third) = (connect(address), connect(address), connect(address));
        let is_in = |stream: &mut std::net::TcpStream| {
            let mut answer = join("g", "a").ask(stream, ApiKey::JoinGroup, 9);
            answer.i32(); // throttle
            answer.i16() == 0
        };
        assert!(is_in(&mut first));
        // The second member waits until the first one has joined again.
        write_frame(&mut second, &join("g", "b").frame(ApiKey::JoinGroup, 9)).unwrap();
        // `ApiVersions` 0 with bytes behind it, which are passed over.
        let versions: Vec<u8> = [&[0, 18, 0, 0, 0, 0, 0, 1, 0, 0][..], &vec![0; LARGE]].concat();
        let small = versions[..10].to_vec();
        let (mut sending, large) = (second.try_clone().unwrap(), versions);
        let sender = std::thread::spawn(move || (0..COUNT).for_each(|_| write_frame(&mut sending, &large).unwrap()));
        let members = || figures.read().unwrap().groups.first().map_or(0, |group| group.members.len());
        let since = Instant::now();
        while received() < LARGE || members() < 2 {
            assert!(since.elapsed() < PATIENCE, "the first large request is not read, or the second member not in");
            std::thread::yield_now();
        }
        for _ in 0..200 {
            assert!(call(&mut third, &small).is_some(), "others are answered meanwhile");
            assert!(received() < 2 * LARGE, "a second large request is held");
        }
        assert!(is_in(&mut first));
        // The answer to the join, and those to all that came behind it.
        (0..=COUNT).for_each(|at| assert!(read_frame(&mut second).is_some(), "answer {at}"));
        sender.join().unwrap();
    })
    .await;
    broker.shutdown().await;
}
