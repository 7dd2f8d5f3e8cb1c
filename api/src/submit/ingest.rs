//! Ingests: from a request to its command.

use riverrun_knowledge::chunking::{ChunkConfig, ChunkError, ChunkUnit, strategy_names};
use riverrun_knowledge::sources::{Globs, MAX_DEPTH, source_names};
use riverrun_log::{LogError, Producer};
use riverrun_schemas::ingest::{IngestCommand, StartIngest};
use riverrun_schemas::{CollectionName, IngestId, Namespace, now_ms};
use riverrun_stores::read_models::CollectionView;
use riverrun_stores::warehouse::check_table;

use super::checks::{Checks, one_of};
use crate::error::ApiError;
use crate::wire::IngestBody;

/// Longest query of a database, in bytes.
const MAX_QUERY: usize = 64 << 10;

/// What an ingest takes from the settings.
#[derive(Debug, Clone)]
pub struct IngestDefaults {
    /// The embedding model of new collections.
    pub embed_model: String,
    /// The embedding model that runs in this process, from the hub: for `embed_backend: hf`.
    pub hub_embed_model: String,
    /// Most characters, or tokens, of a chunk.
    pub chunk_size: usize,
    /// Characters, or tokens, that neighbours share at most.
    pub chunk_overlap: usize,
    /// What both count.
    pub chunk_unit: ChunkUnit,
}

/// The parts of an ingest request that do not depend on where its content comes from.
#[derive(Debug, Clone)]
pub struct IngestTarget {
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The forced type.
    pub source_type: Option<String>,
    /// What of the source is read.
    pub options: SourceOptions,
    /// The caller's object.
    pub metadata_json: Option<String>,
    /// Warehouse table of a tabular source.
    pub table: Option<String>,
    /// How texts are split.
    pub strategy: Option<String>,
    /// The embedding model.
    pub embed_model: String,
    /// Size and overlap of chunks, checked.
    pub chunking: ChunkConfig,
}

impl IngestTarget {
    /// Size, overlap and unit as commands carry them.
    pub fn chunk_sizes(&self) -> (i64, i64, Option<String>) {
        let unit = match self.chunking.unit() {
            // As records of older builds say it.
            ChunkUnit::Characters => None,
            unit @ ChunkUnit::Tokens => Some(unit.as_str().to_owned()),
        };
        (to_i64(self.chunking.size()), to_i64(self.chunking.overlap()), unit)
    }
}

/// What of a source is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// SQL, or a filter as JSON.
    pub query: Option<String>,
    /// Globs of what to read.
    pub include: Vec<String>,
    /// Globs of what to leave out.
    pub exclude: Vec<String>,
    /// How many links away from the first page of a site is read.
    pub depth: Option<i32>,
    /// Whether the address is a sitemap.
    pub sitemap: bool,
}

/// Checks everything of a request but its source.
pub fn ingest_target(body: &IngestBody, defaults: &IngestDefaults) -> Result<IngestTarget, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    let collection = checks.take("collection", body.collection.parse::<CollectionName>());
    let types = source_names();
    one_of(&mut checks, "type", body.source_type.as_deref(), types.iter().copied());
    if let Some(table) = &body.table {
        checks.take("table", check_table(table));
    }
    let options = source_options(&mut checks, body);
    one_of(&mut checks, "strategy", body.strategy.as_deref(), strategy_names().into_iter());
    one_of(&mut checks, "embed_backend", body.embed_backend.as_deref(), EMBED_BACKENDS.into_iter());
    let metadata_json = checks.metadata(body.metadata.as_ref());
    let chunking = chunk_config(body, defaults)
        .map_err(|error| {
            let (field, reason) = error.in_request();
            checks.refuse(field, reason);
        })
        .ok();
    let (collection, chunking) = checks.finish_with(collection.zip(chunking))?;
    Ok(IngestTarget {
        namespace,
        collection,
        source_type: body.source_type.clone(),
        options,
        metadata_json,
        table: body.table.clone(),
        strategy: body.strategy.clone(),
        embed_model: match body.embed_backend.as_deref() {
            Some(HUB_BACKEND) => defaults.hub_embed_model.clone(),
            Some(_) | None => defaults.embed_model.clone(),
        },
        chunking,
    })
}

