//! Chunks for tests of the indexes.
#![allow(dead_code)] // each test file uses a part

use std::path::Path;

use riverrun_schemas::{ChunkId, Collection, DocumentId};
use riverrun_stores::{StoredChunk, VectorPoint};

pub(crate) fn collection(name: &str) -> Collection {
    Collection::new("default".parse().unwrap(), name.parse().unwrap())
}

pub(crate) fn document(source: &str) -> DocumentId {
    DocumentId::derive(&[source])
}

pub(crate) fn chunk(source: &str, version: &str, ordinal: i32, text: &str) -> StoredChunk {
    StoredChunk {
        chunk_id: ChunkId::derive(&[source, version, &ordinal.to_string()]),
        document_id: document(source),
        version: version.into(),
        source: source.into(),
        ordinal,
        start: 0,
        end: text.len() as i64,
        text: text.into(),
        page: (ordinal % 2 == 0).then_some(ordinal + 1),
        tags: Vec::new(),
        layer: 0,
        leaves: Vec::new(),
        heading: (ordinal % 3 == 0).then(|| "Guide > Start".into()),
    }
}

pub(crate) fn point(source: &str, version: &str, ordinal: i32, vector: [f32; 4]) -> VectorPoint {
    VectorPoint {
        chunk: chunk(source, version, ordinal, &format!("chunk {ordinal} of {source}")),
        vector: vector.to_vec(),
    }
}

/// The files as they are at this moment: what is left after a `kill -9`.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    // The folder is alive: a file that is tidied away between listing and copying makes the copy a mixture of two
    // moments, which no crash leaves. Such a copy is thrown away.
    for _ in 0..100 {
        match try_copy(from, to) {
            Ok(()) => return,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => std::fs::remove_dir_all(to).unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{} never stood still", from.display());
}

fn try_copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            try_copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
