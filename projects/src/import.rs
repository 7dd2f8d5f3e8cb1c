//! From a folder, an archive or a repository to files in memory. Nothing of it is executed, no link is followed, and what was read
//! is read again: its hash must be the same before and after.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use ignore::WalkBuilder;
use riverrun_knowledge::sources::{
    Fault, GitAddress, IgnoreRules, Place, SourceError, UnpackLimits, clone_repository, place, read_regular,
    unpack_members,
};
use riverrun_knowledge::web::GuardedClient;
use riverrun_log::blobs::sha256_hex;

use crate::aside::aside;
use crate::copy::{Executables, Files, MAX_FILE_BYTES, MAX_FILES, MAX_PROJECT_BYTES};
use crate::error::ProjectError;
use crate::installed::{is_metadata, metadata};
use crate::progress::Progress;

/// Folders of tools and of installed packages, which are no part of a project's own code.
const NOT_OURS: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    "target",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".mypy_cache",
    ".ruff_cache",
    // What a Mac packs beside each file.
    "__MACOSX",
];

/// Longest name, and longest part of one, in bytes, that a file may have on a disk, with room for the folder that it is laid out in.
const MAX_NAME: usize = 3_840;
const MAX_PART: usize = 255;

const READING: &str = "reading the source";
/// Those of version control, which nobody misses in a copy.
const OF_VERSIONS: &[&str] = &[".git", ".hg", ".svn"];

/// What was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The files.
    pub files: Files,
    /// Those that may be executed.
    pub executables: Executables,
    /// Links, special files and folders of tools that were left out.
    pub skipped: usize,
    /// Hash over all names and contents.
    pub sha256: String,
}

/// Where a project comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A folder.
    Folder(PathBuf),
    /// An archive.
    Zip(PathBuf),
    /// A repository.
    Git(GitAddress),
}

/// What a source names. Looks at no file.
///
/// # Errors
/// When it is an address that is not read.
pub fn origin(source: &str) -> Result<Origin, SourceError> {
    let is_http = source.starts_with("https://") || source.starts_with("http://");
    let scheme = source.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-'));
    if is_scheme && !["http", "https", "git+https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        // What stands behind it may hold a password.
        return Err(no_project(format!("{}://…", scheme.chars().take(20).collect::<String>())));
    }
    match place(source, is_http.then_some("git"))? {
        Place::Git(address) => Ok(Origin::Git(address)),
        Place::Path => {
            let path = PathBuf::from(source);
            let is_zip = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zip"));
            Ok(if is_zip { Origin::Zip(path) } else { Origin::Folder(path) })
        }
        Place::Web(_) | Place::Database(_) | Place::Documents(_) | Place::Topic(_) => {
            Err(no_project(source.chars().take(120).collect()))
        }
    }
}

fn no_project(name: String) -> SourceError {
    SourceError::Document {
        name,
        fault: Fault::AddressRefused,
        reason: "is no folder, archive or repository that projects are imported from".to_owned(),
        fix: "give the path of a folder or a .zip, or the https address of a repository".to_owned(),
    }
}

/// What is wrong with an archive, with a fix that an import has: it takes no other type.
fn of_archive(error: SourceError) -> SourceError {
    match error {
        SourceError::Document { name, fault: Fault::Malformed, reason, .. } => SourceError::Document {
            name,
            fault: Fault::Malformed,
            reason,
            fix: "pack it again as a .zip, or import the folder that it is packed from".to_owned(),
        },
        other => other,
    }
}

/// Reads a source, and counts the files that it has.
///
/// # Errors
/// When it can't be read, is larger than a limit, or changed while it was read; without a client, when it is a repository elsewhere.
pub async fn read(source: &str, client: Option<&GuardedClient>, progress: &Progress) -> Result<Imported, ProjectError> {
    let progress = progress.clone();
    match origin(source)? {
        Origin::Folder(path) => aside(READING, move || read_unchanged(&unmoved(&path)?, &progress)).await?,
        Origin::Zip(path) => aside(READING, move || read_archive(&unmoved(&path)?, &progress)).await?,
        Origin::Git(address) => {
            let folder =
                tempfile::Builder::new().prefix("riverrun-project-").tempdir().map_err(|error| no_place(&error))?;
            let client = client.ok_or_else(|| {
                ProjectError::refused("import_failed", "this process clones no repositories", "use riverrun serve")
            })?;
            clone_repository(&address, folder.path(), client).await?;
            let root = fs::canonicalize(folder.path()).map_err(|error| no_place(&error))?;
            aside(READING, move || {
                let read = read_folder(&root, &progress);
                // It has many files, too.
                drop(folder);
                read
            })
            .await?
        }
    }
}

