//! Removals of documents and collections: receipts.
//!
//! A request about one document has no event of its own; one about a collection says how many documents it means. Events
//! that were written twice change nothing: the first of each kind counts.

use riverrun_schemas::ingest::{CollectionWithdrawn, DocumentDeleted, DocumentWithdrawn};
use riverrun_schemas::{Collection, CollectionName, IngestId, Namespace};
use serde::{Deserialize, Serialize};
use sqlx::Row;
use utoipa::ToSchema;

use crate::error::StoreError;
use crate::read_models::documents::count_in_collection;
use crate::read_models::runs::id;
use crate::read_models::time::Timestamp;
use crate::sql::{DbConnection, Sql, storable};

/// What a removal came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletionView {
    /// The request.
    #[schema(value_type = String)]
    pub deletion_id: IngestId,
    /// `running` or `done`.
    pub status: String,
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its collection.
    #[schema(value_type = String)]
    pub collection: CollectionName,
    /// Documents that the request means; null until that is known, and for a request about one document.
    pub total: Option<i64>,
    /// Documents that are gone.
    pub documents: i64,
    /// Chunks that went from the vector store.
    pub vectors: i64,
    /// Chunks that went from the keyword index.
    pub keywords: i64,
    /// Warehouse tables that went.
    pub tables: i64,
    /// Their rows.
    pub rows: i64,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

impl DeletionView {
    /// Whether everything is gone.
    pub fn is_done(&self) -> bool {
        self.status == "done"
    }
}

async fn open(
    connection: &mut DbConnection,
    deletion_id: IngestId,
    namespace: &Namespace,
    collection: &CollectionName,
    at: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO deletions (deletion_id, namespace, collection, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (deletion_id) DO UPDATE SET created_at = excluded.created_at WHERE excluded.created_at < deletions.created_at",
    )
    .bind(deletion_id.to_string())
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(at)
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) async fn collection_withdrawn(
    connection: &mut DbConnection,
    event: &CollectionWithdrawn,
) -> Result<(), StoreError> {
    open(connection, event.ingest_id, &event.namespace, &event.collection, event.at).await?;
    sqlx::query("UPDATE deletions SET documents = $2 WHERE deletion_id = $1 AND documents IS NULL")
        .bind(event.ingest_id.to_string())
        .bind(event.documents)
        .execute(connection)
        .await?;
    Ok(())
}

/// The document's text can be read no more; its row stays until its chunks are gone.
pub(crate) async fn document_withdrawn(
    connection: &mut DbConnection,
    event: &DocumentWithdrawn,
) -> Result<(), StoreError> {
    open(connection, event.ingest_id, &event.namespace, &event.collection, event.at).await?;
    let first = sqlx::query(
        "INSERT INTO deleted_documents (deletion_id, document_id, source, tables, row_count, updated_at) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (deletion_id, document_id) DO NOTHING",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.document_id.to_string())
    .bind(storable(&event.source))
    .bind(event.tables)
    .bind(event.rows)
    .bind(event.at)
    .execute(&mut *connection)
    .await?;
    if first.rows_affected() == 0 {
        return Ok(());
    }
    sqlx::query("DELETE FROM document_versions WHERE document_id = $1")
        .bind(event.document_id.to_string())
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "UPDATE documents SET status = 'deleting', ingest_id = $2, version = NULL, chunks = 0, error = NULL, updated_at = $3 WHERE document_id = $1",
    )
    .bind(event.document_id.to_string())
    .bind(event.ingest_id.to_string())
    .bind(event.at)
    .execute(connection)
    .await?;
    Ok(())
}

