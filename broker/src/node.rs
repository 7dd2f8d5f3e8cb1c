//! The heart that all connections share.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::config::BrokerConfig;
use crate::fetch_sessions::FetchSessions;
use crate::figures::Counters;
use crate::groups::Groups;
use crate::meta::{Entry, Meta, TopicMeta};
use crate::storage::flusher::FlushPool;
use crate::storage::journal::{Journal, wait};
use crate::storage::partition::Shared;
use crate::topic_config::{TopicConfig, check_all};
use crate::topics::{Topic, Topics, folder_of, is_internal, is_valid_name};
use crate::txn::coordinator::Coordinator;

/// The id of the only node.
pub(crate) const NODE_ID: i32 = 1;
/// Most compressed batches that are looked into at a time: each takes the memory of a codec, 128 MiB at worst.
pub(crate) const MAX_LOOKS: usize = 4;
/// Queued bytes are counted in units of this many.
const MEMORY_UNIT: usize = 1024;

/// Everything that a running broker holds.
pub(crate) struct Node {
    /// Settings.
    pub config: BrokerConfig,
    /// Topics, offsets, transactions.
    pub journal: Journal<Meta>,
    /// Live topics.
    pub topics: Topics,
    /// Live groups.
    pub groups: Groups,
    /// What clients fetch again and again.
    pub fetch_sessions: FetchSessions,
    /// What is counted.
    pub counters: Counters,
    /// Transactions.
    pub coordinator: Coordinator,
    /// Writes and syncs.
    pub flush: FlushPool,
    /// What partitions share.
    pub storage: Shared,
    /// Bytes that may wait for the disk.
    pub memory: Arc<Semaphore>,
    /// Turns of those who look into compressed batches.
    pub looks: Semaphore,
    /// Told at shutdown.
    pub shutdown: CancellationToken,
    /// Tasks to wait for at shutdown.
    pub tasks: TaskTracker,
    /// Topics are created, changed and deleted one at a time.
    pub admin: tokio::sync::Mutex<()>,
    /// Keeps the data folder ours for as long as anything can write to it.
    pub _lock: std::fs::File,
}

/// A refusal with a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Kafka's code.
    pub error: ResponseError,
    /// What is wrong and how to put it right.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(error: ResponseError, message: impl Into<String>) -> Self {
        Self { error, message: message.into() }
    }
}

impl From<ResponseError> for Refusal {
    fn from(error: ResponseError) -> Self {
        Self { error, message: error.to_string() }
    }
}

