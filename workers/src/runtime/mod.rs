//! The loop that every worker shares: a worker is one method from a batch of typed events to the records that follow.
//!
//! The loop owns polling (apart from work), pausing when its bounded queue is full, lanes, commits, retries, dead letters,
//! draining and stopping. Its promises, by name:
//! - `LOOP-1` an offset is committed only when everything before it in its partition is done and what followed from it is
//!   acknowledged by the broker;
//! - `LOOP-2` records of one lane (a key, or a partition) are handled one after the other, in their order;
//! - `LOOP-3` a record that can't be handled goes to the dead letters with its bytes and the reason, once, and its partition goes on;
//! - `LOOP-4` after a revocation nothing of the partition is committed any more;
//! - `LOOP-5` a record that ends the process is given up after [`GIVEN_UP_AT`] ends, as one that can't be handled.
//!
//! Delivery is at least once: what a worker does must be harmless when it is done twice. Event ids derived from their
//! cause make the outputs so; [`testkit::twice`] checks it.

mod attempt;
mod backoff;
mod board;
mod commit;
mod engine;
mod handle;
mod in_hand;
mod readiness;
mod starts;
pub mod testkit;
mod watermark;

use std::time::Duration;

use async_trait::async_trait;
use riverrun_log::{
    AssignedPartition, BlobError, LogConfig, LogError, Outgoing, Position, Producer, Schemas, StartAt, TopicPartition,
};
use riverrun_schemas::{Envelope, EventId, EventSet};
use riverrun_stores::StoreError;
use tokio_util::sync::CancellationToken;

use crate::failures;

pub use handle::{Progress, WorkerHandle, WorkerState, WorkerStatus};
pub use in_hand::{ALONE_FROM, GIVEN_UP_AT, InHand};
pub use readiness::Readiness;
pub use watermark::Watermark;

/// How the work of a worker is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    /// A lane a key: up to `parallel` keys at a time, each in order, up to `max_batch` records of one key together.
    PerKey {
        /// Calls of [`Worker::handle`] at a time.
        parallel: usize,
        /// Records of one key in a call.
        max_batch: usize,
    },
    /// A lane a partition: records in order, up to `max_batch` together; a smaller batch waits up to `max_wait` for more.
    PerPartition {
        /// Records of one partition in a call.
        max_batch: usize,
        /// How long the first of a batch waits for others.
        max_wait: Duration,
    },
}

/// How outputs and offsets are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeliveryMode {
    /// Outputs first, acknowledged; then the offset. A crash between the two writes outputs again, with the same ids.
    #[default]
    AtLeastOnce,
    /// Outputs and offsets in one Kafka transaction. For short work: nothing is visible before the commit, and batches of
    /// [`Lanes::PerKey`] are of one record.
    Transactional,
}

/// An event that was handed to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery<E> {
    /// The event.
    pub event: E,
    /// What travelled beside it.
    pub envelope: Envelope,
    /// Where it lies.
    pub position: Position,
    /// Counts from 1.
    pub attempt: u32,
}

impl<E> Delivery<E> {
    /// The event's id as the cause of what follows; `None` when its writer set none.
    pub fn cause(&self) -> Option<EventId> {
        self.envelope.id.parse().ok()
    }
}

/// What the loop should do about a failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// Try again later: something that may pass.
    #[error("{reason} ({code})")]
    Retry {
        /// Stable, lower snake case.
        code: String,
        /// What failed, on what.
        reason: String,
    },
    /// This input will never work: to the dead letters with it.
    #[error("{reason} ({code})")]
    Poison {
        /// Stable, lower snake case.
        code: String,
        /// What failed, on what.
        reason: String,
    },
    /// No input can work: stop the worker.
    #[error("{reason} ({code})")]
    Fatal {
        /// Stable, lower snake case.
        code: String,
        /// What failed, on what.
        reason: String,
    },
}

impl WorkError {
    /// Something that may pass.
    pub fn retry(code: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Retry { code: code.into(), reason: reason.to_string() }
    }

    /// An input that will never work.
    pub fn poison(code: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Poison { code: code.into(), reason: reason.to_string() }
    }

    fn of(may_pass: bool, code: &str, reason: &dyn std::fmt::Display) -> Self {
        if may_pass { Self::retry(code, reason) } else { Self::poison(code, reason) }
    }

    /// No input can work.
    pub fn fatal(code: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Fatal { code: code.into(), reason: reason.to_string() }
    }
}

impl From<LogError> for WorkError {
    fn from(error: LogError) -> Self {
        match &error {
            LogError::Fenced { .. } => Self::fatal(error.code(), &error),
            _ => Self::of(error.retryable(), error.code(), &error),
        }
    }
}

impl From<StoreError> for WorkError {
    /// With the fix in its reason: it is all that is left of the error once the delivery is given up.
    fn from(error: StoreError) -> Self {
        Self::of(error.retryable(), error.code(), &failures::reason(&error, error.hint()))
    }
}

impl From<BlobError> for WorkError {
    fn from(error: BlobError) -> Self {
        Self::of(error.retryable(), error.code(), &error)
    }
}

/// What a worker may use while it handles a batch.
#[derive(Debug, Clone)]
pub struct Context {
    /// How to reach the log.
    pub log: LogConfig,
    /// For what has to be on the log before the batch is done; outputs are returned instead.
    pub producer: Producer,
    /// Reads records of any version.
    pub schemas: Schemas,
    /// The worker's consumer group.
    pub group: String,
    in_hand: Option<InHand>,
}

