//! One qdrant-edge shard.
//!
//! Two things of version 0.7.2 shape this file. Its write-ahead log is neither replayed at opening nor ever shortened; it
//! only hands out operation numbers, which must keep growing. So the older files of the log are removed while a shard is
//! closed, and a shard whose log has grown is closed and opened again. And `flush` panics when anybody else is at the
//! shard: whoever holds a `&mut Shard` is alone with it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use qdrant_edge::{
    Condition, CountRequest, CreateIndex, Distance, EdgeConfig, EdgeOptimizersConfig, EdgeShard, EdgeVectorParams,
    FacetRequest, FacetValue, FieldCondition, FieldIndexOperations, Filter, HnswIndexConfig, JsonPath, Match,
    NamedQuery, Payload, PayloadFieldSchema, PayloadSchemaType, PointId, PointInsertOperations, PointOperations,
    PointStruct, QuantizationConfig, QuantizationSearchParams, QueryEnum, Record, ScrollRequest, SearchParams,
    SearchRequest, UpdateOperation, VectorInternal, VectorStructInternal, WalOptions, WithPayloadInterface, WithVector,
};
use riverrun_schemas::{ChunkId, DocumentId};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agreement::{ChunkKey, KeyPage};
use crate::chunk::{ChunkFilter, StoredChunk, TIE_SLACK, Versions, contenders};
use crate::error::StoreError;
use crate::open_set::Closable;
use crate::vectors::edge::graphs::Wanted;
use crate::vectors::{CollectionInfo, VectorHit, VectorPoint};

const VECTOR: &str = "text";
const CHUNK_ID: &str = "chunk_id";
const DOCUMENT_ID: &str = "document_id";
const VERSION: &str = "version";
const TAGS: &str = "tags";
const CONFIG_FILE: &str = "edge_config.json";
const WAL_FOLDER: &str = "wal";
const WAL_CLOSED_PREFIX: &str = "closed-";
const WAL_SEGMENT_BYTES: usize = 4 << 20;
/// Points that are read together when a shard is looked through.
const VERIFIED_POINTS: usize = 1_000;
/// Parts with a graph each that are searched one after the other before the smallest are made one.
const SEGMENTS: usize = 4;
/// Shorter vectors than these are compared as they are: four bits a number would tell too little of them.
const LEAST_QUANTIZED: usize = 64;
/// Of so many times the wanted hits, by their quantized vectors, the best by the whole ones are taken. Among 100,000 vectors of 384 numbers
/// all of the 60 best were among them (96.8 % without).
const OVERSAMPLING: f64 = 2.0;
/// Finished files of the write-ahead log that a shard may have before it is opened again without them.
const MAX_CLOSED_WAL_FILES: usize = 16;

/// An open shard and what its collection remembers.
pub(super) struct Shard {
    path: PathBuf,
    info: CollectionInfo,
    index_after_numbers: usize,
    /// Only `None` while the shard is being opened again, or when that failed.
    edge: Option<EdgeShard>,
    /// Written to since the last flush.
    dirty: bool,
}

impl Shard {
    /// Opens the shard in that folder, or makes it.
    pub(super) fn open(path: &Path, info: CollectionInfo, index_after_numbers: usize) -> Result<Self, StoreError> {
        let mut shard = Self { path: path.to_path_buf(), info, index_after_numbers, edge: None, dirty: false };
        shard.edge = Some(if path.join(CONFIG_FILE).exists() { shard.load()? } else { shard.create()? });
        Ok(shard)
    }

    pub(super) fn info(&self) -> &CollectionInfo {
        &self.info
    }

    fn load(&self) -> Result<EdgeShard, StoreError> {
        for file in closed_wal_files(&self.path)?.iter().rev().skip(1) {
            fs::remove_file(file).map_err(StoreError::io("deleting", file))?;
        }
        let edge = EdgeShard::load(&self.path, Some(self.config())).map_err(|error| self.failed(error))?;
        self.index_fields(&edge)?;
        Ok(edge)
    }

