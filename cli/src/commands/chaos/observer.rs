//! Follows the run events of a broker, counts what they come to, and answers the questions that runs ask: as a careful
//! person would, who looks into the books before letting a call be made again.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use riverrun_log::{LogConfig, LogError, Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::{
    AgentCommand, AgentEvent, DecideApproval, Decision, RunAdvanced, RunOutcome, StepKind, ToolUse,
};
use riverrun_schemas::{Decoded, RunId, Topic, now_ms};
use riverrun_stores::read_models::run_fold::{RunGate, Verdict};
use serde::Serialize;

use super::commands::Commands;
use super::pauses::Pauses;
use super::{harness, ledger};
use crate::error::CliError;

/// How long the log may be silent before it is looked at whether it is still there.
const SILENCE: Duration = Duration::from_secs(5);

/// What is known of one run.
#[derive(Default)]
struct Seen {
    gate: RunGate,
    /// Its newest event that counted.
    newest: Option<i64>,
    outcome: Option<RunOutcome>,
    calls: HashSet<String>,
}

/// What the log and the ledger come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Tally {
    /// Runs that were started.
    pub(super) runs: usize,
    /// Runs without a terminal event.
    pub(super) lost: usize,
    /// Terminal events that count; one a run.
    pub(super) terminal_events: usize,
    /// Runs that ended with an answer.
    pub(super) succeeded: usize,
    /// Runs with other steps than 1, 2, 3… to the end.
    pub(super) with_gaps: usize,
    /// Effects that happened more than once.
    pub(super) doubled_effects: usize,
    /// Second calls that the receiver refused by their key, where it does that.
    pub(super) refused_doubles: usize,
    /// Effects that happened.
    pub(super) effects: usize,
    /// Effects of calls that are on no run's record.
    pub(super) unrecorded_effects: usize,
    /// Events that did not count: written twice, or by a worker that had lost the run.
    pub(super) void_events: usize,
    /// Claims beyond the first of each run.
    pub(super) takeovers: usize,
    /// Questions that a person would have been asked.
    pub(super) questions: usize,
    /// Longest time without any step while runs were open, in milliseconds.
    pub(super) longest_stall_ms: i64,
    /// The same, of the partition that stood still longest.
    pub(super) longest_partition_stall_ms: i64,
    /// The same, of partitions that had one owner before and after.
    pub(super) longest_untouched_partition_stall_ms: i64,
    /// Longest time from the start of a process to its first claim of a run, of those that were started when runs were there.
    pub(super) longest_turnover_ms: i64,
    /// How long a run stood still before another process took it over, in milliseconds, in all but one of a hundred times; 0
    /// without takeovers.
    pub(super) takeover_p99_ms: i64,
    /// The longest time of those.
    pub(super) longest_takeover_ms: i64,
}

impl Tally {
    /// What must never be.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut count = |number: usize, what: &str| {
            if number > 0 {
                faults.push(format!("{number} {what}"));
            }
        };
        count(self.lost, "runs lost");
        count(self.doubled_effects, "effects doubled");
        count(self.with_gaps, "runs with gaps in their steps");
        count(self.unrecorded_effects, "effects that no run has on record");
        count(self.terminal_events.abs_diff(self.runs - self.lost), "terminal events too many or too few");
        faults
    }
}

pub(super) struct Observer {
    commands: Commands,
    ledger: PathBuf,
    tail: Tail,
    runs: HashMap<RunId, Seen>,
    counted: usize,
    ended: usize,
    void_events: usize,
    takeovers: usize,
    terminal_events: usize,
    gaps: HashSet<RunId>,
    questions: usize,
    pauses: Pauses,
    /// How long each takeover took, in milliseconds.
    took_over: Vec<i64>,
}

impl Observer {
    pub(super) async fn new(brokers: &str, ledger: PathBuf) -> Result<Self, CliError> {
        let log = LogConfig::new(brokers, "chaos-observer");
        let tail = open(&log).await.map_err(|error| harness("reading run events", error))?;
        Ok(Self {
            commands: Commands::new(brokers, "chaos-answerer")?,
            ledger,
            tail,
            runs: HashMap::new(),
            counted: 0,
            ended: 0,
            void_events: 0,
            takeovers: 0,
            terminal_events: 0,
            gaps: HashSet::new(),
            questions: 0,
            pauses: Pauses::default(),
            took_over: Vec::new(),
        })
    }

    /// Events that counted so far.
    pub(super) fn counted(&self) -> usize {
        self.counted
    }

    /// Runs that have ended.
    pub(super) fn ended(&self) -> usize {
        self.ended
    }

