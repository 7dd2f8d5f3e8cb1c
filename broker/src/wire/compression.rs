//! Compressed batches, for the few who must look into them: compaction, offsets by time, and the check for keys.
//!
//! Codecs are numbered as in the attributes of a batch: 1 gzip, 2 snappy (raw, or in the frames of snappy-java), 3 LZ4
//! frames, 4 zstd. Nothing is decompressed beyond [`MAX_PLAIN`], so a small batch cannot cost much memory.

use std::borrow::Cow;
use std::io::{Read, Write};

use super::batch::{BatchHeader, HEADER_LEN};

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

/// Records compressed like a batch with these attributes, and the attributes that say so. Where that is no gain, and for
/// LZ4, they stay as they are.
pub(crate) fn recompressed(attributes: i16, records: Vec<u8>) -> (i16, Vec<u8>) {
    let smaller = match attributes & CODEC_MASK {
        GZIP => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&records).and_then(|()| encoder.finish()).ok()
        }
        SNAPPY => snap::raw::Encoder::new().compress_vec(&records).ok(),
        ZSTD => zstd::bulk::compress(&records, zstd::DEFAULT_COMPRESSION_LEVEL).ok(),
        _ => None,
    };
    match smaller.filter(|smaller| smaller.len() < records.len()) {
        Some(smaller) => (attributes, smaller),
        None => (attributes & !CODEC_MASK, records),
    }
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