    /// Whatever a crash left of an earlier attempt holds no points: those come after the configuration.
    fn create(&self) -> Result<EdgeShard, StoreError> {
        if self.path.exists() {
            fs::remove_dir_all(&self.path).map_err(StoreError::io("deleting", &self.path))?;
        }
        fs::create_dir_all(&self.path).map_err(StoreError::io("creating", &self.path))?;
        let edge = EdgeShard::new(&self.path, self.config()).map_err(|error| self.failed(error))?;
        self.index_fields(&edge)?;
        Ok(edge)
    }

    /// Makes the fields that are filtered by searchable. A shard lacks some when a crash came right after it was made.
    fn index_fields(&self, edge: &EdgeShard) -> Result<(), StoreError> {
        let indexed = edge.info().payload_schema;
        let lacking = [DOCUMENT_ID, TAGS].map(key).into_iter().filter(|field| !indexed.contains_key(field));
        let lacking: Vec<JsonPath> = lacking.collect();
        for field_name in &lacking {
            let index = CreateIndex {
                field_name: field_name.clone(),
                field_schema: Some(PayloadFieldSchema::FieldType(PayloadSchemaType::Keyword)),
            };
            edge.update(UpdateOperation::FieldIndexOperation(FieldIndexOperations::CreateIndex(index)))
                .map_err(|error| self.failed(error))?;
        }
        if !lacking.is_empty() {
            edge.flush();
        }
        Ok(())
    }

    fn config(&self) -> EdgeConfig {
        let config = EdgeConfig::builder()
            .vector(VECTOR, EdgeVectorParams::builder(self.info.dimensions, Distance::Cosine).on_disk(true).build())
            .hnsw_config(HnswIndexConfig { max_indexing_threads: 1, ..HnswIndexConfig::default() })
            .optimizers(EdgeOptimizersConfig {
                indexing_threshold: Some((self.index_after_numbers.saturating_mul(size_of::<f32>()) / 1024).max(1)),
                default_segment_number: Some(SEGMENTS),
                ..EdgeOptimizersConfig::default()
            })
            .wal_options(WalOptions { segment_capacity: WAL_SEGMENT_BYTES, ..WalOptions::default() });
        match self.quantization() {
            Some(quantization) => config.quantization_config(quantization).build(),
            None => config.build(),
        }
    }

    /// Vectors in four bits a number beside the whole ones, which a search reads first.
    fn quantization(&self) -> Option<QuantizationConfig> {
        // Its type has no public name.
        let four_bits = serde_json::json!({ "turbo": { "bits": "bits4", "always_ram": true } });
        (self.info.dimensions >= LEAST_QUANTIZED).then(|| {
            serde_json::from_value(four_bits)
                .unwrap_or_else(|error| unreachable!("it is what the engine reads: {error}"))
        })
    }

    fn edge(&self) -> Result<&EdgeShard, StoreError> {
        self.edge.as_ref().ok_or_else(|| self.failed("it could not be opened again"))
    }

    fn failed(&self, error: impl std::fmt::Display) -> StoreError {
        StoreError::Index { kind: "vector", path: self.path.clone(), reason: error.to_string() }
    }

    fn update(&mut self, operation: PointOperations) -> Result<(), StoreError> {
        self.dirty = true;
        self.edge()?.update(UpdateOperation::PointOperation(operation)).map_err(|error| self.failed(error))
    }

    pub(super) fn upsert(&mut self, points: Vec<VectorPoint>) -> Result<(), StoreError> {
        if points.is_empty() {
            return Ok(());
        }
        points.iter().try_for_each(|point| self.check(&point.vector, Some(&point.chunk)))?;
        let points = points.into_iter().map(|point| stored_point(point).into()).collect();
        self.update(PointOperations::UpsertPoints(PointInsertOperations::PointsList(points)))
    }

