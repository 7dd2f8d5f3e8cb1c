//! What is waiting, in work and done, by partition and lane. Decides which batch comes next, what is paused and what may
//! be committed. No I/O.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use riverrun_log::{CommitOffset, Outgoing, Record, TopicPartition};
use tokio_util::sync::CancellationToken;

use super::{DeliveryMode, Lanes, RuntimeConfig, Watermark};

/// Records that are handled one after the other (`LOOP-2`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneId {
    pub(super) partition: TopicPartition,
    key: Option<Bytes>,
    /// Which assignment of the partition it belongs to: what is left over from an older one counts no more (`LOOP-4`).
    generation: u64,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Record>,
    busy: bool,
    /// When the first of `waiting` came.
    since: Option<Instant>,
}

#[derive(Debug)]
struct Part {
    generation: u64,
    watermark: Watermark,
    committed: i64,
    bytes: usize,
    paused: bool,
    closing: bool,
    /// The newest offset that a worker was given.
    newest_begun: i64,
    quiet: CancellationToken,
    /// Outputs that wait for the transaction that commits what they came from, by the last offset of their batch.
    held: BTreeMap<i64, Vec<Outgoing>>,
}

/// Records of one lane, to be handled together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) lane: LaneId,
    pub(super) records: Vec<Record>,
    /// Cancelled when nothing new is to be begun for them.
    pub(super) quiet: CancellationToken,
}

/// Offsets that may be committed, and the outputs that belong to them.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) offsets: Vec<CommitOffset>,
    pub(super) outputs: Vec<Outgoing>,
}

/// What a batch took from the limits; given back when it ends.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) offsets: Vec<i64>,
    pub(super) bytes: usize,
}

impl Taken {
    pub(super) fn of(records: &[Record]) -> Self {
        Self {
            offsets: records.iter().map(|r| r.offset).collect(),
            bytes: records.iter().map(Record::size_bytes).sum(),
        }
    }
}

pub(super) struct Board {
    lanes: Lanes,
    max_batch: usize,
    queue_records: usize,
    queue_bytes: usize,
    window: i64,
    parts: HashMap<TopicPartition, Part>,
    open: HashMap<LaneId, Lane>,
    ready: VecDeque<LaneId>,
    generations: u64,
    quiet: CancellationToken,
}

impl Board {
    pub(super) fn new(lanes: Lanes, mode: DeliveryMode, config: &RuntimeConfig) -> Self {
        let max_batch = match (lanes, mode) {
            // Outputs of a batch are committed together; only a batch without gaps can be.
            (Lanes::PerKey { .. }, DeliveryMode::Transactional) => 1,
            (Lanes::PerKey { max_batch, .. } | Lanes::PerPartition { max_batch, .. }, _) => max_batch.max(1),
        };
        Self {
            lanes,
            max_batch,
            queue_records: config.queue_records.max(2 * max_batch),
            queue_bytes: config.queue_bytes,
            window: config.window.max(1),
            parts: HashMap::new(),
            open: HashMap::new(),
            ready: VecDeque::new(),
            generations: 0,
            quiet: CancellationToken::new(),
        }
    }

    /// A partition is ours from `offset` on.
    pub(super) fn open(&mut self, partition: TopicPartition, offset: i64) {
        self.close(std::slice::from_ref(&partition));
        self.generations += 1;
        self.parts.insert(
            partition,
            Part {
                generation: self.generations,
                watermark: Watermark::starting_at(offset),
                committed: offset,
                bytes: 0,
                paused: false,
                closing: false,
                newest_begun: -1,
                quiet: self.quiet.child_token(),
                held: BTreeMap::new(),
            },
        );
    }

