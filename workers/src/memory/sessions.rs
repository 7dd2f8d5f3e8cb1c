//! The folds of conversations that a worker is at.
//!
//! A conversation's events lie in one partition, in order, and the worker is handed all of them behind the offset at which it
//! got the partition. What lies before is read from the log: once a partition for which conversations there are, when the
//! first of them comes, and then for a conversation that was let go of. Memory: about 40 bytes a conversation of the
//! partition, and the folds of the [`MAX_FOLDS`] that were used last, each of the words that no summary covers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_agents::memory::SessionFold;
use riverrun_log::{AssignedPartition, LogError, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::memory::MemoryEvent;
use riverrun_schemas::{Decoded, DocumentId, Session, Topic};
use tokio::sync::OnceCell;

use super::log_error;
use crate::runtime::{Context, Delivery, WorkError};

/// Folds that are kept.
const MAX_FOLDS: usize = 2_000;

/// A conversation, hashed.
type Mark = u128;

fn mark(key: &str) -> Mark {
    DocumentId::derive(&["memory session", key]).as_uuid().as_u128()
}

/// The folds of a worker's conversations.
#[derive(Default)]
pub(super) struct Sessions {
    partitions: Mutex<HashMap<i32, Arc<Partition>>>,
    folds: Mutex<Folds>,
}

/// What is known of a partition.
#[derive(Default)]
struct Partition {
    /// Everything from here on was handed in.
    start: i64,
    /// Offset of the first event of each conversation that began before `start`.
    before: OnceCell<HashMap<Mark, i64>>,
    /// The same for those that began behind it.
    since: Mutex<HashMap<Mark, i64>>,
}

#[derive(Default)]
struct Folds {
    kept: HashMap<Session, Kept>,
    uses: u64,
}

struct Kept {
    fold: SessionFold,
    /// First offset that is not in the fold.
    next: i64,
    partition: i32,
    used: u64,
}

impl Folds {
    fn take(&mut self, session: &Session) -> Option<Kept> {
        self.kept.remove(session)
    }

    fn put(&mut self, session: Session, kept: Kept) {
        self.uses += 1;
        self.kept.insert(session, Kept { used: self.uses, ..kept });
        // A tenth at a time, so that it is rarely looked for.
        if self.kept.len() > MAX_FOLDS {
            let mut uses: Vec<u64> = self.kept.values().map(|kept| kept.used).collect();
            uses.sort_unstable();
            let oldest = uses[MAX_FOLDS / 10];
            self.kept.retain(|_, kept| kept.used > oldest);
        }
    }
}

impl Sessions {
    /// Partitions came: what is handed in begins where the group goes on, or at the first record.
    pub(super) fn assigned(
        &self,
        partitions: &[AssignedPartition],
        from_the_beginning: bool,
    ) -> Vec<(TopicPartition, StartAt)> {
        for one in partitions {
            let start = one.committed.filter(|_| !from_the_beginning).unwrap_or(one.low);
            let number = one.partition.partition;
            self.partitions.lock().insert(number, Arc::new(Partition { start, ..Partition::default() }));
            self.folds.lock().kept.retain(|_, kept| kept.partition != number);
        }
        let start = |one: &AssignedPartition| if from_the_beginning { StartAt::Beginning } else { one.default_start() };
        partitions.iter().map(|one| (one.partition.clone(), start(one))).collect()
    }

    /// Partitions went.
    pub(super) fn revoked(&self, partitions: &[TopicPartition]) {
        for one in partitions {
            self.partitions.lock().remove(&one.partition);
            self.folds.lock().kept.retain(|_, kept| kept.partition != one.partition);
        }
    }

    /// The conversation's fold with this batch in it, given to `work`; when that finds words missing (`None`), the fold is
    /// made anew from the log and it is asked once more.
    pub(super) async fn with<T: Send>(
        &self,
        session: &Session,
        batch: &[Delivery<MemoryEvent>],
        context: &Context,
        work: impl Fn(&SessionFold) -> Option<T> + Send + Sync,
    ) -> Result<T, WorkError> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return Err(WorkError::fatal("empty_batch", "a batch without a delivery was handed in"));
        };
        let number = first.position.partition;
        let partition = self.partitions.lock().entry(number).or_default().clone();
        let kept = self.folds.lock().take(session);
        let mut kept = match kept {
            Some(kept) => kept,
            None => {
                let fold = partition.fold(session, number, first.position.offset, context).await?;
                Kept { fold, next: first.position.offset, partition: number, used: 0 }
            }
        };
        for delivery in batch.iter().filter(|delivery| delivery.position.offset >= kept.next) {
            kept.fold.apply(&delivery.event);
        }
        kept.next = kept.next.max(last.position.offset + 1);
        partition.note(session, first.position.offset);
        let mut found = work(&kept.fold);
        if found.is_none() {
            kept.fold = partition.fold(session, number, kept.next, context).await?;
            found = work(&kept.fold);
        }
        kept.fold.prune();
        self.folds.lock().put(session.clone(), kept);
        found.ok_or_else(|| WorkError::poison("memory_incomplete", format!("the log lacks turns of {session}")))
    }
}

