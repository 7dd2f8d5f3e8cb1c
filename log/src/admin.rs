//! Topics, readiness and lag.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};
use riverrun_schemas::TopicSpec;
use serde::Serialize;

use crate::config::LogConfig;
use crate::context::Quiet;
use crate::error::LogError;
use crate::lag::records_between;
use crate::record::TopicPartition;

const REQUEST: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);
/// Dead letters are their original record and some headers: they need more room than records elsewhere.
pub(crate) const DEAD_LETTER_MAX_BYTES: &str = "4194304";

/// A topic as the broker has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// Number of partitions.
    pub partitions: i32,
}

/// How far a group is behind in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionLag {
    /// The group's id.
    pub group: String,
    /// Where.
    pub partition: TopicPartition,
    /// The offset to read next; `None` when the group never committed one here.
    pub committed: Option<i64>,
    /// One past the last offset.
    pub end: i64,
    /// Records not yet handled.
    pub lag: i64,
}

/// A group and what it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTopics {
    /// The group's id.
    pub group: String,
    /// Names of its topics.
    pub topics: Vec<String>,
}

/// Creates what is missing of `topics`: [`Admin::ensure_topics`] for those who need nothing else.
pub async fn ensure_topics(config: &LogConfig, topics: &[TopicSpec]) -> Result<(), LogError> {
    Admin::new(config)?.ensure_topics(topics).await
}

/// Waits until the broker answers, at most `limit`.
pub async fn wait_ready(config: &LogConfig, limit: Duration) -> Result<(), LogError> {
    Admin::new(config)?.wait_ready(limit).await
}

type Observer = BaseConsumer<Quiet>;

/// Asks a broker about itself. Keep one: its connections are reused.
pub struct Admin {
    config: LogConfig,
    /// Asks about topics, as a member of nothing. The library's own client for that has a thread that polls for ever, and its
    /// end waits for it: that one is made where topics are to be created.
    client: Option<Arc<Observer>>,
    /// One client a group that was asked about; as many as there are groups.
    observers: Mutex<HashMap<String, Arc<Observer>>>,
}

impl Admin {
    /// Connects when it is first used.
    pub fn new(config: &LogConfig) -> Result<Self, LogError> {
        let client: Observer = config
            .admin()
            .create_with_context(Quiet)
            .map_err(|error| LogError::kafka("create an admin client", error))?;
        Ok(Self { config: config.clone(), client: Some(Arc::new(client)), observers: Mutex::default() })
    }

    fn client(&self) -> &Arc<Observer> {
        self.client.as_ref().unwrap_or_else(|| unreachable!("it is taken only by drop"))
    }

