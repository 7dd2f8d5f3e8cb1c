//! The projector: from events to read models.
//!
//! It reads every partition itself, outside of any group: where it goes on is written beside the rows, in the same
//! transaction (`READ-1`). Whatever lies ready is written in one transaction, so a backlog goes fast and a single event is
//! visible at once.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use riverrun_log::admin::Admin;
use riverrun_log::{DeadLetter, LogConfig, LogError, Producer, Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::agent::AgentEvent;
use riverrun_schemas::finetune::FinetuneEvent;
use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::memory::MemoryEvent;
use riverrun_schemas::projects::ProjectEvent;
use riverrun_schemas::{DecodeError, Decoded, Topic};
use riverrun_stores::read_models::{self, LogRecord, PROJECTED_TOPICS, Projected};
use riverrun_stores::{Sql, StoreError};
use tokio_util::sync::CancellationToken;

use crate::runtime::{Progress, RuntimeError, WorkerHandle, group_of};

const NAME: &str = "projector";

/// Most records, and about most bytes, of one transaction.
const MAX_BATCH: usize = 512;
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Pauses after a failure that may pass.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the projector works with.
#[derive(Debug, Clone)]
pub struct ProjectorConfig {
    /// How to reach the log.
    pub log: LogConfig,
    /// Writes dead letters.
    pub producer: Producer,
    /// Reads records of any version.
    pub schemas: Schemas,
    /// Where the read models are.
    pub sql: Sql,
    /// Cancelled once the read models show what was on the log when the projector began.
    pub caught_up: CancellationToken,
}

/// Keeps the read models up to date until `stop` is cancelled. One projector a database.
pub fn spawn(config: ProjectorConfig, stop: CancellationToken) -> WorkerHandle {
    WorkerHandle::spawn(NAME, group_of(NAME), stop.clone(), move |progress| async move {
        let projector = Projector { config, progress };
        match stop.run_until_cancelled(projector.run()).await {
            Some(result) => result,
            None => Ok(()), // a transaction in progress is rolled back, and read again at the next start
        }
    })
}

struct Projector {
    config: ProjectorConfig,
    progress: Progress,
}

/// Why reading does not go on.
enum Halt {
    /// The rows know more than the log holds: it is another one, or has lost its end.
    Ahead,
    Fatal(RuntimeError),
}

impl From<RuntimeError> for Halt {
    fn from(error: RuntimeError) -> Self {
        Self::Fatal(error)
    }
}

impl Projector {
    async fn run(self) -> Result<(), RuntimeError> {
        loop {
            let mut tail = self.open().await?;
            self.look_for_end(&tail);
            match self.follow(&mut tail).await {
                Halt::Ahead => {
                    tracing::warn!(database = %self.config.sql.path().display(), "the read models know more than the log holds, they are rebuilt from it");
                    self.until_done("empty the read models", || read_models::rebuild(&self.config.sql)).await?;
                }
                Halt::Fatal(error) => return Err(error),
            }
        }
    }

    async fn follow(&self, tail: &mut Tail) -> Halt {
        loop {
            let step = async {
                let batch = self.next_batch(tail).await?;
                self.progress.in_work(batch.len());
                self.project(&batch).await?;
                self.progress.handled(batch.len() as u64);
                self.progress.in_work(0);
                self.look_for_end(tail);
                Ok(())
            };
            if let Err(halt) = step.await {
                return halt;
            }
        }
    }

    /// A reader of every partition, from where the rows end.
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
        for topic in PROJECTED_TOPICS {
            let partitions = self.asked("ask for partitions", || admin.partitions(topic.name())).await?;
            for partition in 0..partitions {
                let next = self
                    .until_done("read a checkpoint", || read_models::next_offset(&self.config.sql, topic, partition))
                    .await?;
                starts.insert(TopicPartition::new(topic.name(), partition), next);
            }
        }
        Ok(starts)
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
                // All that was read before is projected.
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
                tracing::warn!(error = %error, "events fell off the log before they were projected: the read models lack them");
                Ok(())
            }
            error if error.retryable() => {
                self.progress.trouble(&error);
                Ok(())
            }
            error => Err(Halt::Fatal(error.into())),
        }
    }

    async fn project(&self, batch: &[Record]) -> Result<(), RuntimeError> {
        let mut records = Vec::with_capacity(batch.len());
        for record in batch {
            records.extend(self.read(record).await?);
        }
        let applied =
            self.until_done("write the read models", || read_models::apply(&self.config.sql, &records)).await?;
        for (reason, events) in &applied.ignored {
            tracing::info!(reason, events, "events of runs were ignored");
        }
        for record in batch {
            self.progress.position(&record.topic_partition(), record.offset + 1);
        }
        Ok(())
    }

    /// What a record says. One that can't be read is put among the dead letters first, and then says nothing.
    async fn read(&self, record: &Record) -> Result<Option<LogRecord>, RuntimeError> {
        let Some(topic) = Topic::by_name(&record.topic) else { return Ok(None) };
        let body = match body(topic, record, &self.config.schemas) {
            Ok(Some(body)) => body,
            Ok(None) => {
                self.progress.skipped();
                Projected::Nothing
            }
            Err(error) => {
                tracing::warn!(position = %record.position(), error = %error, "record can't be read");
                let letter = DeadLetter::of(record, &group_of(NAME), error.code(), &error.to_string(), 1);
                self.asked("write a dead letter", || self.config.producer.send_one(letter.clone())).await?;
                self.progress.dead_letter();
                Projected::Nothing
            }
        };
        Ok(Some(LogRecord { topic, partition: record.partition, offset: record.offset, body }))
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

    /// Tries until the database takes it or says that it never will. Nothing is skipped: a full disk is waited for.
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
        tracing::warn!(what, error = %error, "projector waits");
        self.progress.trouble(error);
        self.progress.retried();
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
    }
}

fn start_at(next: i64) -> StartAt {
    if next == 0 { StartAt::Beginning } else { StartAt::Offset(next) }
}

/// The event in a record; `None` for a type that this build does not know.
fn body(topic: Topic, record: &Record, schemas: &Schemas) -> Result<Option<Projected>, DecodeError> {
    Ok(match topic {
        Topic::AgentEvents => known(schemas.decode::<AgentEvent>(record)?).map(Projected::Agent),
        Topic::IngestEvents => known(schemas.decode::<IngestEvent>(record)?).map(Projected::Ingest),
        Topic::MemoryEvents => known(schemas.decode::<MemoryEvent>(record)?).map(Projected::Memory),
        Topic::FinetuneEvents => known(schemas.decode::<FinetuneEvent>(record)?).map(Projected::Finetune),
        Topic::ProjectsEvents => known(schemas.decode::<ProjectEvent>(record)?).map(Projected::Project),
        Topic::AgentCommands
        | Topic::ProjectsCommands
        | Topic::IngestCommands
        | Topic::IngestChunks
        | Topic::IngestEmbeddings
        | Topic::Tokens
        | Topic::ToolsCalls
        | Topic::ToolsResults
        | Topic::Documents
        | Topic::FinetuneCommands
        | Topic::Canvases => None,
    })
}

fn known<E>(decoded: Decoded<E>) -> Option<E> {
    match decoded {
        Decoded::Event(event) => Some(event),
        Decoded::UnknownType { .. } => None,
    }
}
