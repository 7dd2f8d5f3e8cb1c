//! Compaction: of every key only the last record stays (`cleanup.policy=compact`).
//!
//! Closed segments are rewritten without records that a later one of the same key replaces, without records of aborted
//! transactions, and without tombstones and markers of empty transactions whose segment was closed for longer than
//! `delete.retention.ms`; small neighbours become one file. Offsets never change, and records that are not decided yet are
//! never touched. With its records an aborted transaction leaves the list that readers get. Kept whole are records without keys, and compressed batches that cannot be read; while there is one of
//! those, no tombstone goes, since it may stand for a record in there.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parking_lot::Mutex;

use super::disk::{Disk, OpenMode};
use super::partition::Partition;
use super::producers::Aborted;
use super::segment::{Checkpoint, Segment};
use crate::topic_config::TopicConfig;
use crate::wire::batch::{BatchHeader, Record, build_batch, records};
use crate::wire::compression::{recompressed, uncompressed};

/// Most keys remembered in one pass, at about 40 bytes each; the rest of the log waits for the next pass.
const MAX_KEYS: usize = 4_000_000;

/// Time after which a log is tried again that could not be compacted: each try reads all of it.
const FAILURE_PAUSE_MS: i64 = 60_000;

/// Remembers how far each log has been compacted.
#[derive(Default)]
pub(crate) struct Compactor {
    past: Mutex<HashMap<PathBuf, Past>>,
    hashers: [RandomState; 2],
}

/// What became of earlier passes over a log.
#[derive(Clone, Copy, Default)]
struct Past {
    /// Records before this offset have been through compaction.
    cleaned: i64,
    /// It is left alone until then, milliseconds since 1970.
    paused_until_ms: i64,
}

type KeyHash = (u64, u64);

/// What a pass over the log has learnt.
struct Plan {
    last: HashMap<KeyHash, i64>,
    /// Last batch of each producer: kept, if need be without records, so that its sequence number survives.
    last_of_producer: HashMap<i64, i64>,
    aborted: Vec<Aborted>,
    /// Records from here on have not been looked at.
    end: i64,
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
    /// Whether enough has come since the last pass, or some of it has waited for long enough.
    fn is_worth_it(&self, cleaned: i64, total: u64, now: i64, config: &TopicConfig) -> bool {
        let new = || self.segments.iter().filter(move |segment| segment.base_offset >= cleaned && segment.size > 0);
        let dirty: u64 = new().map(|segment| segment.size).sum();
        let is_enough = dirty as f64 >= total as f64 * config.min_cleanable_dirty_ratio;
        let oldest = new().filter_map(|segment| segment.first_ms).min();
        let is_overdue = oldest.is_some_and(|first| now.saturating_sub(first) > config.max_compaction_lag_ms);
        dirty > 0 && (is_enough || is_overdue)
    }
}

/// What has been written so far in a pass.
#[derive(Default)]
struct Written {
    /// Producers with records of a transaction whose marker is still to come.
    open: HashSet<i64>,
}

