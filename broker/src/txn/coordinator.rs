//! The transaction coordinator.
//!
//! Ending a transaction is atomic: the decision is journaled first (`TXN-1`: nothing is marked before the decision is
//! durable), then a marker is written to every partition, then the completion is recorded, which makes the offsets of the
//! transaction committed ones. A start finishes whatever was decided and not completed.
//!
//! Two forms of the protocol are spoken, also by clients that come one after the other under one transactional id: see
//! [`Protocol`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use kafka_protocol::ResponseError;
use tokio::sync::Notify;

use super::{Ending, MAX_EPOCH, NO_EPOCH, NO_ID, ProducerIdentity, Protocol, TxnRecord, TxnState};
use crate::clock::now_ms;
use crate::meta::{Entry, Meta, OffsetItem};
use crate::node::Node;
use crate::storage::journal::{Durable, Journal, wait};
use crate::storage::partition::{Appended, Partition};
use crate::wire::batch::{BatchHeader, Marker, marker_batch};

/// Producer ids are reserved in the journal in blocks of this many.
const ID_BLOCK: i64 = 1_000;
/// Pause between attempts to write a decision down.
const DECISION_PAUSE: Duration = Duration::from_millis(300);
/// Pause between attempts to end parts of logs that no transaction covers.
const ORPHAN_PAUSE: Duration = Duration::from_secs(1);

/// What the coordinator holds besides the journal.
#[derive(Default)]
pub(crate) struct Coordinator {
    ids: tokio::sync::Mutex<IdBlock>,
    /// Told when a transaction begins, for the task that aborts those that take too long.
    pub began: Notify,
}

#[derive(Default)]
struct IdBlock {
    next: i64,
    end: i64,
}

impl Coordinator {
    /// A producer id that nobody has had.
    pub(crate) async fn new_producer_id(&self, journal: &Journal<Meta>) -> Result<i64, ResponseError> {
        let mut ids = self.ids.lock().await;
        if ids.next == ids.end {
            let (durable, start) = {
                let mut meta = journal.lock();
                let start = meta.next_producer_id;
                (meta.record(Entry::ProducerIds { next: start + ID_BLOCK })?, start)
            };
            wait(durable).await?;
            *ids = IdBlock { next: start, end: start + ID_BLOCK };
        }
        ids.next += 1;
        Ok(ids.next - 1)
    }
}

/// Gives a transactional producer its id and epoch, fencing its predecessor and aborting what that one left open.
pub(crate) async fn init_producer(
    node: &Arc<Node>,
    id: &str,
    timeout_ms: i32,
    current: Option<ProducerIdentity>,
) -> Result<ProducerIdentity, ResponseError> {
    if timeout_ms <= 0 || timeout_ms > node.config.max_transaction_timeout_ms {
        return Err(ResponseError::InvalidTransactionTimeout);
    }
    let known = node.journal.lock().txns.get(id).cloned();
    let Some(record) = known else {
        let producer_id = node.coordinator.new_producer_id(&node.journal).await?;
        return set_producer(node, None, TxnRecord::new(id.to_owned(), producer_id, 0, timeout_ms, now_ms())).await;
    };
    let asks_again = current.is_some_and(|current| record.is_former_self(current));
    if current.is_some_and(|current| current != record.producer()) && !asks_again {
        return Err(ResponseError::ProducerFenced);
    }
    if record.state.is_prepared() {
        return Err(ResponseError::ConcurrentTransactions);
    }
    if record.state == TxnState::Ongoing {
        abort(node, &record).await?;
        // The caller tries again at once and finds the transaction completed.
        return Box::pin(init_producer(node, id, timeout_ms, None)).await;
    }
    if asks_again {
        return set_producer(node, Some(&record), record.initialized_again(timeout_ms, now_ms())).await;
    }
    let producer = if record.epoch >= MAX_EPOCH {
        ProducerIdentity { id: node.coordinator.new_producer_id(&node.journal).await?, epoch: 0 }
    } else {
        ProducerIdentity { id: record.producer_id, epoch: record.epoch + 1 }
    };
    let last_epoch = current.map_or(NO_EPOCH, |current| current.epoch);
    set_producer(node, Some(&record), record.initialized(producer, last_epoch, timeout_ms, now_ms())).await
}

