//! Producer ids and transactions: translation between the wire and the coordinator.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::list_transactions_response::TransactionState as ListedTransaction;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest, DescribeTransactionsResponse,
    EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse, ListTransactionsRequest,
    ListTransactionsResponse, ProducerId, TopicName, TransactionalId, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};

use super::offsets::check_item;
use super::{Context, code, of_coordinator, text};
use crate::clock::now_ms;
use crate::groups::group::Identity;
use crate::meta::OffsetItem;
use crate::txn::{ProducerIdentity, Protocol, TxnState, coordinator};

/// Clients of old versions know "fenced" only under its older name.
pub(super) fn named<T>(result: Result<T, ResponseError>, knows_fenced: bool) -> Result<T, ResponseError> {
    result.map_err(|error| match error {
        ResponseError::ProducerFenced if !knows_fenced => ResponseError::InvalidProducerEpoch,
        other => other,
    })
}

/// The same as the coordinator of a transaction tells it.
fn told<T>(result: Result<T, ResponseError>, knows_fenced: bool) -> Result<T, ResponseError> {
    named(result, knows_fenced).map_err(of_coordinator)
}

pub(super) async fn init_producer_id(
    context: &Context,
    version: i16,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let current = (version >= 3 && request.producer_id.0 >= 0)
        .then_some(ProducerIdentity { id: request.producer_id.0, epoch: request.producer_epoch });
    let identity = match &request.transactional_id {
        // A producer without transactions may always begin anew.
        None => {
            let id = context.node.coordinator.new_producer_id(&context.node.journal).await;
            id.map(|id| ProducerIdentity { id, epoch: 0 })
        }
        Some(id) if id.is_empty() => Err(ResponseError::InvalidRequest),
        Some(id) => coordinator::init_producer(&context.node, id, request.transaction_timeout_ms, current).await,
    };
    match told(identity, version >= 4) {
        Ok(identity) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(identity.id))
            .with_producer_epoch(identity.epoch),
        Err(error) => InitProducerIdResponse::default()
            .with_error_code(error.code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    }
}

pub(super) async fn add_partitions_to_txn(
    context: &Context,
    version: i16,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    if version < 4 {
        let asked = Addition {
            producer: ProducerIdentity {
                id: request.v3_and_below_producer_id.0,
                epoch: request.v3_and_below_producer_epoch,
            },
            id: request.v3_and_below_transactional_id,
            topics: request.v3_and_below_topics,
            verify_only: false,
        };
        let results = asked.answer(context, version).await;
        return AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results);
    }
    let mut results = Vec::with_capacity(request.transactions.len());
    for transaction in request.transactions {
        let asked = Addition {
            producer: ProducerIdentity { id: transaction.producer_id.0, epoch: transaction.producer_epoch },
            id: transaction.transactional_id.clone(),
            topics: transaction.topics,
            verify_only: transaction.verify_only,
        };
        let topics = asked.answer(context, version).await;
        results.push(
            AddPartitionsToTxnResult::default()
                .with_transactional_id(transaction.transactional_id)
                .with_topic_results(topics),
        );
    }
    AddPartitionsToTxnResponse::default().with_results_by_transaction(results)
}

/// Partitions that are to be part of a transaction, or are asked whether they are.
struct Addition {
    id: TransactionalId,
    producer: ProducerIdentity,
    topics: Vec<AddPartitionsToTxnTopic>,
    verify_only: bool,
}

