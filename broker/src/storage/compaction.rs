//! Compaction: of every key only the last record stays (`cleanup.policy=compact`).
//!
//! Closed segments are rewritten without records that a later one of the same key replaces, without records of aborted
//! transactions, and without tombstones and markers of empty transactions whose segment was closed for longer than
//! `delete.retention.ms`; small neighbours become one file. Offsets never change, and records that are not decided yet are
//! never touched. With its records an aborted transaction leaves the list that readers get. Kept whole are records without keys,
//! and compressed batches that cannot be read; while there is one of those, no tombstone goes, since it may stand for a record in
//! there.
//!
//! A pass takes note of the keys that have come since the last one, as many as fit into memory, and then rewrites the log up to
//! where it has looked. Segments are read and written a batch at a time, however large they are.

mod merge;
mod reader;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;

use self::merge::{Merge, Outcome};
use self::reader::Batches;
use super::partition::Partition;
use super::producers::Aborted;
use super::segment::Segment;
use crate::topic_config::TopicConfig;
use crate::wire::batch::{BatchHeader, Record, build_batch, records};
use crate::wire::compression::{recompressed, uncompressed};

/// Most keys remembered in one pass, at about 40 bytes each; the rest of the log waits for the next pass.
const MAX_KEYS: usize = 4_000_000;

/// Bytes that are read, and written, at a time. Tests go over the edges of chunks with few bytes.
const CHUNK: usize = if cfg!(test) { 100 } else { 1 << 20 };

/// Time after which a log is tried again that could not be compacted: each try reads all of it.
const FAILURE_PAUSE_MS: i64 = 60_000;

/// Remembers how far each log has been compacted.
pub(crate) struct Compactor {
    past: Mutex<HashMap<PathBuf, Past>>,
    hashers: [RandomState; 2],
    max_keys: usize,
}

impl Default for Compactor {
    fn default() -> Self {
        Self::remembering(MAX_KEYS)
    }
}

/// What became of earlier passes over a log.
#[derive(Clone, Copy, Default)]
struct Past {
    /// Of the records before this offset each has a key of its own.
    cleaned: i64,
    /// There is a batch among them that cannot be read.
    opaque: bool,
    /// It is left alone until then, milliseconds since 1970.
    paused_until_ms: i64,
}

type KeyHash = (u64, u64);

/// What a pass over the log has learnt.
struct Plan {
    /// Of keys in what has come since the last pass.
    last: HashMap<KeyHash, i64>,
    /// Last batch of each producer: kept, if need be without records, so that its sequence number survives.
    last_of_producer: HashMap<i64, i64>,
    aborted: Vec<Aborted>,
    /// Segments from here on wait for the next pass.
    end: i64,
    /// Keys from here on have not been looked at.
    known: i64,
    /// Some compressed batch cannot be read.
    opaque: bool,
}

/// The segments that may be compacted.
struct Closed {
    segments: Vec<Segment>,
    /// When each was closed at the latest, by the broker's clock; none if nothing has come since.
    closed_ms: Vec<Option<i64>>,
    /// Where the last of them ends.
    end: i64,
}

impl Closed {
    /// Where a segment ends.
    fn end_of(&self, at: usize) -> i64 {
        self.segments.get(at + 1).map_or(self.end, |next| next.base_offset)
    }

    /// Whether enough has come since the last pass, or some of it has waited for long enough.
    fn is_worth_it(&self, cleaned: i64, total: u64, now: i64, config: &TopicConfig) -> bool {
        let is_new = |(at, segment): &(usize, &Segment)| self.end_of(*at) > cleaned && segment.size > 0;
        let new = || self.segments.iter().enumerate().filter(is_new).map(|(_, segment)| segment);
        let dirty: u64 = new().map(|segment| segment.size).sum();
        let is_enough = dirty as f64 >= total as f64 * config.min_cleanable_dirty_ratio;
        let oldest = new().filter_map(|segment| segment.first_ms).min();
        let is_overdue = oldest.is_some_and(|first| now.saturating_sub(first) > config.max_compaction_lag_ms);
        dirty > 0 && (is_enough || is_overdue)
    }
}

/// How far a pass has come.
struct Compacted {
    cleaned: i64,
    opaque: bool,
    /// Bytes that are left.
    bytes: u64,
}

impl Compactor {
    /// One that remembers so many keys in a pass, and those of one batch more.
    pub(super) fn remembering(max_keys: usize) -> Self {
        Self { past: Mutex::default(), hashers: Default::default(), max_keys }
    }