/// Replaces `before`, unless somebody else has done so, and gives the producer its identity.
async fn set_producer(
    node: &Arc<Node>,
    before: Option<&TxnRecord>,
    next: TxnRecord,
) -> Result<ProducerIdentity, ResponseError> {
    let producer = next.producer();
    let durable = {
        let mut meta = node.journal.lock();
        if meta.txns.get(&next.id) != before {
            return Err(ResponseError::ConcurrentTransactions);
        }
        if before.is_none() && meta.txns.len() >= node.config.max_transactional_ids {
            return Err(ResponseError::PolicyViolation);
        }
        meta.record(Entry::Txn(next))?
    };
    wait(durable).await?;
    Ok(producer)
}

/// Adds partitions to the producer's transaction, which begins if need be. Returns when that is durable.
pub(crate) async fn add_partitions(
    node: &Node,
    id: &str,
    producer: ProducerIdentity,
    partitions: Vec<(String, i32)>,
) -> Result<(), ResponseError> {
    change(node, id, producer, |record| record.partitions.extend(partitions)).await
}

/// What is known of a transactional id, which has to have a name.
fn record_of<'a>(meta: &'a Meta, id: &str) -> Result<&'a TxnRecord, ResponseError> {
    if id.is_empty() {
        return Err(ResponseError::InvalidRequest);
    }
    meta.txns.get(id).ok_or(ResponseError::InvalidProducerIdMapping)
}

/// Which of these partitions are part of the producer's transaction, in their order.
pub(crate) fn verify(
    node: &Node,
    id: &str,
    producer: ProducerIdentity,
    partitions: &[(String, i32)],
) -> Result<Vec<bool>, ResponseError> {
    let meta = node.journal.lock();
    let record = record_of(&meta, id)?;
    record.check(producer)?;
    Ok(partitions.iter().map(|partition| record.partitions.contains(partition)).collect())
}

/// Adds a group to the producer's transaction.
pub(crate) async fn add_group(
    node: &Node,
    id: &str,
    producer: ProducerIdentity,
    group: String,
) -> Result<(), ResponseError> {
    change(node, id, producer, |record| record.groups.extend([group])).await
}

async fn change(
    node: &Node,
    id: &str,
    producer: ProducerIdentity,
    change: impl FnOnce(&mut TxnRecord),
) -> Result<(), ResponseError> {
    let durable = {
        let mut meta = node.journal.lock();
        let record = record_of(&meta, id)?;
        record.check(producer)?;
        let mut changed = record.begun(now_ms());
        change(&mut changed);
        let known = changed.partitions == record.partitions
            && changed.groups == record.groups
            && record.state == TxnState::Ongoing;
        // What is known may not be on the disk yet; whoever is queued behind it knows when it is.
        if known && !meta.is_behind() {
            return Ok(());
        }
        meta.record(Entry::Txn(changed))?
    };
    node.coordinator.began.notify_one();
    wait(durable).await
}

/// Notes offsets that become committed if and when the transaction does. Under protocol 2 they add their group to it.
pub(crate) async fn add_offsets(
    node: &Node,
    id: &str,
    producer: ProducerIdentity,
    group: &str,
    offsets: Vec<OffsetItem>,
    protocol: Protocol,
) -> Result<(), ResponseError> {
    let durable = {
        let mut meta = node.journal.lock();
        let record = meta.txns.get(id).ok_or(ResponseError::InvalidProducerIdMapping)?;
        record.check(producer)?;
        let is_part = record.state == TxnState::Ongoing && record.groups.contains(group);
        if protocol == Protocol::One && !is_part {
            return Err(ResponseError::InvalidTxnState);
        }
        let mut changed = record.begun(now_ms());
        changed.groups.insert(group.to_owned());
        let noted = changed.offsets.entry(group.to_owned()).or_default();
        noted.retain(|old| !offsets.iter().any(|new| new.topic == old.topic && new.partition == old.partition));
        noted.extend(offsets);
        meta.record(Entry::Txn(changed))?
    };
    node.coordinator.began.notify_one();
    wait(durable).await
}

