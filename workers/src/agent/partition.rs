//! What a worker knows of one partition: which runs are open, which of them can be driven, and from where they are to be
//! folded. No I/O.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use riverrun_agents::RunState;
use riverrun_agents::decide::Ending;
use riverrun_log::{CommitOffset, Record, TopicPartition};
use riverrun_schemas::agent::{AgentEvent, RunFinished, RunSnapshotted};
use riverrun_schemas::{RunId, Topic};
use riverrun_stores::read_models::run_fold::{RunGate, Verdict};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::asides::{Aside, Asides, Try};
use super::chains::{Chains, Settled};
use super::driver::Seen;
use super::lookup::{Looked, Search};
use super::past::{Glimpse, Kind, glimpse};
use super::ready::{Folded, ReadyRun};
use super::sessions::{SessionKey, Sessions};
use super::strangers::Strangers;

mod waking;

/// Ended runs that are remembered to recognise a command that comes again. Beyond it the oldest are forgotten; a command
/// that comes even later opens no second run in any reader's eyes, since its acceptance is void behind the first.
const MAX_ENDED: usize = 50_000;

struct Slot {
    /// Offset to fold the run from: of its first event, or of its last snapshot.
    fold_from: i64,
    accepted_offset: i64,
    gate: RunGate,
    session: Option<SessionKey>,
    holder: Holder,
}

/// Who has a run's fold.
enum Holder {
    /// A driver, which is told every event.
    Driver(mpsc::UnboundedSender<Seen>),
    /// Nobody drives it; it lies here.
    Resting(Box<Resting>),
}

struct Resting {
    state: RunState,
    /// Offset behind the last event in the fold.
    next_offset: i64,
    /// It was asked to look again.
    woken: bool,
    /// How it is to end without having begun: a run that it waited for gave no answer.
    ends: Option<Ending>,
}

pub(super) struct Partition {
    /// Stops the drivers of this partition.
    pub(super) stop: CancellationToken,
    /// The offset of the next command.
    pub(super) next_command: i64,
    /// The offset of the next event.
    pub(super) next_event: i64,
    /// The offset behind the last event that accepting commands has written here; until it is read, the fold is behind.
    written_to: i64,
    /// What would be noted differs from what is.
    pub(super) note_due: bool,
    /// Whose turn it is in each session.
    pub(super) sessions: Sessions,
    /// The runs that wait for the answers of others.
    chains: Chains,
    /// Those that are waited for and not open here.
    strangers: Strangers,
    live: bool,
    runs: HashMap<RunId, Slot>,
    /// Accepted, but the event was not read back yet.
    announced: HashMap<RunId, i64>,
    /// Open, but not to be read for now.
    pub(super) asides: Asides,
    /// What each of these three is to be folded from, in order: a note is taken with every command.
    folds: BTreeSet<i64>,
    /// Steps of open runs in the past, not decoded yet: when the end of the run comes, nobody needs them.
    put_off: HashMap<RunId, Vec<Record>>,
    ready: Vec<ReadyRun>,
    ended: HashSet<RunId>,
    ended_order: VecDeque<RunId>,
}

impl Partition {
    pub(super) fn new(next_command: i64) -> Self {
        Self {
            stop: CancellationToken::new(),
            next_command,
            next_event: 0,
            written_to: 0,
            note_due: false,
            sessions: Sessions::default(),
            chains: Chains::default(),
            strangers: Strangers::default(),
            live: false,
            runs: HashMap::new(),
            announced: HashMap::new(),
            asides: Asides::default(),
            folds: BTreeSet::new(),
            put_off: HashMap::new(),
            ready: Vec::new(),
            ended: HashSet::new(),
            ended_order: VecDeque::new(),
        }
    }

    /// Whether the run was accepted before, as far as is remembered.
    pub(super) fn knows(&self, run: &RunId) -> bool {
        self.is_open(run) || self.ended.contains(run)
    }

    pub(super) fn is_open(&self, run: &RunId) -> bool {
        self.runs.contains_key(run) || self.announced.contains_key(run) || self.asides.has(run)
    }

    /// The claim in force of an open run.
    pub(super) fn epoch(&self, run: &RunId) -> Option<i64> {
        self.runs.get(run).map(|slot| slot.gate.epoch)
    }

