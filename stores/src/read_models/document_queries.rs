//! What is asked about documents, collections and requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use riverrun_schemas::{BlobRef, Collection, DocumentId, Failure, IngestId, Namespace};
use serde_json::Value;
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::document_views::{
    CollectionView, DocumentCounts, DocumentStatus, DocumentVersionView, DocumentView, EmbeddingView,
    IngestFailureView, IngestNoteView, IngestStatus, IngestView,
};
use crate::read_models::page::{MAX_PAGE, Page, PageRequest};
use crate::read_models::run_views::{failure_view, json_or_text};
use crate::read_models::runs::{from_json, id};
use crate::read_models::time::Timestamp;
use crate::read_models::within::Within;
use crate::sql::{DbConnection, DbRow, Sql, storable};

/// Documents that failed, and documents with notes, of one request.
const MAX_FAILURES: i64 = 100;
/// Documents that are asked for in one statement.
const MAX_AMONG: usize = 250;

/// Collections that hold something, by namespace and name.
pub async fn collections(sql: &Sql, within: Within<'_>) -> Result<Vec<CollectionView>, StoreError> {
    let rows = sqlx::query(
        "SELECT * FROM collections WHERE documents > 0 AND (CAST($1 AS TEXT) IS NULL OR namespace = $1) ORDER BY namespace, name",
    )
    .bind(within.as_sql())
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter().map(collection_view).collect()
}

/// The collection; `None` when it holds nothing.
pub async fn collection(sql: &Sql, collection: &Collection) -> Result<Option<CollectionView>, StoreError> {
    let row = sqlx::query("SELECT * FROM collections WHERE documents > 0 AND namespace = $1 AND name = $2")
        .bind(collection.namespace.as_str())
        .bind(collection.name.as_str())
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.as_ref().map(collection_view).transpose()
}

/// Documents of a collection, by source.
pub async fn documents(
    sql: &Sql,
    collection: &Collection,
    page: &PageRequest,
) -> Result<Page<DocumentView>, StoreError> {
    let rows = sqlx::query(
        "SELECT * FROM documents WHERE namespace = $1 AND collection = $2 AND (CAST($3 AS TEXT) IS NULL OR source > $3) ORDER BY source LIMIT $4",
    )
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .bind(page.cursor.as_deref().map(storable))
    .bind(page.limit() + 1)
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    let items = rows.iter().map(document_view).collect::<Result<Vec<_>, _>>()?;
    Ok(Page::of(items, page.limit(), |document| document.source.clone()))
}

/// Documents of a collection by the names that are looked for: an id, a source, or a source's file name without extension. Where a name
/// fits several, an id comes before a source and a source before a file name; of several file names the last source counts.
pub async fn named(
    sql: &Sql,
    collection: &Collection,
    names: &BTreeSet<&str>,
) -> Result<HashMap<String, DocumentId>, StoreError> {
    let (mut by_stem, mut by_source, mut by_id) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut page = PageRequest { limit: Some(MAX_PAGE), cursor: None };
    loop {
        let found = documents(sql, collection, &page).await?;
        for document in found.items {
            let id = document.document_id.to_string();
            let stem = Path::new(&document.source).file_stem().map(|stem| stem.to_string_lossy().into_owned());
            for (by, name) in [(&mut by_id, Some(id)), (&mut by_stem, stem), (&mut by_source, Some(document.source))] {
                by.extend(name.filter(|name| names.contains(name.as_str())).map(|name| (name, document.document_id)));
            }
        }
        match found.next_cursor {
            Some(cursor) => page.cursor = Some(cursor),
            None => break,
        }
    }
    by_stem.extend(by_source);
    by_stem.extend(by_id);
    Ok(by_stem)
}

/// A document of a collection.
pub async fn document(
    sql: &Sql,
    collection: &Collection,
    document_id: DocumentId,
) -> Result<Option<DocumentView>, StoreError> {
    let row = sqlx::query("SELECT * FROM documents WHERE document_id = $1 AND namespace = $2 AND collection = $3")
        .bind(document_id.to_string())
        .bind(collection.namespace.as_str())
        .bind(collection.name.as_str())
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.as_ref().map(document_view).transpose()
}

/// A document of a namespace, in whatever collection.
pub async fn document_in(
    sql: &Sql,
    namespace: &Namespace,
    document_id: DocumentId,
) -> Result<Option<DocumentView>, StoreError> {
    let row = sqlx::query("SELECT * FROM documents WHERE document_id = $1 AND namespace = $2")
        .bind(document_id.to_string())
        .bind(namespace.as_str())
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.as_ref().map(document_view).transpose()
}

