//! Taking back what was refused of a group's offsets: commits, also those within transactions, and deletions.

use super::{Entry, Meta, OffsetItem};
use crate::groups::group::Roster;
use crate::txn::{TxnRecord, TxnState};

/// What puts a group's offsets back as they were before an entry.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Undo {
    changes: Vec<Change>,
    remembered: Option<Remembered>,
}

/// An offset that comes, goes, or is replaced.
#[derive(Debug, PartialEq)]
struct Change {
    place: Place,
    before: Option<OffsetItem>,
    after: Option<OffsetItem>,
}

/// Where an offset stands.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    group: String,
    topic: String,
    partition: i32,
    /// The transaction that holds it; none for one that is committed.
    held_by: Option<Transaction>,
}

/// One transaction of a transactional id.
#[derive(Debug, Clone, PartialEq)]
struct Transaction {
    id: String,
    started_ms: i64,
}

/// What the deletion of a group takes besides its offsets.
#[derive(Debug, PartialEq)]
struct Remembered {
    group: String,
    roster: Option<Roster>,
    emptied_ms: Option<i64>,
}

/// What takes `entry` back, which `meta` has not applied yet; none for what is no change of a group's offsets.
pub(super) fn of(meta: &Meta, entry: &Entry) -> Option<Undo> {
    let undo = match entry {
        Entry::OffsetsCommitted { group, offsets } => {
            let changes = offsets.iter().map(|item| {
                let before = meta.offset(group, &item.topic, item.partition).cloned();
                Change { place: Place::committed(group, item), before, after: Some(item.clone()) }
            });
            Undo { changes: changes.collect(), remembered: None }
        }
        Entry::OffsetsDeleted { group, partitions } => {
            let goes = |item: &OffsetItem| partitions.iter().any(|(topic, index)| item.is_of(topic, *index));
            Undo { changes: deletions(meta, group, goes), remembered: None }
        }
        Entry::GroupDeleted { group } => Undo {
            changes: deletions(meta, group, |_| true),
            remembered: Some(Remembered {
                group: group.clone(),
                roster: meta.rosters.get(group).cloned(),
                emptied_ms: meta.emptied.get(group).copied(),
            }),
        },
        Entry::Txn(record) => Undo { changes: additions(meta, record), remembered: None },
        Entry::Cluster { .. }
        | Entry::Topic { .. }
        | Entry::TopicDeleted { .. }
        | Entry::PartitionsAdded { .. }
        | Entry::ConfigsSet { .. }
        | Entry::LogStart { .. }
        | Entry::GroupMembers { .. }
        | Entry::ProducerIds { .. }
        | Entry::TxnForgotten { .. } => return None,
    };
    (undo != Undo::default()).then_some(undo)
}

/// The offsets of a group, committed and held by transactions, that go.
fn deletions(meta: &Meta, group: &str, goes: impl Fn(&OffsetItem) -> bool) -> Vec<Change> {
    let committed = meta.groups.get(group).into_iter().flat_map(|offsets| offsets.values());
    let committed = committed.map(|item| (Place::committed(group, item), item));
    let held = meta.pending_of(group).map(|(txn, item)| (Place::held(group, item, txn), item));
    let gone = committed.chain(held).filter(|(_, item)| goes(item));
    gone.map(|(place, item)| Change { place, before: Some(item.clone()), after: None }).collect()
}

/// The offsets that a transaction under way gets or replaces. Most records bring none.
fn additions(meta: &Meta, record: &TxnRecord) -> Vec<Change> {
    if record.state != TxnState::Ongoing || record.offsets.is_empty() {
        return Vec::new();
    }
    let known = meta.txns.get(&record.id).filter(|known| known.state == TxnState::Ongoing);
    let all = record.offsets.iter().flat_map(|(group, items)| items.iter().map(move |item| (group, item)));
    let changes = all.filter_map(|(group, item)| {
        let place = Place::held(group, item, record);
        let before = known.and_then(|known| place.among(known));
        (before != Some(item)).then(|| Change { before: before.cloned(), after: Some(item.clone()), place })
    });
    changes.collect()
}

impl Place {
    fn committed(group: &str, item: &OffsetItem) -> Self {
        Self { group: group.to_owned(), topic: item.topic.clone(), partition: item.partition, held_by: None }
    }

