//! From where a partition is read, and which reading of the topic its documents are handed in under.
//!
//! What a collection was given of a topic is behind the offset that its group has committed. That holds for as long as nothing is taken
//! away: a collection that was removed since is given the topic from its beginning. So the removal that a reading came behind is kept
//! beside each offset, and is part of the ids of what is handed in: a request that was answered before the removal is another one.

use std::collections::{HashMap, HashSet};

use riverrun_log::{AssignedPartition, CommitOffset, StartAt, TopicPartition};
use riverrun_schemas::IngestId;

const REMOVAL: &str = "removal=";
const ANEW: &str = "anew=";

/// A reading of a partition from its beginning on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The removal of everything in the collection that it came behind; `None` when there had been none.
    pub(super) removal: Option<IngestId>,
    /// Names one that was asked for although the collection had been given the topic before.
    pub(super) anew: Option<IngestId>,
}

impl Reading {
    /// As it stands beside an offset. What is no note of a reading, such as that of an older build, is one before any removal.
    fn of_note(note: &str) -> Self {
        let named = |what: &str| note.split(' ').find_map(|part| part.strip_prefix(what)?.parse().ok());
        Self { removal: named(REMOVAL), anew: named(ANEW) }
    }

    fn note(self) -> Option<String> {
        let part = |what: &str, id: Option<IngestId>| id.map(|id| format!("{what}{id}"));
        let parts: Vec<String> = [part(REMOVAL, self.removal), part(ANEW, self.anew)].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }

    /// What ids follow from beside the place of a record. Nothing for a first reading, whose ids are those of older builds.
    pub(super) fn parts(self) -> Vec<String> {
        self.note().into_iter().collect()
    }
}

/// The partitions of a topic that this process reads.
#[derive(Debug)]
pub(super) struct Places {
    /// The newest removal of everything in the collection.
    removal: Option<IngestId>,
    /// What a reading is called that was asked for.
    anew: Option<IngestId>,
    readings: HashMap<i32, Reading>,
    /// Partitions whose end was not seen yet: as long as there is one, silence is not for want of documents.
    unread: HashSet<i32>,
    /// Whether one is read from its beginning although its group was further on.
    began_again: bool,
}

impl Places {
    pub(super) fn new(removal: Option<IngestId>, anew: Option<IngestId>) -> Self {
        Self { removal, anew, readings: HashMap::new(), unread: HashSet::new(), began_again: false }
    }

    /// Where each of these is read on.
    pub(super) fn assigned(&mut self, partitions: &[AssignedPartition]) -> Vec<(TopicPartition, StartAt)> {
        partitions.iter().map(|given| (given.partition.clone(), self.start(given))).collect()
    }

    fn start(&mut self, given: &AssignedPartition) -> StartAt {
        let number = given.partition.partition;
        self.unread.insert(number);
        // Once a process: one that comes back from another member goes on where that was, or two would take turns for ever.
        let anew = self.anew.filter(|_| !self.readings.contains_key(&number));
        let kept = Reading::of_note(&given.metadata);
        if kept.removal == self.removal && (anew.is_none() || anew == kept.anew) {
            self.readings.insert(number, kept);
            return given.default_start();
        }
        self.began_again |= given.committed.is_some_and(|next| next > given.low);
        self.readings.insert(number, Reading { removal: self.removal, anew: self.anew });
        StartAt::Beginning
    }