/// Commits or aborts the producer's transaction and gives the identity for its next one. A repeated request for the outcome
/// that has been reached is fine.
pub(crate) async fn end(
    node: &Arc<Node>,
    id: &str,
    producer: ProducerIdentity,
    commit: bool,
    protocol: Protocol,
) -> Result<ProducerIdentity, ResponseError> {
    // Behind the highest epoch comes another producer id. One that is then not needed is missed by nobody.
    let next_producer_id = if protocol == Protocol::Two && producer.epoch >= MAX_EPOCH {
        node.coordinator.new_producer_id(&node.journal).await?
    } else {
        NO_ID
    };
    let (prepared, durable) = {
        let mut meta = node.journal.lock();
        let record = record_of(&meta, id)?;
        if record.ending(producer, commit, protocol)? == Ending::Reached {
            return Ok(record.producer());
        }
        let prepared = record.decided(commit, protocol, next_producer_id, now_ms());
        let durable = meta.record(Entry::Txn(prepared.clone()))?;
        (prepared, durable)
    };
    let next = prepared.completed(now_ms()).producer();
    finish_detached(node, prepared, durable).await?;
    Ok(next)
}

/// Aborts a transaction that its producer has left or that took too long, and fences the producer.
async fn abort(node: &Arc<Node>, seen: &TxnRecord) -> Result<(), ResponseError> {
    let (prepared, durable) = {
        let mut meta = node.journal.lock();
        let record = meta.txns.get(&seen.id).ok_or(ResponseError::InvalidProducerIdMapping)?;
        let same = record.producer() == seen.producer() && record.started_ms == seen.started_ms;
        if !same || record.state != TxnState::Ongoing {
            return Err(ResponseError::ConcurrentTransactions);
        }
        let prepared = record.fenced(now_ms());
        let durable = meta.record(Entry::Txn(prepared.clone()))?;
        (prepared, durable)
    };
    finish_detached(node, prepared, durable).await
}

/// Finishes in a task of its own: the caller may go away, the decision may not.
async fn finish_detached(node: &Arc<Node>, prepared: TxnRecord, durable: Durable) -> Result<(), ResponseError> {
    let node = node.clone();
    let task = node.tasks.spawn({
        let node = node.clone();
        async move {
            decide(&node, &prepared, durable).await?;
            finish(&node, prepared).await
        }
    });
    task.await.unwrap_or(Err(ResponseError::UnknownServerError))
}

/// Returns once the decision is on the disk. It stands in memory already, so a journal that cannot be written now is asked
/// again until it can: giving up would leave the transaction decided and never carried out.
async fn decide(node: &Arc<Node>, prepared: &TxnRecord, durable: Durable) -> Result<(), ResponseError> {
    let mut decided = wait(durable).await;
    while let Err(error) = decided {
        tracing::warn!(transaction = %prepared.id, error = %error, "outcome of a transaction not written, trying again");
        tokio::select! {
            () = tokio::time::sleep(DECISION_PAUSE) => {}
            () = node.shutdown.cancelled() => return Err(ResponseError::CoordinatorNotAvailable),
        }
        decided = match record_again(node, prepared) {
            Ok(durable) => wait(durable).await,
            Err(error) => Err(error),
        };
    }
    Ok(())
}

/// Records a decision as it stands now: offsets that the transaction held may have been taken back or deleted meanwhile.
fn record_again(node: &Node, prepared: &TxnRecord) -> Result<Durable, ResponseError> {
    let mut meta = node.journal.lock();
    let standing = meta.txns.get(&prepared.id).unwrap_or(prepared).clone();
    meta.record(Entry::Txn(standing))
}