impl Compactor {
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
        let past = match self.compact(partition, &closed, now - config.delete_retention_ms) {
            Ok((cleaned, after)) => {
                partition.forget_aborted_before(cleaned);
                tracing::debug!(partition = %partition.name, before = total, after, "log compacted");
                Past { cleaned, paused_until_ms: 0 }
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

    fn compact(&self, partition: &Partition, closed: &Closed, expired_before_ms: i64) -> io::Result<(i64, u64)> {
        let (segments, end) = (&closed.segments, closed.end);
        let plan = self.plan(partition, segments, end)?;
        let mut written = Written::default();
        let limit = partition.config().segment_bytes;
        let mut group: Vec<(Segment, Vec<u8>)> = Vec::new();
        let mut after = 0;
        for (at, segment) in segments.iter().enumerate() {
            let next = segments.get(at + 1).map_or(end, |next| next.base_offset);
            if segment.base_offset >= plan.end {
                return Ok((segment.base_offset, after));
            }
            let expired = closed.closed_ms[at].is_some_and(|closed| closed < expired_before_ms);
            let bytes = self.rewrite(&read_segment(partition, segment)?, &plan, expired, &mut written);
            let size: usize = group.iter().map(|(_, bytes)| bytes.len()).sum();
            if !group.is_empty() && (size + bytes.len()) as u64 > limit {
                after += replace(partition, std::mem::take(&mut group), segment.base_offset)?;
            }
            group.push((segment.clone(), bytes));
            if next == end || segments.get(at + 1).is_none_or(|next| next.base_offset >= plan.end) {
                after += replace(partition, std::mem::take(&mut group), next)?;
            }
        }
        Ok((end, after))
    }

    fn plan(&self, partition: &Partition, segments: &[Segment], end: i64) -> io::Result<Plan> {
        let start = segments.first().map_or(0, |segment| segment.base_offset);
        let mut plan = Plan {
            last: HashMap::new(),
            last_of_producer: HashMap::new(),
            aborted: partition.aborted_in(start, end),
            end,
            opaque: false,
        };
        for segment in segments {
            if plan.last.len() >= MAX_KEYS {
                plan.end = segment.base_offset;
                break;
            }
            let bytes = read_segment(partition, segment)?;
            for (header, batch) in batches(&bytes) {
                if header.producer_id >= 0 {
                    plan.last_of_producer.insert(header.producer_id, header.base_offset);
                }
                if header.is_control() || plan.is_aborted(&header) {
                    continue;
                }
                let Some((header, batch)) = uncompressed(&header, batch) else {
                    plan.opaque = true;
                    continue;
                };
                for record in records(&header, &batch).filter_map(Result::ok) {
                    if let Some(key) = record.key {
                        plan.last.insert(self.hash(key), record.offset);
                    }
                }
            }
        }
        Ok(plan)
    }

    fn hash(&self, key: &[u8]) -> KeyHash {
        (self.hashers[0].hash_one(key), self.hashers[1].hash_one(key))
    }

    /// The segment without what may go. `expired` says that tombstones and needless markers are among that.
    fn rewrite(&self, bytes: &[u8], plan: &Plan, expired: bool, written: &mut Written) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for (header, batch) in batches(bytes) {
            let is_last = plan.last_of_producer.get(&header.producer_id) == Some(&header.base_offset);
            if header.is_control() {
                // Without it a later start could not tell what became of the records before it; without records, it could.
                let has_records = written.open.remove(&header.producer_id);
                if has_records || is_last || !expired {
                    out.extend_from_slice(batch);
                }
                continue;
            }
            let before = out.len();
            if plan.is_aborted(&header) {
                if is_last {
                    out.extend_from_slice(&without(&header, &[]));
                }
            } else {
                self.rewrite_batch(&header, batch, plan, expired, is_last, &mut out);
            }
            if header.is_transactional() && out.len() > before {
                written.open.insert(header.producer_id);
            }
        }
        out
    }

    fn rewrite_batch(
        &self,
        header: &BatchHeader,
        batch: &[u8],
        plan: &Plan,
        expired: bool,
        is_last: bool,
        out: &mut Vec<u8>,
    ) {
        let Some((plain_header, plain)) = uncompressed(header, batch) else {
            out.extend_from_slice(batch);
            return;
        };
        let all: Vec<Record<'_>> = records(&plain_header, &plain).filter_map(Result::ok).collect();
        let stays = |record: &&Record<'_>| self.stays(record, plan, expired);
        let kept: Vec<&Record<'_>> = all.iter().filter(stays).collect();
        // Where the records are not as many as the header says, the batch is not what we understand: it is left alone.
        if all.len() != header.records as usize || kept.len() == all.len() && !kept.is_empty() {
            out.extend_from_slice(batch);
        } else if !kept.is_empty() || is_last {
            out.extend_from_slice(&without(header, &kept));
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

fn batches(bytes: &[u8]) -> impl Iterator<Item = (BatchHeader, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header = BatchHeader::parse(rest).ok()?;
        let batch = rest.get(..header.size)?;
        rest = &rest[header.size..];
        Some((header, batch))
    })
}

fn read_segment(partition: &Partition, segment: &Segment) -> io::Result<Bytes> {
    let file = partition.shared.files.get(segment.id, &segment.path)?;
    let mut bytes = vec![0; segment.size as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let (mut sound, mut end) = (0, segment.base_offset);
    while let Ok(header) = BatchHeader::parse_checked(&bytes[sound..]) {
        sound += header.size;
        end = header.last_offset() + 1;
    }
    if sound as u64 != segment.size {
        let path = segment.path.display();
        let error = io::Error::new(io::ErrorKind::InvalidData, format!("{path} is corrupt at byte {sound}"));
        partition.found_damage(end, &error);
        return Err(error);
    }
    Ok(bytes.into())
}

/// Puts the rewritten contents of neighbouring segments, which end at `end_offset`, into one file in their place.
fn replace(partition: &Partition, group: Vec<(Segment, Vec<u8>)>, end_offset: i64) -> io::Result<u64> {
    let before: u64 = group.iter().map(|(segment, _)| segment.size).sum();
    let bytes: Vec<u8> = group.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    if group.len() == 1 && bytes.len() as u64 == before || group.is_empty() {
        return Ok(before);
    }
    let old: Vec<Segment> = group.into_iter().map(|(segment, _)| segment).collect();
    let generation = old.iter().map(|segment| segment.generation).max().unwrap_or(0) + 1;
    let mut new = Segment::new(&partition.folder, old[0].base_offset, generation);
    for (header, _) in batches(&bytes) {
        new.push(&header);
    }
    new.first_ms = old[0].first_ms;
    new.last_ms = old.last().and_then(|segment| segment.last_ms);
    let disk = partition.shared.files.disk();
    let temporary = new.path.with_extension("log.tmp");
    let file = disk.open(&temporary, OpenMode::Truncate)?;
    file.write_all_at(&bytes, 0)?;
    file.sync_data()?;
    // The producers at the end of the group are those of its last segment's checkpoint.
    let last = old.last().and_then(|segment| Checkpoint::read(&**disk, &segment.checkpoint_path()));
    let checkpoint = last.map(|last| Checkpoint::of(&new, end_offset, last.producers));
    if let Err(error) = put_in_place(&**disk, &temporary, &new, checkpoint) {
        // Without its segment it would say that something was lost.
        let _ = disk.remove_file(&new.checkpoint_path());
        return Err(error);
    }
    partition.swap_segments(&old, new, end_offset);
    Ok(bytes.len() as u64)
}

/// Gives a complete file its name, behind its checkpoint if there is one.
fn put_in_place(disk: &dyn Disk, temporary: &Path, new: &Segment, checkpoint: Option<Checkpoint>) -> io::Result<()> {
    match checkpoint {
        Some(checkpoint) => checkpoint.write(disk, &new.checkpoint_path())?,
        // One of an earlier attempt would describe other contents.
        None => drop(disk.remove_file(&new.checkpoint_path())),
    }
    disk.rename(temporary, &new.path)?;
    new.path.parent().map_or(Ok(()), |folder| disk.sync_dir(folder))
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