impl Context {
    /// The record at `position` has got on for good: should the process end, whoever is handed it again goes on from there. For long
    /// work, which would else be given up after many ends in none of which it was at fault.
    pub fn got_on(&self, position: &Position) {
        if let Some(marks) = &self.in_hand {
            marks.got_on(&self.group, &position.topic_partition(), position.offset);
        }
    }
}

/// From events to what follows from them.
#[async_trait]
pub trait Worker: Send + Sync + 'static {
    /// What it reads: one topic.
    type Input: EventSet;

    /// Lower case, unique; the consumer group is `riverrun.<name>`.
    fn name(&self) -> &'static str;

    /// How its work is laid out.
    fn lanes(&self) -> Lanes;

    /// Does the work of a batch (never empty, of one lane, in order) and returns the records to write. Effects elsewhere
    /// are durable before it returns. The future is dropped when the worker is stopped or loses the partition.
    async fn handle(&self, batch: &[Delivery<Self::Input>], context: &Context) -> Result<Vec<Outgoing>, WorkError>;

    /// An event that follows from `cause`. One that is too large or can't be written will not become writable by trying again.
    fn outgoing<E: EventSet>(&self, event: E, cause: &Envelope) -> Result<Outgoing, WorkError>
    where
        Self: Sized,
    {
        Outgoing::caused_by(&event, self.name(), cause).map_err(|error| WorkError::poison(error.code(), error))
    }

    /// The terminal events of a delivery that is given up, beside its dead letter.
    fn dead(&self, _delivery: &Delivery<Self::Input>, _code: &str, _reason: &str) -> Vec<Outgoing> {
        Vec::new()
    }

    /// Whether what is no event on its topic is this worker's to bury. One reader of a topic answers for it, so that a
    /// record is one dead letter whatever the number of groups; the others count it as skipped.
    fn answers_for_topic(&self) -> bool {
        true
    }

    /// How outputs and offsets are written.
    fn delivery(&self) -> DeliveryMode {
        DeliveryMode::AtLeastOnce
    }

    /// Prepares for partitions and says where to start; the group's committed offsets, when nothing better is known.
    async fn assigned(
        &self,
        partitions: &[AssignedPartition],
        _context: &Context,
    ) -> Result<Vec<(TopicPartition, StartAt)>, WorkError> {
        Ok(partitions.iter().map(|p| (p.partition.clone(), p.default_start())).collect())
    }

    /// What is committed beside `offset`, and comes back as [`AssignedPartition::metadata`] to whoever goes on there.
    fn note(&self, _partition: &TopicPartition, _offset: i64) -> Option<String> {
        None
    }

    /// Lets go of partitions: nothing of them is in work any more.
    async fn revoked(&self, _partitions: &[TopicPartition]) {}
}

/// The consumer group of a worker.
pub fn group_of(worker: &str) -> String {
    format!("riverrun.{worker}")
}

/// Why a worker stopped although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The log is gone for good, or another process has this one's place.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The worker said that no input can work.
    #[error("worker {worker} can't go on: {reason} ({code})")]
    Fatal {
        /// Its name.
        worker: String,
        /// Stable, lower snake case.
        code: String,
        /// What failed, on what.
        reason: String,
    },
    /// A defect of the loop itself.
    #[error("worker {0} panicked outside of its work; this is a defect, restart the process")]
    Panicked(String),
}

/// What the loop of a worker needs, with its limits.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// How to reach the log.
    pub log: LogConfig,
    /// Writes outputs and dead letters.
    pub producer: Producer,
    /// Reads records of any version.
    pub schemas: Schemas,
    /// Tells of records that ended the processes before this one; without it they end this one, too.
    pub in_hand: Option<InHand>,
    /// Static membership: a name that survives restarts and that no other live process of the group has.
    pub instance: Option<String>,
    /// A member that is silent for so long has died.
    pub session_timeout: Duration,
    /// How often a member says that it lives.
    pub heartbeat: Duration,
    /// Tries of a delivery before it is given up.
    pub max_attempts: u32,
    /// Pause after the first failure; doubles with each, with jitter.
    pub backoff_base: Duration,
    /// Longest pause.
    pub backoff_max: Duration,
    /// Records of a partition in queue and work; it is paused at this number and goes on at half.
    pub queue_records: usize,
    /// Bytes of all records in queue and work; everything is paused at this number and goes on at half.
    pub queue_bytes: usize,
    /// Offsets between the committed one and the newest in work; a partition whose slowest record holds so many back is paused.
    pub window: i64,
    /// Offsets are committed at most this often.
    pub commit_interval: Duration,
    /// How long a revoked partition's work may take to end.
    pub revoke_patience: Duration,
    /// How long a stopping worker's work may take to end.
    pub stop_patience: Duration,
}

impl RuntimeConfig {
    /// The usual limits.
    pub fn new(log: LogConfig, producer: Producer) -> Self {
        Self {
            schemas: log.schemas.clone(),
            log,
            producer,
            in_hand: None,
            instance: None,
            session_timeout: Duration::from_secs(45),
            heartbeat: Duration::from_secs(3),
            max_attempts: 3,
            backoff_base: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            queue_records: 1024,
            queue_bytes: 32 << 20,
            window: 65_536,
            commit_interval: Duration::from_millis(100),
            revoke_patience: Duration::from_secs(5),
            stop_patience: Duration::from_secs(10),
        }
    }
}

/// Runs a worker until `stop` is cancelled or it can't go on.
pub fn spawn<W: Worker>(worker: W, config: RuntimeConfig, stop: CancellationToken) -> WorkerHandle {
    let name = worker.name();
    WorkerHandle::spawn(name, group_of(name), stop.clone(), move |progress| engine::run(worker, config, progress, stop))
}
