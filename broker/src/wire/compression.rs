//! Compressed batches, for the few who must look into them: compaction, offsets by time, the check for keys, and topics
//! with a `compression.type` of their own.
//!
//! Codecs are numbered as in the attributes of a batch: 1 gzip, 2 snappy (raw, or in the frames of snappy-java), 3 LZ4
//! frames, 4 zstd. Nothing is decompressed beyond [`MAX_PLAIN`], so a small batch cannot cost much memory.

use std::borrow::Cow;
use std::io::{Read, Write};

use super::batch::{BatchHeader, HEADER_LEN, build_batch};

/// Most bytes that the records of a batch may have uncompressed; larger ones are not looked into.
const MAX_PLAIN: usize = 128 << 20;
const CODEC_MASK: i16 = 0x07;
const GZIP: i16 = 1;
const SNAPPY: i16 = 2;
const LZ4: i16 = 3;
const ZSTD: i16 = 4;
/// Begins what snappy-java writes: a magic, then two version numbers, then blocks with a length each.
const SNAPPY_JAVA: &[u8] = b"\x82SNAPPY\0";
const SNAPPY_JAVA_HEADER: usize = 16;
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// The magic, flags (version 1, independent blocks), blocks of up to 64 KiB, and the checksum of these two.
const LZ4_FRAME_HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const LZ4_BLOCK: usize = 64 << 10;
/// Set in the length of a block that is not compressed.
const LZ4_STORED: u32 = 1 << 31;

/// The batch as it would be without compression, for [`records`](super::batch::records); none if it cannot be read. The
/// checksum is not that of these bytes.
pub(crate) fn uncompressed<'a>(header: &BatchHeader, batch: &'a [u8]) -> Option<(BatchHeader, Cow<'a, [u8]>)> {
    if !header.is_compressed() {
        return Some((*header, Cow::Borrowed(batch)));
    }
    let (head, body) = batch.get(..header.size)?.split_at_checked(HEADER_LEN)?;
    let plain = decompress(header.attributes & CODEC_MASK, body)?;
    let header = BatchHeader { size: HEADER_LEN + plain.len(), attributes: header.attributes & !CODEC_MASK, ..*header };
    Some((header, Cow::Owned([head, &plain[..]].concat())))
}

/// How records are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Codec(i16);

impl Codec {
    /// By its name in `compression.type`; none for other words.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let number = match name {
            "uncompressed" => 0,
            "gzip" => GZIP,
            "snappy" => SNAPPY,
            "lz4" => LZ4,
            "zstd" => ZSTD,
            _ => return None,
        };
        Some(Self(number))
    }

    /// That of a batch.
    fn of(header: &BatchHeader) -> Self {
        Self(header.attributes & CODEC_MASK)
    }
}

/// The batch compressed by `codec`; none if it is already, or cannot be read.
pub(crate) fn with_codec(header: &BatchHeader, batch: &[u8], codec: Codec) -> Option<Vec<u8>> {
    if Codec::of(header) == codec {
        return None;
    }
    let (plain_header, plain) = uncompressed(header, batch)?;
    let records = plain.get(HEADER_LEN..plain_header.size)?.to_vec();
    let (attributes, body) = recompressed(header.attributes & !CODEC_MASK | codec.0, records);
    Some(build_batch(&BatchHeader { attributes, ..*header }, &body))
}

/// Records compressed like a batch with these attributes, and the attributes that say so. Where that is no gain they stay
/// as they are.
pub(crate) fn recompressed(attributes: i16, records: Vec<u8>) -> (i16, Vec<u8>) {
    let smaller = match attributes & CODEC_MASK {
        GZIP => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&records).and_then(|()| encoder.finish()).ok()
        }
        SNAPPY => snap::raw::Encoder::new().compress_vec(&records).ok(),
        LZ4 => Some(lz4_frame(&records)),
        ZSTD => zstd::bulk::compress(&records, zstd::DEFAULT_COMPRESSION_LEVEL).ok(),
        _ => None,
    };
    match smaller.filter(|smaller| smaller.len() < records.len()) {
        Some(smaller) => (attributes, smaller),
        None => (attributes & !CODEC_MASK, records),
    }
}

