//! What has to be done now and then: retention, checkpoints, compaction, and forgetting what nobody uses any more.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::MissedTickBehavior;

use crate::clock::now_ms;
use crate::groups::group::Phase;
use crate::meta::Entry;
use crate::node::Node;
use crate::storage::compaction::Compactor;

/// Runs until shutdown.
pub(crate) async fn run(node: Arc<Node>) {
    let mut every = tokio::time::interval(node.config.housekeeping_interval);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let compactor = Arc::new(Compactor::default());
    loop {
        tokio::select! {
            _ = every.tick() => {}
            () = node.shutdown.cancelled() => return,
        }
        forget_offsets(&node);
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
    meta.groups.iter().filter(|(_, offsets)| !offsets.is_empty()).map(|(id, _)| id.clone()).collect()
}

fn look_after_logs(node: &Node, compactor: &Compactor) {
    let now = now_ms();
    let idle_before = now - node.config.producer_expiry.as_millis() as i64;
    for partition in node.topics.all_partitions() {
        if node.shutdown.is_cancelled() {
            return;
        }
        partition.enforce_retention(now, idle_before);
        partition.checkpoint_if_due(now, node.config.checkpoint_interval);
        if partition.config().compacts() {
            compactor.run(&partition, now);
        }
    }
}

/// Drops offsets of groups without members that were committed too long ago.
fn forget_offsets(node: &Node) {
    let before = now_ms() - node.config.offsets_retention.as_millis() as i64;
    let mut meta = node.journal.lock();
    let mut old: HashMap<String, Vec<(String, i32)>> = HashMap::new();
    for (group, offsets) in &meta.groups {
        let expired = offsets.iter().filter(|(_, item)| item.committed_ms < before).map(|(key, _)| key.clone());
        let expired: Vec<_> = expired.collect();
        let in_use = || node.groups.peek(group, |group, _| group.phase() != Phase::Empty).unwrap_or(false);
        if !expired.is_empty() && !in_use() {
            old.insert(group.clone(), expired);
        }
    }
    for (group, partitions) in old {
        tracing::info!(group = %group, offsets = partitions.len(), "committed offsets have expired");
        // A refusal now is made up for the next time.
        let _ = meta.record(Entry::OffsetsDeleted { group, partitions });
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
