//! The agent worker: takes commands to runs and drives the runs of its partitions.
//!
//! A command is done as soon as its event is acknowledged (`RunAccepted`, `RunCancelRequested`): a run that takes an hour
//! holds no offset back. Where to fold from after a restart stands beside the committed offset: the offset of the first
//! event of the oldest open run. `agent.commands` and `agent.events` are co-partitioned, so whoever has a partition of
//! the one reads the same partition of the other.
//!
//! Invariants: `AGENT-1` commands of a partition are accepted one batch after the other, and the note beside a committed
//! offset is taken before the next batch: so a command that comes twice finds its first acceptance in what is folded.
//! `AGENT-2` a driver acts only on what it has read back from the log.

mod citations;
mod context;
mod driver;
mod partition;
mod routing;
mod tokens;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use riverrun_agents::tools::Toolbox;
use riverrun_log::{
    AssignedPartition, BlobStore, CommitOffset, DeadLetter, GroupConfig, GroupConsumer, LogConfig, LogError, Outgoing,
    Producer, Record, Schemas, SessionEvent, StartAt, Tail, TopicPartition,
};
use riverrun_models::Models;
use riverrun_schemas::agent::{
    AgentCommand, AgentEvent, RunAccepted, RunCancelRequested, RunOutcome, RunRequest, StartRun,
};
use riverrun_schemas::{Decoded, Failure, RunId, Topic, now_ms};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::runtime::{Progress, WorkerHandle};
use context::AgentContext;
use driver::{Driver, Left};
use partition::{Folded, Partition, ReadyRun};

/// Name in `ce_source` and in logs.
const COMPONENT: &str = "agent-worker";
/// The consumer group.
pub const GROUP: &str = "riverrun.agent";

/// Commands that are accepted together at most.
const MAX_BATCH: usize = 256;
/// How often the note beside the committed offset follows the runs that have ended.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(500);
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
        blobs,
        agent_vectors: routing::AgentVectors::default(),
        turns: Arc::new(Semaphore::new(max_runs)),
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
    drivers: JoinSet<Left>,
    driving: HashMap<tokio::task::Id, (i32, RunId)>,
}

