//! For how long nothing went on while it should have, by the times that stand on the log: how fast the harness reads has
//! no part in it.

use std::collections::{HashMap, HashSet};

use riverrun_schemas::agent::{AgentEvent, RunClaimed};
use riverrun_schemas::{EventId, RunId};

/// What went on so far.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// Of every partition: partitions are read in no common order.
    seen: Vec<(i64, Change)>,
    partitions: HashMap<i32, Line>,
    /// Who has claimed a run.
    workers: HashSet<String>,
    /// Who claimed each open run last: its steps are theirs.
    claimed: HashMap<RunId, String>,
    began: Option<i64>,
    longest_turnover_ms: i64,
}

/// What an event is to a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Opens,
    GoesOn,
    Ends,
}

impl Change {
    fn of(event: &AgentEvent) -> Option<Self> {
        match event {
            AgentEvent::RunAccepted(_) => Some(Self::Opens),
            AgentEvent::RunAdvanced(_) => Some(Self::GoesOn),
            AgentEvent::RunFinished(_) => Some(Self::Ends),
            AgentEvent::RunClaimed(_)
            | AgentEvent::RunCancelRequested(_)
            | AgentEvent::RunApprovalDecided(_)
            | AgentEvent::RunResumed(_)
            | AgentEvent::RunSnapshotted(_) => None,
        }
    }
}

/// What goes on in one place.
#[derive(Debug, Default)]
struct Line {
    open: usize,
    /// The last step, or the first of the runs that are open.
    since: i64,
    longest_ms: i64,
    /// Who made that step.
    owner: Option<String>,
    /// The longest time between two steps of one owner.
    longest_untouched_ms: i64,
}

impl Line {
    /// `maker` is whoever has the run of a step or an end, where that is known.
    fn take(&mut self, at: i64, change: Change, maker: Option<&str>) {
        if change == Change::Opens {
            if self.open == 0 {
                self.since = at;
            }
            self.open += 1;
            return;
        }
        let stood = at.saturating_sub(self.since);
        self.longest_ms = self.longest_ms.max(stood);
        self.since = self.since.max(at);
        if maker.is_some() && self.owner.as_deref() == maker {
            self.longest_untouched_ms = self.longest_untouched_ms.max(stood);
        } else if let Some(maker) = maker {
            self.owner = Some(maker.to_owned());
        }
        if change == Change::Ends {
            self.open = self.open.saturating_sub(1);
        }
    }
}

impl Pauses {
    /// An event that counts, of a partition, with its time in milliseconds since the epoch.
    pub(super) fn take(&mut self, partition: i32, event: &AgentEvent, at: i64) {
        let began = *self.began.get_or_insert(at);
        if let Some(change) = Change::of(event) {
            self.seen.push((at, change));
            let maker = self.claimed.get(&event.run_id()).map(String::as_str);
            self.partitions.entry(partition).or_default().take(at, change, maker);
            if change == Change::Ends {
                self.claimed.remove(&event.run_id());
            }
        }
        if let AgentEvent::RunClaimed(claim) = event {
            if claim.epoch > 1 {
                // Whoever takes up a run again had to give its partition back: that has moved, if only away and home again.
                self.partitions.entry(partition).or_default().owner = None;
            }
            self.claimed.insert(claim.run_id, claim.worker.clone());
            if self.workers.insert(claim.worker.clone())
                && let Some(started) = started_at(claim)
                && started > began
            {
                self.longest_turnover_ms = self.longest_turnover_ms.max(at.saturating_sub(started));
            }
        }
    }

    /// Longest time without any step while runs were open, in milliseconds.
    pub(super) fn longest_ms(&self) -> i64 {
        let mut seen = self.seen.clone();
        seen.sort_by_key(|(at, _)| *at); // stable: what has one time stays in the order of its partition
        let mut all = Line::default();
        seen.into_iter().for_each(|(at, change)| all.take(at, change, None));
        all.longest_ms
    }

    /// The same, of the partition that stood still longest.
    pub(super) fn longest_of_a_partition_ms(&self) -> i64 {
        self.partitions.values().map(|line| line.longest_ms).max().unwrap_or_default()
    }

    /// The same, of the partition that stood still longest without having moved: the step behind the pause was made by the process that
    /// made the one before it, and no run was claimed again meanwhile. A process that lost the partition and got it back while none of its
    /// runs was open counts as not moved. What comes before the first step of a partition counts for nothing, for nobody is known to have
    /// had it.
    pub(super) fn longest_of_an_untouched_partition_ms(&self) -> i64 {
        self.partitions.values().map(|line| line.longest_untouched_ms).max().unwrap_or_default()
    }

    /// Longest time from the start of a process to its first claim of a run, of those that came when runs were there.
    pub(super) fn longest_turnover_ms(&self) -> i64 {
        self.longest_turnover_ms
    }
}

