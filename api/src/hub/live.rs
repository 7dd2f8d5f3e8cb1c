//! What is kept of a run that goes on, and who listens to it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use riverrun_schemas::agent::{AgentEvent, RunFinished, RunRequest, StepKind};
use riverrun_schemas::tokens::Attempt;
use riverrun_schemas::{ChainId, RunId};
use riverrun_stores::read_models::{
    ChainLinkView, DecisionView, ForkView, PendingApprovalView, citation_view, failure_view, step_view, usage_view,
};
use riverrun_stores::{RunGate, Verdict};
use tokio::sync::mpsc;

use super::{MAX_WAITING, Pending};
use crate::wire::{RunStatus, RunView, StepView, Timestamp, UsageView};

/// What counts of a run's events, as listeners need it. Clones share their content.
#[derive(Debug, Clone)]
pub enum Note {
    /// The run exists.
    Accepted {
        /// What it is asked to do.
        request: Arc<RunRequest>,
        /// Where it branched off.
        forked_from: Option<ForkView>,
        /// Milliseconds since the epoch.
        at: i64,
    },
    /// A worker has it.
    Claimed,
    /// It went on.
    Steps(Arc<Vec<StepView>>),
    /// A person answered the question of this step.
    Decided(i64, DecisionView),
    /// It was asked to stop.
    CancelRequested,
    /// It ended.
    Finished(Arc<RunFinished>),
    /// A model wrote something. Never kept.
    Token {
        /// The step to come.
        seq: i64,
        /// Which try at the text it belongs to, where its writer says so.
        attempt: Option<Attempt>,
        /// The piece.
        text: Arc<str>,
    },
}

impl Note {
    /// `None` for what changes nothing that anybody sees.
    fn of(event: &AgentEvent) -> Option<Self> {
        Some(match event {
            AgentEvent::RunAccepted(event) => Note::Accepted {
                request: Arc::new(event.request.clone()),
                forked_from: event.forked_from.as_ref().map(ForkView::from),
                at: event.at,
            },
            AgentEvent::RunClaimed(_) => Note::Claimed,
            AgentEvent::RunAdvanced(event) => Note::Steps(Arc::new(event.steps.iter().map(step_view).collect())),
            AgentEvent::RunApprovalDecided(event) => Note::Decided(event.step, DecisionView::from(event)),
            AgentEvent::RunCancelRequested(_) => Note::CancelRequested,
            AgentEvent::RunResumed(_) | AgentEvent::RunSnapshotted(_) => return None,
            AgentEvent::RunFinished(event) => Note::Finished(Arc::new(event.clone())),
        })
    }

    pub(super) fn accepted(&self) -> Option<&RunRequest> {
        match self {
            Note::Accepted { request, .. } => Some(request),
            Note::Claimed
            | Note::Steps(_)
            | Note::Decided(..)
            | Note::CancelRequested
            | Note::Finished(_)
            | Note::Token { .. } => None,
        }
    }

    /// The steps that it brings.
    pub(super) fn steps(&self) -> &[StepView] {
        match self {
            Note::Steps(steps) => steps,
            Note::Accepted { .. }
            | Note::Claimed
            | Note::Decided(..)
            | Note::CancelRequested
            | Note::Finished(_)
            | Note::Token { .. } => &[],
        }
    }

    /// Puts what a person said beside its question, where that is among these steps.
    pub(super) fn answer<'s>(&self, steps: impl IntoIterator<Item = &'s mut StepView>) {
        if let Note::Decided(seq, decision) = self
            && let Some(step) = steps.into_iter().find(|step| step.seq == *seq)
        {
            step.decision = Some(decision.clone());
        }
    }
}

/// The receiving end of a listener.
pub(super) struct Listener {
    notes: mpsc::Receiver<Note>,
    cut_off: Arc<AtomicBool>,
}

impl Listener {
    /// The next note; `None` when the listener was too slow or the hub is gone. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Note> {
        self.notes.recv().await
    }

    /// It was too slow.
    pub(super) fn was_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Acquire)
    }
}

struct Ear {
    notes: mpsc::Sender<Note>,
    cut_off: Arc<AtomicBool>,
    tokens: bool,
}

