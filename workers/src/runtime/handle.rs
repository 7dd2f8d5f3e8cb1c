//! What a running worker tells about itself: health is progress, not being there.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use parking_lot::Mutex;
use riverrun_log::{GroupWatch, LogError, TopicPartition};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::RuntimeError;

/// Where a worker stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It has no partition yet.
    Starting,
    /// It works, or waits for work.
    Running,
    /// The broker does not answer; it tries on.
    Troubled,
    /// It was asked to stop and ends what it has begun.
    Stopping,
    /// It has stopped because it was asked to.
    Stopped,
    /// It has stopped because it can't go on.
    Failed,
}

/// A worker in figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerStatus {
    /// Its name.
    pub name: String,
    /// Its consumer group.
    pub group: String,
    /// Where it stands: told under the name that it has of everything else.
    #[serde(rename = "status")]
    pub state: WorkerState,
    /// What is wrong, when something is.
    pub trouble: Option<String>,
    /// Partitions that it has.
    pub partitions: usize,
    /// Records in queue and work.
    pub in_work: usize,
    /// Records done since it started, dead letters included.
    pub handled: u64,
    /// Failed tries that were tried again.
    pub retries: u64,
    /// Records given up.
    pub dead_letters: u64,
    /// Records of a type that this version does not know, left alone.
    pub skipped: u64,
    /// Times that records fell off the log before they were read.
    pub out_of_range: u64,
    /// Milliseconds since it last got something done, or had nothing to do.
    pub idle_ms: u64,
}

impl WorkerStatus {
    /// Whether it has work and got none done for `limit`, or has ended by itself.
    pub fn stalled(&self, limit: Duration) -> bool {
        self.state == WorkerState::Failed || (self.in_work > 0 && u128::from(self.idle_ms) > limit.as_millis())
    }
}

#[derive(Debug)]
struct Told {
    state: WorkerState,
    trouble: Option<String>,
    last_progress: Instant,
    /// The next offset of each partition that is not done.
    positions: BTreeMap<TopicPartition, i64>,
}

struct Shared {
    name: &'static str,
    group: String,
    told: Mutex<Told>,
    watch: Mutex<Option<GroupWatch>>,
    partitions: AtomicUsize,
    in_work: AtomicUsize,
    handled: AtomicU64,
    retries: AtomicU64,
    dead_letters: AtomicU64,
    skipped: AtomicU64,
    out_of_range: AtomicU64,
}

/// The worker's side: it tells what it does. Clones tell to the same place.
#[derive(Clone)]
pub struct Progress {
    shared: Arc<Shared>,
}

impl Progress {
    fn new(name: &'static str, group: String) -> Self {
        let told = Told {
            state: WorkerState::Starting,
            trouble: None,
            last_progress: Instant::now(),
            positions: BTreeMap::new(),
        };
        Self {
            shared: Arc::new(Shared {
                name,
                group,
                told: Mutex::new(told),
                watch: Mutex::new(None),
                partitions: AtomicUsize::new(0),
                in_work: AtomicUsize::new(0),
                handled: AtomicU64::new(0),
                retries: AtomicU64::new(0),
                dead_letters: AtomicU64::new(0),
                skipped: AtomicU64::new(0),
                out_of_range: AtomicU64::new(0),
            }),
        }
    }

    /// It has so many partitions now.
    pub fn assigned(&self, partitions: usize) {
        self.shared.partitions.store(partitions, Ordering::Relaxed);
        self.enter(WorkerState::Running);
    }

    /// So many records are done.
    pub fn handled(&self, records: u64) {
        self.shared.handled.fetch_add(records, Ordering::Relaxed);
        let mut told = self.shared.told.lock();
        told.last_progress = Instant::now();
        if told.state == WorkerState::Troubled {
            (told.state, told.trouble) = (WorkerState::Running, None);
        }
    }

    /// So many records are in queue and work. With none the worker is not late, whenever it last did something.
    pub fn in_work(&self, records: usize) {
        let before = self.shared.in_work.swap(records, Ordering::Relaxed);
        if before == 0 && records > 0 {
            self.shared.told.lock().last_progress = Instant::now();
        }
    }

    /// Something is wrong that may pass.
    pub fn trouble(&self, error: &dyn std::fmt::Display) {
        let mut told = self.shared.told.lock();
        told.trouble = Some(error.to_string());
        if told.state == WorkerState::Running {
            told.state = WorkerState::Troubled;
        }
    }

    /// What was wrong has passed.
    pub fn recovered(&self) {
        let mut told = self.shared.told.lock();
        if told.state == WorkerState::Troubled {
            (told.state, told.trouble) = (WorkerState::Running, None);
        }
    }

