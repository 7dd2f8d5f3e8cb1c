//! A segment: one file of batches with a sparse index in memory, and its checkpoint beside it.
//!
//! The file is named `<base offset>-<generation>.log`; compaction writes the next generation beside the old one and then
//! removes the old one, so that a reader of the old one is never served bytes of the new one at old positions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::disk::{Disk, OpenMode};
use super::producers::Snapshot;
use crate::wire::batch::BatchHeader;

/// Bytes of log between two index entries.
pub(crate) const INDEX_INTERVAL: u64 = 8 * 1024;

/// An index entry: the first batch of a stretch of [`INDEX_INTERVAL`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexEntry {
    /// Base offset of the batch.
    pub offset: i64,
    /// Where it stands in the file.
    pub position: u64,
    /// Greatest timestamp in the stretch.
    pub max_timestamp: i64,
}

/// A segment's description; the bytes are read through the file cache by `id`.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// Unique in this process, the key in the file cache.
    pub id: u64,
    /// The file.
    pub path: PathBuf,
    /// Offset of its first possible record.
    pub base_offset: i64,
    /// How often it has been compacted.
    pub generation: u32,
    /// Durable size in bytes.
    pub size: u64,
    /// Greatest timestamp, -1 when empty.
    pub max_timestamp: i64,
    /// Base offset of the batch with that timestamp.
    pub max_timestamp_offset: i64,
    /// When the first batch came (or was found at start) by the broker's clock, milliseconds since 1970.
    pub first_ms: Option<i64>,
    /// The same of the last batch.
    pub last_ms: Option<i64>,
    /// Sorted by offset.
    pub index: Vec<IndexEntry>,
    /// Bytes that a checkpoint on the disk describes.
    pub checkpointed: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Segment {
    /// An empty segment that starts at `base_offset`.
    pub(crate) fn new(folder: &Path, base_offset: i64, generation: u32) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            path: folder.join(format!("{base_offset:020}-{generation}.log")),
            base_offset,
            generation,
            size: 0,
            max_timestamp: -1,
            max_timestamp_offset: -1,
            first_ms: None,
            last_ms: None,
            index: Vec::new(),
            checkpointed: 0,
        }
    }

    /// Takes a batch into account that has come at the end of the file, at this moment by the broker's clock.
    pub(crate) fn push_at(&mut self, header: &BatchHeader, now_ms: i64) {
        self.push(header);
        self.first_ms.get_or_insert(now_ms);
        self.last_ms = Some(now_ms);
    }

    /// How new its records are: the greatest of their times, or when the last of them came if none has a time or that one is
    /// still ahead. A record from a wrong clock would be kept for ever otherwise, with all that came beside it.
    pub(crate) fn newest_ms(&self, now_ms: i64) -> i64 {
        if (0..=now_ms).contains(&self.max_timestamp) { self.max_timestamp } else { self.last_ms.unwrap_or(-1) }
    }

    /// Takes a batch that stands at the end of the file into account.
    pub(crate) fn push(&mut self, header: &BatchHeader) {
        if header.max_timestamp > self.max_timestamp {
            self.max_timestamp = header.max_timestamp;
            self.max_timestamp_offset = header.base_offset;
        }
        match self.index.last_mut() {
            Some(last) if self.size < last.position + INDEX_INTERVAL => {
                last.max_timestamp = last.max_timestamp.max(header.max_timestamp);
            }
            _ => self.index.push(IndexEntry {
                offset: header.base_offset,
                position: self.size,
                max_timestamp: header.max_timestamp,
            }),
        }
        self.size += header.size as u64;
    }

    /// A position at or before the batch that holds `offset`.
    pub(crate) fn floor(&self, offset: i64) -> u64 {
        let after = self.index.partition_point(|entry| entry.offset <= offset);
        after.checked_sub(1).map_or(0, |at| self.index[at].position)
    }

    /// The checkpoint file.
    pub(crate) fn checkpoint_path(&self) -> PathBuf {
        self.path.with_extension("idx")
    }

    /// Removes the files, those that are there. The checkpoint goes first and for good: one without its file means that the
    /// file was lost.
    pub(crate) fn remove(&self, disk: &dyn Disk) -> io::Result<()> {
        remove_if_there(disk, &self.checkpoint_path())?;
        self.path.parent().map_or(Ok(()), |folder| disk.sync_dir(folder))?;
        remove_if_there(disk, &self.path)
    }
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Base offset and generation from the name of a segment's file with this extension.
pub(crate) fn parse_name(path: &Path, extension: &str) -> Option<(i64, u32)> {
    let name = path.file_name()?.to_str()?.strip_suffix(extension)?.strip_suffix('.')?;
    let (offset, generation) = name.split_once('-')?;
    Some((offset.parse().ok()?, generation.parse().ok()?))
}