impl Node {
    /// Permits for `bytes` of queued records.
    pub(crate) async fn reserve(&self, bytes: usize) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let all = self.config.max_queued_bytes / MEMORY_UNIT;
        let units = bytes.div_ceil(MEMORY_UNIT).clamp(1, all.max(1));
        self.memory.clone().acquire_many_owned(units as u32).await.ok()
    }

    /// How many permits [`reserve`](Self::reserve) gives out in total.
    pub(crate) fn memory_units(config: &BrokerConfig) -> usize {
        (config.max_queued_bytes / MEMORY_UNIT).max(1)
    }

    /// Whether a topic may be created under this name.
    pub(crate) fn check_new_topic(&self, name: &str) -> Result<(), Refusal> {
        if self.topics.get(name).is_some() {
            return Err(Refusal::new(ResponseError::TopicAlreadyExists, format!("topic {name} already exists")));
        }
        if !is_valid_name(name) || is_internal(name) {
            let message =
                "topic names have 1 to 249 letters, digits, dots, underscores or hyphens, and are not reserved";
            return Err(Refusal::new(ResponseError::InvalidTopicException, message));
        }
        // The names of figures cannot tell a dot from an underscore.
        let figure = name.replace('.', "_");
        if let Some(like) = self.topics.all().iter().find(|topic| topic.name.replace('.', "_") == figure) {
            let message =
                format!("topic {name} collides with topic {}: dots and underscores count as the same", like.name);
            return Err(Refusal::new(ResponseError::InvalidTopicException, message));
        }
        Ok(())
    }

    /// Creates a topic. `partitions` -1 takes the default. With `validate_only` everything is checked and nothing done.
    pub(crate) async fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        configs: BTreeMap<String, String>,
        validate_only: bool,
    ) -> Result<TopicMeta, Refusal> {
        let _admin = self.admin.lock().await;
        self.check_new_topic(name)?;
        check_configs(&configs)?;
        let partitions = if partitions == -1 { self.config.default_partitions } else { partitions };
        self.check_partitions(0, partitions)?;
        let meta = TopicMeta { id: Uuid::new_v4(), partitions, configs, log_starts: BTreeMap::new() };
        if !validate_only {
            let recorded = self.journal.record(Entry::Topic { name: name.to_owned(), meta: meta.clone() }).await;
            if let Err(error) = recorded {
                self.take_back(name);
                return Err(error.into());
            }
            self.topics.add(name, &meta, self.config.segment_bytes, &self.storage);
            tracing::debug!(topic = name, partitions, "topic created");
        }
        Ok(meta)
    }

    fn check_partitions(&self, have: i32, want: i32) -> Result<(), Refusal> {
        if want <= have {
            let message = format!("the number of partitions must be greater than {have}, not {want}");
            return Err(Refusal::new(ResponseError::InvalidPartitions, message));
        }
        let others: usize = self.topics.all().iter().map(|topic| topic.partition_count()).sum();
        let total = others + (want - have) as usize;
        if total > self.config.max_partitions {
            let message = format!("{total} partitions are more than the {} allowed", self.config.max_partitions);
            return Err(Refusal::new(ResponseError::PolicyViolation, message));
        }
        Ok(())
    }

    /// The topic, created if that is allowed and asked for.
    pub(crate) async fn topic_or_create(&self, name: &str, create: bool) -> Result<Arc<Topic>, ResponseError> {
        if let Some(topic) = self.topics.get(name) {
            return Ok(topic);
        }
        if !is_valid_name(name) {
            return Err(ResponseError::InvalidTopicException);
        }
        if !create || !self.config.auto_create_topics || is_internal(name) {
            return Err(ResponseError::UnknownTopicOrPartition);
        }
        match self.create_topic(name, -1, BTreeMap::new(), false).await {
            Ok(_) => {}
            Err(refusal) if refusal.error == ResponseError::TopicAlreadyExists => {}
            Err(refusal) => return Err(refusal.error),
        }
        self.topics.get(name).ok_or(ResponseError::UnknownTopicOrPartition)
    }

    /// Deletes a topic, its records and the offsets committed for it.
    pub(crate) async fn delete_topic(&self, name: &str) -> Result<(), Refusal> {
        let _admin = self.admin.lock().await;
        let topic = self.topics.get(name).ok_or(ResponseError::UnknownTopicOrPartition)?;
        let durable = self.journal.lock().record(Entry::TopicDeleted { name: name.to_owned() })?;
        let recorded = wait(durable).await;
        self.topics.remove(name);
        topic.partitions().iter().for_each(|partition| partition.mark_deleted());
        // The deletion is part of the state, so nothing may be written to the topic any more. If it did not reach the disk,
        // its folder stays until a start finds that it did.
        recorded?;
        let (root, disk) = (self.storage.root.clone(), self.storage.files.disk().clone());
        let removed = tokio::task::spawn_blocking(move || {
            topic.partitions().iter().for_each(|partition| partition.wait_for_writer());
            let folder = folder_of(&root, &topic.name, topic.id);
            match disk.remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(folder = %folder.display(), error = %error, "folder of a deleted topic not removed");
                }
                _ => {}
            }
        });
        let _ = removed.await;
        tracing::info!(topic = name, "topic deleted");
        Ok(())
    }

    /// Gives a topic more partitions.
    pub(crate) async fn add_partitions(&self, name: &str, count: i32, validate_only: bool) -> Result<(), Refusal> {
        let _admin = self.admin.lock().await;
        let topic = self.topics.get(name).ok_or(ResponseError::UnknownTopicOrPartition)?;
        self.check_partitions(topic.partition_count() as i32, count)?;
        if !validate_only {
            let recorded =
                self.journal.record(Entry::PartitionsAdded { name: name.to_owned(), partitions: count }).await;
            if let Err(error) = recorded {
                self.take_back(name);
                return Err(error.into());
            }
            topic.grow(count, &self.storage);
        }
        Ok(())
    }

    /// Makes the journal say of a topic what there is of it, where something that was refused is part of its state.
    fn take_back(&self, name: &str) {
        let mut meta = self.journal.lock();
        if let Some(undo) = meta.topics.get(name).and_then(|known| self.undo(name, known)) {
            meta.take_back(undo);
        }
    }

    /// What undoes that the journal has a topic, or partitions of it, which are not here; none where they are.
    pub(crate) fn undo(&self, name: &str, known: &TopicMeta) -> Option<Entry> {
        let name = name.to_owned();
        let Some(topic) = self.topics.get(&name) else { return Some(Entry::TopicDeleted { name }) };
        let partitions = topic.partition_count() as i32;
        (known.partitions > partitions).then_some(Entry::PartitionsAdded { name, partitions })
    }

    /// Changes a topic's settings through `change`, which gets those that are set.
    pub(crate) async fn change_configs(
        &self,
        name: &str,
        validate_only: bool,
        change: impl FnOnce(&mut BTreeMap<String, String>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let _admin = self.admin.lock().await;
        let mut configs = self.journal.lock().topics.get(name).map(|meta| meta.configs.clone()).unwrap_or_default();
        let before = configs.clone();
        change(&mut configs)?;
        check_configs(&configs)?;
        // A setting that cannot be is told even of a topic that is not there, as Apache Kafka does.
        let topic = self.topics.get(name).ok_or(ResponseError::UnknownTopicOrPartition)?;
        if !validate_only {
            let set = |configs| Entry::ConfigsSet { name: name.to_owned(), configs };
            let durable = self.journal.lock().record(set(configs.clone()))?;
            if let Err(error) = wait(durable).await {
                self.journal.lock().take_back(set(before));
                return Err(error.into());
            }
            topic.set_config(TopicConfig::new(&configs, self.config.segment_bytes));
        }
        Ok(())
    }
}

fn check_configs(configs: &BTreeMap<String, String>) -> Result<(), Refusal> {
    check_all(configs).map_err(|error| Refusal::new(ResponseError::InvalidConfig, error.to_string()))
}
