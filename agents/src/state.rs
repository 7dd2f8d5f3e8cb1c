//! A run's state: the fold of its events. The same events give the same state in every process.

use std::collections::HashSet;

use riverrun_schemas::agent::{AgentEvent, RunAccepted, RunFinished, RunRequest, Step, StepKind};
use riverrun_schemas::{RunId, Usage};
use riverrun_stores::read_models::run_fold::{RunGate, Verdict};
use serde::Deserialize;

use crate::supervisor;
use crate::tools::{Hit, KNOWLEDGE_SEARCH};

/// A run that has not been told otherwise stops after so many iterations.
pub const DEFAULT_MAX_ITERS: i32 = 8;
/// A call made with the same arguments this often is a loop.
const LOOP_AFTER: usize = 3;

/// Everything that decisions of a run are taken from.
#[derive(Debug, Clone)]
pub struct RunState {
    /// The run.
    pub run_id: RunId,
    /// What it is asked to do, with every default filled in.
    pub request: RunRequest,
    /// Milliseconds since the epoch.
    pub accepted_at: i64,
    /// Steps so far; `seq` counts from 1 without gaps.
    pub steps: Vec<Step>,
    /// Tokens so far.
    pub usage: Usage,
    /// Set when the run was asked to stop; the reason inside.
    pub cancel_requested: Option<Option<String>>,
    /// The terminal event.
    pub finished: Option<RunFinished>,
    /// Which events count.
    gate: RunGate,
    /// Epoch of the event that brought the last step.
    last_step_epoch: i64,
}

impl RunState {
    /// The state right after acceptance.
    pub fn accepted(event: &RunAccepted) -> Self {
        let mut gate = RunGate::default();
        gate.admit(&AgentEvent::RunAccepted(event.clone()));
        Self {
            run_id: event.run_id,
            request: event.request.clone(),
            accepted_at: event.at,
            steps: Vec::new(),
            usage: Usage::default(),
            cancel_requested: None,
            finished: None,
            gate,
            last_step_epoch: 0,
        }
    }

    /// Applies the next event of the run; `false` when it is void (an older epoch, a copy, or behind the end).
    pub fn apply(&mut self, event: &AgentEvent) -> bool {
        if self.gate.admit(event) != Verdict::Admitted {
            return false;
        }
        match event {
            AgentEvent::RunAccepted(_) | AgentEvent::RunClaimed(_) => {}
            AgentEvent::RunAdvanced(event) => {
                self.last_step_epoch = event.epoch;
                for step in &event.steps {
                    self.usage += step.usage.unwrap_or_default();
                    self.steps.push(step.clone());
                }
            }
            AgentEvent::RunCancelRequested(event) => self.cancel_requested = Some(event.reason.clone()),
            AgentEvent::RunFinished(event) => self.finished = Some(event.clone()),
        }
        true
    }

    /// Epoch of the claim in force; 0 before the first.
    pub fn epoch(&self) -> i64 {
        self.gate.epoch
    }

    /// Worker of the claim in force.
    pub fn owner(&self) -> Option<&str> {
        self.gate.owner.as_deref()
    }

    /// Number of the last step; 0 before the first.
    pub fn last_seq(&self) -> i64 {
        self.steps.last().map_or(0, |step| step.seq)
    }

    /// The agent type: the one asked for, or the supervisor's choice.
    pub fn agent(&self) -> Option<&str> {
        self.request.agent.as_deref().or_else(|| {
            let route = self.steps.iter().find(|step| step.kind == StepKind::Route)?;
            supervisor::chosen_agent(route.text.as_deref()?)
        })
    }

    /// The last step was written under an earlier claim: its worker may have died right behind it.
    pub fn interrupted_at_last_step(&self) -> bool {
        self.last_step_epoch < self.epoch()
    }

    /// Iterations of the agent's loop so far.
    pub fn iterations(&self) -> usize {
        self.steps.iter().filter(|step| step.kind == StepKind::Thought).count()
    }

    /// How often a tool was called with these arguments.
    pub fn same_calls(&self, name: &str, arguments_json: &str) -> usize {
        self.calls().filter(|call| *call == (name, arguments_json)).count()
    }

    fn calls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.steps
            .iter()
            .filter(|step| step.kind == StepKind::ToolCall)
            .filter_map(|step| step.tool.as_ref())
            .map(|tool| (tool.name.as_str(), tool.arguments_json.as_str()))
    }

    fn out_of_iterations(&self) -> bool {
        self.iterations() >= usize::try_from(self.request.max_iters.unwrap_or(DEFAULT_MAX_ITERS)).unwrap_or(0)
    }

    fn loops(&self) -> bool {
        self.calls().any(|(name, arguments)| self.same_calls(name, arguments) >= LOOP_AFTER - 1)
    }

    /// No further action is allowed: the agent answers with what it has.
    pub fn exhausted(&self) -> bool {
        self.out_of_iterations() || self.loops()
    }

    /// Why the loop ended, for a run that has an answer.
    pub fn stop_reason(&self) -> &'static str {
        // The answer came by choice when a thought without a call stands before it; that counts even in the last iteration.
        let chosen = self.steps.iter().rev().nth(1).is_some_and(|step| step.kind == StepKind::Thought);
        match () {
            () if self.loops() => "loop_detected",
            () if self.out_of_iterations() && !chosen => "max_iters",
            () => "answered",
        }
    }

    /// The passages found so far, each once, in the order in which they first came up: passage `n` of an answer is the
    /// `n`-th here, counted from 1.
    pub fn sources(&self) -> Vec<Hit> {
        let mut seen = HashSet::new();
        self.steps
            .iter()
            .filter(|step| step.kind == StepKind::ToolResult)
            .filter_map(|step| step.tool.as_ref())
            .filter(|tool| tool.name == KNOWLEDGE_SEARCH)
            .filter_map(|tool| tool.result_json.as_deref())
            .flat_map(hits)
            .filter(|hit| seen.insert(hit.chunk_id))
            .collect()
    }
}

/// The passages in a knowledge search's recorded result; none when it is of an unknown shape.
pub(crate) fn hits(result_json: &str) -> Vec<Hit> {
    #[derive(Deserialize)]
    struct Recorded {
        passages: Vec<Hit>,
    }
    serde_json::from_str::<Recorded>(result_json).map(|recorded| recorded.passages).unwrap_or_default()
}
