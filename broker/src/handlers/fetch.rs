//! Fetch: read what is there, or wait until there is something.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse, ProducerId, TopicName};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::Context;
use crate::storage::partition::{Bounds, Partition};
use crate::storage::producers::Aborted;
use crate::storage::read::{Read, ReadLimit, read_files};
use crate::wire::batch::BatchHeader;

/// Longest wait of a fetch, whatever the client asks for.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// A partition that a fetch asks for.
struct Target {
    partition: Option<Arc<Partition>>,
    absent: ResponseError,
    index: i32,
    offset: i64,
    leader_epoch: i32,
    max_bytes: usize,
}

struct Topic {
    name: TopicName,
    id: Uuid,
    targets: Vec<Target>,
}

pub(super) async fn fetch(context: &Context, version: i16, mut request: FetchRequest) -> FetchResponse {
    let sessions = &context.node.fetch_sessions;
    let session = match sessions.begin(version, &mut request) {
        Ok(session) => session,
        Err(error) => return FetchResponse::default().with_error_code(error.code()),
    };
    let committed_only = request.isolation_level == 1;
    let (now, wait) = (Instant::now(), Duration::from_millis(request.max_wait_ms.max(0) as u64).min(MAX_WAIT));
    let deadline = now + context.pace.hold(wait, request.min_bytes, now);
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0).min(context.node.config.max_fetch_bytes);
    let topics: Vec<Topic> = request.topics.into_iter().map(|topic| resolve(context, version, topic)).collect();
    if request.min_bytes > 0 {
        wait_for_data(context, &topics, committed_only, request.min_bytes as u64, deadline).await;
    }
    let response = read_all(topics, version, committed_only, max_bytes).await;
    if has_records(&response) {
        context.pace.in_use(Instant::now());
    }
    sessions.finish(version, session, response)
}

fn resolve(context: &Context, version: i16, topic: FetchTopic) -> Topic {
    let by_id = version >= 13;
    let found = if by_id { context.node.topics.by_id(topic.topic_id) } else { context.node.topics.get(&topic.topic) };
    let absent = match (by_id, &found) {
        (true, None) => ResponseError::UnknownTopicId,
        _ => ResponseError::UnknownTopicOrPartition,
    };
    let target = |asked: FetchPartition| Target {
        partition: found.as_ref().and_then(|topic| topic.partition(asked.partition)),
        absent,
        index: asked.partition,
        offset: asked.fetch_offset,
        leader_epoch: asked.current_leader_epoch,
        max_bytes: usize::try_from(asked.partition_max_bytes).unwrap_or(0),
    };
    Topic { name: topic.topic, id: topic.topic_id, targets: topic.partitions.into_iter().map(target).collect() }
}

fn has_records(response: &FetchResponse) -> bool {
    let mut partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.any(|data| data.records.as_ref().is_some_and(|records| !records.is_empty()))
}

/// Returns when `min_bytes` can be read, when something is wrong that the client should hear of, when it asks for something else,
/// or at the deadline.
async fn wait_for_data(context: &Context, topics: &[Topic], committed_only: bool, min_bytes: u64, deadline: Instant) {
    let targets = || topics.iter().flat_map(|topic| &topic.targets);
    if is_ready(targets(), committed_only, min_bytes) || deadline <= Instant::now() {
        return;
    }
    let notify = Arc::new(Notify::new());
    // Registered before looking again, so that nothing is missed in between.
    let _guards: Vec<_> =
        targets().filter_map(|target| target.partition.as_ref()).map(|found| found.watch(notify.clone())).collect();
    let mut pace = context.pace.clone();
    while !is_ready(targets(), committed_only, min_bytes) {
        tokio::select! {
            () = notify.notified() => {}
            () = pace.pressed() => return,
            () = tokio::time::sleep_until(deadline) => return,
            () = context.node.shutdown.cancelled() => return,
        }
    }
}

fn is_ready<'a>(targets: impl Iterator<Item = &'a Target>, committed_only: bool, min_bytes: u64) -> bool {
    let mut bytes = 0;
    for target in targets {
        let Some(partition) = &target.partition else { return true };
        if check(target, partition).is_err() || partition.is_out_of_range(target.offset) {
            return true;
        }
        bytes += partition.available(target.offset, committed_only);
    }
    bytes >= min_bytes
}