/// When whoever claims was started: its name ends with an id that was drawn then.
fn started_at(claim: &RunClaimed) -> Option<i64> {
    let (_, id) = claim.worker.rsplit_once('-')?;
    let drawn = id.parse::<EventId>().ok()?.as_uuid().as_u128();
    i64::try_from(drawn >> 80).ok() // the time of a UUIDv7
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::{RunAccepted, RunAdvanced, RunFinished, RunOutcome, RunRequest};
    use riverrun_schemas::{RunId, Usage, now_ms};

    use super::*;

    fn accepted(name: &str) -> AgentEvent {
        let request = RunRequest { task: "x".into(), ..RunRequest::default() };
        RunAccepted { run_id: RunId::derive(&[name]), request, forked_from: None, at: 0 }.into()
    }

    fn advanced(name: &str) -> AgentEvent {
        RunAdvanced { run_id: RunId::derive(&[name]), epoch: 1, steps: Vec::new() }.into()
    }

    fn finished(name: &str) -> AgentEvent {
        RunFinished {
            run_id: RunId::derive(&[name]),
            epoch: 1,
            status: RunOutcome::Succeeded,
            agent: "react".into(),
            answer: None,
            citations: Vec::new(),
            usage: Usage::default(),
            stop_reason: "answered".into(),
            error: None,
            at: 0,
        }
        .into()
    }

    #[test]
    fn given_runs_in_two_partitions_when_one_stands_still_then_it_counts_for_it_and_not_for_all() {
        let mut pauses = Pauses::default();
        // One partition is read before the other.
        for (partition, event, at) in [
            (0, accepted("a"), 1_000),
            (0, advanced("a"), 1_100),
            (0, advanced("a"), 2_000),
            (0, finished("a"), 2_010),
            (1, accepted("b"), 1_000),
            (1, advanced("b"), 1_500),
            (1, finished("b"), 1_700),
            // Nothing is open: no time counts.
            (0, accepted("c"), 90_000),
            (0, finished("c"), 90_050),
        ] {
            pauses.take(partition, &event, at);
        }
        assert_eq!((pauses.longest_ms(), pauses.longest_of_a_partition_ms()), (400, 900));
    }

    fn claimed(name: &str, worker: &str) -> AgentEvent {
        claimed_again(name, worker, 1)
    }

    fn claimed_again(name: &str, worker: &str, epoch: i64) -> AgentEvent {
        RunClaimed { run_id: RunId::derive(&[name]), epoch, worker: worker.to_owned(), at: 0 }.into()
    }

    #[test]
    fn given_a_partition_that_moves_and_one_that_stays_when_both_stand_still_then_only_the_second_is_untouched() {
        let mut pauses = Pauses::default();
        for (partition, event, at) in [
            (0, accepted("a"), 1_000),
            (0, claimed("a", "ann"), 5_000),
            // Whatever comes before the first step is nobody's.
            (0, advanced("a"), 5_100),
            (0, advanced("a"), 5_400),
            // Another process takes it over, and goes on.
            (0, claimed("a", "bob"), 9_000),
            (0, advanced("a"), 9_100),
            (0, finished("a"), 9_150),
            (1, accepted("b"), 1_000),
            (1, claimed("b", "cid"), 1_010),
            (1, advanced("b"), 1_020),
            (1, finished("b"), 1_720),
            // Nothing was open until then, and its owner is the same.
            (1, accepted("c"), 50_000),
            (1, claimed("c", "cid"), 50_400),
            (1, finished("c"), 50_450),
            // It gave the partition away within a run and got it back.
            (1, accepted("e"), 52_000),
            (1, claimed("e", "cid"), 52_010),
            (1, claimed_again("e", "cid", 2), 53_500),
            (1, finished("e"), 53_510),
            // A run that nobody claimed says nothing of an owner.
            (1, accepted("d"), 60_000),
            (1, finished("d"), 69_000),
        ] {
            pauses.take(partition, &event, at);
        }
        assert_eq!((pauses.longest_of_a_partition_ms(), pauses.longest_of_an_untouched_partition_ms()), (9_000, 700));
    }

    #[test]
    fn given_a_process_that_came_later_when_it_claims_then_its_first_claim_counts_and_no_other() {
        let drawn = EventId::new();
        let now = now_ms();
        let claim = |worker: &str| claimed("a", worker);
        let name = format!("chaos-1-{drawn}");
        let mut pauses = Pauses::default();
        pauses.take(0, &accepted("a"), now - 60_000);
        for (worker, at) in [("somebody", now + 9_000), (name.as_str(), now + 300), (name.as_str(), now + 8_000)] {
            pauses.take(0, &claim(worker), at);
        }
        assert!((250..8_000).contains(&pauses.longest_turnover_ms()), "{}", pauses.longest_turnover_ms());
        // Those that were there before the runs wait for the first.
        let mut early = Pauses::default();
        early.take(0, &accepted("a"), now + 60_000);
        early.take(0, &claim(&name), now + 70_000);
        assert_eq!(early.longest_turnover_ms(), 0);
    }
}
