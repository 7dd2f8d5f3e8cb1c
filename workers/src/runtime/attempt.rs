//! One batch in its lane: decoding, tries, pauses between them, dead letters.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use riverrun_log::{DeadLetter, Outgoing, Record};
use riverrun_schemas::Decoded;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{
    ALONE_FROM, Context, Delivery, DeliveryMode, GIVEN_UP_AT, InHand, Progress, RuntimeConfig, RuntimeError, WorkError,
    Worker, backoff,
};

/// Topics of commands: what can't be understood there was meant for us.
const COMMANDS: &str = ".commands";

/// How a batch ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// Done; these records are still to be written, in the transaction that commits the batch.
    Done(Vec<Outgoing>),
    /// Not done, and not to be: it comes again.
    Abandoned,
    /// The worker can't go on.
    Fatal(RuntimeError),
}

/// Why a batch goes no further here.
enum Halt {
    Abandoned,
    Fatal(RuntimeError),
}

enum Verdict {
    Done(Vec<Outgoing>),
    GivenUp { code: String, reason: String, poison: bool },
}

/// A place among those that may work at a time; a batch that waits for its next try leaves it to others.
pub(super) struct Slot {
    pub(super) all: Arc<Semaphore>,
    pub(super) mine: Option<OwnedSemaphorePermit>,
    pub(super) freed: Arc<Notify>,
}

pub(super) struct Job<W: Worker> {
    pub(super) worker: Arc<W>,
    pub(super) context: Arc<Context>,
    pub(super) config: Arc<RuntimeConfig>,
    pub(super) progress: Progress,
    pub(super) slot: Slot,
    pub(super) quiet: CancellationToken,
    pub(super) records: Vec<Record>,
}

impl<W: Worker> Job<W> {
    pub(super) async fn run(mut self) -> Ending {
        match self.whole().await {
            Ok(outputs) => Ending::Done(outputs),
            Err(Halt::Abandoned) => Ending::Abandoned,
            Err(Halt::Fatal(error)) => Ending::Fatal(error),
        }
    }

    async fn whole(&mut self) -> Result<Vec<Outgoing>, Halt> {
        self.settle().await?;
        let (deliveries, letters) = self.decode();
        let mut outputs = self.write_letters(letters).await?;
        if !deliveries.is_empty() {
            outputs.extend(self.work(deliveries).await?);
        }
        Ok(outputs)
    }

    /// Waits for schemas that only a registry knows, as long as it is away: without them nobody can tell events from what is
    /// none. Other lanes go on.
    async fn settle(&mut self) -> Result<(), Halt> {
        let mut failures = 0;
        for at in 0..self.records.len() {
            loop {
                let asked = self.context.schemas.ask(&self.records[at]).await;
                let Err(error) = asked else { break };
                failures += 1;
                let position = self.records[at].position();
                tracing::warn!(group = self.context.group, %position, error = %error, failures, "the schema of a record can't be asked for; trying again");
                self.progress.retried();
                self.rest(backoff::draw(self.config.backoff_base, self.config.backoff_max, failures)).await?;
            }
        }
        Ok(())
    }

    /// Events to be handled, and dead letters of what is none (`LOOP-3`).
    fn decode(&self) -> (Vec<Delivery<W::Input>>, Vec<Outgoing>) {
        let answers = self.worker.answers_for_topic();
        let (mut deliveries, mut letters) = (Vec::new(), Vec::new());
        for record in &self.records {
            match self.context.schemas.decode::<W::Input>(record) {
                Ok(Decoded::Event(event)) => {
                    deliveries.push(Delivery {
                        event,
                        envelope: record.envelope(),
                        position: record.position(),
                        attempt: 1,
                    });
                }
                Ok(Decoded::UnknownType { record: name }) if answers && record.topic.ends_with(COMMANDS) => {
                    letters.push(self.letter(
                        record,
                        "unknown_event_type",
                        &format!("this version knows no {name}"),
                        1,
                    ));
                }
                Err(error) if answers => letters.push(self.letter(record, error.code(), &error.to_string(), 1)),
                Ok(Decoded::UnknownType { .. }) | Err(_) => {
                    tracing::debug!(position = %record.position(), "record that says nothing to this worker left alone");
                    self.progress.skipped();
                }
            }
        }
        (deliveries, letters)
    }

