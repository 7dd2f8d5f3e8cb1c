//! Produce: check, queue, wait for the disk.

mod contents;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};

use super::txn::{named, not_part};
use super::{Context, RequestError, text};
use crate::node::{Node, Refusal};
use crate::storage::partition::{Appended, Partition};
use crate::storage::producers::Beginning;
use crate::topics::{Topic, is_internal};
use crate::txn::{ProducerIdentity, TxnState, coordinator};
use crate::wire::batch::{BatchError, BatchHeader};

/// First version whose clients know `TRANSACTION_ABORTABLE`.
const SINCE_ABORTABLE: i16 = 11;
/// First version of transaction protocol 2.
const SINCE_PROTOCOL_2: i16 = 12;
/// First version that names topics by their ids.
const SINCE_TOPIC_IDS: i16 = 13;

/// What is asked for a topic, and its answer in the making.
struct TopicBatches {
    answer: TopicProduceResponse,
    partitions: Vec<(i32, Result<Checked, Rejected>)>,
}

/// A batch that is sound by itself, and where it goes.
struct Checked {
    partition: Arc<Partition>,
    header: BatchHeader,
    records: Bytes,
    /// Whether its partition may not be part of its transaction yet.
    may_join: bool,
}

impl Checked {
    fn producer(&self) -> ProducerIdentity {
        ProducerIdentity { id: self.header.producer_id, epoch: self.header.producer_epoch }
    }
}

struct Queued {
    index: i32,
    outcome: Result<Appended, Rejected>,
}

impl Queued {
    /// What is said of a batch that was not taken when no answer is wanted.
    fn refusal(&self) -> Option<RequestError> {
        let rejected = self.outcome.as_ref().err()?;
        Some(RequestError::Refused { partition: self.index, reason: rejected.refusal.message.clone() })
    }
}

/// Why a batch is not taken, and which of its records are to blame; none of them if it is not for a record's sake.
struct Rejected {
    refusal: Refusal,
    records: Vec<i32>,
}

impl From<Refusal> for Rejected {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, records: Vec::new() }
    }
}

impl From<ResponseError> for Rejected {
    fn from(error: ResponseError) -> Self {
        Refusal::from(error).into()
    }
}

/// Queues every batch, in order; the answer resolves when all are durable, to none if the client wants no answer. Where it wants
/// none and a batch is not taken, the connection has to end: that is all that its client would notice, as with Apache Kafka.
pub(super) async fn begin(
    context: &Context,
    version: i16,
    request: ProduceRequest,
) -> impl Future<Output = Result<Option<ProduceResponse>, RequestError>> + Send + use<> {
    let acks = request.acks;
    let transactional_id = request.transactional_id.map(|id| id.to_string());
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for topic_data in request.topic_data {
        topics.push(check_topic(context, version, acks, topic_data).await);
    }
    if version >= SINCE_PROTOCOL_2
        && let Some(id) = &transactional_id
    {
        join_transaction(&context.node, id, &mut topics).await;
    }
    let mut queued: Vec<(TopicProduceResponse, Vec<Queued>)> = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (index, checked) in topic.partitions {
            let outcome = match checked {
                Ok(checked) => append(&context.node, version, transactional_id.as_deref(), checked).await,
                Err(rejected) => Err(rejected),
            };
            partitions.push(Queued { index, outcome });
        }
        queued.push((topic.answer, partitions));
    }
    async move {
        if acks == 0 {
            return queued
                .iter()
                .flat_map(|(_, partitions)| partitions)
                .find_map(Queued::refusal)
                .map_or(Ok(None), Err);
        }
        let mut responses = Vec::with_capacity(queued.len());
        for (topic, partitions) in queued {
            let mut answers = Vec::with_capacity(partitions.len());
            for partition in partitions {
                answers.push(settle(partition, version).await);
            }
            responses.push(topic.with_partition_responses(answers));
        }
        Ok(Some(ProduceResponse::default().with_responses(responses)))
    }
}

async fn check_topic(context: &Context, version: i16, acks: i16, data: TopicProduceData) -> TopicBatches {
    let topic = find_topic(context, version, acks, &data).await;
    let mut partitions = Vec::with_capacity(data.partition_data.len());
    for data in data.partition_data {
        let index = data.index;
        let checked = match &topic {
            Ok(topic) => check_batch(&context.node, topic, data).await,
            Err(refusal) => Err(refusal.clone().into()),
        };
        partitions.push((index, checked));
    }
    let answer = TopicProduceResponse::default();
    let answer =
        if version >= SINCE_TOPIC_IDS { answer.with_topic_id(data.topic_id) } else { answer.with_name(data.name) };
    TopicBatches { answer, partitions }
}

async fn find_topic(
    context: &Context,
    version: i16,
    acks: i16,
    data: &TopicProduceData,
) -> Result<Arc<Topic>, Refusal> {
    if !(-1..=1).contains(&acks) {
        let message = format!("acks is {acks}, allowed are -1, 0 and 1");
        return Err(Refusal::new(ResponseError::InvalidRequiredAcks, message));
    }
    if version >= SINCE_TOPIC_IDS {
        return Ok(context.node.topics.by_id(data.topic_id).ok_or(ResponseError::UnknownTopicId)?);
    }
    let name = data.name.to_string();
    if is_internal(&name) {
        return Err(Refusal::new(ResponseError::InvalidTopicException, format!("{name} is not written by clients")));
    }
    Ok(context.node.topic_or_create(&name, true).await?)
}

