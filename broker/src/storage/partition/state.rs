//! What a partition remembers between two writes.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use super::Bounds;
use crate::clock::now_ms;
use crate::storage::producers::Producers;
use crate::storage::segment::{Checkpoint, Segment};
use crate::topic_config::TopicConfig;
use crate::wire::batch::{BatchHeader, Marker};

/// Most bytes written in one group before a sync.
pub(in crate::storage) const MAX_GROUP_BYTES: usize = 16 << 20;
/// Recent batches kept in memory per partition for readers at the tail.
const TAIL_BYTES: usize = 128 << 10;
/// Bytes behind the last checkpoint of an active segment at which the next is written, however little time has passed.
const CHECKPOINT_BYTES: u64 = 8 << 20;

pub(in crate::storage) struct State {
    pub(in crate::storage) segments: Vec<Segment>,
    pub(in crate::storage) log_start: i64,
    /// End of what is durable and visible.
    pub(in crate::storage) high_watermark: i64,
    /// End of what is queued.
    pub(super) log_end: i64,
    pub(in crate::storage) durable: Producers,
    pub(super) queued: Producers,
    pub(super) pending: VecDeque<Pending>,
    pub(super) scheduled: bool,
    /// In the order of their offsets.
    pub(super) waiters: VecDeque<(i64, oneshot::Sender<Result<(), ResponseError>>)>,
    pub(super) fetchers: HashMap<u64, Arc<Notify>>,
    pub(super) next_fetcher: u64,
    pub(in crate::storage) tail: VecDeque<TailBatch>,
    pub(super) tail_bytes: usize,
    pub(super) last_append_ms: i64,
    /// When the first batch came that no checkpoint of the active segment describes.
    pub(super) uncheckpointed_since_ms: Option<i64>,
    pub(super) health: Health,
    /// Damage that a reader has met in what a checkpoint covers, where a start does not look: what, and where.
    pub(super) damage: Option<String>,
}

pub(super) struct Pending {
    pub(super) header: BatchHeader,
    pub(super) marker: Option<Marker>,
    pub(super) bytes: Bytes,
    pub(super) _memory: Option<OwnedSemaphorePermit>,
}

pub(in crate::storage) struct TailBatch {
    pub(in crate::storage) base_offset: i64,
    pub(in crate::storage) last_offset: i64,
    pub(in crate::storage) bytes: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Health {
    Good,
    /// A write or sync failed; nothing is taken until the file has been cut back to what is durable.
    Failed {
        since: Instant,
    },
    /// The file is corrupt before its end; nothing is taken, and what lies before is served.
    Corrupt(String),
    Deleted,
}

/// Who waits for what has become durable. They are told without the lock: waking a thread takes longer than all that is done
/// under it, and the first thing that those who read do is to take it.
#[must_use = "they would wait on"]
pub(super) struct News {
    writers: Vec<oneshot::Sender<Result<(), ResponseError>>>,
    readers: Vec<Arc<Notify>>,
}

impl News {
    pub(super) fn tell(self) {
        for writer in self.writers {
            // One that does not wait any more does not mind.
            let _ = writer.send(Ok(()));
        }
        for reader in self.readers {
            reader.notify_one();
        }
    }
}

impl State {
    pub(super) fn wait_for(&mut self, offset: i64) -> oneshot::Receiver<Result<(), ResponseError>> {
        let (sender, receiver) = oneshot::channel();
        let at = self.waiters.partition_point(|(other, _)| *other <= offset);
        self.waiters.insert(at, (offset, sender));
        receiver
    }

    pub(super) fn take_group(&mut self) -> VecDeque<Pending> {
        let mut bytes = 0;
        let mut count = 0;
        for pending in &self.pending {
            bytes += pending.bytes.len();
            if count > 0 && bytes > MAX_GROUP_BYTES {
                break;
            }
            count += 1;
        }
        self.pending.drain(..count).collect()
    }

    pub(super) fn active(&self) -> (u64, PathBuf, u64) {
        let segment = self.segments.last().expect("a write is preceded by the roll that makes the first segment");
        (segment.id, segment.path.clone(), segment.size)
    }

    pub(super) fn must_roll(&self, next_bytes: u64, config: &TopicConfig) -> bool {
        let Some(active) = self.segments.last() else { return true };
        active.size > 0
            && (active.size + next_bytes > config.segment_bytes
                || active.first_ms.is_some_and(|first| now_ms() - first >= config.segment_ms))
    }

    pub(super) fn must_roll_by_time(&self, now: i64, config: &TopicConfig) -> bool {
        if self.health != Health::Good {
            return false;
        }
        let Some(active) = self.segments.last().filter(|active| active.size > 0) else { return false };
        let old = active.first_ms.is_some_and(|first| now - first >= config.segment_ms);
        let expired =
            config.deletes() && config.retention_ms.is_some_and(|retention| active.newest_ms(now) < now - retention);
        let dropped = self.log_start == self.high_watermark && self.log_start > active.base_offset;
        old || expired || dropped
    }

