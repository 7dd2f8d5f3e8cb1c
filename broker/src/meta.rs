//! What the broker remembers besides records: topics, committed offsets, producer ids, transactions.
//!
//! It is the fold of the journal's entries and nothing else changes it.

mod undo;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::groups::group::Roster;
use crate::storage::journal::Folded;
use crate::txn::{TxnRecord, TxnState};
use undo::Undo;

/// A topic as it was created and changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopicMeta {
    /// Unique for ever, also when the name is used again.
    pub id: Uuid,
    /// Number of partitions.
    pub partitions: i32,
    /// Settings that differ from the defaults.
    pub configs: BTreeMap<String, String>,
    /// Starts of logs moved by `DeleteRecords`.
    #[serde(default)]
    pub log_starts: BTreeMap<i32, i64>,
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OffsetItem {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Next offset to read.
    pub offset: i64,
    /// Leader epoch that the consumer had seen, or -1.
    pub leader_epoch: i32,
    /// Free text of the consumer.
    pub metadata: String,
    /// When it was committed, milliseconds since 1970.
    pub committed_ms: i64,
}

impl OffsetItem {
    fn is_of(&self, topic: &str, partition: i32) -> bool {
        self.topic == topic && self.partition == partition
    }
}

/// Offsets of a group.
pub(crate) type GroupOffsets = BTreeMap<(String, i32), OffsetItem>;

/// A change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// The cluster got its name.
    Cluster {
        /// The name.
        id: String,
    },
    /// A topic was created, or (in a snapshot) exists.
    Topic {
        /// Its name.
        name: String,
        /// What it is.
        meta: TopicMeta,
    },
    /// A topic was deleted, with every offset committed for it.
    TopicDeleted {
        /// Its name.
        name: String,
    },
    /// A topic has more partitions.
    PartitionsAdded {
        /// Its name.
        name: String,
        /// Their number now.
        partitions: i32,
    },
    /// A topic's settings were replaced.
    ConfigsSet {
        /// Its name.
        name: String,
        /// The settings now.
        configs: BTreeMap<String, String>,
    },
    /// The start of a log was moved.
    LogStart {
        /// Topic.
        name: String,
        /// Partition.
        partition: i32,
        /// First offset.
        offset: i64,
    },
    /// A group committed.
    OffsetsCommitted {
        /// The group.
        group: String,
        /// What.
        offsets: Vec<OffsetItem>,
    },
    /// Offsets of a group were deleted, those that open transactions hold, too.
    OffsetsDeleted {
        /// The group.
        group: String,
        /// Of which partitions.
        partitions: Vec<(String, i32)>,
    },
    /// A group was deleted, with every offset that open transactions hold for it.
    GroupDeleted {
        /// The group.
        group: String,
    },
    /// A group has these members now.
    GroupMembers {
        /// The group.
        group: String,
        /// Its members; nobody takes away what was remembered.
        roster: Roster,
        /// When the last member went, milliseconds since 1970; none while there are members.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        emptied_ms: Option<i64>,
    },
    /// Producer ids below this one are taken.
    ProducerIds {
        /// The next block begins here.
        next: i64,
    },
    /// The state of a transactional id. Reaching `CompleteCommit` commits the offsets of the state before it.
    Txn(TxnRecord),
    /// A transactional id has expired.
    TxnForgotten {
        /// The transactional id.
        id: String,
    },
}

/// The state.
#[derive(Debug, Default)]
pub(crate) struct Meta {
    /// Name of the cluster; empty before the first start.
    pub cluster_id: String,
    /// Topics by name.
    pub topics: BTreeMap<String, TopicMeta>,
    /// Offsets by group.
    pub groups: HashMap<String, GroupOffsets>,
    /// Members by group, as they were when it was last stable.
    pub rosters: HashMap<String, Roster>,
    /// When the last member of a group with offsets went, milliseconds since 1970.
    pub emptied: HashMap<String, i64>,
    /// Next producer id that has not been reserved.
    pub next_producer_id: i64,
    /// Transactional ids.
    pub txns: HashMap<String, TxnRecord>,
    /// Transactional ids by producer id.
    pub txn_of_producer: HashMap<i64, String>,
    /// Transactional ids with an open or undecided transaction.
    pub open_txns: BTreeSet<String>,
}

impl Meta {
    /// The offset that a group committed.
    pub(crate) fn offset(&self, group: &str, topic: &str, partition: i32) -> Option<&OffsetItem> {
        self.groups.get(group)?.get(&(topic.to_owned(), partition))
    }

    /// Whether an undecided transaction holds an offset of this group and partition.
    pub(crate) fn has_pending_offset(&self, group: &str, topic: &str, partition: i32) -> bool {
        self.pending_of(group).any(|(_, item)| item.is_of(topic, partition))
    }

