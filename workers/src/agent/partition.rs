//! What a worker knows of one partition: which runs are open, and from where they are to be folded. No I/O.

use std::collections::{HashMap, HashSet, VecDeque};

use riverrun_agents::RunState;
use riverrun_log::{CommitOffset, TopicPartition};
use riverrun_schemas::agent::AgentEvent;
use riverrun_schemas::{RunId, Topic};
use riverrun_stores::read_models::run_fold::{RunGate, Verdict};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::driver::Seen;

/// Ended runs that are remembered to recognise a command that comes again. Beyond it the oldest are forgotten; a command
/// that comes even later opens no second run in any reader's eyes, since its acceptance is void behind the first.
const MAX_ENDED: usize = 50_000;

struct Slot {
    /// Offset of the first event; an upper bound until the event was read.
    first_offset: i64,
    gate: RunGate,
    driver: mpsc::UnboundedSender<Seen>,
    /// The fold and the other end, until a driver has them.
    waiting: Option<ReadyRun>,
}

/// A run that can be driven.
pub(super) struct ReadyRun {
    pub(super) state: RunState,
    pub(super) inbox: mpsc::UnboundedReceiver<Seen>,
}

/// What an event led to.
pub(super) enum Folded {
    /// A run came to life that nobody drives yet.
    Ready(Box<ReadyRun>),
    /// Nothing to do for the loop.
    Known,
}

pub(super) struct Partition {
    /// Stops the drivers of this partition.
    pub(super) stop: CancellationToken,
    /// The offset of the next command.
    pub(super) next_command: i64,
    /// The offset of the next event.
    pub(super) next_event: i64,
    /// What would be noted differs from what is.
    pub(super) note_due: bool,
    live: bool,
    runs: HashMap<RunId, Slot>,
    /// Accepted, but the event was not read back yet.
    announced: HashMap<RunId, i64>,
    ended: HashSet<RunId>,
    ended_order: VecDeque<RunId>,
}

impl Partition {
    pub(super) fn new(next_command: i64) -> Self {
        Self {
            stop: CancellationToken::new(),
            next_command,
            next_event: 0,
            note_due: false,
            live: false,
            runs: HashMap::new(),
            announced: HashMap::new(),
            ended: HashSet::new(),
            ended_order: VecDeque::new(),
        }
    }

    /// Whether the run was accepted before, as far as is remembered.
    pub(super) fn knows(&self, run: &RunId) -> bool {
        self.is_open(run) || self.ended.contains(run)
    }

    pub(super) fn is_open(&self, run: &RunId) -> bool {
        self.runs.contains_key(run) || self.announced.contains_key(run)
    }

    /// The claim in force of an open run.
    pub(super) fn epoch(&self, run: &RunId) -> Option<i64> {
        self.runs.get(run).map(|slot| slot.gate.epoch)
    }

    /// The run's acceptance is acknowledged at this offset.
    pub(super) fn accepted(&mut self, run: RunId, offset: i64) {
        if !self.knows(&run) {
            self.announced.insert(run, offset);
        }
    }

    /// The past is folded: gives out every open run, oldest first; from here on each is given out as it comes.
    pub(super) fn go_live(&mut self) -> Vec<ReadyRun> {
        self.live = true;
        let mut open: Vec<_> =
            self.runs.values_mut().filter_map(|slot| slot.waiting.take().map(|run| (slot.first_offset, run))).collect();
        open.sort_by_key(|(offset, _)| *offset);
        open.into_iter().map(|(_, run)| run).collect()
    }

    pub(super) fn fold(&mut self, offset: i64, event: AgentEvent) -> Folded {
        let run_id = event.run_id();
        if let AgentEvent::RunAccepted(accepted) = &event
            && !self.runs.contains_key(&run_id)
            && !self.ended.contains(&run_id)
        {
            return self.open(offset, RunState::accepted(accepted));
        }
        // Events of runs that ended before the fold began have no slot.
        let Some(slot) = self.runs.get_mut(&run_id) else { return Folded::Known };
        let counts = slot.gate.admit(&event) == Verdict::Admitted;
        match &mut slot.waiting {
            Some(waiting) => {
                waiting.state.apply(&event);
            }
            // Void events too: a driver waits for the offset of what it wrote. A closed channel is a driver that let go.
            None => {
                let _ = slot.driver.send(Seen { offset, event });
            }
        }
        if counts && slot.gate.ended {
            self.end(run_id);
        }
        Folded::Known
    }

    fn open(&mut self, offset: i64, state: RunState) -> Folded {
        let run_id = state.run_id;
        self.announced.remove(&run_id);
        let (driver, inbox) = mpsc::unbounded_channel();
        let gate = RunGate { accepted: true, ..RunGate::default() };
        let run = ReadyRun { state, inbox };
        let (waiting, ready) = if self.live { (None, Some(run)) } else { (Some(run), None) };
        self.runs.insert(run_id, Slot { first_offset: offset, gate, driver, waiting });
        ready.map_or(Folded::Known, |run| Folded::Ready(Box::new(run)))
    }

    fn end(&mut self, run: RunId) {
        self.runs.remove(&run);
        self.note_due = true;
        if self.ended.insert(run) {
            self.ended_order.push_back(run);
        }
        while self.ended_order.len() > MAX_ENDED {
            if let Some(oldest) = self.ended_order.pop_front() {
                self.ended.remove(&oldest);
            }
        }
    }

