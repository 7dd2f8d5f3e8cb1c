//! Requests to tune the searches of collections to judgements, and how collections are searched. The events of a request lie in one
//! partition; those that were written twice change nothing, and the first success counts. One that failed may be handed in again.

use riverrun_schemas::ingest::{
    CollectionTuneFailed, CollectionTuned, CollectionTuning, CollectionWithdrawn, SearchGain,
};
use riverrun_schemas::{BlobRef, Collection, CollectionName, IngestId, Namespace};
use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::ending::Ending;
use crate::read_models::run_views::FailureView;
use crate::read_models::runs::{from_json, id, to_json};
use crate::read_models::time::Timestamp;
use crate::sql::{DbConnection, Sql, storable};

/// Where a request to tune a collection is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TuningView {
    /// The request.
    #[schema(value_type = String)]
    pub tuning_id: IngestId,
    /// `running`, `done` or `failed`.
    pub status: String,
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its collection.
    #[schema(value_type = String)]
    pub collection: CollectionName,
    /// Judged questions that have a relevant document in the collection.
    pub queries: i64,
    /// The model whose vectors of questions are moved; null until it is done, and where searches are to be as they were.
    pub embed_model: Option<String>,
    /// Whether searches are tuned: false when that does not help, or was not asked for.
    pub tuned: bool,
    /// What it does to each way of searching.
    pub gains: Vec<SearchGainView>,
    /// Why searches are as they were.
    pub error: Option<FailureView>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When searches were tuned, or the request failed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

/// What tuning does to one way of searching, by cross-validation: each question is searched with what was learned from others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchGainView {
    /// `dense`, `hybrid` or `scores`.
    pub search: String,
    /// Mean nDCG@10 without tuning, 0 to 1.
    pub ndcg_at_10_before: f64,
    /// Mean nDCG@10 with it.
    pub ndcg_at_10_after: f64,
    /// Mean recall@100 without tuning, 0 to 1.
    pub recall_at_100_before: f64,
    /// Mean recall@100 with it.
    pub recall_at_100_after: f64,
}

impl From<SearchGain> for SearchGainView {
    fn from(gain: SearchGain) -> Self {
        Self {
            search: gain.search,
            ndcg_at_10_before: gain.ndcg_before,
            ndcg_at_10_after: gain.ndcg_after,
            recall_at_100_before: gain.recall_before,
            recall_at_100_after: gain.recall_after,
        }
    }
}

impl TuningView {
    /// Whether it is over, one way or the other.
    pub fn ended(&self) -> bool {
        self.finished_at.is_some()
    }
}

/// What vectors of questions to a collection pass through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterOf {
    /// The model that they must be of.
    pub embed_model: String,
    /// The matrix.
    pub matrix: BlobRef,
}

pub(crate) async fn begun(connection: &mut DbConnection, event: &CollectionTuning) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO tunings (tuning_id, namespace, collection, queries, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (tuning_id) DO UPDATE SET queries = excluded.queries, error = NULL, created_at = excluded.created_at, finished_at = NULL
         WHERE tunings.error IS NOT NULL",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.collection.as_str())
    .bind(event.queries)
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) async fn done(connection: &mut DbConnection, event: &CollectionTuned) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO tunings (tuning_id, namespace, collection, queries, embed_model, adapter, adapter_size, gains, created_at, finished_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
         ON CONFLICT (tuning_id) DO UPDATE SET queries = excluded.queries, embed_model = excluded.embed_model, adapter = excluded.adapter,
             adapter_size = excluded.adapter_size, gains = excluded.gains, error = NULL, finished_at = excluded.finished_at
         WHERE tunings.finished_at IS NULL OR tunings.error IS NOT NULL",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.collection.as_str())
    .bind(event.queries)
    .bind(event.adapter.as_ref().map(|_| storable(&event.embed_model)))
    .bind(event.adapter.as_ref().map(|blob| storable(&blob.sha256)))
    .bind(event.adapter.as_ref().map(|blob| blob.size_bytes))
    .bind(to_json(&event.gains))
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) async fn failed(connection: &mut DbConnection, event: &CollectionTuneFailed) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO tunings (tuning_id, namespace, collection, queries, error, created_at, finished_at) VALUES ($1, $2, $3, 0, $4, $5, $5)
         ON CONFLICT (tuning_id) DO UPDATE SET error = excluded.error, finished_at = excluded.finished_at
         WHERE tunings.finished_at IS NULL",
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

/// A collection that comes to be again under the name is another one: what was begun before this is none of it.
pub(crate) async fn withdrawn(connection: &mut DbConnection, event: &CollectionWithdrawn) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO tunings (tuning_id, namespace, collection, created_at, finished_at) VALUES ($1, $2, $3, $4, $4)
         ON CONFLICT (tuning_id) DO NOTHING",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.namespace.as_str())
    .bind(event.collection.as_str())
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

