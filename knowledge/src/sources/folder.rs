//! A folder: every document in it and below, by the ignore rules that people keep anyway.
//!
//! Hidden entries and what `.gitignore`, `.ignore` and `.git/info/exclude` within the folder list ([`IgnoreRules`]) is left out, whether
//! or not the folder is a repository; rules above it and the user's own are not asked, so that the same folder reads the same
//! everywhere. Symbolic links are not followed. What is left out is counted; a left-out folder counts as one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use riverrun_schemas::{agreed, counted};

use super::globs::Globs;
use super::ignored::IgnoreRules;
use super::left_out::{LeftOutFiles, LeftOutReason};
use super::read::{FoundDocument, Limits, special_kind};
use super::zip_archive::ZIP;
use super::{SourceError, may_be_readable};

/// The name of this source on the list of types.
pub const FOLDER: &str = "folder";

/// How many extensions a message names.
const MAX_NAMED_EXTENSIONS: usize = 6;

/// What is in a folder, in the order of names.
#[derive(Debug, Default)]
pub struct FolderListing {
    /// The folder: sources of its documents begin with it.
    pub root: String,
    /// Files that can probably be read.
    pub documents: Vec<FoundDocument>,
    /// Entries that look wanted and can't be read.
    pub refused: Vec<(FoundDocument, SourceError)>,
    /// Entries left out: hidden, ignored, links, unsupported types.
    pub left_out: LeftOutFiles,
}

/// Lists a folder. With `any_type`, files of every extension are taken: the type is forced.
pub fn list_folder(root: &Path, any_type: bool, globs: &Globs, limits: Limits) -> Result<FolderListing, SourceError> {
    let mut listing = FolderListing { root: root.to_string_lossy().into_owned(), ..FolderListing::default() };
    // Entries that the walk showed, by their folder: what a folder has beyond them was left out.
    let mut shown: HashMap<PathBuf, usize> = HashMap::from([(root.to_owned(), 0)]);
    let mut files = 0;
    let rules = IgnoreRules::default();
    for entry in walk(root, &rules) {
        let entry = match entry {
            Ok(entry) if entry.depth() == 0 => continue,
            Ok(entry) => entry,
            Err(error) => {
                listing.refused.push(unreadable_entry(root, &error)?);
                continue;
            }
        };
        if let Some(parent) = entry.path().parent() {
            *shown.entry(parent.to_owned()).or_default() += 1;
        }
        if entry.file_type().is_some_and(|kind| kind.is_dir()) {
            shown.entry(entry.into_path()).or_default();
        } else {
            files += 1;
            let below = entry.path().strip_prefix(root).unwrap_or(entry.path());
            if globs.wants(below) {
                listing.take(&entry, any_type);
            } else {
                listing.left_out.add(LeftOutReason::Excluded, None, 1);
            }
        }
        if files.max(shown.len()) > limits.max_files {
            return Err(SourceError::TooManyFiles { path: root.display().to_string(), limit: limits.max_files });
        }
    }
    if let Some(failure) = rules.failure() {
        return Err(failure);
    }
    let unseen = shown.iter().map(|(folder, shown)| entries(folder).saturating_sub(*shown)).sum();
    listing.left_out.add(LeftOutReason::HiddenOrIgnored, None, unseen);
    Ok(listing)
}

fn walk(root: &Path, rules: &IgnoreRules) -> ignore::Walk {
    let rules = rules.clone();
    WalkBuilder::new(root)
        .standard_filters(false)
        .hidden(true)
        .follow_links(false)
        .sort_by_file_name(std::cmp::Ord::cmp)
        .filter_entry(move |entry| !rules.leave_out(entry))
        .build()
}

/// How many entries a folder has; one that can't be listed was refused by the walk already.
fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

impl FolderListing {
    fn take(&mut self, entry: &DirEntry, any_type: bool) {
        let path = entry.path();
        if entry.path_is_symlink() {
            self.left_out.add(LeftOutReason::Link, None, 1);
            return;
        }
        if !(any_type || may_be_readable(path)) {
            let extension = path.extension().unwrap_or_default().to_string_lossy();
            let is_zip = extension.eq_ignore_ascii_case(ZIP);
            let reason = if is_zip { LeftOutReason::Archive } else { LeftOutReason::NoReader };
            self.left_out.add(reason, Some(&extension), 1);
            return;
        }
        let found = FoundDocument::at(path);
        match entry.file_type().and_then(special_kind) {
            Some(kind) => {
                let error = SourceError::SpecialFile { path: found.source.clone(), kind };
                self.refused.push((found, error));
            }
            None => self.documents.push(found),
        }
    }

    /// The error for a folder that turned out to have nothing to read.
    pub fn nothing_readable(&self, root: &str) -> SourceError {
        let skipped = self.left_out.total();
        let left_out = format!("{} {} left out", counted(skipped, "entry"), agreed(skipped, "was", "were"));
        let extensions = self.left_out.extensions();
        let seen = match (skipped, extensions.is_empty()) {
            (0, _) => "it is empty".to_owned(),
            (_, true) => format!("{left_out} as hidden, ignored, linked or not text"),
            (_, false) => {
                let named: Vec<&str> = extensions.into_iter().take(MAX_NAMED_EXTENSIONS).collect();
                format!("{left_out}, among them files of unsupported types: {}", named.join(", "))
            }
        };
        SourceError::NoReadableDocuments { path: root.to_owned(), seen, supported: super::supported() }
    }
}

/// An entry that the walk could not look into. Of the root itself that is the end.
fn unreadable_entry(root: &Path, error: &ignore::Error) -> Result<(FoundDocument, SourceError), SourceError> {
    let path = path_of(error).unwrap_or(root);
    let failure = SourceError::Unreadable { path: path.display().to_string(), reason: reason_of(error) };
    if path == root { Err(failure) } else { Ok((FoundDocument::at(path), failure)) }
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_of(err),
        ignore::Error::Loop { child, .. } => Some(child),
        ignore::Error::Partial(errors) => errors.iter().find_map(path_of),
        ignore::Error::Io(_)
        | ignore::Error::Glob { .. }
        | ignore::Error::UnrecognizedFileType(_)
        | ignore::Error::InvalidDefinition => None,
    }
}

fn reason_of(error: &ignore::Error) -> String {
    error.io_error().map_or_else(|| error.to_string(), ToString::to_string)
}