/// What can be said of a batch without looking at its transaction.
async fn check_batch(node: &Node, topic: &Topic, data: PartitionProduceData) -> Result<Checked, Rejected> {
    let partition = topic.partition(data.index).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let records = data.records.unwrap_or_default();
    let config = topic.config();
    let header = check(&records, config.max_message_bytes)?;
    let (header, records) = if contents::takes_long(&config, &header) {
        // Codecs work, and how long is not known before: not on a thread that others wait for, and not in any number.
        let _turn = node.looks.acquire().await.ok();
        let look = tokio::task::spawn_blocking(move || contents::examined(&config, header, records));
        look.await.map_err(|_| Rejected::from(ResponseError::UnknownServerError))??
    } else {
        contents::examined(&config, header, records)?
    };
    let may_join =
        header.is_transactional() && !partition.is_within_transaction(header.producer_id, header.producer_epoch);
    Ok(Checked { partition, header, records, may_join })
}

/// Adds the partitions of batches to their transaction: in protocol 2 no other request does so.
///
/// `TXN-2`: this is durable before one of the batches is queued, so that after a crash there are no records without their
/// transaction; a transaction without its records may be left, which ends by its time-out. Batches that cannot join are
/// refused.
async fn join_transaction(node: &Node, id: &str, topics: &mut [TopicBatches]) {
    let mut joining: BTreeMap<ProducerIdentity, Vec<(String, i32)>> = BTreeMap::new();
    for (_, checked) in topics.iter().flat_map(|topic| &topic.partitions) {
        if let Ok(batch) = checked
            && batch.may_join
        {
            let name = &batch.partition.name;
            joining.entry(batch.producer()).or_default().push((name.topic.clone(), name.index));
        }
    }
    for (producer, partitions) in joining {
        let joined = coordinator::add_partitions(node, id, producer, partitions).await;
        // A producer is told of its end by the name that this response has for it.
        let Err(error) = named(joined, false) else { continue };
        for (_, checked) in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if checked.as_ref().is_ok_and(|batch| batch.may_join && batch.producer() == producer) {
                *checked = Err(error.into());
            }
        }
    }
}

async fn append(
    node: &Node,
    version: i16,
    transactional_id: Option<&str>,
    checked: Checked,
) -> Result<Appended, Rejected> {
    let Checked { partition, header, records, .. } = checked;
    let memory = node.reserve(records.len()).await;
    let bytes = BytesMut::from(&records[..]);
    if !header.is_transactional() {
        return Ok(partition.append(header, bytes, memory, Beginning::Anywhere)?);
    }
    // The journal stays locked while the batch is queued: a transaction cannot be decided between the check and the append,
    // so that no record is left behind the marker of its transaction.
    let meta = node.journal.lock();
    let id = meta.txn_of_producer.get(&header.producer_id).ok_or(ResponseError::InvalidProducerIdMapping)?;
    let txn = meta.txns.get(id).ok_or(ResponseError::InvalidProducerIdMapping)?;
    if header.producer_epoch != txn.epoch {
        return Err(ResponseError::InvalidProducerEpoch.into());
    }
    let is_its_id = transactional_id.is_some_and(|given| given == id);
    let place = (partition.name.topic.clone(), partition.name.index);
    let covered = txn.state == TxnState::Ongoing && txn.partitions.contains(&place);
    if !is_its_id || !covered {
        let message = "the partition is not part of an open transaction";
        return Err(Refusal::new(not_part(version >= SINCE_ABORTABLE), message).into());
    }
    let beginning = if version >= SINCE_PROTOCOL_2 { Beginning::AtZero } else { Beginning::Anywhere };
    Ok(partition.append(header, bytes, memory, beginning)?)
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
    check_size(&header, max_bytes)?;
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

fn check_size(header: &BatchHeader, max_bytes: usize) -> Result<(), Refusal> {
    if header.size <= max_bytes {
        return Ok(());
    }
    let message = format!("the batch has {} bytes, max.message.bytes allows {max_bytes}", header.size);
    Err(Refusal::new(ResponseError::MessageTooLarge, message))
}

async fn settle(queued: Queued, version: i16) -> PartitionProduceResponse {
    let answer = PartitionProduceResponse::default().with_index(queued.index);
    let settled = match queued.outcome {
        Ok(appended) => {
            let durable = match appended.durable {
                Some(durable) => durable.await.unwrap_or(Err(ResponseError::KafkaStorageError)),
                None => Ok(()),
            };
            durable
                .map(|()| (appended.base_offset, appended.append_time_ms, appended.log_start))
                .map_err(Rejected::from)
        }
        Err(rejected) => Err(rejected),
    };
    match settled {
        Ok((base_offset, append_time_ms, log_start)) => answer
            .with_base_offset(base_offset)
            .with_log_append_time_ms(append_time_ms)
            .with_log_start_offset(if version >= 5 { log_start } else { -1 }),
        Err(Rejected { refusal, records }) => {
            let answer = answer.with_error_code(refusal.error.code()).with_base_offset(-1).with_log_append_time_ms(-1);
            if version < 8 {
                return answer;
            }
            // Nothing of the batch is taken; a client tells the records to blame from those beside them.
            let blamed = records.into_iter().map(|index| {
                BatchIndexAndErrorMessage::default()
                    .with_batch_index(index)
                    .with_batch_index_error_message(Some(text(refusal.message.clone())))
            });
            let blamed = blamed.collect();
            answer.with_record_errors(blamed).with_error_message(Some(text(refusal.message)))
        }
    }
}