    /// Whether an undecided transaction holds an offset of this group.
    pub(crate) fn has_pending_of(&self, group: &str) -> bool {
        self.pending_of(group).next().is_some()
    }

    /// Whether there is an offset of this group, committed or held by an undecided transaction.
    pub(crate) fn has_offsets_of(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|offsets| !offsets.is_empty()) || self.has_pending_of(group)
    }

    /// Whether a group is known without a look at its members.
    pub(crate) fn knows_group(&self, group: &str) -> bool {
        self.groups.contains_key(group) || self.has_pending_of(group)
    }

    /// The groups that are known without a look at members, some more than once.
    pub(crate) fn group_ids(&self) -> impl Iterator<Item = &String> {
        self.groups.keys().chain(self.undecided().flat_map(|txn| txn.offsets.keys()))
    }

    fn undecided(&self) -> impl Iterator<Item = &TxnRecord> {
        self.open_txns.iter().filter_map(|id| self.txns.get(id))
    }

    fn pending_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = (&'a TxnRecord, &'a OffsetItem)> {
        let of_group =
            move |txn: &'a TxnRecord| txn.offsets.get(group).into_iter().flatten().map(move |item| (txn, item));
        self.undecided().flat_map(of_group)
    }

    /// Takes offsets out of undecided transactions.
    fn drop_pending(&mut self, goes: impl Fn(&str, &OffsetItem) -> bool) {
        for id in &self.open_txns {
            let Some(txn) = self.txns.get_mut(id) else { continue };
            txn.offsets.retain(|group, items| {
                items.retain(|item| !goes(group, item));
                !items.is_empty()
            });
        }
    }

    fn set_members(&mut self, group: String, roster: Roster, emptied_ms: Option<i64>) {
        let has_offsets = self.groups.get(&group).is_some_and(|offsets| !offsets.is_empty());
        self.emptied.remove(&group);
        self.emptied.extend(emptied_ms.filter(|_| has_offsets).map(|at| (group.clone(), at)));
        if roster.is_empty() {
            self.rosters.remove(&group);
        } else {
            self.rosters.insert(group, roster);
        }
    }

    fn commit(&mut self, group: String, offsets: Vec<OffsetItem>) {
        let of_group = self.groups.entry(group).or_default();
        of_group.extend(offsets.into_iter().map(|item| ((item.topic.clone(), item.partition), item)));
    }

    fn set_txn(&mut self, record: TxnRecord) {
        if record.state == TxnState::CompleteCommit
            && let Some(before) = self.txns.get_mut(&record.id)
        {
            for (group, offsets) in std::mem::take(&mut before.offsets) {
                self.commit(group, offsets);
            }
        }
        if record.state.is_open() {
            self.open_txns.insert(record.id.clone());
        } else {
            self.open_txns.remove(&record.id);
        }
        if let Some(before) = self.txns.get(&record.id)
            && before.producer_id != record.producer_id
        {
            self.txn_of_producer.remove(&before.producer_id);
        }
        self.txn_of_producer.insert(record.producer_id, record.id.clone());
        self.txns.insert(record.id.clone(), record);
    }
}

impl Folded for Meta {
    type Entry = Entry;
    type Undo = Undo;

    fn undo_of(&self, entry: &Entry) -> Option<Undo> {
        undo::of(self, entry)
    }

