//! What documents were before, folded from `ingest.events`.
//!
//! Commands and events of a document are in partitions of the same number, so the fold of one partition has all that a
//! decision about its documents needs. It is read from its first offset when the first document of that partition comes, and
//! up to its end before every decision. Memory: about 100 bytes a document, at most [`MAX_DOCUMENTS`] a partition (so 100 MB
//! each when full); documents beyond that are taken in again instead of being found unchanged, which is more work but never
//! wrong.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riverrun_log::{LogConfig, LogError, Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::{Decoded, DocumentId, IngestId, Topic};
use sha2::{Digest, Sha256};

/// Documents of one partition that are remembered.
pub const MAX_DOCUMENTS: usize = 1_000_000;

/// Answers of one partition that are remembered so that a redelivered command gets the same one: more than a worker has
/// uncommitted at a time.
const MAX_ANSWERS: usize = 16_384;

/// How long the next record may take before the partition's end is looked at more closely: offsets behind the last record
/// may belong to transactions and then no record comes.
const RECORD_PATIENCE: Duration = Duration::from_millis(200);

/// A reader that nobody asked for so long is closed: it holds a connection and fetches all the while. What was folded is kept,
/// and reading goes on behind it.
const IDLE: Duration = Duration::from_secs(60);

/// What to do with a document that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The same version is in the collection, wholly.
    Unchanged,
    /// It has to be split, embedded and indexed.
    Take,
}

/// Whether a request is still the one that a document's chunks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Current,
    /// The document was handed in again, failed or was removed since.
    Replaced,
    /// Its chunks are not on the log, or too long ago.
    Unknown,
}

/// The fold of one partition. Pure.
#[derive(Debug, Default)]
pub struct Versions {
    latest: HashMap<DocumentId, Latest>,
    answers: HashMap<(IngestId, DocumentId), Decision>,
    order: VecDeque<(IngestId, DocumentId)>,
}

/// The last version of a document that was split, and whether all of it got into the collection.
#[derive(Debug, Clone, Copy)]
struct Latest {
    ingest: IngestId,
    version: [u8; 32],
    indexed: bool,
}

impl Versions {
    /// Takes the next event of the partition.
    pub fn apply(&mut self, event: &IngestEvent) {
        match event {
            IngestEvent::DocumentChunked(e) => {
                self.answered(e.ingest_id, e.document_id, Decision::Take);
                if self.latest.len() < MAX_DOCUMENTS || self.latest.contains_key(&e.document_id) {
                    self.latest.insert(
                        e.document_id,
                        Latest { ingest: e.ingest_id, version: key(&e.version), indexed: false },
                    );
                }
            }
            IngestEvent::DocumentUnchanged(e) => self.answered(e.ingest_id, e.document_id, Decision::Unchanged),
            // Only the end of the version that was split last counts: an older one that ends later is replaced by it.
            IngestEvent::DocumentIndexed(e) => {
                if let Some(latest) = self.latest.get_mut(&e.document_id).filter(|latest| latest.ingest == e.ingest_id)
                {
                    latest.indexed = true;
                }
            }
            // Part of a version that failed on its way may be in the collection. One that failed before it was split is not.
            IngestEvent::DocumentFailed(e) => {
                if self.latest.get(&e.document_id).is_some_and(|latest| latest.ingest == e.ingest_id) {
                    self.latest.remove(&e.document_id);
                }
            }
            // What is on its way of it is removed behind this: the same content has to be taken in anew.
            IngestEvent::DocumentWithdrawn(e) => {
                self.latest.remove(&e.document_id);
            }
            IngestEvent::DocumentQueued(_)
            | IngestEvent::DocumentEmbedded(_)
            | IngestEvent::DocumentDeleted(_)
            | IngestEvent::CollectionWithdrawn(_)
            | IngestEvent::CollectionReembedding(_)
            | IngestEvent::CollectionReembedded(_)
            | IngestEvent::CollectionReembedFailed(_)
            | IngestEvent::CollectionRebuilding(_)
            | IngestEvent::CollectionRebuilt(_)
            | IngestEvent::CollectionRebuildFailed(_)
            | IngestEvent::CollectionTuning(_)
            | IngestEvent::CollectionTuned(_)
            | IngestEvent::CollectionTuneFailed(_)
            | IngestEvent::IngestScanned(_)
            | IngestEvent::IngestFailed(_) => {}
        }
    }

    /// What to do with `version` of a document. A command that was answered before gets the same answer, whatever came since:
    /// it was delivered again.
    pub fn decide(&self, ingest: IngestId, document: DocumentId, version: &str) -> Decision {
        if let Some(answer) = self.answers.get(&(ingest, document)) {
            return *answer;
        }
        match self.latest.get(&document) {
            Some(latest) if latest.indexed && latest.version == key(version) => Decision::Unchanged,
            Some(_) | None => Decision::Take,
        }
    }

    /// How a request about a document stands.
    pub fn standing(&self, ingest: IngestId, document: DocumentId) -> Standing {
        if self.latest.get(&document).is_some_and(|latest| latest.ingest == ingest) {
            Standing::Current
        } else if self.answers.contains_key(&(ingest, document)) {
            Standing::Replaced
        } else {
            Standing::Unknown
        }
    }

    fn answered(&mut self, ingest: IngestId, document: DocumentId, answer: Decision) {
        let command = (ingest, document);
        if self.answers.insert(command, answer).is_none() {
            self.order.push_back(command);
        }
        if self.order.len() > MAX_ANSWERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }
}

