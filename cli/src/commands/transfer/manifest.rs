//! The manifest: what an archive holds, with counts and hashes. It is written last; a folder without one is no archive.

use std::fs;
use std::path::{Path, PathBuf};

use riverrun_log::TopicPartition;
use riverrun_log::archive::{Committed, PartitionFile};
use riverrun_schemas::BlobRef;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{CliError, Exit};

/// Its name in the folder.
pub(super) const NAME: &str = "manifest.json";
/// The form of archives that this program writes and reads.
pub(super) const FORMAT: u32 = 1;
/// Largest manifest that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// What an archive holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format: u32,
    pub version: String,
    pub created_at_ms: i64,
    pub log: Vec<PartitionFile>,
    pub groups: Vec<Committed>,
    pub blobs: BlobSum,
    pub files: Vec<FileEntry>,
}

/// All blobs together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlobSum {
    pub count: u64,
    pub bytes: i64,
    /// SHA-256 over the names, which are the hashes of the contents, in order.
    pub sha256: String,
}

impl BlobSum {
    pub(super) fn of(blobs: &[BlobRef]) -> Self {
        let mut hash = Sha256::new();
        blobs.iter().for_each(|blob| hash.update(blob.sha256.as_bytes()));
        Self {
            count: blobs.len() as u64,
            bytes: blobs.iter().map(|blob| blob.size_bytes).sum(),
            sha256: format!("{:x}", hash.finalize()),
        }
    }
}

/// A file that is carried as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    /// Below the data folder, with `/`.
    pub path: String,
    pub size_bytes: u64,
    pub sha256: String,
}

impl Manifest {
    pub(super) fn records(&self) -> u64 {
        self.log.iter().map(|file| file.records).sum()
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), CliError> {
        let (path, draft) = (folder.join(NAME), folder.join("manifest.part"));
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::other)?;
        fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path)).map_err(|error| {
            CliError::new(Exit::Failed, format!("writing {} failed: {error}", path.display())).hint("check the disk")
        })
    }

    pub(super) fn read(folder: &Path) -> Result<Self, CliError> {
        let path = folder.join(NAME);
        let none = |reason: String| {
            CliError::new(Exit::Usage, format!("{} is no archive: {reason}", folder.display()))
                .hint("riverrun export FOLDER makes one; its manifest is written last")
        };
        let size = fs::metadata(&path).map_err(|error| none(format!("{NAME}: {error}")))?.len();
        if size > MAX_BYTES {
            return Err(none(format!("{NAME} has {size} bytes; at most {MAX_BYTES} are read")));
        }
        let text = fs::read(&path).map_err(|error| none(format!("{NAME}: {error}")))?;
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| none(format!("{NAME}: {error}")))?;
        if manifest.format != FORMAT {
            return Err(none(format!("it has the format {}; this version reads {FORMAT}", manifest.format)));
        }
        Ok(manifest)
    }
}

/// Where a partition's records are.
pub(super) fn log_file(folder: &Path, place: &TopicPartition) -> PathBuf {
    folder.join("log").join(&*place.topic).join(format!("{}.jsonl", place.partition))
}
