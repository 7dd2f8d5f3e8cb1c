//! For how long nothing went on while it should have, by the times that stand on the log: how fast the harness reads has
//! no part in it.

use std::collections::{HashMap, HashSet};

use riverrun_schemas::EventId;
use riverrun_schemas::agent::{AgentEvent, RunClaimed};

/// What went on so far.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// Of every partition: partitions are read in no common order.
    seen: Vec<(i64, Change)>,
    partitions: HashMap<i32, Line>,
    /// Who has claimed a run.
    workers: HashSet<String>,
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
}

impl Line {
    fn take(&mut self, at: i64, change: Change) {
        if change == Change::Opens {
            if self.open == 0 {
                self.since = at;
            }
            self.open += 1;
            return;
        }
        self.longest_ms = self.longest_ms.max(at.saturating_sub(self.since));
        self.since = self.since.max(at);
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
            self.partitions.entry(partition).or_default().take(at, change);
        }
        if let AgentEvent::RunClaimed(claim) = event
            && self.workers.insert(claim.worker.clone())
            && let Some(started) = started_at(claim)
            && started > began
        {
            self.longest_turnover_ms = self.longest_turnover_ms.max(at.saturating_sub(started));
        }
    }

    /// Longest time without any step while runs were open, in milliseconds.
    pub(super) fn longest_ms(&self) -> i64 {
        let mut seen = self.seen.clone();
        seen.sort_by_key(|(at, _)| *at); // stable: what has one time stays in the order of its partition
        let mut all = Line::default();
        seen.into_iter().for_each(|(at, change)| all.take(at, change));
        all.longest_ms
    }

    /// The same, of the partition that stood still longest.
    pub(super) fn longest_of_a_partition_ms(&self) -> i64 {
        self.partitions.values().map(|line| line.longest_ms).max().unwrap_or_default()
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

    #[test]
    fn given_a_process_that_came_later_when_it_claims_then_its_first_claim_counts_and_no_other() {
        let drawn = EventId::new();
        let now = now_ms();
        let claim = |worker: &str| -> AgentEvent {
            RunClaimed { run_id: RunId::derive(&["a"]), epoch: 1, worker: worker.to_owned(), at: 0 }.into()
        };
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
