//! A run's state: the fold of its events. The same events give the same state in every process, and folding one more
//! costs the same however many came before: what decisions need of old steps is counted, not kept.

mod calls;
mod canonical;
mod counts;
mod inputs;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use riverrun_schemas::agent::{AgentEvent, ForkedFrom, RunAccepted, RunFinished, RunRequest, Step, StepKind, ToolUse};
use riverrun_schemas::{ChunkId, RunId, Usage};
use riverrun_stores::read_models::run_fold::{RunGate, Verdict};
use serde::{Deserialize, Serialize};

use calls::OpenCalls;
pub use calls::{Answer, CallNeeds, OpenCall, Question};
pub(crate) use canonical::canonical;
use counts::CallCounts;
pub use inputs::{INPUT, Input};

use crate::compaction::{Compacted, Compaction};
use crate::decide;
use crate::supervisor;
use crate::tools::{Hit, KNOWLEDGE_SEARCH, MEMORY_RECALL};

/// A run that has not been told otherwise stops after so many iterations.
pub const DEFAULT_MAX_ITERS: i32 = 8;
/// Most that may be asked for.
pub const MAX_ITERS: i32 = 20_000;
/// A call made with the same arguments, however they are written, this often is a loop.
const LOOP_AFTER: usize = 2;
/// Passages that an answer can cite; what is found later has no number.
const MAX_SOURCES: usize = 512;
/// The duration of a result that says why its call was not made; calls that were made took longer.
pub const NOT_MADE_MS: i64 = 0;
/// The result of a call that reached nobody, beside the error that says why.
pub const NOT_SENT: &str = r#"{"sent":false}"#;
/// A call that reached nobody is made again so often when the agent asks for it: whoever was away may be back.
pub(crate) const MAX_UNSENT: u32 = 2;
/// Tools whose results are made of nothing but their arguments and the time: nobody outside can put words into them.
const SELF_CONTAINED: [&str; 2] = ["calculator", "clock"];

/// Whose words a run's model has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The request's, and those of tools that only compute.
    Request,
    /// Also what its conversation remembers, which may repeat words from outside.
    Conversation,
    /// Also those of documents, pages, other runs and other programs.
    Outside,
}

/// Whether a result says that its call reached nobody.
pub(crate) fn never_sent(result: &ToolUse) -> bool {
    result.error.is_some() && result.result_json.as_deref() == Some(NOT_SENT)
}

/// Whether a result says that its call was refused.
pub(crate) fn was_refused(result: &ToolUse) -> bool {
    result.error.is_some() && result.duration_ms == Some(NOT_MADE_MS)
}

/// The run was asked to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancellation {
    /// Why, in words.
    pub reason: Option<String>,
}

/// Everything that decisions of a run are taken from. As JSON it is the run's snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// The run.
    pub run_id: RunId,
    /// What it is asked to do, with every default filled in.
    pub request: RunRequest,
    /// Set for a fork.
    pub forked_from: Option<ForkedFrom>,
    /// Milliseconds since the epoch.
    pub accepted_at: i64,
    /// The newest steps, at least the last 256, and before them the newest plans, choices, reflections and judgements;
    /// `seq` increases. All of a run of usual length but its compactions, which are no steps of an agent's.
    pub steps: Vec<Step>,
    /// Tokens so far.
    pub usage: Usage,
    /// Set when the run was asked to stop.
    pub cancel_requested: Option<Cancellation>,
    /// The terminal event.
    pub finished: Option<RunFinished>,
    /// Which events count.
    gate: RunGate,
    open: OpenCalls,
    routed: Option<String>,
    iterations: usize,
    calls: CallCounts,
    own_calls: CallCounts,
    loops: bool,
    sources: Vec<Hit>,
    untrusted: bool,
    /// Some of that is more than what its conversation remembers.
    #[serde(default)]
    outside: bool,
    /// What the runs before it in its chain answered.
    #[serde(default)]
    inputs: Vec<Input>,
    /// Milliseconds that persons took to answer, and since when one is asked.
    waited_ms: i64,
    waits_since: Option<i64>,
    #[serde(default)]
    compaction: Compaction,
    /// Claims since something else was written.
    #[serde(default)]
    claims_without_progress: u32,
}

impl RunState {
    /// The state right after acceptance.
    pub fn accepted(event: &RunAccepted) -> Self {
        let mut gate = RunGate::default();
        gate.admit(&AgentEvent::RunAccepted(event.clone()));
        Self {
            run_id: event.run_id,
            request: event.request.clone(),
            forked_from: event.forked_from.clone(),
            accepted_at: event.at,
            steps: Vec::new(),
            usage: Usage::default(),
            cancel_requested: None,
            finished: None,
            gate,
            open: OpenCalls::default(),
            routed: None,
            iterations: 0,
            calls: CallCounts::default(),
            own_calls: CallCounts::default(),
            loops: false,
            sources: Vec::new(),
            untrusted: false,
            outside: false,
            inputs: Vec::new(),
            waited_ms: 0,
            waits_since: None,
            compaction: Compaction::default(),
            claims_without_progress: 0,
        }
    }

