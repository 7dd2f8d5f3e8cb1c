//! Record batches (message format 2): header, checksum, and the records of an uncompressed batch.
//!
//! A batch is stored and served verbatim. Only the base offset and the partition leader epoch are patched on arrival; the
//! checksum (CRC-32C) covers everything from the attributes on, so it stays valid. Layout: Apache Kafka documentation,
//! "Record Batch" (<https://kafka.apache.org/documentation/#recordbatch>).

use bytes::{BufMut, Bytes, BytesMut};

/// Size of the fixed header in bytes.
pub const HEADER_LEN: usize = 61;
/// Bytes before what the length field counts: base offset and the length itself.
pub const LENGTH_OVERHEAD: usize = 12;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;

const COMPRESSION_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

/// What the header of a batch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Whole size in bytes, header included.
    pub size: usize,
    /// Compression, timestamp type, transactional and control bits.
    pub attributes: i16,
    /// Last offset less the base offset.
    pub last_offset_delta: i32,
    /// Timestamp of the first record, milliseconds since 1970.
    pub base_timestamp: i64,
    /// Greatest timestamp in the batch.
    pub max_timestamp: i64,
    /// Producer, or -1.
    pub producer_id: i64,
    /// Its epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence number of the first record, or -1.
    pub base_sequence: i32,
    /// Number of records.
    pub records: i32,
}

/// Why bytes are not a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than the header or the length field says.
    #[error("incomplete record batch")]
    Incomplete,
    /// Another message format.
    #[error("record batch of format {0}, only format 2 is stored")]
    Magic(i8),
    /// A length or count that cannot be.
    #[error("malformed record batch")]
    Malformed,
    /// The checksum does not match.
    #[error("record batch with a wrong checksum")]
    Checksum,
}

