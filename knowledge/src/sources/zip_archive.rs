//! Zip archives: the members are documents, read in memory one after the other. Nothing is ever written to a disk.
//!
//! - `ZIP-1` a member whose name leads out of the archive, that is a link or that is encrypted is refused by name; the others go on.
//! - `ZIP-2` sizes are counted while unpacking; what the directory says of them is not believed.
//! - `ZIP-3` an archive within an archive is refused, and so is one whose members share bytes (<https://www.bamsoftware.com/hacks/zipbomb/>).

use std::io::{Cursor, Read, Seek};
use std::path::Path;

use zip::ZipArchive;
use zip::read::ZipFile;

use super::archive::FREE_BYTES;
use super::gather::{Gathered, Item};
use super::globs::Globs;
use super::{Extension, Fault, LeftOutReason, Limits, SourceError, by_extension, detect};

/// The name of this source on the list of types.
pub const ZIP: &str = "zip";

/// Most bytes that the members of one archive may unpack to together.
pub const MAX_ARCHIVE_BYTES: u64 = 1 << 30;

/// How many times larger than packed a member may be once it has more than [`FREE_BYTES`].
pub(super) const MAX_RATIO: u64 = 100;

/// Most members in the list of an archive.
const MAX_LISTED: usize = 100_000;

/// What the entry of a member begins with in the list (APPNOTE 4.3.12), and how many bytes it has at least.
const LIST_ENTRY: &[u8] = b"PK\x01\x02";
const MIN_ENTRY: usize = 46;

/// What stands between an archive and its member in the name of a document.
const SEPARATOR: &str = "!/";

/// Extensions of archives, which are refused within one.
const ARCHIVES: &[&str] = &["zip", "jar", "war", "apk", "tar", "gz", "tgz", "bz2", "xz", "zst", "7z", "rar"];

/// Reads the members of an archive; `take` says whether to go on. An error is one of the whole archive.
pub(super) fn read_members(
    source: &str,
    bytes: &[u8],
    globs: &Globs,
    limits: Limits,
    mut take: impl FnMut(Item) -> bool,
) -> Result<(), SourceError> {
    let mut archive = opened(source, bytes)?;
    if archive.len() > limits.max_files {
        return Err(limit(source, format!("has {} members; at most {} are read", archive.len(), limits.max_files)));
    }
    if archive.has_overlapping_files().map_err(|error| SourceError::malformed(source, "zip archive", error))? {
        return Err(SourceError::malformed(source, "zip archive", "its members share the same bytes"));
    }
    let mut left = MAX_ARCHIVE_BYTES;
    for index in 0..archive.len() {
        let name = archive.name_for_index(index).and_then(Result::ok).unwrap_or_default().into_owned();
        let item = match archive.by_index(index) {
            Ok(member) => read_member(source, member, globs, limits, &mut left)?,
            Err(zip::result::ZipError::UnsupportedArchive(reason)) if reason.to_lowercase().contains("password") => {
                Some(refused(source, &name, Fault::Encrypted, "is encrypted".to_owned(), "pack it without a password"))
            }
            Err(error) => Some(refused(
                source,
                &name,
                Fault::Malformed,
                format!("can't be unpacked: {error}"),
                "pack the archive again",
            )),
        };
        if item.is_some_and(|item| !take(item)) {
            return Ok(());
        }
    }
    Ok(())
}

/// Opens an archive whose list of members may be read: the list is held in memory, some hundred bytes a member, before anything
/// else of the archive is known.
fn opened<'b>(source: &str, bytes: &'b [u8]) -> Result<ZipArchive<Cursor<&'b [u8]>>, SourceError> {
    let is_entry = |four: &&[u8]| *four == LIST_ENTRY;
    let may_be_long = bytes.len() > MAX_LISTED * MIN_ENTRY;
    if may_be_long && bytes.windows(LIST_ENTRY.len()).filter(is_entry).count() > MAX_LISTED {
        return Err(limit(source, format!("lists more than {MAX_LISTED} members")));
    }
    ZipArchive::new(Cursor::new(bytes)).map_err(|error| SourceError::malformed(source, "zip archive", error))
}

/// Most bytes and members that [`unpack_members`] takes.
#[derive(Debug, Clone, Copy)]
pub struct UnpackLimits {
    /// Bytes of all members together.
    pub total_bytes: u64,
    /// Bytes of one member.
    pub file_bytes: u64,
    /// How many members.
    pub members: usize,
}

