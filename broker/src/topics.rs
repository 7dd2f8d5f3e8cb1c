//! The topics that exist, and how they come and go.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use uuid::Uuid;

use crate::meta::TopicMeta;
use crate::storage::partition::{Partition, PartitionName, Shared};
use crate::storage::recovery::{Recovered, recover};
use crate::topic_config::TopicConfig;

/// Longest topic name.
pub(crate) const MAX_NAME: usize = 249;

/// Whether a topic may be called so: `[a-zA-Z0-9._-]{1,249}`, but not `.` or `..`.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let length = (1..=MAX_NAME).contains(&name.len());
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    length && letters && name != "." && name != ".."
}

/// Whether a topic name is reserved for the inside of Apache Kafka; such topics are not written by clients.
pub(crate) fn is_internal(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__cluster_metadata" | "__share_group_state")
}

/// A topic with its partitions.
pub(crate) struct Topic {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Uuid,
    config: Arc<RwLock<Arc<TopicConfig>>>,
    partitions: RwLock<Vec<Arc<Partition>>>,
}

impl Topic {
    /// The partition with this index.
    pub(crate) fn partition(&self, index: i32) -> Option<Arc<Partition>> {
        self.partitions.read().get(usize::try_from(index).ok()?).cloned()
    }

    /// All partitions in order.
    pub(crate) fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.read().clone()
    }

    /// Their number.
    pub(crate) fn partition_count(&self) -> usize {
        self.partitions.read().len()
    }

    /// The settings.
    pub(crate) fn config(&self) -> Arc<TopicConfig> {
        self.config.read().clone()
    }

    /// Replaces the settings.
    pub(crate) fn set_config(&self, config: TopicConfig) {
        *self.config.write() = Arc::new(config);
    }

    /// Adds empty partitions up to `count`.
    pub(crate) fn grow(&self, count: i32, storage: &Shared) {
        let mut partitions = self.partitions.write();
        for index in partitions.len() as i32..count {
            let partition = self.open_partition(index, 0, Recovered::default(), storage);
            partitions.push(partition);
        }
    }

    fn open_partition(&self, index: i32, log_start: i64, recovered: Recovered, storage: &Shared) -> Arc<Partition> {
        let name = PartitionName { topic: self.name.clone(), index };
        let folder = folder_of(&storage.root, &self.name, self.id).join(index.to_string());
        Partition::new(name, folder, self.config.clone(), storage.clone(), log_start, recovered)
    }
}

/// Where a topic lies. The id keeps a topic apart from an earlier one of the same name.
pub(crate) fn folder_of(root: &Path, name: &str, id: Uuid) -> PathBuf {
    // A file name has at most 255 bytes; topic names are ASCII, so any cut is a boundary.
    let short = &name[..name.len().min(180)];
    root.join("topics").join(format!("{short}.{}", id.simple()))
}

#[derive(Default)]
struct Known {
    by_name: BTreeMap<String, Arc<Topic>>,
    by_id: HashMap<Uuid, Arc<Topic>>,
}

/// All topics.
#[derive(Default)]
pub(crate) struct Topics {
    known: RwLock<Known>,
}

impl Topics {
    /// The topic of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Topic>> {
        self.known.read().by_name.get(name).cloned()
    }

    /// The topic of this id.
    pub(crate) fn by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        self.known.read().by_id.get(&id).cloned()
    }

    /// A partition by topic name and index.
    pub(crate) fn partition(&self, name: &str, index: i32) -> Option<Arc<Partition>> {
        self.get(name)?.partition(index)
    }

    /// All topics by name.
    pub(crate) fn all(&self) -> Vec<Arc<Topic>> {
        self.known.read().by_name.values().cloned().collect()
    }

    /// Every partition of every topic.
    pub(crate) fn all_partitions(&self) -> Vec<Arc<Partition>> {
        self.all().iter().flat_map(|topic| topic.partitions()).collect()
    }

    /// Adds a topic without records.
    pub(crate) fn add(&self, name: &str, meta: &TopicMeta, segment_bytes: u64, storage: &Shared) -> Arc<Topic> {
        let topic = new_topic(name, meta, segment_bytes);
        topic.grow(meta.partitions, storage);
        self.insert(topic)
    }

    fn insert(&self, topic: Topic) -> Arc<Topic> {
        let topic = Arc::new(topic);
        let mut known = self.known.write();
        known.by_name.insert(topic.name.clone(), topic.clone());
        known.by_id.insert(topic.id, topic.clone());
        topic
    }

    /// Takes a topic away.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Topic>> {
        let mut known = self.known.write();
        let topic = known.by_name.remove(name)?;
        known.by_id.remove(&topic.id);
        Some(topic)
    }

    /// Opens every topic of the journal, reading the folders with as many threads as there are processors.
    pub(crate) fn open_all(
        &self,
        metas: &BTreeMap<String, TopicMeta>,
        segment_bytes: u64,
        storage: &Shared,
    ) -> std::io::Result<()> {
        let topics: Vec<(Topic, &TopicMeta)> =
            metas.iter().map(|(name, meta)| (new_topic(name, meta, segment_bytes), meta)).collect();
        let jobs: Vec<(&Topic, &TopicMeta, i32)> = topics
            .iter()
            .flat_map(|(topic, meta)| (0..meta.partitions).map(move |index| (topic, *meta, index)))
            .collect();
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let next = std::sync::atomic::AtomicUsize::new(0);
        let open = parking_lot::Mutex::new(HashMap::new());
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| -> std::io::Result<()> {
                        while let Some((topic, meta, index)) =
                            jobs.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                        {
                            let folder = folder_of(&storage.root, &topic.name, topic.id).join(index.to_string());
                            let recovered = recover(storage.files.disk(), &folder)?;
                            if let Some(reason) = &recovered.corrupt {
                                tracing::error!(topic = %topic.name, partition = index, "{reason}");
                            }
                            let log_start = meta.log_starts.get(index).copied().unwrap_or(0);
                            let partition = topic.open_partition(*index, log_start, recovered, storage);
                            open.lock().insert((topic.id, *index), partition);
                        }
                        Ok(())
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err(std::io::Error::other("a recovery thread panicked")))
            })
        })?;
        let mut open = open.into_inner();
        for (topic, meta) in topics {
            let partitions = (0..meta.partitions).filter_map(|index| open.remove(&(topic.id, index))).collect();
            *topic.partitions.write() = partitions;
            self.insert(topic);
        }
        Ok(())
    }
}

fn new_topic(name: &str, meta: &TopicMeta, segment_bytes: u64) -> Topic {
    let config = Arc::new(RwLock::new(Arc::new(TopicConfig::new(&meta.configs, segment_bytes))));
    Topic { name: name.to_owned(), id: meta.id, config, partitions: RwLock::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_names_when_checked_then_only_kafka_names_pass() {
        for good in ["a", "A.b_c-9", &"x".repeat(249), "...", "_"] {
            assert!(is_valid_name(good), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "ä", "a\0", &"x".repeat(250)] {
            assert!(!is_valid_name(bad), "{bad}");
        }
    }
}