    /// How many steps of a fork are copied, of one whose copying was cut short: all that was written here is read, and
    /// there are steps missing.
    pub(super) fn copied_steps(&self, run: &RunId) -> Option<i64> {
        if self.next_event < self.written_to {
            return None;
        }
        match &self.runs.get(run)?.holder {
            Holder::Resting(resting) if resting.state.history_missing() => Some(resting.state.last_seq()),
            Holder::Resting(_) | Holder::Driver(_) => None,
        }
    }

    /// An event that accepting commands has led to is acknowledged at this offset; `opens` is the run whose acceptance it is.
    pub(super) fn wrote(&mut self, offset: i64, opens: Option<RunId>) {
        self.written_to = self.written_to.max(offset + 1);
        if let Some(run) = opens.filter(|run| !self.knows(run)) {
            self.announced.insert(run, offset);
            self.folds.insert(offset);
        }
    }

    /// Takes in the next record. Of the past nothing is decoded that belongs to no open run, and steps only once something
    /// follows them that is not the end of their run, or [`end_past`](Self::end_past) says that nothing does.
    pub(super) fn read(&mut self, record: &Record, decode: &impl Fn(&Record) -> Option<AgentEvent>) -> Folded {
        self.next_event = record.offset + 1;
        if self.puts_off(record) {
            return Folded::Known;
        }
        let Some(event) = decode(record) else { return Folded::Known };
        // Whether an end counts does not depend on the steps before it.
        if !matches!(event, AgentEvent::RunFinished(_)) {
            let earlier = self.put_off.remove(&event.run_id());
            self.fold_put_off(earlier, decode);
        }
        self.fold(record.offset, event)
    }

    /// Whether a record of the past needs no more for now.
    fn puts_off(&mut self, record: &Record) -> bool {
        if self.live {
            return false;
        }
        let Some(Glimpse { run_id, kind }) = glimpse(record) else { return false };
        match kind {
            Kind::Begins => false,
            // What says of a run that can't be read whether it is still to be stopped.
            Kind::Tells | Kind::Ends if self.asides.has(&run_id) => false,
            // It has ended, or began before the fold did.
            Kind::Advances | Kind::Ends | Kind::Tells if !self.runs.contains_key(&run_id) => true,
            Kind::Ends | Kind::Tells => false,
            Kind::Advances => {
                let bare = Record {
                    topic: record.topic.clone(),
                    key: None,
                    headers: Vec::new(),
                    payload: record.payload.clone(),
                    ..*record
                };
                self.put_off.entry(run_id).or_default().push(bare);
                true
            }
        }
    }

    fn fold_put_off(
        &mut self,
        records: impl IntoIterator<Item = Vec<Record>>,
        decode: &impl Fn(&Record) -> Option<AgentEvent>,
    ) {
        for record in records.into_iter().flatten() {
            if let Some(event) = decode(&record) {
                self.fold(record.offset, event); // steps of a run that is known: never a snapshot
            }
        }
    }

    /// There is no more of the past.
    pub(super) fn end_past(&mut self, decode: &impl Fn(&Record) -> Option<AgentEvent>) {
        let left = std::mem::take(&mut self.put_off);
        self.fold_put_off(left.into_values(), decode);
    }

    /// The past is folded: from here on runs become ready as events come. Gives how many are open; those that can be
    /// driven are ready, oldest first.
    pub(super) fn go_live(&mut self) -> usize {
        self.live = true;
        let mut open: Vec<(i64, RunId)> = self.runs.iter().map(|(run, slot)| (slot.accepted_offset, *run)).collect();
        open.sort_unstable();
        open.iter().for_each(|(_, run)| self.wake(run));
        open.len()
    }

    /// Runs that can be driven now, each once.
    pub(super) fn take_ready(&mut self) -> Vec<ReadyRun> {
        std::mem::take(&mut self.ready)
    }

    /// A driver let go of a run that waits.
    pub(super) fn rest(&mut self, run: ReadyRun) {
        let ReadyRun { mut state, mut inbox, mut next_offset, .. } = run;
        let Some(slot) = self.runs.get_mut(&state.run_id) else { return };
        let mut woken = false;
        while let Ok(seen) = inbox.try_recv() {
            woken |= state.apply(&seen.event) && wakes(&seen.event);
            next_offset = seen.offset + 1;
        }
        let run_id = state.run_id;
        slot.holder = Holder::Resting(Box::new(Resting { state, next_offset, woken, ends: None }));
        self.wake(&run_id);
    }

