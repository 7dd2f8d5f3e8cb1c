//! Lists of partitions as librdkafka takes them.

use rdkafka::{Offset, TopicPartitionList};

use super::CommitOffset;
use crate::error::LogError;
use crate::record::TopicPartition;

pub(super) fn names(partitions: &[TopicPartition]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition(&partition.topic, partition.partition);
    }
    list
}

pub(super) fn add(list: &mut TopicPartitionList, partition: &TopicPartition, offset: i64) -> Result<(), LogError> {
    list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(offset))
        .map_err(|error| LogError::kafka(format!("name offset {offset} of {partition}"), error))
}

pub(crate) fn offset_list(offsets: &[CommitOffset]) -> Result<TopicPartitionList, LogError> {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for CommitOffset { partition, offset, metadata } in offsets {
        let mut element = list.add_partition(&partition.topic, partition.partition);
        element
            .set_offset(Offset::Offset(*offset))
            .map_err(|error| LogError::kafka(format!("name offset {offset} of {partition}"), error))?;
        if let Some(metadata) = metadata {
            element.set_metadata(metadata);
        }
    }
    Ok(list)
}
