//! Reading: from memory at the tail, from segment files otherwise.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;

use super::partition::{Bounds, Partition, State};
use super::producers::Aborted;
use super::segment::Segment;
use crate::wire::batch::{BatchHeader, HEADER_LEN, records};
use crate::wire::compression::uncompressed;

/// How often a read starts again because compaction or retention took the segment away meanwhile.
const RETRIES: usize = 3;
/// Bytes that are read on top of what is asked for, because a read begins at an index entry.
const SLACK: usize = 16 * 1024;

/// What a read finds.
pub(crate) enum Read {
    /// Nothing yet.
    Empty(Bounds),
    /// Recent batches, from memory, and the aborted transactions among them.
    Memory(Bounds, Vec<Bytes>, Vec<Aborted>),
    /// The file must be read: [`Partition::read_files`], where blocking is allowed.
    Files(Bounds),
}

/// What a read may return.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLimit {
    /// Bytes.
    pub max_bytes: usize,
    /// Whether the first batch is returned even if it is larger.
    pub at_least_one: bool,
    /// Whether only decided records are visible.
    pub committed_only: bool,
}

impl Partition {
    /// Looks for batches from the one that holds `offset` on; never does I/O.
    pub(crate) fn read(&self, offset: i64, limit: ReadLimit) -> Result<Read, ResponseError> {
        if self.is_corrupt_at(offset) {
            return Err(ResponseError::KafkaStorageError);
        }
        let state = self.state.lock();
        let bounds = state.bounds();
        if offset < bounds.log_start || offset > state.log_end() {
            return Err(ResponseError::OffsetOutOfRange);
        }
        let end = bounds.visible(limit.committed_only);
        if offset >= end {
            return Ok(Read::Empty(bounds));
        }
        if state.tail.front().is_some_and(|oldest| oldest.base_offset <= offset) {
            let aborted = aborted_in(&state, offset, end, limit);
            return Ok(Read::Memory(bounds, from_tail(&state, offset, end, limit), aborted));
        }
        Ok(Read::Files(bounds))
    }

