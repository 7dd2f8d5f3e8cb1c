//! Ready is who gets on: a partition that has records and does not move is a worker that hangs, whatever else it says.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use riverrun_log::TopicPartition;

/// Where each partition was when it last moved, as whoever asks has seen it.
#[derive(Debug)]
pub struct Readiness {
    limit: Duration,
    seen: BTreeMap<TopicPartition, (i64, Instant)>,
}

impl Readiness {
    /// A partition hangs when records waited in it for `limit` and it did not move.
    pub fn new(limit: Duration) -> Self {
        Self { limit, seen: BTreeMap::new() }
    }

    /// Takes note of the next offset of each partition and of how many records lie behind it; returns those that hang.
    /// One that is seen for the first time, or has nothing to do, does not.
    pub fn look(
        &mut self,
        positions: &BTreeMap<TopicPartition, i64>,
        lag: &BTreeMap<TopicPartition, i64>,
        now: Instant,
    ) -> Vec<TopicPartition> {
        self.seen.retain(|partition, _| positions.contains_key(partition));
        let mut hanging = Vec::new();
        for (partition, position) in positions {
            let waits = lag.get(partition).is_some_and(|records| *records > 0);
            let moved_at = match self.seen.get(partition) {
                Some((before, moved_at)) if waits && before == position => *moved_at,
                _ => now,
            };
            self.seen.insert(partition.clone(), (*position, moved_at));
            if now.saturating_duration_since(moved_at) >= self.limit {
                hanging.push(partition.clone());
            }
        }
        hanging
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn at(numbers: &[(i32, i64)]) -> BTreeMap<TopicPartition, i64> {
        numbers.iter().map(|(partition, number)| (TopicPartition::new("t", *partition), *number)).collect()
    }

    #[test]
    fn given_partitions_then_only_the_one_that_has_records_and_does_not_move_hangs() {
        let start = Instant::now();
        let mut readiness = Readiness::new(LIMIT);
        let lag = at(&[(0, 5), (1, 5), (2, 0)]);
        assert!(readiness.look(&at(&[(0, 10), (1, 10), (2, 10)]), &lag, start).is_empty());
        let late = start + LIMIT;
        let hanging = readiness.look(&at(&[(0, 10), (1, 11), (2, 10)]), &lag, late);
        assert_eq!(hanging, [TopicPartition::new("t", 0)]);
        assert!(readiness.look(&at(&[(0, 12), (1, 11), (2, 10)]), &lag, late + LIMIT / 2).is_empty());
    }

    #[test]
    fn given_a_partition_that_comes_back_then_its_time_begins_again() {
        let start = Instant::now();
        let mut readiness = Readiness::new(LIMIT);
        let (here, gone, lag) = (at(&[(0, 10)]), at(&[]), at(&[(0, 1)]));
        readiness.look(&here, &lag, start);
        readiness.look(&gone, &lag, start + LIMIT / 2);
        assert!(readiness.look(&here, &lag, start + LIMIT).is_empty());
        assert_eq!(readiness.look(&here, &lag, start + LIMIT * 2).len(), 1);
    }
}