/// The versions of a document that were split, oldest first.
pub async fn document_versions(sql: &Sql, document_id: DocumentId) -> Result<Vec<DocumentVersionView>, StoreError> {
    let rows = sqlx::query("SELECT * FROM document_versions WHERE document_id = $1 ORDER BY created_at, version")
        .bind(document_id.to_string())
        .fetch_all(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter()
        .map(|row| {
            Ok(DocumentVersionView {
                version: row.try_get("version")?,
                chunks: row.try_get("chunks")?,
                text_sha256: row.try_get("text_sha256")?,
                text_size_bytes: row.try_get("text_size_bytes")?,
                created_at: Timestamp(row.try_get("created_at")?),
            })
        })
        .collect()
}

/// Whether there is any document of the collection, also one that can't be found yet.
pub async fn holds_anything(sql: &Sql, collection: &Collection) -> Result<bool, StoreError> {
    let found: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM (SELECT 1 FROM documents WHERE namespace = $1 AND collection = $2 LIMIT 1) x",
    )
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .fetch_one(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    Ok(found > 0)
}

/// What a search finds of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedDocument {
    /// The document.
    pub document_id: DocumentId,
    /// The version that is found.
    pub version: String,
    /// Its chunks.
    pub chunks: usize,
}

/// Up to `limit` documents of a collection that a search can find, by id, behind the one of that id.
pub async fn indexed_after(
    sql: &Sql,
    collection: &Collection,
    after: Option<DocumentId>,
    limit: usize,
) -> Result<Vec<IndexedDocument>, StoreError> {
    let rows = sqlx::query(
        "SELECT document_id, indexed_version, indexed_chunks FROM documents
         WHERE namespace = $1 AND collection = $2 AND indexed_version IS NOT NULL AND document_id > $3
         ORDER BY document_id LIMIT $4",
    )
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .bind(after.map(|after| after.to_string()).unwrap_or_default())
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .fetch_all(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    rows.iter().map(indexed_document).collect()
}

/// Those of the documents that a search of the collection can find.
pub async fn indexed_among(
    sql: &Sql,
    collection: &Collection,
    among: &BTreeSet<DocumentId>,
) -> Result<BTreeMap<DocumentId, IndexedDocument>, StoreError> {
    let mut found = BTreeMap::new();
    let among: Vec<String> = among.iter().map(ToString::to_string).collect();
    for part in among.chunks(MAX_AMONG) {
        let places = (3..3 + part.len()).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
        let text = format!(
            "SELECT document_id, indexed_version, indexed_chunks FROM documents
             WHERE namespace = $1 AND collection = $2 AND indexed_version IS NOT NULL AND document_id IN ({places})"
        );
        let mut query =
            sqlx::query(sqlx::AssertSqlSafe(text)).bind(collection.namespace.as_str()).bind(collection.name.as_str());
        for document in part {
            query = query.bind(document.as_str());
        }
        let rows = query.fetch_all(sql.reader()).await.map_err(|error| StoreError::from(error).at(sql.path()))?;
        for row in &rows {
            let document = indexed_document(row)?;
            found.insert(document.document_id, document);
        }
    }
    Ok(found)
}

/// How many chunks of a collection a search can find.
pub async fn indexed_chunks(sql: &Sql, collection: &Collection) -> Result<usize, StoreError> {
    let chunks: i64 = sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(indexed_chunks), 0) AS BIGINT) FROM documents
         WHERE namespace = $1 AND collection = $2 AND indexed_version IS NOT NULL",
    )
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .fetch_one(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    Ok(usize::try_from(chunks).unwrap_or(0))
}

fn indexed_document(row: &DbRow) -> Result<IndexedDocument, StoreError> {
    let chunks: i64 = row.try_get("indexed_chunks")?;
    Ok(IndexedDocument {
        document_id: id("documents", row.try_get("document_id")?)?,
        version: row.try_get("indexed_version")?,
        chunks: usize::try_from(chunks).unwrap_or(0),
    })
}