/// Writes the markers of a decided transaction, again and again until all are durable, and completes it.
///
/// `TXN-3`: a marker is queued only while the decision that it carries out stands. One that came later, from a second call for
/// the same transaction, would decide the next one of its producer.
pub(crate) async fn finish(node: &Arc<Node>, prepared: TxnRecord) -> Result<(), ResponseError> {
    let mut open = prepared.partitions.clone();
    let mut pause = Duration::from_millis(20);
    loop {
        let Some(queued) = queue_markers(node, &open, &prepared) else { return Ok(()) };
        for (partition, queued) in open.clone().into_iter().zip(queued) {
            match written(queued).await {
                // A topic that is gone needs no marker, and a higher epoch in the log has ended the transaction already.
                Ok(()) | Err(ResponseError::UnknownTopicOrPartition | ResponseError::InvalidProducerEpoch) => {
                    open.remove(&partition);
                }
                Err(error) => {
                    tracing::warn!(transaction = %prepared.id, topic = %partition.0, partition = partition.1, error = %error,
                        "transaction marker not written, trying again");
                }
            }
        }
        // The completion is not waited for: a start that finds only the decision writes the markers again, which changes
        // nothing.
        if open.is_empty() && complete(node, &prepared).is_ok() {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
            () = node.shutdown.cancelled() => return Err(ResponseError::CoordinatorNotAvailable),
        }
    }
}

/// A marker that waits for the disk, or why it does not.
type QueuedMarker = Result<Appended, ResponseError>;

async fn written(queued: QueuedMarker) -> Result<(), ResponseError> {
    match queued?.durable {
        Some(durable) => durable.await.unwrap_or(Err(ResponseError::KafkaStorageError)),
        None => Ok(()),
    }
}

/// Queues a marker for each of these partitions; none once the transaction is not decided any more, but completed.
fn queue_markers(node: &Node, partitions: &BTreeSet<(String, i32)>, prepared: &TxnRecord) -> Option<Vec<QueuedMarker>> {
    let marker = if prepared.state == TxnState::PrepareCommit { Marker::Commit } else { Marker::Abort };
    // Held until all are queued: nobody completes the transaction meanwhile.
    let meta = node.journal.lock();
    if !meta.txns.get(&prepared.id).is_some_and(|standing| standing.is_decision(prepared)) {
        return None;
    }
    let queued = partitions.iter().map(|(topic, index)| {
        let partition = node.topics.partition(topic, *index).ok_or(ResponseError::UnknownTopicOrPartition)?;
        queue_marker(&partition, marker, prepared.producer())
    });
    Some(queued.collect())
}

fn queue_marker(partition: &Arc<Partition>, marker: Marker, producer: ProducerIdentity) -> QueuedMarker {
    let bytes = marker_batch(marker, producer.id, producer.epoch, now_ms());
    let header = BatchHeader::parse(&bytes).map_err(|_| ResponseError::UnknownServerError)?;
    partition.append_marker(header, marker, BytesMut::from(&bytes[..]))
}

/// Records that a decided transaction is carried out, unless somebody else has done so.
fn complete(node: &Node, prepared: &TxnRecord) -> Result<(), ResponseError> {
    let mut meta = node.journal.lock();
    if meta.txns.get(&prepared.id).is_some_and(|standing| standing.is_decision(prepared)) {
        meta.record(Entry::Txn(prepared.completed(now_ms())))?;
    }
    Ok(())
}

/// What a start has found of transactions of before.
pub(crate) struct Inherited {
    /// Decided and not carried out.
    decided: Vec<TxnRecord>,
    /// Markers of parts of logs that no transaction covers.
    orphans: Vec<QueuedMarker>,
}

/// Takes note of what was left of transactions, and ends at once what nobody else would. Before anyone is served: whatever is
/// decided from then on is carried out by whoever decides it, and what a producer writes then comes behind these markers.
pub(crate) fn inherit(node: &Node) -> Inherited {
    let decided = {
        let meta = node.journal.lock();
        let open = meta.open_txns.iter().filter_map(|id| meta.txns.get(id));
        open.filter(|record| record.state.is_prepared()).cloned().collect()
    };
    Inherited { decided, orphans: end_orphans(node) }
}