/// A file of an archive.
#[derive(Debug)]
pub struct ArchiveFile {
    /// What it holds.
    pub bytes: Vec<u8>,
    /// Whether its owner may execute it, when the archive was packed on Unix. No other part of its mode is taken over.
    pub is_executable: bool,
}

/// Gives every file of an archive with its bytes, whatever its type. `take` gets its name, and nothing else when it is a link.
/// An error is one of the whole archive: a member that leads out of it, is a special file, or unpacks to too much.
pub fn unpack_members(
    source: &str,
    bytes: &[u8],
    limits: UnpackLimits,
    mut take: impl FnMut(&str, Option<ArchiveFile>),
) -> Result<(), SourceError> {
    let broken = |error: zip::result::ZipError| SourceError::malformed(source, "zip archive", error);
    let mut archive = opened(source, bytes)?;
    if archive.len() > limits.members {
        return Err(limit(source, format!("has {} members; at most {} are read", archive.len(), limits.members)));
    }
    if archive.has_overlapping_files().map_err(broken)? {
        return Err(SourceError::malformed(source, "zip archive", "its members share the same bytes"));
    }
    let mut left = limits.total_bytes;
    for index in 0..archive.len() {
        let member = archive.by_index(index).map_err(broken)?;
        let Ok(name) = member.name().map(|name| name.into_owned()) else {
            return Err(SourceError::malformed(source, "zip archive", "a member has a name that is no text"));
        };
        let unsafe_entry = |reason: &str| {
            SourceError::fault(
                source,
                Fault::UnsafeEntry,
                format!("has a member {name:.200?} that {reason}"),
                "pack it again",
            )
        };
        if let Some(reason) = unsafe_name(&name) {
            return Err(unsafe_entry(reason));
        }
        if member.encrypted() {
            return Err(unsafe_entry("is encrypted"));
        }
        if member.is_dir() {
            continue;
        }
        if member.is_symlink() {
            take(&name, None);
            continue;
        }
        let mode = member.unix_mode().unwrap_or(0);
        if is_special(mode) {
            return Err(unsafe_entry("is a device, pipe or socket"));
        }
        let by_ratio = member.compressed_size().saturating_mul(MAX_RATIO).max(FREE_BYTES);
        let allowed = limits.file_bytes.min(by_ratio).min(left);
        let mut content = Vec::new();
        member
            .take(allowed.saturating_add(1))
            .read_to_end(&mut content)
            .map_err(|error| SourceError::malformed(source, "zip archive", error))?;
        let size = content.len() as u64;
        if size > allowed {
            return Err(limit(source, format!("has a member {name:.200?} that unpacks to more than {allowed} bytes")));
        }
        left -= size;
        take(&name, Some(ArchiveFile { bytes: content, is_executable: mode & 0o100 != 0 }));
    }
    Ok(())
}

/// Whether a mode of Unix is that of neither a file nor a folder. Many archives say no kind at all.
fn is_special(mode: u32) -> bool {
    const KIND: u32 = 0o170_000;
    const FILE: u32 = 0o100_000;
    const FOLDER: u32 = 0o040_000;
    !matches!(mode & KIND, 0 | FILE | FOLDER)
}

