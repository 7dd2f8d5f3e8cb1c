//! Documents as rows of the read models' database: a file, or the server that stands for it.

use async_trait::async_trait;
use riverrun_schemas::{Namespace, Topic};
use sqlx::Row;

use super::{Change, DocumentEntry, DocumentKey, DocumentKind, DocumentStore, DocumentsInfo, KeptDocument, after};
use crate::error::StoreError;
use crate::read_models::{Page, PageRequest};
use crate::sql::{DbConnection, DbRow, Sql, SqlKind, storable};

/// The embedded document store. Its rows are apart from the read models, with positions of their own.
#[derive(Debug, Clone)]
pub struct SqlDocuments {
    sql: Sql,
}

impl SqlDocuments {
    /// In that database.
    pub fn new(sql: Sql) -> Self {
        Self { sql }
    }

    fn named(&self) -> impl FnOnce(StoreError) -> StoreError + '_ {
        |error| error.at(self.sql.path())
    }

    async fn write_all(
        &self,
        topic: Topic,
        partition: i32,
        changes: &[Change],
        next_offset: i64,
    ) -> Result<(), StoreError> {
        let mut transaction = self.sql.begin().await?;
        for change in changes {
            match change {
                Change::Put(document) => put(&mut transaction, document).await?,
                Change::Remove { key, offset } => remove(&mut transaction, key, *offset).await?,
                Change::RemoveBelow { key, offset } => remove_below(&mut transaction, key, *offset).await?,
            }
        }
        move_position(&mut transaction, topic, partition, next_offset).await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn clear_all(&self) -> Result<(), StoreError> {
        let mut transaction = self.sql.begin().await?;
        sqlx::query("DELETE FROM json_documents").execute(&mut *transaction).await?;
        sqlx::query("DELETE FROM json_document_positions").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn find(&self, key: &DocumentKey) -> Result<Option<KeptDocument>, StoreError> {
        let row = sqlx::query(
            "SELECT name, revision, saved_at, log_offset, saves, body FROM json_documents
             WHERE kind = $1 AND namespace = $2 AND id = $3",
        )
        .bind(key.kind.as_str())
        .bind(key.namespace.as_str().to_owned())
        .bind(storable(&key.id))
        .fetch_optional(self.sql.reader())
        .await?;
        row.map(|row| document(key, &row)).transpose()
    }

    async fn page(
        &self,
        kind: DocumentKind,
        namespace: &Namespace,
        page: &PageRequest,
    ) -> Result<Page<DocumentEntry>, StoreError> {
        let (after, limit) = (after(kind, page)?, page.limit());
        let rows = sqlx::query(
            "SELECT id, name, revision, saved_at, size_bytes FROM json_documents
             WHERE kind = $1 AND namespace = $2 AND id > $3 ORDER BY id LIMIT $4",
        )
        .bind(kind.as_str())
        .bind(namespace.as_str().to_owned())
        .bind(after)
        .bind(limit + 1)
        .fetch_all(self.sql.reader())
        .await?;
        let entries = rows.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
        Ok(Page::of(entries, limit, |entry| entry.id.clone()))
    }
}

#[async_trait]
impl DocumentStore for SqlDocuments {
    fn info(&self) -> DocumentsInfo {
        let kind = match self.sql.kind() {
            SqlKind::Sqlite => "sqlite",
            SqlKind::Postgres => "postgresql",
        };
        DocumentsInfo { kind, place: self.sql.path().display().to_string() }
    }

    async fn version(&self) -> Result<String, StoreError> {
        self.sql.version().await
    }

    async fn next_offset(&self, topic: Topic, partition: i32) -> Result<i64, StoreError> {
        let found: Result<Option<i64>, sqlx::Error> =
            sqlx::query_scalar("SELECT next_offset FROM json_document_positions WHERE topic = $1 AND partition = $2")
                .bind(topic.name())
                .bind(i64::from(partition))
                .fetch_optional(self.sql.reader())
                .await;
        Ok(found.map_err(StoreError::from).map_err(self.named())?.unwrap_or(0))
    }

    async fn write(
        &self,
        topic: Topic,
        partition: i32,
        changes: &[Change],
        next_offset: i64,
    ) -> Result<(), StoreError> {
        self.write_all(topic, partition, changes, next_offset).await.map_err(self.named())
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.clear_all().await.map_err(self.named())
    }

    async fn get(&self, key: &DocumentKey) -> Result<Option<KeptDocument>, StoreError> {
        self.find(key).await.map_err(self.named())
    }

    async fn list(
        &self,
        kind: DocumentKind,
        namespace: &Namespace,
        page: &PageRequest,
    ) -> Result<Page<DocumentEntry>, StoreError> {
        self.page(kind, namespace, page).await.map_err(self.named())
    }

    async fn count(&self, kind: DocumentKind, namespace: &Namespace) -> Result<u64, StoreError> {
        let count: Result<i64, sqlx::Error> =
            sqlx::query_scalar("SELECT COUNT(*) FROM json_documents WHERE kind = $1 AND namespace = $2")
                .bind(kind.as_str())
                .bind(namespace.as_str().to_owned())
                .fetch_one(self.sql.reader())
                .await;
        let count = count.map_err(StoreError::from).map_err(self.named())?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

async fn put(connection: &mut DbConnection, document: &KeptDocument) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO json_documents (kind, namespace, id, name, revision, saved_at, log_offset, saves, size_bytes, body)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (kind, namespace, id) DO UPDATE SET name = excluded.name, revision = excluded.revision,
             saved_at = excluded.saved_at, log_offset = excluded.log_offset, saves = excluded.saves,
             size_bytes = excluded.size_bytes, body = excluded.body
         WHERE json_documents.log_offset < excluded.log_offset",
    )
    .bind(document.key.kind.as_str())
    .bind(document.key.namespace.as_str().to_owned())
    .bind(storable(&document.key.id))
    .bind(storable(&document.name))
    .bind(document.revision)
    .bind(document.at)
    .bind(document.offset)
    .bind(document.saves.join(" "))
    .bind(i64::try_from(document.body.len()).unwrap_or(i64::MAX))
    .bind(storable(&document.body))
    .execute(connection)
    .await?;
    Ok(())
}

async fn remove(connection: &mut DbConnection, key: &DocumentKey, offset: i64) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM json_documents WHERE kind = $1 AND namespace = $2 AND id = $3 AND log_offset < $4")
        .bind(key.kind.as_str())
        .bind(key.namespace.as_str().to_owned())
        .bind(storable(&key.id))
        .bind(offset)
        .execute(connection)
        .await?;
    Ok(())
}

