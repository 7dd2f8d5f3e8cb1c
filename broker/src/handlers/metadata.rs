//! Who we are, what we speak, and which topics there are.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, BrokerId, DescribeClusterRequest, DescribeClusterResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse, TopicName,
};
use uuid::Uuid;

use super::{Context, operations, text};
use crate::node::NODE_ID;
use crate::topics::{Topic, is_internal};
use crate::versions::{ANNOUNCED, TRANSACTION_PROTOCOL};

/// The feature by whose level clients choose the transaction protocol.
const TRANSACTION_VERSION: &str = "transaction.version";

pub(super) fn api_versions(version: i16, error_code: i16) -> ApiVersionsResponse {
    let keys = ANNOUNCED.iter().map(|api| {
        ApiVersion::default().with_api_key(api.key as i16).with_min_version(api.min).with_max_version(api.max)
    });
    let finalized = FinalizedFeatureKey::default()
        .with_name(text(TRANSACTION_VERSION))
        .with_min_version_level(TRANSACTION_PROTOCOL)
        .with_max_version_level(TRANSACTION_PROTOCOL);
    let answer = ApiVersionsResponse::default()
        .with_error_code(error_code)
        .with_api_keys(keys.collect())
        // Features never change here, so this is their first and only state.
        .with_finalized_features_epoch(0)
        .with_finalized_features(vec![finalized]);
    // Older clients cannot read a feature whose lowest level is 0 (KAFKA-17011).
    if version < 4 {
        return answer;
    }
    let supported = SupportedFeatureKey::default()
        .with_name(text(TRANSACTION_VERSION))
        .with_min_version(0)
        .with_max_version(TRANSACTION_PROTOCOL);
    answer.with_supported_features(vec![supported])
}

pub(super) async fn handle_api_versions(_: &Context, version: i16, _: ApiVersionsRequest) -> ApiVersionsResponse {
    api_versions(version, 0)
}

pub(super) async fn metadata(context: &Context, version: i16, request: MetadataRequest) -> MetadataResponse {
    let create = version < 4 || request.allow_auto_topic_creation;
    let may = if request.include_topic_authorized_operations { operations::TOPIC } else { operations::NOT_ASKED };
    // Version 0 knows no null: there an empty list means all topics.
    let wanted = request.topics.filter(|topics| version > 0 || !topics.is_empty());
    let mut topics = Vec::new();
    match wanted {
        None => topics.extend(context.node.topics.all().iter().map(|topic| describe(topic, version, may))),
        Some(wanted) => {
            for topic in wanted {
                // Apache Kafka's own client sends an empty name beside the id.
                let by_id = topic.name.is_none() || !topic.topic_id.is_nil();
                let (name, id) = (topic.name.map(|name| name.to_string()).unwrap_or_default(), topic.topic_id);
                let found = if by_id {
                    context.node.topics.by_id(id).ok_or(ResponseError::UnknownTopicId)
                } else {
                    context.node.topic_or_create(&name, create).await
                };
                topics.push(match found {
                    Ok(topic) => describe(&topic, version, may),
                    Err(error) => absent(error, (!by_id).then_some(name), id, version),
                });
            }
        }
    }
    let (host, port) = context.advertised();
    let broker = MetadataResponseBroker::default().with_node_id(BrokerId(NODE_ID)).with_host(host).with_port(port);
    let cluster = context.node.journal.lock().cluster_id.clone();
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id((version >= 2).then(|| text(cluster)))
        .with_controller_id(BrokerId(NODE_ID))
        .with_topics(topics)
        .with_cluster_authorized_operations(may_with_cluster(request.include_cluster_authorized_operations))
}

fn may_with_cluster(asked: bool) -> i32 {
    if asked { operations::CLUSTER } else { operations::NOT_ASKED }
}

fn absent(error: ResponseError, name: Option<String>, id: Uuid, version: i16) -> MetadataResponseTopic {
    let name = if version < 12 { Some(name.unwrap_or_default()) } else { name };
    MetadataResponseTopic::default()
        .with_error_code(error.code())
        .with_name(name.map(|name| TopicName(text(name))))
        .with_topic_id(if version >= 10 { id } else { Uuid::nil() })
}

fn describe(topic: &Topic, version: i16, may: i32) -> MetadataResponseTopic {
    let node = || vec![BrokerId(NODE_ID)];
    let partitions = (0..topic.partition_count() as i32).map(|index| {
        let partition = MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(BrokerId(NODE_ID))
            .with_replica_nodes(node())
            .with_isr_nodes(node());
        if version >= 7 { partition.with_leader_epoch(0) } else { partition }
    });
    let described = MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(topic.name.clone()))))
        .with_is_internal(version >= 1 && is_internal(&topic.name))
        .with_topic_authorized_operations(may)
        .with_partitions(partitions.collect());
    if version >= 10 { described.with_topic_id(topic.id) } else { described }
}

pub(super) async fn describe_cluster(
    context: &Context,
    _: i16,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let (host, port) = context.advertised();
    let cluster = context.node.journal.lock().cluster_id.clone();
    let answer = DescribeClusterResponse::default()
        .with_cluster_id(text(cluster))
        .with_controller_id(BrokerId(NODE_ID))
        .with_cluster_authorized_operations(may_with_cluster(request.include_cluster_authorized_operations));
    // 1 is brokers; 2 is controllers, who would be asked elsewhere.
    let refused = match request.endpoint_type {
        1 => None,
        2 => Some((ResponseError::MismatchedEndpointType, "this is the endpoint of a broker, not of a controller")),
        _ => Some((ResponseError::UnsupportedEndpointType, "endpoint types are 1 (brokers) and 2 (controllers)")),
    };
    if let Some((error, message)) = refused {
        return answer.with_error_code(error.code()).with_error_message(Some(text(message)));
    }
    let broker = DescribeClusterBroker::default().with_broker_id(BrokerId(NODE_ID)).with_host(host).with_port(port);
    answer.with_brokers(vec![broker])
}

pub(super) async fn find_coordinator(
    context: &Context,
    version: i16,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let (host, port) = context.advertised();
    // 0 is groups, 1 is transactions; share groups are not known here.
    let error = if matches!(request.key_type, 0 | 1) { 0 } else { ResponseError::InvalidRequest.code() };
    if version < 4 {
        return FindCoordinatorResponse::default()
            .with_error_code(error)
            .with_node_id(BrokerId(NODE_ID))
            .with_host(host)
            .with_port(port);
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| {
        Coordinator::default()
            .with_key(key)
            .with_error_code(error)
            .with_node_id(BrokerId(NODE_ID))
            .with_host(host.clone())
            .with_port(port)
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}
