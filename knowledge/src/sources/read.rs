//! From a path to the documents behind it.

use std::fs::{self, FileType};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::folder::{FOLDER, FolderListing, list_folder};
use super::globs::Globs;
use super::open::open_without_links;
use super::zip_archive::ZIP;
use super::{PLACES, Source, SourceError, by_name, detect, holds_documents, may_be_readable, unsupported};

/// How much one request may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one file (`RIVERRUN_INGEST_MAX_FILE_BYTES`). Larger ones are refused, never cut.
    pub max_file_bytes: u64,
    /// Most files, and most folders, below one folder (`RIVERRUN_INGEST_MAX_FILES`). Beyond it the whole request is refused.
    pub max_files: usize,
}

impl Default for Limits {
    /// 20 MiB and 10,000 files.
    fn default() -> Self {
        Self { max_file_bytes: 20 << 20, max_files: 10_000 }
    }
}

/// A file that may become a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDocument {
    /// Where it is.
    pub path: PathBuf,
    /// The same as text: the document's source, from which its id is derived.
    pub source: String,
}

impl FoundDocument {
    pub(super) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), source: path.to_string_lossy().into_owned() }
    }
}

/// What a path turned out to be.
#[derive(Debug)]
pub enum Scan {
    /// One file.
    File(FoundDocument),
    /// A folder and what is in it.
    Folder(FolderListing),
    /// An archive, whose members are documents.
    Archive(FoundDocument),
}

/// Looks at a path without reading any document. Links in the path itself are followed: the caller named it.
pub fn scan(source: &str, forced: Option<&str>, globs: &Globs, limits: Limits) -> Result<Scan, SourceError> {
    let given = Path::new(source);
    if !given.is_absolute() {
        return Err(SourceError::NotAbsolute { path: source.to_owned() });
    }
    let forced_format = forced.filter(|name| !holds_documents(name)).map(by_name).transpose()?;
    if let Some(place) = forced.filter(|name| PLACES.contains(name)) {
        return Err(SourceError::fault(
            source,
            super::Fault::BadOption,
            format!("is no address of type {place:?}"),
            "leave --type out, and it is inferred",
        ));
    }
    // One file has one canonical path, whichever way it was named: the same document, not a second one.
    let path = fs::canonicalize(given).map_err(|error| io_failure(source, &error))?;
    let kind = fs::symlink_metadata(&path).map_err(|error| io_failure(source, &error))?.file_type();
    let found = FoundDocument::at(&path);
    if kind.is_dir() {
        return list_folder(&path, forced_format.is_some(), globs, limits).map(Scan::Folder);
    }
    if let Some(kind) = special_kind(kind) {
        return Err(SourceError::SpecialFile { path: found.source, kind });
    }
    if forced == Some(FOLDER) {
        return Err(SourceError::NotAFolder { path: found.source });
    }
    let is_zip = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ZIP));
    if forced == Some(ZIP) || (forced_format.is_none() && is_zip) {
        return Ok(Scan::Archive(found));
    }
    if forced_format.is_none() && !may_be_readable(&path) {
        return Err(unsupported(&path));
    }
    Ok(Scan::File(found))
}

/// Reads an archive's bytes. Blocks.
pub fn read_archive(found: &FoundDocument, limits: Limits) -> Result<Vec<u8>, SourceError> {
    read_file(&found.path, limits)
}

/// Reads a document's bytes and says which source takes its text out. Blocks.
pub fn read_document(
    found: &FoundDocument,
    forced: Option<&str>,
    limits: Limits,
) -> Result<(Vec<u8>, &'static dyn Source), SourceError> {
    if found.path.to_str().is_none() {
        return Err(SourceError::NameNotUtf8 { path: found.source.clone() });
    }
    let bytes = read_file(&found.path, limits)?;
    let source = detect(&found.path, &bytes, forced)?;
    Ok((bytes, source))
}