/// Where a request is; `None` when nothing was heard of it.
pub async fn tuning(sql: &Sql, tuning_id: IngestId) -> Result<Option<TuningView>, StoreError> {
    let row = sqlx::query("SELECT * FROM tunings WHERE tuning_id = $1 AND queries IS NOT NULL")
        .bind(tuning_id.to_string())
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let Some(row) = row else { return Ok(None) };
    let key = tuning_id.to_string();
    let ending = Ending::of(&row, "tunings", &key)?;
    let gains: Option<String> = row.try_get("gains")?;
    let gains = gains.as_deref().map(|text| from_json::<Vec<SearchGain>>("tunings", &key, text)).transpose()?;
    let adapter: Option<String> = row.try_get("adapter")?;
    Ok(Some(TuningView {
        tuning_id,
        status: ending.status().to_owned(),
        namespace: id("tunings", row.try_get("namespace")?)?,
        collection: id("tunings", row.try_get("collection")?)?,
        queries: row.try_get("queries")?,
        embed_model: row.try_get("embed_model")?,
        tuned: adapter.is_some(),
        gains: gains.unwrap_or_default().into_iter().map(Into::into).collect(),
        error: ending.error,
        created_at: Timestamp(row.try_get("created_at")?),
        finished_at: ending.finished_at,
    }))
}

/// What the vectors of questions to a collection pass through; `None` where it is not tuned. Of the requests that ended well the one
/// that was begun last counts: searches that were to be as without stay so when an earlier tuning ends. What was begun before the
/// collection was removed does not count.
pub async fn adapter(sql: &Sql, collection: &Collection) -> Result<Option<AdapterOf>, StoreError> {
    let row = sqlx::query(
        "SELECT t.embed_model, t.adapter, t.adapter_size FROM tunings t
         WHERE t.namespace = $1 AND t.collection = $2 AND t.finished_at IS NOT NULL AND t.error IS NULL AND t.queries IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM tunings gone WHERE gone.namespace = t.namespace AND gone.collection = t.collection
                 AND gone.queries IS NULL AND gone.finished_at >= t.created_at)
         ORDER BY t.created_at DESC, t.finished_at DESC, t.tuning_id DESC LIMIT 1",
    )
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .fetch_optional(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let Some(row) = row else { return Ok(None) };
    let (embed_model, sha256): (Option<String>, Option<String>) =
        (row.try_get("embed_model")?, row.try_get("adapter")?);
    let size_bytes: Option<i64> = row.try_get("adapter_size")?;
    Ok(embed_model.zip(sha256).map(|(embed_model, sha256)| {
        let media_type = "application/octet-stream".to_owned();
        AdapterOf { embed_model, matrix: BlobRef { sha256, size_bytes: size_bytes.unwrap_or_default(), media_type } }
    }))
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::ingest::IngestEvent;

    use super::*;
    use crate::read_models::testing::{begun, failed, fresh, notes, records, request_to_tune, tuned};
    use crate::read_models::{Projected, apply};

    fn gone(at: i64) -> IngestEvent {
        let Collection { namespace, name } = notes();
        CollectionWithdrawn { ingest_id: request_to_tune(100), namespace, collection: name, documents: 1, at }.into()
    }

    #[tokio::test]
    async fn given_tunings_and_removals_when_it_is_asked_how_a_collection_is_searched_then_the_last_that_was_begun_since_counts()
     {
        let cases: [(&str, Vec<IngestEvent>, Option<&str>, &str); 13] = [
            ("one", vec![begun(1, 10), tuned(1, 1, 20)], Some("1"), "done"),
            ("off", vec![begun(1, 10), tuned(1, 1, 20), tuned(2, 0, 30)], None, "done"),
            ("of no use", vec![begun(1, 10), tuned(1, 1, 20), begun(2, 12), tuned(2, 0, 30)], None, "done"),
            ("off meanwhile", vec![begun(1, 10), tuned(2, 0, 15), tuned(1, 1, 20)], None, "done"),
            ("slower", vec![begun(1, 10), begun(2, 12), tuned(2, 2, 15), tuned(1, 1, 20)], Some("2"), "done"),
            ("told twice", vec![begun(1, 10), tuned(1, 1, 20), begun(1, 25), tuned(1, 9, 30)], Some("1"), "done"),
            ("failed", vec![begun(1, 10), failed(1, 20)], None, "failed"),
            ("failed after all", vec![begun(1, 10), tuned(1, 1, 20), failed(1, 30)], Some("1"), "done"),
            ("handed in again", vec![begun(1, 10), failed(1, 20), begun(1, 30)], None, "running"),
            ("done then", vec![begun(1, 10), failed(1, 20), begun(1, 30), tuned(1, 1, 40)], Some("1"), "done"),
            ("removed", vec![begun(1, 10), tuned(1, 1, 20), gone(25)], None, "done"),
            ("removed meanwhile", vec![begun(1, 10), gone(15), tuned(1, 1, 20)], None, "done"),
            (
                "come to be again",
                vec![begun(2, 5), gone(7), begun(1, 10), tuned(1, 1, 20), tuned(2, 2, 30)],
                Some("1"),
                "done",
            ),
        ];
        for (what, events, matrix, status) in cases {
            let (_folder, sql) = fresh().await;
            apply(&sql, &records(events, Projected::Ingest)).await.unwrap();
            let found = adapter(&sql, &notes()).await.unwrap();
            assert_eq!(found.map(|adapter| adapter.matrix.sha256).as_deref(), matrix, "{what}");
            assert_eq!(tuning(&sql, request_to_tune(1)).await.unwrap().unwrap().status, status, "{what}");
        }
    }
}
