//! Vectors in this process: one qdrant-edge shard a collection, in a folder of its own.
//!
//! ```text
//! <root>/<namespace>__<collection>/collection.json   model, dimensions, which shard
//!                                  shard/            qdrant-edge's own files
//! <root>/.shadows/…                                  the same, of collections that are being made anew
//! ```
//!
//! A swap moves the shadow's shard beside that of the collection, then writes `collection.json`: before that the collection is
//! the old one, after it the new one. A crash in between loses the shadow, never the collection.
//!
//! qdrant-edge neither replays its write-ahead log nor ever shortens it: points are safe once flushed, and what the log
//! was for is dropped when a shard is opened (see [`shard`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use riverrun_schemas::{ChunkId, Collection, DocumentId};
use serde::{Deserialize, Serialize};

use crate::agreement::{ChunkKey, KeyPage};
use crate::chunk::{ChunkFilter, MAX_HITS, StoredChunk, Versions, in_order};
use crate::error::StoreError;
use crate::folder;
use crate::gaps::{Damage, Gaps};
use crate::shelf::{self, Shelf, nothing_if_missing};
use crate::vectors::edge::graphs::{Next, Queue, Wanted};
use crate::vectors::edge::shard::Shard;
use crate::vectors::{CollectionInfo, VectorHit, VectorPoint, VectorStore, must_match};

mod graphs;
mod shard;

const SIDECAR: &str = "collection.json";
/// The names that a collection's shard has by turns.
const SHARDS: [&str; 2] = ["shard", "shard-2"];
const SHADOWS: &str = ".shadows";

/// What a collection remembers, and where its points are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sidecar {
    #[serde(flatten)]
    info: CollectionInfo,
    #[serde(default = "usual_shard")]
    shard: String,
}

fn usual_shard() -> String {
    SHARDS[0].to_owned()
}

/// Settings of [`EdgeVectors`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeConfig {
    /// Folder of all collections.
    pub root: PathBuf,
    /// Most shards open at once; the least recently used are closed.
    pub max_open: usize,
    /// Numbers in vectors that are compared one by one before an HNSW graph is built for them, in the background.
    pub index_after_numbers: usize,
    /// How long nobody has written to a collection when its graph is built. One of four times the numbers doesn't wait.
    pub index_at_rest: Duration,
}

impl EdgeConfig {
    /// The usual settings under that folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        // 50,000 vectors of 384 numbers: compared within about two milliseconds.
        Self {
            root: root.into(),
            max_open: 16,
            index_after_numbers: 50_000 * 384,
            index_at_rest: Duration::from_secs(10),
        }
    }
}

/// Vectors in this process. Cheap to clone.
#[derive(Clone)]
pub struct EdgeVectors {
    inner: Arc<Inner>,
}

struct Inner {
    config: EdgeConfig,
    shelf: Shelf<Shard>,
    graphs: Arc<Queue>,
    /// For whoever builds graphs, which keeps no shard open that nobody else does.
    this: Weak<Inner>,
    /// None in the shadows themselves.
    shadows: Option<EdgeVectors>,
}

impl EdgeVectors {
    /// Opens the folder, making it if need be. Shards are opened when first used.
    pub fn open(config: EdgeConfig) -> Result<Self, StoreError> {
        Self::open_telling(config, Gaps::default())
    }

    /// The same that tells of damaged collections in `gaps`.
    pub fn open_telling(config: EdgeConfig, gaps: Gaps) -> Result<Self, StoreError> {
        let shelf = Shelf::open("vector", &config.root, config.max_open)?.telling(gaps);
        let shadows = EdgeConfig { root: config.root.join(SHADOWS), ..config.clone() };
        let shadow_shelf = Shelf::later("vector", &shadows.root, shadows.max_open);
        Ok(Self::of(config, shelf, Some(Self::of(shadows, shadow_shelf, None))))
    }

    fn of(config: EdgeConfig, shelf: Shelf<Shard>, shadows: Option<Self>) -> Self {
        let inner = |this: &Weak<Inner>| Inner { config, shelf, graphs: Arc::default(), this: this.clone(), shadows };
        Self { inner: Arc::new_cyclic(inner) }
    }

