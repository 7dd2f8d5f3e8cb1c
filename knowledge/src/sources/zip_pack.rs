//! Writing a zip archive that [`super::unpack_members`] takes. The same files give the same bytes, whenever and wherever they are packed.

use std::io::{Cursor, Write};

use zip::result::ZipError;
use zip::write::{PreparedZipFile, SimpleFileOptions};
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::archive::FREE_BYTES;
use super::zip_archive::{MAX_RATIO, unsafe_name};
use super::{Fault, SourceError};

/// A file that goes into an archive.
#[derive(Debug, Clone, Copy)]
pub struct PackedFile<'f> {
    /// Its path, with `/` between folders.
    pub name: &'f str,
    /// What it holds.
    pub bytes: &'f [u8],
    /// Whether its owner may execute it.
    pub is_executable: bool,
}

/// An archive of these files, in their order. `source` is only for messages.
///
/// # Errors
/// When a file has a name that no archive may have (`unsafe_entry`), or the archive would have more than the format holds.
pub fn pack_members<'f>(source: &str, files: impl IntoIterator<Item = PackedFile<'f>>) -> Result<Vec<u8>, SourceError> {
    let broken = |error: ZipError| {
        let reason = format!("can't be packed: {error}");
        SourceError::fault(source, Fault::LimitExceeded, reason, "take what is needed of it")
    };
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for file in files {
        if let Some(reason) = unsafe_name(file.name) {
            let reason = format!("has the file {:.200?}, which no archive takes: it {reason}", file.name);
            return Err(SourceError::fault(source, Fault::UnsafeEntry, reason, "rename it"));
        }
        writer.start_file(file.name, options(&file, method(&file).map_err(broken)?)).map_err(broken)?;
        writer.write_all(file.bytes).map_err(|error| broken(ZipError::Io(error)))?;
    }
    Ok(writer.finish().map_err(broken)?.into_inner())
}

/// Without the time of day, which would make another archive of the same files.
fn options(file: &PackedFile<'_>, method: CompressionMethod) -> SimpleFileOptions {
    let mode = if file.is_executable { 0o755 } else { 0o644 };
    SimpleFileOptions::default()
        .compression_method(method)
        .last_modified_time(DateTime::default())
        .unix_permissions(mode)
}

/// What packs too well would be taken for a bomb where it is unpacked: it is stored as it is.
fn method(file: &PackedFile<'_>) -> Result<CompressionMethod, ZipError> {
    let size = file.bytes.len() as u64;
    if size <= FREE_BYTES {
        return Ok(CompressionMethod::Deflated);
    }
    let deflated = PreparedZipFile::from_data(file.name, options(file, CompressionMethod::Deflated), file.bytes)?
        .compressed_size();
    let is_dense = deflated.saturating_mul(MAX_RATIO) >= size;
    Ok(if is_dense { CompressionMethod::Deflated } else { CompressionMethod::Stored })
}

#[cfg(test)]
mod tests {
    use super::super::{UnpackLimits, unpack_members};
    use super::*;

    const LIMITS: UnpackLimits = UnpackLimits { total_bytes: 64 << 20, file_bytes: 32 << 20, members: 100 };

    fn file<'f>(name: &'f str, bytes: &'f [u8], is_executable: bool) -> PackedFile<'f> {
        PackedFile { name, bytes, is_executable }
    }

    fn unpacked(archive: &[u8]) -> Vec<(String, Vec<u8>, bool)> {
        let mut found = Vec::new();
        unpack_members("a.zip", archive, LIMITS, |name, file| {
            let file = file.unwrap();
            found.push((name.to_owned(), file.bytes, file.is_executable));
        })
        .unwrap();
        found
    }

    #[test]
    fn given_files_when_they_are_packed_and_unpacked_then_each_is_what_it_was_also_where_it_packs_like_a_bomb() {
        let zeros = vec![0; (3 << 20) + 1];
        let files = [
            file("a.py", b"x = 1\n", false),
            file("bin/run", b"#!/bin/sh\n", true),
            file("empty", b"", false),
            file("na\u{ef}ve \u{65e5}\u{672c}/a b.py", b"y = 2\n", false),
            file("zeros.bin", &zeros, false),
        ];
        let archive = pack_members("code", files).unwrap();
        let expected: Vec<_> =
            files.iter().map(|file| (file.name.to_owned(), file.bytes.to_vec(), file.is_executable)).collect();
        assert_eq!(unpacked(&archive), expected);
        assert_eq!(pack_members("code", files).unwrap(), archive, "the same files are the same bytes");
    }

    #[test]
    fn given_large_files_that_pack_as_usual_when_they_are_packed_then_the_archive_is_smaller_than_they_are() {
        let text = "let number = number + 1; // as sources go\n".repeat(40_000);
        let mut varied = text.into_bytes();
        // Something else in each line, so that it packs a few times and not a few hundred.
        let mut state = 1_u32;
        for line in varied.chunks_mut(42) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            line[0] = b'a' + (state >> 24) as u8 % 26;
            line[4] = b'a' + (state >> 16) as u8 % 26;
        }
        let archive = pack_members("code", [file("a.rs", &varied, false)]).unwrap();
        assert!(archive.len() * 3 < varied.len(), "{} of {}", archive.len(), varied.len());
        assert_eq!(unpacked(&archive)[0].1, varied);
    }

    #[test]
    fn given_names_that_no_archive_may_have_when_they_are_packed_then_they_are_refused_by_name() {
        for name in ["a\\b.py", "..", "a/../b.py", "/a.py", "a\nb.py", "C:x.py", "a/.../b.py", ""] {
            let error = pack_members("code", [file(name, b"x", false)]).unwrap_err();
            assert_eq!(error.code(), "unsafe_entry", "{name:?}");
            assert!(error.to_string().starts_with("code has the file "), "{error}");
        }
    }
}