/// Embeddings come from a model of the hub that runs in this process, whatever the default is.
const HUB_BACKEND: &str = "hf";
const EMBED_BACKENDS: [&str; 2] = ["default", HUB_BACKEND];

/// What a request says of sizes, and the settings where it says nothing: those of its unit, when that is another one.
fn chunk_config(body: &IngestBody, defaults: &IngestDefaults) -> Result<ChunkConfig, ChunkError> {
    let unit = match &body.chunk_unit {
        Some(name) => ChunkUnit::named(Some(name))?,
        None => defaults.chunk_unit,
    };
    let (size, overlap) =
        if unit == defaults.chunk_unit { (defaults.chunk_size, defaults.chunk_overlap) } else { unit.defaults() };
    let size = body.chunk_size.unwrap_or(to_i64(size));
    // A size of one's own must not be refused for an overlap that nobody asked for.
    let fitting = if body.chunk_size.is_some() { to_i64(overlap).min((size / 8).max(0)) } else { to_i64(overlap) };
    ChunkConfig::in_unit(size, body.chunk_overlap.unwrap_or(fitting), unit)
}

fn source_options(checks: &mut Checks, body: &IngestBody) -> SourceOptions {
    if let Some(query) = &body.query {
        checks.text("query", query, MAX_QUERY);
    }
    for (field, globs) in [("include", &body.include), ("exclude", &body.exclude)] {
        checks.take(field, Globs::new(globs, &[]));
    }
    let depth = body.depth.unwrap_or(0);
    checks.between("depth", Some(depth), 0..=MAX_DEPTH);
    SourceOptions {
        query: body.query.clone(),
        include: body.include.clone(),
        exclude: body.exclude.clone(),
        depth: body.depth.and_then(|depth| i32::try_from(depth).ok()),
        sitemap: body.sitemap,
    }
}

/// Refuses to add to a collection of another embedding model, before anything is written.
pub fn same_embed_model(known: Option<&CollectionView>, embed_model: &str) -> Result<(), ApiError> {
    let Some(collection) = known.filter(|known| known.embedding.model != embed_model) else {
        return Ok(());
    };
    let (name, stored) = (&collection.name, &collection.embedding.model);
    let what = format!(
        "collection {:?} in namespace {:?} holds vectors of {stored:?} ({} dimensions), and the embedding model is {embed_model:?}",
        name.as_str(),
        collection.namespace.as_str(),
        collection.embedding.dimensions
    );
    Err(ApiError::conflict("embedding_model_mismatch", what).hint(format!(
        "set RIVERRUN_DEFAULT_EMBED_MODEL={stored}, ingest into a collection of another name, or embed this one anew: riverrun collections reembed {name} -n {} --model {embed_model}",
        collection.namespace
    )))
}

/// An ingest that can be put on the log. `source` must be an absolute path that the caller may read.
pub fn ingest_command(source: &str, target: IngestTarget, ingest_id: IngestId) -> StartIngest {
    let (chunk_size, chunk_overlap, chunk_unit) = target.chunk_sizes();
    StartIngest {
        ingest_id,
        namespace: target.namespace,
        collection: target.collection,
        source: source.to_owned(),
        source_type: target.source_type,
        embed_model: target.embed_model,
        chunk_size,
        chunk_overlap,
        metadata_json: target.metadata_json,
        query: target.options.query,
        include: target.options.include,
        exclude: target.options.exclude,
        depth: target.options.depth,
        sitemap: target.options.sitemap,
        content: None,
        table: target.table,
        strategy: target.strategy,
        chunk_unit,
        at: now_ms(),
    }
}

/// A size that is far below the limit of the type.
pub(crate) fn to_i64(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Puts an ingest on the log.
pub async fn submit_ingest(producer: &Producer, command: StartIngest, component: &str) -> Result<(), LogError> {
    producer.send(&IngestCommand::StartIngest(command), component, None).await.map(drop)
}