    async fn blocking<R: Send + 'static>(
        &self,
        collection: &Collection,
        work: impl FnOnce(&Inner, &Collection) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        shelf::blocking(&self.inner, |inner| &inner.shelf, collection, work).await
    }

    /// How many points have a graph already; the others are compared one by one.
    pub async fn indexed_points(&self, collection: &Collection) -> Result<usize, StoreError> {
        self.blocking(collection, |inner, collection| inner.read(collection, Shard::indexed_points)).await
    }
}

/// Builds the graphs that collections want, one at a time, since each takes a core; ends when none is wanted any more or the store is
/// closed.
async fn build_graphs(graphs: Arc<Queue>, store: Weak<Inner>) {
    loop {
        let Some(inner) = store.upgrade() else { return };
        match graphs.next(Instant::now()) {
            Next::End => return,
            Next::Wait(until) => {
                drop(inner);
                graphs.wait(until).await;
            }
            Next::Build(collection) => {
                // What it ends with was told; a panic, too, leaves the searches exact.
                let _ = tokio::task::spawn_blocking(move || inner.build_graph(&collection)).await;
            }
        }
    }
}

impl Inner {
    fn sidecar(&self, collection: &Collection) -> Result<Option<Sidecar>, StoreError> {
        read_sidecar(&self.shelf.folder(collection).join(SIDECAR))
    }

    /// A collection whose description can't be read is none: it is set aside, as one whose points can't be.
    fn info(&self, collection: &Collection) -> Result<Option<CollectionInfo>, StoreError> {
        match self.sidecar(collection) {
            Err(StoreError::Index { reason, .. }) => {
                self.shelf.set_damaged_aside(collection, &reason)?;
                Ok(None)
            }
            other => Ok(other?.map(|sidecar| sidecar.info)),
        }
    }

    fn existing(&self, collection: &Collection, folder: &Path) -> Result<Shard, StoreError> {
        let missing = || StoreError::NoCollection(collection.clone());
        let Sidecar { info, shard } = self.sidecar(collection)?.ok_or_else(missing)?;
        Shard::open(&folder.join(shard), info, self.config.index_after_numbers)
    }

    /// The same for whoever uses it: a process that ended before it built the graph leaves that to the next one.
    fn used(&self, collection: &Collection, folder: &Path) -> Result<Shard, StoreError> {
        let shard = self.existing(collection, folder)?;
        self.note_wanted(collection, shard.wanted_graph()?);
        Ok(shard)
    }

    /// Has the graph built that a collection wants, in its time. Searches go on meanwhile, writes wait.
    fn note_wanted(&self, collection: &Collection, wanted: Wanted) {
        if self.graphs.note(collection, wanted, Instant::now(), self.config.index_at_rest) {
            tokio::spawn(build_graphs(self.graphs.clone(), self.this.clone()));
        }
    }