    /// The offset that open runs are to be folded from: that of the oldest one's first event, else the next event.
    fn fold_from(&self) -> i64 {
        let open = self.runs.values().map(|slot| slot.first_offset).chain(self.announced.values().copied());
        open.min().unwrap_or(self.next_event).min(self.next_event)
    }

    pub(super) fn note(&self, number: i32) -> CommitOffset {
        CommitOffset {
            partition: TopicPartition::new(Topic::AgentCommands.name(), number),
            offset: self.next_command,
            metadata: Some(self.fold_from().to_string()),
        }
    }

    pub(super) fn take_note(&mut self, number: i32) -> CommitOffset {
        self.note_due = false;
        self.note(number)
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::{ApprovalPolicy, RunAccepted, RunClaimed, RunFinished, RunOutcome, RunRequest};

    use super::*;

    fn run(name: &str) -> RunId {
        RunId::derive(&[name])
    }

    fn accepted(name: &str) -> AgentEvent {
        let request = RunRequest {
            task: name.into(),
            agent: None,
            namespace: Default::default(),
            session: None,
            provider: None,
            model: None,
            temperature: None,
            max_iters: None,
            tools: None,
            collections: None,
            budget_tokens: None,
            budget_seconds: None,
            approval: ApprovalPolicy::Never,
            metadata_json: None,
        };
        RunAccepted { run_id: run(name), request, at: 0 }.into()
    }

    fn claimed(name: &str, epoch: i64) -> AgentEvent {
        RunClaimed { run_id: run(name), epoch, worker: format!("w{epoch}"), at: 0 }.into()
    }

    fn finished(name: &str, epoch: i64) -> AgentEvent {
        RunFinished {
            run_id: run(name),
            epoch,
            status: RunOutcome::Succeeded,
            agent: "react".into(),
            answer: None,
            citations: vec![],
            usage: Default::default(),
            stop_reason: "answered".into(),
            error: None,
            at: 0,
        }
        .into()
    }

    /// Folds events from offset 10 on, as the loop does.
    fn given(events: Vec<AgentEvent>) -> Partition {
        let mut partition = Partition::new(3);
        for (event, offset) in events.into_iter().zip(10..) {
            partition.next_event = offset + 1;
            partition.fold(offset, event);
        }
        partition
    }

    fn noted(partition: &Partition) -> (i64, i64) {
        let note = partition.note(0);
        (note.offset, note.metadata.unwrap().parse().unwrap())
    }

    #[test]
    fn only_runs_without_an_end_are_driven_oldest_first() {
        let mut partition = given(vec![accepted("a"), accepted("b"), claimed("a", 1), accepted("c"), finished("a", 1)]);
        let open: Vec<_> = partition.go_live().into_iter().map(|r| r.state.run_id).collect();
        assert_eq!(open, [run("b"), run("c")]);
        assert!(partition.go_live().is_empty(), "each is given out once");
    }

    #[test]
    fn the_note_points_at_the_oldest_open_run_and_moves_on_when_it_ends() {
        let mut partition = given(vec![accepted("a"), claimed("a", 1), accepted("b")]);
        assert_eq!(noted(&partition), (3, 10));
        partition.next_event = 14;
        partition.fold(13, finished("a", 1));
        assert_eq!(noted(&partition), (3, 12));
        partition.fold(14, claimed("b", 1));
        partition.next_event = 16;
        partition.fold(15, finished("b", 1));
        assert_eq!(noted(&partition), (3, 16), "nothing is open: the next event");
    }

    #[test]
    fn the_note_never_passes_a_run_whose_acceptance_was_not_read_back_yet() {
        let mut partition = given(vec![]);
        partition.next_event = 10;
        partition.accepted(run("a"), 12);
        assert_eq!(noted(&partition).1, 10);
        partition.next_event = 14;
        assert_eq!(noted(&partition).1, 12);
    }

    #[test]
    fn a_command_that_comes_again_is_known_also_after_the_end() {
        let mut partition = given(vec![accepted("a"), claimed("a", 1), finished("a", 1), accepted("b")]);
        partition.accepted(run("c"), 20);
        assert!(partition.knows(&run("a")) && partition.knows(&run("b")) && partition.knows(&run("c")));
        assert!(!partition.is_open(&run("a")) && !partition.knows(&run("d")));
    }

    #[test]
    fn an_end_written_under_an_older_claim_ends_nothing() {
        let partition = given(vec![accepted("a"), claimed("a", 1), claimed("a", 2), finished("a", 1)]);
        assert!(partition.is_open(&run("a")));
        assert_eq!(partition.epoch(&run("a")), Some(2));
    }

    #[test]
    fn a_live_partition_hands_a_run_out_at_once_and_forwards_every_event_with_its_offset() {
        let mut partition = given(vec![]);
        partition.go_live();
        let Folded::Ready(mut ready) = partition.fold(10, accepted("a")) else { panic!("not handed out") };
        partition.fold(11, claimed("a", 2));
        partition.fold(12, claimed("a", 1));
        let offsets: Vec<_> = std::iter::from_fn(|| ready.inbox.try_recv().ok()).map(|seen| seen.offset).collect();
        assert_eq!(offsets, [11, 12], "void events too");
    }
}
