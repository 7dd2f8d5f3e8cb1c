//! Produce: check, queue, wait for the disk.

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
use super::{Context, text};
use crate::clock::now_ms;
use crate::node::{Node, Refusal};
use crate::storage::partition::{Appended, Partition};
use crate::storage::producers::Beginning;
use crate::topic_config::TopicConfig;
use crate::topics::{Topic, is_internal};
use crate::txn::{ProducerIdentity, TxnState, coordinator};
use crate::wire::batch::{BatchError, BatchHeader, records};
use crate::wire::compression::{uncompressed, with_codec};

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

/// Queues every batch, in order; the answer resolves when all are durable, to none if the client wants no answer.
pub(super) async fn begin(
    context: &Context,
    version: i16,
    request: ProduceRequest,
) -> impl Future<Output = Option<ProduceResponse>> + Send + use<> {
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
            return None;
        }
        let mut responses = Vec::with_capacity(queued.len());
        for (topic, partitions) in queued {
            let mut answers = Vec::with_capacity(partitions.len());
            for partition in partitions {
                answers.push(settle(partition, version).await);
            }
            responses.push(topic.with_partition_responses(answers));
        }
        Some(ProduceResponse::default().with_responses(responses))
    }
}

async fn check_topic(context: &Context, version: i16, acks: i16, data: TopicProduceData) -> TopicBatches {
    let topic = find_topic(context, version, acks, &data).await;
    let check_one = |data: PartitionProduceData| {
        let index = data.index;
        let checked = match &topic {
            Ok(topic) => check_batch(topic, data),
            Err(refusal) => Err(refusal.clone().into()),
        };
        (index, checked)
    };
    let partitions = data.partition_data.into_iter().map(check_one).collect();
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
fn check_batch(topic: &Topic, data: PartitionProduceData) -> Result<Checked, Rejected> {
    let partition = topic.partition(data.index).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let records = data.records.unwrap_or_default();
    let config = topic.config();
    let header = check(&records, config.max_message_bytes)?;
    check_records(&config, &header, &records, now_ms())?;
    let (header, records) = in_codec_of(&config, header, records)?;
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

/// Looks at the records themselves where the topic wants something of them: a key where it is compacted, since nothing could
/// ever replace a record without one, and times within bounds of `now_ms`.
fn check_records(config: &TopicConfig, header: &BatchHeader, batch: &[u8], now_ms: i64) -> Result<(), Rejected> {
    let (before, after) = (config.timestamp_before_max_ms, config.timestamp_after_max_ms);
    let bounds_times = !config.log_append_time() && before.min(after) < i64::MAX;
    if !config.compacts() && !bounds_times {
        return Ok(());
    }
    let invalid = |message: &str| Refusal::new(ResponseError::InvalidRecord, message);
    let (header, batch) = uncompressed(header, batch).ok_or_else(|| invalid("the records cannot be decompressed"))?;
    let times = now_ms.saturating_sub(before)..=now_ms.saturating_add(after);
    let (mut keyless, mut untimely) = (Vec::new(), Vec::new());
    for (index, record) in (0..).zip(records(&header, &batch)) {
        let record = record.map_err(|error| invalid(&error.to_string()))?;
        if config.compacts() && record.key.is_none() {
            keyless.push(index);
        }
        // A record may have no time, which is -1.
        if bounds_times && record.timestamp != -1 && !times.contains(&record.timestamp) {
            untimely.push(index);
        }
    }
    if !untimely.is_empty() {
        let message = format!("the record's time is not within {before} ms before and {after} ms after the broker's");
        return Err(Rejected { refusal: Refusal::new(ResponseError::InvalidTimestamp, message), records: untimely });
    }
    if !keyless.is_empty() {
        return Err(Rejected { refusal: invalid("a compacted topic takes no record without a key"), records: keyless });
    }
    Ok(())
}

/// The batch as the topic's `compression.type` wants it.
fn in_codec_of(config: &TopicConfig, header: BatchHeader, batch: Bytes) -> Result<(BatchHeader, Bytes), Refusal> {
    let Some(changed) = config.codec.and_then(|codec| with_codec(&header, &batch, codec)) else {
        return Ok((header, batch));
    };
    let header = BatchHeader::parse(&changed).map_err(|_| ResponseError::UnknownServerError)?;
    check_size(&header, config.max_message_bytes)?;
    Ok((header, Bytes::from(changed)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::batch::build_batch;

    const NOW_MS: i64 = 1_700_000_000_000;

    fn config(settings: &[(&str, &str)]) -> TopicConfig {
        let set: BTreeMap<String, String> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        TopicConfig::new(&set, 1 << 20)
    }

    /// Records with a time relative to now and, or not, a key of one byte; the value is one byte too.
    fn batch(records: &[(i8, bool)]) -> (BatchHeader, Bytes) {
        let mut body = Vec::new();
        for (number, (late, has_key)) in records.iter().enumerate() {
            // Numbers are zigzag varints of one byte: attributes, time, offset, key, value, headers.
            let zigzag = |value: i8| ((value << 1) ^ (value >> 7)) as u8;
            let key: &[u8] = if *has_key { &[2, b'k'] } else { &[1] };
            let record = [&[0, zigzag(*late), zigzag(number as i8)][..], key, &[2, b'v', 0]].concat();
            body.push(zigzag(record.len() as i8));
            body.extend_from_slice(&record);
        }
        let header = BatchHeader {
            base_offset: 0,
            size: 0,
            attributes: 0,
            last_offset_delta: records.len() as i32 - 1,
            base_timestamp: NOW_MS,
            max_timestamp: NOW_MS,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records: records.len() as i32,
        };
        let batch = Bytes::from(build_batch(&header, &body));
        (BatchHeader::parse_checked(&batch).unwrap(), batch)
    }

    fn blamed(settings: &[(&str, &str)], records: &[(i8, bool)]) -> Option<(ResponseError, Vec<i32>)> {
        let (header, batch) = batch(records);
        let looked_at = check_records(&config(settings), &header, &batch, NOW_MS);
        looked_at.err().map(|rejected| (rejected.refusal.error, rejected.records))
    }

    #[test]
    fn given_a_compacted_topic_when_records_have_no_key_then_they_alone_are_to_blame() {
        let compact = [("cleanup.policy", "compact")];
        assert_eq!(blamed(&compact, &[(0, true), (0, true)]), None);
        assert_eq!(
            blamed(&compact, &[(0, true), (0, false), (0, true), (0, false)]),
            Some((ResponseError::InvalidRecord, vec![1, 3]))
        );
        assert_eq!(blamed(&[], &[(0, false)]), None);
    }

    #[test]
    fn given_bounds_of_time_when_records_lie_outside_then_they_are_to_blame() {
        let records = [(-20, true), (0, true), (20, true)];
        let before = ("message.timestamp.before.max.ms", "10");
        let after = ("message.timestamp.after.max.ms", "10");
        assert_eq!(blamed(&[before], &records), Some((ResponseError::InvalidTimestamp, vec![0])));
        assert_eq!(blamed(&[after], &records), Some((ResponseError::InvalidTimestamp, vec![2])));
        assert_eq!(blamed(&[before, after, ("message.timestamp.type", "LogAppendTime")], &records), None);
        assert_eq!(blamed(&[], &records), None);
    }

    #[test]
    fn given_a_codec_of_the_topic_when_a_batch_grows_beyond_the_largest_size_then_it_is_refused() {
        let (header, plain) = batch(&[(0, true); 60]);
        let (small_header, small) =
            in_codec_of(&config(&[("compression.type", "gzip")]), header, plain.clone()).unwrap();
        assert!(small.len() < plain.len() && small_header.size == small.len());
        let settings = [("compression.type", "uncompressed"), ("max.message.bytes", "200")];
        let refused = in_codec_of(&config(&settings), small_header, small.clone()).unwrap_err();
        assert_eq!(refused.error, ResponseError::MessageTooLarge);
        assert_eq!(in_codec_of(&config(&[]), small_header, small.clone()).unwrap().1, small);
    }
}
