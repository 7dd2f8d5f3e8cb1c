//! How far groups are: asked of a broker, and told to another one. Nobody of the group may be at work meanwhile.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, DefaultConsumerContext};
use rdkafka::{Offset, TopicPartitionList};

use super::Committed;
use crate::config::LogConfig;
use crate::error::LogError;
use crate::group::{CommitOffset, offset_list};
use crate::record::TopicPartition;

const PATIENCE: Duration = Duration::from_secs(20);

/// A group's place in a partition, in offsets of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPlace {
    /// Where.
    pub partition: TopicPartition,
    /// The offset to read next.
    pub offset: i64,
    /// The offset that is noted beside it, where there is one.
    pub note: Option<i64>,
}

/// Where a group is in these partitions; those that it never committed are left out.
///
/// # Errors
/// When the broker refuses or is away.
pub async fn committed(
    config: &LogConfig,
    group: &str,
    partitions: Vec<TopicPartition>,
) -> Result<Vec<GroupPlace>, LogError> {
    ask(config, group, "ask where a group is", move |client| {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in &partitions {
            list.add_partition(&partition.topic, partition.partition);
        }
        let found =
            client.committed_offsets(list, PATIENCE).map_err(|error| LogError::kafka("ask where a group is", error))?;
        let place = |partition: TopicPartition| {
            let element = found.find_partition(&partition.topic, partition.partition)?;
            let Offset::Offset(offset) = element.offset() else { return None };
            let note = element.metadata().parse().ok();
            Some(GroupPlace { partition, offset, note })
        };
        Ok(partitions.into_iter().filter_map(place).collect())
    })
    .await
}

/// Tells a broker where a group is. In a partition that was empty before its archive came, record n has offset n.
///
/// # Errors
/// When the broker refuses, as it does while a member of the group is at work.
pub async fn commit(config: &LogConfig, group: &str, places: &[Committed]) -> Result<(), LogError> {
    let number = |record: u64| i64::try_from(record).unwrap_or(i64::MAX);
    let offsets: Vec<CommitOffset> = places
        .iter()
        .map(|place| CommitOffset {
            partition: TopicPartition::new(place.topic.as_str(), place.partition),
            offset: number(place.next),
            metadata: place.note.map(|note| number(note).to_string()),
        })
        .collect();
    if offsets.is_empty() {
        return Ok(());
    }
    ask(config, group, "tell where a group is", move |client| {
        let list = offset_list(&offsets)?;
        client.commit(&list, CommitMode::Sync).map_err(|error| LogError::kafka("tell where a group is", error))
    })
    .await
}

async fn ask<T: Send + 'static>(
    config: &LogConfig,
    group: &str,
    doing: &'static str,
    call: impl FnOnce(&BaseConsumer<DefaultConsumerContext>) -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    let client: BaseConsumer<DefaultConsumerContext> =
        config.observer(group).create().map_err(|error| LogError::kafka(doing, error))?;
    // Asking blocks, and so does closing the client: never on a thread that runs tasks.
    tokio::task::spawn_blocking(move || call(&client)).await.map_err(|_| LogError::Stopped(doing.to_owned()))?
}