/// A member as a document, or why it isn't one; `None` for folders.
fn read_member<R: Read + Seek>(
    source: &str,
    member: ZipFile<'_, R>,
    globs: &Globs,
    limits: Limits,
    left: &mut u64,
) -> Result<Option<Item>, SourceError> {
    let Ok(name) = member.name().map(|name| name.into_owned()) else {
        return Ok(Some(refused(
            source,
            "a member",
            Fault::UnsafeEntry,
            "has a name that is no text".to_owned(),
            "pack it under another name",
        )));
    };
    if let Some(reason) = unsafe_name(&name) {
        return Ok(Some(refused(
            source,
            &name,
            Fault::UnsafeEntry,
            reason.to_owned(),
            "pack it under a plain relative name",
        )));
    }
    // Some packers put the folder that they stand in before every name; it is no hidden one.
    let name = name.trim_start_matches("./").to_owned();
    if member.is_symlink() {
        return Ok(Some(refused(
            source,
            &name,
            Fault::UnsafeEntry,
            "is a symbolic link, which is not followed".to_owned(),
            "pack what it points to",
        )));
    }
    if member.is_dir() {
        return Ok(None);
    }
    let path = Path::new(&name);
    let hidden = path
        .components()
        .any(|part| part.as_os_str().to_string_lossy().starts_with('.') || part.as_os_str() == "__MACOSX");
    if hidden {
        return Ok(Some(Item::skipped(LeftOutReason::HiddenOrIgnored)));
    }
    if !globs.wants(path) {
        return Ok(Some(Item::skipped(LeftOutReason::Excluded)));
    }
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).unwrap_or_default();
    if ARCHIVES.contains(&extension.as_str()) {
        return Ok(Some(refused(
            source,
            &name,
            Fault::UnsafeEntry,
            "is an archive within an archive".to_owned(),
            "unpack it and ingest it on its own",
        )));
    }
    if let Extension::Unknown(extension) = by_extension(path) {
        return Ok(Some(Item::Skipped { reason: LeftOutReason::NoReader, extension: Some(extension) }));
    }
    if member.encrypted() {
        return Ok(Some(refused(
            source,
            &name,
            Fault::Encrypted,
            "is encrypted".to_owned(),
            "pack it without a password",
        )));
    }
    unpack(source, &name, member, limits, left).map(Some)
}

fn unpack(
    source: &str,
    name: &str,
    member: impl ReadMember,
    limits: Limits,
    left: &mut u64,
) -> Result<Item, SourceError> {
    let by_ratio = member.packed().saturating_mul(MAX_RATIO).max(FREE_BYTES);
    let allowed = limits.max_file_bytes.min(by_ratio).min(*left);
    let mut bytes = Vec::new();
    if let Err(error) = member.take(allowed.saturating_add(1)).read_to_end(&mut bytes) {
        return Ok(refused(
            source,
            name,
            Fault::Malformed,
            format!("can't be unpacked: {error}"),
            "pack the archive again",
        ));
    }
    let size = bytes.len() as u64;
    if size > *left {
        return Err(limit(source, format!("unpacks to more than {MAX_ARCHIVE_BYTES} bytes")));
    }
    *left -= size.min(*left);
    if size > allowed {
        let why = if allowed == limits.max_file_bytes {
            "the limit of one document"
        } else {
            "far more than it is packed in"
        };
        return Ok(refused(
            source,
            name,
            Fault::LimitExceeded,
            format!("unpacks to more than {allowed} bytes, {why}"),
            "split it, or pack what is needed of it",
        ));
    }
    let full = format!("{source}{SEPARATOR}{name}");
    Ok(match detect(Path::new(name), &bytes, None) {
        Ok(kind) => Item::Document(Gathered { source: full, bytes, kind }),
        // One with an extension that nobody reads was not unpacked.
        Err(_) => Item::skipped(LeftOutReason::NotText),
    })
}

/// What is needed of a member to unpack it.
trait ReadMember: Read + Sized {
    fn packed(&self) -> u64;
}

impl<R: Read> ReadMember for ZipFile<'_, R> {
    fn packed(&self) -> u64 {
        self.compressed_size()
    }
}

/// Why a name is none of a member; backslashes and drive letters are those of another system.
pub(super) fn unsafe_name(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > 4_096 {
        Some("has a name that is empty or too long")
    } else if name.contains(|c: char| c.is_control()) {
        Some("has control characters in its name")
    } else if name.starts_with('/') || name.contains('\\') || name.get(1..2) == Some(":") {
        Some("has a name that begins at a root")
    } else if name.split('/').any(|part| part == ".." || (part.len() > 2 && part.bytes().all(|b| b == b'.'))) {
        Some("has a name that leads out of the archive")
    } else {
        None
    }
}

fn refused(source: &str, member: &str, fault: Fault, reason: String, fix: &str) -> Item {
    let full =
        format!("{source}{SEPARATOR}{}", member.chars().filter(|c| !c.is_control()).take(500).collect::<String>());
    let error = SourceError::fault(&full, fault, reason, fix);
    Item::Refused { source: full, error }
}

fn limit(source: &str, reason: String) -> SourceError {
    SourceError::fault(source, Fault::LimitExceeded, reason, "split the archive, or unpack it and ingest the folder")
}