async fn remove_below(connection: &mut DbConnection, key: &DocumentKey, offset: i64) -> Result<(), StoreError> {
    let (from, to) = key.range_below();
    sqlx::query(
        "DELETE FROM json_documents WHERE kind = $1 AND namespace = $2 AND id > $3 AND id < $4 AND log_offset < $5",
    )
    .bind(key.kind.as_str())
    .bind(key.namespace.as_str().to_owned())
    .bind(storable(&from))
    .bind(storable(&to))
    .bind(offset)
    .execute(connection)
    .await?;
    Ok(())
}

async fn move_position(
    connection: &mut DbConnection,
    topic: Topic,
    partition: i32,
    next_offset: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO json_document_positions (topic, partition, next_offset) VALUES ($1, $2, $3)
         ON CONFLICT (topic, partition) DO UPDATE SET next_offset = excluded.next_offset
         WHERE json_document_positions.next_offset < excluded.next_offset",
    )
    .bind(topic.name())
    .bind(i64::from(partition))
    .bind(next_offset)
    .execute(connection)
    .await?;
    Ok(())
}

fn document(key: &DocumentKey, row: &DbRow) -> Result<KeptDocument, StoreError> {
    let saves: String = row.try_get("saves")?;
    Ok(KeptDocument {
        key: key.clone(),
        name: row.try_get("name")?,
        revision: row.try_get("revision")?,
        at: row.try_get("saved_at")?,
        offset: row.try_get("log_offset")?,
        saves: saves.split_whitespace().map(str::to_owned).collect(),
        body: row.try_get("body")?,
    })
}

fn entry(row: &DbRow) -> Result<DocumentEntry, StoreError> {
    Ok(DocumentEntry {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        revision: row.try_get("revision")?,
        at: row.try_get("saved_at")?,
        size_bytes: row.try_get("size_bytes")?,
    })
}
