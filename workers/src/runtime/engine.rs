//! The one loop of a worker. It owns all state; work runs in tasks beside it and reports back.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riverrun_log::{
    CommitOffset, GroupConfig, GroupConsumer, LogError, OutOfRange, SessionEvent, TopicPartition, TransactionalProducer,
};
use riverrun_schemas::EventSet;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{AbortHandle, Id, JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::attempt::{Ending, Job, Slot};
use super::board::{Board, Due, LaneId, Taken};
use super::commit::Commits;
use super::starts::{Starts, starts};
use super::{
    Context, DeliveryMode, Lanes, Progress, RuntimeConfig, RuntimeError, Worker, WorkerState, backoff, group_of,
};

/// How long the last commit of partitions that are given back may take.
const LAST_COMMIT: Duration = Duration::from_secs(3);
/// How often a broker that was away is asked whether it is back.
const CHECK_PAUSE: Duration = Duration::from_millis(500);

/// Partitions that are to be given back once their work has ended.
struct Releasing {
    partitions: Vec<TopicPartition>,
    lost: bool,
    deadline: Instant,
}

/// A batch in the hands of the worker.
struct Running {
    lane: LaneId,
    taken: Taken,
    task: AbortHandle,
}

struct Engine<W: Worker> {
    worker: Arc<W>,
    config: Arc<RuntimeConfig>,
    context: Arc<Context>,
    progress: Progress,
    consumer: GroupConsumer,
    board: Board,
    jobs: JoinSet<Ending>,
    running: HashMap<Id, Running>,
    slots: Arc<Semaphore>,
    freed: Arc<Notify>,
    commits: Commits,
    assigning: Option<JoinHandle<Result<Starts, RuntimeError>>>,
    releasing: Option<Releasing>,
    /// When a stopping worker ends whatever is in work.
    stopping: Option<Instant>,
    checking: Option<JoinHandle<()>>,
}

enum Wake {
    Stop,
    Session(Result<SessionEvent, LogError>),
    Job(Result<(Id, Ending), JoinError>),
    Freed,
    Starts(Result<Starts, RuntimeError>),
    Transaction(Result<Vec<riverrun_log::CommitOffset>, LogError>),
    Healthy,
    Time,
}

pub(super) async fn run<W: Worker>(
    worker: W,
    config: RuntimeConfig,
    progress: Progress,
    stop: CancellationToken,
) -> Result<(), RuntimeError> {
    let transactions = match worker.delivery() {
        DeliveryMode::AtLeastOnce => None,
        DeliveryMode::Transactional => match open_transactions(worker.name(), &config, &progress, &stop).await? {
            Some(producer) => Some(producer),
            None => return Ok(()),
        },
    };
    let mut engine = Engine::new(worker, config, progress, transactions)?;
    let result = engine.run(stop).await;
    engine.end(result).await
}

/// `None` when the worker was stopped before the broker answered.
async fn open_transactions(
    name: &str,
    config: &RuntimeConfig,
    progress: &Progress,
    stop: &CancellationToken,
) -> Result<Option<TransactionalProducer>, LogError> {
    let id = format!(
        "{}.{}",
        group_of(name),
        config.instance.clone().unwrap_or_else(|| riverrun_schemas::EventId::new().to_string())
    );
    let mut failures = 0;
    loop {
        let opened = tokio::select! {
            () = stop.cancelled() => return Ok(None),
            opened = TransactionalProducer::open(&config.log, &id) => opened,
        };
        match opened {
            Ok(producer) => return Ok(Some(producer)),
            Err(error) if error.retryable() => {
                failures += 1;
                progress.trouble(&error);
                tracing::warn!(worker = name, error = %error, "transactions can't be opened; trying again");
                tokio::select! {
                    () = stop.cancelled() => return Ok(None),
                    () = tokio::time::sleep(backoff::draw(config.backoff_base, config.backoff_max, failures)) => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
}

impl<W: Worker> Engine<W> {
    fn new(
        worker: W,
        config: RuntimeConfig,
        progress: Progress,
        transactions: Option<TransactionalProducer>,
    ) -> Result<Self, LogError> {
        let group = group_of(worker.name());
        let membership = GroupConfig {
            instance: config.instance.clone(),
            session_timeout: config.session_timeout,
            heartbeat: config.heartbeat,
            ..GroupConfig::new(group.clone(), vec![W::Input::TOPIC.name().to_owned()])
        };
        let consumer = GroupConsumer::join(&config.log, &membership)?;
        progress.watch(consumer.watch());
        let parallel = match worker.lanes() {
            Lanes::PerKey { parallel, .. } => parallel.max(1),
            // As many as there are partitions.
            Lanes::PerPartition { .. } => Semaphore::MAX_PERMITS,
        };
        let context = Context {
            log: config.log.clone(),
            producer: config.producer.clone(),
            schemas: config.schemas.clone(),
            group,
            in_hand: config.in_hand.clone(),
        };
        Ok(Self {
            board: Board::new(worker.lanes(), worker.delivery(), &config),
            commits: Commits::new(transactions, config.commit_interval),
            worker: Arc::new(worker),
            context: Arc::new(context),
            config: Arc::new(config),
            progress,
            consumer,
            jobs: JoinSet::new(),
            running: HashMap::new(),
            slots: Arc::new(Semaphore::new(parallel)),
            freed: Arc::new(Notify::new()),
            assigning: None,
            releasing: None,
            stopping: None,
            checking: None,
        })
    }

    async fn run(&mut self, stop: CancellationToken) -> Result<(), RuntimeError> {
        loop {
            self.begin_batches();
            self.balance()?;
            self.begin_commit()?;
            self.finish_release().await?;
            if self.stopping.is_some_and(|deadline| self.board.idle() || Instant::now() >= deadline) {
                return Ok(());
            }
            self.progress.in_work(self.board.in_work());
            match self.wake(&stop).await {
                Wake::Stop => self.begin_stop(),
                Wake::Session(event) => self.on_session(event?).await?,
                Wake::Job(ended) => self.on_job(ended)?,
                Wake::Starts(starts) => self.on_starts(starts?)?,
                Wake::Transaction(result) => self.on_commit(result)?,
                Wake::Healthy => self.progress.recovered(),
                Wake::Freed | Wake::Time => {}
            }
        }
    }

    async fn wake(&mut self, stop: &CancellationToken) -> Wake {
        let deadline = self.next_deadline();
        let stopping = self.stopping.is_some();
        tokio::select! {
            () = stop.cancelled(), if !stopping => Wake::Stop,
            Some(ended) = self.jobs.join_next_with_id() => Wake::Job(ended),
            starts = joined(&mut self.assigning) => Wake::Starts(starts.unwrap_or_else(|_| Err(RuntimeError::Panicked(self.worker.name().to_owned())))),
            result = self.commits.transaction() => Wake::Transaction(result),
            _ = joined(&mut self.checking) => Wake::Healthy,
            event = self.consumer.next() => Wake::Session(event),
            () = self.freed.notified() => Wake::Freed,
            () = until(deadline) => Wake::Time,
        }
    }

    /// The next moment at which something is to be done without being called: none, when there is nothing to do.
    fn next_deadline(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let commit = if self.board.is_due() { self.commits.may_begin_at(now) } else { None };
        let release = self.releasing.as_ref().map(|releasing| releasing.deadline);
        [self.board.next_ripe(now), commit, release, self.stopping].into_iter().flatten().min()
    }

    /// Hands batches to workers, as many as may work at a time.
    fn begin_batches(&mut self) {
        while let Ok(permit) = self.slots.clone().try_acquire_owned() {
            let Some(batch) = self.board.next_batch(Instant::now()) else { return };
            let taken = Taken::of(&batch.records);
            let job = Job {
                worker: self.worker.clone(),
                context: self.context.clone(),
                config: self.config.clone(),
                progress: self.progress.clone(),
                slot: Slot { all: self.slots.clone(), mine: Some(permit), freed: self.freed.clone() },
                quiet: batch.quiet,
                records: batch.records,
            };
            let task = self.jobs.spawn(job.run());
            self.running.insert(task.id(), Running { lane: batch.lane, taken, task });
        }
    }

    fn balance(&mut self) -> Result<(), LogError> {
        let (pause, resume) = self.board.pressure();
        if !pause.is_empty() {
            tracing::debug!(group = self.context.group, partitions = pause.len(), "queue is full; pausing");
            self.consumer.pause(&pause)?;
        }
        if !resume.is_empty() {
            self.consumer.resume(&resume)?;
        }
        Ok(())
    }

    fn begin_commit(&mut self) -> Result<(), RuntimeError> {
        let now = Instant::now();
        if self.board.is_due() && self.commits.may_begin_at(now).is_some_and(|at| now >= at) {
            let due = noted(&*self.worker, self.board.due(None));
            if let Err(error) = self.commits.begin(&self.consumer, due, now) {
                return self.on_commit(Err(error));
            }
        }
        Ok(())
    }

    async fn on_session(&mut self, event: SessionEvent) -> Result<(), RuntimeError> {
        match event {
            SessionEvent::Record(record) => {
                self.board.push(record, Instant::now());
            }
            SessionEvent::Assigned(partitions) => {
                tracing::info!(group = self.context.group, partitions = partitions.len(), "partitions assigned");
                let (worker, context, config) = (self.worker.clone(), self.context.clone(), self.config.clone());
                self.assigning = Some(tokio::spawn(starts(worker, context, config, partitions)));
            }
            SessionEvent::Revoked { partitions, lost } => self.begin_release(partitions, lost),
            SessionEvent::OutOfRange(gap) => self.on_gap(gap)?,
            SessionEvent::Passed { partition, next } => {
                self.board.passed(&partition, next);
                if let Some(offset) = self.board.committable(&partition) {
                    self.progress.position(&partition, offset);
                }
            }
            SessionEvent::End(_) => {}
            SessionEvent::Committed { error, .. } => {
                let answer = self.commits.answered(error);
                self.on_commit(answer)?;
            }
            SessionEvent::Trouble(error) => {
                tracing::warn!(group = self.context.group, error = %error, "trouble with the log");
                self.on_trouble(&error);
            }
        }
        Ok(())
    }

    fn on_trouble(&mut self, error: &LogError) {
        self.progress.trouble(error);
        let partitions = self.board.all();
        let watch = self.consumer.watch();
        if self.checking.is_none() {
            self.checking = Some(tokio::spawn(async move {
                // Any partition will do; without one the next assignment tells that the broker is back.
                while let Some(partition) = partitions.first() {
                    tokio::time::sleep(CHECK_PAUSE).await;
                    match watch.high(partition).await {
                        Some(Err(_)) => {}
                        Some(Ok(_)) | None => return,
                    }
                }
                pending::<()>().await;
            }));
        }
    }

    fn on_starts(&mut self, starts: Starts) -> Result<(), RuntimeError> {
        self.consumer.start(&starts)?;
        for (partition, _) in starts {
            let offset = self.consumer.position(&partition).unwrap_or(0);
            self.progress.position(&partition, offset);
            // Whatever it was when it was ours before.
            self.consumer.resume(std::slice::from_ref(&partition))?;
            if let Some(marks) = &self.config.in_hand {
                marks.passed(&self.context.group, &partition, offset);
            }
            self.board.open(partition, offset);
        }
        if self.stopping.is_some() {
            self.board.begin_stop();
        }
        if let Some(checking) = self.checking.take() {
            checking.abort();
        }
        self.progress.recovered();
        self.progress.assigned(self.board.partitions());
        Ok(())
    }

    /// Records are gone. Whatever was in work before the gap counts no more: its offsets may mean other records by now.
    fn on_gap(&mut self, gap: OutOfRange) -> Result<(), LogError> {
        self.progress.out_of_range();
        if self.board.committable(&gap.partition).is_some() {
            self.board.open(gap.partition.clone(), gap.low);
            self.progress.position(&gap.partition, gap.low);
            self.consumer.resume(&[gap.partition])?;
        }
        Ok(())
    }

    fn begin_release(&mut self, partitions: Vec<TopicPartition>, lost: bool) {
        tracing::info!(group = self.context.group, partitions = partitions.len(), lost, "partitions revoked");
        if let Some(assigning) = self.assigning.take() {
            assigning.abort();
        }
        self.board.begin_close(&partitions);
        self.releasing = Some(Releasing { partitions, lost, deadline: Instant::now() + self.config.revoke_patience });
    }

    /// Gives partitions back when their work has ended, or has taken too long.
    async fn finish_release(&mut self) -> Result<(), RuntimeError> {
        let Some(releasing) = &self.releasing else { return Ok(()) };
        if !releasing.lost && self.board.busy(&releasing.partitions) && Instant::now() < releasing.deadline {
            return Ok(());
        }
        let Some(Releasing { partitions, lost, .. }) = self.releasing.take() else { return Ok(()) };
        self.abort_jobs(Some(&partitions));
        if !lost {
            self.commit_last(Some(&partitions)).await;
        }
        self.worker.revoked(&partitions).await;
        self.board.close(&partitions);
        partitions.iter().for_each(|partition| self.progress.forget(partition));
        self.progress.assigned(self.board.partitions());
        self.consumer.release(&partitions)?;
        Ok(())
    }

    /// What can't be committed any more comes again: harmless, but worth a line.
    async fn commit_last(&mut self, partitions: Option<&[TopicPartition]>) {
        let Self { worker, commits, consumer, board, .. } = self;
        let due = |before: &[riverrun_log::CommitOffset]| {
            board.committed(before);
            noted(&**worker, board.due(partitions))
        };
        match commits.last(consumer, due, LAST_COMMIT).await {
            Ok(offsets) => self.board.committed(&offsets),
            Err(error) => {
                tracing::warn!(group = self.context.group, error = %error, "last offsets not committed; their records come again")
            }
        }
    }

    /// Drops work in progress; the loop hears of each batch as abandoned.
    fn abort_jobs(&mut self, of: Option<&[TopicPartition]>) {
        let doomed: Vec<&Running> =
            self.running.values().filter(|job| of.is_none_or(|of| of.contains(&job.lane.partition))).collect();
        if !doomed.is_empty() {
            tracing::warn!(
                group = self.context.group,
                batches = doomed.len(),
                "work in progress is dropped; it comes again"
            );
            doomed.iter().for_each(|job| job.task.abort());
        }
    }

    fn on_job(&mut self, ended: Result<(Id, Ending), JoinError>) -> Result<(), RuntimeError> {
        let (id, ending) = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_cancelled() => (error.id(), Ending::Abandoned),
            Err(error) => {
                tracing::error!(group = self.context.group, error = %error, "the loop's own work panicked");
                (error.id(), Ending::Fatal(RuntimeError::Panicked(self.worker.name().to_owned())))
            }
        };
        let Some(Running { lane, taken, .. }) = self.running.remove(&id) else { return Ok(()) };
        match ending {
            Ending::Done(outputs) => {
                self.progress.handled(taken.offsets.len() as u64);
                self.board.end(&lane, &taken, Some(outputs));
                if let Some(offset) = self.board.committable(&lane.partition) {
                    self.progress.position(&lane.partition, offset);
                }
                Ok(())
            }
            Ending::Abandoned => {
                self.board.end(&lane, &taken, None);
                Ok(())
            }
            Ending::Fatal(error) => Err(error),
        }
    }

    fn on_commit(&mut self, result: Result<Vec<riverrun_log::CommitOffset>, LogError>) -> Result<(), RuntimeError> {
        match result {
            Ok(offsets) => {
                self.board.committed(&offsets);
                Ok(())
            }
            Err(error @ LogError::Fenced { .. }) => Err(error.into()),
            Err(error) => {
                // The next commit covers what this one did not.
                tracing::warn!(group = self.context.group, error = %error, "commit failed; trying again");
                Ok(())
            }
        }
    }

    fn begin_stop(&mut self) {
        self.progress.enter(WorkerState::Stopping);
        self.board.begin_stop();
        self.stopping = Some(Instant::now() + self.config.stop_patience);
    }

    /// Ends what is left, commits what is done, leaves the group.
    async fn end(mut self, result: Result<(), RuntimeError>) -> Result<(), RuntimeError> {
        self.abort_jobs(None);
        self.commit_last(None).await;
        let partitions = self.board.all();
        self.worker.revoked(&partitions).await;
        self.consumer.close().await;
        result
    }
}

/// Offsets with what the worker wants to know of them later.
fn noted<W: Worker>(worker: &W, mut due: Due) -> Due {
    for CommitOffset { partition, offset, metadata } in &mut due.offsets {
        *metadata = worker.note(partition, *offset);
    }
    due
}

async fn joined<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    let Some(running) = task else { return pending().await };
    let result = running.await;
    *task = None;
    result
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => pending().await,
    }
}
