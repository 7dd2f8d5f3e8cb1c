//! Requests to make keywords and vectors of collections again. The events of a request lie in one partition; those that were written
//! twice change nothing, and the first success counts: one that failed may be handed in again, and is in work again then.

use riverrun_schemas::ingest::{CollectionRebuildFailed, CollectionRebuilding, CollectionRebuilt};
use riverrun_schemas::{CollectionName, DocumentId, IngestId, Namespace};
use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::ending::Ending;
use crate::read_models::run_views::FailureView;
use crate::read_models::runs::{from_json, id, to_json};
use crate::read_models::time::Timestamp;
use crate::sql::{DbConnection, DbRow, Sql, storable};

/// Most rebuilds that are looked at when it is asked which go on.
const MAX_RUNNING: i64 = 1_000;

/// What a rebuild came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebuildResult {
    /// The collection's embedding model; empty when it holds nothing.
    pub embed_model: String,
    /// Documents that the collection holds.
    pub documents: i64,
    /// Chunks that it holds.
    pub chunks: i64,
    /// Chunks whose vectors were written again.
    pub vectors: i64,
    /// Chunks whose keywords were written again.
    pub keywords: i64,
    /// Those of them that were embedded anew, because the log has no vector of the collection's model.
    pub embedded: i64,
    /// Documents that nothing on the log stands for any more and that were removed.
    pub removed: i64,
    /// Documents whose chunks are not on the log any more and could not be made again: remove them and ingest their sources again.
    pub missing: i64,
    /// Ids of the first hundred of them.
    #[schema(value_type = Vec<String>)]
    pub missing_documents: Vec<DocumentId>,
}

/// Where a request to make a collection again is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RebuildView {
    /// The request.
    #[schema(value_type = String)]
    pub rebuild_id: IngestId,
    /// `running`, `done` (the collection is what the log says), `incomplete` (some documents are not on the log any more) or `failed`.
    pub status: String,
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its collection.
    #[schema(value_type = String)]
    pub collection: CollectionName,
    /// What was found, or that somebody asked for it.
    pub reason: Option<String>,
    /// What it came to; null before its end.
    pub result: Option<RebuildResult>,
    /// Why it failed.
    pub error: Option<FailureView>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

impl RebuildView {
    /// Whether it is over, one way or the other.
    pub fn ended(&self) -> bool {
        self.finished_at.is_some()
    }
}

pub(crate) async fn begun(connection: &mut DbConnection, event: &CollectionRebuilding) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO rebuilds (rebuild_id, namespace, collection, reason, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (rebuild_id) DO UPDATE SET reason = excluded.reason, error = NULL, created_at = excluded.created_at, finished_at = NULL
         WHERE rebuilds.error IS NOT NULL",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.collection.as_str())
    .bind(storable(&event.reason))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) async fn done(connection: &mut DbConnection, event: &CollectionRebuilt) -> Result<(), StoreError> {
    let result = RebuildResult {
        embed_model: event.embed_model.clone(),
        documents: event.documents,
        chunks: event.chunks,
        vectors: event.vectors,
        keywords: event.keywords,
        embedded: event.embedded,
        removed: event.removed,
        missing: event.missing,
        missing_documents: event.missing_documents.clone(),
    };
    sqlx::query(
        "INSERT INTO rebuilds (rebuild_id, namespace, collection, result, created_at, finished_at) VALUES ($1, $2, $3, $4, $5, $5)
         ON CONFLICT (rebuild_id) DO UPDATE SET result = excluded.result, error = NULL, finished_at = excluded.finished_at
         WHERE rebuilds.finished_at IS NULL OR rebuilds.error IS NOT NULL",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.collection.as_str())
    .bind(to_json(&result))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) async fn failed(connection: &mut DbConnection, event: &CollectionRebuildFailed) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO rebuilds (rebuild_id, namespace, collection, error, created_at, finished_at) VALUES ($1, $2, $3, $4, $5, $5)
         ON CONFLICT (rebuild_id) DO UPDATE SET error = excluded.error, finished_at = excluded.finished_at
         WHERE rebuilds.finished_at IS NULL",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.collection.as_str())
    .bind(to_json(&event.error))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

/// Where a request is; `None` when nothing was heard of it.
pub async fn rebuild(sql: &Sql, rebuild_id: IngestId) -> Result<Option<RebuildView>, StoreError> {
    let row = sqlx::query("SELECT * FROM rebuilds WHERE rebuild_id = $1")
        .bind(rebuild_id.to_string())
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.as_ref().map(view).transpose()
}

/// Those that go on, the oldest first.
pub async fn running(sql: &Sql) -> Result<Vec<RebuildView>, StoreError> {
    let rows = sqlx::query("SELECT * FROM rebuilds WHERE finished_at IS NULL ORDER BY created_at, rebuild_id LIMIT $1")
        .bind(MAX_RUNNING)
        .fetch_all(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter().map(view).collect()
}

fn view(row: &DbRow) -> Result<RebuildView, StoreError> {
    let key: String = row.try_get("rebuild_id")?;
    let result: Option<String> = row.try_get("result")?;
    let result = result.as_deref().map(|text| from_json::<RebuildResult>("rebuilds", &key, text)).transpose()?;
    let ending = Ending::of(row, "rebuilds", &key)?;
    let status = match (&ending.error, &result) {
        (None, Some(result)) if result.missing > 0 => "incomplete",
        _ => ending.status(),
    };
    Ok(RebuildView {
        rebuild_id: id("rebuilds", &key)?,
        status: status.to_owned(),
        namespace: id("rebuilds", row.try_get("namespace")?)?,
        collection: id("rebuilds", row.try_get("collection")?)?,
        reason: row.try_get("reason")?,
        result,
        error: ending.error,
        created_at: Timestamp(row.try_get("created_at")?),
        finished_at: ending.finished_at,
    })
}