    fn held(group: &str, item: &OffsetItem, txn: &TxnRecord) -> Self {
        let held_by = Some(Transaction { id: txn.id.clone(), started_ms: txn.started_ms });
        Self { held_by, ..Self::committed(group, item) }
    }

    /// What stands in this place of a transaction.
    fn among<'a>(&self, txn: &'a TxnRecord) -> Option<&'a OffsetItem> {
        txn.offsets.get(&self.group)?.iter().find(|item| item.is_of(&self.topic, self.partition))
    }

    fn look<'a>(&self, meta: &'a Meta) -> Option<&'a OffsetItem> {
        match &self.held_by {
            None => meta.offset(&self.group, &self.topic, self.partition),
            Some(held_by) => {
                meta.txns.get(&held_by.id).filter(|txn| held_by.is_open_as(txn)).and_then(|txn| self.among(txn))
            }
        }
    }

    fn put(&self, meta: &mut Meta, item: Option<OffsetItem>) {
        // Nothing comes back for a topic that has gone meanwhile.
        let item = item.filter(|_| meta.topics.contains_key(&self.topic));
        match &self.held_by {
            None => self.put_committed(meta, item),
            Some(held_by) => {
                let open = meta.txns.get_mut(&held_by.id).filter(|txn| held_by.is_open_as(txn));
                if let Some(txn) = open {
                    self.put_held(txn, item);
                }
            }
        }
    }

    fn put_committed(&self, meta: &mut Meta, item: Option<OffsetItem>) {
        let offsets = meta.groups.entry(self.group.clone()).or_default();
        let key = (self.topic.clone(), self.partition);
        match item {
            Some(item) => drop(offsets.insert(key, item)),
            None => drop(offsets.remove(&key)),
        }
        // A group that came into being with the commit is not there without it.
        if offsets.is_empty() {
            meta.groups.remove(&self.group);
        }
    }

    fn put_held(&self, txn: &mut TxnRecord, item: Option<OffsetItem>) {
        let held = txn.offsets.entry(self.group.clone()).or_default();
        held.retain(|old| !old.is_of(&self.topic, self.partition));
        held.extend(item);
        if held.is_empty() {
            txn.offsets.remove(&self.group);
        }
    }
}

impl Transaction {
    fn is_open_as(&self, txn: &TxnRecord) -> bool {
        txn.state.is_open() && txn.started_ms == self.started_ms
    }
}

impl Undo {
    /// Puts back what stands as the refused entry left it. What has been changed since stays; should that change be refused as
    /// well, it gives way to what was there before both.
    pub(super) fn carry_out(self, meta: &mut Meta, later: &mut [&mut Undo]) {
        for change in self.changes.into_iter().rev() {
            if change.place.look(meta) == change.after.as_ref() {
                change.place.put(meta, change.before);
            } else if let Some(next) = change.next_among(later) {
                next.before = change.before;
            }
        }
        if let Some(Remembered { group, roster, emptied_ms }) = self.remembered {
            if let Some(at) = emptied_ms {
                meta.emptied.entry(group.clone()).or_insert(at);
            }
            if let Some(roster) = roster {
                meta.rosters.entry(group).or_insert(roster);
            }
        }
    }
}

