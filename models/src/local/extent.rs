//! How much of a GGUF file its tensors take: one that was cut off, as a broken download is, is shorter than its header says.

use std::io::{self, Read};

/// Where the tensors lie unless `general.alignment` says otherwise: behind the header, at a multiple of so many bytes.
const USUAL_ALIGNMENT: u64 = 32;

/// Numbers of a block and its bytes, by `GGML_TYPE_*`. A type that is not here takes no bytes as far as is known.
const BLOCKS: [(u32, u64, u64); 32] = [
    (0, 1, 4),
    (1, 1, 2),
    (2, 32, 18),
    (3, 32, 20),
    (6, 32, 22),
    (7, 32, 24),
    (8, 32, 34),
    (9, 32, 36),
    (10, 256, 84),
    (11, 256, 110),
    (12, 256, 144),
    (13, 256, 176),
    (14, 256, 210),
    (15, 256, 292),
    (16, 256, 66),
    (17, 256, 74),
    (18, 256, 98),
    (19, 256, 50),
    (20, 32, 18),
    (21, 256, 110),
    (22, 256, 82),
    (23, 256, 136),
    (24, 1, 1),
    (25, 1, 2),
    (26, 1, 4),
    (27, 1, 8),
    (28, 1, 8),
    (29, 256, 56),
    (30, 1, 2),
    (34, 256, 54),
    (35, 256, 66),
    (39, 32, 17),
];

/// A reader that knows how much was read.
#[derive(Debug)]
pub(super) struct Counted<R> {
    input: R,
    pub(super) bytes: u64,
}

impl<R: Read> Counted<R> {
    pub(super) fn of(input: R) -> Self {
        Counted { input, bytes: 0 }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// What the tensors of a header take.
#[derive(Debug, Default)]
pub(super) struct Extent {
    /// Behind the beginning of the first tensor.
    tensors: u64,
    has_tensors: bool,
}

impl Extent {
    /// Takes in a tensor of so many numbers, which lies `offset` bytes behind the first one.
    pub(super) fn take(&mut self, numbers: u64, kind: u32, offset: u64) {
        let bytes = BLOCKS.iter().find(|(known, _, _)| *known == kind).map_or(0, |(_, block, bytes)| {
            // A row is whole blocks.
            (numbers / block).saturating_mul(*bytes)
        });
        self.has_tensors = true;
        self.tensors = self.tensors.max(offset.saturating_add(bytes));
    }

    /// Bytes of the file, whose header takes `header` and has this alignment.
    pub(super) fn of_file(&self, header: u64, alignment: Option<u64>) -> u64 {
        if !self.has_tensors {
            return header;
        }
        let alignment = alignment.filter(|alignment| *alignment > 0).unwrap_or(USUAL_ALIGNMENT);
        header.checked_next_multiple_of(alignment).unwrap_or(u64::MAX).saturating_add(self.tensors)
    }
}

/// Says that a file of `size` bytes is shorter than its header says; `header` is how the reading of that ended, with the bytes of the file.
pub(super) fn check(header: &io::Result<u64>, size: u64) -> Result<(), String> {
    match header {
        _ if size == 0 => Err("it is empty".to_owned()),
        Ok(needed) if *needed > size => Err(format!("it is cut off: it has {size} bytes of {needed}")),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(format!("it is cut off or damaged: its {size} bytes end within its header"))
        }
        // What else is wrong with it llama.cpp says.
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_tensors_when_they_are_taken_in_then_the_file_has_to_reach_the_end_of_the_last() {
        let mut extent = Extent::default();
        assert_eq!(extent.of_file(100, None), 100);
        extent.take(64, 0, 0);
        assert_eq!(extent.of_file(100, None), 128 + 256);
        extent.take(512, 14, 256);
        assert_eq!(extent.of_file(100, None), 128 + 256 + 420);
        assert_eq!(extent.of_file(100, Some(64)), 128 + 256 + 420);
        assert_eq!(extent.of_file(100, Some(256)), 256 + 256 + 420);
        assert_eq!(extent.of_file(128, Some(0)), 128 + 256 + 420);
        // An unknown kind has a beginning, and no end that is known.
        extent.take(1 << 20, 99, 1_000);
        assert_eq!(extent.of_file(128, None), 128 + 1_000);
        extent.take(u64::MAX, 28, u64::MAX);
        assert_eq!(extent.of_file(u64::MAX, None), u64::MAX);
    }

    #[test]
    fn given_sizes_when_they_are_compared_then_a_short_file_is_named_with_both_and_an_empty_one_as_such() {
        let ended = || -> io::Result<u64> { Err(io::ErrorKind::UnexpectedEof.into()) };
        assert_eq!(check(&Ok(10), 10), Ok(()));
        assert_eq!(check(&Ok(10), 12), Ok(()));
        assert_eq!(check(&Err(io::ErrorKind::InvalidData.into()), 12), Ok(()));
        assert_eq!(check(&Ok(10), 9).unwrap_err(), "it is cut off: it has 9 bytes of 10");
        assert_eq!(check(&ended(), 0).unwrap_err(), "it is empty");
        assert!(check(&ended(), 9).unwrap_err().contains("its 9 bytes end within its header"));
    }
}