/// What a segment's checkpoint says: its index, and the producers as of its end. It replaces a scan at start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// Size of what it describes; of a shorter file something was lost.
    pub size: u64,
    /// End offset of the segment (offset of the next record).
    pub end_offset: i64,
    /// See [`Segment::max_timestamp`].
    pub max_timestamp: i64,
    /// See [`Segment::max_timestamp_offset`].
    pub max_timestamp_offset: i64,
    /// See [`Segment::first_ms`].
    pub first_ms: Option<i64>,
    /// See [`Segment::last_ms`]; older checkpoints do not say it.
    #[serde(default)]
    pub last_ms: Option<i64>,
    /// See [`Segment::index`].
    pub index: Vec<(i64, u64, i64)>,
    /// Producers at the end of the segment.
    pub producers: Snapshot,
}

impl Checkpoint {
    /// Describes `segment`, which is complete up to `end_offset`.
    pub(crate) fn of(segment: &Segment, end_offset: i64, producers: Snapshot) -> Self {
        Self {
            size: segment.size,
            end_offset,
            max_timestamp: segment.max_timestamp,
            max_timestamp_offset: segment.max_timestamp_offset,
            first_ms: segment.first_ms,
            last_ms: segment.last_ms,
            index: segment.index.iter().map(|entry| (entry.offset, entry.position, entry.max_timestamp)).collect(),
            producers,
        }
    }

    /// Puts what the checkpoint says into an empty `segment`.
    pub(crate) fn restore(&self, segment: &mut Segment) {
        segment.size = self.size;
        segment.checkpointed = self.size;
        segment.max_timestamp = self.max_timestamp;
        segment.max_timestamp_offset = self.max_timestamp_offset;
        segment.first_ms = self.first_ms;
        segment.last_ms = self.last_ms.or(self.first_ms);
        segment.index = self
            .index
            .iter()
            .map(|(offset, position, max_timestamp)| IndexEntry {
                offset: *offset,
                position: *position,
                max_timestamp: *max_timestamp,
            })
            .collect();
    }

    /// Writes the checkpoint durably, replacing an older one atomically.
    pub(crate) fn write(&self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        let body = serde_json::to_vec(self).map_err(io::Error::other)?;
        let mut bytes = crc32c::crc32c(&body).to_be_bytes().to_vec();
        bytes.extend_from_slice(&body);
        let temporary = path.with_extension("idx.tmp");
        let file = disk.open(&temporary, OpenMode::Truncate)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_data()?;
        disk.rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |folder| disk.sync_dir(folder))
    }

    /// Reads a checkpoint; whatever is wrong with it, the answer is none and the segment is scanned.
    pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Option<Self> {
        let file = disk.open(path, OpenMode::Existing).ok()?;
        let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?];
        let read = file.read_at(&mut bytes, 0).ok()?;
        let (crc, body) = bytes[..read].split_at_checked(4)?;
        (crc == crc32c::crc32c(body).to_be_bytes()).then(|| serde_json::from_slice(body).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_times_when_a_segment_is_asked_how_new_it_is_then_those_that_cannot_be_do_not_count() {
        let mut segment = Segment::new(Path::new("t"), 0, 0);
        assert_eq!(segment.newest_ms(1_000), -1);
        segment.last_ms = Some(900);
        for (max_timestamp, newest) in [(-1, 900), (0, 0), (500, 500), (1_000, 1_000), (1_001, 900), (i64::MAX, 900)] {
            segment.max_timestamp = max_timestamp;
            assert_eq!(segment.newest_ms(1_000), newest, "{max_timestamp}");
        }
    }
}