/// An LZ4 frame of independent blocks without checksums, as Kafka's clients write it.
fn lz4_frame(records: &[u8]) -> Vec<u8> {
    let mut out = LZ4_FRAME_HEADER.to_vec();
    let mut block = vec![0; lz4_flex::block::get_maximum_output_size(LZ4_BLOCK)];
    for plain in records.chunks(LZ4_BLOCK) {
        let smaller = lz4_flex::block::compress_into(plain, &mut block).ok().filter(|size| *size < plain.len());
        let (stored, length) = match smaller {
            Some(size) => (&block[..size], size as u32),
            None => (plain, plain.len() as u32 | LZ4_STORED),
        };
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(stored);
    }
    out.extend_from_slice(&[0; 4]);
    out
}

fn decompress(codec: i16, body: &[u8]) -> Option<Vec<u8>> {
    match codec {
        GZIP => read_all(flate2::read::MultiGzDecoder::new(body)),
        SNAPPY => snappy(body),
        LZ4 => lz4(body),
        ZSTD => read_all(zstd::stream::read::Decoder::with_buffer(body).ok()?),
        _ => None,
    }
}

fn read_all(reader: impl Read) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(MAX_PLAIN as u64 + 1).read_to_end(&mut out).ok()?;
    (out.len() <= MAX_PLAIN).then_some(out)
}