    fn check(&self, vector: &[f32], chunk: Option<&StoredChunk>) -> Result<(), StoreError> {
        if vector.len() != self.info.dimensions {
            return Err(StoreError::Dimensions {
                collection: self.info.collection.clone(),
                expected: self.info.dimensions,
                found: vector.len(),
            });
        }
        match chunk {
            Some(chunk) if !vector.iter().all(|number| number.is_finite()) => {
                Err(StoreError::NotFinite(chunk.chunk_id))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn delete_document(&mut self, document: &DocumentId, versions: &Versions) -> Result<usize, StoreError> {
        let doomed = self.count_document(document, versions)?;
        if doomed > 0 {
            self.update(PointOperations::DeletePointsByFilter(of_document(document, versions)))?;
        }
        Ok(doomed)
    }

    pub(super) fn count_document(&self, document: &DocumentId, versions: &Versions) -> Result<usize, StoreError> {
        self.edge()?
            .count(CountRequest { filter: Some(of_document(document, versions)), exact: true })
            .map_err(|error| self.failed(error))
    }

    /// The best `k` hits, and those whose scores are no less.
    pub(super) fn search(
        &self,
        vector: Vec<f32>,
        k: usize,
        filter: &ChunkFilter,
    ) -> Result<Vec<VectorHit>, StoreError> {
        self.check(&vector, None)?;
        let query = QueryEnum::Nearest(NamedQuery::new(VectorInternal::Dense(vector), VECTOR));
        let request = nearest_of(query, allowed(filter), k + TIE_SLACK);
        let found = self.edge()?.search(request).map_err(|error| self.failed(error))?;
        let found = contenders(found, k, |point| point.score);
        let ids: Vec<PointId> = found.iter().map(|point| point.id).collect();
        let scores: HashMap<PointId, f32> = found.iter().map(|point| (point.id, point.score)).collect();
        let hit = |record: Record| {
            let score = scores.get(&record.id).copied().unwrap_or_default();
            Ok(VectorHit { chunk: self.chunk(record.id, record.payload)?, score })
        };
        self.edge()?
            .retrieve(&ids, Some(WithPayloadInterface::Bool(true)), None)
            .map_err(|error| self.failed(error))?
            .into_iter()
            .map(hit)
            .collect()
    }

    fn chunk(&self, id: impl std::fmt::Display, payload: Option<Payload>) -> Result<StoredChunk, StoreError> {
        self.payload(id, payload)
    }

    fn payload<T: DeserializeOwned>(
        &self,
        id: impl std::fmt::Display,
        payload: Option<Payload>,
    ) -> Result<T, StoreError> {
        let payload = payload.map_or(Value::Null, |payload| Value::Object(payload.0.into_iter().collect()));
        serde_json::from_value(payload)
            .map_err(|error| self.failed(format!("payload of point {id} is damaged: {error}")))
    }

    /// The document's points of every version.
    fn records(&self, document: &DocumentId, vectors: bool) -> Result<Vec<Record>, StoreError> {
        let request = ScrollRequest {
            offset: None,
            limit: Some(self.count_document(document, &Versions::All)?.max(1)),
            filter: Some(of_document(document, &Versions::All)),
            with_payload: Some(WithPayloadInterface::Bool(true)),
            with_vector: WithVector::Bool(vectors),
            order_by: None,
        };
        let (found, _) = self.edge()?.scroll(request).map_err(|error| self.failed(error))?;
        Ok(found)
    }

    /// The document's chunks of every version, by version and place.
    pub(super) fn chunks(&self, document: &DocumentId) -> Result<Vec<StoredChunk>, StoreError> {
        let mut chunks = self
            .records(document, false)?
            .into_iter()
            .map(|record| self.chunk(record.id, record.payload))
            .collect::<Result<Vec<StoredChunk>, StoreError>>()?;
        chunks.sort_by(|a, b| (&a.version, a.ordinal).cmp(&(&b.version, b.ordinal)));
        Ok(chunks)
    }

    /// The same with their vectors, in any order.
    pub(super) fn points(&self, document: &DocumentId) -> Result<Vec<VectorPoint>, StoreError> {
        let point = |mut record: Record| {
            let Some(VectorInternal::Dense(vector)) = VectorStructInternal::take_opt(&mut record.vector, VECTOR) else {
                return Err(self.failed(format!("point {} has no vector", record.id)));
            };
            Ok(VectorPoint { chunk: self.chunk(record.id, record.payload)?, vector })
        };
        self.records(document, true)?.into_iter().map(point).collect()
    }

    /// Reads the points from `from` on, a page of them, with vectors; the place of the next page, if there is one.
    pub(super) fn verify(&self, from: Option<PointId>) -> Result<Option<PointId>, StoreError> {
        let request = ScrollRequest {
            offset: from,
            limit: Some(VERIFIED_POINTS),
            filter: None,
            with_payload: Some(WithPayloadInterface::Bool(true)),
            with_vector: WithVector::Bool(true),
            order_by: None,
        };
        let (found, next) = self.edge()?.scroll(request).map_err(|error| self.failed(error))?;
        for record in found {
            self.chunk(record.id, record.payload)?;
        }
        Ok(next)
    }

    /// Up to `limit` chunks from this id on, by id.
    pub(super) fn keys(&self, from: Option<ChunkId>, limit: usize) -> Result<KeyPage<ChunkKey>, StoreError> {
        let request = ScrollRequest {
            offset: from.map(|from| PointId::Uuid(from.as_uuid())),
            limit: Some(limit.saturating_add(1)),
            filter: None,
            with_payload: Some(WithPayloadInterface::Fields([CHUNK_ID, DOCUMENT_ID, VERSION].map(key).to_vec())),
            with_vector: WithVector::Bool(false),
            order_by: None,
        };
        let (found, _) = self.edge()?.scroll(request).map_err(|error| self.failed(error))?;
        let keys = found
            .into_iter()
            .map(|record| self.payload(record.id, record.payload))
            .collect::<Result<Vec<ChunkKey>, StoreError>>()?;
        Ok(KeyPage::of(keys, limit, |key| key.chunk_id))
    }

    pub(super) fn count(&self) -> Result<usize, StoreError> {
        self.edge()?.count(CountRequest { filter: None, exact: true }).map_err(|error| self.failed(error))
    }

    /// How many chunks each document has.
    pub(super) fn documents(&self) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        let limit = self.count()?.max(1);
        self.counted(FacetRequest { key: key(DOCUMENT_ID), limit, filter: None, exact: true })
    }

    /// The same of these documents.
    pub(super) fn count_documents(
        &self,
        documents: Vec<DocumentId>,
    ) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        let limit = documents.len();
        if limit == 0 {
            return Ok(BTreeMap::new());
        }
        let filter = allowed(&ChunkFilter { documents, ..ChunkFilter::default() });
        self.counted(FacetRequest { key: key(DOCUMENT_ID), limit, filter, exact: true })
    }

    fn counted(&self, request: FacetRequest) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        let found = self.edge()?.facet(request).map_err(|error| self.failed(error))?;
        found
            .hits
            .into_iter()
            .map(|hit| {
                let FacetValue::Keyword(text) = hit.value else {
                    return Err(self.failed("a document id in it is no text"));
                };
                let document = text.parse::<DocumentId>().map_err(|error| self.failed(format!("{text}: {error}")))?;
                Ok((document, hit.count))
            })
            .collect()
    }

