//! Which events of a run count. All events of a run lie in one partition; whoever folds them in that order with this gate
//! (read model, worker, stream) comes to the same steps and the same end, whatever was written twice or by a worker that
//! had lost the run.

use std::collections::BTreeMap;

use riverrun_schemas::agent::{AgentEvent, RunAdvanced, RunClaimed, Step, StepKind};
use serde::{Deserialize, Serialize};

/// What the events so far let through next. `RunGate::default()` is that of a run of which nothing was read.
///
/// Invariants of the admitted events: `RUN-1` there is at most one `RunFinished`, and nothing after it; `RUN-2` the
/// steps' `seq` are 1, 2, 3… without gaps; `RUN-3` steps and end are of the epoch that was current at their place in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunGate {
    /// The run exists.
    pub accepted: bool,
    /// Highest claim so far; 0 before the first.
    pub epoch: i64,
    /// The worker that made it.
    pub owner: Option<String>,
    /// `seq` of the last admitted step; 0 before the first.
    pub last_seq: i64,
    /// Approval steps that nobody has answered, with the call that each is about.
    #[serde(default)]
    pub waiting: BTreeMap<i64, String>,
    /// The run has ended.
    pub ended: bool,
}

/// What to do with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It counts.
    Admitted,
    /// It does not.
    Ignored(Void),
}

/// Why an event does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Void {
    /// Nothing was accepted under this id.
    NotAccepted,
    /// The run was accepted before.
    AcceptedBefore,
    /// The epoch was claimed before, or a higher one.
    ClaimedBefore,
    /// Written by a worker that does not hold the run.
    OtherEpoch,
    /// The steps do not go on where the last ones stopped.
    OutOfSequence,
    /// An answer to a step that waits for none: it was answered before, or never asked.
    NotWaiting,
    /// The run has ended.
    Ended,
}

impl Void {
    /// For logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Void::NotAccepted => "not_accepted",
            Void::AcceptedBefore => "accepted_before",
            Void::ClaimedBefore => "claimed_before",
            Void::OtherEpoch => "other_epoch",
            Void::OutOfSequence => "out_of_sequence",
            Void::NotWaiting => "not_waiting",
            Void::Ended => "ended",
        }
    }
}

impl RunGate {
    /// `seq` that the next step must have.
    pub fn next_seq(&self) -> i64 {
        self.last_seq + 1
    }

    /// Judges the next event of the run, and remembers it when it counts.
    pub fn admit(&mut self, event: &AgentEvent) -> Verdict {
        match self.judge(event) {
            None => {
                self.remember(event);
                Verdict::Admitted
            }
            Some(void) => Verdict::Ignored(void),
        }
    }

    fn judge(&self, event: &AgentEvent) -> Option<Void> {
        if let AgentEvent::RunAccepted(_) = event {
            return self.accepted.then_some(Void::AcceptedBefore);
        }
        if !self.accepted {
            return Some(Void::NotAccepted);
        }
        if self.ended {
            return Some(Void::Ended);
        }
        match event {
            AgentEvent::RunAccepted(_) | AgentEvent::RunCancelRequested(_) | AgentEvent::RunResumed(_) => None,
            AgentEvent::RunApprovalDecided(answer) => {
                (!self.waiting.contains_key(&answer.step)).then_some(Void::NotWaiting)
            }
            AgentEvent::RunSnapshotted(snapshot) if snapshot.epoch != self.epoch => Some(Void::OtherEpoch),
            AgentEvent::RunSnapshotted(snapshot) => (snapshot.seq > self.last_seq).then_some(Void::OutOfSequence),
            AgentEvent::RunClaimed(claim) => (claim.epoch <= self.epoch).then_some(Void::ClaimedBefore),
            AgentEvent::RunAdvanced(advance) if advance.epoch != self.epoch => Some(Void::OtherEpoch),
            AgentEvent::RunAdvanced(advance) => (!self.goes_on_with(advance)).then_some(Void::OutOfSequence),
            AgentEvent::RunFinished(end) => (end.epoch != self.epoch).then_some(Void::OtherEpoch),
        }
    }

    fn goes_on_with(&self, advance: &RunAdvanced) -> bool {
        !advance.steps.is_empty() && advance.steps.iter().zip(self.next_seq()..).all(|(step, seq)| step.seq == seq)
    }

    fn remember(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::RunAccepted(_) => self.accepted = true,
            AgentEvent::RunClaimed(RunClaimed { epoch, worker, .. }) => {
                self.epoch = *epoch;
                self.owner = Some(worker.clone());
            }
            AgentEvent::RunAdvanced(advance) => {
                self.last_seq = advance.steps.last().map_or(self.last_seq, |step| step.seq);
                advance.steps.iter().for_each(|step| self.remember_step(step));
            }
            AgentEvent::RunApprovalDecided(answer) => {
                self.waiting.remove(&answer.step);
            }
            AgentEvent::RunCancelRequested(_) | AgentEvent::RunResumed(_) | AgentEvent::RunSnapshotted(_) => {}
            AgentEvent::RunFinished(_) => self.ended = true,
        }
    }

    fn remember_step(&mut self, step: &Step) {
        match (step.kind, &step.tool) {
            (StepKind::Approval, Some(tool)) => {
                self.waiting.insert(step.seq, tool.call_id.clone());
            }
            // A fork copies questions without their answers; the result says that the answer came.
            (StepKind::ToolResult, Some(tool)) => self.waiting.retain(|_, call_id| *call_id != tool.call_id),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "run_fold_tests.rs"]
mod tests;
