//! Produce: check, queue, wait for the disk.

use std::future::Future;

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName};

use super::{Context, text};
use crate::node::{Node, Refusal};
use crate::storage::partition::Appended;
use crate::topics::{Topic, is_internal};
use crate::txn::TxnState;
use crate::wire::batch::{BatchError, BatchHeader, records};
use crate::wire::compression::uncompressed;

struct Queued {
    index: i32,
    outcome: Result<Appended, Refusal>,
}

/// Queues every batch, in order; the answer resolves when all are durable, to none if the client wants no answer.
pub(super) async fn begin(
    context: &Context,
    version: i16,
    request: ProduceRequest,
) -> impl Future<Output = Option<ProduceResponse>> + Send + use<> {
    let acks = request.acks;
    let transactional_id = request.transactional_id.map(|id| id.to_string());
    let mut queued: Vec<(TopicName, Vec<Queued>)> = Vec::with_capacity(request.topic_data.len());
    for topic_data in request.topic_data {
        let name = topic_data.name.to_string();
        let topic = if !(-1..=1).contains(&acks) {
            Err(Refusal::new(ResponseError::InvalidRequiredAcks, format!("acks is {acks}, allowed are -1, 0 and 1")))
        } else if is_internal(&name) {
            Err(Refusal::new(ResponseError::InvalidTopicException, format!("{name} is not written by clients")))
        } else {
            context.node.topic_or_create(&name, true).await.map_err(Refusal::from)
        };
        let mut partitions = Vec::with_capacity(topic_data.partition_data.len());
        for data in topic_data.partition_data {
            let index = data.index;
            let outcome = match &topic {
                Ok(topic) => append(&context.node, topic, data, transactional_id.as_deref()).await,
                Err(refusal) => Err(refusal.clone()),
            };
            partitions.push(Queued { index, outcome });
        }
        queued.push((topic_data.name, partitions));
    }
    async move {
        if acks == 0 {
            return None;
        }
        let mut responses = Vec::with_capacity(queued.len());
        for (name, partitions) in queued {
            let mut answers = Vec::with_capacity(partitions.len());
            for partition in partitions {
                answers.push(settle(partition, version).await);
            }
            responses.push(TopicProduceResponse::default().with_name(name).with_partition_responses(answers));
        }
        Some(ProduceResponse::default().with_responses(responses))
    }
}

async fn append(
    node: &Node,
    topic: &Topic,
    data: PartitionProduceData,
    transactional_id: Option<&str>,
) -> Result<Appended, Refusal> {
    let partition = topic.partition(data.index).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let records = data.records.unwrap_or_default();
    let config = topic.config();
    let header = check(&records, config.max_message_bytes)?;
    if config.compacts() {
        check_keys(&header, &records)?;
    }
    let memory = node.reserve(records.len()).await;
    let bytes = BytesMut::from(&records[..]);
    if !header.is_transactional() {
        return Ok(partition.append(header, bytes, memory)?);
    }
    // The journal stays locked while the batch is queued: a transaction cannot be decided between the check and the append,
    // so that no record is left behind the marker of its transaction.
    let meta = node.journal.lock();
    let id = meta.txn_of_producer.get(&header.producer_id).ok_or(ResponseError::InvalidProducerIdMapping)?;
    let txn = meta.txns.get(id).ok_or(ResponseError::InvalidProducerIdMapping)?;
    if header.producer_epoch != txn.epoch {
        return Err(ResponseError::InvalidProducerEpoch.into());
    }
    let named = transactional_id.is_some_and(|given| given == id);
    let covered = txn.state == TxnState::Ongoing && txn.partitions.contains(&(topic.name.clone(), data.index));
    if !named || !covered {
        return Err(Refusal::new(ResponseError::InvalidTxnState, "the partition is not part of an open transaction"));
    }
    Ok(partition.append(header, bytes, memory)?)
}

/// One sound batch of a client.
fn check(records: &Bytes, max_bytes: usize) -> Result<BatchHeader, Refusal> {
    let corrupt = |message: String| Refusal::new(ResponseError::CorruptMessage, message);
    let invalid = |message: &str| Refusal::new(ResponseError::InvalidRecord, message);
    let header = BatchHeader::parse_checked(records).map_err(|error| match error {
        BatchError::Magic(_) => Refusal::new(ResponseError::UnsupportedForMessageFormat, error.to_string()),
        BatchError::Incomplete | BatchError::Malformed | BatchError::Checksum => corrupt(error.to_string()),
    })?;
    if header.size != records.len() {
        return Err(invalid("exactly one record batch is allowed per partition"));
    }
    if header.size > max_bytes {
        let message = format!("the batch has {} bytes, max.message.bytes allows {max_bytes}", header.size);
        return Err(Refusal::new(ResponseError::MessageTooLarge, message));
    }
    if header.records < 1 || header.last_offset_delta != header.records - 1 {
        return Err(invalid("the number of records does not match the offsets of the batch"));
    }
    if header.is_control() {
        return Err(invalid("control batches are not written by clients"));
    }
    let has_producer = header.producer_id >= 0;
    if has_producer && (header.producer_epoch < 0 || header.base_sequence < 0)
        || header.is_transactional() && !has_producer
    {
        return Err(invalid("producer id, epoch and sequence number do not go together"));
    }
    Ok(header)
}

/// A compacted topic takes no record without a key: nothing could ever replace it.
fn check_keys(header: &BatchHeader, batch: &[u8]) -> Result<(), Refusal> {
    let invalid = |message: &str| Refusal::new(ResponseError::InvalidRecord, message);
    let (header, batch) = uncompressed(header, batch).ok_or_else(|| invalid("the records cannot be decompressed"))?;
    let keyed = records(&header, &batch).all(|record| record.is_ok_and(|record| record.key.is_some()));
    if keyed { Ok(()) } else { Err(invalid("a compacted topic takes no record without a key")) }
}

async fn settle(queued: Queued, version: i16) -> PartitionProduceResponse {
    let answer = PartitionProduceResponse::default().with_index(queued.index);
    let settled = match queued.outcome {
        Ok(appended) => {
            let durable = match appended.durable {
                Some(durable) => durable.await.unwrap_or(Err(ResponseError::KafkaStorageError)),
                None => Ok(()),
            };
            durable.map(|()| (appended.base_offset, appended.append_time_ms, appended.log_start)).map_err(Refusal::from)
        }
        Err(refusal) => Err(refusal),
    };
    match settled {
        Ok((base_offset, append_time_ms, log_start)) => answer
            .with_base_offset(base_offset)
            .with_log_append_time_ms(append_time_ms)
            .with_log_start_offset(if version >= 5 { log_start } else { -1 }),
        Err(refusal) => answer
            .with_error_code(refusal.error.code())
            .with_base_offset(-1)
            .with_log_append_time_ms(-1)
            .with_error_message((version >= 8).then(|| text(refusal.message))),
    }
}