    /// Makes what was written durable; what points without a graph call for.
    pub(super) fn flush(&mut self) -> Result<Wanted, StoreError> {
        if self.dirty {
            self.edge()?.flush();
            self.dirty = false;
            if closed_wal_files(&self.path)?.len() > MAX_CLOSED_WAL_FILES {
                self.edge = None;
                self.edge = Some(self.load()?);
            }
        }
        self.wanted_graph()
    }

    /// What points without a graph call for.
    pub(super) fn wanted_graph(&self) -> Result<Wanted, StoreError> {
        let info = self.edge()?.info();
        let without = info.points_count.saturating_sub(info.indexed_vectors_count);
        Ok(Wanted::of(without, self.info.dimensions, self.index_after_numbers))
    }

    /// Builds the graph for what has none, merges segments, and lets go of deleted points.
    pub(super) fn optimize(&self) -> Result<(), StoreError> {
        let edge = self.edge()?;
        let started = std::time::Instant::now();
        if edge.optimize().map_err(|error| self.failed(error))? {
            edge.flush();
            tracing::info!(collection = %self.info.collection, took_ms = started.elapsed().as_millis() as u64, "vector graph built");
        }
        Ok(())
    }

    pub(super) fn indexed_points(&self) -> Result<usize, StoreError> {
        Ok(self.edge()?.info().indexed_vectors_count)
    }
}

