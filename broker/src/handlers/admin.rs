//! Topics come, grow and go; records before an offset go.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsRequest,
    DeleteRecordsResponse, DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
};
use uuid::Uuid;

use super::configs::{SOURCE_DEFAULT, SOURCE_TOPIC};
use super::{Context, text};
use crate::meta::{Entry, TopicMeta};
use crate::node::{NODE_ID, Refusal};
use crate::topic_config::all_settings;

pub(super) async fn create_topics(
    context: &Context,
    version: i16,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let twice = request.topics.iter().filter(|other| other.name == topic.name).count() > 1;
        let created = if twice {
            Err(Refusal::new(ResponseError::InvalidRequest, "the topic is named twice in this request"))
        } else {
            create(context, topic, request.validate_only).await
        };
        let result = CreatableTopicResult::default().with_name(topic.name.clone());
        results.push(match created {
            Ok(meta) => describe_created(result, &meta, version),
            Err(refusal) => {
                let result =
                    result.with_error_code(refusal.error.code()).with_error_message(Some(text(refusal.message)));
                if version >= 5 {
                    result.with_num_partitions(-1).with_replication_factor(-1).with_configs(None)
                } else {
                    result
                }
            }
        });
    }
    CreateTopicsResponse::default().with_topics(results)
}

async fn create(context: &Context, topic: &CreatableTopic, validate_only: bool) -> Result<TopicMeta, Refusal> {
    let mut partitions = topic.num_partitions;
    // Apache Kafka looks at the name first, then at the settings, then at the rest.
    context.node.check_new_topic(&topic.name)?;
    if topic.assignments.is_empty() {
        if !matches!(topic.replication_factor, -1 | 1) {
            let message = format!(
                "replication factor {} is impossible, this cluster has one node: use 1",
                topic.replication_factor
            );
            return Err(Refusal::new(ResponseError::InvalidReplicationFactor, message));
        }
    } else {
        let ours = topic.assignments.iter().all(|one| one.broker_ids.len() == 1 && one.broker_ids[0].0 == NODE_ID);
        let mut indexes: Vec<i32> = topic.assignments.iter().map(|one| one.partition_index).collect();
        indexes.sort_unstable();
        if !ours || !indexes.iter().copied().eq(0..indexes.len() as i32) {
            let message = format!("partitions must be numbered from 0 and assigned to node {NODE_ID} alone");
            return Err(Refusal::new(ResponseError::InvalidReplicaAssignment, message));
        }
        partitions = indexes.len() as i32;
    }
    let configs: BTreeMap<String, String> = topic
        .configs
        .iter()
        .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())))
        .collect();
    context.node.create_topic(&topic.name, partitions, configs, validate_only).await
}

fn describe_created(result: CreatableTopicResult, meta: &TopicMeta, version: i16) -> CreatableTopicResult {
    if version < 5 {
        return result;
    }
    let configs = all_settings().map(|setting| {
        let own = meta.configs.get(setting.name);
        CreatableTopicConfigs::default()
            .with_name(text(setting.name))
            .with_value(Some(text(own.map_or(setting.default, String::as_str))))
            .with_config_source(if own.is_some() { SOURCE_TOPIC } else { SOURCE_DEFAULT })
    });
    let result =
        result.with_num_partitions(meta.partitions).with_replication_factor(1).with_configs(Some(configs.collect()));
    if version >= 7 { result.with_topic_id(meta.id) } else { result }
}

pub(super) async fn delete_topics(
    context: &Context,
    version: i16,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let by_name = request.topic_names.into_iter().map(|name| (Some(name), Uuid::nil()));
    let by_state = request.topics.into_iter().map(|topic| (topic.name, topic.topic_id));
    let mut responses = Vec::new();
    for (name, id) in by_name.chain(by_state) {
        let known = match &name {
            Some(name) => Ok(name.to_string()),
            None => context
                .node
                .topics
                .by_id(id)
                .map(|topic| topic.name.clone())
                .ok_or(ResponseError::UnknownTopicId.into()),
        };
        let deleted = match &known {
            Ok(name) => context.node.delete_topic(name).await,
            Err(refusal) => Err(Refusal::clone(refusal)),
        };
        let shown = name.or_else(|| known.ok().map(|name| TopicName(text(name))));
        let shown = if version < 6 { Some(shown.unwrap_or_default()) } else { shown };
        let result = DeletableTopicResult::default().with_name(shown);
        let result = if version >= 6 { result.with_topic_id(id) } else { result };
        responses.push(match deleted {
            Ok(()) => result,
            Err(refusal) => {
                let result = result.with_error_code(refusal.error.code());
                if version >= 5 { result.with_error_message(Some(text(refusal.message))) } else { result }
            }
        });
    }
    DeleteTopicsResponse::default().with_responses(responses)
}

pub(super) async fn create_partitions(
    context: &Context,
    _: i16,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let foreign = topic.assignments.iter().flatten().any(|one| one.broker_ids.iter().any(|id| id.0 != NODE_ID));
        let grown = if foreign {
            let message = format!("partitions can be assigned to node {NODE_ID} alone");
            Err(Refusal::new(ResponseError::InvalidReplicaAssignment, message))
        } else {
            context.node.add_partitions(&topic.name, topic.count, request.validate_only).await
        };
        let result = CreatePartitionsTopicResult::default().with_name(topic.name);
        results.push(match grown {
            Ok(()) => result,
            Err(refusal) => {
                result.with_error_code(refusal.error.code()).with_error_message(Some(text(refusal.message)))
            }
        });
    }
    CreatePartitionsResponse::default().with_results(results)
}

pub(super) async fn delete_records(context: &Context, _: i16, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let deleted = delete_before(context, &topic.name, asked.partition_index, asked.offset).await;
            let result = DeleteRecordsPartitionResult::default().with_partition_index(asked.partition_index);
            partitions.push(match deleted {
                Ok(low_watermark) => result.with_low_watermark(low_watermark),
                Err(error) => result.with_low_watermark(-1).with_error_code(error.code()),
            });
        }
        topics.push(DeleteRecordsTopicResult::default().with_name(topic.name.clone()).with_partitions(partitions));
    }
    DeleteRecordsResponse::default().with_topics(topics)
}

async fn delete_before(context: &Context, topic: &str, index: i32, offset: i64) -> Result<i64, ResponseError> {
    let topic_found = context.node.topics.get(topic).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let partition = topic_found.partition(index).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let config = topic_found.config();
    // What is only compacted keeps the last record of every key.
    if config.compacts() && !config.deletes() {
        return Err(ResponseError::PolicyViolation);
    }
    let log_start = partition.delete_before(offset)?;
    let entry = Entry::LogStart { name: topic.to_owned(), partition: index, offset: log_start };
    context.node.journal.record(entry).await?;
    Ok(log_start)
}