    pub(super) fn remove_expired(
        &mut self,
        now: i64,
        config: &TopicConfig,
        producers_idle_before_ms: i64,
    ) -> Vec<Segment> {
        let mut removed = Vec::new();
        let mut total: u64 = self.segments.iter().map(|segment| segment.size).sum();
        let undecided = self.bounds().last_stable;
        if matches!(self.health, Health::Corrupt(_)) {
            return removed;
        }
        while self.segments.len() > 1 {
            let (first, next) = (&self.segments[0], &self.segments[1]);
            let before_start = next.base_offset <= self.log_start;
            let expired = config.deletes()
                && next.base_offset <= undecided
                && (config.retention_ms.is_some_and(|retention| first.newest_ms(now) < now - retention)
                    || config.retention_bytes.is_some_and(|limit| total - first.size >= limit));
            if !before_start && !expired {
                break;
            }
            total -= first.size;
            removed.push(self.segments.remove(0));
            self.log_start = self.log_start.max(self.segments[0].base_offset);
        }
        self.durable.trim(self.log_start, producers_idle_before_ms);
        self.queued.trim(self.log_start, producers_idle_before_ms);
        removed
    }

    /// Makes written and synced batches visible; returns who has to be told.
    pub(super) fn publish(&mut self, part: Vec<Pending>) -> News {
        let now = now_ms();
        for pending in part {
            let segment =
                self.segments.last_mut().expect("a write is preceded by the roll that makes the first segment");
            segment.push_at(&pending.header, now);
            self.durable.apply(&pending.header, pending.marker, now);
            self.high_watermark = pending.header.last_offset() + 1;
            self.tail_bytes += pending.bytes.len();
            self.tail.push_back(TailBatch {
                base_offset: pending.header.base_offset,
                last_offset: pending.header.last_offset(),
                bytes: pending.bytes,
            });
        }
        self.last_append_ms = now;
        self.uncheckpointed_since_ms.get_or_insert(now);
        while self.tail_bytes > TAIL_BYTES {
            let Some(oldest) = self.tail.pop_front() else { break };
            self.tail_bytes -= oldest.bytes.len();
        }
        let durable = self.waiters.partition_point(|(offset, _)| *offset < self.high_watermark);
        let writers = self.waiters.drain(..durable).map(|(_, waiter)| waiter).collect();
        News { writers, readers: self.fetchers.values().cloned().collect() }
    }

    /// Makes readers see the files again instead of what is remembered of them.
    pub(in crate::storage) fn forget_tail_before(&mut self, offset: i64) {
        while self.tail.front().is_some_and(|batch| batch.base_offset < offset) {
            if let Some(batch) = self.tail.pop_front() {
                self.tail_bytes -= batch.bytes.len();
            }
        }
    }

    /// Of transactions that ended before `offset` no aborted record is left.
    pub(in crate::storage) fn forget_aborted_before(&mut self, offset: i64) {
        self.durable.forget_aborted_before(offset);
        self.queued.forget_aborted_before(offset);
    }

    pub(super) fn fail(&mut self) {
        self.pending.clear();
        self.refuse_waiters(ResponseError::KafkaStorageError);
        self.queued = self.durable.clone();
        self.log_end = self.high_watermark;
        if self.health != Health::Deleted {
            self.health = Health::Failed { since: Instant::now() };
        }
    }

    pub(super) fn refuse_waiters(&mut self, error: ResponseError) {
        for (_, waiter) in self.waiters.drain(..) {
            let _ = waiter.send(Err(error));
        }
    }

    pub(super) fn wake_fetchers(&self) {
        self.fetchers.values().for_each(|fetcher| fetcher.notify_one());
    }

    pub(in crate::storage) fn log_end(&self) -> i64 {
        self.log_end
    }

    pub(in crate::storage) fn bounds(&self) -> Bounds {
        Bounds {
            log_start: self.log_start,
            high_watermark: self.high_watermark,
            // The beginning of an open transaction may have been deleted: it then covers the log from its start on.
            last_stable: self.durable.first_open().unwrap_or(i64::MAX).min(self.high_watermark).max(self.log_start),
        }
    }

    pub(super) fn is_checkpoint_due(&self, now: i64, interval_ms: i64) -> bool {
        let is_long = self.segments.last().is_some_and(|active| active.size >= active.checkpointed + CHECKPOINT_BYTES);
        is_long || self.uncheckpointed_since_ms.is_some_and(|since| now - since >= interval_ms)
    }

    pub(super) fn checkpoint(&self) -> Option<(PathBuf, Checkpoint)> {
        if matches!(self.health, Health::Corrupt(_) | Health::Deleted) {
            return None;
        }
        let active = self.segments.last()?;
        Some((active.checkpoint_path(), Checkpoint::of(active, self.high_watermark, self.durable.snapshot())))
    }
}
