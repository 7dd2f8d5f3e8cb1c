//! A walk over the records of a batch, compressed or not, that keeps none of them.
//!
//! It is what a produced batch is checked by. Nothing is allocated for a record, and every length is bounded by what is left
//! of what it lies in: a record by its batch, its parts by the record. Compressed records stream through a small buffer.

use std::io::{BufRead, BufReader};

use super::batch::{BatchHeader, HEADER_LEN};
use super::compression::{MAX_PLAIN, plain};

/// Bytes of decompressed records that are in memory at a time, besides what the codec needs itself.
const CHUNK: usize = 32 << 10;
/// Most bytes of a number of 32 bits, and of one of 64.
const INT_BYTES: u32 = 5;
const LONG_BYTES: u32 = 10;

/// What is to be known of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outline {
    /// Milliseconds since 1970; -1 is none.
    pub timestamp: i64,
    /// Whether it has a key.
    pub has_key: bool,
}

/// Why the records of a batch are not what its header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutlineError {
    /// No such codec, or not its bytes.
    #[error("the records cannot be decompressed")]
    Unreadable,
    /// The bytes end before the last record does.
    #[error("the batch ends within record {0} of those that its header counts")]
    Ends(i32),
    /// There are bytes behind the last record.
    #[error("more records or bytes follow than the header of the batch counts")]
    Surplus,
    /// Longer than the batch, or than is decompressed.
    #[error("record {0} is longer than its batch, or the records have more than 128 MiB uncompressed")]
    TooLong(i32),
    /// A length or number that cannot be.
    #[error("record {0} is malformed")]
    Malformed(i32),
    /// The offsets of a batch are those of its header without gaps.
    #[error("record {0} has another offset than its place in the batch says")]
    Offset(i32),
}

/// Calls `visit` with each record and its place. An error may come behind any number of calls.
pub(crate) fn outline(header: &BatchHeader, batch: &[u8], visit: impl FnMut(i32, Outline)) -> Result<(), OutlineError> {
    let body = batch.get(HEADER_LEN..header.size).ok_or(OutlineError::Ends(0))?;
    if !header.is_compressed() {
        return walk(header, body, body.len() as u64, visit);
    }
    let records = plain(header, body).ok_or(OutlineError::Unreadable)?;
    walk(header, BufReader::with_capacity(CHUNK, records), MAX_PLAIN as u64, visit)
}

fn walk(
    header: &BatchHeader,
    reader: impl BufRead,
    most: u64,
    mut visit: impl FnMut(i32, Outline),
) -> Result<(), OutlineError> {
    let mut records = Records { reader, index: 0, left: 0 };
    let mut room = most;
    for index in 0..header.records {
        records.index = index;
        records.left = u64::from(INT_BYTES);
        let length = records.length()?;
        room = room.checked_sub(length).ok_or(OutlineError::TooLong(index))?;
        records.left = length;
        visit(index, records.next(header.base_timestamp)?);
    }
    records.ensure_end()
}

struct Records<R> {
    reader: R,
    /// Which record is read.
    index: i32,
    /// What may still be read of it.
    left: u64,
}

impl<R: BufRead> Records<R> {
    /// The record of `left` bytes that follows.
    fn next(&mut self, base_timestamp: i64) -> Result<Outline, OutlineError> {
        self.byte()?; // attributes, of which none is in use
        let timestamp = base_timestamp.wrapping_add(self.long()?);
        if self.int()? != self.index {
            return Err(OutlineError::Offset(self.index));
        }
        let has_key = self.skip_nullable()?;
        self.skip_nullable()?;
        self.skip_headers()?;
        if self.left > 0 {
            return Err(self.malformed());
        }
        Ok(Outline { timestamp, has_key })
    }

    fn skip_headers(&mut self) -> Result<(), OutlineError> {
        // Each takes a byte at least from what is left, so their number needs no bound of its own.
        for _ in 0..self.length()? {
            let key = self.length()?;
            self.skip(key)?;
            self.skip_nullable()?;
        }
        Ok(())
    }

    /// Passes bytes that may be null; whether they are not.
    fn skip_nullable(&mut self) -> Result<bool, OutlineError> {
        let length = self.int()?;
        if length == -1 {
            return Ok(false);
        }
        let length = u64::try_from(length).map_err(|_| self.malformed())?;
        self.skip(length)?;
        Ok(true)
    }

    fn skip(&mut self, count: u64) -> Result<(), OutlineError> {
        self.left = self.left.checked_sub(count).ok_or(self.malformed())?;
        let mut count = usize::try_from(count).map_err(|_| self.malformed())?;
        while count > 0 {
            let step = self.reader.fill_buf().map_err(|_| OutlineError::Unreadable)?.len().min(count);
            if step == 0 {
                return Err(OutlineError::Ends(self.index));
            }
            self.reader.consume(step);
            count -= step;
        }
        Ok(())
    }

    fn length(&mut self) -> Result<u64, OutlineError> {
        let length = self.int()?;
        u64::try_from(length).map_err(|_| self.malformed())
    }

    fn int(&mut self) -> Result<i32, OutlineError> {
        let value = self.zigzag(INT_BYTES)?;
        i32::try_from(value).map_err(|_| self.malformed())
    }

    fn long(&mut self) -> Result<i64, OutlineError> {
        self.zigzag(LONG_BYTES)
    }

    /// A number of at most so many bytes.
    fn zigzag(&mut self, most_bytes: u32) -> Result<i64, OutlineError> {
        let mut value = 0u64;
        for at in 0..most_bytes {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(self.malformed())
    }

    fn byte(&mut self) -> Result<u8, OutlineError> {
        self.left = self.left.checked_sub(1).ok_or(self.malformed())?;
        let there = self.reader.fill_buf().map_err(|_| OutlineError::Unreadable)?.first().copied();
        let byte = there.ok_or(OutlineError::Ends(self.index))?;
        self.reader.consume(1);
        Ok(byte)
    }

    fn ensure_end(&mut self) -> Result<(), OutlineError> {
        let rest = self.reader.fill_buf().map_err(|_| OutlineError::Unreadable)?;
        if rest.is_empty() { Ok(()) } else { Err(OutlineError::Surplus) }
    }

    fn malformed(&self) -> OutlineError {
        OutlineError::Malformed(self.index)
    }
}

#[cfg(test)]
#[path = "outline_tests.rs"]
mod tests;