    /// Compacts a partition if enough has come since the last time. Blocks.
    pub(crate) fn run(&self, partition: &Partition, now: i64) {
        if !partition.is_good() {
            return;
        }
        let past = self.past.lock().get(partition.folder()).copied().unwrap_or_default();
        if now < past.paused_until_ms {
            return;
        }
        let config = partition.config();
        let closed = partition.compactable(now, config.min_compaction_lag_ms);
        let total: u64 = closed.segments.iter().map(|segment| segment.size).sum();
        if !closed.is_worth_it(past.cleaned, total, now, &config) {
            return;
        }
        let past = match self.compact(partition, &closed, past, now - config.delete_retention_ms) {
            Ok(Compacted { cleaned, opaque, bytes }) => {
                partition.forget_aborted_before(cleaned);
                tracing::debug!(partition = %partition.name, before = total, after = bytes, "log compacted");
                Past { cleaned, opaque, paused_until_ms: 0 }
            }
            Err(error) => {
                tracing::warn!(partition = %partition.name, error = %error, "log not compacted, tried again in a minute");
                Past { paused_until_ms: now + FAILURE_PAUSE_MS, ..past }
            }
        };
        self.past.lock().insert(partition.folder().to_path_buf(), past);
    }

    /// Forgets the logs that are not in these folders any more.
    pub(crate) fn keep_only(&self, folders: &HashSet<PathBuf>) {
        self.past.lock().retain(|folder, _| folders.contains(folder));
    }

    fn compact(
        &self,
        partition: &Partition,
        closed: &Closed,
        past: Past,
        expired_before_ms: i64,
    ) -> io::Result<Compacted> {
        let plan = self.plan(partition, closed, past)?;
        let limit = partition.config().segment_bytes;
        // Producers with records of a transaction whose marker is still to come.
        let mut open = HashSet::new();
        let mut merge: Option<Merge<'_>> = None;
        let mut bytes = 0;
        let planned =
            closed.segments.iter().zip(&closed.closed_ms).take_while(|(segment, _)| segment.base_offset < plan.end);
        for (segment, closed_ms) in planned {
            let expired = closed_ms.is_some_and(|closed| closed < expired_before_ms);
            if let Some(mut neighbours) = merge.take() {
                let before = open.clone();
                let decide = |header: &BatchHeader, batch: &[u8]| self.decide(header, batch, &plan, expired, &mut open);
                if neighbours.add(segment, limit, decide)? {
                    merge = Some(neighbours);
                    continue;
                }
                open = before;
                bytes += neighbours.finish(segment.base_offset)?;
            }
            let decide = |header: &BatchHeader, batch: &[u8]| self.decide(header, batch, &plan, expired, &mut open);
            let mut alone = Merge::begin(partition, segment);
            alone.add(segment, limit, decide)?;
            merge = Some(alone);
        }
        if let Some(last) = merge {
            bytes += last.finish(plan.end)?;
        }
        Ok(Compacted { cleaned: plan.known, opaque: plan.opaque, bytes })
    }

    fn plan(&self, partition: &Partition, closed: &Closed, past: Past) -> io::Result<Plan> {
        let start = closed.segments.first().map_or(0, |segment| segment.base_offset);
        let mut plan = Plan {
            last: HashMap::new(),
            last_of_producer: HashMap::new(),
            aborted: partition.aborted_in(start, closed.end),
            end: closed.end,
            known: closed.end,
            opaque: past.opaque,
        };
        for (at, segment) in closed.segments.iter().enumerate() {
            let Some(unknown) = self.learn(partition, segment, past.cleaned, &mut plan)? else { continue };
            // A segment of which not all keys are known waits for the next pass, but for the first of those that are new: it
            // would wait for ever.
            let is_first = at == 0 || segment.base_offset <= past.cleaned;
            (plan.end, plan.known) =
                if is_first { (closed.end_of(at), unknown) } else { (segment.base_offset, segment.base_offset) };
            break;
        }
        Ok(plan)
    }

    /// Takes note of the keys of a segment that stand behind `cleaned`, and of its producers. Returns the offset from which on
    /// there were too many keys.
    fn learn(
        &self,
        partition: &Partition,
        segment: &Segment,
        cleaned: i64,
        plan: &mut Plan,
    ) -> io::Result<Option<i64>> {
        let mut unknown = None;
        let mut batches = Batches::of(partition, segment)?;
        while let Some((header, batch)) = batches.advance()? {
            if header.producer_id >= 0 {
                plan.last_of_producer.insert(header.producer_id, header.base_offset);
            }
            if unknown.is_some() || header.base_offset < cleaned || header.is_control() || plan.is_aborted(&header) {
                continue;
            }
            if plan.last.len() >= self.max_keys {
                unknown = Some(header.base_offset);
                continue;
            }
            self.learn_keys(&header, batch, plan);
        }
        Ok(unknown)
    }

    fn learn_keys(&self, header: &BatchHeader, batch: &[u8], plan: &mut Plan) {
        let Some((header, batch)) = uncompressed(header, batch) else {
            plan.opaque = true;
            return;
        };
        for record in records(&header, &batch).filter_map(Result::ok) {
            if let Some(key) = record.key {
                plan.last.insert(self.hash(key), record.offset);
            }
        }
    }

    fn hash(&self, key: &[u8]) -> KeyHash {
        (self.hashers[0].hash_one(key), self.hashers[1].hash_one(key))
    }