    pub(super) fn fold(&mut self, offset: i64, event: AgentEvent) -> Folded {
        let run_id = event.run_id();
        if !self.runs.contains_key(&run_id) {
            return self.first_of(offset, event);
        }
        let Some(slot) = self.runs.get_mut(&run_id) else { return Folded::Known };
        let counts = slot.gate.admit(&event) == Verdict::Admitted;
        if counts && matches!(event, AgentEvent::RunSnapshotted(_)) {
            self.folds.remove(&slot.fold_from);
            self.folds.insert(offset);
            slot.fold_from = offset;
            self.note_due = true;
        }
        // It had its turn: also after a restart, when what it waited for has to be looked for first.
        if let (true, AgentEvent::RunClaimed(_), Some(session)) = (counts, &event, &slot.session) {
            self.sessions.join(session.clone(), run_id);
        }
        let mut awaited = None;
        if let (true, AgentEvent::RunFinished(finished)) = (counts, &event) {
            awaited = self.chains.is_awaited(&run_id).then(|| finished.clone());
            if let Some(session) = &slot.session {
                self.sessions.ended(session, finished);
            }
        }
        match &mut slot.holder {
            Holder::Resting(resting) => {
                resting.woken |= resting.state.apply(&event) && wakes(&event);
                resting.next_offset = offset + 1;
            }
            // Void events too: a driver waits for the offset of what it wrote. A closed channel is a driver that let go.
            Holder::Driver(driver) => {
                let _ = driver.send(Seen { offset, event });
            }
        }
        if counts && slot.gate.ended {
            self.end(run_id);
        } else {
            self.wake(&run_id);
        }
        if let Some(finished) = awaited {
            self.has_ended(&finished);
        }
        Folded::Known
    }

    /// A run has ended, here or elsewhere: those that wait for nothing more go on.
    fn has_ended(&mut self, finished: &RunFinished) {
        for (follower, settled) in self.chains.ended(finished) {
            self.settle(&follower, settled);
        }
    }

    /// The looks that are due for runs that others wait for and that are not open here.
    pub(super) fn searches_due(&mut self, now: Instant) -> Vec<Search> {
        if !self.live {
            return Vec::new();
        }
        let missing: HashSet<RunId> = self.chains.awaited().filter(|run| !self.is_open(run)).copied().collect();
        self.strangers.due(now, &missing)
    }

    /// Takes in what a look has found: ends, and runs that nobody has asked for within `patience`.
    pub(super) fn looked(&mut self, looked: Looked, patience: Duration) {
        for finished in &looked.ended {
            self.has_ended(finished);
        }
        for run in self.strangers.looked(looked, patience) {
            // It may have come while the look was under way.
            if !self.is_open(&run) {
                for (follower, settled) in self.chains.never_came(&run) {
                    self.settle(&follower, settled);
                }
            }
        }
    }

    /// An event of a run that has no slot: it begins, or it began before the fold did, or it has ended.
    fn first_of(&mut self, offset: i64, event: AgentEvent) -> Folded {
        let run_id = event.run_id();
        if self.ended.contains(&run_id) {
            return Folded::Known;
        }
        // Of the past the newest snapshot is the best to begin with.
        if self.asides.has(&run_id) && (self.live || !matches!(event, AgentEvent::RunSnapshotted(_))) {
            self.asides.hear(offset, event);
            return Folded::Known;
        }
        match event {
            AgentEvent::RunAccepted(accepted) => {
                self.open_from(offset, offset, RunState::accepted(&accepted));
                Folded::Known
            }
            AgentEvent::RunSnapshotted(snapshot) => Folded::Snapshot(Box::new(snapshot)),
            AgentEvent::RunClaimed(_)
            | AgentEvent::RunAdvanced(_)
            | AgentEvent::RunCancelRequested(_)
            | AgentEvent::RunApprovalDecided(_)
            | AgentEvent::RunResumed(_)
            | AgentEvent::RunFinished(_) => Folded::Known,
        }
    }

