//! What can go wrong in a store, and what to do about it.

use std::path::{Path, PathBuf};

use riverrun_schemas::{ChunkId, Collection};

/// A store could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database file can't be opened, is damaged, or was made by another version.
    #[error("database {path} can't be used: {reason}", path = path.display())]
    DatabaseUnusable {
        /// The file.
        path: PathBuf,
        /// What the engine said.
        reason: String,
    },
    /// A statement failed.
    #[error("database statement failed: {0}")]
    Database(#[from] sqlx::Error),
    /// A row holds something that this build can't read.
    #[error("{table} row {key} can't be read: {reason}")]
    Row {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// The cursor of a list was not made by us.
    #[error("cursor {0:?} is not one that this list gave out")]
    Cursor(String),
    /// There is no such collection.
    #[error("{} does not exist", .0.quoted())]
    NoCollection(Collection),
    /// The collection holds vectors of another model.
    #[error(
        "{} holds vectors of {stored_model:?} ({stored_dimensions} dimensions), not of {wanted_model:?} ({wanted_dimensions} dimensions)",
        .collection.quoted()
    )]
    EmbeddingMismatch {
        /// The collection.
        collection: Collection,
        /// The model that it was made with.
        stored_model: String,
        /// Length of its vectors.
        stored_dimensions: usize,
        /// The model that was asked for.
        wanted_model: String,
        /// Length of its vectors.
        wanted_dimensions: usize,
    },
    /// A vector has another length than those of the collection.
    #[error("a vector of {found} dimensions was given to {}, which holds {expected} dimensions", .collection.quoted())]
    Dimensions {
        /// The collection.
        collection: Collection,
        /// Length of its vectors.
        expected: usize,
        /// Length of the one given.
        found: usize,
    },
    /// A vector holds NaN or infinity.
    #[error("vector of chunk {0} holds a number that is not finite")]
    NotFinite(ChunkId),
    /// A file could not be read or written.
    #[error("{what} {path} failed: {source}", path = path.display())]
    Io {
        /// What was done, for example `reading`.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The index of a collection failed.
    #[error("{kind} index {path} failed: {reason}", path = path.display())]
    Index {
        /// `vector` or `keyword`.
        kind: &'static str,
        /// Its folder.
        path: PathBuf,
        /// What the engine said.
        reason: String,
    },
    /// This kind of store can't do that.
    #[error("this vector store can't {0}")]
    Unsupported(&'static str),
    /// A server that was set does not answer, or answers with an error.
    #[error("{service} at {address} failed: {reason}")]
    Server {
        /// Its name for people.
        service: &'static str,
        /// Where it is, without secrets.
        address: String,
        /// What it or its client said.
        reason: String,
        /// What to do.
        fix: String,
    },
    /// The process is ending.
    #[error("the store is shutting down")]
    ShuttingDown,
}

/// No memory, not allowed, too many open files, no space, read only: nothing of it is an index's fault.
const SYSTEM_ERRORS: [&str; 6] =
    ["os error 12)", "os error 13)", "os error 23)", "os error 24)", "os error 28)", "os error 30)"];

const SQLITE_CORRUPT: &str = "11";
const SQLITE_NOT_A_DATABASE: &str = "26";

impl StoreError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }

    /// Names the file when the engine says that it is damaged.
    pub(crate) fn at(self, path: &Path) -> Self {
        match &self {
            Self::Database(sqlx::Error::Database(error))
                if error.code().is_some_and(|code| code == SQLITE_CORRUPT || code == SQLITE_NOT_A_DATABASE) =>
            {
                Self::DatabaseUnusable { path: path.to_path_buf(), reason: error.to_string() }
            }
            _ => self,
        }
    }

    /// Whether it is the index that is damaged, and not the machine that lacks something.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Index { reason, .. } => !SYSTEM_ERRORS.iter().any(|error| reason.contains(error)),
            Self::DatabaseUnusable { .. }
            | Self::Database(_)
            | Self::Row { .. }
            | Self::Cursor(_)
            | Self::NoCollection(_)
            | Self::EmbeddingMismatch { .. }
            | Self::Dimensions { .. }
            | Self::NotFinite(_)
            | Self::Io { .. }
            | Self::Unsupported(_)
            | Self::Server { .. }
            | Self::ShuttingDown => false,
        }
    }

    /// Stable code for answers and dead letters.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DatabaseUnusable { .. } => "database_unusable",
            Self::Database(_) => "database_failed",
            Self::Row { .. } => "row_unreadable",
            Self::Cursor(_) => "cursor_invalid",
            Self::NoCollection(_) => "collection_not_found",
            Self::EmbeddingMismatch { .. } => "embedding_model_mismatch",
            Self::Dimensions { .. } => "vector_dimensions_mismatch",
            Self::NotFinite(_) => "vector_not_finite",
            Self::Io { .. } => "store_io_failed",
            Self::Index { .. } => "index_failed",
            Self::Unsupported(_) => "store_unsupported",
            Self::Server { .. } => "store_server_down",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// Whether the same call may succeed later without anybody doing anything.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Database(_) | Self::Io { .. } | Self::Index { .. } | Self::Server { .. } | Self::ShuttingDown => true,
            Self::DatabaseUnusable { .. }
            | Self::Row { .. }
            | Self::Cursor(_)
            | Self::NoCollection(_)
            | Self::EmbeddingMismatch { .. }
            | Self::Dimensions { .. }
            | Self::Unsupported(_)
            | Self::NotFinite(_) => false,
        }
    }

    /// The fix, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::DatabaseUnusable { path, .. } => {
                let path = path.display();
                Some(format!(
                    "stop riverrun and delete {path}, {path}-wal and {path}-shm: read models are rebuilt from the log at the next start"
                ))
            }
            Self::Row { .. } => Some(
                "stop riverrun and delete the database: read models are rebuilt from the log at the next start"
                    .to_owned(),
            ),
            Self::Cursor(_) => Some("start the list again without a cursor".to_owned()),
            Self::NoCollection(collection) => {
                Some(format!("riverrun ingest <source> -c {} -n {}", collection.name, collection.namespace))
            }
            Self::EmbeddingMismatch { collection, stored_model, wanted_model, .. } => Some(format!(
                "set RIVERRUN_DEFAULT_EMBED_MODEL={stored_model}, or embed the collection anew: riverrun collections reembed {} -n {} --model {wanted_model}",
                collection.name, collection.namespace
            )),
            Self::Unsupported(_) => {
                Some("remove the collection and ingest its sources again: riverrun collections rm <name>".to_owned())
            }
            Self::Dimensions { .. } => Some("embed with the model that the collection was made with".to_owned()),
            Self::Index { .. } => Some(
                "if it goes on, make it again from the log: riverrun collections rebuild <name> --afresh".to_owned(),
            ),
            Self::Server { fix, .. } => Some(fix.clone()),
            Self::Database(_) | Self::NotFinite(_) | Self::Io { .. } | Self::ShuttingDown => None,
        }
    }
}