    pub(super) fn revoked(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.unread.remove(&partition.partition);
        }
    }

    /// Everything in the partition was read; whether that is new.
    pub(super) fn ended(&mut self, number: i32) -> bool {
        self.unread.remove(&number)
    }

    /// Whether everything that was there has been read.
    pub(super) fn all_read(&self) -> bool {
        self.unread.is_empty()
    }

    pub(super) fn began_again(&self) -> bool {
        self.began_again
    }

    /// Whether the collection is the one that these are read for.
    pub(super) fn still_of(&self, removal: Option<IngestId>) -> bool {
        self.removal == removal
    }

    /// The reading that a partition's records belong to.
    pub(super) fn reading(&self, number: i32) -> Reading {
        self.readings.get(&number).copied().unwrap_or_default()
    }

    /// What is committed once everything before `offset` is handed in.
    pub(super) fn commit(&self, partition: TopicPartition, offset: i64) -> CommitOffset {
        let metadata = self.reading(partition.partition).note();
        CommitOffset { partition, offset, metadata }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(number: i32, committed: Option<i64>, note: Option<String>) -> AssignedPartition {
        let partition = TopicPartition::new("t", number);
        AssignedPartition { partition, committed, metadata: note.unwrap_or_default(), low: 2, high: 9 }
    }

    #[test]
    fn given_a_reading_when_it_is_noted_and_read_back_then_it_is_the_same_and_what_is_no_note_is_a_first_one() {
        let (one, other) = (IngestId::new(), IngestId::new());
        for (removal, anew) in [(None, None), (Some(one), None), (None, Some(one)), (Some(one), Some(other))] {
            let reading = Reading { removal, anew };
            assert_eq!(Reading::of_note(&reading.note().unwrap_or_default()), reading);
        }
        for foreign in ["", "x", "removal=", "removal=x anew=", "7"] {
            assert_eq!(Reading::of_note(foreign), Reading::default(), "{foreign:?}");
        }
        assert_eq!(Reading::default().note(), None);
    }

    #[test]
    fn given_what_a_group_committed_when_partitions_come_then_only_what_was_taken_before_a_removal_or_is_asked_for_is_read_again()
     {
        let (old, new, asked) = (Some(IngestId::new()), Some(IngestId::new()), Some(IngestId::new()));
        let note = |removal, anew| Reading { removal, anew }.note();
        let (on, begin) = (StartAt::Offset(5), StartAt::Beginning);
        for (what, removal, anew, committed, kept, start, again) in [
            ("first", None, None, None, None, begin, false),
            ("goes on", None, None, Some(5), None, on, false),
            ("filled once it was removed", new, None, None, None, begin, false),
            ("removed", new, None, Some(5), None, begin, true),
            ("removed again", new, None, Some(5), note(old, None), begin, true),
            ("goes on behind a removal", new, None, Some(5), note(new, None), on, false),
            ("asked for", None, asked, Some(5), None, begin, true),
            ("asked for before", None, None, Some(5), note(None, asked), on, false),
            ("goes on with what was asked for", new, asked, Some(5), note(new, asked), on, false),
            ("removed since it was asked for", new, None, Some(5), note(old, asked), begin, true),
            ("nothing was taken", None, asked, Some(2), None, begin, false),
        ] {
            let mut places = Places::new(removal, anew);
            let starts = places.assigned(&[given(0, committed, kept)]);
            assert_eq!(starts, [(TopicPartition::new("t", 0), start)], "{what}");
            assert_eq!((places.began_again(), places.reading(0).removal), (again, removal), "{what}");
            assert_eq!(places.commit(TopicPartition::new("t", 0), 6).metadata, places.reading(0).note(), "{what}");
        }
    }

    #[test]
    fn given_a_reading_that_was_asked_for_when_a_partition_comes_back_from_another_member_then_it_goes_on() {
        let mut places = Places::new(None, Some(IngestId::new()));
        places.assigned(&[given(0, Some(5), None), given(1, Some(5), None)]);
        assert!(!places.all_read() && places.ended(1) && !places.ended(1));
        places.revoked(&[TopicPartition::new("t", 0)]);
        assert!(places.all_read());
        let of_another = Reading { removal: None, anew: Some(IngestId::new()) };
        let back = places.assigned(&[given(0, Some(7), of_another.note())]);
        assert_eq!(back, [(TopicPartition::new("t", 0), StartAt::Offset(7))]);
        assert_eq!(places.reading(0), of_another);
    }
}
