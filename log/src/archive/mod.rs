//! The log as files, to be carried from one broker to another: a file a partition, one record a line of JSON, in order.
//!
//! A record's offset does not survive the move: brokers give offsets to markers of transactions, too, and old records fall
//! off. In an archive the n-th record of a partition *is* record n, which is also the offset that it gets in an empty
//! topic. What refers to offsets is brought into this form when it is written: how far groups are ([`Committed`]) and marks of dead letters.
//! Snapshots of runs, which also refer to offsets, are left out: they are made from the events before them.
//!
//! - `ARCHIVE-1` what is imported is read back, and its count and hash are those of the archive.
//! - `ARCHIVE-2` a partition that holds anything but the beginning of the archive's is not written to.

mod groups;
mod line;
mod reading;
mod writing;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::blobs::BlobError;
use crate::error::LogError;
use crate::record::TopicPartition;

pub use groups::{GroupPlace, commit, committed};
pub use reading::{Restored, check_file, restore, verify};
pub use writing::{Asked, save};

/// Why a log can't be carried.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A broker refuses or is away.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A blob store fails.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A file can't be read or written.
    #[error("{doing} {path} failed: {source}", path = path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file of the archive is not what the manifest says.
    #[error("{path} is damaged: {reason}; export again", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The target holds something else.
    #[error("{partition} holds something else than the beginning of this archive: {reason}")]
    NotEmpty {
        /// Where.
        partition: TopicPartition,
        /// What.
        reason: String,
    },
    /// Something was written while the log was read.
    #[error("{partition} changed while it was read")]
    Moved {
        /// Where.
        partition: TopicPartition,
    },
    /// What was written is not what is there.
    #[error("{partition} has {found} where the archive has {expected}")]
    Differs {
        /// Where.
        partition: TopicPartition,
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
}

impl ArchiveError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}

/// What a partition's file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionFile {
    /// Name of the topic.
    pub topic: String,
    /// Counts from 0.
    pub partition: i32,
    /// Number of its records, one a line.
    pub records: u64,
    /// SHA-256 of the file, in lower-case hex.
    pub sha256: String,
}

impl PartitionFile {
    /// Which partition it is.
    pub fn place(&self) -> TopicPartition {
        TopicPartition::new(self.topic.as_str(), self.partition)
    }
}

/// How far a group is in a partition, in records of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The group's id.
    pub group: String,
    /// Name of the topic.
    pub topic: String,
    /// Counts from 0.
    pub partition: i32,
    /// The record to read next.
    pub next: u64,
    /// The record that the note beside it names, where there is one.
    pub note: Option<u64>,
}

#[cfg(test)]
mod tests;
