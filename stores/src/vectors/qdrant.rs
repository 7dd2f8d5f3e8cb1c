//! Vectors on a Qdrant server, by gRPC, which any number of processes share.
//!
//! ```text
//! alias  riverrun.<area>.live.<physical name>     what is searched      -> one of the two
//! alias  riverrun.<area>.shadow.<physical name>   what is made anew     -> the other
//! data   riverrun.<area>.data1.<physical name>
//!        riverrun.<area>.data2.<physical name>
//! ```
//!
//! A swap moves the live alias, which the server does at once for every search. The names of the data are no chance: of two processes
//! that make a collection at once one makes it, and the other finds it. What a collection remembers is its metadata on the server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use qdrant_client::qdrant::vector_output::Vector;
use qdrant_client::qdrant::{
    CreateAliasBuilder, CreateCollectionBuilder, DeletePointsBuilder, DenseVector, Distance, Filter, PointId,
    PointStruct, QueryPointsBuilder, RetrievedPoint, ScrollPointsBuilder, SearchParamsBuilder, UpsertPointsBuilder,
    VectorParamsBuilder, VectorsOutput,
};
use qdrant_client::{Qdrant, QdrantError};
use riverrun_schemas::{ChunkId, Collection, DocumentId};
use serde_json::Value;

use crate::agreement::{ChunkKey, KeyPage};
use crate::chunk::{ChunkFilter, MAX_HITS, StoredChunk, TIE_SLACK, Versions, in_order};
use crate::error::StoreError;
use crate::qdrant_server::Server;
use crate::qdrant_server::requests::{allowed, is_missing, of_document, stored_point};
use crate::vectors::{CollectionInfo, VectorHit, VectorPoint, VectorStore, must_match};

mod quantization;

pub use quantization::Quantization;

/// The names that a collection's data has by turns.
const DATA: [&str; 2] = ["data1", "data2"];
const LIVE: &str = "live";
const SHADOW: &str = "shadow";
/// Most chunks that are read back in one request.
const PAGE: u32 = 256;

/// A Qdrant server and how it is used.
#[derive(Clone, PartialEq, Eq)]
pub struct QdrantConfig {
    /// Its gRPC address, such as `http://127.0.0.1:6334`.
    pub url: String,
    /// The key that it wants.
    pub api_key: Option<String>,
    /// What collections that are made from now on hold in memory beside the vectors on disk.
    pub quantization: Quantization,
    /// Keywords lie there too, as sparse vectors ([`crate::keywords::qdrant_index`]).
    pub keywords: bool,
}

impl std::fmt::Debug for QdrantConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.api_key.as_ref().map(|_| "***");
        f.debug_struct("QdrantConfig")
            .field("url", &self.url)
            .field("api_key", &key)
            .field("quantization", &self.quantization)
            .field("keywords", &self.keywords)
            .finish()
    }
}

/// Vectors on a server. Cheap to clone.
#[derive(Clone)]
pub struct QdrantVectors {
    inner: Arc<Inner>,
    is_shadow: bool,
}

struct Inner {
    server: Server,
    config: QdrantConfig,
    area: &'static str,
}

impl QdrantVectors {
    /// The vectors of an area, which keeps its collections apart from those of another. Connects when it is first asked.
    ///
    /// # Errors
    /// When the address is none.
    pub fn open(config: QdrantConfig, area: &'static str) -> Result<Self, StoreError> {
        let server = Server::open(&config.url, config.api_key.clone())?;
        Ok(Self { inner: Arc::new(Inner { server, config, area }), is_shadow: false })
    }

    fn server(&self) -> &Server {
        &self.inner.server
    }

    fn client(&self) -> &Qdrant {
        self.server().client()
    }

    fn failed(&self, error: &QdrantError) -> StoreError {
        self.server().failed(error)
    }

    fn failed_at(&self, collection: &Collection, error: &QdrantError) -> StoreError {
        self.server().failed_at(collection, error)
    }

    fn name(&self, kind: &str, collection: &Collection) -> String {
        format!("{}{}", self.prefix(kind), collection.physical_name())
    }

    fn prefix(&self, kind: &str) -> String {
        format!("riverrun.{}.{kind}.", self.inner.area)
    }

