//! Following whole topics outside of any group: for what keeps its own place in the log beside what it makes of it.
//!
//! Whatever lies ready is written together, so a backlog goes fast and a single event is visible at once. Nothing is
//! skipped: a store that is away, or a full disk, is waited for; a record that can't be read goes to the dead letters first.
//! What was kept and is ahead of the log (another log, or one that lost its end) is emptied and made again from it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use futures::FutureExt;
use riverrun_log::admin::Admin;
use riverrun_log::{DeadLetter, LogConfig, LogError, Producer, Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::{DecodeError, Decoded, Topic};
use riverrun_stores::StoreError;
use tokio_util::sync::CancellationToken;

use crate::runtime::{Progress, RuntimeError, WorkerHandle, group_of};

/// About most bytes that are written together.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Pauses after a failure that may pass.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is made of followed topics.
pub(crate) trait View: Send + Sync + 'static {
    /// What a record can say.
    type Event: Send;
    /// Records as they are written.
    type Batch: Send + Sync;

    /// The worker's name.
    const NAME: &'static str;
    /// What it keeps, in words.
    const KEEPS: &'static str;
    /// Topics that are read.
    const TOPICS: &'static [Topic];
    /// Those of them on which what is no event is this follower's to bury. One reader of a topic answers for it, so that a record
    /// is one dead letter whatever the number of readers; the others count it as skipped.
    const ANSWERS_FOR: &'static [Topic];
    /// Most records that are written together.
    const MAX_BATCH: usize;

    /// Offset of the first record that is not kept yet.
    fn next_offset(&self, topic: Topic, partition: i32) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// The event in a record.
    fn decode(schemas: &Schemas, topic: Topic, record: &Record) -> Result<Decoded<Self::Event>, DecodeError>;

    /// Records of one batch, in the order of the log within each partition.
    fn batch(records: Vec<Read<Self::Event>>) -> Self::Batch;

    /// Keeps what the records say, together with the place behind them. Records that are kept already change nothing.
    fn write(&self, batch: &Self::Batch) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets everything, the places in the log included.
    fn clear(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A record that was read.
#[derive(Debug)]
pub(crate) struct Read<E> {
    pub(crate) topic: Topic,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    /// `None`: of a type that this build does not know, or put among the dead letters.
    pub(crate) event: Option<E>,
}

/// What a follower works with.
#[derive(Debug, Clone)]
pub(crate) struct FollowerConfig {
    pub(crate) log: LogConfig,
    /// Writes dead letters.
    pub(crate) producer: Producer,
    pub(crate) schemas: Schemas,
    /// Cancelled once the view shows what was on the log when the follower began.
    pub(crate) caught_up: CancellationToken,
}

/// Keeps `view` up to date until `stop` is cancelled. One follower a store.
pub(crate) fn spawn<V: View>(view: V, config: FollowerConfig, stop: CancellationToken) -> WorkerHandle {
    WorkerHandle::spawn(V::NAME, group_of(V::NAME), stop.clone(), move |progress| async move {
        let follower = Follower { view, config, progress };
        match stop.run_until_cancelled(follower.run()).await {
            Some(result) => result,
            None => Ok(()), // what was not written to its end is read again at the next start
        }
    })
}

struct Follower<V> {
    view: V,
    config: FollowerConfig,
    progress: Progress,
}

/// Why reading does not go on.
enum Halt {
    /// The view knows more than the log holds: it is of another one, or the log has lost its end.
    Ahead,
    Fatal(RuntimeError),
}

impl From<RuntimeError> for Halt {
    fn from(error: RuntimeError) -> Self {
        Self::Fatal(error)
    }
}

impl<V: View> Follower<V> {
    async fn run(self) -> Result<(), RuntimeError> {
        loop {
            let mut tail = self.open().await?;
            self.look_for_end(&tail);
            match self.follow(&mut tail).await {
                Halt::Ahead => {
                    tracing::warn!(
                        worker = V::NAME,
                        "{} know more than the log holds: they are made again from it",
                        V::KEEPS
                    );
                    self.until_done("empty the store", || self.view.clear()).await?;
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
        self.keep(&batch).await?;
        self.progress.handled(batch.len() as u64);
        self.progress.in_work(0);
        self.look_for_end(tail);
        Ok(())
    }

    /// A reader of every partition, from where the view ends.
    async fn open(&self) -> Result<Tail, RuntimeError> {
        let starts = self.starts().await?;
        let wanted = || starts.iter().map(|(partition, next)| (partition.clone(), start_at(*next))).collect();
        let tail = self.asked("open the log", || Tail::open_telling_ends(&self.config.log, wanted())).await?;
        starts.iter().for_each(|(partition, next)| self.progress.position(partition, *next));
        self.progress.assigned(starts.len());
        Ok(tail)
    }

    async fn starts(&self) -> Result<BTreeMap<TopicPartition, i64>, RuntimeError> {
        let mut starts = BTreeMap::new();
        let admin = Admin::new(&self.config.log)?;
        for &topic in V::TOPICS {
            let partitions = self.asked("ask for partitions", || admin.partitions(topic.name())).await?;
            for partition in 0..partitions {
                let next =
                    self.until_done("read a place in the log", || self.view.next_offset(topic, partition)).await?;
                starts.insert(TopicPartition::new(topic.name(), partition), next);
            }
        }
        Ok(starts)
    }

    /// Waits for a record and takes what lies ready behind it.
    async fn next_batch(&self, tail: &mut Tail) -> Result<Vec<Record>, Halt> {
        let mut batch = vec![self.next(tail).await?];
        let mut bytes = batch[0].size_bytes();
        while batch.len() < V::MAX_BATCH && bytes < MAX_BATCH_BYTES {
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
                // All that was read before is kept.
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
                tracing::warn!(worker = V::NAME, error = %error, "events fell off the log before they were read: {} lack them", V::KEEPS);
                Ok(())
            }
            error if error.retryable() => {
                self.progress.trouble(&error);
                Ok(())
            }
            error => Err(Halt::Fatal(error.into())),
        }
    }

    async fn keep(&self, batch: &[Record]) -> Result<(), RuntimeError> {
        let mut records = Vec::with_capacity(batch.len());
        for record in batch {
            records.extend(self.read(record).await?);
        }
        let records = V::batch(records);
        self.until_done("write", || self.view.write(&records)).await?;
        for record in batch {
            self.progress.position(&record.topic_partition(), record.offset + 1);
        }
        Ok(())
    }

    /// What a record says. One that can't be read is put among the dead letters first, where this follower answers for its topic,
    /// and then says nothing.
    async fn read(&self, record: &Record) -> Result<Option<Read<V::Event>>, RuntimeError> {
        let Some(topic) = Topic::by_name(&record.topic) else { return Ok(None) };
        let event = match V::decode(&self.config.schemas, topic, record) {
            Ok(Decoded::Event(event)) => Some(event),
            Ok(Decoded::UnknownType { .. }) => {
                self.progress.skipped();
                None
            }
            Err(error) if !V::ANSWERS_FOR.contains(&topic) => {
                tracing::debug!(worker = V::NAME, position = %record.position(), error = %error, "record that can't be read left alone");
                self.progress.skipped();
                None
            }
            Err(error) => {
                tracing::warn!(worker = V::NAME, position = %record.position(), error = %error, "record can't be read");
                let letter = DeadLetter::of(record, &group_of(V::NAME), error.code(), &error.to_string(), 1);
                self.asked("write a dead letter", || self.config.producer.send_one(letter.clone())).await?;
                self.progress.dead_letter();
                None
            }
        };
        Ok(Some(Read { topic, partition: record.partition, offset: record.offset, event }))
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

    /// Tries until the store takes it or says that it never will.
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
                    return Err(RuntimeError::Fatal {
                        worker: V::NAME.to_owned(),
                        code: error.code().to_owned(),
                        reason,
                    });
                }
            }
        }
    }

    async fn rest(&self, what: &str, error: &(dyn Display + Sync), pause: &mut Duration) {
        tracing::warn!(worker = V::NAME, what, error = %error, "waits and tries again");
        self.progress.trouble(error);
        self.progress.retried();
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
    }
}

fn start_at(next: i64) -> StartAt {
    if next == 0 { StartAt::Beginning } else { StartAt::Offset(next) }
}
