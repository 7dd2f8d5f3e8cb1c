//! Several followers of one topic: what none of them can read is told once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riverrun_log::{EmbeddedBroker, LogConfig, Outgoing, Producer, Schemas, StartAt, Tail, TopicPartition, admin};
use riverrun_schemas::{Topic, topics};
use riverrun_stores::documents::DOCUMENT_TOPICS;
use riverrun_stores::read_models::PROJECTED_TOPICS;
use riverrun_stores::{Sql, SqlDocuments};
use riverrun_workers::documents::{self, DocumentsConfig};
use riverrun_workers::projector::{self, ProjectorConfig};
use riverrun_workers::runtime::WorkerHandle;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    _broker: EmbeddedBroker,
    log: LogConfig,
    producer: Producer,
    sql: Sql,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let broker = EmbeddedBroker::start(&folder.path().join("broker"), 0).await.unwrap();
        let log = LogConfig::new(broker.address().to_string(), "test");
        admin::ensure_topics(&log, topics::all_specs()).await.unwrap();
        let producer = Producer::new(&log).unwrap();
        let sql = Sql::open(folder.path().join("read.db")).await.unwrap();
        Self { _broker: broker, log, producer, sql, _folder: folder }
    }

    fn projector(&self, stop: &CancellationToken) -> WorkerHandle {
        let config = ProjectorConfig {
            log: self.log.clone(),
            producer: self.producer.clone(),
            schemas: Schemas::built_in(),
            sql: self.sql.clone(),
            caught_up: CancellationToken::new(),
        };
        projector::spawn(config, stop.clone())
    }

    fn documents(&self, stop: &CancellationToken) -> WorkerHandle {
        let config = DocumentsConfig {
            log: self.log.clone(),
            producer: self.producer.clone(),
            schemas: Schemas::built_in(),
            store: Arc::new(SqlDocuments::new(self.sql.clone())),
            blobs: None,
            caught_up: CancellationToken::new(),
        };
        documents::spawn(config, stop.clone())
    }

    /// How many dead letters a topic has from each group.
    async fn letters(&self, topic: Topic) -> BTreeMap<String, usize> {
        let partition = TopicPartition::new(topic.dead_letters(), 0);
        let range = Tail::read_range(&self.log, partition, StartAt::Beginning).await.unwrap();
        let mut letters = BTreeMap::new();
        for letter in range.collect().await.unwrap() {
            let group = String::from_utf8_lossy(letter.header("dlq_group").unwrap()).into_owned();
            *letters.entry(group).or_default() += 1;
        }
        letters
    }
}

fn garbage(topic: Topic) -> Outgoing {
    Outgoing {
        topic: topic.name().into(),
        partition: Some(0),
        key: None,
        payload: Some(b"no event".as_slice().into()),
        headers: vec![],
    }
}

/// Waits until a follower has read a record of each of its topics, whatever it made of it.
async fn has_read(handle: &WorkerHandle, topics: &[Topic]) {
    let deadline = Instant::now() + PATIENCE;
    let is_behind = |topic: &Topic| {
        let position = handle.positions().get(&TopicPartition::new(topic.name(), 0)).copied();
        position.is_none_or(|next| next < 1)
    };
    while topics.iter().any(is_behind) {
        assert!(Instant::now() < deadline, "waited in vain; positions: {:?}", handle.positions());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_two_followers_of_one_topic_when_a_record_can_not_be_read_then_the_one_that_answers_for_it_makes_one_dead_letter()
 {
    let world = World::new().await;
    let stop = CancellationToken::new();
    let (projector, documents) = (world.projector(&stop), world.documents(&stop));
    let followed: Vec<Topic> = PROJECTED_TOPICS.into_iter().chain([Topic::Canvases]).collect();
    for topic in &followed {
        world.producer.send_one(garbage(*topic)).await.unwrap();
    }
    has_read(&projector, &PROJECTED_TOPICS).await;
    has_read(&documents, &DOCUMENT_TOPICS).await;
    for topic in followed {
        let group = if topic == Topic::Canvases { "riverrun.documents" } else { "riverrun.projector" };
        assert_eq!(world.letters(topic).await, BTreeMap::from([(group.to_owned(), 1)]), "{}", topic.name());
    }
    assert_eq!((projector.status().dead_letters, projector.status().skipped), (5, 0));
    assert_eq!((documents.status().dead_letters, documents.status().skipped), (1, 2));
    stop.cancel();
    projector.join().await.unwrap();
    documents.join().await.unwrap();
}