/// Finishes decided transactions of before the start, and sees to it that parts of logs that no transaction covers are ended.
pub(crate) async fn resume(node: &Arc<Node>, inherited: Inherited) {
    let Inherited { decided, orphans } = inherited;
    let finishing = async {
        for record in decided {
            let id = record.id.clone();
            if let Err(error) = finish(node, record).await {
                tracing::error!(transaction = %id, error = %error, "decided transaction not finished");
            }
        }
    };
    tokio::join!(finishing, until_ended(node, orphans));
}

/// Waits for the markers of orphans, and queues them again where one could not be written.
async fn until_ended(node: &Node, mut orphans: Vec<QueuedMarker>) {
    loop {
        let mut failed = false;
        for orphan in orphans {
            failed |= written(orphan).await.is_err();
        }
        if !failed {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(ORPHAN_PAUSE) => orphans = end_orphans(node),
            () = node.shutdown.cancelled() => return,
        }
    }
}

/// Ends parts of logs that no known transaction covers, as a journal that could not be written may leave them: nobody else
/// ever would, and readers of committed records would wait for them for ever.
fn end_orphans(node: &Node) -> Vec<QueuedMarker> {
    let mut markers = Vec::new();
    for partition in node.topics.all_partitions() {
        // Locked like a produce request's, so that no transaction begins between the look and the marker.
        let meta = node.journal.lock();
        let key = (partition.name.topic.clone(), partition.name.index);
        let is_covered = |producer: &ProducerIdentity| {
            let txn = meta.txn_of_producer.get(&producer.id).and_then(|id| meta.txns.get(id));
            let is_its = |txn: &TxnRecord| txn.state.is_prepared() || txn.epoch == producer.epoch;
            txn.is_some_and(|txn| txn.state.is_open() && txn.partitions.contains(&key) && is_its(txn))
        };
        let open = partition.open_transactions().into_iter().map(|(id, epoch)| ProducerIdentity { id, epoch });
        for producer in open.filter(|producer| !is_covered(producer)) {
            let queued = queue_marker(&partition, Marker::Abort, producer);
            tracing::warn!(partition = %partition.name, producer_id = producer.id, refused = ?queued.as_ref().err(),
                "records of an unknown transaction are aborted");
            markers.push(queued);
        }
    }
    markers
}

/// Aborts transactions that are open for longer than they said; sleeps until the next one is due. Ends at shutdown.
pub(crate) async fn run_timeouts(node: Arc<Node>) {
    loop {
        let now = now_ms();
        let (due, next) = {
            let meta = node.journal.lock();
            let open = meta.open_txns.iter().filter_map(|id| meta.txns.get(id));
            let expiring: Vec<_> = open.filter_map(|txn| Some((txn.expires_ms()?, txn.clone()))).collect();
            let next = expiring.iter().map(|(at, _)| *at).filter(|at| *at > now).min();
            (expiring.into_iter().filter(|(at, _)| *at <= now).map(|(_, txn)| txn).collect::<Vec<_>>(), next)
        };
        let mut failed = false;
        for record in due {
            tracing::info!(transaction = %record.id, timeout_ms = record.timeout_ms, "transaction timed out and is aborted");
            if let Err(error) = abort(&node, &record).await {
                failed = true;
                tracing::warn!(transaction = %record.id, error = %error, "timed-out transaction not aborted yet");
            }
        }
        let next = if failed { Some(now + 1_000) } else { next };
        let sleep = next.map(|at| Duration::from_millis((at - now_ms()).max(1) as u64));
        tokio::select! {
            () = async { match sleep { Some(sleep) => tokio::time::sleep(sleep).await, None => std::future::pending().await } } => {}
            () = node.coordinator.began.notified() => {}
            () = node.shutdown.cancelled() => return,
        }
    }
}