fn no_place(error: &std::io::Error) -> ProjectError {
    ProjectError::refused(
        "no_space",
        format!("there is no place for a clone: {error}"),
        "free some space in the temporary folder",
    )
}

fn unreadable(path: &Path, error: &std::io::Error) -> ProjectError {
    let shown = path.display().to_string();
    match error.kind() {
        std::io::ErrorKind::NotFound => SourceError::NotFound { path: shown }.into(),
        _ => SourceError::Unreadable { path: shown, reason: error.to_string() }.into(),
    }
}

fn too_much(what: String) -> ProjectError {
    ProjectError::refused("limit_exceeded", what, "import what is needed of it")
}

/// The path that was asked for. Whoever asked followed its links: one that is on it now came since, and leads elsewhere.
pub(crate) fn unmoved(path: &Path) -> Result<PathBuf, ProjectError> {
    let canonical = fs::canonicalize(path).map_err(|error| unreadable(path, &error))?;
    if canonical == path {
        return Ok(canonical);
    }
    Err(ProjectError::refused(
        "source_changed",
        format!("{} leads to {}", path.display(), canonical.display()),
        "import what it leads to by its own path",
    ))
}

/// Reads a folder twice: the original is as it was.
fn read_unchanged(root: &Path, progress: &Progress) -> Result<Imported, ProjectError> {
    let first = read_folder(root, progress)?;
    let again = read_folder(root, &Progress::default())?;
    if (&first.sha256, &first.executables) != (&again.sha256, &again.executables) {
        return Err(ProjectError::refused(
            "source_changed",
            format!("{} changed while it was read", root.display()),
            "end what writes there and import it again",
        ));
    }
    Ok(first)
}

fn read_folder(root: &Path, progress: &Progress) -> Result<Imported, ProjectError> {
    if !root.is_dir() {
        return Err(ProjectError::refused(
            "not_a_folder",
            format!("{} is a file, and a project is a folder or a .zip", root.display()),
            "give the folder that it lies in; of another archive, such as a .tgz, the folder that it unpacks to",
        ));
    }
    let mut found = Imported::default();
    let mut total = 0;
    let left_out = Arc::new(AtomicUsize::new(0));
    let counted = left_out.clone();
    let rules = IgnoreRules::default();
    let asked = rules.clone();
    let walk = WalkBuilder::new(root)
        .standard_filters(false)
        .follow_links(false)
        .sort_by_file_name(std::cmp::Ord::cmp)
        .filter_entry(move |entry| {
            if asked.leave_out(entry) {
                return false;
            }
            let is_among = |names: &[&str]| names.iter().any(|name| entry.file_name() == *name);
            let is_ours = entry.depth() == 0 || !is_among(NOT_OURS);
            // Somebody's own sources may be in a folder of such a name.
            if !is_ours && !is_among(OF_VERSIONS) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            is_ours
        })
        .build();
    for entry in walk {
        let Ok(entry) = entry else {
            found.skipped += 1;
            continue;
        };
        let Some(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            continue;
        }
        let below = entry.path().strip_prefix(root).ok().and_then(Path::to_str);
        let Some(name) = below.filter(|_| kind.is_file()) else {
            found.skipped += 1;
            continue;
        };
        let size = entry.metadata().map_or(0, |metadata| metadata.len());
        check_size(name, size, &mut total, found.files.len())?;
        // What was a file a moment ago may be a link or larger by now.
        let (content, is_executable) = read_regular(entry.path(), MAX_FILE_BYTES)?;
        check_size(name, (content.len() as u64).saturating_sub(size), &mut total, found.files.len())?;
        if is_executable {
            found.executables.insert(name.to_owned());
        }
        found.files.insert(name.to_owned(), content.into());
        progress.step();
    }
    if let Some(failure) = rules.failure() {
        return Err(failure.into());
    }
    found.skipped += left_out.load(Ordering::Relaxed);
    for (name, path, size) in metadata(root) {
        check_size(&name, size, &mut total, found.files.len())?;
        let (content, _) = read_regular(&path, MAX_FILE_BYTES)?;
        found.files.insert(name, content.into());
        progress.step();
    }
    finish(found, &root.display().to_string(), progress)
}

