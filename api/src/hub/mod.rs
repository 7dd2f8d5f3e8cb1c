//! The API's own reading of the log: what happened in runs and ingests since the read models last wrote it down.
//!
//! The hub tails `agent.events` and `ingest.events` from exactly the offsets that the read model has reached, and keeps
//! each run's events until the read model has them too. Whoever joins a run takes a copy of what is kept and a place in
//! the line under one lock, and reads the read model after that: an event is then in the read model, in the copy or still
//! to come, never nowhere (`HUB-1`). The same gate that the read model folds with decides which events count (`HUB-2`).
//!
//! Limits: [`MAX_BUFFERED`] kept events, then the hub stops reading until the read model catches up; [`MAX_WAITING`]
//! events that wait for one listener, then the listener is cut off and may join again where it stopped.

mod draft;
mod ingest_stream;
mod live;
mod reader;
mod run_stream;
mod unread;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_log::{LogConfig, LogError, Schemas};
use riverrun_schemas::agent::{AgentEvent, RunRequest};
use riverrun_schemas::tokens::{Attempt, TokenDelta};
use riverrun_schemas::{ChainId, IngestId, RunId, Topic, now_ms};
use riverrun_stores::read_models::document_views::{DocumentCounts, IngestStatus, IngestView as StoredIngest};
use riverrun_stores::read_models::run_chains::{self, ChainMember, ChainView};
use riverrun_stores::read_models::{self, Within, document_queries, documents, run_heads, runs};
use riverrun_stores::{Sql, StoreError};
use riverrun_workers::tracer::TracingService;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use ingest_stream::IngestStream;
pub(crate) use ingest_stream::unknown as unknown_ingest;
pub use live::{Note, compose};
pub(crate) use run_stream::unknown as unknown_run;
pub use run_stream::{RunStream, StreamEnd};

use crate::error::ApiError;
use crate::figures::RunFigures;
use crate::submit::IngestTarget;
use crate::wire::{IngestView, RunView, StepView, Timestamp};
use live::{Listener, LiveRun};
use unread::{Early, Unread};

/// Events kept for all runs together, at most.
const MAX_BUFFERED: usize = 100_000;
/// Events that wait for one listener, at most.
const MAX_WAITING: usize = 1_024;
/// Ended runs that are remembered, so that late copies of their events are known as such.
const MAX_ENDED: usize = 50_000;
/// Runs that this process accepted and no worker has taken yet, at most; older ones are forgotten first.
const MAX_PENDING: usize = 10_000;
/// How often kept events are compared with what the read model has.
const JANITOR_PERIOD: Duration = Duration::from_millis(500);

/// Shared by all requests of a process.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    sql: Sql,
    state: Mutex<State>,
    room: tokio::sync::Notify,
    reading: AtomicBool,
    void_events: AtomicU64,
    undecodable: AtomicU64,
    tracing: TracingService,
    figures: RunFigures,
    schemas: Schemas,
    /// Cancelled when the process stops.
    closed: CancellationToken,
}

#[derive(Default)]
struct State {
    runs: HashMap<RunId, LiveRun>,
    buffered: usize,
    ended: Remembered<RunId>,
    pending: HashMap<RunId, Pending>,
    pending_order: VecDeque<RunId>,
    ingests: HashMap<IngestId, watch::Sender<Seen>>,
    pending_ingests: HashMap<IngestId, IngestView>,
    pending_ingest_order: VecDeque<IngestId>,
    early: Early,
}

/// A run whose command is on the log and that no worker has taken yet.
#[derive(Debug, Clone)]
pub struct Pending {
    request: RunRequest,
    at: i64,
    /// Set while its command is a dead letter.
    unread: Option<Unread>,
}

/// The last offset seen of each partition of `ingest.events`, as far as it concerns one ingest.
type Seen = HashMap<i32, i64>;

/// A set that forgets its oldest members.
struct Remembered<T> {
    set: HashSet<T>,
    order: VecDeque<T>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { set: HashSet::new(), order: VecDeque::new() }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Remembered<T> {
    fn insert(&mut self, value: T, limit: usize) {
        if self.set.insert(value) {
            self.order.push_back(value);
            if self.order.len() > limit
                && let Some(oldest) = self.order.pop_front()
            {
                self.set.remove(&oldest);
            }
        }
    }
}

/// What the hub counts.
#[derive(Debug, Clone, Copy)]
pub struct HubStats {
    /// Runs that it keeps anything of.
    pub runs: usize,
    /// Events that the read model does not have yet.
    pub buffered: usize,
    /// Listeners to runs and ingests.
    pub listeners: usize,
    /// Events that did not count.
    pub void_events: u64,
    /// Records that were no events.
    pub undecodable: u64,
    /// Whether the log is being read.
    pub reading: bool,
}

impl Hub {
    /// Reads the read model's offsets and begins to read the log from there; ends with `stop`.
    pub async fn start(
        sql: Sql,
        log: LogConfig,
        tracing: TracingService,
        stop: CancellationToken,
    ) -> Result<Self, HubError> {
        let hub = Self::over(sql, tracing, log.schemas.clone());
        let starts = hub.restore().await?;
        let tail = reader::open_events(&log, &starts).await?;
        tokio::spawn(reader::read_events(hub.clone(), tail, stop.clone()));
        tokio::spawn(reader::read_tokens(hub.clone(), log, stop.clone()));
        tokio::spawn(janitor(hub.clone(), stop));
        Ok(hub)
    }

