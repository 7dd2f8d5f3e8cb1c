//! For tests of workers, here and in other crates: a worker that is handed everything twice, and a whole log of its own.
//! Everything here panics when what it was asked for does not come, as tests want it.

use std::fmt::Display;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use riverrun_log::admin::{Admin, GroupTopics};
use riverrun_log::dead_letters::DeadLetters;
use riverrun_log::{
    DeadLetter, EmbeddedBroker, LogConfig, Outgoing, Position, Producer, Record, Schemas, StartAt, Tail, TopicPartition,
};
use riverrun_schemas::topics::all_specs;
use riverrun_schemas::{Decoded, Envelope, EventId, EventSet, Topic};

use super::{Context, Delivery, RuntimeConfig, Worker, group_of};

/// How long anything may take before a test has failed: much more than it takes, for machines that do much else.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The first pause between two looks. Later ones are longer, because a look may read a whole topic.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Who writes what tests send.
const COMPONENT: &str = "test";

/// Events as the loop would hand them in, at offsets from 0.
pub fn deliveries<E: EventSet>(events: impl IntoIterator<Item = E>) -> Vec<Delivery<E>> {
    let topic = TopicPartition::new(E::TOPIC.name(), 0);
    let deliver = |(event, offset): (E, i64)| Delivery {
        envelope: Envelope::of(&event, COMPONENT, None),
        event,
        position: topic.at(offset),
        attempt: 1,
    };
    events.into_iter().zip(0..).map(deliver).collect()
}

/// A context without a broker behind it, for workers that write nothing by themselves.
pub fn context(worker: &str) -> Context {
    let log = LogConfig::new("127.0.0.1:1", COMPONENT);
    let producer = Producer::new(&log).unwrap_or_else(|error| panic!("no producer: {error}"));
    Context { log, producer, schemas: Schemas::built_in(), group: group_of(worker), in_hand: None }
}

/// Hands in every batch twice, as redelivery does, and gives the outputs of the first time. The second time must give
/// events of the same ids: what follows from a cause is derived from it.
pub async fn twice<W: Worker>(worker: &W, events: impl IntoIterator<Item = W::Input>) -> Vec<Outgoing> {
    let (context, batch) = (context(worker.name()), deliveries(events));
    let mut outputs = Vec::new();
    for time in ["first", "second"] {
        let given = worker.handle(&batch, &context).await;
        outputs.push(given.unwrap_or_else(|error| panic!("worker {} failed the {time} time: {error}", worker.name())));
    }
    let ids = |outputs: &[Outgoing]| outputs.iter().map(Outgoing::event_id).collect::<Vec<_>>();
    assert_eq!(ids(&outputs[0]), ids(&outputs[1]), "worker {} says something else the second time", worker.name());
    outputs.swap_remove(0)
}

