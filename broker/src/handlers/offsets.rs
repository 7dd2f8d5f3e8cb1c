//! Offsets: of the log, and of groups.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, TopicName,
};

use super::{Context, code, of_coordinator, text};
use crate::clock::now_ms;
use crate::groups::group::Identity;
use crate::meta::{Entry, Meta, OffsetItem};
use crate::storage::partition::Partition;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
/// The first offset that is stored here: all of them are.
const EARLIEST_LOCAL: i64 = -4;
/// The last offset that has been moved to another storage: there is none, as in an Apache Kafka without one.
const LATEST_TIERED: i64 = -5;
/// Longest metadata of a committed offset (`offset.metadata.max.bytes` of Apache Kafka).
pub(super) const MAX_METADATA: usize = 4096;

pub(super) async fn list_offsets(context: &Context, version: i16, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let committed_only = request.isolation_level == 1;
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let found = context.node.topics.partition(&topic.name, asked.partition_index);
            let looked_up = match found {
                _ if !is_time(asked.timestamp, version) => Err(ResponseError::UnsupportedVersion),
                None => Err(ResponseError::UnknownTopicOrPartition),
                Some(_) if asked.current_leader_epoch > 0 => Err(ResponseError::UnknownLeaderEpoch),
                Some(partition) => look_up(partition, asked.timestamp, committed_only).await,
            };
            let answer = ListOffsetsPartitionResponse::default()
                .with_partition_index(asked.partition_index)
                .with_error_code(code(&looked_up));
            let (offset, timestamp) = looked_up.unwrap_or((-1, -1));
            let epoch = if version >= 4 && offset >= 0 { 0 } else { -1 };
            partitions.push(answer.with_offset(offset).with_timestamp(timestamp).with_leader_epoch(epoch));
        }
        topics.push(ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions));
    }
    ListOffsetsResponse::default().with_topics(topics)
}

/// Whether a request of this version may ask for `timestamp`: a time, or one of the numbers below zero that mean something.
fn is_time(timestamp: i64, version: i16) -> bool {
    let known_since = match timestamp {
        EARLIEST.. => 1,
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        _ => return false,
    };
    version >= known_since
}

async fn look_up(partition: Arc<Partition>, timestamp: i64, committed_only: bool) -> Result<(i64, i64), ResponseError> {
    let bounds = partition.bounds();
    let end = bounds.visible(committed_only);
    match timestamp {
        EARLIEST | EARLIEST_LOCAL => Ok((bounds.log_start, -1)),
        LATEST_TIERED => Ok((-1, -1)),
        LATEST if partition.is_corrupt_at(bounds.high_watermark) => Err(ResponseError::KafkaStorageError),
        LATEST => Ok((end, -1)),
        timestamp => {
            let search = tokio::task::spawn_blocking(move || match timestamp {
                MAX_TIMESTAMP => partition.offset_of_max_timestamp(),
                timestamp => partition.offset_for_time(timestamp, end),
            });
            match search.await {
                Ok(Ok(found)) => Ok(found.unwrap_or((-1, -1))),
                Ok(Err(error)) => {
                    tracing::error!(error = %error, "looking up an offset by time failed");
                    Err(ResponseError::KafkaStorageError)
                }
                Err(_) => Err(ResponseError::UnknownServerError),
            }
        }
    }
}

pub(super) async fn offset_for_leader_epoch(
    context: &Context,
    _: i16,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let answer = EpochEndOffset::default().with_partition(asked.partition);
            let found = context.node.topics.partition(&topic.topic, asked.partition);
            match found {
                None => answer.with_error_code(ResponseError::UnknownTopicOrPartition.code()),
                Some(_) if asked.current_leader_epoch > 0 => {
                    answer.with_error_code(ResponseError::UnknownLeaderEpoch.code())
                }
                // There is one epoch, 0, and it ends where the log ends.
                Some(partition) if asked.leader_epoch == 0 => {
                    answer.with_leader_epoch(0).with_end_offset(partition.bounds().high_watermark)
                }
                Some(_) => answer.with_leader_epoch(-1).with_end_offset(-1),
            }
        });
        let partitions = partitions.collect();
        OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone()).with_partitions(partitions)
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

/// First version whose clients are told that there is no such group.
const SINCE_GROUP_NOT_FOUND: i16 = 9;

/// Whether `who` may commit offsets of a group. One that is not known comes into being by a commit of nobody's member.
fn check_commit(context: &Context, version: i16, group: &str, who: Identity<'_>) -> Result<(), ResponseError> {
    let known = context.node.groups.peek(group, |group, now| group.check_commit(now, who, false));
    known.unwrap_or_else(|| {
        if who.generation < 0 {
            return Ok(());
        }
        // A group without members is forgotten sooner here than by Apache Kafka: who may have been one of them is to join again.
        let has_offsets = context.node.journal.lock().has_offsets_of(group);
        let had_members = has_offsets || context.node.groups.gave(who.member_id);
        Err(of_unknown_group(version, had_members))
    })
}

/// What a member is told of which no group is known.
fn of_unknown_group(version: i16, had_members: bool) -> ResponseError {
    if had_members {
        ResponseError::UnknownMemberId
    } else if version >= SINCE_GROUP_NOT_FOUND {
        ResponseError::GroupIdNotFound
    } else {
        ResponseError::IllegalGeneration
    }
}