    /// Ends what was begun of these partitions, and what lies before it in other lanes: left undone, that would hold the
    /// watermark back and everything behind it would come again. The rest is forgotten.
    pub(super) fn begin_close(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            if let Some(part) = self.parts.get_mut(partition) {
                part.closing = true;
                part.quiet.cancel();
            }
        }
        let Self { parts, open, .. } = self;
        open.retain(|id, lane| {
            if let Some(part) = parts.get(&id.partition).filter(|part| part.closing) {
                lane.waiting.retain(|record| record.offset < part.newest_begun);
            }
            lane.busy || !lane.waiting.is_empty()
        });
        self.ready.retain(|id| open.contains_key(id));
    }

    /// The same for all partitions.
    pub(super) fn begin_stop(&mut self) {
        self.quiet.cancel();
        self.begin_close(&self.all());
    }

    /// These partitions are not ours any more.
    pub(super) fn close(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            if let Some(part) = self.parts.remove(partition) {
                part.quiet.cancel();
            }
        }
        self.ready.retain(|lane| !partitions.contains(&lane.partition));
        self.open.retain(|lane, _| !partitions.contains(&lane.partition));
    }

    pub(super) fn partitions(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn all(&self) -> Vec<TopicPartition> {
        self.parts.keys().cloned().collect()
    }

    /// Whether anything of these partitions waits or is in the hands of a worker.
    pub(super) fn busy(&self, partitions: &[TopicPartition]) -> bool {
        self.open.keys().any(|id| partitions.contains(&id.partition))
    }

    /// Whether nothing at all waits or is in the hands of a worker.
    pub(super) fn idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Records in queue and work.
    pub(super) fn in_work(&self) -> usize {
        self.parts.values().map(|part| part.watermark.in_work()).sum()
    }

    fn bytes(&self) -> usize {
        self.parts.values().map(|part| part.bytes).sum()
    }

    /// A record came. `false` when it is not wanted: not ours, on the way out, or taken before.
    pub(super) fn push(&mut self, record: Record, now: Instant) -> bool {
        let partition = record.topic_partition();
        let Some(part) = self.parts.get_mut(&partition).filter(|part| !part.closing) else { return false };
        if !part.watermark.take(record.offset) {
            return false;
        }
        part.bytes += record.size_bytes();
        let key = match self.lanes {
            Lanes::PerKey { .. } => record.key.clone(),
            Lanes::PerPartition { .. } => None,
        };
        let id = LaneId { partition, key, generation: part.generation };
        let lane = self.open.entry(id.clone()).or_default();
        if lane.waiting.is_empty() {
            lane.since = Some(now);
            if !lane.busy {
                self.ready.push_back(id);
            }
        }
        lane.waiting.push_back(record);
        true
    }

    /// Before `next` lies no record that did not come. On the way out records that came are not taken: then it says nothing.
    pub(super) fn passed(&mut self, partition: &TopicPartition, next: i64) {
        if let Some(part) = self.parts.get_mut(partition).filter(|part| !part.closing) {
            part.watermark.pass(next);
        }
    }

    /// The next batch that may be begun, taken off the queue.
    pub(super) fn next_batch(&mut self, now: Instant) -> Option<Batch> {
        let place = self.ready.iter().position(|id| self.open.get(id).is_some_and(|lane| self.ripe(lane, now)))?;
        let id = self.ready.remove(place)?;
        let part = self.parts.get_mut(&id.partition)?;
        let lane = self.open.get_mut(&id)?;
        let count = lane.waiting.len().min(self.max_batch);
        let records: Vec<Record> = lane.waiting.drain(..count).collect();
        part.newest_begun = records.last().map_or(part.newest_begun, |record| record.offset.max(part.newest_begun));
        lane.busy = true;
        // Those left behind have waited as long as the first, about.
        lane.since = lane.since.filter(|_| !lane.waiting.is_empty());
        Some(Batch { lane: id, records, quiet: part.quiet.clone() })
    }

    fn ripe(&self, lane: &Lane, now: Instant) -> bool {
        match self.lanes {
            Lanes::PerKey { .. } => true,
            Lanes::PerPartition { max_wait, .. } => {
                lane.waiting.len() >= self.max_batch || lane.since.is_none_or(|since| now >= since + max_wait)
            }
        }
    }

    /// When the next batch is ripe that is not yet.
    pub(super) fn next_ripe(&self, now: Instant) -> Option<Instant> {
        let Lanes::PerPartition { max_wait, .. } = self.lanes else { return None };
        let waiting = self.ready.iter().filter_map(|id| self.open.get(id)).filter(|lane| !self.ripe(lane, now));
        waiting.filter_map(|lane| Some(lane.since? + max_wait)).min()
    }

    /// A batch has ended: done, with outputs that wait for their transaction, or left out, to come again.
    pub(super) fn end(&mut self, lane: &LaneId, taken: &Taken, finished: Option<Vec<Outgoing>>) {
        let Some(part) = self.parts.get_mut(&lane.partition).filter(|part| part.generation == lane.generation) else {
            return;
        };
        part.bytes = part.bytes.saturating_sub(taken.bytes);
        let done = finished.is_some();
        if let Some(outputs) = finished {
            for offset in &taken.offsets {
                part.watermark.done(*offset);
            }
            if let (false, Some(last)) = (outputs.is_empty(), taken.offsets.last()) {
                part.held.insert(*last, outputs);
            }
        }
        if let Some(state) = self.open.get_mut(lane) {
            state.busy = false;
            if !done {
                // What was left out comes again, and what follows in its lane must not overtake it.
                state.waiting.clear();
            }
            if state.waiting.is_empty() {
                self.open.remove(lane);
            } else {
                self.ready.push_back(lane.clone());
            }
        }
    }

    /// Everything before it is done, for a partition of ours.
    pub(super) fn committable(&self, partition: &TopicPartition) -> Option<i64> {
        self.parts.get(partition).map(|part| part.watermark.committable())
    }

    /// What may be committed and is not (`LOOP-1`); of all partitions or of some.
    pub(super) fn due(&mut self, of: Option<&[TopicPartition]>) -> Due {
        let mut due = Due::default();
        for (partition, part) in &mut self.parts {
            let offset = part.watermark.committable();
            if offset > part.committed && of.is_none_or(|of| of.contains(partition)) {
                due.offsets.push(CommitOffset { partition: partition.clone(), offset, metadata: None });
                // Cloned: a transaction that fails is tried again.
                due.outputs.extend(part.held.range(..offset).flat_map(|(_, outputs)| outputs.iter().cloned()));
            }
        }
        due
    }

    /// Whether [`due`](Self::due) has anything.
    pub(super) fn is_due(&self) -> bool {
        self.parts.values().any(|part| part.watermark.committable() > part.committed)
    }

    /// These offsets are durable.
    pub(super) fn committed(&mut self, offsets: &[CommitOffset]) {
        for CommitOffset { partition, offset, .. } in offsets {
            if let Some(part) = self.parts.get_mut(partition) {
                part.committed = part.committed.max(*offset);
                part.held = part.held.split_off(offset);
            }
        }
    }

    /// Partitions to pause and to resume, so that queue, bytes and window stay within their limits.
    pub(super) fn pressure(&mut self) -> (Vec<TopicPartition>, Vec<TopicPartition>) {
        let bytes = self.bytes();
        let (mut pause, mut resume) = (Vec::new(), Vec::new());
        for (partition, part) in &mut self.parts {
            let (records, span) = (part.watermark.in_work(), part.watermark.span());
            let full = records >= self.queue_records || bytes >= self.queue_bytes || span >= self.window;
            let roomy = records <= self.queue_records / 2 && bytes <= self.queue_bytes / 2 && span <= self.window / 2;
            if !part.paused && full {
                part.paused = true;
                pause.push(partition.clone());
            } else if part.paused && roomy {
                part.paused = false;
                resume.push(partition.clone());
            }
        }
        (pause, resume)
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
