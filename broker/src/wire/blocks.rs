//! Snappy and LZ4 as streams: a block at a time, so that no more than a block and what it may refer to is in memory.

use std::io::{self, Read};

/// Begins what snappy-java writes: a magic, then two version numbers, then blocks with a length each.
pub(super) const SNAPPY_JAVA: &[u8] = b"\x82SNAPPY\0";
const SNAPPY_JAVA_HEADER: usize = 16;
/// A snappy block cannot become longer than so many times its size: three bytes give 64 at most.
const SNAPPY_GROWTH: usize = 22;
pub(super) const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Set in the length of a block that is not compressed.
pub(super) const LZ4_STORED: u32 = 1 << 31;
/// How far back a match may reach.
const LZ4_REACH: usize = 64 << 10;

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Copies what is left of `from` behind `at`, as much as there is room for.
fn hand_out(from: &[u8], at: &mut usize, buffer: &mut [u8]) -> usize {
    let rest = from.get(*at..).unwrap_or(&[]);
    let count = rest.len().min(buffer.len());
    buffer[..count].copy_from_slice(&rest[..count]);
    *at += count;
    count
}

/// Snappy, raw (one block) or in the frames of snappy-java.
pub(super) struct SnappyBlocks<'a> {
    rest: &'a [u8],
    is_framed: bool,
    block: Vec<u8>,
    at: usize,
    /// Most bytes of a block.
    most: usize,
}

impl<'a> SnappyBlocks<'a> {
    /// Over a whole body, of which no block may have more than `most` bytes.
    pub(super) fn new(body: &'a [u8], most: usize) -> Self {
        let is_framed = body.starts_with(SNAPPY_JAVA);
        let rest = if is_framed { body.get(SNAPPY_JAVA_HEADER..).unwrap_or(&[]) } else { body };
        Self { rest, is_framed, block: Vec::new(), at: 0, most }
    }

    fn next_block(&mut self) -> Option<()> {
        let (block, behind) = if self.is_framed {
            let (length, behind) = self.rest.split_at_checked(4)?;
            behind.split_at_checked(u32::from_be_bytes(length.try_into().ok()?) as usize)?
        } else {
            self.rest.split_at_checked(self.rest.len())?
        };
        // The length is only claimed; the decoder allocates it, but no more than the block can give and there is room for.
        let most = self.most.min(block.len().saturating_mul(SNAPPY_GROWTH));
        snap::raw::decompress_len(block).ok().filter(|length| *length <= most)?;
        self.block = snap::raw::Decoder::new().decompress_vec(block).ok()?;
        self.at = 0;
        self.rest = behind;
        Some(())
    }
}

impl Read for SnappyBlocks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() && !self.rest.is_empty() {
            self.next_block().ok_or_else(malformed)?;
        }
        Ok(hand_out(&self.block, &mut self.at, buffer))
    }
}

/// An LZ4 frame (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md>). Its checksums are passed over, since the
/// batch has its own.
pub(super) struct Lz4Blocks<'a> {
    rest: &'a [u8],
    /// Most bytes of a block, as the frame says.
    most: usize,
    /// Bytes of checksum behind each block.
    checksum: usize,
    /// What matches may still reach, and the block that is given out.
    window: Vec<u8>,
    at: usize,
    has_ended: bool,
}

impl<'a> Lz4Blocks<'a> {
    /// Over a whole body; none if it does not begin as a frame that can be read.
    pub(super) fn new(body: &'a [u8]) -> Option<Self> {
        let rest = body.strip_prefix(&LZ4_MAGIC)?;
        let (flags, sizes) = (*rest.first()?, *rest.get(1)?);
        let has = |bit: u8| flags & (1 << bit) != 0;
        if flags >> 6 != 1 || has(0) {
            // Another version, or a dictionary that nobody has.
            return None;
        }
        // 4 to 7 stand for 64 KiB to 4 MiB.
        let size = (sizes >> 4) & 7;
        if size < 4 {
            return None;
        }
        // Flags and block size, the size of the contents, a checksum.
        let header = if has(3) { 11 } else { 3 };
        Some(Self {
            rest: rest.get(header..)?,
            most: 1 << (8 + 2 * size),
            checksum: if has(4) { 4 } else { 0 },
            window: Vec::new(),
            at: 0,
            has_ended: false,
        })
    }

    /// Whether there was another block; none if it is malformed.
    fn next_block(&mut self) -> Option<bool> {
        let (length, behind) = self.rest.split_at_checked(4)?;
        let length = u32::from_le_bytes(length.try_into().ok()?);
        if length == 0 {
            return Some(false);
        }
        let (block, behind) = behind.split_at_checked((length & !LZ4_STORED) as usize)?;
        self.window.drain(..self.window.len().saturating_sub(LZ4_REACH));
        self.at = self.window.len();
        if length & LZ4_STORED == 0 {
            lz4_block(block, &mut self.window, self.at + self.most)?;
        } else if block.len() <= self.most {
            self.window.extend_from_slice(block);
        } else {
            return None;
        }
        self.rest = behind.get(self.checksum..)?;
        Some(true)
    }
}

impl Read for Lz4Blocks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.window.len() && !self.has_ended {
            self.has_ended = !self.next_block().ok_or_else(malformed)?;
        }
        Ok(hand_out(&self.window, &mut self.at, buffer))
    }
}

/// An LZ4 block (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>) behind what is in `out`, into which matches
/// may reach; `out` gets no longer than `most`.
pub(super) fn lz4_block(mut block: &[u8], out: &mut Vec<u8>, most: usize) -> Option<()> {
    loop {
        let token = take_byte(&mut block)?;
        let literals = lz4_length(token >> 4, &mut block)?;
        let (copied, behind) = block.split_at_checked(literals)?;
        if copied.len() > most.checked_sub(out.len())? {
            return None;
        }
        out.extend_from_slice(copied);
        block = behind;
        if block.is_empty() {
            return Some(());
        }
        let (offset, behind) = block.split_at_checked(2)?;
        let offset = usize::from(u16::from_le_bytes(offset.try_into().ok()?));
        block = behind;
        let length = lz4_length(token & 0x0f, &mut block)?.checked_add(4)?;
        let start = out.len().checked_sub(offset).filter(|_| offset > 0)?;
        if length > most.checked_sub(out.len())? {
            return None;
        }
        if length <= offset {
            out.extend_from_within(start..start + length);
        } else {
            // The match overlaps what it produces.
            for at in start..start + length {
                out.push(out[at]);
            }
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