impl Drop for Shard {
    /// The engine flushes when it is dropped, and panics when it can't, as on a full disk: what was flushed before is safe,
    /// and that is all that was promised.
    fn drop(&mut self) {
        let edge = self.edge.take();
        if catch_unwind(AssertUnwindSafe(|| drop(edge))).is_err() {
            tracing::warn!(collection = %self.info.collection, path = %self.path.display(), "vector index could not be flushed when it was closed");
        }
    }
}

impl Closable for Shard {
    fn may_close(&self) -> bool {
        !self.dirty
    }
}

/// By the quantized vectors, then by the whole ones. Without payloads: the engine would read those of the best of each of its segments.
fn nearest_of(query: QueryEnum, filter: Option<Filter>, limit: usize) -> SearchRequest {
    let quantization =
        QuantizationSearchParams { ignore: false, rescore: Some(true), oversampling: Some(OVERSAMPLING) };
    SearchRequest {
        query,
        filter,
        params: Some(SearchParams { quantization: Some(quantization), ..SearchParams::default() }),
        limit,
        offset: 0,
        with_payload: Some(WithPayloadInterface::Bool(false)),
        with_vector: None,
        score_threshold: None,
    }
}

fn stored_point(point: VectorPoint) -> PointStruct {
    let payload =
        serde_json::to_value(&point.chunk).unwrap_or_else(|error| unreachable!("a chunk is always JSON: {error}"));
    PointStruct::new(
        PointId::Uuid(point.chunk.chunk_id.as_uuid()),
        HashMap::from([(VECTOR.to_owned(), point.vector)]),
        payload,
    )
}

/// Those that a search may find; `None` is every one.
fn allowed(filter: &ChunkFilter) -> Option<Filter> {
    let any =
        |field: &str, values: Vec<String>| Condition::Field(FieldCondition::new_match(key(field), Match::from(values)));
    let documents: Vec<String> = filter.documents.iter().map(ToString::to_string).collect();
    let mut conditions: Vec<Condition> = filter.tags.iter().map(|tags| any(TAGS, tags.clone())).collect();
    if !documents.is_empty() {
        conditions.push(any(DOCUMENT_ID, documents));
    }
    (!conditions.is_empty()).then(|| Filter { must: Some(conditions), ..Filter::default() })
}

fn of_document(document: &DocumentId, versions: &Versions) -> Filter {
    let mut filter = Filter::new_must(equals(DOCUMENT_ID, &document.to_string()));
    match versions {
        Versions::All => {}
        Versions::Only(version) => filter.must.get_or_insert_default().push(equals(VERSION, version)),
        Versions::Except(version) => filter.must_not = Some(vec![equals(VERSION, version)]),
    }
    filter
}

fn key(name: &str) -> JsonPath {
    JsonPath::try_from(name).unwrap_or_else(|()| unreachable!("{name} is a plain field name"))
}

fn equals(field: &str, value: &str) -> Condition {
    Condition::Field(FieldCondition::new_match(key(field), Match::from(value.to_owned())))
}

/// Finished files of the write-ahead log, oldest first.
fn closed_wal_files(shard: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let folder = shard.join(WAL_FOLDER);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(StoreError::io("reading", &folder))? {
        let path = entry.map_err(StoreError::io("reading", &folder))?.path();
        let start =
            path.file_name().and_then(|name| name.to_str()?.strip_prefix(WAL_CLOSED_PREFIX)?.parse::<u64>().ok());
        files.extend(start.map(|start| (start, path)));
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

#[cfg(test)]
mod tests;