    fn kind(&self) -> &'static str {
        if self.is_shadow { SHADOW } else { LIVE }
    }

    /// Every alias, with what it stands for.
    async fn aliases(&self) -> Result<HashMap<String, String>, StoreError> {
        let found = self.client().list_aliases().await.map_err(|error| self.failed(&error))?;
        Ok(found.aliases.into_iter().map(|alias| (alias.alias_name, alias.collection_name)).collect())
    }

    /// The name that requests for a collection bear; `None` when there is none. A shadow that a swap which was cut off has left is
    /// the collection itself by now, and nobody's shadow.
    async fn place(&self, collection: &Collection) -> Result<Option<String>, StoreError> {
        if !self.is_shadow {
            return Ok(Some(self.name(LIVE, collection)));
        }
        let aliases = self.aliases().await?;
        let own = aliases.get(&self.name(SHADOW, collection));
        Ok(own.filter(|place| aliases.get(&self.name(LIVE, collection)) != Some(*place)).cloned())
    }

    async fn existing(&self, collection: &Collection) -> Result<String, StoreError> {
        self.place(collection).await?.ok_or_else(|| StoreError::NoCollection(collection.clone()))
    }

    /// What the data of that name remembers.
    async fn described(&self, place: &str) -> Result<Option<CollectionInfo>, StoreError> {
        let Some(found) = self.server().info(place).await? else { return Ok(None) };
        let metadata = found.config.map(|config| config.metadata).unwrap_or_default();
        if metadata.is_empty() {
            return Err(self.server().damaged(format!("it keeps nothing with {place}; Qdrant 1.16 and later does")));
        }
        self.server().read(place, metadata).map(Some)
    }

    /// Makes data.
    async fn create(&self, place: &str, info: &CollectionInfo) -> Result<(), StoreError> {
        let vectors = VectorParamsBuilder::new(info.dimensions as u64, Distance::Cosine).on_disk(true);
        let metadata: HashMap<String, Value> = match serde_json::to_value(info) {
            Ok(Value::Object(fields)) => fields.into_iter().collect(),
            Ok(_) | Err(_) => unreachable!("names and numbers are always a JSON object"),
        };
        let mut request =
            CreateCollectionBuilder::new(place).vectors_config(vectors).on_disk_payload(true).metadata(metadata);
        if let Some(kept) = self.inner.config.quantization.kept() {
            request = request.quantization_config(kept);
        }
        self.client().create_collection(request).await.map_err(|error| self.failed(&error))?;
        Ok(())
    }

    /// Makes what is missing; what another process has made meanwhile is taken as it is.
    async fn make(&self, info: CollectionInfo) -> Result<(), StoreError> {
        let collection = &info.collection;
        let aliases = self.aliases().await?;
        let live = aliases.get(&self.name(LIVE, collection));
        let place = DATA.map(|turn| self.name(turn, collection)).into_iter().find(|place| live != Some(place));
        let place = place.unwrap_or_else(|| self.name(DATA[0], collection));
        if self.is_shadow {
            // What a swap left that was cut off before its end.
            self.delete(&place).await?;
        }
        if let Err(error) = self.create(&place, &info).await {
            match self.described(&place).await? {
                Some(stored) => must_match(stored, info.clone())?,
                None => return Err(error),
            }
        }
        self.server().index(&place).await?;
        let alias = CreateAliasBuilder::new(place, self.name(self.kind(), collection));
        self.client().create_alias(alias).await.map_err(|error| self.failed(&error))?;
        Ok(())
    }

    /// Deletes data with the aliases that stand for it; false when there was none. What it remembers is not asked: removing it is the
    /// way out where that is damaged.
    async fn delete(&self, place: &str) -> Result<bool, StoreError> {
        if self.server().info(place).await?.is_none() {
            return Ok(false);
        }
        self.client().delete_collection(place).await.map_err(|error| self.failed(&error))?;
        Ok(true)
    }

    async fn counted(&self, collection: &Collection, filter: Option<Filter>) -> Result<usize, StoreError> {
        match self.place(collection).await? {
            Some(place) => self.server().counted(&place, filter).await,
            None => Ok(0),
        }
    }

    /// The document's points of every version, page by page.
    async fn points_of(
        &self,
        collection: &Collection,
        document: &DocumentId,
        vectors: bool,
    ) -> Result<Vec<RetrievedPoint>, StoreError> {
        let Some(place) = self.place(collection).await? else { return Ok(Vec::new()) };
        let mut points: Vec<RetrievedPoint> = Vec::new();
        let mut from = None;
        loop {
            let mut request = ScrollPointsBuilder::new(place.as_str())
                .filter(of_document(document, &Versions::All))
                .limit(PAGE)
                .with_payload(true)
                .with_vectors(vectors);
            if let Some(offset) = from.take() {
                request = request.offset::<PointId>(offset);
            }
            let page = match self.client().scroll(request).await {
                Ok(page) => page,
                Err(error) if is_missing(&error) => return Ok(Vec::new()),
                Err(error) => return Err(self.failed(&error)),
            };
            points.extend(page.result);
            from = page.next_page_offset;
            if from.is_none() {
                return Ok(points);
            }
        }
    }

    /// Tells a vector of another length from a server that fails.
    async fn why(&self, collection: &Collection, found: usize, error: &QdrantError) -> StoreError {
        match self.info(collection).await {
            Ok(Some(info)) if info.dimensions != found => {
                StoreError::Dimensions { collection: collection.clone(), expected: info.dimensions, found }
            }
            Ok(_) | Err(_) => self.failed_at(collection, error),
        }
    }
}

