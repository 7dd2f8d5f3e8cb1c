//! Requests to embed collections with another model. The events of a request lie in one partition; those that were written twice
//! change nothing, and the first success counts: one that failed may be handed in again, and is in work again then.

use riverrun_schemas::ingest::{CollectionReembedFailed, CollectionReembedded, CollectionReembedding};
use riverrun_schemas::{Collection, CollectionName, IngestId, Namespace};
use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::documents::{count_in_collection, note_embedding};
use crate::read_models::ending::Ending;
use crate::read_models::run_views::FailureView;
use crate::read_models::runs::{id, to_json};
use crate::read_models::time::Timestamp;
use crate::sql::{DbConnection, Sql, storable};

/// Where a request to embed a collection anew is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReembeddingView {
    /// The request.
    #[schema(value_type = String)]
    pub reembedding_id: IngestId,
    /// `running`, `done` or `failed`.
    pub status: String,
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its collection.
    #[schema(value_type = String)]
    pub collection: CollectionName,
    /// The model that it had; null when there was nothing to do.
    pub from_model: Option<String>,
    /// The model that it has, or is to have.
    pub embed_model: String,
    /// Length of the new vectors, once they are searched.
    pub dimensions: Option<i64>,
    /// Documents in the collection.
    pub documents: i64,
    /// Their chunks.
    pub chunks: i64,
    /// Why the collection is as it was.
    pub error: Option<FailureView>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When the collection was searched with the new model, or the request failed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

impl ReembeddingView {
    /// Whether it is over, one way or the other.
    pub fn ended(&self) -> bool {
        self.finished_at.is_some()
    }
}

pub(crate) async fn begun(connection: &mut DbConnection, event: &CollectionReembedding) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO reembeddings (reembedding_id, namespace, collection, from_model, embed_model, documents, chunks, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (reembedding_id) DO UPDATE SET from_model = excluded.from_model, documents = excluded.documents, chunks = excluded.chunks,
             error = NULL, created_at = excluded.created_at, finished_at = NULL
         WHERE reembeddings.error IS NOT NULL",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.collection.as_str())
    .bind(storable(&event.from_model))
    .bind(storable(&event.embed_model))
    .bind(event.documents)
    .bind(event.chunks)
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) async fn done(connection: &mut DbConnection, event: &CollectionReembedded) -> Result<(), StoreError> {
    let first = sqlx::query(
        "INSERT INTO reembeddings (reembedding_id, namespace, collection, embed_model, dimensions, documents, chunks, created_at, finished_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
         ON CONFLICT (reembedding_id) DO UPDATE SET dimensions = excluded.dimensions, documents = excluded.documents, chunks = excluded.chunks, error = NULL, finished_at = excluded.finished_at
         WHERE reembeddings.finished_at IS NULL OR reembeddings.error IS NOT NULL",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.collection.as_str())
    .bind(storable(&event.embed_model))
    .bind(i64::from(event.dimensions))
    .bind(event.documents)
    .bind(event.chunks)
    .bind(event.at)
    .execute(&mut *connection)
    .await?;
    if first.rows_affected() == 0 {
        return Ok(());
    }
    let collection = Collection::new(event.namespace.clone(), event.collection.clone());
    // The row has to be there: documents of other partitions, indexed before this, may be read after it.
    count_in_collection(connection, &collection, 0, 0).await?;
    note_embedding(connection, &collection, (event.embed_model.as_str(), event.dimensions), event.at).await
}

pub(crate) async fn failed(connection: &mut DbConnection, event: &CollectionReembedFailed) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO reembeddings (reembedding_id, namespace, collection, embed_model, documents, chunks, error, created_at, finished_at)
         VALUES ($1, $2, $3, $4, 0, 0, $5, $6, $6)
         ON CONFLICT (reembedding_id) DO UPDATE SET error = excluded.error, finished_at = excluded.finished_at
         WHERE reembeddings.finished_at IS NULL",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.collection.as_str())
    .bind(storable(&event.embed_model))
    .bind(to_json(&event.error))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

/// Where a request is; `None` when nothing was heard of it.
pub async fn reembedding(sql: &Sql, reembedding_id: IngestId) -> Result<Option<ReembeddingView>, StoreError> {
    let row = sqlx::query("SELECT * FROM reembeddings WHERE reembedding_id = $1")
        .bind(reembedding_id.to_string())
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let Some(row) = row else { return Ok(None) };
    let ending = Ending::of(&row, "reembeddings", &reembedding_id.to_string())?;
    Ok(Some(ReembeddingView {
        reembedding_id,
        status: ending.status().to_owned(),
        namespace: id("reembeddings", row.try_get("namespace")?)?,
        collection: id("reembeddings", row.try_get("collection")?)?,
        from_model: row.try_get("from_model")?,
        embed_model: row.try_get("embed_model")?,
        dimensions: row.try_get("dimensions")?,
        documents: row.try_get("documents")?,
        chunks: row.try_get("chunks")?,
        error: ending.error,
        created_at: Timestamp(row.try_get("created_at")?),
        finished_at: ending.finished_at,
    }))
}