    /// A failed try is tried again.
    pub fn retried(&self) {
        self.shared.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// A record was given up.
    pub fn dead_letter(&self) {
        self.shared.dead_letters.fetch_add(1, Ordering::Relaxed);
    }

    /// A record of an unknown type was left alone.
    pub fn skipped(&self) {
        self.shared.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Records fell off the log before they were read.
    pub fn out_of_range(&self) {
        self.shared.out_of_range.fetch_add(1, Ordering::Relaxed);
    }

    /// The lag of these partitions can be asked for.
    pub fn watch(&self, watch: GroupWatch) {
        *self.shared.watch.lock() = Some(watch);
    }

    /// Everything before `offset` is done.
    pub fn position(&self, partition: &TopicPartition, offset: i64) {
        self.shared.told.lock().positions.insert(partition.clone(), offset);
    }

    /// The partition is someone else's.
    pub fn forget(&self, partition: &TopicPartition) {
        self.shared.told.lock().positions.remove(partition);
    }

    /// It stands there from now on. What has ended stays ended.
    pub fn enter(&self, state: WorkerState) {
        let mut told = self.shared.told.lock();
        let ended = matches!(told.state, WorkerState::Stopped | WorkerState::Failed);
        let stopping =
            told.state == WorkerState::Stopping && matches!(state, WorkerState::Running | WorkerState::Troubled);
        if !ended && !stopping {
            told.state = state;
        }
    }

    fn fail(&self, error: &RuntimeError) {
        let mut told = self.shared.told.lock();
        (told.state, told.trouble) = (WorkerState::Failed, Some(error.to_string()));
    }

    fn status(&self) -> WorkerStatus {
        let shared = &self.shared;
        let in_work = shared.in_work.load(Ordering::Relaxed);
        let told = shared.told.lock();
        let idle = if in_work == 0 { Duration::ZERO } else { told.last_progress.elapsed() };
        WorkerStatus {
            name: shared.name.to_owned(),
            group: shared.group.clone(),
            state: told.state,
            trouble: told.trouble.clone(),
            partitions: shared.partitions.load(Ordering::Relaxed),
            in_work,
            handled: shared.handled.load(Ordering::Relaxed),
            retries: shared.retries.load(Ordering::Relaxed),
            dead_letters: shared.dead_letters.load(Ordering::Relaxed),
            skipped: shared.skipped.load(Ordering::Relaxed),
            out_of_range: shared.out_of_range.load(Ordering::Relaxed),
            idle_ms: u64::try_from(idle.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// The owner's side of a running worker. Dropping it leaves the worker running; aborting is [`kill`](Self::kill).
pub struct WorkerHandle {
    name: &'static str,
    progress: Progress,
    stop: CancellationToken,
    task: JoinHandle<Result<(), RuntimeError>>,
}

impl WorkerHandle {
    /// Runs `work` as a worker of this name; it ends when `stop` is cancelled.
    pub fn spawn<F, E>(
        name: &'static str,
        group: impl Into<String>,
        stop: CancellationToken,
        work: impl FnOnce(Progress) -> F,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<RuntimeError> + 'static,
    {
        let progress = Progress::new(name, group.into());
        let running = work(progress.clone());
        let telling = progress.clone();
        let task = tokio::spawn(async move {
            let ended = std::panic::AssertUnwindSafe(running).catch_unwind().await;
            let result = match ended {
                Ok(result) => result.map_err(Into::into),
                Err(_) => Err(RuntimeError::Panicked(name.to_owned())),
            };
            match &result {
                Ok(()) => telling.enter(WorkerState::Stopped),
                Err(error) => {
                    tracing::error!(worker = name, error = %error, "worker stopped");
                    telling.fail(error);
                }
            }
            result
        });
        Self { name, progress, stop, task }
    }

    /// The worker's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How it is doing.
    pub fn status(&self) -> WorkerStatus {
        self.progress.status()
    }

    /// The next offset of each partition that is not done.
    pub fn positions(&self) -> BTreeMap<TopicPartition, i64> {
        self.progress.shared.told.lock().positions.clone()
    }

    /// Records not yet handled, by partition; asks the broker. Empty for a worker without partitions.
    pub async fn lag(&self) -> Result<BTreeMap<TopicPartition, i64>, LogError> {
        let positions = self.positions();
        let watch = self.progress.shared.watch.lock().clone();
        let mut lag = BTreeMap::new();
        if let Some(watch) = watch {
            for (partition, next) in positions {
                if let Some(high) = watch.high(&partition).await {
                    lag.insert(partition, (high? - next).max(0));
                }
            }
        }
        Ok(lag)
    }

    /// Asks it to stop; [`join`](Self::join) waits for that.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for its end and says how it went.
    pub async fn join(self) -> Result<(), RuntimeError> {
        match self.task.await {
            Ok(result) => result,
            Err(error) if error.is_cancelled() => Ok(()),
            Err(_) => Err(RuntimeError::Panicked(self.name.to_owned())),
        }
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends it at once, without draining or committing: as a crash would, within a living process.
    pub fn kill(self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_worker_when_it_is_told_then_where_it_stands_is_its_status() {
        let progress = Progress::new("embedder", "riverrun.embedder".to_owned());
        for (state, status) in [
            (WorkerState::Starting, "starting"),
            (WorkerState::Running, "running"),
            (WorkerState::Troubled, "troubled"),
            (WorkerState::Stopping, "stopping"),
        ] {
            progress.enter(state);
            let told = serde_json::to_value(progress.status()).unwrap();
            assert_eq!(told["status"], status, "{told}");
            assert!(told["name"] == "embedder" && told.get("state").is_none(), "{told}");
        }
    }
}