#[async_trait]
impl VectorStore for QdrantVectors {
    async fn ensure(&self, collection: &Collection, dimensions: usize, model: &str) -> Result<(), StoreError> {
        let wanted = CollectionInfo { collection: collection.clone(), model: model.to_owned(), dimensions };
        match self.info(collection).await? {
            Some(stored) => must_match(stored, wanted),
            None => self.make(wanted).await,
        }
    }

    async fn info(&self, collection: &Collection) -> Result<Option<CollectionInfo>, StoreError> {
        match self.place(collection).await? {
            Some(place) => self.described(&place).await,
            None => Ok(None),
        }
    }

    async fn upsert(&self, collection: &Collection, points: Vec<VectorPoint>) -> Result<(), StoreError> {
        if points.is_empty() {
            return Ok(());
        }
        let place = self.existing(collection).await?;
        let info = self.described(&place).await?.ok_or_else(|| StoreError::NoCollection(collection.clone()))?;
        points.iter().try_for_each(|point| check(&info, point))?;
        let points: Vec<PointStruct> =
            points.into_iter().map(|point| stored_point(&point.chunk, point.vector)).collect();
        let request = UpsertPointsBuilder::new(place, points).wait(true);
        self.client().upsert_points(request).await.map_err(|error| self.failed_at(collection, &error))?;
        Ok(())
    }

    async fn delete_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError> {
        let doomed = self.count_document(collection, document, versions).await?;
        if doomed > 0 {
            let place = self.existing(collection).await?;
            let request = DeletePointsBuilder::new(place).points(of_document(document, versions)).wait(true);
            self.client().delete_points(request).await.map_err(|error| self.failed_at(collection, &error))?;
        }
        Ok(doomed)
    }

    async fn count_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError> {
        self.counted(collection, Some(of_document(document, versions))).await
    }

    async fn search(
        &self,
        collection: &Collection,
        vector: &[f32],
        k: usize,
        filter: &ChunkFilter,
    ) -> Result<Vec<VectorHit>, StoreError> {
        let k = k.min(MAX_HITS);
        let place = self.existing(collection).await?;
        // One is asked for also where none is wanted: that tells whether the collection is there.
        let limit = (k + TIE_SLACK) as u64;
        let mut request = QueryPointsBuilder::new(place).query(vector.to_vec()).limit(limit).with_payload(true);
        if let Some(filter) = allowed(filter) {
            request = request.filter(filter);
        }
        if let Some(exactly) = self.inner.config.quantization.search() {
            request = request.params(SearchParamsBuilder::default().quantization(exactly));
        }
        let found = match self.client().query(request).await {
            Ok(found) => found.result,
            Err(error) => return Err(self.why(collection, vector.len(), &error).await),
        };
        let hits = found
            .into_iter()
            .map(|point| Ok(VectorHit { chunk: self.server().read("a point", point.payload)?, score: point.score }))
            .collect::<Result<Vec<_>, StoreError>>()?;
        Ok(in_order(hits, k, |hit| (hit.score, hit.chunk.chunk_id)))
    }

    async fn count(&self, collection: &Collection) -> Result<usize, StoreError> {
        self.counted(collection, None).await
    }