/// There is one leader epoch, 0, for ever.
fn check(target: &Target, partition: &Partition) -> Result<(), ResponseError> {
    if target.leader_epoch > 0 {
        return Err(ResponseError::UnknownLeaderEpoch);
    }
    if partition.is_corrupt_at(target.offset) { Err(ResponseError::KafkaStorageError) } else { Ok(()) }
}

async fn read_all(topics: Vec<Topic>, version: i16, committed_only: bool, max_bytes: usize) -> FetchResponse {
    let mut left = max_bytes;
    let mut found_any = false;
    let mut responses = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.targets.len());
        for target in topic.targets {
            // The first batch of an answer is sent whole whatever its size, or a large record would block its reader.
            let limit = ReadLimit { max_bytes: target.max_bytes.min(left), at_least_one: !found_any, committed_only };
            let data = read_one(&target, version, limit).await;
            let size = data.records.as_ref().map_or(0, Bytes::len);
            left = left.saturating_sub(size);
            found_any |= size > 0;
            partitions.push(data);
        }
        let response = FetchableTopicResponse::default().with_partitions(partitions);
        responses.push(if version >= 13 { response.with_topic_id(topic.id) } else { response.with_topic(topic.name) });
    }
    FetchResponse::default().with_responses(responses)
}

async fn read_one(target: &Target, version: i16, limit: ReadLimit) -> PartitionData {
    match try_read(target, limit).await {
        Ok(Found { bounds, records, aborted }) => {
            let aborted = limit.committed_only.then(|| told(aborted, &records));
            PartitionData::default()
                .with_partition_index(target.index)
                .with_high_watermark(bounds.high_watermark)
                .with_last_stable_offset(bounds.last_stable)
                .with_log_start_offset(if version >= 5 { bounds.log_start } else { -1 })
                .with_aborted_transactions(aborted)
                .with_preferred_read_replica(BrokerId(-1))
                .with_records(Some(records))
        }
        Err(error) => PartitionData::default()
            .with_partition_index(target.index)
            .with_error_code(error.code())
            .with_high_watermark(-1)
            .with_last_stable_offset(-1)
            .with_preferred_read_replica(BrokerId(-1))
            .with_records(Some(Bytes::new())),
    }
}

/// What one read has found.
struct Found {
    bounds: Bounds,
    records: Bytes,
    /// Aborted transactions from its offset on.
    aborted: Vec<Aborted>,
}

async fn try_read(target: &Target, limit: ReadLimit) -> Result<Found, ResponseError> {
    let partition = target.partition.as_ref().ok_or(target.absent)?;
    check(target, partition)?;
    match partition.read(target.offset, limit)? {
        Read::Empty(bounds) => Ok(Found { bounds, records: Bytes::new(), aborted: Vec::new() }),
        Read::Memory(bounds, batches, aborted) => Ok(Found { bounds, records: join(batches), aborted }),
        Read::Files(bounds) => {
            let end = bounds.visible(limit.committed_only);
            let (records, aborted) = read_files(partition, target.offset, end, limit).await?;
            Ok(Found { bounds, records, aborted })
        }
    }
}

fn join(mut batches: Vec<Bytes>) -> Bytes {
    if batches.len() == 1 {
        return batches.remove(0);
    }
    let mut joined = BytesMut::with_capacity(batches.iter().map(Bytes::len).sum());
    batches.iter().for_each(|batch| joined.extend_from_slice(batch));
    joined.freeze()
}

/// Those that begin no later than the records end: a reader looks at no other.
fn told(aborted: Vec<Aborted>, records: &[u8]) -> Vec<AbortedTransaction> {
    if aborted.is_empty() {
        return Vec::new();
    }
    let last = last_offset(records);
    let ranges = aborted.into_iter().filter(|range| last.is_some_and(|last| range.first_offset <= last));
    ranges
        .map(|range| {
            AbortedTransaction::default()
                .with_producer_id(ProducerId(range.producer_id))
                .with_first_offset(range.first_offset)
        })
        .collect()
}

fn last_offset(mut records: &[u8]) -> Option<i64> {
    let mut last = None;
    while let Ok(header) = BatchHeader::parse(records) {
        last = Some(header.last_offset());
        records = records.get(header.size..).unwrap_or(&[]);
    }
    last
}