fn read_file(path: &Path, limits: Limits) -> Result<Vec<u8>, SourceError> {
    read_regular(path, limits.max_file_bytes).map(|(bytes, _)| bytes)
}

/// The bytes of a regular file, and whether its owner may execute it. The path is a canonical one. Blocks.
///
/// # Errors
/// When a part of the path is a link, or it is a special file, has more bytes, or can't be read.
pub fn read_regular(path: &Path, max_bytes: u64) -> Result<(Vec<u8>, bool), SourceError> {
    let shown = path.display().to_string();
    let failed = |error: std::io::Error| io_failure(&shown, &error);
    // What was a file during the scan may be something else now.
    let file = open_without_links(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if let Some(kind) = special_kind(metadata.file_type()) {
        return Err(SourceError::SpecialFile { path: shown, kind });
    }
    let too_large = || SourceError::TooLarge { path: shown.clone(), limit_bytes: max_bytes };
    if metadata.len() > max_bytes {
        return Err(too_large());
    }
    // The file may grow meanwhile: one byte more than allowed tells.
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    let is_executable = metadata.permissions().mode() & 0o100 != 0;
    if bytes.len() as u64 > max_bytes { Err(too_large()) } else { Ok((bytes, is_executable)) }
}

/// What stands in the way of reading it as a file; `None` for regular files.
pub(super) fn special_kind(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("folder")
    } else if kind.is_symlink() {
        Some("symbolic link")
    } else if kind.is_fifo() {
        Some("named pipe")
    } else if kind.is_socket() {
        Some("socket")
    } else {
        Some("device")
    }
}