/// What the loop woke up for.
enum Wake {
    Stop,
    Group(Result<SessionEvent, LogError>),
    Event(Result<Record, LogError>),
    Driver(Result<(tokio::task::Id, Left), tokio::task::JoinError>),
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
        }
    }

    async fn run(mut self, stop: CancellationToken) -> Result<(), LogError> {
        let mut group = GroupConsumer::join(
            &self.config.log,
            &GroupConfig {
                instance: self.config.instance.clone(),
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
                event = group.next() => Wake::Group(event),
                _ = note.tick() => Wake::Note,
            };
            match wake {
                Wake::Stop => break,
                Wake::Event(Ok(record)) => self.on_event(&record),
                Wake::Event(Err(error)) => tracing::warn!(error = %error, "reading run events"),
                Wake::Driver(left) => self.on_driver(left).await,
                Wake::Group(event) => self.on_session(&mut group, event?, &stop).await?,
                Wake::Note => self.write_notes(&group)?,
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
                self.on_commands(group, batch, stop).await?;
                match other {
                    Some(event) => Box::pin(self.on_session(group, event?, stop)).await,
                    None => Ok(()),
                }
            }
            SessionEvent::OutOfRange(gap) => {
                tracing::error!(partition = %gap.partition, wanted = gap.wanted, low = gap.low, "commands fell off the log before they were read");
                Ok(())
            }
            SessionEvent::Committed { error: Some(error), .. } => {
                tracing::warn!(error = %error, "offsets not committed; they go along with the next commit");
                Ok(())
            }
            SessionEvent::Committed { error: None, .. } => Ok(()),
            SessionEvent::Trouble(error) => {
                self.progress.trouble(&error);
                Ok(())
            }
        }
    }

    /// Folds the open runs of new partitions, then drives them and begins to take commands.
    async fn on_assigned(
        &mut self,
        group: &mut GroupConsumer,
        assigned: Vec<AssignedPartition>,
        stop: &CancellationToken,
    ) -> Result<(), LogError> {
        let mut starts: Vec<(TopicPartition, StartAt)> = self
            .tail
            .as_ref()
            .map(|tail| {
                tail.positions().iter().map(|(partition, next)| (partition.clone(), StartAt::Offset(*next))).collect()
            })
            .unwrap_or_default();
        for partition in &assigned {
            let number = partition.partition.partition;
            let fold_from = partition.metadata.parse::<i64>().map_or(StartAt::Beginning, StartAt::Offset);
            starts.push((TopicPartition::new(Topic::AgentEvents.name(), number), fold_from));
            let next_command = partition.committed.unwrap_or(partition.low);
            self.partitions.insert(number, Partition::new(next_command));
            self.progress.position(&partition.partition, next_command);
        }
        let tail = loop {
            match Tail::open(&self.config.log, starts.clone()).await {
                Ok(tail) => break tail,
                Err(error) if error.retryable() && !stop.is_cancelled() => {
                    tracing::warn!(error = %error, "can't read run events, trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        };
        let ends = tail.ends_at_open().clone();
        for (partition, next) in tail.positions() {
            if let Some(state) = self.partitions.get_mut(&partition.partition) {
                state.next_event = *next;
            }
        }
        self.tail = Some(tail);
        let behind = |this: &Self| {
            assigned.iter().any(|p| {
                let events = TopicPartition::new(Topic::AgentEvents.name(), p.partition.partition);
                let next = this.tail.as_ref().and_then(|tail| tail.positions().get(&events)).copied().unwrap_or(0);
                next < ends.get(&events).copied().unwrap_or(0)
            })
        };
        while behind(self) {
            let record = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                record = next_of(&mut self.tail) => record,
            };
            match record {
                Ok(record) => self.on_event(&record),
                Err(error) => tracing::warn!(error = %error, "folding run events"),
            }
        }
        for partition in &assigned {
            let number = partition.partition.partition;
            let open = self.partitions.get_mut(&number).map(Partition::go_live).unwrap_or_default();
            tracing::info!(partition = number, open_runs = open.len(), "agent worker takes a partition");
            for run in open {
                self.drive(number, run);
            }
        }
        self.progress.assigned(self.partitions.len());
        let starts: Vec<_> = assigned.iter().map(|p| (p.partition.clone(), p.default_start())).collect();
        group.start(&starts)
    }

    async fn on_revoked(
        &mut self,
        group: &mut GroupConsumer,
        partitions: &[TopicPartition],
        lost: bool,
    ) -> Result<(), LogError> {
        let mut notes = Vec::new();
        for partition in partitions {
            self.progress.forget(partition);
            if let Some(state) = self.partitions.remove(&partition.partition) {
                notes.push(state.note(partition.partition));
                state.stop.cancel();
            }
        }
        if !lost
            && !notes.is_empty()
            && let Err(error) = group.commit_now(&notes, DRAIN).await
        {
            tracing::warn!(error = %error, "offsets of revoked partitions not committed; their commands come again");
        }
        self.progress.assigned(self.partitions.len());
        group.release(partitions)
    }

    /// Accepts commands: their events are acknowledged before their offsets are committed.
    async fn on_commands(
        &mut self,
        group: &GroupConsumer,
        batch: Vec<Record>,
        stop: &CancellationToken,
    ) -> Result<(), LogError> {
        let mut outgoing: Vec<Outgoing> = Vec::new();
        let mut accepted: Vec<Option<(i32, RunId)>> = Vec::new();
        let mut batch_runs = std::collections::HashSet::new();
        for record in &batch {
            let Some(partition) = self.partitions.get(&record.partition) else { continue };
            match self.config.schemas.decode::<AgentCommand>(record) {
                Ok(Decoded::Event(AgentCommand::StartRun(command))) => {
                    if partition.knows(&command.run_id) || !batch_runs.insert(command.run_id) {
                        tracing::info!(run_id = %command.run_id, "run is known; the command came twice");
                        continue;
                    }
                    let run_id = command.run_id;
                    let event =
                        AgentEvent::from(RunAccepted { run_id, request: self.with_defaults(command), at: now_ms() });
                    outgoing.push(
                        Outgoing::caused_by(&event, COMPONENT, &record.envelope())?.to_partition(record.partition),
                    );
                    accepted.push(Some((record.partition, run_id)));
                }
                Ok(Decoded::Event(AgentCommand::CancelRun(command))) => {
                    if !partition.is_open(&command.run_id) && !batch_runs.contains(&command.run_id) {
                        tracing::info!(run_id = %command.run_id, "run is not open; nothing to cancel");
                        continue;
                    }
                    let event = AgentEvent::from(RunCancelRequested {
                        run_id: command.run_id,
                        reason: command.reason,
                        at: command.at,
                    });
                    outgoing.push(
                        Outgoing::caused_by(&event, COMPONENT, &record.envelope())?.to_partition(record.partition),
                    );
                    accepted.push(None);
                }
                Ok(Decoded::UnknownType { record: name }) => {
                    self.progress.dead_letter();
                    outgoing.push(DeadLetter::of(
                        record,
                        GROUP,
                        "unknown_event_type",
                        &format!("this version knows no {name}"),
                        1,
                    ));
                    accepted.push(None);
                }
                Err(error) => {
                    tracing::warn!(position = %record.position(), error = %error, "command can't be read; it goes to the dead letters");
                    self.progress.dead_letter();
                    outgoing.push(DeadLetter::of(record, GROUP, error.code(), &error.to_string(), 1));
                    accepted.push(None);
                }
            }
        }
        let positions = self.write(outgoing, stop).await?;
        for (position, run) in positions.iter().zip(accepted) {
            if let Some((partition, run_id)) = run
                && let Some(state) = self.partitions.get_mut(&partition)
            {
                state.accepted(run_id, position.offset);
            }
        }
        for record in &batch {
            if let Some(state) = self.partitions.get_mut(&record.partition) {
                state.next_command = state.next_command.max(record.offset + 1);
                state.note_due = true;
                self.progress.position(&record.topic_partition(), state.next_command);
            }
        }
        self.progress.handled(batch.len() as u64);
        self.write_notes(group)
    }

    fn with_defaults(&self, command: StartRun) -> RunRequest {
        let request = command.request;
        let models = &self.context.models;
        RunRequest {
            max_iters: request.max_iters.or(Some(self.config.default_max_iters)),
            temperature: request.temperature.or(Some(self.config.default_temperature)),
            // Written down, so that a run that goes on tomorrow goes on with the same model.
            model: request.model.or_else(|| Some(models.default_chat_model().to_owned())),
            ..request
        }
    }

    async fn write(
        &self,
        outgoing: Vec<Outgoing>,
        stop: &CancellationToken,
    ) -> Result<Vec<riverrun_log::Position>, LogError> {
        if outgoing.is_empty() {
            return Ok(Vec::new());
        }
        loop {
            match self.context.producer.send_many(outgoing.clone()).await {
                Ok(positions) => return Ok(positions),
                Err(error) if error.retryable() && !stop.is_cancelled() => {
                    tracing::warn!(error = %error, "can't accept commands, trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn on_event(&mut self, record: &Record) {
        let Some(partition) = self.partitions.get_mut(&record.partition) else { return };
        partition.next_event = record.offset + 1;
        let event = match self.config.schemas.decode::<AgentEvent>(record) {
            Ok(Decoded::Event(event)) => event,
            Ok(Decoded::UnknownType { record: name }) => {
                tracing::debug!(name, "event of a newer version skipped");
                return;
            }
            Err(error) => {
                tracing::warn!(position = %record.position(), error = %error, "what lies on the run events is no event; skipped");
                return;
            }
        };
        match partition.fold(record.offset, event) {
            Folded::Ready(run) => self.drive(record.partition, *run),
            Folded::Known => {}
        }
    }

    fn drive(&mut self, partition: i32, run: ReadyRun) {
        let Some(state) = self.partitions.get(&partition) else { return };
        let run_id = run.state.run_id;
        let driver = Driver {
            context: self.context.clone(),
            state: run.state,
            partition,
            inbox: run.inbox,
            stop: state.stop.child_token(),
        };
        let task = self.drivers.spawn(driver.run());
        self.driving.insert(task.id(), (partition, run_id));
    }

    async fn on_driver(&mut self, left: Result<(tokio::task::Id, Left), tokio::task::JoinError>) {
        let (id, broke) = match left {
            Ok((id, left)) => {
                tracing::debug!(?left, "driver let go");
                (id, None)
            }
            Err(error) => (error.id(), error.is_panic().then(|| error.to_string())),
        };
        let Some((partition, run_id)) = self.driving.remove(&id) else { return };
        if let Some(panic) = broke {
            self.end_broken(partition, run_id, panic).await;
        }
    }

    /// A defect in a driver ends its run with an error instead of leaving it open for ever.
    async fn end_broken(&self, partition: i32, run_id: RunId, panic: String) {
        tracing::error!(run_id = %run_id, panic, "driver broke off");
        let Some(epoch) = self.partitions.get(&partition).and_then(|state| state.epoch(&run_id)) else { return };
        let ending = riverrun_schemas::agent::RunFinished {
            run_id,
            epoch,
            status: RunOutcome::Failed,
            agent: String::new(),
            answer: None,
            citations: Vec::new(),
            usage: Default::default(),
            stop_reason: "error".to_owned(),
            error: Some(
                Failure::new("internal", "the worker broke off while it drove the run")
                    .with_hint("see the log of the worker"),
            ),
            at: now_ms(),
        };
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
