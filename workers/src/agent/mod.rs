//! The agent worker: takes commands to runs and drives the runs of its partitions.
//!
//! A command is done as soon as its event is acknowledged (`RunAccepted`, `RunCancelRequested`, …): a run that takes an hour
//! holds no offset back. Where to fold from after a restart stands beside the committed offset: the offset of the first
//! event of the oldest open run, or of its last snapshot. `agent.commands` and `agent.events` are co-partitioned, so
//! whoever has a partition of the one reads the same partition of the other.
//!
//! A run that waits for a person, for its session, or for the runs before it in a chain, has no task and no turn: its fold lies in its partition's table
//! until an event brings it on.
//!
//! Invariants: `AGENT-1` commands of a partition are accepted one batch after the other, and the note beside a committed
//! offset is taken before the next batch: so a command that comes twice finds its first acceptance in what is folded.
//! `AGENT-2` a driver acts only on what it has read back from the log. `AGENT-3` of the runs of a session that lie in a
//! partition, only the oldest open one is driven. `AGENT-5` a run that waits for others begins or ends by what the log says
//! of them, in whatever order and place that came there. `AGENT-6` a run that ends its workers is claimed a bounded number of
//! times in a row, and meanwhile takes no other run with it for long. `AGENT-7` a run that can't be read for now stays open: the note
//! does not pass it, words to it are taken, and it is read again until it can be driven.

mod asides;
mod calls;
mod chains;
mod clock;
mod commands;
mod context;
mod driver;
mod ending;
mod folding;
mod forks;
mod heard;
mod held;
mod lookup;
mod partition;
mod past;
mod places;
mod ready;
mod refused;
mod retries;
mod room;
mod routing;
mod sessions;
mod snapshots;
mod strangers;
mod tokens;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use riverrun_agents::Policy;
use riverrun_agents::decide::{self, Failed};
use riverrun_agents::tools::Toolbox;
use riverrun_log::{
    BlobStore, CommitOffset, GroupConfig, GroupConsumer, LogConfig, LogError, Producer, Record, Schemas, SessionEvent,
    Tail, TopicPartition,
};
use riverrun_models::Models;
use riverrun_schemas::agent::AgentEvent;
use riverrun_schemas::{Failure, RunId, Topic, now_ms};
use riverrun_stores::Cache;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::runtime::{Progress, WorkerHandle};
use asides::Tried;
use context::AgentContext;
use driver::{Driver, Released};
use lookup::Answer;
use partition::Partition;
use places::Places;
use ready::ReadyRun;

/// Name in `ce_source` and in logs.
const COMPONENT: &str = "agent-worker";
/// The consumer group.
pub const GROUP: &str = "riverrun.agent";

/// Commands that are accepted together at most.
const MAX_BATCH: usize = 256;
/// How often the note beside the committed offset follows the runs that have ended.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long a run waits for one that was never asked for, counted while one worker has its partition.
pub const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(60);
/// How often the worker says that it lives, which is also how soon it hears that others have come or gone: runs of theirs
/// wait so long, twice where partitions move from one to another.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a stopping worker waits for its runs to let go.
const DRAIN: Duration = Duration::from_secs(5);

/// What the agent worker needs.
#[derive(Clone)]
pub struct AgentWorkerConfig {
    /// Where the log is.
    pub log: LogConfig,
    /// Schemas that events may be written with.
    pub schemas: Schemas,
    /// Static group membership; `None` leaves the group at once when stopping.
    pub instance: Option<String>,
    /// Runs driven at once; others wait as `queued`.
    pub max_concurrent_runs: usize,
    /// For requests that say nothing: most iterations.
    pub default_max_iters: i32,
    /// For requests that say nothing: sampling temperature.
    pub default_temperature: f64,
    /// Which tool calls are made, asked about and refused.
    pub policy: Arc<Policy>,
    /// How long a run waits for one that was never asked for; see [`PREDECESSOR_PATIENCE`].
    pub predecessor_patience: Duration,
    /// Has the folds of long runs for a while, where another process that takes one over sees it.
    pub cache: Arc<dyn Cache>,
}

/// Starts the worker.
pub fn spawn(
    config: AgentWorkerConfig,
    producer: Producer,
    models: Models,
    toolbox: Toolbox,
    blobs: Arc<dyn BlobStore>,
    stop: CancellationToken,
) -> WorkerHandle {
    let worker = format!("{}-{}", config.instance.as_deref().unwrap_or("agent"), riverrun_schemas::EventId::new());
    let max_runs = config.max_concurrent_runs.max(1);
    let context = Arc::new(AgentContext {
        worker,
        producer,
        models,
        toolbox,
        policy: config.policy.clone(),
        blobs,
        cache: config.cache.clone(),
        agent_vectors: routing::AgentVectors::default(),
        places: Places::new(max_runs),
    });
    WorkerHandle::spawn("agent", GROUP, stop.clone(), move |progress| {
        Coordinator::new(config, context, progress).run(stop)
    })
}