/// The stored text that spans of a document version count in.
pub async fn document_text(
    sql: &Sql,
    collection: &Collection,
    document_id: DocumentId,
    version: &str,
) -> Result<Option<BlobRef>, StoreError> {
    let row = sqlx::query(
        "SELECT v.text_sha256, v.text_size_bytes, v.text_media_type
         FROM document_versions v JOIN documents d ON d.document_id = v.document_id
         WHERE v.document_id = $1 AND v.version = $2 AND d.namespace = $3 AND d.collection = $4",
    )
    .bind(document_id.to_string())
    .bind(storable(version))
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .fetch_optional(sql.reader())
    .await
    .map_err(|error| StoreError::from(error).at(sql.path()))?;
    row.map(|row| {
        Ok(BlobRef {
            sha256: row.try_get("text_sha256")?,
            size_bytes: row.try_get("text_size_bytes")?,
            media_type: row.try_get("text_media_type")?,
        })
    })
    .transpose()
}

/// The callers' own JSON of those of the documents that have one.
pub async fn document_metadata(
    sql: &Sql,
    collection: &Collection,
    documents: &[DocumentId],
) -> Result<HashMap<DocumentId, Value>, StoreError> {
    let mut found = HashMap::new();
    for document_id in documents {
        if found.contains_key(document_id) {
            continue;
        }
        let metadata: Option<Option<String>> = sqlx::query_scalar(
            "SELECT metadata FROM documents WHERE document_id = $1 AND namespace = $2 AND collection = $3",
        )
        .bind(document_id.to_string())
        .bind(collection.namespace.as_str())
        .bind(collection.name.as_str())
        .fetch_optional(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))?;
        if let Some(text) = metadata.flatten() {
            found.insert(*document_id, json_or_text(&text));
        }
    }
    Ok(found)
}

/// A request to read a source, with what became of its documents; `None` when nothing was heard of it there.
pub async fn ingest(sql: &Sql, within: Within<'_>, ingest_id: IngestId) -> Result<Option<IngestView>, StoreError> {
    let attempt = async {
        let mut transaction = sql.snapshot().await?;
        let row =
            sqlx::query("SELECT * FROM ingests WHERE ingest_id = $1 AND (CAST($2 AS TEXT) IS NULL OR namespace = $2)")
                .bind(ingest_id.to_string())
                .bind(within.as_sql())
                .fetch_optional(&mut *transaction)
                .await?;
        let Some(row) = row else { return Ok(None) };
        let (counts, last_end) = document_counts(&mut transaction, ingest_id).await?;
        let failures = failures(&mut transaction, ingest_id).await?;
        let notes = notes(&mut transaction, ingest_id).await?;
        ingest_view(&row, ingest_id, (counts, last_end), failures, notes).map(Some)
    };
    attempt.await.map_err(|error: StoreError| error.at(sql.path()))
}

async fn document_counts(
    connection: &mut DbConnection,
    ingest_id: IngestId,
) -> Result<(DocumentCounts, Option<i64>), StoreError> {
    let rows = sqlx::query("SELECT status, COUNT(*) AS documents, MAX(updated_at) AS latest FROM ingest_documents WHERE ingest_id = $1 GROUP BY status")
        .bind(ingest_id.to_string())
        .fetch_all(connection)
        .await?;
    let (mut counts, mut last_end) = (DocumentCounts::default(), None);
    for row in rows {
        let status: DocumentStatus =
            document_status("ingest_documents", &ingest_id.to_string(), row.try_get("status")?)?;
        counts.add(status, row.try_get("documents")?);
        if status.ended() {
            last_end = last_end.max(row.try_get::<Option<i64>, _>("latest")?);
        }
    }
    Ok((counts, last_end))
}

async fn failures(connection: &mut DbConnection, ingest_id: IngestId) -> Result<Vec<IngestFailureView>, StoreError> {
    let rows = sqlx::query(
        "SELECT document_id, source, stage, error FROM ingest_documents WHERE ingest_id = $1 AND status = 'failed' ORDER BY source, document_id LIMIT $2",
    )
    .bind(ingest_id.to_string())
    .bind(MAX_FAILURES)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            let key: String = row.try_get("document_id")?;
            let error: Failure = from_json("ingest_documents", &key, row.try_get("error")?)?;
            Ok(IngestFailureView {
                document_id: id("ingest_documents", &key)?,
                source: row.try_get("source")?,
                stage: row.try_get::<Option<String>, _>("stage")?.unwrap_or_default(),
                error: failure_view(&error),
            })
        })
        .collect()
}