fn snappy(body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if !body.starts_with(SNAPPY_JAVA) {
        return snappy_block(body, MAX_PLAIN);
    }
    let mut rest = body.get(SNAPPY_JAVA_HEADER..)?;
    while !rest.is_empty() {
        let (length, behind) = rest.split_at_checked(4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        let (block, behind) = behind.split_at_checked(length)?;
        out.extend_from_slice(&snappy_block(block, MAX_PLAIN - out.len())?);
        rest = behind;
    }
    Some(out)
}

fn snappy_block(block: &[u8], room: usize) -> Option<Vec<u8>> {
    // The length is only claimed; the decoder allocates it, but no more than there is room for.
    snap::raw::decompress_len(block).ok().filter(|length| *length <= room)?;
    snap::raw::Decoder::new().decompress_vec(block).ok()
}

/// An LZ4 frame (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md>). Its checksums are passed over, since the
/// batch has its own.
fn lz4(body: &[u8]) -> Option<Vec<u8>> {
    let mut rest = body.strip_prefix(&LZ4_MAGIC)?;
    let flags = *rest.first()?;
    let has = |bit: u8| flags & (1 << bit) != 0;
    if flags >> 6 != 1 || has(0) {
        // Another version, or a dictionary that nobody has.
        return None;
    }
    // Flags and block size, the size of the contents, a checksum.
    let header = if has(3) { 11 } else { 3 };
    rest = rest.get(header..)?;
    let checksum = if has(4) { 4 } else { 0 };
    let mut out = Vec::new();
    loop {
        let (length, behind) = rest.split_at_checked(4)?;
        let length = u32::from_le_bytes(length.try_into().ok()?);
        if length == 0 {
            return Some(out);
        }
        let (block, behind) = behind.split_at_checked((length & 0x7fff_ffff) as usize)?;
        if length >> 31 == 1 {
            out.extend_from_slice(block);
        } else {
            lz4_block(block, &mut out)?;
        }
        if out.len() > MAX_PLAIN {
            return None;
        }
        rest = behind.get(checksum..)?;
    }
}

/// An LZ4 block (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>); matches may reach into earlier blocks.
fn lz4_block(mut block: &[u8], out: &mut Vec<u8>) -> Option<()> {
    loop {
        let token = take_byte(&mut block)?;
        let literals = lz4_length(token >> 4, &mut block)?;
        let (copied, behind) = block.split_at_checked(literals)?;
        out.extend_from_slice(copied);
        block = behind;
        if block.is_empty() {
            return Some(());
        }
        let (offset, behind) = block.split_at_checked(2)?;
        let offset = usize::from(u16::from_le_bytes(offset.try_into().ok()?));
        block = behind;
        let length = lz4_length(token & 0x0f, &mut block)? + 4;
        let start = out.len().checked_sub(offset).filter(|_| offset > 0)?;
        if out.len() + length > MAX_PLAIN {
            return None;
        }
        // A match may overlap what it produces.
        for at in start..start + length {
            out.push(out[at]);
        }
    }
}

fn lz4_length(nibble: u8, block: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(nibble);
    if nibble == 15 {
        loop {
            let more = take_byte(block)?;
            length += usize::from(more);
            if more != 255 {
                break;
            }
        }
    }
    Some(length)
}

fn take_byte(from: &mut &[u8]) -> Option<u8> {
    let (first, rest) = from.split_first()?;
    *from = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_records_when_compressed_and_read_back_then_they_are_the_same() {
        for plain in [b"".to_vec(), b"x".to_vec(), b"the same, ".repeat(5_000), (0..=255).collect()] {
            for codec in [GZIP, SNAPPY, LZ4, ZSTD] {
                let (attributes, bytes) = recompressed(codec | 0x10, plain.clone());
                assert_eq!(attributes & !CODEC_MASK, 0x10);
                let read = match attributes & CODEC_MASK {
                    0 => bytes,
                    codec => decompress(codec, &bytes).unwrap(),
                };
                assert_eq!(read, plain);
            }
        }
    }

    #[test]
    fn given_a_batch_when_a_topic_wants_another_codec_then_its_records_and_its_other_fields_stay() {
        let header = BatchHeader {
            base_offset: 7,
            size: 0,
            attributes: 0x10,
            last_offset_delta: 2,
            base_timestamp: 1,
            max_timestamp: 2,
            producer_id: 3,
            producer_epoch: 4,
            base_sequence: 5,
            records: 3,
        };
        let body = b"the same, ".repeat(20_000);
        let mut batch = build_batch(&header, &body);
        for name in ["gzip", "snappy", "lz4", "zstd", "uncompressed"] {
            let before = BatchHeader::parse_checked(&batch).unwrap();
            let after = with_codec(&before, &batch, Codec::named(name).unwrap()).unwrap();
            let found = BatchHeader::parse_checked(&after).unwrap();
            let (plain_header, plain) = uncompressed(&found, &after).unwrap();
            assert_eq!(&plain[HEADER_LEN..], &body[..], "{name}");
            assert_eq!(BatchHeader { size: 0, ..plain_header }, header, "{name}");
            assert_eq!(found.is_compressed(), name != "uncompressed");
            assert_eq!(with_codec(&found, &after, Codec::named(name).unwrap()), None);
            batch = after;
        }
    }

    #[test]
    fn given_snappy_java_and_lz4_frames_when_read_then_their_contents_are_found() {
        let plain = b"hello hello hello hello".to_vec();
        let block = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
        let framed = [SNAPPY_JAVA, &[0; 8], &(block.len() as u32).to_be_bytes()[..], &block[..]].concat();
        assert_eq!(decompress(SNAPPY, &framed), Some(plain.clone()));
        // 6 literals, then 12 bytes from 6 back, then 5 literals.
        let block = [&[0x68][..], b"hello ", &[6, 0, 0x50], &b"hello"[..]].concat();
        let stored =
            [&LZ4_MAGIC[..], &[0x60, 0x40, 0], &(block.len() as u32).to_le_bytes(), &block[..], &[0; 4]].concat();
        assert_eq!(decompress(LZ4, &stored), Some(plain.clone()));
        let raw = (plain.len() as u32 | 1 << 31).to_le_bytes();
        let stored = [&LZ4_MAGIC[..], &[0x60, 0x40, 0], &raw, &plain[..], &[0; 4]].concat();
        assert_eq!(decompress(LZ4, &stored), Some(plain));
    }

    proptest::proptest! {
        #[test]
        fn given_any_bytes_when_decompressed_then_nothing_panics(
            codec in 0i16..8,
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        ) {
            let _ = decompress(codec, &bytes);
            let _ = lz4_block(&bytes, &mut Vec::new());
            let _ = lz4(&[&LZ4_MAGIC[..], &[0x60, 0x40, 0], &bytes[..]].concat());
        }
    }
}