struct Coordinator {
    config: AgentWorkerConfig,
    context: Arc<AgentContext>,
    progress: Progress,
    partitions: HashMap<i32, Partition>,
    tail: Option<Tail>,
    drivers: JoinSet<Released>,
    driving: HashMap<tokio::task::Id, Driving>,
    /// Of a partition: a command whose schema is asked for, and those behind it.
    held: HashMap<i32, Vec<Record>>,
    asking: JoinSet<TopicPartition>,
    /// Looks for runs that others wait for.
    searches: JoinSet<Answer>,
    /// Tries to read runs that could not be read.
    restoring: JoinSet<Tried>,
}

/// A driver at work.
struct Driving {
    partition: i32,
    run_id: RunId,
    /// Cancelled when the partition went elsewhere: what the driver leaves behind is then no longer ours.
    stop: CancellationToken,
}

/// What the loop woke up for. It is taken apart at once: a box would only cost.
enum Wake {
    Stop,
    Group(Result<SessionEvent, LogError>),
    Event(Result<Record, LogError>),
    Driver(Result<(tokio::task::Id, Released), tokio::task::JoinError>),
    Schema(Result<TopicPartition, tokio::task::JoinError>),
    Looked(Result<Answer, tokio::task::JoinError>),
    Tried(Result<Tried, tokio::task::JoinError>),
    Note,
}

impl Coordinator {
    fn new(config: AgentWorkerConfig, context: Arc<AgentContext>, progress: Progress) -> Self {
        Self {
            config,
            context,
            progress,
            partitions: HashMap::new(),
            tail: None,
            drivers: JoinSet::new(),
            driving: HashMap::new(),
            held: HashMap::new(),
            asking: JoinSet::new(),
            searches: JoinSet::new(),
            restoring: JoinSet::new(),
        }
    }

