//! The isolated copy: a list of files whose contents are in the blob store. What was imported lies in one blob, one file behind the
//! other; each file that was changed since has a blob of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use riverrun_log::BlobStore;
use riverrun_log::blobs::sha256_hex;
use riverrun_schemas::BlobRef;
use serde::{Deserialize, Serialize};

use crate::aside::aside;
use crate::error::ProjectError;

/// Most bytes of a copy: 256 MiB. It is held in memory while it is analyzed.
pub const MAX_PROJECT_BYTES: u64 = 256 << 20;
/// Most bytes of one file: 32 MiB.
pub const MAX_FILE_BYTES: u64 = 32 << 20;
/// Most files.
pub const MAX_FILES: usize = 20_000;

const PACK: &str = "application/octet-stream";
const TREE: &str = "application/json";

/// A file of the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Hash of its content.
    pub sha256: String,
    /// Its length.
    pub size_bytes: u64,
    /// Where it begins in the pack.
    #[serde(default)]
    pub offset: u64,
    /// Its own blob, when it was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
    /// Whether its owner may execute it: of the mode of a file this is kept, as git keeps it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_executable: bool,
}

/// The files of the copy, by path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// What was imported.
    pub pack: BlobRef,
    /// By path, with `/` between folders.
    pub entries: BTreeMap<String, Entry>,
}

impl Tree {
    /// Bytes of all files.
    pub fn size_bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.size_bytes).sum()
    }

    /// Paths of the files that may be executed.
    pub fn executables(&self) -> Executables {
        self.entries.iter().filter(|(_, entry)| entry.is_executable).map(|(path, _)| path.clone()).collect()
    }

    /// Puts a content in the place of that of a file, whose mode stays.
    ///
    /// # Errors
    /// When the copy has no such file.
    pub fn replace(&mut self, file: &str, entry: Entry) -> Result<(), ProjectError> {
        let is_executable = self.entry(file)?.is_executable;
        self.entries.insert(file.to_owned(), Entry { is_executable, ..entry });
        Ok(())
    }

    /// The file of that path.
    ///
    /// # Errors
    /// When the copy has no such file.
    pub fn entry(&self, file: &str) -> Result<&Entry, ProjectError> {
        self.entries.get(file).ok_or_else(|| {
            let shown: String = file.chars().filter(|c| !c.is_control()).take(200).collect();
            ProjectError::refused(
                "file_not_found",
                format!("the copy has no file {shown:?}"),
                "name it as GET /projects/{id}/files lists it",
            )
        })
    }
}

/// Files in memory, by path.
pub type Files = BTreeMap<String, Bytes>;

/// Paths of files whose owner may execute them.
pub type Executables = BTreeSet<String>;

/// Reads and writes copies.
#[derive(Debug, Clone)]
pub struct CopyStore {
    blobs: Arc<dyn BlobStore>,
}

impl CopyStore {
    /// Over a blob store.
    pub fn new(blobs: Arc<dyn BlobStore>) -> Self {
        Self { blobs }
    }

    /// Keeps files as a new copy.
    ///
    /// # Errors
    /// When the blob store fails.
    pub async fn keep(&self, files: &Files, executables: &Executables) -> Result<(BlobRef, Tree), ProjectError> {
        let (owned, modes) = (files.clone(), executables.clone());
        let (pack, entries) = aside("packing the copy", move || packed(&owned, &modes)).await?;
        let tree = Tree { pack: self.blobs.put_bytes(pack, PACK).await?, entries };
        Ok((self.keep_tree(&tree).await?, tree))
    }

    /// Keeps a list of files.
    ///
    /// # Errors
    /// When the blob store fails.
    pub async fn keep_tree(&self, tree: &Tree) -> Result<BlobRef, ProjectError> {
        // Texts and numbers: can't fail.
        let text = serde_json::to_vec(tree).unwrap_or_default();
        Ok(self.blobs.put_bytes(text.into(), TREE).await?)
    }

    /// The list of files in a blob.
    ///
    /// # Errors
    /// When it is not there or is none.
    pub async fn tree(&self, blob: &BlobRef) -> Result<Tree, ProjectError> {
        let bytes = self.blobs.get(blob).await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            ProjectError::refused(
                "copy_damaged",
                format!("the list of files can't be read: {error}"),
                "import it again",
            )
        })
    }

    /// One file.
    ///
    /// # Errors
    /// When the copy has no such file, or its content is not what its hash says.
    pub async fn file(&self, tree: &Tree, file: &str) -> Result<Bytes, ProjectError> {
        let entry = tree.entry(file)?;
        let content = match &entry.blob {
            Some(blob) => self.blobs.get(blob).await?,
            None => slice(&self.blobs.get(&tree.pack).await?, entry),
        };
        checked(file, &entry.sha256, content)
    }

    /// Every file.
    ///
    /// # Errors
    /// When one can't be read.
    pub async fn files(&self, tree: &Tree) -> Result<Files, ProjectError> {
        self.read(tree, tree.entries.iter().collect()).await
    }

    /// The files that have other contents in two states of a copy, as they were and as they are: no others are read.
    ///
    /// # Errors
    /// When one can't be read.
    pub async fn changed(&self, before: &Tree, after: &Tree) -> Result<(Files, Files), ProjectError> {
        let were = self.read(before, others(before, after)).await?;
        let are = self.read(after, others(after, before)).await?;
        Ok((were, are))
    }

    async fn read(&self, tree: &Tree, wanted: Vec<(&String, &Entry)>) -> Result<Files, ProjectError> {
        let mut pack = None;
        let mut found = Vec::with_capacity(wanted.len());
        for (path, entry) in wanted {
            let content = if let Some(blob) = &entry.blob {
                self.blobs.get(blob).await?
            } else {
                let whole = match pack.take() {
                    Some(whole) => whole,
                    None => self.blobs.get(&tree.pack).await?,
                };
                let part = slice(&whole, entry);
                pack = Some(whole);
                part
            };
            found.push((path.clone(), entry.sha256.clone(), content));
        }
        let check = |(path, sha256, content): (String, String, Bytes)| {
            let content = checked(&path, &sha256, content)?;
            Ok::<_, ProjectError>((path, content))
        };
        aside("comparing the copy with its hashes", move || found.into_iter().map(check).collect()).await?
    }

    /// Keeps a content.
    ///
    /// # Errors
    /// When the blob store fails.
    pub async fn put(&self, content: Bytes) -> Result<BlobRef, ProjectError> {
        Ok(self.blobs.put_bytes(content, PACK).await?)
    }
}

