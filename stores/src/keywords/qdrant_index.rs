//! Words on a Qdrant server, which any number of processes share: a sparse vector a chunk, BM25 as their product ([`weights`]).
//!
//! ```text
//! alias  riverrun.keywords.live.<analyzer>.<physical name>    what is written to and searched
//! data   riverrun.keywords.data.<analyzer>.<physical name>
//! ```
//!
//! The alias comes last: a collection that was made by halves is made to its end by whoever writes next. Another way of cutting
//! text into words has another name, so that words which were cut in two ways never meet; what has a former name goes when the
//! collection is made under the new one, and when it is removed.
//!
//! A write is found when it is acknowledged and durable then; a commit has nothing left to do.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use qdrant_client::QdrantError;
use qdrant_client::qdrant::{
    CreateAliasBuilder, CreateCollectionBuilder, DeletePointsBuilder, Modifier, NamedVectors, PointStruct, Query,
    QueryPointsBuilder, SparseIndexConfigBuilder, SparseVectorParamsBuilder, SparseVectorsConfigBuilder,
    UpsertPointsBuilder, Vector, VectorInput,
};
use riverrun_schemas::{ChunkId, Collection, DocumentId};

use crate::agreement::{ChunkKey, KeyPage};
use crate::chunk::{ChunkFilter, MAX_HITS, StoredChunk, TIE_SLACK, Versions, in_order};
use crate::error::StoreError;
use crate::keywords::words::{ANALYZER, FORMER_ANALYZERS};
use crate::keywords::{KeywordHit, KeywordIndex};
use crate::qdrant_server::Server;
use crate::qdrant_server::requests::{allowed, is_missing, of_document, stored_point};
use crate::vectors::qdrant::QdrantConfig;

mod weights;

/// The name of the sparse vector.
const WORDS: &str = "words";

/// Words on a server. Cheap to clone.
#[derive(Clone)]
pub struct QdrantKeywords {
    server: Arc<Server>,
}

impl QdrantKeywords {
    /// Connects when it is first asked.
    ///
    /// # Errors
    /// When the address is none.
    pub fn open(config: &QdrantConfig) -> Result<Self, StoreError> {
        Ok(Self { server: Arc::new(Server::open(&config.url, config.api_key.clone())?) })
    }

    async fn write(&self, place: &str, points: Vec<PointStruct>) -> Result<(), QdrantError> {
        self.server.client().upsert_points(UpsertPointsBuilder::new(place, points).wait(true)).await?;
        Ok(())
    }

    /// Removes what an earlier version cut into words in another way: it would keep texts of documents that are removed.
    async fn remove_former(&self, collection: &Collection) -> Result<bool, StoreError> {
        let mut removed = false;
        for analyzer in FORMER_ANALYZERS {
            removed |= self.remove(data_of(analyzer, collection)).await?;
        }
        Ok(removed)
    }

    /// False when there was none.
    async fn remove(&self, data: String) -> Result<bool, StoreError> {
        if self.server.info(&data).await?.is_none() {
            return Ok(false);
        }
        self.server.client().delete_collection(data).await.map_err(|error| self.server.failed(&error))?;
        Ok(true)
    }

    /// Makes what is missing; what another process has made meanwhile is taken as it is.
    async fn make(&self, collection: &Collection) -> Result<(), StoreError> {
        self.remove_former(collection).await?;
        let data = data(collection);
        let index = SparseIndexConfigBuilder::default().on_disk(true);
        let mut sparse = SparseVectorsConfigBuilder::default();
        sparse
            .add_named_vector_params(WORDS, SparseVectorParamsBuilder::default().modifier(Modifier::Idf).index(index));
        let request = CreateCollectionBuilder::new(data.as_str()).sparse_vectors_config(sparse).on_disk_payload(true);
        if let Err(error) = self.server.client().create_collection(request).await
            && self.server.info(&data).await?.is_none()
        {
            return Err(self.server.failed(&error));
        }
        self.server.index(&data).await?;
        let alias = CreateAliasBuilder::new(data, live(collection));
        self.server.client().create_alias(alias).await.map_err(|error| self.server.failed(&error))?;
        Ok(())
    }

    async fn must_be_there(&self, collection: &Collection) -> Result<(), StoreError> {
        match self.server.info(&live(collection)).await? {
            Some(_) => Ok(()),
            None => Err(StoreError::NoCollection(collection.clone())),
        }
    }
}

fn live(collection: &Collection) -> String {
    format!("riverrun.keywords.live.{ANALYZER}.{}", collection.physical_name())
}

