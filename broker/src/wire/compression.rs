//! Compressed batches, for those who must look into them: the checks at produce, which stream, and compaction, offsets by time
//! and topics with a `compression.type` of their own, which need all of it.
//!
//! Codecs are numbered as in the attributes of a batch: 1 gzip, 2 snappy (raw, or in the frames of snappy-java), 3 LZ4
//! frames, 4 zstd. Nothing is decompressed beyond [`MAX_PLAIN`], so a small batch cannot cost much memory.

use std::borrow::Cow;
use std::io::{Read, Write};

use super::batch::{BatchHeader, HEADER_LEN, build_batch};
use super::blocks::{LZ4_STORED, Lz4Blocks, SnappyBlocks};

/// Most bytes that the records of a batch may have uncompressed; larger ones are not taken.
pub(crate) const MAX_PLAIN: usize = 128 << 20;
const CODEC_MASK: i16 = 0x07;
const GZIP: i16 = 1;
const SNAPPY: i16 = 2;
const LZ4: i16 = 3;
const ZSTD: i16 = 4;
/// The magic, flags (version 1, independent blocks), blocks of up to 64 KiB, and the checksum of these two.
const LZ4_FRAME_HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const LZ4_BLOCK: usize = 64 << 10;

/// The batch as it would be without compression, for [`records`](super::batch::records); none if it cannot be read. The
/// checksum is not that of these bytes.
pub(crate) fn uncompressed<'a>(header: &BatchHeader, batch: &'a [u8]) -> Option<(BatchHeader, Cow<'a, [u8]>)> {
    if !header.is_compressed() {
        return Some((*header, Cow::Borrowed(batch)));
    }
    let (head, body) = batch.get(..header.size)?.split_at_checked(HEADER_LEN)?;
    let plain = read_all(plain(header, body)?)?;
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

/// Streams the records of a compressed batch; none if there is no such codec, or its bytes begin otherwise.
pub(super) fn plain<'a>(header: &BatchHeader, body: &'a [u8]) -> Option<Box<dyn Read + 'a>> {
    decoder(header.attributes & CODEC_MASK, body)
}

fn decoder(codec: i16, body: &[u8]) -> Option<Box<dyn Read + '_>> {
    let decoder: Box<dyn Read + '_> = match codec {
        GZIP => Box::new(flate2::read::MultiGzDecoder::new(body)),
        SNAPPY => Box::new(SnappyBlocks::new(body, MAX_PLAIN)),
        LZ4 => Box::new(Lz4Blocks::new(body)?),
        ZSTD => Box::new(zstd::stream::read::Decoder::with_buffer(body).ok()?),
        _ => return None,
    };
    Some(decoder)
}

fn read_all(reader: impl Read) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(MAX_PLAIN as u64 + 1).read_to_end(&mut out).ok()?;
    (out.len() <= MAX_PLAIN).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::blocks::{LZ4_MAGIC, SNAPPY_JAVA, lz4_block};

    fn decompress(codec: i16, body: &[u8]) -> Option<Vec<u8>> {
        read_all(decoder(codec, body)?)
    }

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

    #[test]
    fn given_an_lz4_block_that_refers_to_the_one_before_when_read_then_it_is_found_and_beyond_its_size_it_is_not() {
        let stored = |bytes: &[u8]| [&(bytes.len() as u32 | 1 << 31).to_le_bytes()[..], bytes].concat();
        let packed = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
        let frame = |blocks: &[Vec<u8>]| [&LZ4_MAGIC[..], &[0x40, 0x40, 0], &blocks.concat(), &[0; 4]].concat();
        // No literals, then 8 bytes from so far back, then the literal that ends the block.
        let back = |offset: u16| [&[0x04u8][..], &offset.to_le_bytes(), &[0x10, b'.']].concat();
        let first = b"0123456789".repeat(6_000);
        let plain = [&first[..], b"23456789", b"."].concat();
        assert_eq!(decompress(LZ4, &frame(&[stored(&first), packed(&back(8))])), Some(plain));
        assert_eq!(decompress(LZ4, &frame(&[stored(b"short"), packed(&back(8))])), None, "before the beginning");
        assert_eq!(decompress(LZ4, &frame(&[stored(&[0; LZ4_BLOCK + 1])])), None, "a block beyond 64 KiB");
        // A literal, then 65,554 times the same.
        let long = [&[0x1f, b'x', 1, 0][..], &[255; 257], &[0, 0x00]].concat();
        assert_eq!(decompress(LZ4, &frame(&[packed(&long)])), None, "a block that becomes longer than 64 KiB");
    }

    #[test]
    fn given_a_snappy_block_that_claims_more_than_it_can_be_when_read_then_it_is_refused() {
        // A length of 100 MB, and three bytes.
        assert_eq!(decompress(SNAPPY, &[0x80, 0xc2, 0xd7, 0x2f, 0xfe, 1, 0]), None);
    }

    proptest::proptest! {
        #[test]
        fn given_any_bytes_when_decompressed_then_nothing_panics(
            codec in 0i16..8,
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        ) {
            let _ = decompress(codec, &bytes);
            let _ = lz4_block(&bytes, &mut Vec::new(), 1 << 16);
            let _ = decompress(LZ4, &[&LZ4_MAGIC[..], &[0x60, 0x40, 0], &bytes[..]].concat());
            let _ = decompress(SNAPPY, &[SNAPPY_JAVA, &[0; 8], &bytes[..]].concat());
        }
    }
}
