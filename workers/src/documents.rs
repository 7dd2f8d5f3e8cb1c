//! The keeper of documents: from events of canvases to the document store.
//!
//! Like the projector it reads every partition itself, outside of any group: where it goes on is kept beside the documents, so that
//! a store that was lost, or is an older copy, is made again from the log (`DOC-1`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use riverrun_log::admin::Admin;
use riverrun_log::{DeadLetter, LogConfig, LogError, Producer, Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::canvases::CanvasEvent;
use riverrun_schemas::{Decoded, Topic};
use riverrun_stores::documents::project;
use riverrun_stores::{DocumentStore, StoreError};
use tokio_util::sync::CancellationToken;

use crate::runtime::{Progress, RuntimeError, WorkerHandle, group_of};

const NAME: &str = "documents";

/// Most records, and about most bytes, that are written at a time.
const MAX_BATCH: usize = 256;
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Pauses after a failure that may pass.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the keeper works with.
#[derive(Clone)]
pub struct DocumentsConfig {
    /// How to reach the log.
    pub log: LogConfig,
    /// Writes dead letters.
    pub producer: Producer,
    /// Reads records of any version.
    pub schemas: Schemas,
    /// Where the documents are.
    pub store: Arc<dyn DocumentStore>,
    /// Cancelled once the store shows what was on the log when the keeper began.
    pub caught_up: CancellationToken,
}

/// Keeps the store up to date until `stop` is cancelled.
pub fn spawn(config: DocumentsConfig, stop: CancellationToken) -> WorkerHandle {
    WorkerHandle::spawn(NAME, group_of(NAME), stop.clone(), move |progress| async move {
        let keeper = Keeper { config, progress };
        match stop.run_until_cancelled(keeper.run()).await {
            Some(result) => result,
            None => Ok(()), // what was not written to its end is written again at the next start
        }
    })
}

struct Keeper {
    config: DocumentsConfig,
    progress: Progress,
}

/// Why reading does not go on.
enum Halt {
    /// The store knows more than the log holds: it is another one, or has lost its end.
    Ahead,
    Fatal(RuntimeError),
}

impl From<RuntimeError> for Halt {
    fn from(error: RuntimeError) -> Self {
        Self::Fatal(error)
    }
}

impl Keeper {
    async fn run(self) -> Result<(), RuntimeError> {
        loop {
            let mut tail = self.open().await?;
            self.look_for_end(&tail);
            match self.follow(&mut tail).await {
                Halt::Ahead => {
                    tracing::warn!("the document store knows more than the log holds, it is made again from it");
                    self.until_done("empty the document store", || self.config.store.clear()).await?;
                }
                Halt::Fatal(error) => return Err(error),
            }
        }
    }

    async fn follow(&self, tail: &mut Tail) -> Halt {
        loop {
            if let Err(halt) = self.step(tail).await {
                return halt;
            }
        }
    }

    async fn step(&self, tail: &mut Tail) -> Result<(), Halt> {
        let batch = self.next_batch(tail).await?;
        self.progress.in_work(batch.len());
        self.write(&batch).await?;
        self.progress.handled(batch.len() as u64);
        self.progress.in_work(0);
        self.look_for_end(tail);
        Ok(())
    }

    /// A reader of every partition, from where the store's documents end.
    async fn open(&self) -> Result<Tail, RuntimeError> {
        let topic = Topic::Canvases;
        let admin = Admin::new(&self.config.log)?;
        let partitions = self.asked("ask for partitions", || admin.partitions(topic.name())).await?;
        let mut starts = BTreeMap::new();
        for partition in 0..partitions {
            let next = self.until_done("read a position", || self.config.store.next_offset(topic, partition)).await?;
            starts.insert(TopicPartition::new(topic.name(), partition), next);
        }
        let wanted = || starts.iter().map(|(partition, next)| (partition.clone(), start_at(*next))).collect();
        let tail = self.asked("open the log", || Tail::open_telling_ends(&self.config.log, wanted())).await?;
        starts.iter().for_each(|(partition, next)| self.progress.position(partition, *next));
        self.progress.assigned(starts.len());
        Ok(tail)
    }

    /// Waits for a record and takes what lies ready behind it.
    async fn next_batch(&self, tail: &mut Tail) -> Result<Vec<Record>, Halt> {
        let mut batch = vec![self.next(tail).await?];
        let mut bytes = batch[0].size_bytes();
        while batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
            match tail.next_or_end().now_or_never() {
                Some(Ok(None)) => {}
                Some(Ok(Some(record))) => {
                    bytes += record.size_bytes();
                    batch.push(record);
                }
                Some(Err(error)) => {
                    self.survive(error)?;
                    break;
                }
                None => break,
            }
        }
        Ok(batch)
    }

    async fn next(&self, tail: &mut Tail) -> Result<Record, Halt> {
        loop {
            match tail.next_or_end().await {
                Ok(Some(record)) => {
                    self.progress.recovered();
                    return Ok(record);
                }
                // All that was read before is written.
                Ok(None) => self.look_for_end(tail),
                Err(error) => self.survive(error)?,
            }
        }
    }

    fn look_for_end(&self, tail: &Tail) {
        if !self.config.caught_up.is_cancelled() && tail.has_caught_up() {
            self.config.caught_up.cancel();
        }
    }

    fn survive(&self, error: LogError) -> Result<(), Halt> {
        match error {
            LogError::OutOfRange { wanted, high, .. } if wanted > high => Err(Halt::Ahead),
            LogError::OutOfRange { .. } => {
                self.progress.out_of_range();
                tracing::warn!(error = %error, "events fell off the log before they were kept: the document store lacks them");
                Ok(())
            }
            error if error.retryable() => {
                self.progress.trouble(&error);
                Ok(())
            }
            error => Err(Halt::Fatal(error.into())),
        }
    }

    async fn write(&self, batch: &[Record]) -> Result<(), RuntimeError> {
        let mut partitions: BTreeMap<i32, Vec<(i64, Option<CanvasEvent>)>> = BTreeMap::new();
        for record in batch {
            let event = self.read(record).await?;
            partitions.entry(record.partition).or_default().push((record.offset, event));
        }
        for (partition, records) in &partitions {
            self.until_done("write documents", || project(self.config.store.as_ref(), *partition, records)).await?;
        }
        for record in batch {
            self.progress.position(&record.topic_partition(), record.offset + 1);
        }
        Ok(())
    }

    /// What a record says. One that can't be read is put among the dead letters first, and then says nothing.
    async fn read(&self, record: &Record) -> Result<Option<CanvasEvent>, RuntimeError> {
        match self.config.schemas.decode::<CanvasEvent>(record) {
            Ok(Decoded::Event(event)) => Ok(Some(event)),
            Ok(Decoded::UnknownType { .. }) => {
                self.progress.skipped();
                Ok(None)
            }
            Err(error) => {
                tracing::warn!(position = %record.position(), error = %error, "record can't be read");
                let letter = DeadLetter::of(record, &group_of(NAME), error.code(), &error.to_string(), 1);
                self.asked("write a dead letter", || self.config.producer.send_one(letter.clone())).await?;
                self.progress.dead_letter();
                Ok(None)
            }
        }
    }

    /// Asks the log until it answers or says that it never will.
    async fn asked<T, F: Future<Output = Result<T, LogError>>>(
        &self,
        what: &str,
        ask: impl Fn() -> F,
    ) -> Result<T, RuntimeError> {
        let mut pause = FIRST_PAUSE;
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.retryable() => self.rest(what, &error, &mut pause).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tries until the store takes it or says that it never will. Nothing is skipped: a server that is away is waited for.
    async fn until_done<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        what: &str,
        attempt: impl Fn() -> F,
    ) -> Result<T, RuntimeError> {
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt().await {
                Ok(done) => return Ok(done),
                Err(error) if error.retryable() => self.rest(what, &error, &mut pause).await,
                Err(error) => {
                    let reason = error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}"));
                    return Err(RuntimeError::Fatal { worker: NAME.to_owned(), code: error.code().to_owned(), reason });
                }
            }
        }
    }

    async fn rest(&self, what: &str, error: &(dyn std::fmt::Display + Sync), pause: &mut Duration) {
        tracing::warn!(what, error = %error, "the keeper of documents waits");
        self.progress.trouble(error);
        self.progress.retried();
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
    }
}

fn start_at(next: i64) -> StartAt {
    if next == 0 { StartAt::Beginning } else { StartAt::Offset(next) }
}