    /// Applies the next event of the run; `false` when it is void (an older epoch, a copy, or behind the end).
    pub fn apply(&mut self, event: &AgentEvent) -> bool {
        if self.gate.admit(event) != Verdict::Admitted {
            return false;
        }
        self.count_claim(event);
        match event {
            AgentEvent::RunAccepted(_) | AgentEvent::RunResumed(_) | AgentEvent::RunSnapshotted(_) => {}
            AgentEvent::RunClaimed(event) => self.open.claimed(event.epoch),
            AgentEvent::RunAdvanced(event) => {
                event.steps.iter().for_each(|step| self.step(step, event.epoch));
                if counts::shorten(&mut self.steps) {
                    self.compaction.forget_all_but(&self.steps);
                }
            }
            AgentEvent::RunApprovalDecided(event) => {
                self.open.answer(event);
                self.count_waiting(event.at);
            }
            AgentEvent::RunCancelRequested(event) => {
                self.cancel_requested = Some(Cancellation { reason: event.reason.clone() });
            }
            AgentEvent::RunFinished(event) => self.finished = Some(event.clone()),
        }
        true
    }

    fn count_claim(&mut self, event: &AgentEvent) {
        self.claims_without_progress = match event {
            AgentEvent::RunClaimed(_) => self.claims_without_progress.saturating_add(1),
            AgentEvent::RunAccepted(_)
            | AgentEvent::RunAdvanced(_)
            | AgentEvent::RunCancelRequested(_)
            | AgentEvent::RunApprovalDecided(_)
            | AgentEvent::RunResumed(_)
            | AgentEvent::RunSnapshotted(_)
            | AgentEvent::RunFinished(_) => 0,
        };
    }

    fn step(&mut self, step: &Step, epoch: i64) {
        // Steps that a fork has copied were another run's: they are history, and use up nothing of this one's.
        let own = epoch > 0;
        self.usage += step.usage.unwrap_or_default();
        let unmade = step.tool.as_ref().filter(|tool| step.kind == StepKind::ToolResult && self.was_not_made(tool));
        self.open.step(step, epoch);
        match step.kind {
            StepKind::Route => {
                let name = step.text.as_deref().and_then(supervisor::chosen_agent);
                self.routed = self.routed.take().or_else(|| name.map(str::to_owned));
            }
            StepKind::Thought if own => self.iterations += 1,
            StepKind::ToolCall => self.count_call(step.tool.as_ref(), own),
            StepKind::ToolResult => {
                self.take_result(step.tool.as_ref());
                self.take_back(unmade, own);
            }
            StepKind::Approval if own => self.count_waiting(step.at),
            StepKind::Compaction => {
                // A fork may have another model, with more room: it looks for itself.
                if own && let Some(compacted) = step.text.as_deref().and_then(Compacted::read) {
                    self.compaction.take_in(&compacted);
                }
                return;
            }
            StepKind::Thought
            | StepKind::Approval
            | StepKind::Plan
            | StepKind::Reflection
            | StepKind::Critique
            | StepKind::Answer
            | StepKind::Unknown => {}
        }
        self.steps.push(step.clone());
    }

    fn count_call(&mut self, tool: Option<&ToolUse>, own: bool) {
        let Some(tool) = tool else { return };
        self.calls.count(tool);
        if own {
            self.loops |= self.own_calls.count(tool) >= LOOP_AFTER;
        }
    }

    /// Whether the call of a result was not made: it reached nobody, or was refused without asking a person. Nobody knows of one
    /// whose outcome is not known, whatever came of its next try; and what a person refused is not asked for again.
    fn was_not_made(&self, result: &ToolUse) -> bool {
        match self.open.question(&result.call_id) {
            Some(question) => !question.outcome_unknown && never_sent(result),
            None => never_sent(result) || was_refused(result),
        }
    }

    /// A call was not made. To ask for what is refused again and again is a loop all the same.
    fn take_back(&mut self, unmade: Option<&ToolUse>, own: bool) {
        let Some(result) = unmade else { return };
        self.calls.take_back(result, u32::MAX);
        if own && never_sent(result) {
            self.own_calls.take_back(result, MAX_UNSENT);
        }
    }

    fn take_result(&mut self, tool: Option<&ToolUse>) {
        let Some(tool) = tool else { return };
        // What a tool fails with may be the words of others too, and so may be why it is not there; why a call is refused is ours.
        let read = !was_refused(tool) && !SELF_CONTAINED.contains(&tool.name.as_str());
        self.untrusted |= read;
        self.outside |= read && tool.name != MEMORY_RECALL;
        if tool.error.is_some() || tool.name != KNOWLEDGE_SEARCH {
            return;
        }
        let known: HashSet<ChunkId> = self.sources.iter().map(|hit| hit.chunk_id).collect();
        let mut new = HashSet::new();
        let found = tool.result_json.as_deref().map(hits).unwrap_or_default();
        let found = found.into_iter().filter(|hit| !known.contains(&hit.chunk_id) && new.insert(hit.chunk_id));
        let room = MAX_SOURCES.saturating_sub(self.sources.len());
        self.sources.extend(found.take(room));
    }

