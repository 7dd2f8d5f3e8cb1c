//! Readers of the log meet records whose schema only an outside source has, while that source is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use riverrun_log::admin::Admin;
use riverrun_log::registry::SchemaSource;
use riverrun_log::{EmbeddedBroker, Outgoing, Producer, Record, RegistryError, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::{AgentCommand, CancelRun};
use riverrun_schemas::codec::WriterSchema;
use riverrun_schemas::topics::all_specs;
use riverrun_schemas::{Decoded, RunId, Topic, framing, registry};

const PATIENCE: Duration = Duration::from_secs(30);
/// An id that no build of riverrun has.
const STRANGE: u32 = 999_999;

/// Knows one schema, when it is there.
#[derive(Clone, Default)]
struct Source {
    is_there: Arc<AtomicBool>,
    was_asked: Arc<AtomicBool>,
}

#[async_trait]
impl SchemaSource for Source {
    async fn schema(&self, id: u32) -> Result<Option<WriterSchema>, RegistryError> {
        self.was_asked.store(true, Ordering::SeqCst);
        if !self.is_there.load(Ordering::SeqCst) {
            return Err(RegistryError::Away { address: "http://registry".into(), reason: "connection refused".into() });
        }
        let newest = registry::newest(Topic::AgentCommands, "riverrun.agent.CancelRun").unwrap();
        Ok((id == STRANGE).then(|| WriterSchema::parse(newest.text).unwrap()))
    }
}

fn command(at: i64) -> AgentCommand {
    CancelRun { run_id: RunId::new(), reason: None, at }.into()
}

fn places(records: &[Record]) -> Vec<(i32, i64)> {
    records.iter().map(|record| (record.partition, record.offset)).collect()
}

/// The command under that schema id, or under its own.
fn outgoing(command: &AgentCommand, id: Option<u32>) -> Outgoing {
    let mut out = Outgoing::event(command, "test", None).unwrap().to_partition(0);
    if let Some(id) = id {
        let framed = out.payload.take().unwrap();
        let (_, body) = framing::unframe(&framed).unwrap();
        out.payload = Some(Bytes::from(framing::frame(id, body)));
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn given_a_source_that_is_away_when_a_tail_meets_its_schema_then_it_waits_there_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let broker = EmbeddedBroker::start(folder.path(), 0).await.unwrap();
    let mut config = broker.config("test");
    let source = Source::default();
    config.schemas = Schemas::with_source(source.clone());
    let admin = Admin::new(&config).unwrap();
    admin.wait_ready(PATIENCE).await.unwrap();
    admin.ensure_topics(all_specs()).await.unwrap();
    let commands = [command(1), command(2), command(3), command(4)];
    let records = vec![
        outgoing(&commands[0], None),
        outgoing(&commands[1], Some(STRANGE)),
        outgoing(&commands[2], None),
        outgoing(&commands[3], None).to_partition(1),
    ];
    Producer::new(&config).unwrap().send_many(records).await.unwrap();

    let place = |partition| (TopicPartition::new(Topic::AgentCommands.name(), partition), StartAt::Beginning);
    let mut tail = Tail::open(&config, vec![place(0), place(1)]).await.unwrap();
    let mut read: Vec<Record> = Vec::new();
    for _ in 0..2 {
        read.push(tokio::time::timeout(PATIENCE, tail.next()).await.unwrap().unwrap());
    }
    read.sort_by_key(|record| record.partition);
    assert_eq!(places(&read), [(0, 0), (1, 0)], "what is known goes on, in other partitions too");
    // The reader is dropped while it waits, as a loop with other things to do drops it.
    while !source.was_asked.load(Ordering::SeqCst) {
        assert!(tokio::time::timeout(Duration::from_millis(50), tail.next()).await.is_err());
    }
    assert!(tail.next().now_or_never().is_none() && !tail.has_caught_up());
    source.is_there.store(true, Ordering::SeqCst);
    while read.len() < commands.len() {
        read.push(tokio::time::timeout(PATIENCE, tail.next()).await.unwrap().unwrap());
    }
    assert_eq!(places(&read), [(0, 0), (1, 0), (0, 1), (0, 2)]);
    for (record, command) in read.iter().zip([0_usize, 3, 1, 2].map(|at| commands[at].clone())) {
        assert_eq!(config.schemas.decode::<AgentCommand>(record).unwrap(), Decoded::Event(command));
    }
    let range = Tail::read_range(&config, place(0).0, StartAt::Beginning).await.unwrap();
    assert_eq!(places(&range.collect().await.unwrap()), [(0, 0), (0, 1), (0, 2)]);
    drop(tail);
    broker.stop().await;
}