    /// A run can't be read from its snapshot at `offset`: it is tried again from `due` on. The note does not pass it.
    pub(super) fn set_aside(&mut self, offset: i64, snapshot: RunSnapshotted, due: Instant) {
        if let Some(earlier) = self.asides.put(offset, snapshot, due) {
            self.folds.remove(&earlier);
        }
        self.folds.insert(offset);
    }

    /// The tries that are due to read runs that were set aside.
    pub(super) fn asides_due(&mut self, now: Instant) -> Vec<Try> {
        if self.live { self.asides.due(now, self.next_event) } else { Vec::new() }
    }

    /// A run that was set aside is read, up to what had come when its reading began; what came since was kept.
    pub(super) fn restored(&mut self, mut state: RunState) {
        let run_id = state.run_id;
        let Some((Aside { offset, snapshot, later, .. }, mut next_offset)) = self.asides.take(&run_id) else { return };
        for (at, event) in later {
            state.apply(&event);
            next_offset = at + 1;
        }
        self.folds.remove(&offset);
        match state.finished.clone() {
            Some(finished) => {
                if let Some(session) = SessionKey::of(&state.request) {
                    self.sessions.ended(&session, &finished);
                }
                self.end(run_id);
                self.has_ended(&finished);
            }
            None => self.open(offset, snapshot.accepted_offset, next_offset, state),
        }
    }

    /// The fold of a run up to the event at `offset`, which is its first or a snapshot.
    pub(super) fn open_from(&mut self, offset: i64, accepted_offset: i64, state: RunState) {
        self.open(offset, accepted_offset, offset + 1, state);
    }

    /// A run that is to be folded from `fold_from`, and whose fold is at hand up to `next_offset`.
    fn open(&mut self, fold_from: i64, accepted_offset: i64, next_offset: i64, state: RunState) {
        let run_id = state.run_id;
        if let Some(announced) = self.announced.remove(&run_id) {
            self.folds.remove(&announced);
        }
        let session = SessionKey::of(&state.request);
        let mut circle = None;
        if state.waits_for_inputs() {
            circle = self.chains.join(run_id, &state.request.after);
        } else if let Some(session) = &session {
            self.sessions.join(session.clone(), run_id);
        }
        let gate = state.gate().clone();
        let holder = Holder::Resting(Box::new(Resting { state, next_offset, woken: false, ends: None }));
        self.runs.insert(run_id, Slot { fold_from, accepted_offset, gate, session, holder });
        self.folds.insert(fold_from);
        match circle {
            Some(settled) => self.settle(&run_id, settled),
            None => self.wake(&run_id),
        }
    }

    /// Gives a run what it has waited for; its turn in its session counts from here on.
    fn settle(&mut self, run: &RunId, settled: Settled) {
        let Some(slot) = self.runs.get_mut(run) else { return };
        // Whoever drives it already ends it: it was cancelled while it waited.
        let Holder::Resting(resting) = &mut slot.holder else { return };
        match settled {
            Settled::Inputs(inputs) => resting.state.give_inputs(inputs),
            Settled::Ends(ending) => resting.ends = Some(ending),
        }
        if let Some(session) = &slot.session {
            self.sessions.join(session.clone(), *run);
        }
        self.wake(run);
    }

    fn end(&mut self, run: RunId) {
        let session = self.runs.remove(&run).and_then(|slot| {
            self.folds.remove(&slot.fold_from);
            slot.session
        });
        self.chains.leave(&run);
        self.put_off.remove(&run);
        self.note_due = true;
        if self.ended.insert(run) {
            self.ended_order.push_back(run);
        }
        while self.ended_order.len() > MAX_ENDED {
            if let Some(oldest) = self.ended_order.pop_front() {
                self.ended.remove(&oldest);
            }
        }
        if let Some(next) = session.and_then(|session| self.sessions.leave(&session, &run)) {
            self.wake(&next);
        }
    }

    /// The offset that open runs are to be folded from: that of the oldest one's first event or last snapshot, else the
    /// next event.
    fn fold_from(&self) -> i64 {
        self.folds.first().copied().unwrap_or(self.next_event).min(self.next_event)
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

/// Whether an event makes even a run that waits for a person look again.
fn wakes(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::RunResumed(_))
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