impl Ear {
    /// Whether it still listens.
    fn tell(&self, note: &Note) -> bool {
        let token = matches!(note, Note::Token { .. });
        if token && !self.tokens {
            return !self.notes.is_closed();
        }
        match self.notes.try_send(note.clone()) {
            Ok(()) => true,
            // Pieces of text may be lost, steps may not.
            Err(mpsc::error::TrySendError::Full(_)) if token => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.cut_off.store(true, Ordering::Release);
                false
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

struct Kept {
    partition: i32,
    offset: i64,
    note: Note,
}

/// A run that goes on, or that somebody asks for.
#[derive(Default)]
pub(super) struct LiveRun {
    gate: RunGate,
    kept: VecDeque<Kept>,
    ears: Vec<Ear>,
}

impl LiveRun {
    pub(super) fn with_gate(gate: RunGate) -> Self {
        Self { gate, ..Self::default() }
    }

    /// Something of it was read from the log or the read model.
    pub(super) fn is_known(&self) -> bool {
        self.gate.accepted
    }

    pub(super) fn has_ended(&self) -> bool {
        self.gate.ended
    }

    /// Nothing of it is kept, nobody listens, and its gate is not needed: it ended, or it was never there.
    pub(super) fn is_idle(&self) -> bool {
        self.kept.is_empty()
            && self.ears.iter().all(|ear| ear.notes.is_closed())
            && (self.gate.ended || !self.gate.accepted)
    }

    pub(super) fn listeners(&self) -> usize {
        self.ears.iter().filter(|ear| !ear.notes.is_closed()).count()
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        self.kept.iter().map(|kept| kept.note.clone()).collect()
    }

    pub(super) fn listen(&mut self, tokens: bool) -> Listener {
        self.ears.retain(|ear| !ear.notes.is_closed());
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let cut_off = Arc::new(AtomicBool::new(false));
        self.ears.push(Ear { notes: sender, cut_off: cut_off.clone(), tokens });
        Listener { notes: receiver, cut_off }
    }

    /// Takes the run's next event; `None` when it is void, else how many notes it added to those kept.
    pub(super) fn apply(&mut self, partition: i32, offset: i64, event: &AgentEvent) -> Option<usize> {
        match self.gate.admit(event) {
            Verdict::Admitted => {}
            Verdict::Ignored(void) => {
                tracing::debug!(run_id = %event.run_id(), reason = void.as_str(), "void event");
                return None;
            }
        }
        let Some(note) = Note::of(event) else { return Some(0) };
        self.ears.retain(|ear| ear.tell(&note));
        self.kept.push_back(Kept { partition, offset, note });
        Some(1)
    }

    pub(super) fn send_away(&mut self) {
        self.ears.clear();
    }

    pub(super) fn tell_token(&mut self, seq: i64, attempt: Option<Attempt>, text: &str) {
        if self.ears.iter().any(|ear| ear.tokens) {
            let note = Note::Token { seq, attempt, text: text.into() };
            self.ears.retain(|ear| ear.tell(&note));
        }
    }

    /// Whether its acceptance is kept, and is that of a run of this chain.
    pub(super) fn is_of_chain(&self, chain_id: ChainId) -> bool {
        self.kept.iter().filter_map(|kept| kept.note.accepted()).any(|request| is_of_chain(request, chain_id))
    }

    /// Drops what lies before the next offsets of the read model; tells how much it was.
    pub(super) fn drop_projected(&mut self, next_offsets: &HashMap<i32, i64>) -> usize {
        let before = self.kept.len();
        while self
            .kept
            .front()
            .is_some_and(|kept| next_offsets.get(&kept.partition).is_some_and(|next| kept.offset < *next))
        {
            self.kept.pop_front();
        }
        before - self.kept.len()
    }
}

/// Whether the request was made with this chain.
pub(super) fn is_of_chain(request: &RunRequest, chain_id: ChainId) -> bool {
    request.chain.as_ref().is_some_and(|link| link.chain_id == chain_id)
}

/// The run as it is now: the read model's row and steps, then what happened since. `None` when nobody knows it.
pub fn compose(run_id: RunId, row: Option<RunView>, notes: &[Note], pending: Option<Pending>) -> Option<RunView> {
    let accepted = notes.iter().find_map(|note| match note {
        Note::Accepted { request, forked_from, at } => {
            Some(RunView { forked_from: forked_from.clone(), ..queued(run_id, request, *at) })
        }
        Note::Claimed
        | Note::Steps(_)
        | Note::Decided(..)
        | Note::CancelRequested
        | Note::Finished(_)
        | Note::Token { .. } => None,
    });
    let mut run = row.or(accepted).or_else(|| pending.map(|pending| pending.view(run_id)))?;
    if !run.status.ended() {
        notes.iter().for_each(|note| add(&mut run, note));
    }
    Some(run)
}

fn add(run: &mut RunView, note: &Note) {
    match note {
        Note::Accepted { .. } | Note::CancelRequested | Note::Token { .. } => {}
        Note::Claimed if run.status == RunStatus::Queued => run.status = RunStatus::Running,
        Note::Claimed => {}
        Note::Decided(step, _) => {
            run.pending_approvals.retain(|pending| pending.step != *step);
            note.answer(&mut run.steps);
            wait_or_run(run);
        }
        Note::Steps(new) => {
            let last = run.steps.last().map_or(0, |step| step.seq);
            for step in new.iter().filter(|step| step.seq > last) {
                run.agent = Some(step.agent.clone());
                run.usage = step.usage.as_ref().map_or(run.usage, |used| run.usage.plus(used));
                add_question(run, step);
                run.steps.push(step.clone());
            }
            wait_or_run(run);
        }
        Note::Finished(end) => finish(run, end),
    }
}

/// A step asks a person, or brings the result that a question was about.
fn add_question(run: &mut RunView, step: &StepView) {
    run.pending_approvals.extend(PendingApprovalView::of(step));
    if let Some(tool) = step.tool.as_ref().filter(|_| step.kind == StepKind::ToolResult) {
        run.pending_approvals.retain(|pending| pending.call_id != tool.call_id);
    }
}

fn wait_or_run(run: &mut RunView) {
    match (run.pending_approvals.is_empty(), run.status) {
        (false, _) => run.status = RunStatus::WaitingApproval,
        (true, RunStatus::WaitingApproval) => run.status = RunStatus::Running,
        (true, _) => {}
    }
}

fn finish(run: &mut RunView, end: &RunFinished) {
    run.status = RunStatus::from(end.status);
    run.pending_approvals.clear();
    // An end before an agent was at work names none.
    if !end.agent.is_empty() {
        run.agent = Some(end.agent.clone());
    }
    run.answer = end.answer.clone();
    run.citations = end.citations.iter().map(citation_view).collect();
    run.usage = usage_view(&end.usage);
    run.stop_reason = Some(end.stop_reason.clone());
    run.error = end.error.as_ref().map(failure_view);
    run.finished_at = Some(Timestamp(end.at));
}

/// A run that was accepted and of which nothing else happened yet.
pub(super) fn queued(run_id: RunId, request: &RunRequest, at: i64) -> RunView {
    RunView {
        run_id,
        status: RunStatus::Queued,
        namespace: request.namespace.to_string(),
        task: request.task.clone(),
        agent: request.agent.clone(),
        answer: None,
        citations: Vec::new(),
        steps: Vec::new(),
        pending_approvals: Vec::new(),
        session: request.session.clone(),
        forked_from: None,
        after: request.after.clone(),
        chain: request.chain.as_ref().map(ChainLinkView::from),
        usage: UsageView::default(),
        stop_reason: None,
        trace_id: None,
        error: None,
        metadata: request.metadata_json.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        created_at: Timestamp(at),
        finished_at: None,
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::{
        Decision, RunAccepted, RunAdvanced, RunApprovalDecided, RunClaimed, RunResumed, Step, ToolEffect, ToolUse,
    };
    use serde_json::json;

    use super::*;

    fn run_id() -> RunId {
        RunId::derive(&["live"])
    }

    fn accepted() -> AgentEvent {
        let request = json!({
            "task": "x", "agent": "react", "namespace": "default", "session": "s", "provider": null, "model": null, "temperature": null,
            "max_iters": 8, "tools": null, "collections": null, "budget_tokens": null, "budget_seconds": null, "approval": "external",
            "metadata_json": null
        });
        let request = serde_json::from_value(request).unwrap();
        RunAccepted { run_id: run_id(), request, forked_from: None, at: 1 }.into()
    }

    fn step(seq: i64, kind: StepKind) -> AgentEvent {
        let tool = ToolUse {
            call_id: "c".into(),
            name: "pay".into(),
            arguments_json: "{}".into(),
            effect: ToolEffect::External,
            result_json: None,
            result_blob: None,
            error: None,
            duration_ms: None,
        };
        let step =
            Step { seq, kind, agent: "react".into(), text: Some("why".into()), tool: Some(tool), usage: None, at: 2 };
        RunAdvanced { run_id: run_id(), epoch: 1, steps: vec![step] }.into()
    }

    /// Status and open questions after each of the events.
    fn seen(events: Vec<AgentEvent>) -> Vec<(RunStatus, Vec<i64>)> {
        let mut run = LiveRun::default();
        let mut all = Vec::new();
        for (event, offset) in events.iter().zip(0..) {
            run.apply(0, offset, event);
            let view = compose(run_id(), None, &run.notes(), None).unwrap();
            all.push((view.status, view.pending_approvals.iter().map(|pending| pending.step).collect()));
        }
        all
    }

    #[test]
    fn given_questions_and_answers_when_a_run_is_composed_then_it_waits_while_a_question_is_open() {
        use RunStatus::{Queued, Running, WaitingApproval};
        let claimed = |epoch| AgentEvent::from(RunClaimed { run_id: run_id(), epoch, worker: "w".into(), at: 2 });
        let decided = |step| {
            AgentEvent::from(RunApprovalDecided {
                run_id: run_id(),
                step,
                decision: Decision::Approve,
                note: None,
                at: 3,
            })
        };
        let answered = seen(vec![
            accepted(),
            claimed(1),
            step(1, StepKind::ToolCall),
            step(2, StepKind::Approval),
            RunResumed { run_id: run_id(), at: 3 }.into(),
            decided(2),
            decided(2),
            claimed(2),
        ]);
        let expected = [
            (Queued, vec![]),
            (Running, vec![]),
            (Running, vec![]),
            (WaitingApproval, vec![2]),
            (WaitingApproval, vec![2]),
            (Running, vec![]),
            (Running, vec![]),
            (Running, vec![]),
        ];
        assert_eq!(answered, expected);
        let taken_over = seen(vec![accepted(), claimed(1), step(1, StepKind::Approval), claimed(2)]);
        assert_eq!(taken_over.last(), Some(&(WaitingApproval, vec![1])), "a claim answers nothing");
        let resolved = seen(vec![accepted(), claimed(1), step(1, StepKind::Approval), step(2, StepKind::ToolResult)]);
        assert_eq!(resolved.last(), Some(&(Running, vec![])), "a result does");
    }

    #[test]
    fn given_an_answer_that_the_read_model_has_not_seen_when_a_run_is_composed_then_it_stands_beside_its_question() {
        let decided = |decision, note: Option<&str>, at| {
            AgentEvent::from(RunApprovalDecided {
                run_id: run_id(),
                step: 2,
                decision,
                note: note.map(str::to_owned),
                at,
            })
        };
        for (decision, note) in [(Decision::Approve, None), (Decision::Deny, Some("too dear"))] {
            let mut run = LiveRun::default();
            let events = [
                accepted(),
                RunClaimed { run_id: run_id(), epoch: 1, worker: "w".into(), at: 2 }.into(),
                step(1, StepKind::ToolCall),
                step(2, StepKind::Approval),
                decided(decision, note, 3),
                decided(Decision::Approve, Some("a second answer"), 4),
            ];
            for (event, offset) in events.iter().zip(0..) {
                run.apply(0, offset, event);
            }
            let expected = DecisionView { decision, note: note.map(str::to_owned), decided_at: Timestamp(3) };
            let view = compose(run_id(), None, &run.notes(), None).unwrap();
            assert_eq!((&view.steps[0].decision, &view.steps[1].decision), (&None, &Some(expected.clone())));
            // The read model has all but the answer.
            let without = compose(run_id(), None, &run.notes()[..4], None).unwrap();
            assert_eq!(without.steps[1].decision, None);
            let view = compose(run_id(), Some(without), &run.notes()[4..], None).unwrap();
            assert_eq!(view.steps[1].decision, Some(expected));
        }
    }
}