impl Addition {
    async fn answer(self, context: &Context, version: i16) -> Vec<AddPartitionsToTxnTopicResult> {
        let mut outcomes = self.outcomes(context, version).await.into_iter();
        let results = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().zip(&mut outcomes).map(|(index, outcome)| {
                AddPartitionsToTxnPartitionResult::default()
                    .with_partition_index(*index)
                    .with_partition_error_code(code(&outcome))
            });
            let partitions = partitions.collect();
            AddPartitionsToTxnTopicResult::default().with_name(topic.name).with_results_by_partition(partitions)
        });
        results.collect()
    }

    /// One for each partition, in their order.
    async fn outcomes(&self, context: &Context, version: i16) -> Vec<Result<(), ResponseError>> {
        let named_in = |topic: &AddPartitionsToTxnTopic| {
            let name = topic.name.to_string();
            topic.partitions.iter().map(|index| (name.clone(), *index)).collect::<Vec<_>>()
        };
        let wanted: Vec<(String, i32)> = self.topics.iter().flat_map(named_in).collect();
        let exist: Vec<bool> =
            wanted.iter().map(|(topic, index)| context.node.topics.partition(topic, *index).is_some()).collect();
        // All or nothing: if one partition is missing, the others are "not attempted".
        if exist.contains(&false) {
            let refused = exist.into_iter().map(|exists| {
                Err(if exists { ResponseError::OperationNotAttempted } else { ResponseError::UnknownTopicOrPartition })
            });
            return refused.collect();
        }
        if self.verify_only {
            return match coordinator::verify(&context.node, &self.id, self.producer, &wanted) {
                Ok(parts) => {
                    parts.into_iter().map(|part| if part { Ok(()) } else { Err(not_part(version >= 5)) }).collect()
                }
                Err(error) => vec![Err(error); wanted.len()],
            };
        }
        let count = wanted.len();
        let added = coordinator::add_partitions(&context.node, &self.id, self.producer, wanted).await;
        vec![told(added, version >= 2); count]
    }
}

/// What is said of something that is not part of the transaction: clients that know `TRANSACTION_ABORTABLE` are told that an
/// abort puts it right.
pub(super) fn not_part(knows_abortable: bool) -> ResponseError {
    if knows_abortable { ResponseError::TransactionAbortable } else { ResponseError::InvalidTxnState }
}

pub(super) async fn add_offsets_to_txn(
    context: &Context,
    version: i16,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse {
    let producer = ProducerIdentity { id: request.producer_id.0, epoch: request.producer_epoch };
    let added = if request.group_id.is_empty() {
        Err(ResponseError::InvalidGroupId)
    } else {
        let group = request.group_id.to_string();
        coordinator::add_group(&context.node, &request.transactional_id, producer, group).await
    };
    AddOffsetsToTxnResponse::default().with_error_code(code(&told(added, version >= 2)))
}

/// Whether `who` may commit offsets of a group within a transaction.
fn check_commit(context: &Context, group: &str, who: Identity<'_>) -> Result<(), ResponseError> {
    if group.is_empty() {
        return Err(ResponseError::InvalidGroupId);
    }
    let unknown = if who.generation < 0 { Ok(()) } else { Err(ResponseError::IllegalGeneration) };
    context.node.groups.peek(group, |group, now| group.check_commit(now, who, true)).unwrap_or(unknown)
}

pub(super) async fn txn_offset_commit(
    context: &Context,
    version: i16,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let group = request.group_id.to_string();
    let producer = ProducerIdentity { id: request.producer_id.0, epoch: request.producer_epoch };
    let who = Identity {
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: if version >= 3 { request.generation_id } else { -1 },
    };
    let allowed = check_commit(context, &group, who);
    let now = now_ms();
    let mut items = Vec::new();
    let mut outcomes = Vec::new();
    for topic in &request.topics {
        for asked in &topic.partitions {
            let metadata = asked.committed_metadata.as_ref().map(|metadata| metadata.to_string()).unwrap_or_default();
            let item = allowed.and_then(|()| check_item(context, &topic.name, asked.partition_index, &metadata));
            outcomes.push(item);
            items.extend(item.ok().map(|()| OffsetItem {
                topic: topic.name.to_string(),
                partition: asked.partition_index,
                offset: asked.committed_offset,
                leader_epoch: asked.committed_leader_epoch,
                metadata,
                committed_ms: now,
            }));
        }
    }
    let noted = if items.is_empty() {
        Ok(())
    } else {
        let protocol = if version >= 5 { Protocol::Two } else { Protocol::One };
        coordinator::add_offsets(&context.node, &request.transactional_id, producer, &group, items, protocol).await
    };
    // This response has never learnt the newer name of "fenced".
    let noted = told(noted, false).map_err(|error| match error {
        ResponseError::InvalidTxnState => not_part(version >= 4),
        other => other,
    });
    let mut outcomes = outcomes.into_iter();
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let outcome = outcomes.next().unwrap_or(Ok(())).and(noted);
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(asked.partition_index)
                .with_error_code(code(&outcome))
        });
        let partitions = partitions.collect();
        TxnOffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions)
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}