impl Change {
    /// The one that replaced what this one left.
    fn next_among<'a>(&self, later: &'a mut [&mut Undo]) -> Option<&'a mut Change> {
        let mut changes = later.iter_mut().flat_map(|undo| undo.changes.iter_mut());
        changes.find(|next| next.place == self.place && next.before == self.after)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::meta::TopicMeta;
    use crate::storage::journal::Folded;
    use crate::txn::{NO_ID, Protocol};

    fn item(offset: i64) -> OffsetItem {
        let metadata = String::new();
        OffsetItem { topic: "t".into(), partition: 0, offset, leader_epoch: -1, metadata, committed_ms: offset }
    }

    fn commit(offset: i64) -> Entry {
        Entry::OffsetsCommitted { group: "g".into(), offsets: vec![item(offset)] }
    }

    fn forget() -> Entry {
        Entry::OffsetsDeleted { group: "g".into(), partitions: vec![("t".into(), 0)] }
    }

    fn hold(offset: i64) -> Entry {
        let mut record = TxnRecord::new("x".into(), 5, 0, 1_000, 0).begun(3);
        record.offsets.insert("g".into(), vec![item(offset)]);
        Entry::Txn(record)
    }

    fn with_topic() -> Meta {
        let (mut meta, id) = (Meta::default(), Uuid::from_u128(1));
        let topic = TopicMeta { id, partitions: 1, configs: BTreeMap::new(), log_starts: BTreeMap::new() };
        meta.apply(Entry::Topic { name: "t".into(), meta: topic });
        meta
    }

    fn record(meta: &mut Meta, entry: Entry) -> Undo {
        let undo = meta.undo_of(&entry).unwrap();
        meta.apply(entry);
        undo
    }

    fn committed(meta: &Meta) -> Option<i64> {
        meta.offset("g", "t", 0).map(|item| item.offset)
    }

    fn held(meta: &Meta) -> Option<i64> {
        meta.pending_of("g").next().map(|(_, item)| item.offset)
    }

    #[test]
    fn given_commits_on_top_of_each_other_when_any_are_refused_then_the_last_that_was_not_stands() {
        let all = (0..8).map(|bits| [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0]);
        for (refused, is_deletion) in all.flat_map(|refused| [(refused, false), (refused, true)]) {
            let mut meta = with_topic();
            meta.apply(commit(1));
            let middle = if is_deletion { forget() } else { commit(3) };
            let entries = [commit(2), middle, commit(4)].into_iter();
            let mut undos: Vec<Undo> = entries.map(|entry| record(&mut meta, entry)).collect();
            // Each is written by itself, so those behind it may yet be accepted.
            for is_refused in refused {
                let undo = undos.remove(0);
                if is_refused {
                    meta.undo(undo, &mut undos.iter_mut().collect::<Vec<_>>());
                }
            }
            let after = [Some(2), (!is_deletion).then_some(3), Some(4)];
            let stands = (0..3).rev().find(|at| !refused[*at]).map_or(Some(1), |at| after[at]);
            assert_eq!(committed(&meta), stands, "{refused:?}, deletion: {is_deletion}");
        }
    }

    #[test]
    fn given_the_first_commit_of_a_group_when_refused_then_there_is_no_such_group() {
        let mut meta = with_topic();
        let undo = record(&mut meta, commit(1));
        meta.undo(undo, &mut []);
        assert!(!meta.knows_group("g"));
    }

    #[test]
    fn given_offsets_within_a_transaction_when_refused_then_those_before_are_held_and_the_transaction_goes_on() {
        let mut meta = with_topic();
        let first = record(&mut meta, hold(1));
        let second = record(&mut meta, hold(2));
        meta.undo(second, &mut []);
        assert_eq!(held(&meta), Some(1));
        meta.undo(first, &mut []);
        assert_eq!((held(&meta), meta.open_txns.len()), (None, 1));
    }

    #[test]
    fn given_the_deletion_of_a_group_when_refused_then_all_of_it_is_there_but_what_went_with_its_topic() {
        for topic_goes in [false, true] {
            let mut meta = with_topic();
            [commit(1), hold(2)].into_iter().for_each(|entry| meta.apply(entry));
            let (roster, emptied_ms) = (Roster::default(), Some(8));
            meta.apply(Entry::GroupMembers { group: "g".into(), roster, emptied_ms });
            let undo = record(&mut meta, Entry::GroupDeleted { group: "g".into() });
            assert!(!meta.knows_group("g"), "not by an open transaction either");
            if topic_goes {
                meta.apply(Entry::TopicDeleted { name: "t".into() });
            }
            meta.undo(undo, &mut []);
            assert_eq!(committed(&meta), (!topic_goes).then_some(1));
            assert_eq!(held(&meta), (!topic_goes).then_some(2));
            assert_eq!(meta.emptied["g"], 8);
        }
    }

    #[test]
    fn given_a_transaction_that_has_ended_when_what_it_got_is_refused_then_nothing_changes() {
        let mut meta = with_topic();
        let undo = record(&mut meta, hold(2));
        let ended = meta.txns["x"].decided(true, Protocol::One, NO_ID, 4);
        meta.apply(Entry::Txn(ended.clone()));
        meta.apply(Entry::Txn(ended.completed(5)));
        meta.undo(undo, &mut []);
        assert_eq!((committed(&meta), held(&meta)), (Some(2), None));
    }
}