    /// The next event that counts, or `None` after a silence. A broker that is away is waited for.
    pub(super) async fn next(&mut self) -> Result<Option<AgentEvent>, CliError> {
        let until = tokio::time::Instant::now() + SILENCE;
        loop {
            let record = match tokio::time::timeout_at(until, self.tail.next()).await {
                Err(_) => return Ok(None),
                Ok(Ok(record)) => record,
                Ok(Err(_)) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if let Some(event) = self.take(&record)? {
                self.answer(&event).await?;
                return Ok(Some(event));
            }
        }
    }

    fn take(&mut self, record: &Record) -> Result<Option<AgentEvent>, CliError> {
        let event = match Schemas::built_in().decode::<AgentEvent>(record) {
            Ok(Decoded::Event(event)) => event,
            Ok(Decoded::UnknownType { .. }) => return Ok(None),
            Err(error) => return Err(harness("an event can't be read", error)),
        };
        let seen = self.runs.entry(event.run_id()).or_default();
        let before = seen.gate.last_seq;
        if seen.gate.admit(&event) != Verdict::Admitted {
            self.void_events += 1;
            return Ok(None);
        }
        self.counted += 1;
        let newest = seen.newest.replace(record.timestamp_ms);
        self.pauses.take(record.partition, &event, record.timestamp_ms);
        match &event {
            AgentEvent::RunClaimed(claim) if claim.epoch > 1 => {
                self.takeovers += 1;
                self.took_over.extend(newest.map(|newest| record.timestamp_ms.saturating_sub(newest)));
            }
            AgentEvent::RunAdvanced(advance) => {
                if advance.steps.first().map(|step| step.seq) != Some(before + 1) {
                    self.gaps.insert(advance.run_id);
                }
                seen.calls.extend(calls(advance).map(|tool| tool.call_id.clone()));
            }
            AgentEvent::RunFinished(end) => {
                seen.outcome = Some(end.status);
                self.terminal_events += 1;
                self.ended += 1;
            }
            AgentEvent::RunAccepted(_)
            | AgentEvent::RunClaimed(_)
            | AgentEvent::RunCancelRequested(_)
            | AgentEvent::RunApprovalDecided(_)
            | AgentEvent::RunResumed(_)
            | AgentEvent::RunSnapshotted(_) => {}
        }
        Ok(Some(event))
    }

    /// A call that is asked about because it may have been made is made again only when the books do not have it.
    async fn answer(&mut self, event: &AgentEvent) -> Result<(), CliError> {
        let AgentEvent::RunAdvanced(advance) = event else { return Ok(()) };
        for step in advance.steps.iter().filter(|step| step.kind == StepKind::Approval) {
            let Some(tool) = &step.tool else { continue };
            self.questions += 1;
            let effects = ledger::effects(&self.ledger).map_err(|error| harness("the ledger", error))?;
            let booked = effects.contains_key(&tool.call_id);
            let decision = if booked { Decision::Deny } else { Decision::Approve };
            let note = booked.then(|| "it is in the books".to_owned());
            let command = DecideApproval { run_id: advance.run_id, step: step.seq, decision, note, at: now_ms() };
            self.send(AgentCommand::from(command)).await?;
        }
        Ok(())
    }

    pub(super) async fn send(&self, command: AgentCommand) -> Result<(), CliError> {
        self.commands.send([command]).await
    }

    pub(super) fn tally(&self, started: &[RunId]) -> Result<Tally, CliError> {
        let mut took_over = self.took_over.clone();
        took_over.sort_unstable();
        let p99 = took_over.get((took_over.len() * 99).div_ceil(100).saturating_sub(1));
        let effects = ledger::effects(&self.ledger).map_err(|error| harness("the ledger", error))?;
        let recorded: HashSet<&String> = self.runs.values().flat_map(|seen| &seen.calls).collect();
        let outcome = |run: &RunId| self.runs.get(run).and_then(|seen| seen.outcome);
        Ok(Tally {
            runs: started.len(),
            lost: started.iter().filter(|run| outcome(run).is_none()).count(),
            terminal_events: self.terminal_events,
            succeeded: started.iter().filter(|run| outcome(run) == Some(RunOutcome::Succeeded)).count(),
            with_gaps: self.gaps.len(),
            doubled_effects: effects.values().filter(|count| **count > 1).count(),
            refused_doubles: ledger::refused(&self.ledger).map_err(|error| harness("the ledger", error))?,
            effects: effects.len(),
            unrecorded_effects: effects.keys().filter(|call| !recorded.contains(call)).count(),
            void_events: self.void_events,
            takeovers: self.takeovers,
            questions: self.questions,
            longest_stall_ms: self.pauses.longest_ms(),
            longest_partition_stall_ms: self.pauses.longest_of_a_partition_ms(),
            longest_untouched_partition_stall_ms: self.pauses.longest_of_an_untouched_partition_ms(),
            longest_turnover_ms: self.pauses.longest_turnover_ms(),
            takeover_p99_ms: p99.copied().unwrap_or_default(),
            longest_takeover_ms: took_over.last().copied().unwrap_or_default(),
        })
    }
}

fn calls(advance: &RunAdvanced) -> impl Iterator<Item = &ToolUse> {
    advance.steps.iter().filter(|step| step.kind == StepKind::ToolCall).filter_map(|step| step.tool.as_ref())
}

/// The run events from the beginning.
async fn open(log: &LogConfig) -> Result<Tail, LogError> {
    let partitions = (0..Topic::AgentEvents.spec().partitions)
        .map(|number| (TopicPartition::new(Topic::AgentEvents.name(), number), StartAt::Beginning))
        .collect();
    Tail::open(log, partitions).await
}