/// Waits until `check` gives something; `what` names it when it does not come.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: impl Display, mut check: impl FnMut() -> F) -> T {
    let since = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        // A look that hangs is a failure too, not a test that never ends.
        match tokio::time::timeout(PATIENCE, check()).await {
            Ok(Some(found)) => return found,
            Ok(None) => {}
            Err(_) => panic!("looking for {what} did not end within {PATIENCE:?}"),
        }
        assert!(since.elapsed() < PATIENCE, "{what} did not come within {PATIENCE:?}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A broker on a free port over a folder of its own, with every topic. Removed when dropped.
pub struct Stack {
    folder: PathBuf,
    broker: Option<EmbeddedBroker>,
    port: u16,
    log: LogConfig,
    producer: Producer,
    admin: Admin,
}

impl Stack {
    /// Starts it.
    pub async fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("riverrun-{}", EventId::new()));
        let broker = EmbeddedBroker::start(&folder, 0).await.unwrap_or_else(|error| panic!("no broker: {error}"));
        let (port, log) = (broker.address().port(), broker.config(COMPONENT));
        let admin = Admin::new(&log).unwrap_or_else(|error| panic!("no admin: {error}"));
        admin.ensure_topics(all_specs()).await.unwrap_or_else(|error| panic!("no topics: {error}"));
        let producer = Producer::new(&log).unwrap_or_else(|error| panic!("no producer: {error}"));
        Self { folder, broker: Some(broker), port, log, producer, admin }
    }

    /// How to reach its broker.
    pub fn log(&self) -> &LogConfig {
        &self.log
    }

    /// Writes to it.
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// For [`super::spawn`], with pauses that suit a test.
    pub fn config(&self) -> RuntimeConfig {
        RuntimeConfig {
            session_timeout: Duration::from_secs(6),
            heartbeat: Duration::from_millis(500),
            backoff_base: Duration::from_millis(10),
            backoff_max: Duration::from_millis(100),
            commit_interval: Duration::from_millis(20),
            ..RuntimeConfig::new(self.log.clone(), self.producer.clone())
        }
    }

    /// Writes events, in order.
    pub async fn send<E: EventSet>(&self, events: &[E]) -> Vec<Position> {
        let records = events
            .iter()
            .map(|event| {
                Outgoing::event(event, COMPONENT, None).unwrap_or_else(|error| panic!("not an event: {error}"))
            })
            .collect();
        self.send_records(records).await
    }

    /// Writes any records, in order.
    pub async fn send_records(&self, records: Vec<Outgoing>) -> Vec<Position> {
        self.producer.send_many(records).await.unwrap_or_else(|error| panic!("not sent: {error}"))
    }

    /// Every committed record of a topic, partition after partition.
    pub async fn records(&self, topic: &str) -> Vec<Record> {
        let partitions = self.admin.partitions(topic).await.unwrap_or_else(|error| panic!("no partitions: {error}"));
        let mut records = Vec::new();
        for partition in 0..partitions {
            let range = Tail::read_range(&self.log, TopicPartition::new(topic, partition), StartAt::Beginning).await;
            let range = range.unwrap_or_else(|error| panic!("can't read {topic}: {error}"));
            records.extend(range.collect().await.unwrap_or_else(|error| panic!("can't read {topic}: {error}")));
        }
        records
    }

    /// Every event of a topic, partition after partition.
    pub async fn events<E: EventSet>(&self) -> Vec<E> {
        let decode = |record: &Record| match Schemas::built_in().decode::<E>(record) {
            Ok(Decoded::Event(event)) => Some(event),
            Ok(Decoded::UnknownType { .. }) | Err(_) => None,
        };
        self.records(E::TOPIC.name()).await.iter().filter_map(decode).collect()
    }

    /// Waits until a topic has at least `count` events and gives them.
    pub async fn wait_for_events<E: EventSet>(&self, count: usize) -> Vec<E> {
        let what = format!("{count} events on {}", E::TOPIC.name());
        eventually(what, || async { Some(self.events::<E>().await).filter(|events| events.len() >= count) }).await
    }

    /// The dead letters of a topic.
    pub async fn letters(&self, topic: Topic) -> Vec<DeadLetter> {
        self.dead_letters()
            .list(Some(topic.name()), usize::MAX)
            .await
            .unwrap_or_else(|error| panic!("no dead letters: {error}"))
    }

    /// Lists, shows and handles dead letters.
    pub fn dead_letters(&self) -> DeadLetters {
        DeadLetters::new(&self.log, self.producer.clone()).unwrap_or_else(|error| panic!("no dead letters: {error}"))
    }

    /// Records of a topic that a worker's group has not committed.
    pub async fn lag(&self, worker: &str, topic: Topic) -> i64 {
        let group = GroupTopics { group: group_of(worker), topics: vec![topic.name().to_owned()] };
        let lines = self.admin.lag(&[group]).await.unwrap_or_else(|error| panic!("no lag: {error}"));
        lines.iter().map(|line| line.lag).sum()
    }

    /// Waits until a worker's group has committed everything on a topic.
    pub async fn drained(&self, worker: &str, topic: Topic) {
        eventually(format!("no lag of {worker}"), || async { (self.lag(worker, topic).await == 0).then_some(()) })
            .await;
    }

    /// Stops the broker, runs `meanwhile`, and starts it again on the same port and folder.
    pub async fn without_broker(&mut self, meanwhile: impl Future<Output = ()>) {
        if let Some(broker) = self.broker.take() {
            broker.stop().await;
        }
        meanwhile.await;
        self.broker = Some(
            eventually("the broker", || async {
                let started = EmbeddedBroker::start(&self.folder, self.port).await;
                started.inspect_err(|error| tracing::debug!(error = %error, "broker does not start yet")).ok()
            })
            .await,
        );
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        drop(self.broker.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