async fn notes(connection: &mut DbConnection, ingest_id: IngestId) -> Result<Vec<IngestNoteView>, StoreError> {
    let rows = sqlx::query(
        "SELECT document_id, source, notes FROM ingest_documents WHERE ingest_id = $1 AND status <> 'failed' AND notes IS NOT NULL ORDER BY source, document_id LIMIT $2",
    )
    .bind(ingest_id.to_string())
    .bind(MAX_FAILURES)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            let key: String = row.try_get("document_id")?;
            Ok(IngestNoteView {
                document_id: id("ingest_documents", &key)?,
                source: row.try_get("source")?,
                notes: from_json("ingest_documents", &key, row.try_get("notes")?)?,
            })
        })
        .collect()
}

fn ingest_view(
    row: &DbRow,
    ingest_id: IngestId,
    (mut counts, last_end): (DocumentCounts, Option<i64>),
    failures: Vec<IngestFailureView>,
    notes: Vec<IngestNoteView>,
) -> Result<IngestView, StoreError> {
    counts.total = row.try_get("documents")?;
    let failed_at: Option<i64> = row.try_get("failed_at")?;
    // A source that was read when its command was sent again has not failed.
    let failed_at = failed_at.filter(|_| counts.total.is_none());
    let status = if failed_at.is_some() { IngestStatus::Failed } else { counts.status() };
    let scanned_at: Option<i64> = row.try_get("scanned_at")?;
    let ended_at = failed_at.or(last_end.max(scanned_at));
    let error: Option<String> = row.try_get::<Option<String>, _>("error")?.filter(|_| failed_at.is_some());
    let error =
        error.as_deref().map(|text| from_json::<Failure>("ingests", &ingest_id.to_string(), text)).transpose()?;
    let left_out: Option<String> = row.try_get("left_out")?;
    let left_out = left_out.as_deref().map(|text| from_json("ingests", &ingest_id.to_string(), text)).transpose()?;
    Ok(IngestView {
        ingest_id,
        status,
        namespace: id("ingests", row.try_get("namespace")?)?,
        collection: id("ingests", row.try_get("collection")?)?,
        source: row.try_get("source")?,
        documents: counts,
        skipped: row.try_get("skipped")?,
        left_out: left_out.unwrap_or_default(),
        notes,
        failures,
        error: error.as_ref().map(failure_view),
        created_at: Timestamp(row.try_get("created_at")?),
        finished_at: ended_at.filter(|_| status.ended()).map(Timestamp),
    })
}

fn collection_view(row: &DbRow) -> Result<CollectionView, StoreError> {
    let collection =
        Collection::new(id("collections", row.try_get("namespace")?)?, id("collections", row.try_get("name")?)?);
    Ok(CollectionView {
        physical_name: collection.physical_name(),
        name: collection.name,
        namespace: collection.namespace,
        documents: row.try_get("documents")?,
        chunks: row.try_get("chunks")?,
        embedding: EmbeddingView { model: row.try_get("embed_model")?, dimensions: row.try_get("dimensions")? },
        updated_at: Timestamp(row.try_get("updated_at")?),
    })
}

fn document_view(row: &DbRow) -> Result<DocumentView, StoreError> {
    let key: String = row.try_get("document_id")?;
    let error: Option<String> = row.try_get("error")?;
    let error = error.as_deref().map(|text| from_json::<Failure>("documents", &key, text)).transpose()?;
    let metadata: Option<String> = row.try_get("metadata")?;
    Ok(DocumentView {
        document_id: id("documents", &key)?,
        namespace: id("documents", row.try_get("namespace")?)?,
        collection: id("documents", row.try_get("collection")?)?,
        source: row.try_get("source")?,
        title: row.try_get("title")?,
        status: document_status("documents", &key, row.try_get("status")?)?,
        ingest_id: id("documents", row.try_get("ingest_id")?)?,
        version: row.try_get("version")?,
        chunks: row.try_get("indexed_chunks")?,
        indexed_version: row.try_get("indexed_version")?,
        metadata: metadata.as_deref().map(json_or_text),
        error: error.as_ref().map(failure_view),
        created_at: Timestamp(row.try_get("created_at")?),
        updated_at: Timestamp(row.try_get("updated_at")?),
    })
}

fn document_status(table: &'static str, key: &str, text: &str) -> Result<DocumentStatus, StoreError> {
    text.parse().map_err(|reason| StoreError::Row { table, key: key.to_owned(), reason })
}

/// Chunks of the documents that a request touched last.
pub async fn ingest_chunks(sql: &Sql, ingest_id: IngestId) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT CAST(COALESCE(SUM(chunks), 0) AS BIGINT) FROM documents WHERE ingest_id = $1")
        .bind(ingest_id.to_string())
        .fetch_one(sql.reader())
        .await
        .map_err(|error| StoreError::from(error).at(sql.path()))
}