fn check_size(name: &str, size: u64, total: &mut u64, files: usize) -> Result<(), ProjectError> {
    *total += size;
    if size > MAX_FILE_BYTES {
        return Err(too_much(format!("{name} has more than {MAX_FILE_BYTES} bytes")));
    }
    if *total > MAX_PROJECT_BYTES {
        return Err(too_much(format!("the project has more than {MAX_PROJECT_BYTES} bytes")));
    }
    if files >= MAX_FILES {
        return Err(too_much(format!("the project has more than {MAX_FILES} files")));
    }
    Ok(())
}

fn read_archive(path: &Path, progress: &Progress) -> Result<Imported, ProjectError> {
    let metadata = fs::symlink_metadata(path).map_err(|error| unreadable(path, &error))?;
    if !metadata.is_file() {
        return Err(SourceError::SpecialFile { path: path.display().to_string(), kind: "folder or device" }.into());
    }
    if metadata.len() > MAX_PROJECT_BYTES {
        return Err(too_much(format!("{} has more than {MAX_PROJECT_BYTES} bytes", path.display())));
    }
    // What was a file a moment ago may be a pipe, a link or larger by now.
    let (bytes, _) = read_regular(path, MAX_PROJECT_BYTES)?;
    let imported = unpack(&path.display().to_string(), &bytes, progress)?;
    let (again, _) = read_regular(path, MAX_PROJECT_BYTES)?;
    if sha256_hex(&again) != sha256_hex(&bytes) {
        return Err(ProjectError::refused(
            "source_changed",
            format!("{} changed while it was read", path.display()),
            "import it again",
        ));
    }
    Ok(imported)
}

/// The files of an archive that is in memory, counted as they come. Blocks.
///
/// # Errors
/// When a member leads out of it, is encrypted, or a limit is exceeded.
pub fn unpack(source: &str, bytes: &[u8], progress: &Progress) -> Result<Imported, ProjectError> {
    let limits = UnpackLimits { total_bytes: MAX_PROJECT_BYTES, file_bytes: MAX_FILE_BYTES, members: MAX_FILES };
    let mut found = Imported::default();
    let (mut twice, mut unfit) = (None, None);
    unpack_members(source, bytes, limits, |name, content| {
        let ours = is_metadata(name) || !name.split('/').any(|part| NOT_OURS.contains(&part));
        match content.filter(|_| ours) {
            Some(file) => {
                let path = plain(name);
                if !is_fit(&path) {
                    unfit = Some(name.to_owned());
                }
                if file.is_executable {
                    found.executables.insert(path.clone());
                }
                if found.files.insert(path, Bytes::from(file.bytes)).is_some() {
                    twice = Some(name.to_owned());
                }
                progress.step();
            }
            None => found.skipped += 1,
        }
    })
    .map_err(of_archive)?;
    if let Some(name) = unfit {
        let shown: String = name.chars().take(120).collect();
        return Err(ProjectError::refused(
            "unsafe_entry",
            format!("{source} has the member {shown:?} of {} bytes, a name that no file can have", name.len()),
            "pack it under a shorter name",
        ));
    }
    if let Some(name) = twice {
        return Err(ProjectError::refused(
            "unsafe_entry",
            format!("{source} has the member {name:?} twice"),
            "pack it again",
        ));
    }
    let mut folders = found.files.keys().filter_map(|name| {
        found.files.range(format!("{name}/")..).next().filter(|(other, _)| other.starts_with(&format!("{name}/")))
    });
    if let Some((name, _)) = folders.next() {
        return Err(ProjectError::refused(
            "unsafe_entry",
            format!("{source} has a file as a folder of {name:?}"),
            "pack it again",
        ));
    }
    drop(folders);
    finish(found, source, progress)
}

/// Whether a file may be called so: what analyzes a project lays it out on a disk.
pub(crate) fn is_fit(path: &str) -> bool {
    !path.is_empty() && path.len() <= MAX_NAME && path.split('/').all(|part| part.len() <= MAX_PART)
}