    /// Waits until the broker answers, at most `limit`.
    pub async fn wait_ready(&self, limit: Duration) -> Result<(), LogError> {
        let since = Instant::now();
        loop {
            match self.metadata(None, Duration::from_secs(1)).await {
                Ok(_) => return Ok(()),
                Err(error) if !error.retryable() => return Err(error),
                Err(_) if since.elapsed() >= limit => {
                    return Err(LogError::Timeout {
                        doing: format!("wait for a broker at {}", self.config.brokers),
                        seconds: limit.as_secs(),
                    });
                }
                Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// The broker's topics, by name.
    pub async fn topics(&self) -> Result<Vec<TopicInfo>, LogError> {
        let mut topics = self.metadata(None, REQUEST).await?;
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    /// How many partitions a topic has.
    pub async fn partitions(&self, topic: &str) -> Result<i32, LogError> {
        let found = self.metadata(Some(topic.to_owned()), REQUEST).await?;
        match found.first() {
            Some(info) if info.partitions > 0 => Ok(info.partitions),
            _ => Err(LogError::NotFound(format!("topic {topic}"))),
        }
    }

    /// What the brokers call their cluster: of another log it is another one. `None` where they don't say.
    pub async fn cluster_id(&self) -> Result<Option<String>, LogError> {
        let client = self.client().clone();
        blocking("ask for the cluster's id", move || {
            take_gathered(&client);
            Ok(client.client().fetch_cluster_id(REQUEST).filter(|id| !id.is_empty()))
        })
        .await
    }

    async fn metadata(&self, topic: Option<String>, limit: Duration) -> Result<Vec<TopicInfo>, LogError> {
        let client = self.client().clone();
        blocking("ask for topics", move || {
            take_gathered(&client);
            let metadata = client.fetch_metadata(topic.as_deref(), limit)?;
            Ok(metadata
                .topics()
                .iter()
                .map(|t| TopicInfo {
                    name: t.name().to_owned(),
                    partitions: i32::try_from(t.partitions().len()).unwrap_or(i32::MAX),
                })
                .collect())
        })
        .await
    }

    /// Creates the topics that are missing and returns when every one can be used. A topic that is there is left as it
    /// is; too few partitions are an error, because keys would not be where readers look.
    pub async fn ensure_topics(&self, topics: &[TopicSpec]) -> Result<(), LogError> {
        let there: HashMap<String, i32> = self.topics().await?.into_iter().map(|t| (t.name, t.partitions)).collect();
        for spec in topics {
            if let Some(partitions) = there.get(&spec.name).filter(|partitions| **partitions != spec.partitions) {
                tracing::warn!(
                    topic = spec.name,
                    partitions,
                    wanted = spec.partitions,
                    "topic has another number of partitions than deploy/topics.toml says"
                );
            }
        }
        let missing: Vec<&TopicSpec> = topics.iter().filter(|spec| !there.contains_key(&spec.name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.create(&missing).await?;
        for spec in missing {
            self.wait_for_topic(spec).await?;
        }
        Ok(())
    }

    async fn create(&self, missing: &[&TopicSpec]) -> Result<(), LogError> {
        let retentions: Vec<String> = missing.iter().map(|spec| spec.retention_ms().to_string()).collect();
        let new: Vec<NewTopic<'_>> = missing
            .iter()
            .zip(&retentions)
            .map(|(spec, retention)| {
                // -1: as many replicas as the broker's own default says.
                let topic = NewTopic::new(&spec.name, spec.partitions, TopicReplication::Fixed(-1))
                    .set("retention.ms", retention);
                if spec.name.ends_with(crate::dead_letters::SUFFIX) {
                    topic.set("max.message.bytes", DEAD_LETTER_MAX_BYTES)
                } else {
                    topic
                }
            })
            .collect();
        let options = AdminOptions::new().request_timeout(Some(REQUEST)).operation_timeout(Some(REQUEST));
        let client: AdminClient<Quiet> = self
            .config
            .admin()
            .create_with_context(Quiet)
            .map_err(|error| LogError::kafka("create an admin client", error))?;
        let created = client.create_topics(&new, &options).await;
        // Its end waits for its polling thread: never on a thread that runs tasks.
        std::thread::spawn(move || drop(client));
        let results = created.map_err(|error| LogError::kafka("create topics", error))?;
        let mut made = 0;
        for result in results {
            match result {
                Ok(name) => {
                    made += 1;
                    tracing::debug!(topic = name, "topic created");
                }
                Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) => {
                    return Err(LogError::kafka(format!("create topic {name}"), KafkaError::AdminOp(code)));
                }
            }
        }
        if made > 0 {
            // One line: a first start has more than thirty.
            tracing::info!(topics = made, "topics created");
        }
        Ok(())
    }

    async fn wait_for_topic(&self, spec: &TopicSpec) -> Result<(), LogError> {
        let since = Instant::now();
        loop {
            match self.partitions(&spec.name).await {
                Ok(_) => return Ok(()),
                Err(LogError::NotFound(_)) if since.elapsed() < REQUEST => tokio::time::sleep(POLL).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// How far groups are behind, a line per partition.
    pub async fn lag(&self, groups: &[GroupTopics]) -> Result<Vec<PartitionLag>, LogError> {
        let mut lines = Vec::new();
        for group in groups {
            let mut partitions = Vec::new();
            for topic in &group.topics {
                let count = self.partitions(topic).await?;
                partitions.extend((0..count).map(|partition| TopicPartition::new(topic.as_str(), partition)));
            }
            lines.extend(self.group_lag(&group.group, partitions).await?);
        }
        Ok(lines)
    }

    /// One past the last offset of each partition that `read_committed` readers see. Asked by a client that polls
    /// nothing: the answer waits for no poll.
    pub async fn ends(&self, partitions: Vec<TopicPartition>) -> Result<HashMap<TopicPartition, i64>, LogError> {
        self.observe("riverrun.ends", "ask for ends", move |observer| {
            let end = |partition: TopicPartition| -> Result<(TopicPartition, i64), KafkaError> {
                let (_, end) = bounds(observer, &partition)?;
                Ok((partition, end))
            };
            partitions.into_iter().map(end).collect()
        })
        .await
    }

    async fn group_lag(&self, group: &str, partitions: Vec<TopicPartition>) -> Result<Vec<PartitionLag>, LogError> {
        let name = group.to_owned();
        self.observe(group, "ask for lag", move |observer| {
            let mut list = TopicPartitionList::with_capacity(partitions.len());
            for partition in &partitions {
                list.add_partition(&partition.topic, partition.partition);
            }
            let committed = observer.committed_offsets(list, REQUEST)?;
            let lag = |partition: TopicPartition| -> Result<PartitionLag, KafkaError> {
                let (low, end) = bounds(observer, &partition)?;
                let committed =
                    match committed.find_partition(&partition.topic, partition.partition).map(|e| e.offset()) {
                        Some(Offset::Offset(offset)) => Some(offset),
                        _ => None,
                    };
                let lag = records_between(low, committed, end);
                Ok(PartitionLag { group: name.clone(), partition, committed, end, lag })
            };
            partitions.into_iter().map(lag).collect()
        })
        .await
    }

    /// Asks with the client of a group.
    async fn observe<T: Send + 'static>(
        &self,
        group: &str,
        doing: &'static str,
        ask: impl FnOnce(&Observer) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, LogError> {
        let observer = self.observer(group)?;
        blocking(doing, move || {
            take_gathered(&observer);
            ask(observer.as_ref())
        })
        .await
    }

    fn observer(&self, group: &str) -> Result<Arc<Observer>, LogError> {
        let mut observers = self.observers.lock();
        if let Some(observer) = observers.get(group) {
            return Ok(observer.clone());
        }
        let observer: Observer = self
            .config
            .observer(group)
            .create_with_context(Quiet)
            .map_err(|error| LogError::kafka(format!("create an observer of {group}"), error))?;
        let observer = Arc::new(observer);
        observers.insert(group.to_owned(), observer.clone());
        Ok(observer)
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let clients = (self.client.take(), std::mem::take(&mut *self.observers.lock()));
        // Closing a client blocks: never on a thread that runs tasks.
        std::thread::spawn(move || drop(clients));
    }
}

/// Nobody else polls such a client: takes what gathered in its queue.
fn take_gathered(client: &Observer) {
    while client.poll(Duration::ZERO).is_some() {}
}

/// The first offset of a partition, and one past the last that `read_committed` readers see.
fn bounds(observer: &Observer, partition: &TopicPartition) -> Result<(i64, i64), KafkaError> {
    observer.fetch_watermarks(&partition.topic, partition.partition, REQUEST)
}

async fn blocking<T: Send + 'static>(
    doing: &'static str,
    call: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, LogError> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result.map_err(|error| LogError::kafka(doing, error)),
        Err(_) => Err(LogError::Stopped(doing.to_owned())),
    }
}