    async fn documents(&self, collection: &Collection) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        match self.place(collection).await? {
            Some(place) => self.server().documents(&place).await,
            None => Ok(BTreeMap::new()),
        }
    }

    async fn count_documents(
        &self,
        collection: &Collection,
        documents: &[DocumentId],
    ) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        match self.place(collection).await? {
            Some(place) => self.server().count_documents(&place, documents).await,
            None => Ok(BTreeMap::new()),
        }
    }

    async fn keys(
        &self,
        collection: &Collection,
        from: Option<ChunkId>,
        limit: usize,
    ) -> Result<KeyPage<ChunkKey>, StoreError> {
        match self.place(collection).await? {
            Some(place) => self.server().keys(&place, from, limit).await,
            None => Ok(KeyPage::default()),
        }
    }

    /// Nothing is left to do: the server has written to its log what it acknowledged.
    async fn flush(&self, _collection: &Collection) -> Result<(), StoreError> {
        Ok(())
    }

    async fn drop_collection(&self, collection: &Collection) -> Result<bool, StoreError> {
        if self.is_shadow {
            return match self.place(collection).await? {
                Some(place) => self.delete(&place).await,
                None => Ok(false),
            };
        }
        let was_there = self.server().info(&self.name(LIVE, collection)).await?.is_some();
        for turn in DATA {
            self.delete(&self.name(turn, collection)).await?;
        }
        Ok(was_there)
    }

    async fn list(&self) -> Result<Vec<CollectionInfo>, StoreError> {
        let aliases = self.aliases().await?;
        let (own, live) = (self.prefix(self.kind()), self.prefix(LIVE));
        let mut found = Vec::new();
        for (alias, place) in &aliases {
            let Some(name) = alias.strip_prefix(&own) else { continue };
            if self.is_shadow && aliases.get(&format!("{live}{name}")) == Some(place) {
                continue;
            }
            found.extend(self.described(place).await?);
        }
        found.sort_by_key(|info| info.collection.physical_name());
        Ok(found)
    }

    async fn chunks(&self, collection: &Collection, document: &DocumentId) -> Result<Vec<StoredChunk>, StoreError> {
        let points = self.points_of(collection, document, false).await?.into_iter();
        let mut chunks = points
            .map(|point| self.server().read::<StoredChunk>("a point", point.payload))
            .collect::<Result<Vec<StoredChunk>, StoreError>>()?;
        chunks.sort_by(|a, b| (&a.version, a.ordinal).cmp(&(&b.version, b.ordinal)));
        Ok(chunks)
    }

    async fn points(&self, collection: &Collection, document: &DocumentId) -> Result<Vec<VectorPoint>, StoreError> {
        let point = |point: RetrievedPoint| {
            let vector = point.vectors.as_ref().and_then(VectorsOutput::get_vector);
            let Some(Vector::Dense(DenseVector { data })) = vector else {
                return Err(self.server().damaged(format!("a point of {collection} has no vector")));
            };
            Ok(VectorPoint { chunk: self.server().read("a point", point.payload)?, vector: data })
        };
        self.points_of(collection, document, true).await?.into_iter().map(point).collect()
    }

    fn shadows(&self) -> Option<Arc<dyn VectorStore>> {
        (!self.is_shadow).then(|| Arc::new(Self { inner: self.inner.clone(), is_shadow: true }) as Arc<dyn VectorStore>)
    }

    async fn swap(&self, collection: &Collection) -> Result<(), StoreError> {
        if self.is_shadow {
            return Err(StoreError::Unsupported("swap a shadow"));
        }
        let missing = || StoreError::NoCollection(collection.clone());
        let aliases = self.aliases().await?;
        let old = aliases.get(&self.name(LIVE, collection)).ok_or_else(missing)?;
        let shadow = self.name(SHADOW, collection);
        let new = aliases.get(&shadow).filter(|new| *new != old).ok_or_else(missing)?;
        let alias = CreateAliasBuilder::new(new.as_str(), self.name(LIVE, collection));
        self.client().create_alias(alias).await.map_err(|error| self.failed(&error))?;
        self.client().delete_alias(shadow.as_str()).await.map_err(|error| self.failed(&error))?;
        self.delete(old).await?;
        Ok(())
    }

    async fn server_version(&self) -> Result<Option<String>, StoreError> {
        self.server().version().await.map(Some)
    }
}

fn check(info: &CollectionInfo, point: &VectorPoint) -> Result<(), StoreError> {
    if point.vector.len() != info.dimensions {
        return Err(StoreError::Dimensions {
            collection: info.collection.clone(),
            expected: info.dimensions,
            found: point.vector.len(),
        });
    }
    if !point.vector.iter().all(|number| number.is_finite()) {
        return Err(StoreError::NotFinite(point.chunk.chunk_id));
    }
    Ok(())
}