    fn letter(&self, record: &Record, code: &str, reason: &str, attempts: u32) -> Outgoing {
        tracing::warn!(group = self.context.group, position = %record.position(), code, reason, attempts, "record goes to the dead letters");
        self.progress.dead_letter();
        DeadLetter::of(record, &self.context.group, code, reason, attempts)
    }

    /// The batch as a whole, or one by one where processes ended with records of it in hand.
    async fn work(&mut self, batch: Vec<Delivery<W::Input>>) -> Result<Vec<Outgoing>, Halt> {
        if batch.iter().all(|delivery| self.ends(delivery) < ALONE_FROM) {
            let offsets: Vec<i64> = batch.iter().map(|delivery| delivery.position.offset).collect();
            let outputs = self.together(batch).await?;
            offsets.into_iter().for_each(|offset| self.forget(offset));
            return Ok(outputs);
        }
        let mut outputs = Vec::new();
        for delivery in batch {
            let (offset, ends) = (delivery.position.offset, self.ends(&delivery));
            if ends < GIVEN_UP_AT {
                outputs.extend(self.together(vec![delivery]).await?);
            } else {
                let reason =
                    format!("{ends} processes ended while they handled it; their logs and the system's say why");
                outputs.extend(self.bury(&delivery, "process_ended", &reason).await?);
            }
            self.forget(offset);
        }
        Ok(outputs)
    }

    /// How many processes ended with it in hand.
    fn ends(&self, delivery: &Delivery<W::Input>) -> u32 {
        let at = &delivery.position;
        let of = |marks: &InHand| marks.ends(&self.context.group, &at.topic_partition(), at.offset);
        self.config.in_hand.as_ref().map_or(0, of)
    }

    fn forget(&self, offset: i64) {
        if let (Some(marks), Some(record)) = (&self.config.in_hand, self.records.first()) {
            marks.forget(&self.context.group, &record.topic_partition(), offset);
        }
    }

    /// The batch as a whole; when that does not work, one by one, to find the one that is to blame.
    async fn together(&mut self, mut batch: Vec<Delivery<W::Input>>) -> Result<Vec<Outgoing>, Halt> {
        let (code, reason, poison) = match self.attempt(&mut batch, self.config.max_attempts).await? {
            Verdict::Done(outputs) => return Ok(outputs),
            Verdict::GivenUp { code, reason, poison } => (code, reason, poison),
        };
        if let [delivery] = batch.as_slice() {
            return self.bury(delivery, &code, &reason).await;
        }
        tracing::info!(
            group = self.context.group,
            records = batch.len(),
            code,
            reason,
            "batch failed; trying its records one by one"
        );
        let tries = if poison { self.config.max_attempts } else { 1 };
        let mut outputs = Vec::new();
        for mut delivery in batch {
            delivery.attempt += 1;
            let mut alone = [delivery];
            outputs.extend(match self.attempt(&mut alone, tries).await? {
                Verdict::Done(more) => more,
                Verdict::GivenUp { code, reason, .. } => self.bury(&alone[0], &code, &reason).await?,
            });
        }
        Ok(outputs)
    }

    /// Tries until it works or there is no point in it.
    async fn attempt(&mut self, batch: &mut [Delivery<W::Input>], tries: u32) -> Result<Verdict, Halt> {
        let mut failures = 0;
        loop {
            match self.once(batch).await? {
                Ok(outputs) => return Ok(Verdict::Done(outputs)),
                Err(WorkError::Poison { code, reason }) => return Ok(Verdict::GivenUp { code, reason, poison: true }),
                Err(WorkError::Fatal { code, reason }) => return Err(self.fatal(code, reason)),
                Err(WorkError::Retry { code, reason }) => {
                    failures += 1;
                    if failures >= tries {
                        return Ok(Verdict::GivenUp { code, reason, poison: false });
                    }
                    let pause = backoff::draw(self.config.backoff_base, self.config.backoff_max, failures);
                    tracing::warn!(group = self.context.group, first = %batch[0].position, records = batch.len(), code, reason, failures, pause_ms = pause.as_millis() as u64, "work failed; trying again");
                    self.progress.retried();
                    self.rest(pause).await?;
                    batch.iter_mut().for_each(|delivery| delivery.attempt += 1);
                }
            }
        }
    }

