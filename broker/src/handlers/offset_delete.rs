//! OffsetDelete: a group's offsets are forgotten where none of its members needs them, those that open transactions hold, too.

use std::collections::HashSet;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::{Context, of_coordinator};
use crate::meta::Entry;

/// The order of the questions is that of Apache Kafka 4.1: what is wrong with the group is the answer as a whole, whatever
/// else is asked for; then each partition must be there, and its topic not be consumed by the group.
pub(super) async fn offset_delete(context: &Context, _: i16, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    let group = request.group_id.to_string();
    let subscribed = match subscribed(context, &group, &request) {
        Ok(subscribed) => subscribed,
        Err(error) => return OffsetDeleteResponse::default().with_error_code(error.code()),
    };
    let mut deleted = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let name = topic.name.to_string();
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let error = if context.node.topics.partition(&name, asked.partition_index).is_none() {
                ResponseError::UnknownTopicOrPartition.code()
            } else if subscribed.contains(&name) {
                ResponseError::GroupSubscribedToTopic.code()
            } else {
                deleted.push((name.clone(), asked.partition_index));
                0
            };
            let answer = OffsetDeleteResponsePartition::default().with_partition_index(asked.partition_index);
            partitions.push(answer.with_error_code(error));
        }
        topics.push(OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions));
    }
    if !deleted.is_empty() {
        let recorded = context.node.journal.record(Entry::OffsetsDeleted { group, partitions: deleted }).await;
        if let Err(error) = recorded {
            return OffsetDeleteResponse::default().with_error_code(of_coordinator(error).code());
        }
    }
    OffsetDeleteResponse::default().with_topics(topics)
}

/// Those of the topics asked for that members of the group consume.
fn subscribed(context: &Context, group: &str, request: &OffsetDeleteRequest) -> Result<HashSet<String>, ResponseError> {
    if group.is_empty() {
        return Err(ResponseError::InvalidGroupId);
    }
    let live = context.node.groups.peek(group, |group, _| -> Result<HashSet<String>, ResponseError> {
        group.check_offset_delete()?;
        let names = request.topics.iter().map(|topic| topic.name.to_string());
        Ok(names.filter(|name| group.is_subscribed_to(name)).collect())
    });
    if let Some(live) = live {
        return live;
    }
    let is_known = context.node.journal.lock().knows_group(group);
    if is_known { Ok(HashSet::new()) } else { Err(ResponseError::GroupIdNotFound) }
}
