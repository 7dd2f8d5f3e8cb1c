//! Readers of the log meet records whose schema only an outside source has, while that source is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use riverrun_log::admin::Admin;
use riverrun_log::registry::SchemaSource;
use riverrun_log::{EmbeddedBroker, Outgoing, Producer, RegistryError, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::{AgentCommand, CancelRun};
use riverrun_schemas::codec::WriterSchema;
use riverrun_schemas::topics::all_specs;
use riverrun_schemas::{Decoded, EventSet, RunId, Topic, framing, registry};

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
    let commands = [command(1), command(2), command(3)];
    let records =
        vec![outgoing(&commands[0], None), outgoing(&commands[1], Some(STRANGE)), outgoing(&commands[2], None)];
    Producer::new(&config).unwrap().send_many(records).await.unwrap();

    let place = TopicPartition::new(Topic::AgentCommands.name(), 0);
    let mut tail = Tail::open(&config, vec![(place, StartAt::Beginning)]).await.unwrap();
    let mut read = vec![tokio::time::timeout(PATIENCE, tail.next()).await.unwrap().unwrap()];
    assert!(!source.was_asked.load(Ordering::SeqCst), "a schema of the committed list is nobody else's business");
    // The reader is dropped while it waits, as a loop with other things to do drops it.
    while !source.was_asked.load(Ordering::SeqCst) {
        assert!(tokio::time::timeout(Duration::from_millis(50), tail.next()).await.is_err());
    }
    source.is_there.store(true, Ordering::SeqCst);
    while read.len() < commands.len() {
        read.push(tokio::time::timeout(PATIENCE, tail.next()).await.unwrap().unwrap());
    }
    let offsets: Vec<i64> = read.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [0, 1, 2]);
    for (record, command) in read.iter().zip(&commands) {
        assert_eq!(config.schemas.decode::<AgentCommand>(record).unwrap(), Decoded::Event(command.clone()));
    }
    drop(tail);
    broker.stop().await;
}