    /// One call of the worker and the writing of what it returned.
    async fn once(&mut self, batch: &[Delivery<W::Input>]) -> Result<Result<Vec<Outgoing>, WorkError>, Halt> {
        match self.call(batch).await {
            Ok(Ok(outputs)) => self.write(outputs).await,
            Ok(Err(error)) => Ok(Err(error)),
            Err(panic) => Ok(Err(WorkError::retry(
                "panicked",
                format!("worker {} panicked: {}", self.worker.name(), message_of(panic.as_ref())),
            ))),
        }
    }

    /// Calls the worker, with the batch marked as in its hands (`LOOP-5`).
    async fn call(
        &self,
        batch: &[Delivery<W::Input>],
    ) -> Result<Result<Vec<Outgoing>, WorkError>, Box<dyn Any + Send>> {
        let work = AssertUnwindSafe(self.worker.handle(batch, &self.context)).catch_unwind();
        let (Some(marks), Some(record)) = (&self.config.in_hand, self.records.first()) else { return work.await };
        let is_suspect = batch.iter().any(|delivery| self.ends(delivery) >= ALONE_FROM);
        let _alone = if is_suspect { Some(marks.alone().await) } else { None };
        let offsets = batch.iter().map(|delivery| delivery.position.offset).collect();
        let _mark = marks.mark(&self.context.group, &record.topic_partition(), offsets);
        work.await
    }

    /// Gives a delivery up: its dead letter, and the events that say so.
    async fn bury(&mut self, delivery: &Delivery<W::Input>, code: &str, reason: &str) -> Result<Vec<Outgoing>, Halt> {
        let mut outputs = std::panic::catch_unwind(AssertUnwindSafe(|| self.worker.dead(delivery, code, reason))).unwrap_or_else(|panic| {
            tracing::error!(group = self.context.group, position = %delivery.position, panic = message_of(panic.as_ref()), "can't say that a delivery was given up");
            Vec::new()
        });
        let record = self.records.iter().find(|record| record.offset == delivery.position.offset);
        outputs.extend(record.map(|record| self.letter(record, code, reason, delivery.attempt)));
        self.write_letters(outputs).await
    }

    /// Without its letters a batch can't be done: what refuses them for good stops the worker.
    async fn write_letters(&mut self, letters: Vec<Outgoing>) -> Result<Vec<Outgoing>, Halt> {
        match self.write(letters).await? {
            Ok(outputs) => Ok(outputs),
            Err(
                WorkError::Retry { code, reason }
                | WorkError::Poison { code, reason }
                | WorkError::Fatal { code, reason },
            ) => Err(self.fatal(code, reason)),
        }
    }

    /// Writes now, and waits for a broker that is away as long as it takes; or leaves it to the transaction.
    async fn write(&mut self, outputs: Vec<Outgoing>) -> Result<Result<Vec<Outgoing>, WorkError>, Halt> {
        if outputs.is_empty() || self.worker.delivery() == DeliveryMode::Transactional {
            return Ok(Ok(outputs));
        }
        let mut failures = 0;
        loop {
            match self.context.producer.send_many(outputs.clone()).await {
                Ok(_) => return Ok(Ok(Vec::new())),
                Err(error) if error.retryable() => {
                    failures += 1;
                    self.progress.trouble(&error);
                    tracing::warn!(group = self.context.group, error = %error, failures, "outputs can't be written; trying again");
                    self.rest(backoff::draw(self.config.backoff_base, self.config.backoff_max, failures)).await?;
                }
                Err(error) => return Ok(Err(WorkError::from(error))),
            }
        }
    }

    /// Waits without holding a place that others could work in.
    async fn rest(&mut self, pause: std::time::Duration) -> Result<(), Halt> {
        self.slot.mine = None;
        self.slot.freed.notify_one();
        let quiet = self.quiet.clone();
        let again = async {
            tokio::time::sleep(pause).await;
            self.slot.all.clone().acquire_owned().await
        };
        tokio::select! {
            () = quiet.cancelled() => Err(Halt::Abandoned),
            permit = again => {
                self.slot.mine = permit.ok();
                Ok(())
            }
        }
    }

    fn fatal(&self, code: String, reason: String) -> Halt {
        Halt::Fatal(RuntimeError::Fatal { worker: self.worker.name().to_owned(), code, reason })
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