/// Without `.` and empty parts.
fn plain(name: &str) -> String {
    name.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

fn finish(mut found: Imported, source: &str, progress: &Progress) -> Result<Imported, ProjectError> {
    if found.files.is_empty() {
        return Err(ProjectError::refused("no_files", format!("{source} has no files"), "check the path"));
    }
    progress.expect(found.files.len());
    found.sha256 = hash(&found.files);
    Ok(found)
}

/// Hash over all names and contents.
pub fn hash(files: &Files) -> String {
    let lines: String = files.iter().map(|(name, content)| format!("{} {name}\n", sha256_hex(content))).collect();
    sha256_hex(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn given_a_path_that_leads_elsewhere_since_it_was_asked_for_when_it_is_imported_then_nothing_behind_it_is_read()
     {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        fs::create_dir(root.join("theirs")).unwrap();
        fs::write(root.join("theirs/secret.py"), "x = 1\n").unwrap();
        fs::write(root.join("theirs/b.zip"), "PK").unwrap();
        symlink(root.join("theirs"), root.join("ours")).unwrap();
        symlink(root.join("theirs/b.zip"), root.join("a.zip")).unwrap();
        for name in ["ours", "a.zip", "ours/b.zip"] {
            let source = root.join(name).display().to_string();
            let failure = read(&source, None, &Progress::default()).await.unwrap_err().failure();
            assert_eq!(failure.code, "source_changed", "{name}: {failure:?}");
        }
        let source = root.join("theirs").display().to_string();
        assert_eq!(read(&source, None, &Progress::default()).await.unwrap().files.len(), 2);
    }

    #[tokio::test]
    async fn given_sources_that_are_no_project_when_they_are_imported_then_each_hint_is_one_that_an_import_can_follow()
    {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        for file in ["a.py", "a.tgz", "a.zip"] {
            fs::write(root.join(file), "no archive").unwrap();
        }
        let at = |file: &str| root.join(file).display().to_string();
        for (source, code, hint) in [
            (at("a.py"), "not_a_folder", "the folder that it lies in"),
            (at("a.tgz"), "not_a_folder", "the folder that it unpacks to"),
            (at("a.zip"), "malformed_document", "as a .zip"),
            ("file:///etc".to_owned(), "address_refused", "the path of a folder"),
            ("postgres://ann:hunter2@db/x".to_owned(), "address_refused", "the path of a folder"),
            ("ssh://host/a".to_owned(), "address_refused", "https address of a repository"),
        ] {
            let failure = read(&source, None, &Progress::default()).await.unwrap_err().failure();
            let told = failure.hint.clone().unwrap_or_default();
            assert!(failure.code == code && told.contains(hint), "{source}: {failure:?}");
            let leads_nowhere = ["--type", "schemes", "hunter2"];
            let said = format!("{} {told}", failure.message);
            assert!(leads_nowhere.iter().all(|word| !said.contains(word)), "{said}");
        }
    }

    #[tokio::test]
    async fn given_folders_of_tools_when_a_folder_is_imported_then_each_that_nobody_ignores_is_counted() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        for file in ["a.py", "target/b.py", "lib/venv/c.py", ".git/config", "lib/node_modules/d.js", "lib/e.py"] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x = 1\n").unwrap();
        }
        fs::write(root.join(".gitignore"), "node_modules\n").unwrap();
        let found = read(&root.display().to_string(), None, &Progress::default()).await.unwrap();
        assert_eq!(found.files.keys().collect::<Vec<_>>(), [".gitignore", "a.py", "lib/e.py"]);
        assert_eq!(found.skipped, 2, "target and venv");
    }

    #[tokio::test]
    async fn given_rules_that_are_a_pipe_or_a_link_when_a_folder_is_imported_then_it_ends_and_they_are_counted() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("a.py"), "x = 1\n").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(root.join(".ignore")).status().unwrap().success());
        symlink("/dev/zero", root.join("sub/.gitignore")).unwrap();
        let source = root.display().to_string();
        let found = read(&source, None, &Progress::default()).await.unwrap();
        assert_eq!(found.files.keys().collect::<Vec<_>>(), ["a.py"]);
        assert_eq!(found.skipped, 2, "the pipe and the link");
        fs::write(root.join(".gitignore"), "#".repeat((1 << 20) + 1)).unwrap();
        let failure = read(&source, None, &Progress::default()).await.unwrap_err().failure();
        assert_eq!(failure.code, "limit_exceeded");
        assert!(failure.message.contains(".gitignore has more than 1048576 bytes of rules"), "{failure:?}");
    }
}
