//! Compaction: of every key only the last record stays (`cleanup.policy=compact`).
//!
//! Closed segments are rewritten without records that a later one of the same key replaces, without records of aborted
//! transactions, and without tombstones older than `delete.retention.ms`; small neighbours become one file. Offsets never
//! change. Kept whole are compressed batches (the broker does not decompress), batches without keys, and transaction
//! markers, which a later start needs to tell committed from aborted.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use parking_lot::Mutex;

use super::disk::OpenMode;
use super::partition::Partition;
use super::producers::Aborted;
use super::segment::{Checkpoint, Segment};
use crate::wire::batch::{BatchHeader, Record, build_batch, records};

/// Most keys remembered in one pass, at about 40 bytes each; the rest of the log waits for the next pass.
const MAX_KEYS: usize = 4_000_000;

/// Remembers how far each log has been compacted.
#[derive(Default)]
pub(crate) struct Compactor {
    cleaned: Mutex<HashMap<PathBuf, i64>>,
    hashers: [RandomState; 2],
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
    tombstones_before_ms: i64,
}

impl Compactor {
    /// Compacts a partition if enough has come since the last time. Blocks.
    pub(crate) fn run(&self, partition: &Partition, now: i64) {
        if !partition.is_good() {
            return;
        }
        let config = partition.config();
        let (segments, end) = partition.compactable(now - config.min_compaction_lag_ms);
        let cleaned = self.cleaned.lock().get(partition.folder()).copied().unwrap_or(0);
        let total: u64 = segments.iter().map(|segment| segment.size).sum();
        let dirty: u64 =
            segments.iter().filter(|segment| segment.base_offset >= cleaned).map(|segment| segment.size).sum();
        if dirty == 0 || (dirty as f64) < total as f64 * config.min_cleanable_dirty_ratio {
            return;
        }
        match self.compact(partition, &segments, end, now - config.delete_retention_ms) {
            Ok((cleaned, after)) => {
                tracing::debug!(partition = %partition.name, before = total, after, "log compacted");
                self.cleaned.lock().insert(partition.folder().to_path_buf(), cleaned);
            }
            Err(error) => tracing::warn!(partition = %partition.name, error = %error, "log not compacted"),
        }
    }

    fn compact(
        &self,
        partition: &Partition,
        segments: &[Segment],
        end: i64,
        tombstones_before_ms: i64,
    ) -> io::Result<(i64, u64)> {
        let plan = self.plan(partition, segments, end, tombstones_before_ms)?;
        let limit = partition.config().segment_bytes;
        let mut group: Vec<(Segment, Vec<u8>)> = Vec::new();
        let mut after = 0;
        for (at, segment) in segments.iter().enumerate() {
            let next = segments.get(at + 1).map_or(end, |next| next.base_offset);
            if segment.base_offset >= plan.end {
                return Ok((segment.base_offset, after));
            }
            let bytes = self.rewrite(&read_segment(partition, segment)?, &plan);
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

    fn plan(
        &self,
        partition: &Partition,
        segments: &[Segment],
        end: i64,
        tombstones_before_ms: i64,
    ) -> io::Result<Plan> {
        let start = segments.first().map_or(0, |segment| segment.base_offset);
        let mut plan = Plan {
            last: HashMap::new(),
            last_of_producer: HashMap::new(),
            aborted: partition.aborted_in(start, end),
            end,
            tombstones_before_ms,
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
                if header.is_control() || header.is_compressed() || plan.is_aborted(&header) {
                    continue;
                }
                for record in records(&header, batch).filter_map(Result::ok) {
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

    fn rewrite(&self, bytes: &[u8], plan: &Plan) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for (header, batch) in batches(bytes) {
            let aborted = plan.is_aborted(&header);
            if header.is_control() || header.is_compressed() && !aborted {
                out.extend_from_slice(batch);
                continue;
            }
            let all: Vec<Record<'_>> = records(&header, batch).filter_map(Result::ok).collect();
            if all.len() != header.records as usize && !header.is_compressed() {
                // Not what we understand: leave it alone.
                out.extend_from_slice(batch);
                continue;
            }
            let stays = |record: &&Record<'_>| !aborted && self.stays(record, plan);
            let kept: Vec<&Record<'_>> = all.iter().filter(stays).collect();
            if kept.len() == all.len() && !aborted {
                out.extend_from_slice(batch);
            } else if !kept.is_empty() || plan.last_of_producer.get(&header.producer_id) == Some(&header.base_offset) {
                out.extend_from_slice(&without(&header, &kept));
            }
        }
        out
    }

    fn stays(&self, record: &Record<'_>, plan: &Plan) -> bool {
        let Some(key) = record.key else { return true };
        let newest = plan.last.get(&self.hash(key)).is_none_or(|last| *last <= record.offset);
        let old_tombstone = record.value.is_none() && record.timestamp < plan.tombstones_before_ms;
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
    const COMPRESSION_MASK: i16 = 0x07;
    let mut body = Vec::new();
    kept.iter().for_each(|record| body.extend_from_slice(record.raw));
    let newest = kept.iter().map(|record| record.timestamp).max().unwrap_or(header.base_timestamp);
    let attributes = header.attributes & !COMPRESSION_MASK;
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
    let sound: usize = {
        let mut at = 0;
        while let Ok(header) = BatchHeader::parse_checked(&bytes[at..]) {
            at += header.size;
        }
        at
    };
    if sound as u64 != segment.size {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is corrupt at byte {sound}", segment.path.display()),
        ));
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
    let disk = partition.shared.files.disk();
    let temporary = new.path.with_extension("log.tmp");
    let file = disk.open(&temporary, OpenMode::Truncate)?;
    file.write_all_at(&bytes, 0)?;
    file.sync_data()?;
    // The producers at the end of the group are those of its last segment's checkpoint.
    let last = old.last().and_then(|segment| Checkpoint::read(&**disk, &segment.checkpoint_path()));
    if let Some(last) = last {
        Checkpoint::of(&new, end_offset, last.producers).write(&**disk, &new.checkpoint_path())?;
    }
    disk.rename(&temporary, &new.path)?;
    disk.sync_dir(&partition.folder)?;
    partition.swap_segments(&old, new, end_offset);
    Ok(bytes.len() as u64)
}

impl Partition {
    /// The closed segments whose records are all decided and older than `before_ms`, and the offset at which they end.
    fn compactable(&self, before_ms: i64) -> (Vec<Segment>, i64) {
        let state = self.state.lock();
        let decided = state.bounds().last_stable;
        let closed = state
            .segments
            .windows(2)
            .take_while(|pair| pair[1].base_offset <= decided && pair[0].max_timestamp <= before_ms);
        let count = closed.count();
        let end = state.segments.get(count).map_or(0, |next| next.base_offset);
        (state.segments[..count].to_vec(), end)
    }

    fn swap_segments(&self, old: &[Segment], new: Segment, end_offset: i64) {
        let _writer = self.writer.lock();
        {
            let mut state = self.state.lock();
            let Some(at) = state.segments.iter().position(|segment| segment.id == old[0].id) else { return };
            state.segments.splice(at..at + old.len(), [new]);
            state.forget_tail_before(end_offset);
        }
        for segment in old {
            self.remove_files(segment);
        }
    }
}