fn data(collection: &Collection) -> String {
    data_of(ANALYZER, collection)
}

fn data_of(analyzer: &str, collection: &Collection) -> String {
    format!("riverrun.keywords.data.{analyzer}.{}", collection.physical_name())
}

/// A chunk without a word has no vector, and is found by none.
fn point(chunk: &StoredChunk) -> PointStruct {
    let (places, weights): (Vec<u32>, Vec<f32>) = weights::of_chunk(chunk).into_iter().unzip();
    let vectors = NamedVectors::default();
    let vectors =
        if places.is_empty() { vectors } else { vectors.add_vector(WORDS, Vector::new_sparse(places, weights)) };
    stored_point(chunk, vectors)
}

#[async_trait]
impl KeywordIndex for QdrantKeywords {
    async fn upsert(&self, collection: &Collection, chunks: Vec<StoredChunk>) -> Result<(), StoreError> {
        let (place, points) = (live(collection), chunks.iter().map(point).collect::<Vec<_>>());
        if points.is_empty() {
            return match self.server.info(&place).await? {
                Some(_) => Ok(()),
                None => self.make(collection).await,
            };
        }
        match self.write(&place, points.clone()).await {
            Err(error) if is_missing(&error) => {
                self.make(collection).await?;
                self.write(&place, points).await.map_err(|error| self.server.failed(&error))
            }
            other => other.map_err(|error| self.server.failed(&error)),
        }
    }

    async fn delete_document(
        &self,
        collection: &Collection,
        document: &DocumentId,
        versions: &Versions,
    ) -> Result<usize, StoreError> {
        let (place, doomed) = (live(collection), of_document(document, versions));
        let count = self.server.counted(&place, Some(doomed.clone())).await?;
        if count > 0 {
            let request = DeletePointsBuilder::new(place).points(doomed).wait(true);
            self.server.client().delete_points(request).await.map_err(|error| self.server.failed(&error))?;
        }
        Ok(count)
    }

    async fn search(
        &self,
        collection: &Collection,
        query: &str,
        k: usize,
        filter: &ChunkFilter,
    ) -> Result<Vec<KeywordHit>, StoreError> {
        let (k, words) = (k.min(MAX_HITS), weights::of_query(query));
        if k == 0 || words.is_empty() {
            self.must_be_there(collection).await?;
            return Ok(Vec::new());
        }
        let query = Query::new_nearest(VectorInput::from(words.as_slice()));
        let mut request = QueryPointsBuilder::new(live(collection))
            .query(query)
            .using(WORDS)
            .limit((k + TIE_SLACK) as u64)
            .with_payload(true);
        if let Some(filter) = allowed(filter) {
            request = request.filter(filter);
        }
        let found = self.server.client().query(request).await;
        let found = found.map_err(|error| self.server.failed_at(collection, &error))?;
        let hits = found
            .result
            .into_iter()
            .filter(|point| point.score > 0.0)
            .map(|point| Ok(KeywordHit { chunk: self.server.read("a chunk", point.payload)?, score: point.score }))
            .collect::<Result<Vec<_>, StoreError>>()?;
        Ok(in_order(hits, k, |hit| (hit.score, hit.chunk.chunk_id)))
    }

    async fn count(&self, collection: &Collection) -> Result<usize, StoreError> {
        self.server.counted(&live(collection), None).await
    }

    async fn documents(&self, collection: &Collection) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        self.server.documents(&live(collection)).await
    }

    async fn count_documents(
        &self,
        collection: &Collection,
        documents: &[DocumentId],
    ) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        self.server.count_documents(&live(collection), documents).await
    }

    async fn ids(
        &self,
        collection: &Collection,
        from: Option<ChunkId>,
        limit: usize,
    ) -> Result<KeyPage<ChunkId>, StoreError> {
        let KeyPage { items, next } = self.server.keys(&live(collection), from, limit).await?;
        Ok(KeyPage { items: items.into_iter().map(|key| key.chunk_id).collect(), next })
    }

    async fn keys_of(&self, collection: &Collection, chunks: &[ChunkId]) -> Result<Vec<ChunkKey>, StoreError> {
        self.server.keys_of(&live(collection), chunks).await
    }

    async fn commit(&self, _collection: &Collection) -> Result<(), StoreError> {
        Ok(())
    }

    async fn drop_collection(&self, collection: &Collection) -> Result<bool, StoreError> {
        let former = self.remove_former(collection).await?;
        Ok(self.remove(data(collection)).await? || former)
    }

    async fn server_version(&self) -> Result<Option<String>, StoreError> {
        self.server.version().await.map(Some)
    }
}