pub(super) async fn offset_commit(
    context: &Context,
    version: i16,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let group = request.group_id.to_string();
    let who = Identity {
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id_or_member_epoch,
    };
    let allowed = check_commit(context, version, &group, who);
    let now = now_ms();
    let mut accepted = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let item = allowed.and_then(|()| {
                let metadata =
                    asked.committed_metadata.as_ref().map(|metadata| metadata.to_string()).unwrap_or_default();
                check_item(context, &topic.name, asked.partition_index, &metadata)?;
                Ok(OffsetItem {
                    topic: topic.name.to_string(),
                    partition: asked.partition_index,
                    offset: asked.committed_offset,
                    leader_epoch: asked.committed_leader_epoch,
                    metadata,
                    committed_ms: now,
                })
            });
            let answer = OffsetCommitResponsePartition::default().with_partition_index(asked.partition_index);
            partitions.push(answer.with_error_code(code(&item)));
            accepted.extend(item);
        }
        topics.push(OffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions));
    }
    if !accepted.is_empty() {
        let recorded = context.node.journal.record(Entry::OffsetsCommitted { group, offsets: accepted }).await;
        if let Err(error) = recorded {
            let refused = of_coordinator(error).code();
            let all = topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            all.filter(|partition| partition.error_code == 0).for_each(|partition| partition.error_code = refused);
        }
    }
    OffsetCommitResponse::default().with_topics(topics)
}

/// Whether an offset of this partition may be committed.
pub(super) fn check_item(context: &Context, topic: &str, partition: i32, metadata: &str) -> Result<(), ResponseError> {
    if metadata.len() > MAX_METADATA {
        return Err(ResponseError::OffsetMetadataTooLarge);
    }
    context.node.topics.partition(topic, partition).map(drop).ok_or(ResponseError::UnknownTopicOrPartition)
}

/// A group's offset in one partition, as both forms of the response want it.
struct Fetched {
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: String,
    error: i16,
}

fn fetch_group(
    meta: &Meta,
    group: &str,
    wanted: Option<Vec<(TopicName, Vec<i32>)>>,
    require_stable: bool,
) -> Vec<(TopicName, Vec<Fetched>)> {
    let wanted = wanted.unwrap_or_else(|| {
        let mut all: Vec<(TopicName, Vec<i32>)> = Vec::new();
        for (topic, partition) in meta.groups.get(group).into_iter().flat_map(|offsets| offsets.keys()) {
            match all.last_mut().filter(|(name, _)| &**name == topic.as_str()) {
                Some((_, partitions)) => partitions.push(*partition),
                None => all.push((TopicName(text(topic.clone())), vec![*partition])),
            }
        }
        all
    });
    let one = |topic: &TopicName, partition: i32| {
        let unstable = require_stable && meta.has_pending_offset(group, topic, partition);
        let found = meta.offset(group, topic, partition).filter(|_| !unstable);
        Fetched {
            partition,
            offset: found.map_or(-1, |item| item.offset),
            leader_epoch: found.map_or(-1, |item| item.leader_epoch),
            metadata: found.map(|item| item.metadata.clone()).unwrap_or_default(),
            error: if unstable { ResponseError::UnstableOffsetCommit.code() } else { 0 },
        }
    };
    wanted
        .into_iter()
        .map(|(topic, partitions)| {
            let fetched = partitions.into_iter().map(|partition| one(&topic, partition)).collect();
            (topic, fetched)
        })
        .collect()
}

pub(super) async fn offset_fetch(context: &Context, version: i16, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let stable = request.require_stable;
    let meta = context.node.journal.lock();
    if version >= 8 {
        let groups = request.groups.into_iter().map(|group| {
            let wanted = group.topics.map(|topics| topics.into_iter().map(|t| (t.name, t.partition_indexes)).collect());
            let topics = fetch_group(&meta, &group.group_id, wanted, stable).into_iter().map(|(name, fetched)| {
                let partitions = fetched.into_iter().map(|one| {
                    OffsetFetchResponsePartitions::default()
                        .with_partition_index(one.partition)
                        .with_committed_offset(one.offset)
                        .with_committed_leader_epoch(one.leader_epoch)
                        .with_metadata(Some(text(one.metadata)))
                        .with_error_code(one.error)
                });
                OffsetFetchResponseTopics::default().with_name(name).with_partitions(partitions.collect())
            });
            let topics = topics.collect();
            OffsetFetchResponseGroup::default().with_group_id(group.group_id).with_topics(topics)
        });
        return OffsetFetchResponse::default().with_groups(groups.collect());
    }
    let wanted = request.topics.map(|topics| topics.into_iter().map(|t| (t.name, t.partition_indexes)).collect());
    let topics = fetch_group(&meta, &request.group_id, wanted, stable).into_iter().map(|(name, fetched)| {
        let partitions = fetched.into_iter().map(|one| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(one.partition)
                .with_committed_offset(one.offset)
                .with_committed_leader_epoch(if version >= 5 { one.leader_epoch } else { -1 })
                .with_metadata(Some(text(one.metadata)))
                .with_error_code(one.error)
        });
        OffsetFetchResponseTopic::default().with_name(name).with_partitions(partitions.collect())
    });
    OffsetFetchResponse::default().with_topics(topics.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_numbers_below_zero_when_offsets_are_asked_by_time_then_only_those_with_a_meaning_are_taken() {
        for (timestamp, version, taken) in [
            (0, 1, true),
            (LATEST, 1, true),
            (EARLIEST, 1, true),
            (MAX_TIMESTAMP, 6, false),
            (MAX_TIMESTAMP, 7, true),
            (EARLIEST_LOCAL, 7, false),
            (EARLIEST_LOCAL, 8, true),
            (LATEST_TIERED, 8, false),
            (LATEST_TIERED, 9, true),
            (LATEST_TIERED - 1, 10, false),
        ] {
            assert_eq!(is_time(timestamp, version), taken, "{timestamp} in version {version}");
        }
    }
}
