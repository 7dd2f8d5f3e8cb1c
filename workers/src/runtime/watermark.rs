//! How far a partition is done, with work that ends out of order.

use std::collections::BTreeSet;

/// The contiguous low watermark of one partition (`LOOP-1`): records are taken in the order of their offsets and done in
/// any order; what may be committed is the lowest offset that is not done. Offsets may have gaps (transaction markers,
/// compaction), so what was taken counts, not what could have been. Memory: the offsets in work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    in_work: BTreeSet<i64>,
    next: i64,
}

impl Watermark {
    /// Reading starts at `offset`.
    pub fn starting_at(offset: i64) -> Self {
        Self { in_work: BTreeSet::new(), next: offset }
    }

    /// A record came. `false` when it, or one behind it, was taken before: it is to be left alone.
    pub fn take(&mut self, offset: i64) -> bool {
        if offset < self.next {
            return false;
        }
        self.next = offset + 1;
        self.in_work.insert(offset)
    }

    /// Before `offset` there is nothing that was not taken: what else lies there is no record.
    pub fn pass(&mut self, offset: i64) {
        self.next = self.next.max(offset);
    }

    /// A record that was taken is done. `false` when it was not in work.
    pub fn done(&mut self, offset: i64) -> bool {
        self.in_work.remove(&offset)
    }

    /// The offset to commit: everything before it is done.
    pub fn committable(&self) -> i64 {
        self.in_work.first().copied().unwrap_or(self.next)
    }

    /// One past the newest offset taken.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Offsets between the committable one and the next: what would come again after a crash, at most.
    pub fn span(&self) -> i64 {
        self.next - self.committable()
    }

    /// Records taken and not done.
    pub fn in_work(&self) -> usize {
        self.in_work.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_taken_commits_the_start() {
        let mark = Watermark::starting_at(7);
        assert_eq!((mark.committable(), mark.span(), mark.in_work()), (7, 0, 0));
    }

    #[test]
    fn done_out_of_order_moves_only_over_what_is_contiguous() {
        let mut mark = Watermark::starting_at(0);
        assert!((0..4).all(|offset| mark.take(offset)));
        assert!(mark.done(2) && mark.done(1));
        assert_eq!(mark.committable(), 0);
        assert!(mark.done(0));
        assert_eq!(mark.committable(), 3);
        assert!(mark.done(3));
        assert_eq!(mark.committable(), 4);
    }

    #[test]
    fn gaps_in_offsets_hold_nothing_back() {
        let mut mark = Watermark::starting_at(0);
        assert!(mark.take(5) && mark.take(9));
        assert_eq!(mark.committable(), 5);
        assert!(mark.done(5));
        assert_eq!(mark.committable(), 9);
        assert!(mark.done(9));
        assert_eq!(mark.committable(), 10);
    }

    #[test]
    fn what_is_passed_commits_behind_it_once_the_records_before_are_done() {
        let mut mark = Watermark::starting_at(0);
        assert!(mark.take(0) && mark.take(1));
        mark.pass(3);
        assert_eq!((mark.committable(), mark.next(), mark.in_work()), (0, 3, 2));
        assert!(mark.done(1));
        assert_eq!(mark.committable(), 0);
        assert!(mark.done(0));
        assert_eq!(mark.committable(), 3);
        mark.pass(2);
        assert_eq!(mark.committable(), 3, "never back");
        assert!(mark.take(3));
        assert_eq!(mark.committable(), 3);
    }

    #[test]
    fn what_was_taken_or_done_before_is_refused() {
        let mut mark = Watermark::starting_at(3);
        assert!(!mark.take(2));
        assert!(mark.take(3));
        assert!(!mark.take(3));
        assert!(mark.done(3));
        assert!(!mark.done(3) && !mark.done(4));
    }

    proptest! {
        #[test]
        fn the_watermark_is_the_lowest_offset_in_work_and_never_moves_back(steps in prop::collection::vec((any::<bool>(), 0usize..8, 1i64..4), 0..200)) {
            let mut mark = Watermark::starting_at(0);
            let mut model: Vec<i64> = Vec::new();
            let (mut newest, mut before) = (0, 0);
            for (take, index, gap) in steps {
                if take {
                    newest += gap;
                    prop_assert!(mark.take(newest - 1));
                    model.push(newest - 1);
                } else if !model.is_empty() {
                    let offset = model.remove(index % model.len());
                    prop_assert!(mark.done(offset));
                }
                prop_assert_eq!(mark.committable(), model.iter().min().copied().unwrap_or(newest));
                prop_assert!(mark.committable() >= before);
                prop_assert_eq!(mark.in_work(), model.len());
                before = mark.committable();
            }
        }
    }
}
