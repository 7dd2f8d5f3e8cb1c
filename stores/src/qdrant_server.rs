//! What vectors and keywords on a Qdrant server have in common: the connection, chunks as they are kept, and what errors mean.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use qdrant_client::qdrant::facet_value::Variant;
use qdrant_client::qdrant::{
    CollectionInfo as ServerInfo, Condition, CountPointsBuilder, CreateFieldIndexCollectionBuilder, FacetCountsBuilder,
    FacetHit, FieldType, Filter, PayloadIncludeSelector, PointId, ScrollPointsBuilder, Value as PayloadValue,
};
use qdrant_client::{Payload, Qdrant, QdrantError};
use riverrun_schemas::{ChunkId, Collection, DocumentId};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agreement::{ChunkKey, KeyPage};
use crate::chunk::ChunkFilter;
use crate::error::StoreError;

pub(crate) mod requests;

use requests::{DOCUMENT_ID, FIELDS, KEY_FIELDS, SERVICE, allowed, failed, is_missing};

/// Longest time for a request; building an index over what a filter looks at is one.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// A server that is asked.
pub(crate) struct Server {
    client: Qdrant,
    url: String,
}

impl Server {
    /// Connects when it is first asked; fails when the address is none.
    pub(crate) fn open(url: &str, api_key: Option<String>) -> Result<Self, StoreError> {
        let client = Qdrant::from_url(url)
            .api_key(api_key)
            .timeout(PATIENCE)
            .connect_timeout(CONNECT_PATIENCE)
            .skip_compatibility_check()
            .build()
            .map_err(|error| failed(url, &error))?;
        Ok(Self { client, url: url.to_owned() })
    }

    pub(crate) fn client(&self) -> &Qdrant {
        &self.client
    }

    pub(crate) fn failed(&self, error: &QdrantError) -> StoreError {
        failed(&self.url, error)
    }

    /// The same for a collection that may not be there.
    pub(crate) fn failed_at(&self, collection: &Collection, error: &QdrantError) -> StoreError {
        if is_missing(error) { StoreError::NoCollection(collection.clone()) } else { self.failed(error) }
    }

    pub(crate) fn damaged(&self, reason: String) -> StoreError {
        StoreError::Server {
            service: SERVICE,
            address: self.url.clone(),
            reason,
            fix: "remove the collection and ingest its sources again: riverrun collections rm <name>".to_owned(),
        }
    }

    /// What the server knows of the data of that name; `None` where there is none.
    pub(crate) async fn info(&self, place: &str) -> Result<Option<ServerInfo>, StoreError> {
        match self.client.collection_info(place).await {
            Ok(found) => Ok(found.result),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        what: &str,
        payload: HashMap<String, PayloadValue>,
    ) -> Result<T, StoreError> {
        serde_json::from_value(Value::from(Payload::from(payload)))
            .map_err(|error| self.damaged(format!("what it keeps for {what} is damaged: {error}")))
    }

    /// Makes fast what filters look at; what is so already stays.
    pub(crate) async fn index(&self, place: &str) -> Result<(), StoreError> {
        for field in FIELDS {
            let index = CreateFieldIndexCollectionBuilder::new(place, field, FieldType::Keyword).wait(true);
            self.client.create_field_index(index).await.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// How many points there are; 0 where there is no data of that name.
    pub(crate) async fn counted(&self, place: &str, filter: Option<Filter>) -> Result<usize, StoreError> {
        let mut request = CountPointsBuilder::new(place).exact(true);
        if let Some(filter) = filter {
            request = request.filter(filter);
        }
        match self.client.count(request).await {
            Ok(found) => Ok(found.result.map_or(0, |result| usize::try_from(result.count).unwrap_or(usize::MAX))),
            Err(error) if is_missing(&error) => Ok(0),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// How many points each document has.
    pub(crate) async fn documents(&self, place: &str) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        let points = self.counted(place, None).await?;
        if points == 0 {
            return Ok(BTreeMap::new());
        }
        self.facets(FacetCountsBuilder::new(place, DOCUMENT_ID).limit(points as u64).exact(true)).await
    }

    /// The same of these documents.
    pub(crate) async fn count_documents(
        &self,
        place: &str,
        documents: &[DocumentId],
    ) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        let filter = allowed(&ChunkFilter { documents: documents.to_vec(), ..ChunkFilter::default() });
        match filter {
            Some(filter) => {
                let request = FacetCountsBuilder::new(place, DOCUMENT_ID).limit(documents.len() as u64);
                self.facets(request.exact(true).filter(filter)).await
            }
            None => Ok(BTreeMap::new()),
        }
    }

    async fn facets(&self, request: FacetCountsBuilder) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        match self.client.facet(request).await {
            Ok(found) => found.hits.into_iter().map(|hit| self.document(hit)).collect(),
            Err(error) if is_missing(&error) => Ok(BTreeMap::new()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Up to `limit` chunks from this id on, by id; none where there is no data of that name.
    pub(crate) async fn keys(
        &self,
        place: &str,
        from: Option<ChunkId>,
        limit: usize,
    ) -> Result<KeyPage<ChunkKey>, StoreError> {
        let mut request = ScrollPointsBuilder::new(place).limit(points_of(limit));
        if let Some(from) = from {
            request = request.offset(PointId::from(from.as_uuid().to_string()));
        }
        Ok(KeyPage::of(self.scrolled(request).await?, limit, |key| key.chunk_id))
    }

    /// What these chunks are parts of; what is not there is left out.
    pub(crate) async fn keys_of(&self, place: &str, chunks: &[ChunkId]) -> Result<Vec<ChunkKey>, StoreError> {
        let ids = chunks.iter().map(|chunk| chunk.as_uuid().to_string());
        let only = Filter::must([Condition::has_id(ids)]);
        self.scrolled(ScrollPointsBuilder::new(place).limit(points_of(chunks.len())).filter(only)).await
    }

    async fn scrolled(&self, request: ScrollPointsBuilder) -> Result<Vec<ChunkKey>, StoreError> {
        let fields = PayloadIncludeSelector::from(KEY_FIELDS.map(str::to_owned).to_vec());
        match self.client.scroll(request.with_payload(fields).with_vectors(false)).await {
            Ok(page) => page.result.into_iter().map(|point| self.read("a chunk", point.payload)).collect(),
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn document(&self, hit: FacetHit) -> Result<(DocumentId, usize), StoreError> {
        let Some(Variant::StringValue(text)) = hit.value.and_then(|value| value.variant) else {
            return Err(self.damaged("a document id in it is no text".to_owned()));
        };
        let document = text.parse::<DocumentId>().map_err(|error| self.damaged(format!("{text}: {error}")))?;
        Ok((document, usize::try_from(hit.count).unwrap_or(usize::MAX)))
    }

    pub(crate) async fn version(&self) -> Result<String, StoreError> {
        Ok(self.client.health_check().await.map_err(|error| self.failed(&error))?.version)
    }
}

/// Points to ask for: one more than are wanted tells whether there are others.
fn points_of(limit: usize) -> u32 {
    u32::try_from(limit.saturating_add(1)).unwrap_or(u32::MAX)
}