    /// One that has read nothing yet.
    fn over(sql: Sql, tracing: TracingService, schemas: Schemas) -> Self {
        let inner = Inner {
            sql,
            state: Mutex::default(),
            room: tokio::sync::Notify::new(),
            reading: AtomicBool::new(false),
            void_events: AtomicU64::new(0),
            undecodable: AtomicU64::new(0),
            tracing,
            figures: RunFigures::default(),
            schemas,
            closed: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Open runs and the offsets that they are read up to, of one moment.
    async fn restore(&self) -> Result<HashMap<(String, i32), i64>, StoreError> {
        let open = run_heads::open_runs(&self.inner.sql).await?;
        let mut state = self.inner.state.lock();
        for (run_id, gate) in open.gates {
            state.runs.insert(run_id, LiveRun::with_gate(gate));
        }
        Ok(open.checkpoints.into_iter().map(|c| ((c.topic, c.partition), c.next_offset)).collect())
    }

    /// Sends every listener away: the process is stopping.
    pub fn close(&self) {
        self.inner.closed.cancel();
        let mut state = self.inner.state.lock();
        state.runs.values_mut().for_each(LiveRun::send_away);
        state.ingests.clear();
    }

    /// Ends when the process stops: for streams that listen to nothing here.
    pub(crate) async fn closed(&self) {
        self.inner.closed.cancelled().await;
    }

    /// What it counts.
    pub fn stats(&self) -> HubStats {
        let state = self.inner.state.lock();
        HubStats {
            runs: state.runs.len(),
            buffered: state.buffered,
            listeners: state.runs.values().map(LiveRun::listeners).sum::<usize>()
                + state.ingests.values().map(watch::Sender::receiver_count).sum::<usize>(),
            void_events: self.inner.void_events.load(Ordering::Relaxed),
            undecodable: self.inner.undecodable.load(Ordering::Relaxed),
            reading: self.inner.reading.load(Ordering::Relaxed),
        }
    }

    /// What happened in runs since it reads.
    pub fn figures(&self) -> &RunFigures {
        &self.inner.figures
    }

    /// Remembers a run whose command is on the log, so that it can be read before a worker takes it.
    pub fn remember_accepted(&self, run_id: RunId, request: &RunRequest, at: i64) {
        let mut state = self.inner.state.lock();
        let known = state.runs.get(&run_id).is_some_and(LiveRun::is_known) || state.ended.set.contains(&run_id);
        if known || state.pending.contains_key(&run_id) {
            return;
        }
        let unread = state.early.take(&run_id.to_string(), now_ms());
        state.pending.insert(run_id, Pending { request: request.clone(), at, unread });
        state.pending_order.push_back(run_id);
        while state.pending_order.len() > MAX_PENDING {
            if let Some(oldest) = state.pending_order.pop_front() {
                state.pending.remove(&oldest);
            }
        }
    }

    /// The run as the log has it now, ahead of the read model where that lags.
    pub async fn run(&self, run_id: RunId) -> Result<Option<RunView>, ApiError> {
        let (notes, pending) = self.snapshot(run_id);
        let row = runs::run(&self.inner.sql, Within::EveryNamespace, run_id).await?;
        let trace_id = self.inner.tracing.trace_id(run_id);
        Ok(compose(run_id, row, &notes, pending).map(|run| RunView { trace_id, ..run }))
    }

    /// The same; one that nobody knows is waited for a moment where another process may have accepted it just now.
    pub async fn run_or_soon(&self, run_id: RunId) -> Result<Option<RunView>, ApiError> {
        match self.run(run_id).await? {
            None if run_stream::may_be_on_its_way(run_id, now_ms()) => self.run_stream(run_id, 0, false).soon().await,
            known => Ok(known),
        }
    }

    /// The chain as the log has it now; `None` when nobody knows a run of it.
    pub async fn chain(&self, chain_id: ChainId) -> Result<Option<ChainView>, ApiError> {
        // Before the read model, as in `HUB-1`.
        let ahead = self.runs_of_chain(chain_id);
        let mut members = run_chains::members(&self.inner.sql, chain_id).await?;
        let stored: HashSet<RunId> = members.iter().map(|member| member.run.run_id).collect();
        for member in members.iter_mut().filter(|member| !member.run.status.ended()) {
            if let Some(run) = self.run(member.run.run_id).await? {
                *member = ChainMember::from(run);
            }
        }
        for run_id in ahead.into_iter().filter(|run_id| !stored.contains(run_id)) {
            members.extend(self.run(run_id).await?.map(ChainMember::from));
        }
        Ok(ChainView::of(chain_id, members))
    }

    /// The runs of a chain that the read model may not have yet.
    fn runs_of_chain(&self, chain_id: ChainId) -> Vec<RunId> {
        let state = self.inner.state.lock();
        let pending = state.pending.iter().filter(|(_, pending)| live::is_of_chain(&pending.request, chain_id));
        let kept = state.runs.iter().filter(|(_, run)| run.is_of_chain(chain_id));
        pending.map(|(run_id, _)| *run_id).chain(kept.map(|(run_id, _)| *run_id)).collect()
    }

    /// At most so many steps behind `after`, as the log has them now; `None` for a run that nobody knows.
    pub async fn steps(&self, run_id: RunId, after: i64, most: u32) -> Result<Option<Vec<StepView>>, ApiError> {
        // What is kept is read first, as in `HUB-1`: a step is then in the copy or in the read model.
        let (notes, pending) = self.snapshot(run_id);
        let head = run_heads::head(&self.inner.sql, run_id).await?;
        if head.is_none() && notes.is_empty() && pending.is_none() {
            return Ok(None);
        }
        let mut steps = runs::steps_page(&self.inner.sql, run_id, after, most).await?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut last = steps.last().map_or(after, |step| step.seq);
        for step in notes.iter().flat_map(Note::steps) {
            // `after` is whatever the caller says, up to the largest number there is.
            if last.checked_add(1) == Some(step.seq) && steps.len() < most {
                last = step.seq;
                steps.push(step.clone());
            }
        }
        notes.iter().for_each(|note| note.answer(&mut steps));
        Ok(Some(steps))
    }

    /// What this run was asked to do, as it was accepted; before that, as it was handed in.
    pub async fn request(&self, run_id: RunId) -> Result<Option<RunRequest>, ApiError> {
        let (notes, pending) = self.snapshot(run_id);
        if let Some(request) = notes.iter().find_map(Note::accepted) {
            return Ok(Some(request.clone()));
        }
        if let Some(head) = run_heads::head(&self.inner.sql, run_id).await? {
            return Ok(Some(head.request));
        }
        Ok(pending.map(|pending| pending.request))
    }

    /// What this run was asked to do by the first event of it on the log; waits for that event, at most `patience`.
    pub async fn accepted_request(&self, run_id: RunId, patience: Duration) -> Result<Option<RunRequest>, ApiError> {
        let (notes, mut listener, _) = self.listen(run_id, false);
        if let Some(request) = notes.iter().find_map(Note::accepted) {
            return Ok(Some(request.clone()));
        }
        if let Some(head) = run_heads::head(&self.inner.sql, run_id).await? {
            return Ok(Some(head.request));
        }
        let first = tokio::time::timeout(patience, listener.next()).await.ok().flatten();
        Ok(first.as_ref().and_then(Note::accepted).cloned())
    }

    /// Where an ingest is; one that was just accepted shows without documents.
    pub async fn ingest(&self, ingest_id: IngestId) -> Result<Option<IngestView>, ApiError> {
        if let Some(stored) = documents::ingest(&self.inner.sql, Within::EveryNamespace, ingest_id).await? {
            let chunks = document_queries::ingest_chunks(&self.inner.sql, ingest_id).await?;
            return Ok(Some(IngestView::new(stored, chunks)));
        }
        Ok(self.inner.state.lock().pending_ingests.get(&ingest_id).cloned())
    }

    /// Remembers an ingest whose command is on the log, so that it can be read before a worker takes it.
    pub fn remember_ingest(&self, ingest_id: IngestId, target: &IngestTarget) {
        let nothing_yet = StoredIngest {
            ingest_id,
            status: IngestStatus::Running,
            namespace: target.namespace.clone(),
            collection: target.collection.clone(),
            source: None,
            documents: DocumentCounts::default(),
            skipped: None,
            left_out: Vec::new(),
            notes: Vec::new(),
            failures: Vec::new(),
            error: None,
            created_at: Timestamp(now_ms()),
            finished_at: None,
        };
        let mut view = IngestView::new(nothing_yet, 0);
        let mut state = self.inner.state.lock();
        if let Some(unread) = state.early.take(&ingest_id.to_string(), now_ms()) {
            unread.end(&mut view);
        }
        state.pending_ingests.insert(ingest_id, view);
        state.pending_ingest_order.push_back(ingest_id);
        if state.pending_ingest_order.len() > MAX_PENDING
            && let Some(oldest) = state.pending_ingest_order.pop_front()
        {
            state.pending_ingests.remove(&oldest);
        }
    }

    fn snapshot(&self, run_id: RunId) -> (Vec<Note>, Option<Pending>) {
        let state = self.inner.state.lock();
        (state.runs.get(&run_id).map(LiveRun::notes).unwrap_or_default(), state.pending.get(&run_id).cloned())
    }

    /// Every step behind `after` once and in order, then one end; `tokens` adds what models write on the way.
    pub fn run_stream(&self, run_id: RunId, after: i64, tokens: bool) -> RunStream {
        RunStream::new(self.clone(), run_id, after, tokens)
    }

    /// What becomes of an ingest, from now to its end.
    pub fn ingest_stream(&self, ingest_id: IngestId) -> IngestStream {
        IngestStream::new(self.clone(), ingest_id)
    }

    fn listen(&self, run_id: RunId, tokens: bool) -> (Vec<Note>, Listener, bool) {
        let mut state = self.inner.state.lock();
        let pending = state.pending.contains_key(&run_id);
        let run = state.runs.entry(run_id).or_default();
        let listener = run.listen(tokens);
        (run.notes(), listener, pending)
    }

    fn listen_to_ingest(&self, ingest_id: IngestId) -> watch::Receiver<Seen> {
        let mut state = self.inner.state.lock();
        state.ingests.entry(ingest_id).or_insert_with(|| watch::Sender::new(Seen::new())).subscribe()
    }

    /// An event of a run, in the order of the log.
    fn on_run_event(&self, partition: i32, offset: i64, event: &AgentEvent) {
        let run_id = event.run_id();
        let mut state = self.inner.state.lock();
        let state = &mut *state;
        if state.ended.set.contains(&run_id) {
            self.inner.void_events.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.pending.remove(&run_id);
        let run = state.runs.entry(run_id).or_default();
        match run.apply(partition, offset, event) {
            Some(kept) => {
                state.buffered += kept;
                self.inner.figures.count(event);
            }
            None => {
                self.inner.void_events.fetch_add(1, Ordering::Relaxed);
            }
        }
        if run.has_ended() {
            state.ended.insert(run_id, MAX_ENDED);
        }
    }

    fn on_ingest_event(&self, ingest_id: IngestId, partition: i32, offset: i64) {
        let state = self.inner.state.lock();
        if let Some(sender) = state.ingests.get(&ingest_id) {
            sender.send_modify(|seen| {
                seen.insert(partition, offset);
            });
        }
    }

    fn on_token(&self, delta: &TokenDelta, attempt: Option<Attempt>) {
        let mut state = self.inner.state.lock();
        if let Some(run) = state.runs.get_mut(&delta.run_id) {
            run.tell_token(delta.seq, attempt, &delta.text);
        }
    }

    /// Waits until there is room for more events.
    async fn wait_for_room(&self) {
        let mut told = false;
        while self.inner.state.lock().buffered >= MAX_BUFFERED {
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(buffered = MAX_BUFFERED, "streams wait for the read model to catch up");
            }
            self.inner.room.notified().await;
        }
    }

    /// The read model's next offset of each partition of a topic.
    async fn projected(&self, topic: Topic) -> Result<HashMap<i32, i64>, StoreError> {
        let all = read_models::checkpoints(&self.inner.sql).await?;
        Ok(all.into_iter().filter(|c| c.topic == topic.name()).map(|c| (c.partition, c.next_offset)).collect())
    }

    /// Drops what the read model has, and runs that nobody needs any more.
    async fn sweep(&self) -> Result<(), StoreError> {
        let wanted = {
            let state = self.inner.state.lock();
            state.buffered > 0 || state.runs.values().any(LiveRun::is_idle)
        };
        let projected = if wanted { self.projected(Topic::AgentEvents).await? } else { HashMap::new() };
        let mut state = self.inner.state.lock();
        let state = &mut *state;
        for run in state.runs.values_mut() {
            state.buffered -= run.drop_projected(&projected);
        }
        state.runs.retain(|_, run| !run.is_idle());
        state.ingests.retain(|_, sender| sender.receiver_count() > 0);
        state.pending_order.retain(|run_id| state.pending.contains_key(run_id));
        if state.buffered < MAX_BUFFERED {
            self.inner.room.notify_waiters();
        }
        Ok(())
    }
}

async fn janitor(hub: Hub, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(JANITOR_PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while tokio::select! { () = stop.cancelled() => false, _ = ticks.tick() => true } {
        if let Err(error) = hub.sweep().await {
            tracing::warn!(error = %error, "the read model's offsets can't be read");
        }
    }
}

/// The hub can't begin.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The read model can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] LogError),
}
