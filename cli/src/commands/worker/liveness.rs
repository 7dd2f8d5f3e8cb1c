//! Whether a worker hangs, so that nothing but an end helps. Those who start processes end one that says so.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use riverrun_api::state::has_long_records;
use riverrun_log::TopicPartition;
use riverrun_workers::runtime::{Readiness, WorkerState, WorkerStatus};

/// The longest pause between two tries of a record: in it, a worker that waits for a database that is away does nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What was seen of one worker.
#[derive(Debug)]
pub(super) struct Liveness {
    limit: Duration,
    readiness: Readiness,
    /// Failed tries and records given up: they tell that it works and that something else does not.
    failures: (u64, u64),
}

impl Liveness {
    /// A worker hangs when it stands still for twice as long as it may before it counts as not ready, and at least a minute longer.
    pub(super) fn new(hangs_after: Duration) -> Self {
        let limit = (2 * hangs_after).max(hangs_after + LONGEST_PAUSE);
        Self { limit, readiness: Readiness::new(limit), failures: (0, 0) }
    }

    /// Takes note of where the worker is and of how many records lie behind that, by partition; returns the partitions in which it
    /// hangs. While it says that something is wrong, while tries fail and while the broker does not tell (`None`), it waits for others,
    /// and the time begins anew behind that.
    pub(super) fn look(
        &mut self,
        status: &WorkerStatus,
        positions: &BTreeMap<TopicPartition, i64>,
        lag: Option<&BTreeMap<TopicPartition, i64>>,
        now: Instant,
    ) -> Vec<TopicPartition> {
        let failures = (status.retries, status.dead_letters);
        let gets_answers = status.state == WorkerState::Running && failures == self.failures;
        match lag {
            Some(lag) if gets_answers && !has_long_records(&status.name) => self.readiness.look(positions, lag, now),
            _ => {
                (self.readiness, self.failures) = (Readiness::new(self.limit), failures);
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_workers::trainer;

    use super::*;

    const HANGS_AFTER: Duration = Duration::from_secs(180);
    const LIMIT: Duration = Duration::from_secs(360);

    fn status(name: &str, state: WorkerState, retries: u64) -> WorkerStatus {
        WorkerStatus {
            name: name.to_owned(),
            group: format!("riverrun.{name}"),
            state,
            trouble: None,
            partitions: 1,
            in_work: 1,
            handled: 7,
            retries,
            dead_letters: 0,
            skipped: 0,
            out_of_range: 0,
            idle_ms: 0,
        }
    }

    fn at(number: i64) -> BTreeMap<TopicPartition, i64> {
        BTreeMap::from([(TopicPartition::new("t", 0), number)])
    }

    #[test]
    fn given_records_that_do_not_move_when_twice_the_time_has_passed_then_the_worker_hangs_and_not_before() {
        let (start, running) = (Instant::now(), status("embedder", WorkerState::Running, 0));
        let mut liveness = Liveness::new(HANGS_AFTER);
        assert!(liveness.look(&running, &at(5), Some(&at(1)), start).is_empty());
        let early = start + LIMIT - Duration::from_secs(1);
        assert!(liveness.look(&running, &at(5), Some(&at(1)), early).is_empty());
        assert_eq!(liveness.look(&running, &at(5), Some(&at(1)), start + LIMIT), [TopicPartition::new("t", 0)]);
        assert!(liveness.look(&running, &at(6), Some(&at(1)), start + LIMIT).is_empty(), "it has moved");
        assert!(liveness.look(&running, &at(6), Some(&at(0)), start + 3 * LIMIT).is_empty(), "it has nothing to do");
    }

    #[test]
    fn given_something_else_that_is_away_when_a_worker_stands_still_for_long_then_it_does_not_hang() {
        let start = Instant::now();
        let running = |retries| status("embedder", WorkerState::Running, retries);
        for (what, away, lag) in [
            ("the broker, which says so", status("embedder", WorkerState::Troubled, 0), Some(at(1))),
            ("the broker, which does not answer", running(0), None),
            ("the broker, before the first partition", status("embedder", WorkerState::Starting, 0), Some(at(1))),
            ("a database: a try fails", running(1), Some(at(1))),
        ] {
            let mut liveness = Liveness::new(HANGS_AFTER);
            assert!(liveness.look(&running(0), &at(5), Some(&at(1)), start).is_empty());
            assert!(liveness.look(&away, &at(5), lag.as_ref(), start + 2 * LIMIT).is_empty(), "{what}");
            // Once it is back, the worker has all of its time.
            let back = running(away.retries);
            assert!(liveness.look(&back, &at(5), Some(&at(1)), start + 4 * LIMIT).is_empty(), "{what}");
            assert!(!liveness.look(&back, &at(5), Some(&at(1)), start + 5 * LIMIT).is_empty(), "{what}");
        }
    }

    #[test]
    fn given_a_worker_whose_records_take_hours_when_one_does_then_it_does_not_hang() {
        let (start, training) = (Instant::now(), status(trainer::NAME, WorkerState::Running, 0));
        let mut liveness = Liveness::new(HANGS_AFTER);
        for passed in [Duration::ZERO, 10 * LIMIT] {
            assert!(liveness.look(&training, &at(5), Some(&at(1)), start + passed).is_empty());
        }
    }

    #[test]
    fn given_a_short_limit_when_tries_pause_for_a_minute_then_the_pause_is_no_hang() {
        let (start, running) = (Instant::now(), status("embedder", WorkerState::Running, 0));
        let mut liveness = Liveness::new(Duration::from_secs(1));
        liveness.look(&running, &at(5), Some(&at(1)), start);
        assert!(liveness.look(&running, &at(5), Some(&at(1)), start + LONGEST_PAUSE).is_empty());
        assert!(!liveness.look(&running, &at(5), Some(&at(1)), start + 2 * LONGEST_PAUSE).is_empty());
    }
}