/// Nothing finds the document any more. One that was handed in again meanwhile keeps its row.
pub(crate) async fn document_deleted(connection: &mut DbConnection, event: &DocumentDeleted) -> Result<(), StoreError> {
    let first = sqlx::query(
        "UPDATE deleted_documents SET vectors = $3, keywords = $4, updated_at = $5 WHERE deletion_id = $1 AND document_id = $2 AND vectors IS NULL",
    )
    .bind(event.ingest_id.to_string())
    .bind(event.document_id.to_string())
    .bind(event.vectors)
    .bind(event.keywords)
    .bind(event.at)
    .execute(&mut *connection)
    .await?;
    if first.rows_affected() == 0 {
        return Ok(());
    }
    let before = sqlx::query("SELECT indexed_version, indexed_chunks FROM documents WHERE document_id = $1")
        .bind(event.document_id.to_string())
        .fetch_optional(&mut *connection)
        .await?;
    let Some(before) = before else { return Ok(()) };
    if before.try_get::<Option<String>, _>("indexed_version")?.is_some() {
        let collection = Collection::new(event.namespace.clone(), event.collection.clone());
        let chunks: i64 = before.try_get("indexed_chunks")?;
        count_in_collection(connection, &collection, -1, -chunks).await?;
    }
    sqlx::query("UPDATE documents SET indexed_version = NULL, indexed_chunks = 0 WHERE document_id = $1")
        .bind(event.document_id.to_string())
        .execute(&mut *connection)
        .await?;
    sqlx::query("DELETE FROM documents WHERE document_id = $1 AND status = 'deleting'")
        .bind(event.document_id.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

/// The newest removal of everything in a collection; `None` when there was none. It tells what came to the collection before from what
/// came behind it.
pub async fn last_of_collection(sql: &Sql, collection: &Collection) -> Result<Option<IngestId>, StoreError> {
    // A removal of one document does not say how many it means.
    let row = sqlx::query(
        "SELECT deletion_id FROM deletions WHERE namespace = $1 AND collection = $2 AND documents IS NOT NULL
         ORDER BY created_at DESC, deletion_id DESC LIMIT 1",
    )
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .fetch_optional(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.map(|row| id("deletions", row.try_get("deletion_id")?)).transpose()
}

/// What a removal came to; `None` when nothing was heard of it.
pub async fn deletion(sql: &Sql, deletion_id: IngestId) -> Result<Option<DeletionView>, StoreError> {
    let row = sqlx::query(
        "SELECT d.namespace, d.collection, d.documents AS expected, d.created_at,
                COUNT(x.document_id) AS known, COUNT(x.vectors) AS done,
                CAST(COALESCE(SUM(x.vectors), 0) AS BIGINT) AS vectors, CAST(COALESCE(SUM(x.keywords), 0) AS BIGINT) AS keywords,
                CAST(COALESCE(SUM(x.tables), 0) AS BIGINT) AS tables, CAST(COALESCE(SUM(x.row_count), 0) AS BIGINT) AS rows_gone
         FROM deletions d LEFT JOIN deleted_documents x ON x.deletion_id = d.deletion_id
         WHERE d.deletion_id = $1 GROUP BY d.deletion_id, d.namespace, d.collection, d.documents, d.created_at",
    )
    .bind(deletion_id.to_string())
    .fetch_optional(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let Some(row) = row else { return Ok(None) };
    let done: i64 = row.try_get("done")?;
    // A request about one document does not say how many there are.
    let total: Option<i64> = row.try_get("expected")?;
    let expected = total.unwrap_or(row.try_get("known")?);
    Ok(Some(DeletionView {
        deletion_id,
        status: if done >= expected { "done" } else { "running" }.to_owned(),
        namespace: id("deletions", row.try_get("namespace")?)?,
        collection: id("deletions", row.try_get("collection")?)?,
        total,
        documents: done,
        vectors: row.try_get("vectors")?,
        keywords: row.try_get("keywords")?,
        tables: row.try_get("tables")?,
        rows: row.try_get("rows_gone")?,
        created_at: Timestamp(row.try_get("created_at")?),
    }))
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::DocumentId;
    use riverrun_schemas::ingest::IngestEvent;

    use super::*;
    use crate::read_models::testing::{fresh, ingest_id, notes, records};
    use crate::read_models::{Projected, apply};

    fn all_of(number: u32, collection: &Collection, at: i64) -> IngestEvent {
        let Collection { namespace, name } = collection.clone();
        CollectionWithdrawn { ingest_id: ingest_id(number), namespace, collection: name, documents: 1, at }.into()
    }

    fn one_of(number: u32, at: i64) -> IngestEvent {
        let Collection { namespace, name } = notes();
        let event = DocumentWithdrawn {
            ingest_id: ingest_id(number),
            document_id: DocumentId::derive(&["a"]),
            namespace,
            collection: name,
            source: "/a".into(),
            tables: 0,
            rows: 0,
            at,
        };
        event.into()
    }

    #[tokio::test]
    async fn given_removals_of_all_and_of_single_documents_when_the_last_of_a_collection_is_asked_for_then_it_is_the_newest_of_all()
     {
        let other = Collection::new(notes().namespace, "other".parse().unwrap());
        let cases: [(&str, Vec<IngestEvent>, Option<u32>); 5] = [
            ("none", vec![], None),
            ("one document", vec![one_of(1, 5)], None),
            ("of another collection", vec![all_of(1, &other, 5)], None),
            ("all, and one document later", vec![all_of(1, &notes(), 5), one_of(2, 9)], Some(1)),
            ("told out of order", vec![all_of(2, &notes(), 9), all_of(1, &notes(), 5)], Some(2)),
        ];
        for (what, events, last) in cases {
            let (_folder, sql) = fresh().await;
            apply(&sql, &records(events, Projected::Ingest)).await.unwrap();
            assert_eq!(last_of_collection(&sql, &notes()).await.unwrap(), last.map(ingest_id), "{what}");
        }
    }
}