    /// What becomes of a batch. `expired` says that tombstones and needless markers go; `open` are the producers with records of
    /// a transaction that stay and whose marker is still to come.
    fn decide(
        &self,
        header: &BatchHeader,
        batch: &[u8],
        plan: &Plan,
        expired: bool,
        open: &mut HashSet<i64>,
    ) -> Outcome {
        let is_last = plan.last_of_producer.get(&header.producer_id) == Some(&header.base_offset);
        if header.is_control() {
            // Without it a later start could not tell what became of the records before it; without records, it could.
            let has_records = open.remove(&header.producer_id);
            return if has_records || is_last || !expired { Outcome::Stays } else { Outcome::Goes };
        }
        let outcome = if plan.is_aborted(header) {
            without_any(header, is_last)
        } else if header.base_offset >= plan.known {
            Outcome::Stays
        } else {
            self.thin_out(header, batch, plan, expired, is_last)
        };
        if header.is_transactional() && !matches!(outcome, Outcome::Goes) {
            open.insert(header.producer_id);
        }
        outcome
    }

    fn thin_out(&self, header: &BatchHeader, batch: &[u8], plan: &Plan, expired: bool, is_last: bool) -> Outcome {
        let Some((plain_header, plain)) = uncompressed(header, batch) else { return Outcome::Stays };
        let all: Vec<Record<'_>> = records(&plain_header, &plain).filter_map(Result::ok).collect();
        let kept: Vec<&Record<'_>> = all.iter().filter(|record| self.stays(record, plan, expired)).collect();
        // Where the records are not as many as the header says, the batch is not what we understand: it is left alone.
        if all.len() != header.records as usize {
            Outcome::Stays
        } else if kept.is_empty() {
            without_any(header, is_last)
        } else if kept.len() == all.len() {
            Outcome::Stays
        } else {
            Outcome::Becomes(without(header, &kept))
        }
    }

    fn stays(&self, record: &Record<'_>, plan: &Plan, expired: bool) -> bool {
        let Some(key) = record.key else { return true };
        let newest = plan.last.get(&self.hash(key)).is_none_or(|last| *last <= record.offset);
        let old_tombstone = record.value.is_none() && expired && !plan.opaque;
        newest && !old_tombstone
    }
}

impl Plan {
    fn is_aborted(&self, header: &BatchHeader) -> bool {
        header.is_transactional()
            && self.aborted.iter().any(|range| {
                range.producer_id == header.producer_id
                    && (range.first_offset..range.last_offset).contains(&header.base_offset)
            })
    }
}

/// The batch with these records only. Offsets and timestamps are relative to the unchanged base, so records stay as they are.
fn without(header: &BatchHeader, kept: &[&Record<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    kept.iter().for_each(|record| body.extend_from_slice(record.raw));
    let newest = kept.iter().map(|record| record.timestamp).max().unwrap_or(header.base_timestamp);
    let (attributes, body) = recompressed(header.attributes, body);
    build_batch(&BatchHeader { records: kept.len() as i32, max_timestamp: newest, attributes, ..*header }, &body)
}

/// What becomes of a batch of which no record stays: the last one of its producer stays without them.
fn without_any(header: &BatchHeader, is_last: bool) -> Outcome {
    match (is_last, header.records) {
        (false, _) => Outcome::Goes,
        (true, 0) => Outcome::Stays,
        (true, _) => Outcome::Becomes(without(header, &[])),
    }
}

impl Partition {
    /// The closed segments whose records are all decided and at least `lag_ms` old.
    fn compactable(&self, now: i64, lag_ms: i64) -> Closed {
        let state = self.state.lock();
        let decided = state.bounds().last_stable;
        let closed = state
            .segments
            .windows(2)
            .take_while(|pair| pair[1].base_offset <= decided && pair[0].newest_ms(now) <= now - lag_ms);
        let count = closed.count();
        let end = state.segments.get(count).map_or(0, |next| next.base_offset);
        // A segment was closed before the first batch of the next one came.
        let closed_ms = state.segments.iter().skip(1).take(count).map(|next| next.first_ms).collect();
        Closed { segments: state.segments[..count].to_vec(), closed_ms, end }
    }

    /// See [`Producers::forget_aborted_before`](super::producers::Producers::forget_aborted_before).
    fn forget_aborted_before(&self, offset: i64) {
        self.state.lock().forget_aborted_before(offset);
    }

    /// Segments and aborted transactions change at once: who reads takes note of both at once, too.
    fn swap_segments(&self, old: &[Segment], new: Segment, end_offset: i64) {
        let _writer = self.writer.lock();
        {
            let mut state = self.state.lock();
            let Some(at) = state.segments.iter().position(|segment| segment.id == old[0].id) else { return };
            state.segments.splice(at..at + old.len(), [new]);
            state.forget_tail_before(end_offset);
            state.forget_aborted_before(end_offset);
        }
        for segment in old {
            let _ = self.remove_files(segment);
            if let Err(error) = self.shared.files.disk().sync_dir(&self.folder) {
                // What comes back at the next start is recognised as replaced.
                tracing::warn!(partition = %self.name, error = %error, "removal of a segment not synced");
            }
        }
    }
}