    async fn run(mut self, stop: CancellationToken) -> Result<(), LogError> {
        let mut group = GroupConsumer::join(
            &self.config.log,
            &GroupConfig {
                instance: self.config.instance.clone(),
                heartbeat: HEARTBEAT,
                ..GroupConfig::new(GROUP, vec![Topic::AgentCommands.name().to_owned()])
            },
        )?;
        self.progress.watch(group.watch());
        let mut note = tokio::time::interval(NOTE_INTERVAL);
        note.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wake = tokio::select! {
                biased;
                () = stop.cancelled() => Wake::Stop,
                record = next_of(&mut self.tail) => Wake::Event(record),
                Some(left) = self.drivers.join_next_with_id() => Wake::Driver(left),
                Some(asked) = self.asking.join_next() => Wake::Schema(asked),
                Some(looked) = self.searches.join_next() => Wake::Looked(looked),
                Some(tried) = self.restoring.join_next() => Wake::Tried(tried),
                event = group.next() => Wake::Group(event),
                _ = note.tick() => Wake::Note,
            };
            match wake {
                Wake::Stop => break,
                Wake::Event(Ok(record)) => self.on_event(&record).await,
                Wake::Event(Err(error)) => tracing::warn!(error = %error, "reading run events"),
                Wake::Driver(left) => self.on_driver(left).await,
                Wake::Group(event) => self.on_session(&mut group, event?, &stop).await?,
                Wake::Schema(asked) => self.on_schema(&group, asked, &stop).await?,
                Wake::Looked(answer) => self.on_looked(answer),
                Wake::Tried(tried) => self.on_tried(tried),
                Wake::Note => {
                    self.write_notes(&group)?;
                    self.end_out_of_time();
                    self.look_for_strangers();
                    self.end_cancelled_asides().await;
                    self.read_asides();
                }
            }
        }
        self.drain().await;
        self.write_notes(&group)?;
        group.close().await;
        Ok(())
    }

    async fn on_session(
        &mut self,
        group: &mut GroupConsumer,
        event: SessionEvent,
        stop: &CancellationToken,
    ) -> Result<(), LogError> {
        match event {
            SessionEvent::Assigned(assigned) => self.on_assigned(group, assigned, stop).await,
            SessionEvent::Revoked { partitions, lost } => self.on_revoked(group, &partitions, lost).await,
            SessionEvent::Record(first) => {
                let (batch, other) = gather(group, first);
                let ready = self.hold_back(group, batch);
                self.on_commands(group, ready, stop).await?;
                match other {
                    Some(event) => Box::pin(self.on_session(group, event?, stop)).await,
                    None => Ok(()),
                }
            }
            SessionEvent::Passed { partition, next } => {
                self.pass(&partition, next);
                Ok(())
            }
            SessionEvent::OutOfRange(gap) => {
                tracing::error!(partition = %gap.partition, wanted = gap.wanted, low = gap.low, "commands fell off the log before they were read");
                Ok(())
            }
            SessionEvent::Committed { error: Some(error), .. } => {
                tracing::warn!(error = %error, "offsets not committed; they go along with the next commit");
                Ok(())
            }
            SessionEvent::Committed { error: None, .. } | SessionEvent::End(_) => Ok(()),
            SessionEvent::Trouble(error) => {
                self.progress.trouble(&error);
                Ok(())
            }
        }
    }

    fn drive(&mut self, partition: i32, run: ReadyRun) {
        let Some(state) = self.partitions.get(&partition) else { return };
        let run_id = run.state.run_id;
        let stop = state.stop.child_token();
        let turn = self.context.places.turn(decide::is_suspect(&run.state));
        let driver = Driver::new(self.context.clone(), run, partition, stop.clone());
        let task = self.drivers.spawn(driver.run(turn));
        self.driving.insert(task.id(), Driving { partition, run_id, stop });
    }

    /// Drives what the partition says can be driven now.
    fn drive_ready(&mut self, partition: i32) {
        let ready = self.partitions.get_mut(&partition).map(Partition::take_ready).unwrap_or_default();
        for run in ready {
            self.drive(partition, run);
        }
    }

    /// Drives the runs to their ends whose time is over before their turn has come.
    fn end_out_of_time(&mut self) {
        let now = now_ms();
        self.partitions.values_mut().for_each(|partition| partition.wake_out_of_time(now));
        let numbers: Vec<i32> = self.partitions.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.drive_ready(number));
    }

    async fn on_driver(&mut self, left: Result<(tokio::task::Id, Released), tokio::task::JoinError>) {
        let (id, released) = match left {
            Ok((id, released)) => (id, Ok(released)),
            Err(error) => (error.id(), Err(error)),
        };
        let Some(Driving { partition, run_id, stop }) = self.driving.remove(&id) else { return };
        match released {
            Ok(Released { left, rests }) => {
                tracing::debug!(run_id = %run_id, ?left, "driver let go");
                let rests = rests.filter(|_| !stop.is_cancelled());
                if let (Some(run), Some(state)) = (rests, self.partitions.get_mut(&partition)) {
                    state.rest(run);
                    self.drive_ready(partition);
                }
            }
            Err(error) if error.is_panic() && !stop.is_cancelled() => {
                self.end_broken(partition, run_id, error.to_string()).await
            }
            Err(_) => {} // aborted: the process is stopping
        }
    }

    /// A defect in a driver ends its run with an error instead of leaving it open for ever.
    async fn end_broken(&self, partition: i32, run_id: RunId, panic: String) {
        tracing::error!(run_id = %run_id, panic, "driver broke off");
        let Some(epoch) = self.partitions.get(&partition).and_then(|state| state.epoch(&run_id)) else { return };
        let failure = Failure::new("internal", "the worker broke off while it drove the run")
            .with_hint("see the log of the worker");
        let ending = ending::without_state(run_id, epoch, Failed(failure).into());
        if let Err(error) =
            self.context.producer.send_to_partition(&AgentEvent::from(ending), partition, COMPONENT, None).await
        {
            tracing::error!(run_id = %run_id, error = %error, "can't end the run");
        }
    }

    /// Commits how far commands are accepted, with the offset that runs are to be folded from.
    fn write_notes(&mut self, group: &GroupConsumer) -> Result<(), LogError> {
        let due: Vec<CommitOffset> = self
            .partitions
            .iter_mut()
            .filter(|(_, state)| state.note_due)
            .map(|(number, state)| state.take_note(*number))
            .collect();
        if due.is_empty() { Ok(()) } else { group.commit(&due) }
    }

    async fn drain(&mut self) {
        self.context.places.end();
        for state in self.partitions.values() {
            state.stop.cancel();
        }
        let all = async { while self.drivers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, all).await.is_err() {
            tracing::warn!("runs did not let go in time; they go on from the log at the next start");
            self.drivers.abort_all();
        }
    }
}

impl Drop for Coordinator {
    /// However it ends, also where its task is aborted.
    fn drop(&mut self) {
        self.context.places.end();
    }
}

async fn next_of(tail: &mut Option<Tail>) -> Result<Record, LogError> {
    match tail {
        Some(tail) => tail.next().await,
        None => std::future::pending().await,
    }
}

/// Takes what else is there already, so that one acknowledgement serves many commands.
fn gather(group: &mut GroupConsumer, first: Record) -> (Vec<Record>, Option<Result<SessionEvent, LogError>>) {
    let mut batch = vec![first];
    while batch.len() < MAX_BATCH {
        match group.next().now_or_never() {
            Some(Ok(SessionEvent::Record(record))) => batch.push(record),
            Some(other) => return (batch, Some(other)),
            None => break,
        }
    }
    (batch, None)
}