/// A version in half the memory of its hexadecimal text, whatever text it is.
fn key(version: &str) -> [u8; 32] {
    Sha256::digest(version).into()
}

/// The folds of the partitions that documents came from.
pub struct History {
    log: LogConfig,
    schemas: Schemas,
    partitions: Mutex<HashMap<i32, Arc<tokio::sync::Mutex<Partition>>>>,
    idle: Duration,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History").field("partitions", &self.partitions.lock().len()).finish_non_exhaustive()
    }
}

struct Partition {
    tail: Option<Tail>,
    used: Instant,
    watched: bool,
    next: i64,
    versions: Versions,
}

impl Default for Partition {
    fn default() -> Self {
        Self { tail: None, used: Instant::now(), watched: false, next: 0, versions: Versions::default() }
    }
}

impl History {
    /// Nothing is read yet.
    pub fn new(log: LogConfig, schemas: Schemas) -> Self {
        Self { log, schemas, partitions: Mutex::default(), idle: IDLE }
    }

    /// What to do with a document whose command lies in `partition`, after reading that partition's events to their end.
    pub async fn decide(
        &self,
        partition: i32,
        ingest: IngestId,
        document: DocumentId,
        version: &str,
    ) -> Result<Decision, LogError> {
        self.caught_up(partition, |versions| versions.decide(ingest, document, version)).await
    }

    /// How a request about a document in `partition` stands, after reading that partition's events to their end.
    pub async fn standing(&self, partition: i32, ingest: IngestId, document: DocumentId) -> Result<Standing, LogError> {
        self.caught_up(partition, |versions| versions.standing(ingest, document)).await
    }

    async fn caught_up<T>(&self, partition: i32, ask: impl FnOnce(&Versions) -> T + Send) -> Result<T, LogError> {
        let shared = self.partitions.lock().entry(partition).or_default().clone();
        let mut fold = shared.lock().await;
        fold.used = Instant::now();
        if !std::mem::replace(&mut fold.watched, true) {
            close_when_idle(Arc::downgrade(&shared), self.idle);
        }
        self.catch_up(TopicPartition::new(Topic::IngestEvents.name(), partition), &mut fold).await?;
        Ok(ask(&fold.versions))
    }

    /// Lets go of partitions that are another worker's now, with what was folded of them.
    pub fn forget(&self, partitions: impl IntoIterator<Item = i32>) {
        let mut folds = self.partitions.lock();
        partitions.into_iter().for_each(|partition| drop(folds.remove(&partition)));
    }

    async fn catch_up(&self, partition: TopicPartition, fold: &mut Partition) -> Result<(), LogError> {
        if fold.tail.is_none() {
            fold.tail = Some(Tail::open(&self.log, vec![(partition.clone(), StartAt::Offset(fold.next))]).await?);
        }
        let result = self.read_to_end(&partition, fold).await;
        if result.is_err() {
            // Open anew next time, where this one stopped.
            fold.tail = None;
        }
        result
    }

    async fn read_to_end(&self, partition: &TopicPartition, fold: &mut Partition) -> Result<(), LogError> {
        let Some(tail) = fold.tail.as_mut() else { return Ok(()) };
        let end = tail.end_offsets().await?.get(partition).copied().unwrap_or(0);
        while fold.next < end {
            match tokio::time::timeout(RECORD_PATIENCE, tail.next()).await {
                Ok(Ok(record)) => {
                    fold.next = record.offset + 1;
                    apply(&self.schemas, &record, &mut fold.versions);
                }
                Ok(Err(LogError::OutOfRange { low, .. })) => {
                    tracing::warn!(%partition, from = fold.next, to = low, "events are gone from the log; documents in them are taken in again");
                    fold.next = fold.next.max(low);
                }
                Ok(Err(error)) => return Err(error),
                // Slow, or nothing but transaction markers: a reader that is told the end knows.
                Err(_) => return self.read_range(partition, fold, end).await,
            }
        }
        Ok(())
    }

    async fn read_range(&self, partition: &TopicPartition, fold: &mut Partition, end: i64) -> Result<(), LogError> {
        fold.tail = None;
        let mut range = Tail::read_range(&self.log, partition.clone(), StartAt::Offset(fold.next)).await?;
        while let Some(record) = range.next().await? {
            fold.next = record.offset + 1;
            apply(&self.schemas, &record, &mut fold.versions);
        }
        fold.next = fold.next.max(end);
        Ok(())
    }
}

/// Closes the reader of a partition once nobody asked for `idle`, or is over when the partition is gone.
fn close_when_idle(partition: Weak<tokio::sync::Mutex<Partition>>, idle: Duration) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(idle).await;
            let Some(partition) = partition.upgrade() else { return };
            let mut fold = partition.lock().await;
            if fold.used.elapsed() >= idle {
                (fold.tail, fold.watched) = (None, false);
                return;
            }
        }
    });
}

fn apply(schemas: &Schemas, record: &Record, versions: &mut Versions) {
    match schemas.decode::<IngestEvent>(record) {
        Ok(Decoded::Event(event)) => versions.apply(&event),
        Ok(Decoded::UnknownType { record: name }) => tracing::debug!(name, "event of a newer build skipped"),
        Err(error) => tracing::warn!(position = %record.position(), error = %error, "record that is no event skipped"),
    }
}

#[cfg(test)]
mod tests;