    fn undo(&mut self, undo: Undo, later: &mut [&mut Undo]) {
        undo.carry_out(self, later);
    }

    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Cluster { id } => self.cluster_id = id,
            Entry::Topic { name, meta } => {
                self.topics.insert(name, meta);
            }
            Entry::TopicDeleted { name } => {
                self.topics.remove(&name);
                for offsets in self.groups.values_mut() {
                    offsets.retain(|(topic, _), _| *topic != name);
                }
                self.drop_pending(|_, item| item.topic == name);
            }
            Entry::PartitionsAdded { name, partitions } => {
                if let Some(topic) = self.topics.get_mut(&name) {
                    topic.partitions = partitions;
                }
            }
            Entry::ConfigsSet { name, configs } => {
                if let Some(topic) = self.topics.get_mut(&name) {
                    topic.configs = configs;
                }
            }
            Entry::LogStart { name, partition, offset } => {
                if let Some(topic) = self.topics.get_mut(&name) {
                    topic.log_starts.insert(partition, offset);
                }
            }
            Entry::OffsetsCommitted { group, offsets } => self.commit(group, offsets),
            Entry::OffsetsDeleted { group, partitions } => {
                if let Some(offsets) = self.groups.get_mut(&group) {
                    partitions.iter().for_each(|key| drop(offsets.remove(key)));
                }
                let goes = |item: &OffsetItem| partitions.iter().any(|(topic, index)| item.is_of(topic, *index));
                self.drop_pending(|of, item| of == group && goes(item));
            }
            Entry::GroupDeleted { group } => {
                self.groups.remove(&group);
                self.rosters.remove(&group);
                self.emptied.remove(&group);
                self.drop_pending(|of, _| of == group);
            }
            Entry::GroupMembers { group, roster, emptied_ms } => self.set_members(group, roster, emptied_ms),
            Entry::ProducerIds { next } => self.next_producer_id = next,
            Entry::Txn(record) => self.set_txn(record),
            Entry::TxnForgotten { id } => {
                self.open_txns.remove(&id);
                if let Some(record) = self.txns.remove(&id) {
                    self.txn_of_producer.remove(&record.producer_id);
                }
            }
        }
    }

    fn snapshot(&self) -> Vec<Entry> {
        let mut entries =
            vec![Entry::Cluster { id: self.cluster_id.clone() }, Entry::ProducerIds { next: self.next_producer_id }];
        entries.extend(self.topics.iter().map(|(name, meta)| Entry::Topic { name: name.clone(), meta: meta.clone() }));
        entries.extend(self.groups.iter().map(|(group, offsets)| Entry::OffsetsCommitted {
            group: group.clone(),
            offsets: offsets.values().cloned().collect(),
        }));
        let rosters = self.rosters.iter();
        entries.extend(rosters.map(|(group, roster)| Entry::GroupMembers {
            group: group.clone(),
            roster: roster.clone(),
            emptied_ms: None,
        }));
        // Behind the offsets, without which there is nothing to remember.
        entries.extend(self.emptied.iter().map(|(group, at)| Entry::GroupMembers {
            group: group.clone(),
            roster: Roster::default(),
            emptied_ms: Some(*at),
        }));
        entries.extend(self.txns.values().cloned().map(Entry::Txn));
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(offset: i64) -> OffsetItem {
        OffsetItem { topic: "t".into(), partition: 0, offset, leader_epoch: -1, metadata: "m".into(), committed_ms: 1 }
    }

    #[test]
    fn given_a_transaction_with_offsets_when_completed_then_they_are_committed_and_else_not() {
        for (prepared, completed, expected) in [
            (TxnState::PrepareCommit, TxnState::CompleteCommit, Some(7)),
            (TxnState::PrepareAbort, TxnState::CompleteAbort, None),
        ] {
            let mut meta = Meta::default();
            let mut record = TxnRecord::new("x".into(), 5, 0, 1000, 0);
            record.offsets.insert("g".into(), vec![item(7)]);
            record.state = prepared;
            meta.apply(Entry::Txn(record.clone()));
            assert!(meta.has_pending_offset("g", "t", 0));
            record.offsets.clear();
            record.state = completed;
            meta.apply(Entry::Txn(record));
            assert!(!meta.has_pending_offset("g", "t", 0));
            assert_eq!(meta.offset("g", "t", 0).map(|item| item.offset), expected);
        }
    }

    #[test]
    fn given_a_state_when_rebuilt_from_its_snapshot_then_it_is_the_same() {
        let mut meta = Meta::default();
        let topic =
            TopicMeta { id: Uuid::from_u128(1), partitions: 3, configs: BTreeMap::new(), log_starts: BTreeMap::new() };
        meta.apply(Entry::Cluster { id: "c".into() });
        meta.apply(Entry::Topic { name: "t".into(), meta: topic });
        meta.apply(Entry::LogStart { name: "t".into(), partition: 1, offset: 9 });
        meta.apply(Entry::OffsetsCommitted { group: "g".into(), offsets: vec![item(3)] });
        for group in ["g", "nobody"] {
            meta.apply(Entry::GroupMembers { group: group.into(), roster: Roster::default(), emptied_ms: Some(8) });
        }
        meta.apply(Entry::ProducerIds { next: 1000 });
        meta.apply(Entry::Txn(TxnRecord::new("x".into(), 5, 0, 1000, 0)));
        let mut again = Meta::default();
        meta.snapshot().into_iter().for_each(|entry| again.apply(entry));
        assert_eq!(format!("{meta:?}"), format!("{again:?}"));
        assert_eq!(again.topics["t"].log_starts[&1], 9);
        assert_eq!(
            again.emptied,
            HashMap::from([("g".to_owned(), 8)]),
            "of a group without offsets there is nothing to expire"
        );
        again.apply(Entry::GroupDeleted { group: "g".into() });
        assert!(again.emptied.is_empty());
    }
}
