//! Words in this process: one tantivy index a collection, in a folder of its own. A hit carries the whole chunk, so the
//! index answers alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use riverrun_schemas::{ChunkId, Collection, DocumentId};

use crate::agreement::{ChunkKey, KeyPage};
use crate::chunk::{ChunkFilter, MAX_HITS, StoredChunk, Versions, in_order};
use crate::error::StoreError;
use crate::gaps::{Damage, Gaps};
use crate::keywords::tantivy_index::index::OpenIndex;
use crate::keywords::{KeywordHit, KeywordIndex};
use crate::shelf::{self, Shelf, nothing_if_missing};

mod index;

/// Settings of [`TantivyIndex`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TantivyConfig {
    /// Folder of all collections.
    pub root: PathBuf,
    /// Most indexes open at once; the least recently used are closed, and with them their writers.
    pub max_open: usize,
    /// Memory of a writer, 15 MiB at least; more means fewer and larger segments.
    pub writer_memory_bytes: usize,
}

impl TantivyConfig {
    /// The usual settings under that folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), max_open: 16, writer_memory_bytes: 20 << 20 }
    }
}

/// Words in this process. Cheap to clone.
#[derive(Clone)]
pub struct TantivyIndex {
    inner: Arc<Inner>,
}

struct Inner {
    config: TantivyConfig,
    shelf: Shelf<OpenIndex>,
}

impl TantivyIndex {
    /// Opens the folder, making it if need be. Indexes are opened when first used.
    pub fn open(config: TantivyConfig) -> Result<Self, StoreError> {
        Self::open_telling(config, Gaps::default())
    }

    /// The same that tells of damaged collections in `gaps`.
    pub fn open_telling(config: TantivyConfig, gaps: Gaps) -> Result<Self, StoreError> {
        let shelf = Shelf::open("keyword", &config.root, config.max_open)?.telling(gaps);
        Ok(Self { inner: Arc::new(Inner { config, shelf }) })
    }

    async fn blocking<R: Send + 'static>(
        &self,
        collection: &Collection,
        work: impl FnOnce(&Inner, &Collection) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        shelf::blocking(&self.inner, |inner| &inner.shelf, collection, work).await
    }
}

impl Inner {
    fn existing(&self, collection: &Collection, folder: &Path) -> Result<OpenIndex, StoreError> {
        if OpenIndex::is_at(folder) {
            OpenIndex::open(folder, self.config.writer_memory_bytes)
        } else {
            Err(StoreError::NoCollection(collection.clone()))
        }
    }

    fn read<R>(
        &self,
        collection: &Collection,
        work: impl FnOnce(&OpenIndex) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.shelf.read(collection, |folder| self.existing(collection, folder), work)
    }

    fn write<R>(
        &self,
        collection: &Collection,
        work: impl FnOnce(&mut OpenIndex) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.shelf.write(collection, |folder| OpenIndex::open(folder, self.config.writer_memory_bytes), work)
    }

    fn write_existing<R: Default>(
        &self,
        collection: &Collection,
        work: impl FnOnce(&mut OpenIndex) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        nothing_if_missing(self.shelf.write(collection, |folder| self.existing(collection, folder), work))
    }
}

#[async_trait]
impl KeywordIndex for TantivyIndex {
    async fn upsert(&self, collection: &Collection, chunks: Vec<StoredChunk>) -> Result<(), StoreError> {
        self.blocking(collection, move |inner, collection| inner.write(collection, |index| index.upsert(&chunks))).await
    }

    async fn delete_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError> {
        let (document, versions) = (*document, versions.clone());
        self.blocking(collection, move |inner, collection| {
            inner.write_existing(collection, |index| index.delete_document(&document, &versions))
        })
        .await
    }

    async fn search(
        &self,
        collection: &Collection,
        query: &str,
        k: usize,
        filter: &ChunkFilter,
    ) -> Result<Vec<KeywordHit>, StoreError> {
        let k = k.min(MAX_HITS);
        let (query, filter) = (query.to_owned(), filter.clone());
        self.blocking(collection, move |inner, collection| {
            let hits = inner
                .read(collection, |index| if k == 0 { Ok(Vec::new()) } else { index.search(&query, k, &filter) })?;
            Ok(in_order(hits, k, |hit| (hit.score, hit.chunk.chunk_id)))
        })
        .await
    }

    async fn count(&self, collection: &Collection) -> Result<usize, StoreError> {
        self.blocking(collection, |inner, collection| {
            nothing_if_missing(inner.read(collection, |index| Ok(index.count())))
        })
        .await
    }

    async fn documents(&self, collection: &Collection) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        self.blocking(collection, |inner, collection| nothing_if_missing(inner.read(collection, OpenIndex::documents)))
            .await
    }

    async fn count_documents(
        &self,
        collection: &Collection,
        documents: &[DocumentId],
    ) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        let documents = documents.to_vec();
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.read(collection, |index| index.count_documents(&documents)))
        })
        .await
    }

    async fn ids(
        &self,
        collection: &Collection,
        from: Option<ChunkId>,
        limit: usize,
    ) -> Result<KeyPage<ChunkId>, StoreError> {
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.read(collection, |index| index.ids(from, limit)))
        })
        .await
    }

    async fn keys_of(&self, collection: &Collection, chunks: &[ChunkId]) -> Result<Vec<ChunkKey>, StoreError> {
        let chunks = chunks.to_vec();
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.read(collection, |index| index.keys_of(&chunks)))
        })
        .await
    }

    async fn commit(&self, collection: &Collection) -> Result<(), StoreError> {
        self.blocking(collection, |inner, collection| inner.write_existing(collection, OpenIndex::commit)).await
    }

    async fn drop_collection(&self, collection: &Collection) -> Result<bool, StoreError> {
        self.blocking(collection, |inner, collection| inner.shelf.remove(collection)).await
    }

    async fn count_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError> {
        let (document, versions) = (*document, versions.clone());
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.read(collection, |index| index.count_document(&document, &versions)))
        })
        .await
    }

    async fn exists(&self, collection: &Collection) -> Result<bool, StoreError> {
        self.blocking(collection, |inner, collection| Ok(OpenIndex::is_at(&inner.shelf.folder(collection)))).await
    }

    async fn verify(&self, collection: &Collection) -> Result<(), StoreError> {
        self.blocking(collection, |inner, collection| nothing_if_missing(inner.read(collection, OpenIndex::verify)))
            .await
    }

    async fn set_aside(&self, collection: &Collection, reason: &str) -> Result<bool, StoreError> {
        let reason = reason.to_owned();
        self.blocking(collection, move |inner, collection| inner.shelf.set_aside(collection, &reason)).await
    }

    fn damaged(&self) -> Vec<Damage> {
        self.inner.shelf.damaged()
    }
}