fn io_failure(path: &str, error: &std::io::Error) -> SourceError {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => SourceError::NotFound { path: path.to_owned() },
        _ => SourceError::Unreadable { path: path.to_owned(), reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use tempfile::TempDir;

    use super::*;
    use crate::sources::LeftOutReason;

    fn scan(source: &str, forced: Option<&str>, limits: Limits) -> Result<Scan, SourceError> {
        super::scan(source, forced, &Globs::all(), limits)
    }

    fn folder(files: &[(&str, &[u8])]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        dir
    }

    fn list(dir: &TempDir, forced: Option<&str>, limits: Limits) -> FolderListing {
        match scan(dir.path().to_str().unwrap(), forced, limits).unwrap() {
            Scan::Folder(listing) => listing,
            other => panic!("{other:?} is no folder"),
        }
    }

    fn names(dir: &TempDir, listing: &FolderListing) -> Vec<String> {
        let root = fs::canonicalize(dir.path()).unwrap();
        listing.documents.iter().map(|found| found.path.strip_prefix(&root).unwrap().display().to_string()).collect()
    }

    fn code<T: std::fmt::Debug>(result: Result<T, SourceError>) -> &'static str {
        result.unwrap_err().code()
    }

    #[test]
    fn given_a_folder_when_scanned_then_documents_come_in_order_and_what_is_left_out_is_counted() {
        let dir = folder(&[
            ("b.md", b"# B"),
            ("a.txt", b"a"),
            ("sub/c.txt", b"c"),
            ("sub/skip.txt", b"ignored"),
            ("sub/.gitignore", b"skip.txt\n"),
            (".gitignore", b"build/\n"),
            ("build/x.txt", b"x"),
            ("build/y.txt", b"y"),
            (".hidden/z.txt", b"z"),
            ("picture.PNG", b"\x89PNG"),
            ("LICENSE", b"words"),
        ]);
        symlink(dir.path().join("a.txt"), dir.path().join("link.txt")).unwrap();
        symlink("/etc", dir.path().join("etc")).unwrap();
        let listing = list(&dir, None, Limits::default());
        assert_eq!(names(&dir, &listing), ["LICENSE", "a.txt", "b.md", "sub/c.txt"]);
        assert!(listing.refused.is_empty());
        // .gitignore twice, build, .hidden, sub/skip.txt, picture.PNG and two links.
        assert_eq!(listing.left_out.total(), 8);
        let counts: Vec<_> = listing.left_out.iter().collect();
        let expected = [
            (LeftOutReason::NoReader, Some(".png"), 1),
            (LeftOutReason::HiddenOrIgnored, None, 5),
            (LeftOutReason::Link, None, 2),
        ];
        assert_eq!(counts, expected);
    }

    #[test]
    fn given_files_that_nothing_reads_when_a_folder_is_scanned_then_they_are_counted_by_reason_and_extension() {
        let dir = folder(&[
            ("a.md", b"# A"),
            ("b.rtf", b"x"),
            ("sub/c.RTF", b"x"),
            ("d.doc", b"{}"),
            ("e.zip", b"x"),
            ("f.txt", b"left out by a glob"),
        ]);
        let globs = Globs::new(&[], &["f.txt".into()]).unwrap();
        let Scan::Folder(listing) = super::scan(dir.path().to_str().unwrap(), None, &globs, Limits::default()).unwrap()
        else {
            panic!("no folder")
        };
        let counts: Vec<_> =
            listing.left_out.iter().map(|(reason, extension, files)| (reason.code(), extension, files)).collect();
        let expected = [
            ("no_reader", Some(".doc"), 1),
            ("no_reader", Some(".rtf"), 2),
            ("archive", Some(".zip"), 1),
            ("excluded", None, 1),
        ];
        assert_eq!(counts, expected);
    }

    #[test]
    fn given_a_forced_type_when_a_folder_is_scanned_then_every_extension_is_taken() {
        let dir = folder(&[("a.zzz", b"fn main() {}"), ("b.txt", b"b")]);
        assert_eq!(names(&dir, &list(&dir, Some("text"), Limits::default())), ["a.zzz", "b.txt"]);
        assert_eq!(names(&dir, &list(&dir, Some("folder"), Limits::default())), ["b.txt"]);
    }

    #[test]
    fn given_a_folder_without_documents_when_scanned_then_the_error_says_what_is_there() {
        let dir = folder(&[("a.png", b"x"), ("b.tgz", b"x"), (".c.txt", b"x")]);
        let listing = list(&dir, None, Limits::default());
        assert!(listing.documents.is_empty());
        let error = listing.nothing_readable("/docs");
        assert_eq!(error.code(), "no_readable_documents");
        assert_eq!(
            error.to_string(),
            "/docs has no readable documents; 3 entries were left out, among them files of unsupported types: .png, .tgz"
        );
        assert!(error.hint().unwrap().contains("markdown (.md"));
        let empty = folder(&[]);
        assert!(list(&empty, None, Limits::default()).nothing_readable("/docs").to_string().ends_with("it is empty"));
    }

    #[test]
    fn given_paths_that_are_no_documents_when_scanned_then_each_kind_has_its_code() {
        let dir = folder(&[("a.png", b"x"), ("a.txt", b"a"), ("a.zip", b"x")]);
        let at = |name: &str| dir.path().join(name).display().to_string();
        let pipe = at("pipe.txt");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _socket = UnixListener::bind(at("socket.txt")).unwrap();
        let limits = Limits::default();
        assert_eq!(code(scan("a.txt", None, limits)), "path_not_absolute");
        assert_eq!(code(scan("../../etc/passwd", None, limits)), "path_not_absolute");
        assert_eq!(code(scan(&at("nothing.txt"), None, limits)), "not_found");
        assert_eq!(code(scan(&at("a.txt/b"), None, limits)), "not_found");
        assert_eq!(code(scan("/a/\0b", None, limits)), "unreadable");
        assert_eq!(code(scan(&format!("/{}", "x".repeat(5000)), None, limits)), "unreadable");
        assert_eq!(code(scan("/dev/zero", Some("text"), limits)), "special_file");
        assert_eq!(code(scan(&pipe, None, limits)), "special_file");
        assert_eq!(code(scan(&at("socket.txt"), None, limits)), "special_file");
        assert_eq!(code(scan(&at("a.png"), None, limits)), "unsupported_type");
        assert_eq!(code(scan(&at("a.txt"), Some("sql"), limits)), "bad_option");
        assert!(matches!(scan(&at("a.zip"), None, limits), Ok(Scan::Archive(_))));
        assert!(matches!(scan(&at("a.png"), Some("zip"), limits), Ok(Scan::Archive(_))));
        assert_eq!(code(scan(&at("a.txt"), Some("folder"), limits)), "not_a_folder");
        assert_eq!(code(scan(&at("a.txt"), Some("nonsense"), limits)), "unknown_source_type");
        let listing = list(&dir, None, limits);
        let refused: Vec<_> = listing.refused.iter().map(|(_, error)| error.code()).collect();
        assert_eq!(refused, ["special_file", "special_file"]);
    }

    #[test]
    fn given_a_link_or_a_pipe_in_a_files_place_when_read_then_it_is_refused_without_blocking() {
        let dir = folder(&[("a.txt", b"a")]);
        let link = dir.path().join("link.txt");
        symlink(dir.path().join("a.txt"), &link).unwrap();
        let pipe = dir.path().join("pipe.txt");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [link, pipe, dir.path().to_owned()] {
            let result = read_document(&FoundDocument::at(&path), Some("text"), Limits::default());
            assert!(
                matches!(result, Err(SourceError::Unreadable { .. } | SourceError::SpecialFile { .. })),
                "{path:?}: {result:?}"
            );
        }
    }

    #[test]
    fn given_a_name_that_is_not_utf8_when_read_then_the_fix_is_another_name_and_not_another_mode() {
        use std::os::unix::ffi::OsStrExt;
        let dir = folder(&[]);
        let path = dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9.txt"));
        fs::write(&path, b"words").unwrap();
        let error = read_document(&FoundDocument::at(&path), None, Limits::default()).unwrap_err();
        assert_eq!(error.code(), "unreadable");
        assert!(error.to_string().contains("not valid UTF-8"), "{error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("name") && !hint.contains("chmod"), "{hint}");
    }

    #[test]
    fn given_limits_when_they_are_passed_then_the_error_names_them() {
        let dir = folder(&[("a.txt", b"12345"), ("b.txt", b"123456"), ("c.txt", b"")]);
        let limits = Limits { max_file_bytes: 5, max_files: 3 };
        let read = |name: &str| read_document(&FoundDocument::at(&dir.path().join(name)), None, limits);
        assert_eq!(read("a.txt").unwrap().0, b"12345");
        let error = read("b.txt").unwrap_err();
        assert_eq!(error.code(), "too_large");
        assert!(
            error.to_string().contains("more than 5 bytes")
                && error.hint().unwrap().contains("RIVERRUN_INGEST_MAX_FILE_BYTES")
        );
        assert_eq!(list(&dir, None, limits).documents.len(), 3);
        let error = scan(dir.path().to_str().unwrap(), None, Limits { max_files: 2, ..limits }).unwrap_err();
        assert_eq!(error.code(), "too_many_files");
        assert!(error.hint().unwrap().contains("RIVERRUN_INGEST_MAX_FILES"));
    }

    #[test]
    fn given_two_names_of_one_file_when_scanned_then_it_is_one_document() {
        let dir = folder(&[("sub/a.txt", b"a")]);
        symlink(dir.path().join("sub/a.txt"), dir.path().join("link.txt")).unwrap();
        let source = |name: &str| match scan(dir.path().join(name).to_str().unwrap(), None, Limits::default()).unwrap()
        {
            Scan::File(found) => found.source,
            other => panic!("{other:?}"),
        };
        assert_eq!(source("sub/a.txt"), source("sub/../sub/./a.txt"));
        assert_eq!(source("sub/a.txt"), source("link.txt"));
    }
}
