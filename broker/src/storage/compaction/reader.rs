//! The batches of a segment, one after the other, in little memory.

use std::io;
use std::sync::Arc;

use super::CHUNK;
use crate::storage::disk::DiskFile;
use crate::storage::partition::Partition;
use crate::storage::segment::Segment;
use crate::wire::batch::{BatchHeader, HEADER_LEN};

/// Reads a segment in chunks; a batch that is larger than one is held whole.
pub(super) struct Batches<'a> {
    partition: &'a Partition,
    segment: &'a Segment,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    start: u64,
    /// Where the next batch begins in the buffer.
    at: usize,
    /// Offset behind the last batch.
    end_offset: i64,
}

impl<'a> Batches<'a> {
    pub(super) fn of(partition: &'a Partition, segment: &'a Segment) -> io::Result<Self> {
        let file = partition.shared.files.get(segment.id, &segment.path)?;
        Ok(Self { partition, segment, file, buffer: Vec::new(), start: 0, at: 0, end_offset: segment.base_offset })
    }

    /// The next batch, whose checksum is good. Damage is told to the partition.
    pub(super) fn advance(&mut self) -> io::Result<Option<(BatchHeader, &[u8])>> {
        if self.position() >= self.segment.size {
            return Ok(None);
        }
        // A chunk may end behind the header, which says how long the batch is.
        self.fill()?;
        self.fill()?;
        let Ok(header) = BatchHeader::parse_checked(&self.buffer[self.at..]) else { return Err(self.damage()) };
        let batch = self.at..self.at + header.size;
        self.at = batch.end;
        self.end_offset = header.last_offset() + 1;
        Ok(Some((header, &self.buffer[batch])))
    }

    fn position(&self) -> u64 {
        self.start + self.at as u64
    }

    /// Reads on where the buffer does not hold the whole of the next header, or of the batch that it belongs to.
    fn fill(&mut self) -> io::Result<()> {
        let held = &self.buffer[self.at..];
        let needed = BatchHeader::parse(held).map_or(HEADER_LEN, |header| header.size);
        let left = self.segment.size - self.position();
        // A length beyond the end of the segment is damage, which the check tells.
        if held.len() >= needed || needed as u64 > left {
            return Ok(());
        }
        let size = left.min(needed.max(CHUNK) as u64) as usize;
        self.start = self.position();
        self.at = 0;
        self.buffer.resize(size, 0);
        let read = self.file.read_at(&mut self.buffer, self.start)?;
        self.buffer.truncate(read);
        Ok(())
    }

    fn damage(&self) -> io::Error {
        let (path, position) = (self.segment.path.display(), self.position());
        let error = io::Error::new(io::ErrorKind::InvalidData, format!("{path} is corrupt at byte {position}"));
        self.partition.found_damage(self.end_offset, &error);
        error
    }
}