    fn build_graph(&self, collection: &Collection) {
        // Not as one that is used: a graph that can't be built would be wanted again each time that it is opened for it.
        let build = || self.shelf.read(collection, |folder| self.existing(collection, folder), Shard::optimize);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(build)) {
            // One that was removed meanwhile needs none.
            Ok(Ok(()) | Err(StoreError::NoCollection(_))) => {}
            Ok(Err(error)) => {
                tracing::warn!(%collection, %error, "vector graph not built, searches stay exact and slower");
            }
            Err(_) => tracing::warn!(%collection, "building the vector graph panicked, searches stay exact and slower"),
        }
    }

    fn read<R>(
        &self,
        collection: &Collection,
        work: impl FnOnce(&Shard) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.shelf.read(collection, |folder| self.used(collection, folder), work)
    }

    fn write<R>(
        &self,
        collection: &Collection,
        work: impl FnOnce(&mut Shard) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.shelf.write(collection, |folder| self.used(collection, folder), work)
    }

    fn ensure(&self, collection: &Collection, dimensions: usize, model: &str) -> Result<(), StoreError> {
        let wanted = CollectionInfo { collection: collection.clone(), model: model.to_owned(), dimensions };
        match self.info(collection)? {
            Some(stored) => must_match(stored, wanted),
            // Under the collection's lock, so that of two at once one makes it and the other finds it.
            None => self.shelf.closed(collection, || match self.sidecar(collection)? {
                Some(stored) => must_match(stored.info, wanted),
                None => self.create(wanted),
            }),
        }
    }

    /// The sidecar comes first: a shard without one would be a collection of an unknown model.
    fn create(&self, info: CollectionInfo) -> Result<(), StoreError> {
        let folder = self.shelf.folder(&info.collection);
        fs::create_dir_all(&folder).map_err(StoreError::io("creating", &folder))?;
        write_sidecar(&folder, &Sidecar { info, shard: usual_shard() })?;
        folder::sync(self.shelf.root())
    }

    fn swap(&self, collection: &Collection) -> Result<(), StoreError> {
        let Some(shadows) = &self.shadows else { return Err(StoreError::Unsupported("swap a shadow")) };
        // The shadow first: while it is waited for, searches go on.
        let shadows = &shadows.inner;
        shadows.shelf.closed(collection, || self.shelf.closed(collection, || self.swap_closed(shadows, collection)))
    }

    /// Nobody has the collection or its shadow open.
    fn swap_closed(&self, shadows: &Self, collection: &Collection) -> Result<(), StoreError> {
        let missing = || StoreError::NoCollection(collection.clone());
        let new = shadows.sidecar(collection)?.ok_or_else(missing)?;
        let old = self.sidecar(collection)?.ok_or_else(missing)?;
        let (folder, from) = (self.shelf.folder(collection), shadows.shelf.folder(collection));
        let shard = SHARDS.into_iter().find(|name| *name != old.shard).unwrap_or(SHARDS[0]);
        // What a swap left that was cut off before its end.
        folder::remove(&folder.join(shard))?;
        let (points, place) = (from.join(&new.shard), folder.join(shard));
        fs::rename(&points, &place).map_err(StoreError::io("moving", &points))?;
        folder::sync(&folder)?;
        write_sidecar(&folder, &Sidecar { info: new.info, shard: shard.to_owned() })?;
        folder::remove(&from)?;
        folder::remove(&folder.join(&old.shard))?;
        Ok(())
    }

    fn list(&self) -> Result<Vec<CollectionInfo>, StoreError> {
        let root = self.shelf.root();
        let mut found = Vec::new();
        for entry in fs::read_dir(root).map_err(StoreError::io("reading", root))? {
            let path = entry.map_err(StoreError::io("reading", root))?.path();
            let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if hidden {
                continue;
            }
            match read_sidecar(&path.join(SIDECAR)) {
                Ok(sidecar) => found.extend(sidecar.map(|sidecar| sidecar.info)),
                // It is set aside when it is used; the others are there all the same.
                Err(error) => tracing::warn!(path = %path.display(), %error, "a collection of vectors is left out"),
            }
        }
        found.sort_by_key(|info| info.collection.physical_name());
        Ok(found)
    }
}

fn write_sidecar(folder: &Path, sidecar: &Sidecar) -> Result<(), StoreError> {
    let text = serde_json::to_vec_pretty(sidecar)
        .unwrap_or_else(|error| unreachable!("names and numbers are always JSON: {error}"));
    folder::write_atomically(&folder.join(SIDECAR), &text)
}

fn read_sidecar(path: &Path) -> Result<Option<Sidecar>, StoreError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(StoreError::io("reading", path)(error)),
    };
    let folder = path.parent().unwrap_or(path).to_path_buf();
    serde_json::from_slice(&bytes).map(Some).map_err(|error| StoreError::Index {
        kind: "vector",
        path: folder,
        reason: format!("{SIDECAR} is damaged: {error}"),
    })
}

#[async_trait]
impl VectorStore for EdgeVectors {
    async fn ensure(&self, collection: &Collection, dimensions: usize, model: &str) -> Result<(), StoreError> {
        let model = model.to_owned();
        self.blocking(collection, move |inner, collection| inner.ensure(collection, dimensions, &model)).await
    }

    async fn info(&self, collection: &Collection) -> Result<Option<CollectionInfo>, StoreError> {
        // Each search asks three times. What is described otherwise is closed before.
        if let Some(info) = self.inner.shelf.glance(collection, |shard| shard.info().clone()) {
            return Ok(Some(info));
        }
        self.blocking(collection, Inner::info).await
    }

