//! A text that is another whenever something in a collection has changed.

use riverrun_schemas::Collection;
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::tunings;
use crate::sql::Sql;

/// What the collection's documents came to: their number, the times of their last changes, and when and with which model it was
/// indexed, and how it is tuned. `None` when it holds nothing. As fresh as the read models.
pub async fn collection_state(sql: &Sql, collection: &Collection) -> Result<Option<String>, StoreError> {
    // Not only the latest time: clocks of processes differ, and a change may bear an earlier one. The sum stays far from its limit.
    let row = sqlx::query(
        "SELECT COUNT(*) AS documents, CAST(COALESCE(SUM(d.updated_at % 1000003), 0) AS BIGINT) AS changes, \
         CAST(COALESCE(MAX(d.updated_at), 0) AS BIGINT) AS latest, MAX(c.embed_model) AS model, MAX(c.updated_at) AS indexed_at \
         FROM collections c JOIN documents d ON d.namespace = c.namespace AND d.collection = c.name \
         WHERE c.documents > 0 AND c.namespace = $1 AND c.name = $2",
    )
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .fetch_one(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let documents: i64 = row.try_get("documents")?;
    if documents == 0 {
        return Ok(None);
    }
    let (changes, latest): (i64, i64) = (row.try_get("changes")?, row.try_get("latest")?);
    let (model, indexed_at): (String, i64) = (row.try_get("model")?, row.try_get("indexed_at")?);
    let tuned = tunings::adapter(sql, collection).await?.map(|adapter| adapter.matrix.sha256).unwrap_or_default();
    Ok(Some(format!("{documents}/{changes}/{latest}/{indexed_at}/{model}/{tuned}")))
}
