//! What the tests of the broker share: a broker over a temporary folder, and stock clients for it.

#![allow(dead_code, reason = "every test file uses its own part of this")]

pub(crate) mod faulty_disk;
pub(crate) mod offsets;
pub(crate) mod wire;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use riverrun_broker::{Broker, BrokerConfig};
use tempfile::TempDir;

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn config(folder: &TempDir) -> BrokerConfig {
    BrokerConfig::new(folder.path()).listen(SocketAddr::from(([127, 0, 0, 1], 0)))
}

pub(crate) async fn start(folder: &TempDir) -> Broker {
    Broker::start(config(folder)).await.expect("the broker starts")
}

pub(crate) fn client(address: SocketAddr) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address.to_string());
    config
}

pub(crate) fn producer(address: SocketAddr) -> FutureProducer {
    client(address)
        .set("enable.idempotence", "true")
        .set("linger.ms", "0")
        .set("message.timeout.ms", "15000")
        .create()
        .expect("a producer")
}

pub(crate) async fn send(producer: &FutureProducer, topic: &str, partition: i32, key: &str, value: &str) -> i64 {
    let record = FutureRecord::to(topic).partition(partition).key(key).payload(value);
    producer.send(record, PATIENCE).await.map_err(|(error, _)| error).expect("acknowledged").offset
}

/// A consumer that reads the partitions of `topic` from the beginning, outside of any group.
pub(crate) fn reader(address: SocketAddr, topic: &str, partitions: i32, isolation: &str) -> StreamConsumer {
    let consumer: StreamConsumer = client(address)
        .set("group.id", "readers")
        .set("enable.auto.commit", "false")
        .set("isolation.level", isolation)
        .set("fetch.wait.max.ms", "100")
        .set("enable.partition.eof", "true")
        .create()
        .expect("a consumer");
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment.add_partition_offset(topic, partition, Offset::Beginning).expect("an assignment");
    }
    consumer.assign(&assignment).expect("assigned");
    consumer
}

/// Everything that `consumer` sees until it has come to the end of all its partitions.
pub(crate) async fn read_to_end(consumer: &StreamConsumer, partitions: i32) -> Vec<OwnedMessage> {
    let mut messages = Vec::new();
    let mut at_end = std::collections::BTreeSet::new();
    while at_end.len() < partitions as usize {
        match tokio::time::timeout(PATIENCE, consumer.recv()).await.expect("the end in time") {
            Ok(message) => messages.push(message.detach()),
            Err(rdkafka::error::KafkaError::PartitionEOF(partition)) => drop(at_end.insert(partition)),
            Err(error) => panic!("{error}"),
        }
    }
    messages
}

pub(crate) async fn read_all(address: SocketAddr, topic: &str, partitions: i32, isolation: &str) -> Vec<OwnedMessage> {
    read_to_end(&reader(address, topic, partitions, isolation), partitions).await
}

pub(crate) fn values(messages: &[OwnedMessage]) -> Vec<String> {
    messages
        .iter()
        .map(|message| String::from_utf8_lossy(message.payload().unwrap_or(b"<none>")).into_owned())
        .collect()
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < PATIENCE, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs something that blocks, such as the calls of a transactional producer.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("the work does not panic")
}

/// Sends raw bytes as a frame and returns the answer's frame, or none if the connection was closed.
pub(crate) fn call(stream: &mut TcpStream, frame: &[u8]) -> Option<Vec<u8>> {
    write_frame(stream, frame).ok()?;
    read_frame(stream)
}

pub(crate) fn write_frame(stream: &mut TcpStream, frame: &[u8]) -> std::io::Result<()> {
    stream.write_all(&[&(frame.len() as u32).to_be_bytes(), frame].concat())
}

pub(crate) fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream
}

/// Files of a topic's partition with this extension, sorted by name.
pub(crate) fn files(folder: &TempDir, topic: &str, partition: i32, extension: &str) -> Vec<std::path::PathBuf> {
    let topics = std::fs::read_dir(folder.path().join("topics")).expect("topics");
    let mut found = Vec::new();
    for entry in topics.flatten() {
        let is_topic = entry.file_name().to_string_lossy().rsplit_once('.').is_some_and(|(name, _)| name == topic);
        if is_topic {
            let files = std::fs::read_dir(entry.path().join(partition.to_string())).expect("a partition");
            found.extend(
                files.flatten().map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == extension)),
            );
        }
    }
    found.sort();
    found
}
