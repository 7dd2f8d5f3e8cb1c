//! What was written since the last commit, which no reader sees yet.

use std::collections::{HashMap, HashSet};

use riverrun_schemas::{ChunkId, DocumentId};

use crate::chunk::{StoredChunk, Versions};

/// Chunks and versions that may be in what is not committed: also those that were deleted again, and those of a writer that failed.
#[derive(Debug, Default)]
pub(super) struct Pending {
    chunks: HashSet<ChunkId>,
    versions: HashMap<DocumentId, HashSet<String>>,
}

impl Pending {
    pub(super) fn add(&mut self, chunk: &StoredChunk) {
        self.chunks.insert(chunk.chunk_id);
        let versions = self.versions.entry(chunk.document_id).or_default();
        if !versions.contains(&chunk.version) {
            versions.insert(chunk.version.clone());
        }
    }

    pub(super) fn has_chunk(&self, chunk: &StoredChunk) -> bool {
        self.chunks.contains(&chunk.chunk_id)
    }

    /// Whether there may be a chunk of the document's versions.
    pub(super) fn has_document(&self, document: &DocumentId, versions: &Versions) -> bool {
        let Some(pending) = self.versions.get(document) else { return false };
        match versions {
            Versions::All => true,
            Versions::Only(version) => pending.contains(version),
            Versions::Except(version) => pending.iter().any(|other| other != version),
        }
    }

    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        self.versions.clear();
    }
}