impl Partition {
    /// Remembers where a conversation began that was not there before.
    fn note(&self, session: &Session, offset: i64) {
        let mark = mark(&session.key());
        if self.before.get().is_none_or(|before| !before.contains_key(&mark)) {
            self.since.lock().entry(mark).or_insert(offset);
        }
    }

    /// The conversation as it stood before `end`.
    async fn fold(
        &self,
        session: &Session,
        number: i32,
        end: i64,
        context: &Context,
    ) -> Result<SessionFold, WorkError> {
        let before = self.before.get_or_try_init(|| self.look(number, context)).await?;
        let mark = mark(&session.key());
        let began = before.get(&mark).copied().or_else(|| self.since.lock().get(&mark).copied());
        let mut fold = SessionFold::default();
        if let Some(began) = began.filter(|began| *began < end) {
            let key = session.key().into_bytes();
            let mut take = |event: MemoryEvent, _: i64| {
                fold.apply(&event);
            };
            read(number, (began, end), Some(key.as_slice()), context, &mut take).await?;
        }
        Ok(fold)
    }

    /// Which conversations there were when the partition came.
    async fn look(&self, number: i32, context: &Context) -> Result<HashMap<Mark, i64>, WorkError> {
        let mut found = HashMap::new();
        if self.start > 0 {
            let mut take = |event: MemoryEvent, offset: i64| {
                found.entry(mark(&event.session().key())).or_insert(offset);
            };
            read(number, (0, self.start), None, context, &mut take).await?;
        }
        Ok(found)
    }
}

/// Hands over the events of a part of a partition; of one key, where one is named.
async fn read(
    number: i32,
    (from, end): (i64, i64),
    key: Option<&[u8]>,
    context: &Context,
    take: &mut (dyn FnMut(MemoryEvent, i64) + Send),
) -> Result<(), WorkError> {
    let partition = TopicPartition::new(Topic::MemoryEvents.name(), number);
    let range = Tail::read_range(&context.log, partition, StartAt::Offset(from)).await;
    let mut range = range.map_err(|error| log_error(&error))?;
    loop {
        let record = match range.next().await {
            Ok(Some(record)) if record.offset < end => record,
            Ok(Some(_) | None) => return Ok(()),
            // What fell off the log is told of once, and reading goes on behind it.
            Err(error @ LogError::OutOfRange { .. }) => {
                tracing::warn!(error = %error, "turns are gone from the log");
                continue;
            }
            Err(error) => return Err(log_error(&error)),
        };
        if key.is_some_and(|key| record.key.as_deref() != Some(key)) {
            continue;
        }
        if let Some(event) = event(&context.schemas, &record) {
            take(event, record.offset);
        }
    }
}

fn event(schemas: &Schemas, record: &riverrun_log::Record) -> Option<MemoryEvent> {
    match schemas.decode::<MemoryEvent>(record) {
        Ok(Decoded::Event(event)) => Some(event),
        Ok(Decoded::UnknownType { record: name }) => {
            tracing::debug!(name, "event of a newer build skipped");
            None
        }
        Err(error) => {
            tracing::debug!(position = %record.position(), error = %error, "record that is no event skipped");
            None
        }
    }
}