fn be<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`; the body need not be there.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        if bytes.len() < HEADER_LEN {
            return Err(BatchError::Incomplete);
        }
        let magic = bytes[16] as i8;
        if magic != 2 {
            return Err(BatchError::Magic(magic));
        }
        let length = i32::from_be_bytes(be(bytes, 8));
        let size = usize::try_from(length).map_err(|_| BatchError::Malformed)? + LENGTH_OVERHEAD;
        let header = Self {
            base_offset: i64::from_be_bytes(be(bytes, 0)),
            size,
            attributes: i16::from_be_bytes(be(bytes, ATTRIBUTES_AT)),
            last_offset_delta: i32::from_be_bytes(be(bytes, 23)),
            base_timestamp: i64::from_be_bytes(be(bytes, 27)),
            max_timestamp: i64::from_be_bytes(be(bytes, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(be(bytes, 43)),
            producer_epoch: i16::from_be_bytes(be(bytes, 51)),
            base_sequence: i32::from_be_bytes(be(bytes, 53)),
            records: i32::from_be_bytes(be(bytes, 57)),
        };
        let sane = size >= HEADER_LEN
            && header.base_offset >= 0
            && header.last_offset_delta >= 0
            && header.records >= 0
            && header.base_offset.checked_add(i64::from(header.last_offset_delta)).is_some();
        if sane { Ok(header) } else { Err(BatchError::Malformed) }
    }

    /// Reads the batch at the start of `bytes` and checks its checksum.
    pub fn parse_checked(bytes: &[u8]) -> Result<Self, BatchError> {
        let header = Self::parse(bytes)?;
        let whole = bytes.get(..header.size).ok_or(BatchError::Incomplete)?;
        let stored = u32::from_be_bytes(be(whole, CRC_AT));
        if crc32c::crc32c(&whole[ATTRIBUTES_AT..]) == stored { Ok(header) } else { Err(BatchError::Checksum) }
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// Whether the records are compressed.
    pub fn is_compressed(&self) -> bool {
        self.attributes & COMPRESSION_MASK != 0
    }

    /// Whether its records have the time at which they came, by the mark that only brokers set.
    pub fn is_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Whether the batch is a commit or abort marker.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Sequence number of the last record; sequence numbers wrap to 0 after `i32::MAX`.
    pub fn last_sequence(&self) -> i32 {
        advance_sequence(self.base_sequence, self.last_offset_delta)
    }
}

/// `sequence + by` in the producer's cyclic numbering.
pub fn advance_sequence(sequence: i32, by: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(by);
    (if sum > i64::from(i32::MAX) { sum - i64::from(i32::MAX) - 1 } else { sum }) as i32
}

/// Puts the broker's base offset and leader epoch 0 into a batch; the checksum does not cover them.
pub fn assign_offset(batch: &mut [u8], base_offset: i64) {
    batch[..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[12..16].copy_from_slice(&0i32.to_be_bytes());
}

/// Marks a batch with the broker's clock (`message.timestamp.type=LogAppendTime`) and seals it again.
pub fn stamp_append_time(batch: &mut [u8], now_ms: i64) {
    let attributes = i16::from_be_bytes(be(batch, ATTRIBUTES_AT)) | LOG_APPEND_TIME;
    batch[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&now_ms.to_be_bytes());
    seal(batch);
}

/// Puts the greatest time of its records into a batch and seals it again.
pub fn set_max_timestamp(batch: &mut [u8], max_timestamp: i64) {
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&max_timestamp.to_be_bytes());
    seal(batch);
}

fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}

/// The kind of a control batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// The producer's open records never happened.
    Abort,
    /// The producer's open records count.
    Commit,
}

/// Epoch of the transaction coordinator, which markers carry: there is only one.
pub const COORDINATOR_EPOCH: i32 = 0;

/// Builds the control batch that ends a producer's transaction in a partition; the base offset is 0 until it is appended.
pub fn marker_batch(marker: Marker, producer_id: i64, producer_epoch: i16, now_ms: i64) -> Vec<u8> {
    let mut record = BytesMut::new();
    record.put_u8(0); // attributes
    put_varint(&mut record, 0); // timestamp delta
    put_varint(&mut record, 0); // offset delta
    put_varint(&mut record, 4); // key: version, type
    record.put_i16(0);
    record.put_i16(match marker {
        Marker::Abort => 0,
        Marker::Commit => 1,
    });
    put_varint(&mut record, 6); // value: version, coordinator epoch
    record.put_i16(0);
    record.put_i32(COORDINATOR_EPOCH);
    put_varint(&mut record, 0); // headers
    let mut records = BytesMut::new();
    put_varint(&mut records, record.len() as i64);
    records.extend_from_slice(&record);
    build_batch(
        &BatchHeader {
            base_offset: 0,
            size: 0,
            attributes: TRANSACTIONAL | CONTROL,
            last_offset_delta: 0,
            base_timestamp: now_ms,
            max_timestamp: now_ms,
            producer_id,
            producer_epoch,
            base_sequence: -1,
            records: 1,
        },
        &records,
    )
}

/// A sealed batch with `header`'s fields (its size is computed) and `records` as body.
pub fn build_batch(header: &BatchHeader, records: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + records.len());
    out.put_i64(header.base_offset);
    out.put_i32((HEADER_LEN - LENGTH_OVERHEAD + records.len()) as i32);
    out.put_i32(0); // partition leader epoch
    out.put_i8(2);
    out.put_u32(0); // checksum, below
    out.put_i16(header.attributes);
    out.put_i32(header.last_offset_delta);
    out.put_i64(header.base_timestamp);
    out.put_i64(header.max_timestamp);
    out.put_i64(header.producer_id);
    out.put_i16(header.producer_epoch);
    out.put_i32(header.base_sequence);
    out.put_i32(header.records);
    out.extend_from_slice(records);
    seal(&mut out);
    out
}

/// Which marker a control batch is.
pub fn marker_of(header: &BatchHeader, batch: &Bytes) -> Option<Marker> {
    if !header.is_control() {
        return None;
    }
    let record = records(header, batch).next()?.ok()?;
    match *record.key? {
        [_, _, 0, 0, ..] => Some(Marker::Abort),
        [_, _, 0, 1, ..] => Some(Marker::Commit),
        _ => None,
    }
}

/// One record of an uncompressed batch, borrowed from it.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Absolute offset.
    pub offset: i64,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The record as stored, its length prefix included.
    pub raw: &'a [u8],
}

/// The records of an uncompressed batch (compressed ones yield nothing useful: check first).
pub fn records<'a>(header: &BatchHeader, batch: &'a [u8]) -> impl Iterator<Item = Result<Record<'a>, BatchError>> {
    let header = *header;
    let mut rest = batch.get(HEADER_LEN..header.size).unwrap_or(&[]);
    let mut left = header.records;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        left -= 1;
        let record = next_record(&header, &mut rest);
        if record.is_err() {
            left = 0;
        }
        Some(record)
    })
}

fn next_record<'a>(header: &BatchHeader, rest: &mut &'a [u8]) -> Result<Record<'a>, BatchError> {
    let start = *rest;
    let mut cursor = start;
    let length = get_varint(&mut cursor)?;
    let body = take(&mut cursor, length)?;
    let raw = &start[..start.len() - cursor.len()];
    *rest = cursor;
    let mut body = body;
    take(&mut body, 1)?;
    let timestamp_delta = get_varint(&mut body)?;
    let offset_delta = get_varint(&mut body)?;
    let key = take_nullable(&mut body)?;
    let value = take_nullable(&mut body)?;
    let timestamp = if header.is_append_time() {
        header.max_timestamp
    } else {
        header.base_timestamp.wrapping_add(timestamp_delta)
    };
    Ok(Record { offset: header.base_offset.wrapping_add(offset_delta), timestamp, key, value, raw })
}

fn take<'a>(from: &mut &'a [u8], length: i64) -> Result<&'a [u8], BatchError> {
    let length = usize::try_from(length).map_err(|_| BatchError::Malformed)?;
    if length > from.len() {
        return Err(BatchError::Malformed);
    }
    let (taken, rest) = from.split_at(length);
    *from = rest;
    Ok(taken)
}

fn take_nullable<'a>(from: &mut &'a [u8]) -> Result<Option<&'a [u8]>, BatchError> {
    match get_varint(from)? {
        -1 => Ok(None),
        length => take(from, length).map(Some),
    }
}

/// A zigzag variable-length integer.
fn get_varint(from: &mut &[u8]) -> Result<i64, BatchError> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = take(from, 1)?[0];
        value |= u64::from(byte & 0x7f).wrapping_shl(shift);
        if byte & 0x80 == 0 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err(BatchError::Malformed)
}

fn put_varint(into: &mut BytesMut, value: i64) {
    let mut value = ((value << 1) ^ (value >> 63)) as u64;
    while value >= 0x80 {
        into.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    into.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_marker_when_built_then_it_reads_back_as_itself() {
        for marker in [Marker::Abort, Marker::Commit] {
            let mut bytes = marker_batch(marker, 7, 3, 1_700_000_000_000);
            assign_offset(&mut bytes, 42);
            let header = BatchHeader::parse_checked(&bytes).unwrap();
            assert_eq!((header.base_offset, header.producer_id, header.producer_epoch), (42, 7, 3));
            assert_eq!(marker_of(&header, &Bytes::from(bytes)), Some(marker));
        }
    }

    #[test]
    fn given_any_flipped_bit_when_checked_then_the_batch_is_refused_or_its_offset_differs() {
        let good = marker_batch(Marker::Commit, 7, 3, 5);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let unprotected = (0..8).contains(&(bit / 8)) || (12..16).contains(&(bit / 8));
            let read = BatchHeader::parse_checked(&bad);
            assert!(unprotected || read.is_err(), "bit {bit} of a protected byte went unnoticed");
        }
    }

    #[test]
    fn given_sequence_numbers_when_advanced_past_the_end_then_they_wrap() {
        assert_eq!(advance_sequence(5, 3), 8);
        assert_eq!(advance_sequence(i32::MAX, 1), 0);
        assert_eq!(advance_sequence(i32::MAX - 1, 3), 1);
    }

    proptest::proptest! {
        #[test]
        fn given_any_bytes_when_parsed_then_nothing_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = BatchHeader::parse_checked(&bytes);
            if let Ok(header) = BatchHeader::parse(&bytes) {
                let _ = records(&header, &bytes).count();
            }
        }
    }
}