pub(super) async fn end_txn(context: &Context, version: i16, request: EndTxnRequest) -> EndTxnResponse {
    let producer = ProducerIdentity { id: request.producer_id.0, epoch: request.producer_epoch };
    let protocol = if version >= 5 { Protocol::Two } else { Protocol::One };
    let ended = coordinator::end(&context.node, &request.transactional_id, producer, request.committed, protocol).await;
    let answer = EndTxnResponse::default().with_error_code(code(&told(ended, version >= 2)));
    match ended {
        Ok(next) if protocol == Protocol::Two => {
            answer.with_producer_id(ProducerId(next.id)).with_producer_epoch(next.epoch)
        }
        _ => answer,
    }
}

pub(super) async fn describe_producers(
    context: &Context,
    _: i16,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            let answer = PartitionResponse::default().with_partition_index(*index);
            let Some(partition) = context.node.topics.partition(&topic.name, *index) else {
                return answer.with_error_code(ResponseError::UnknownTopicOrPartition.code());
            };
            let active = partition.with_producers(|producers| {
                let states = producers.iter().map(|(id, producer)| {
                    ProducerState::default()
                        .with_producer_id(ProducerId(id))
                        .with_producer_epoch(i32::from(producer.epoch))
                        .with_last_sequence(producer.last_sequence())
                        .with_last_timestamp(producer.last_timestamp)
                        .with_coordinator_epoch(producer.coordinator_epoch)
                        .with_current_txn_start_offset(producer.open_since.unwrap_or(-1))
                });
                states.collect()
            });
            answer.with_active_producers(active)
        });
        let partitions = partitions.collect();
        TopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions)
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

pub(super) async fn describe_transactions(
    context: &Context,
    _: i16,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let meta = context.node.journal.lock();
    let states = request.transactional_ids.into_iter().map(|id| {
        let Some(txn) = meta.txns.get(&*id.0 as &str) else {
            let is_name = !id.0.is_empty();
            let unknown = if is_name { ResponseError::TransactionalIdNotFound } else { ResponseError::InvalidRequest };
            return TransactionState::default().with_transactional_id(id).with_error_code(unknown.code());
        };
        let mut topics: Vec<TopicData> = Vec::new();
        for (topic, partition) in &txn.partitions {
            match topics.last_mut().filter(|last| &*last.topic as &str == topic) {
                Some(last) => last.partitions.push(*partition),
                None => topics.push(
                    TopicData::default().with_topic(TopicName(text(topic.clone()))).with_partitions(vec![*partition]),
                ),
            }
        }
        TransactionState::default()
            .with_transactional_id(id)
            .with_transaction_state(text(txn.state.as_str()))
            .with_transaction_timeout_ms(txn.timeout_ms)
            .with_transaction_start_time_ms(txn.started_ms)
            .with_producer_id(ProducerId(txn.producer_id))
            .with_producer_epoch(txn.epoch)
            .with_topics(topics)
    });
    DescribeTransactionsResponse::default().with_transaction_states(states.collect())
}

pub(super) async fn list_transactions(
    context: &Context,
    version: i16,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    const STATES: [TxnState; 6] = [
        TxnState::Empty,
        TxnState::Ongoing,
        TxnState::PrepareCommit,
        TxnState::PrepareAbort,
        TxnState::CompleteCommit,
        TxnState::CompleteAbort,
    ];
    let is_known = |name: &str| STATES.iter().any(|state| state.as_str() == name);
    let unknown = request.state_filters.iter().filter(|name| !is_known(name)).cloned().collect();
    let now = now_ms();
    let meta = context.node.journal.lock();
    let mut listed: Vec<_> = meta
        .txns
        .values()
        .filter(|txn| {
            let by_state = request.state_filters.is_empty()
                || request.state_filters.iter().any(|name| &**name == txn.state.as_str());
            let by_producer = request.producer_id_filters.is_empty()
                || request.producer_id_filters.iter().any(|id| id.0 == txn.producer_id);
            let by_duration = version < 1 || txn.has_lasted(now, request.duration_filter);
            by_state && by_producer && by_duration
        })
        .map(|txn| {
            ListedTransaction::default()
                .with_transactional_id(TransactionalId(text(txn.id.clone())))
                .with_producer_id(ProducerId(txn.producer_id))
                .with_transaction_state(text(txn.state.as_str()))
        })
        .collect();
    listed.sort_by(|a, b| a.transactional_id.0.cmp(&b.transactional_id.0));
    ListTransactionsResponse::default().with_unknown_state_filters(unknown).with_transaction_states(listed)
}