    async fn upsert(&self, collection: &Collection, points: Vec<VectorPoint>) -> Result<(), StoreError> {
        self.blocking(collection, move |inner, collection| inner.write(collection, |shard| shard.upsert(points))).await
    }

    async fn delete_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError> {
        let (document, versions) = (*document, versions.clone());
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.write(collection, |shard| shard.delete_document(&document, &versions)))
        })
        .await
    }

    async fn count_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError> {
        let (document, versions) = (*document, versions.clone());
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.read(collection, |shard| shard.count_document(&document, &versions)))
        })
        .await
    }

    async fn search(
        &self,
        collection: &Collection,
        vector: &[f32],
        k: usize,
        filter: &ChunkFilter,
    ) -> Result<Vec<VectorHit>, StoreError> {
        let k = k.min(MAX_HITS);
        let (vector, filter) = (vector.to_vec(), filter.clone());
        self.blocking(collection, move |inner, collection| {
            let hits = inner
                .read(collection, |shard| if k == 0 { Ok(Vec::new()) } else { shard.search(vector, k, &filter) })?;
            Ok(in_order(hits, k, |hit| (hit.score, hit.chunk.chunk_id)))
        })
        .await
    }

    async fn count(&self, collection: &Collection) -> Result<usize, StoreError> {
        self.blocking(collection, |inner, collection| nothing_if_missing(inner.read(collection, Shard::count))).await
    }

    async fn documents(&self, collection: &Collection) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        self.blocking(collection, |inner, collection| nothing_if_missing(inner.read(collection, Shard::documents)))
            .await
    }

    async fn count_documents(
        &self,
        collection: &Collection,
        documents: &[DocumentId],
    ) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        let documents = documents.to_vec();
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.read(collection, |shard| shard.count_documents(documents)))
        })
        .await
    }

    async fn keys(
        &self,
        collection: &Collection,
        from: Option<ChunkId>,
        limit: usize,
    ) -> Result<KeyPage<ChunkKey>, StoreError> {
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.read(collection, |shard| shard.keys(from, limit)))
        })
        .await
    }

    async fn flush(&self, collection: &Collection) -> Result<(), StoreError> {
        self.blocking(collection, |inner, collection| {
            let wanted = inner.write(collection, Shard::flush)?;
            inner.note_wanted(collection, wanted);
            Ok(())
        })
        .await
    }

    async fn drop_collection(&self, collection: &Collection) -> Result<bool, StoreError> {
        self.blocking(collection, |inner, collection| inner.shelf.remove(collection)).await
    }

    async fn list(&self) -> Result<Vec<CollectionInfo>, StoreError> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || inner.list()).await.unwrap_or(Err(StoreError::ShuttingDown))
    }

    async fn chunks(&self, collection: &Collection, document: &DocumentId) -> Result<Vec<StoredChunk>, StoreError> {
        let document = *document;
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.read(collection, |shard| shard.chunks(&document)))
        })
        .await
    }

    async fn points(&self, collection: &Collection, document: &DocumentId) -> Result<Vec<VectorPoint>, StoreError> {
        let document = *document;
        self.blocking(collection, move |inner, collection| {
            nothing_if_missing(inner.read(collection, |shard| shard.points(&document)))
        })
        .await
    }

    fn shadows(&self) -> Option<Arc<dyn VectorStore>> {
        self.inner.shadows.clone().map(|shadows| Arc::new(shadows) as Arc<dyn VectorStore>)
    }

    async fn swap(&self, collection: &Collection) -> Result<(), StoreError> {
        self.blocking(collection, Inner::swap).await
    }

    async fn verify(&self, collection: &Collection) -> Result<(), StoreError> {
        let mut from = None;
        loop {
            let page = self.blocking(collection, move |inner, collection| {
                nothing_if_missing(inner.read(collection, |shard| shard.verify(from)))
            });
            from = page.await?;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    async fn set_aside(&self, collection: &Collection, reason: &str) -> Result<bool, StoreError> {
        let reason = reason.to_owned();
        self.blocking(collection, move |inner, collection| inner.shelf.set_aside(collection, &reason)).await
    }

    fn damaged(&self) -> Vec<Damage> {
        self.inner.shelf.damaged()
    }
}