/// The files of a state whose contents are not those of another one, which has them, too.
fn others<'t>(these: &'t Tree, others: &Tree) -> Vec<(&'t String, &'t Entry)> {
    let is_other =
        |path: &String, entry: &Entry| others.entries.get(path).is_some_and(|other| other.sha256 != entry.sha256);
    these.entries.iter().filter(|(path, entry)| is_other(path, entry)).collect()
}

fn slice(pack: &Bytes, entry: &Entry) -> Bytes {
    let start = usize::try_from(entry.offset).unwrap_or(usize::MAX).min(pack.len());
    let length = usize::try_from(entry.size_bytes).unwrap_or(usize::MAX);
    pack.slice(start..start.saturating_add(length).min(pack.len()))
}

/// The files one behind the other, and where each is.
fn packed(files: &Files, executables: &Executables) -> (Bytes, BTreeMap<String, Entry>) {
    let mut pack = Vec::with_capacity(files.values().map(Bytes::len).sum());
    let mut entries = BTreeMap::new();
    for (path, content) in files {
        let entry = Entry {
            sha256: sha256_hex(content),
            size_bytes: content.len() as u64,
            offset: pack.len() as u64,
            blob: None,
            is_executable: executables.contains(path),
        };
        pack.extend_from_slice(content);
        entries.insert(path.clone(), entry);
    }
    (pack.into(), entries)
}

fn checked(file: &str, sha256: &str, content: Bytes) -> Result<Bytes, ProjectError> {
    if sha256_hex(&content) == sha256 {
        return Ok(content);
    }
    Err(ProjectError::refused("copy_damaged", format!("{file} is not what was imported"), "import the project again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(is_executable: bool) -> Entry {
        Entry { sha256: "a".into(), size_bytes: 1, offset: 0, blob: None, is_executable }
    }

    #[test]
    fn given_files_with_modes_when_a_content_is_replaced_then_modes_stay_and_lists_without_modes_are_read() {
        let pack = BlobRef { sha256: "a".into(), size_bytes: 1, media_type: PACK.into() };
        let entries = [("plain", false), ("run.sh", true)].map(|(path, mode)| (path.to_owned(), entry(mode)));
        let mut tree = Tree { pack, entries: entries.into() };
        for file in ["plain", "run.sh"] {
            tree.replace(file, Entry { sha256: "b".into(), ..entry(file == "plain") }).unwrap();
        }
        assert!(tree.replace("other", entry(false)).is_err());
        assert!(tree.entries.values().all(|entry| entry.sha256 == "b"));
        assert_eq!(tree.executables(), Executables::from(["run.sh".to_owned()]));

        let text = serde_json::to_string(&tree).unwrap();
        assert_eq!(serde_json::from_str::<Tree>(&text).unwrap(), tree);
        let of_earlier = text.replace(",\"is_executable\":true", "");
        assert!(serde_json::from_str::<Tree>(&of_earlier).unwrap().executables().is_empty());
    }

    #[test]
    fn given_two_states_of_a_copy_when_they_are_compared_then_only_files_of_both_with_other_contents_are_named() {
        let pack = BlobRef { sha256: "a".into(), size_bytes: 1, media_type: PACK.into() };
        let of = |files: &[(&str, &str)]| Tree {
            pack: pack.clone(),
            entries: files
                .iter()
                .map(|(path, sha256)| ((*path).to_owned(), Entry { sha256: (*sha256).to_owned(), ..entry(false) }))
                .collect(),
        };
        let (before, after) = (of(&[("a", "1"), ("b", "1"), ("c", "1")]), of(&[("a", "1"), ("b", "2"), ("d", "1")]));
        let named = |these: &Tree, those: &Tree| {
            others(these, those).into_iter().map(|(path, entry)| format!("{path}{}", entry.sha256)).collect::<Vec<_>>()
        };
        assert_eq!((named(&before, &after), named(&after, &before)), (vec!["b1".to_owned()], vec!["b2".to_owned()]));
        assert!(named(&after, &after).is_empty());
    }
}
