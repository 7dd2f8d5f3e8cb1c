//! What has to be done now and then: retention, checkpoints, compaction, and forgetting what nobody uses any more.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::{Instant, MissedTickBehavior};

use crate::clock::now_ms;
use crate::groups::expiry::{Standing, expired, may_begin};
use crate::meta::Entry;
use crate::node::Node;
use crate::storage::compaction::Compactor;

/// Runs until shutdown.
pub(crate) async fn run(node: Arc<Node>) {
    let mut every = tokio::time::interval(node.config.housekeeping_interval);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let compactor = Arc::new(Compactor::default());
    let started = Instant::now();
    loop {
        tokio::select! {
            _ = every.tick() => {}
            () = node.shutdown.cancelled() => return,
        }
        node.journal.lock().mend();
        take_back_refused_topics(&node);
        if may_begin(started.elapsed(), node.config.offsets_retention) {
            forget_offsets(&node);
        }
        forget_transactional_ids(&node);
        let with_offsets = groups_with_offsets(&node);
        node.groups.drop_empty(|id| with_offsets.contains(id));
        let (working, compactor) = (node.clone(), compactor.clone());
        let work = tokio::task::spawn_blocking(move || look_after_logs(&working, &compactor));
        if work.await.is_err() {
            tracing::error!("looking after the logs failed");
        }
    }
}

fn groups_with_offsets(node: &Node) -> HashSet<String> {
    let meta = node.journal.lock();
    meta.group_ids().filter(|id| meta.has_offsets_of(id)).cloned().collect()
}

fn look_after_logs(node: &Node, compactor: &Compactor) {
    let now = now_ms();
    let idle_before = now - node.config.producer_expiry.as_millis() as i64;
    let mut compacted = HashSet::new();
    for partition in node.topics.all_partitions() {
        if node.shutdown.is_cancelled() {
            return;
        }
        partition.mend();
        partition.enforce_retention(now, idle_before);
        partition.checkpoint_if_due(now, node.config.checkpoint_interval);
        if partition.config().compacts() {
            compactor.run(&partition, now);
            compacted.insert(partition.folder().to_path_buf());
        }
    }
    compactor.keep_only(&compacted);
}

/// What the journal could not write is part of its state and gets into the next file. A topic or partitions whose creation was
/// refused for that, or whose client went away meanwhile, would be there after the next start, though nobody was told of it.
fn take_back_refused_topics(node: &Node) {
    // Whoever creates one has it in the journal a moment before it is among the topics.
    let Ok(_admin) = node.admin.try_lock() else { return };
    let mut meta = node.journal.lock();
    let undone: Vec<Entry> = meta.topics.iter().filter_map(|(name, known)| node.undo(name, known)).collect();
    for entry in undone {
        tracing::info!(?entry, "a topic or partitions whose creation was refused are taken back");
        meta.take_back(entry);
    }
}

/// Drops offsets that have had their time, and groups of which neither offsets nor members are left.
fn forget_offsets(node: &Node) {
    let before = now_ms() - node.config.offsets_retention.as_millis() as i64;
    let mut meta = node.journal.lock();
    let mut changes = Vec::new();
    for (group, offsets) in &meta.groups {
        if offsets.is_empty() {
            let is_known = node.groups.peek(group, |_, _| ()).is_some() || meta.has_pending_of(group);
            changes.extend((!is_known).then(|| Entry::GroupDeleted { group: group.clone() }));
            continue;
        }
        // Most are young, which is seen without a look at their group.
        if offsets.values().all(|item| item.committed_ms >= before) {
            continue;
        }
        let emptied_ms = meta.emptied.get(group).copied();
        let live = node
            .groups
            .peek(group, |group, _| expired(offsets, &Standing { group: Some(&*group), emptied_ms }, before));
        let mut partitions = live.unwrap_or_else(|| expired(offsets, &Standing { group: None, emptied_ms }, before));
        // Whoever has a transaction open here is at work; its end replaces the offset, or leaves it to the next pass.
        partitions.retain(|(topic, index)| !meta.has_pending_offset(group, topic, *index));
        if !partitions.is_empty() {
            tracing::info!(group = %group, offsets = partitions.len(), "committed offsets have expired");
            changes.push(Entry::OffsetsDeleted { group: group.clone(), partitions });
        }
    }
    for change in changes {
        // A refusal now is made up for the next time.
        let _ = meta.record(change);
    }
}

fn forget_transactional_ids(node: &Node) {
    let before = now_ms() - node.config.transactional_id_expiry.as_millis() as i64;
    let mut meta = node.journal.lock();
    let expired: Vec<String> = meta
        .txns
        .values()
        .filter(|txn| !txn.state.is_open() && txn.updated_ms < before)
        .map(|txn| txn.id.clone())
        .collect();
    for id in expired {
        let _ = meta.record(Entry::TxnForgotten { id });
    }
}