    /// Reads whole batches from the segment files: from the one that holds `offset`, up to `end`; and the aborted transactions
    /// among them. Blocks.
    pub(crate) fn read_files(&self, offset: i64, end: i64, limit: ReadLimit) -> io::Result<(Bytes, Vec<Aborted>)> {
        let mut from = offset;
        let mut retries = 0;
        loop {
            // What compaction does meanwhile must not part the records from what is said of them.
            let (stretch, aborted) = {
                let state = self.state.lock();
                let Some(stretch) = stretch_at(&state, from) else { return Ok(Default::default()) };
                (stretch, aborted_in(&state, offset, end, limit))
            };
            match self.read_stretch(&stretch, offset, end, limit) {
                Ok(Some(bytes)) => return Ok((bytes, aborted)),
                // Compaction leaves gaps: what is asked for may begin in a later segment.
                Ok(None) => match stretch.next_segment.filter(|next| *next < end) {
                    Some(next) => from = next,
                    None => return Ok(Default::default()),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound && retries < RETRIES => retries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// What may be returned from one segment; none if it holds nothing from `offset` on.
    fn read_stretch(&self, stretch: &Stretch, offset: i64, end: i64, limit: ReadLimit) -> io::Result<Option<Bytes>> {
        let file = self.shared.files.get(stretch.id, &stretch.path)?;
        let mut position = stretch.position;
        loop {
            let left = (stretch.end - position) as usize;
            let mut chunk = read_chunk(&*file, position, left.min(limit.max_bytes.saturating_add(SLACK)))?;
            let found = select(&chunk, offset, end, limit, position)?;
            match found {
                Selection::Range(range) => {
                    chunk.truncate(range.end);
                    return Ok(Some(chunk.freeze().slice(range.start..)));
                }
                Selection::Nothing => return Ok(Some(Bytes::new())),
                Selection::GoOnAt(next) if next >= stretch.end => return Ok(None),
                // No progress: the file is shorter than it should be.
                Selection::GoOnAt(next) if next == position => return Err(corrupt(position, &"the file ends")),
                Selection::GoOnAt(next) => position = next,
                Selection::TooBig { at, size } if limit.at_least_one => {
                    let batch = read_chunk(&*file, at, size)?;
                    BatchHeader::parse_checked(&batch).map_err(|error| corrupt(at, &error))?;
                    return Ok(Some(batch.freeze()));
                }
                Selection::TooBig { .. } => return Ok(Some(Bytes::new())),
            }
        }
    }

    /// The first record at or after `timestamp` and before `end`: its offset and timestamp. Blocks. Markers of transactions
    /// count, as they do in Apache Kafka.
    ///
    pub(crate) fn offset_for_time(&self, timestamp: i64, end: i64) -> io::Result<Option<(i64, i64)>> {
        let (stretches, log_start) = {
            let state = self.state.lock();
            let candidates = state.segments.iter().filter(|segment| segment.max_timestamp >= timestamp);
            (candidates.flat_map(|segment| time_stretches(segment, timestamp)).collect::<Vec<_>>(), state.log_start)
        };
        for stretch in stretches {
            let file = match self.shared.files.get(stretch.id, &stretch.path) {
                Ok(file) => file,
                // Removed by retention meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let chunk = read_chunk(&*file, stretch.position, (stretch.end - stretch.position) as usize)?;
            let mut rest = &chunk[..];
            while let Ok(header) = BatchHeader::parse(rest) {
                let Some(batch) = rest.get(..header.size) else { break };
                if header.base_offset >= end {
                    return Ok(None);
                }
                if header.max_timestamp >= timestamp && header.last_offset() >= log_start {
                    let found = first_record_at(&header, batch, timestamp, log_start);
                    if let Some(found) = found {
                        return Ok((found.0 < end).then_some(found));
                    }
                }
                rest = &rest[header.size..];
            }
        }
        Ok(None)
    }

    /// The record with the greatest timestamp: its offset and timestamp. Blocks.
    pub(crate) fn offset_of_max_timestamp(&self) -> io::Result<Option<(i64, i64)>> {
        let (newest, end) = {
            let state = self.state.lock();
            let in_log = state.segments.iter().filter(|segment| segment.max_timestamp_offset >= 0);
            (in_log.map(|segment| segment.max_timestamp).max(), state.high_watermark)
        };
        newest.map_or(Ok(None), |timestamp| self.offset_for_time(timestamp, end))
    }
}

struct Stretch {
    id: u64,
    path: std::path::PathBuf,
    position: u64,
    end: u64,
    next_segment: Option<i64>,
}

fn stretch_at(state: &State, offset: i64) -> Option<Stretch> {
    let after = state.segments.partition_point(|segment| segment.base_offset <= offset);
    let at = after.saturating_sub(1);
    let segment = state.segments.get(at)?;
    Some(Stretch {
        id: segment.id,
        path: segment.path.clone(),
        position: segment.floor(offset),
        end: segment.size,
        next_segment: state.segments.get(at + 1).map(|next| next.base_offset),
    })
}

/// For those who read committed records only.
fn aborted_in(state: &State, from: i64, until: i64, limit: ReadLimit) -> Vec<Aborted> {
    if limit.committed_only { state.durable.aborted_in(from, until).collect() } else { Vec::new() }
}

fn from_tail(state: &State, offset: i64, end: i64, limit: ReadLimit) -> Vec<Bytes> {
    let start = state.tail.partition_point(|batch| batch.last_offset < offset);
    let mut left = limit.max_bytes;
    let mut found: Vec<Bytes> = Vec::new();
    for batch in state.tail.range(start..).take_while(|batch| batch.base_offset < end) {
        if batch.bytes.len() > left && !(found.is_empty() && limit.at_least_one) {
            break;
        }
        left = left.saturating_sub(batch.bytes.len());
        found.push(batch.bytes.clone());
    }
    found
}

fn time_stretches(segment: &Segment, timestamp: i64) -> Vec<Stretch> {
    let ends = segment.index.iter().skip(1).map(|next| next.position).chain([segment.size]);
    let entries = segment.index.iter().zip(ends).filter(|(entry, _)| entry.max_timestamp >= timestamp);
    entries
        .map(|(entry, end)| Stretch {
            id: segment.id,
            path: segment.path.clone(),
            position: entry.position,
            end,
            next_segment: None,
        })
        .collect()
}

fn first_record_at(header: &BatchHeader, batch: &[u8], timestamp: i64, log_start: i64) -> Option<(i64, i64)> {
    let Some((header, batch)) = uncompressed(header, batch) else {
        // It cannot be read here; its reader finds the record from its first one on.
        return Some((
            header.base_offset.max(log_start),
            header.base_timestamp.max(timestamp.min(header.max_timestamp)),
        ));
    };
    records(&header, &batch)
        .filter_map(Result::ok)
        .find(|record| record.timestamp >= timestamp && record.offset >= log_start)
        .map(|record| (record.offset, record.timestamp))
}

enum Selection {
    /// These bytes of the chunk.
    Range(std::ops::Range<usize>),
    /// No batch before the end is in the file.
    Nothing,
    /// All batches in the chunk lie before the offset; look further at this file position.
    GoOnAt(u64),
    /// The first batch is larger than the limit.
    TooBig { at: u64, size: usize },
}

/// Chooses whole batches out of a chunk that begins with a batch at file position `position`.
fn select(chunk: &[u8], offset: i64, end: i64, limit: ReadLimit, position: u64) -> io::Result<Selection> {
    let mut at = 0;
    let mut start = None;
    let mut bad = None;
    while at + HEADER_LEN <= chunk.len() {
        let header = match BatchHeader::parse(&chunk[at..]) {
            Ok(header) => header,
            Err(error) => {
                bad = Some(error);
                break;
            }
        };
        if header.base_offset >= end {
            return Ok(start.map_or(Selection::Nothing, |start| Selection::Range(start..at)));
        }
        let wanted = start.is_some() || header.last_offset() >= offset;
        let begin = start.unwrap_or(at);
        let whole = at + header.size <= chunk.len();
        if wanted {
            let over = at + header.size - begin > limit.max_bytes;
            if start.is_none() && (over || !whole) {
                return Ok(Selection::TooBig { at: position + at as u64, size: header.size });
            }
            if over || !whole {
                break;
            }
            if let Err(error) = BatchHeader::parse_checked(&chunk[at..]) {
                bad = Some(error);
                break;
            }
            start = Some(begin);
        }
        at += header.size;
    }
    match (start, bad) {
        // What is good before a bad batch is given first; the next read begins there.
        (Some(start), _) => Ok(Selection::Range(start..at)),
        (None, Some(error)) => Err(corrupt(position + at as u64, &error)),
        (None, None) => Ok(Selection::GoOnAt(position + at as u64)),
    }
}

fn read_chunk(file: &dyn super::disk::DiskFile, position: u64, size: usize) -> io::Result<BytesMut> {
    let mut chunk = BytesMut::zeroed(size);
    let read = file.read_at(&mut chunk, position)?;
    chunk.truncate(read);
    Ok(chunk)
}

fn corrupt(position: u64, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{error} at byte {position}"))
}

/// Runs [`Partition::read_files`] on a thread that may block.
pub(crate) async fn read_files(
    partition: &Arc<Partition>,
    offset: i64,
    end: i64,
    limit: ReadLimit,
) -> Result<(Bytes, Vec<Aborted>), ResponseError> {
    let reader = partition.clone();
    let read = tokio::task::spawn_blocking(move || reader.read_files(offset, end, limit)).await;
    match read {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => {
            tracing::error!(partition = %partition.name, offset, error = %error, "reading the log failed");
            if error.kind() == io::ErrorKind::InvalidData {
                partition.found_damage(offset, &error);
            }
            Err(ResponseError::KafkaStorageError)
        }
        Err(_) => Err(ResponseError::KafkaStorageError),
    }
}