    fn count_waiting(&mut self, now: i64) {
        match (self.waits_since, self.gate.waiting.is_empty()) {
            (None, false) => self.waits_since = Some(now),
            (Some(since), true) => {
                self.waited_ms = self.waited_ms.saturating_add(now.saturating_sub(since).max(0));
                self.waits_since = None;
            }
            (None, true) | (Some(_), false) => {}
        }
    }

    /// What is left out of prompts.
    pub fn compaction(&self) -> &Compaction {
        &self.compaction
    }

    /// The same run when it leaves that out of its prompts.
    pub(crate) fn in_form(&self, compaction: Compaction) -> Self {
        Self { compaction, ..self.clone() }
    }

    /// Which events count next.
    pub fn gate(&self) -> &RunGate {
        &self.gate
    }

    /// Epoch of the claim in force; 0 before the first.
    pub fn epoch(&self) -> i64 {
        self.gate.epoch
    }

    /// Claims in a row, the one in force among them, with nothing written between them or since.
    pub fn claims_without_progress(&self) -> u32 {
        self.claims_without_progress
    }

    /// Worker of the claim in force.
    pub fn owner(&self) -> Option<&str> {
        self.gate.owner.as_deref()
    }

    /// Number of the last step; 0 before the first.
    pub fn last_seq(&self) -> i64 {
        self.gate.last_seq
    }

    /// The agent type: the one asked for, or the supervisor's choice.
    pub fn agent(&self) -> Option<&str> {
        self.request.agent.as_deref().or(self.routed.as_deref())
    }

    /// Tool calls without a result, in order.
    pub fn open_calls(&self) -> &[OpenCall] {
        self.open.all()
    }

    /// Nothing can be done until a person answers: no worker needs to hold the run.
    pub fn waits_for_person(&self) -> bool {
        self.finished.is_none() && self.cancel_requested.is_none() && self.open.all_wait()
    }

    /// A fork whose copied steps are not all there yet.
    pub fn history_missing(&self) -> bool {
        self.epoch() == 0 && self.forked_from.as_ref().is_some_and(|from| from.at_seq > self.last_seq())
    }

    /// Whose words are among what the model reads.
    pub fn reading(&self) -> Reading {
        match (self.outside, self.untrusted) {
            (true, _) => Reading::Outside,
            (false, true) => Reading::Conversation,
            (false, false) => Reading::Request,
        }
    }

    /// Milliseconds from acceptance to `now_ms` without the time that persons took to answer.
    pub fn spent_ms(&self, now_ms: i64) -> i64 {
        let waiting = self.waits_since.map_or(0, |since| now_ms.saturating_sub(since).max(0));
        now_ms.saturating_sub(self.accepted_at).saturating_sub(self.waited_ms.saturating_add(waiting))
    }

    /// Whether the budget in seconds is used up.
    pub fn is_out_of_time(&self, now_ms: i64) -> bool {
        self.request.budget_seconds.is_some_and(|most| self.spent_ms(now_ms) >= most.saturating_mul(1_000))
    }

    /// Iterations of the agent's loop so far; those that a fork has copied do not count.
    pub fn iterations(&self) -> usize {
        self.iterations
    }

    /// How often a tool was called with these arguments, however they are written. Calls that were not made do not count.
    pub fn same_calls(&self, name: &str, arguments_json: &str) -> usize {
        self.calls.of(name, arguments_json)
    }

    /// Whether the run has asked for this call, or made it before it was forked.
    pub(crate) fn asked_for(&self, name: &str, arguments_json: &str) -> bool {
        self.own_calls.of(name, arguments_json) > 0 || self.same_calls(name, arguments_json) > 0
    }

    fn out_of_iterations(&self) -> bool {
        self.iterations() >= usize::try_from(self.request.max_iters.unwrap_or(DEFAULT_MAX_ITERS)).unwrap_or(0)
    }

    /// No further action is allowed: the agent answers with what it has.
    pub fn exhausted(&self) -> bool {
        self.out_of_iterations() || self.loops
    }

    /// Why the loop ended, for a run that has an answer.
    pub fn stop_reason(&self) -> &'static str {
        // The answer came by choice when a thought without a call stands before it; that counts even in the last iteration. One
        // that says that nothing was written is no choice.
        let mut written = self.steps.iter().rev().filter(|step| !decide::wrote_nothing(step));
        let chosen = written.nth(1).is_some_and(|step| step.kind == StepKind::Thought);
        match () {
            () if self.loops => "loop_detected",
            () if self.out_of_iterations() && !chosen => "max_iters",
            () => "answered",
        }
    }

    /// Passages were found that an answer can cite.
    pub(crate) fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// The passages found so far, each once, in the order in which they first came up: passage `n` of an answer is the
    /// `n`-th here, counted from 1. At most 512.
    pub fn sources(&self) -> Vec<Hit> {
        self.sources.clone()
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
