//! Documents, collections, and requests to read them.
//!
//! All events of a document lie in one partition; those of a request and of a collection in many. What is kept of the
//! latter two is the same in whatever order the partitions are read: counters, smallest and greatest times.

use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::{BlobRef, Collection, CollectionName, DocumentId, Failure, IngestId, Namespace};
use sqlx::Row;

use crate::error::StoreError;
use crate::read_models::deletions;
use crate::read_models::document_views::DocumentStatus;
use crate::read_models::runs::to_json;
use crate::read_models::{rebuilds, reembeddings, tunings};
use crate::sql::{DbConnection, storable};

pub use crate::read_models::document_queries::{
    IndexedDocument, collection, collections, document, document_in, document_metadata, document_text,
    document_versions, documents, holds_anything, indexed_after, indexed_among, indexed_chunks, ingest, named,
};

/// The fields that every event of a document has.
pub(crate) struct About<'e> {
    pub(crate) document_id: DocumentId,
    pub(crate) ingest_id: IngestId,
    pub(crate) namespace: &'e Namespace,
    pub(crate) collection: &'e CollectionName,
    pub(crate) source: &'e str,
    pub(crate) at: i64,
}

macro_rules! about {
    ($event:expr) => {
        About {
            document_id: $event.document_id,
            ingest_id: $event.ingest_id,
            namespace: &$event.namespace,
            collection: &$event.collection,
            source: &$event.source,
            at: $event.at,
        }
    };
}

pub(crate) use about;

/// Folds one event into the tables.
pub(crate) async fn apply(connection: &mut DbConnection, event: &IngestEvent) -> Result<(), StoreError> {
    match event {
        IngestEvent::IngestScanned(event) => {
            open_ingest(connection, event.ingest_id, &event.namespace, &event.collection, event.at).await?;
            sqlx::query("UPDATE ingests SET source = $2, documents = $3, skipped = $4, scanned_at = $5, left_out = $6 WHERE ingest_id = $1 AND scanned_at IS NULL")
                .bind(event.ingest_id.to_string())
                .bind(storable(&event.source))
                .bind(event.documents)
                .bind(event.skipped)
                .bind(event.at)
                .bind((!event.left_out.is_empty()).then(|| to_json(&event.left_out)))
                .execute(connection)
                .await?;
        }
        IngestEvent::IngestFailed(event) => {
            open_ingest(connection, event.ingest_id, &event.namespace, &event.collection, event.at).await?;
            sqlx::query("UPDATE ingests SET source = $2, error = $3, failed_at = $4 WHERE ingest_id = $1 AND scanned_at IS NULL AND failed_at IS NULL")
                .bind(event.ingest_id.to_string())
                .bind(storable(&event.source))
                .bind(to_json(&event.error))
                .bind(event.at)
                .execute(connection)
                .await?;
        }
        IngestEvent::DocumentQueued(event) => {
            reach(connection, &about!(event), DocumentStatus::Queued, None).await?;
        }
        IngestEvent::DocumentUnchanged(event) => {
            reach(connection, &about!(event), DocumentStatus::Unchanged, None).await?;
        }
        IngestEvent::DocumentChunked(event) => {
            let about = about!(event);
            if reach(connection, &about, DocumentStatus::Chunked, None).await? || is_again(connection, &about).await? {
                let version = Version { version: &event.version, chunks: event.chunks, text: &event.text };
                set_version(connection, &about, &version, event.title.as_deref(), event.metadata_json.as_deref())
                    .await?;
                set_notes(connection, &about, &event.notes).await?;
            }
        }
        IngestEvent::DocumentEmbedded(event) => {
            reach(connection, &about!(event), DocumentStatus::Embedded, None).await?;
        }
        IngestEvent::DocumentIndexed(event) => {
            let about = about!(event);
            if reach(connection, &about, DocumentStatus::Indexed, None).await? {
                let embedding = Embedding { model: &event.embed_model, dimensions: event.dimensions };
                set_indexed(connection, &about, &event.version, event.chunks, &embedding).await?;
            }
        }
        IngestEvent::DocumentFailed(event) => {
            reach(connection, &about!(event), DocumentStatus::Failed, Some((&event.stage, &event.error))).await?;
        }
        IngestEvent::DocumentWithdrawn(event) => deletions::document_withdrawn(connection, event).await?,
        IngestEvent::DocumentDeleted(event) => deletions::document_deleted(connection, event).await?,
        IngestEvent::CollectionWithdrawn(event) => {
            deletions::collection_withdrawn(connection, event).await?;
            tunings::withdrawn(connection, event).await?;
        }
        IngestEvent::CollectionReembedding(event) => reembeddings::begun(connection, event).await?,
        IngestEvent::CollectionReembedded(event) => reembeddings::done(connection, event).await?,
        IngestEvent::CollectionReembedFailed(event) => reembeddings::failed(connection, event).await?,
        IngestEvent::CollectionRebuilding(event) => rebuilds::begun(connection, event).await?,
        IngestEvent::CollectionRebuilt(event) => rebuilds::done(connection, event).await?,
        IngestEvent::CollectionRebuildFailed(event) => rebuilds::failed(connection, event).await?,
        IngestEvent::CollectionTuning(event) => tunings::begun(connection, event).await?,
        IngestEvent::CollectionTuned(event) => tunings::done(connection, event).await?,
        IngestEvent::CollectionTuneFailed(event) => tunings::failed(connection, event).await?,
    }
    Ok(())
}

/// Whether the event of a document that is at `now` in its request counts. One that failed stays failed until all of it can be found:
/// then its dead letter was sent again.
fn goes_on(now: Option<DocumentStatus>, status: DocumentStatus) -> bool {
    match now {
        None => true,
        Some(DocumentStatus::Failed) => matches!(status, DocumentStatus::Indexed | DocumentStatus::Unchanged),
        Some(now) => !now.ended() && now < status,
    }
}

/// Whether the document has failed in this request, and no other one has touched it since: it is on its way again.
async fn is_again(connection: &mut DbConnection, about: &About<'_>) -> Result<bool, StoreError> {
    let failed: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM documents WHERE document_id = $1 AND ingest_id = $2 AND status = $3")
            .bind(about.document_id.to_string())
            .bind(about.ingest_id.to_string())
            .bind(DocumentStatus::Failed.as_str())
            .fetch_one(connection)
            .await?;
    Ok(failed > 0)
}

/// Moves the document of a request to `status`. False, and nothing is changed, when it is there or further already: an
/// event that was written twice, or one behind the end.
async fn reach(
    connection: &mut DbConnection,
    about: &About<'_>,
    status: DocumentStatus,
    failure: Option<(&str, &Failure)>,
) -> Result<bool, StoreError> {
    open_ingest(connection, about.ingest_id, about.namespace, about.collection, about.at).await?;
    let now = status_in_request(connection, about).await?;
    if !goes_on(now, status) {
        return Ok(false);
    }
    let error = failure.map(|(_, error)| to_json(error));
    sqlx::query(
        "INSERT INTO ingest_documents (ingest_id, document_id, source, status, stage, error, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (ingest_id, document_id) DO UPDATE SET status = excluded.status, stage = excluded.stage, error = excluded.error, updated_at = excluded.updated_at",
    )
    .bind(about.ingest_id.to_string())
    .bind(about.document_id.to_string())
    .bind(storable(about.source))
    .bind(status.as_str())
    .bind(failure.map(|(stage, _)| storable(stage)))
    .bind(error.as_deref())
    .bind(about.at)
    .execute(&mut *connection)
    .await?;
    // The request whose first word about the document came last is the one that the document's row tells of.
    let statement = if now.is_none() {
        "INSERT INTO documents (document_id, namespace, collection, source, ingest_id, status, error, chunks, indexed_chunks, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8, $8)
         ON CONFLICT (document_id) DO UPDATE SET ingest_id = excluded.ingest_id, status = excluded.status, error = excluded.error, updated_at = excluded.updated_at"
    } else {
        "UPDATE documents SET status = $6, error = $7, updated_at = $8
         WHERE document_id = $1 AND namespace = $2 AND collection = $3 AND source = $4 AND ingest_id = $5"
    };
    sqlx::query(statement)
        .bind(about.document_id.to_string())
        .bind(about.namespace.as_str())
        .bind(about.collection.as_str())
        .bind(storable(about.source))
        .bind(about.ingest_id.to_string())
        .bind(status.as_str())
        .bind(error.as_deref())
        .bind(about.at)
        .execute(connection)
        .await?;
    Ok(true)
}

async fn status_in_request(
    connection: &mut DbConnection,
    about: &About<'_>,
) -> Result<Option<DocumentStatus>, StoreError> {
    let found: Option<String> =
        sqlx::query_scalar("SELECT status FROM ingest_documents WHERE ingest_id = $1 AND document_id = $2")
            .bind(about.ingest_id.to_string())
            .bind(about.document_id.to_string())
            .fetch_optional(connection)
            .await?;
    let key = || about.document_id.to_string();
    found
        .map(|text| text.parse().map_err(|reason| StoreError::Row { table: "ingest_documents", key: key(), reason }))
        .transpose()
}

async fn open_ingest(
    connection: &mut DbConnection,
    ingest_id: IngestId,
    namespace: &Namespace,
    collection: &CollectionName,
    at: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO ingests (ingest_id, namespace, collection, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (ingest_id) DO UPDATE SET created_at = excluded.created_at WHERE excluded.created_at < ingests.created_at",
    )
    .bind(ingest_id.to_string())
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(at)
    .execute(connection)
    .await?;
    Ok(())
}

struct Version<'e> {
    version: &'e str,
    chunks: i64,
    text: &'e BlobRef,
}

async fn set_version(
    connection: &mut DbConnection,
    about: &About<'_>,
    version: &Version<'_>,
    title: Option<&str>,
    metadata: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE documents SET version = $2, chunks = $3, title = $4, metadata = $5 WHERE document_id = $1")
        .bind(about.document_id.to_string())
        .bind(storable(version.version))
        .bind(version.chunks)
        .bind(title.map(storable))
        .bind(metadata.map(storable))
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "INSERT INTO document_versions (document_id, version, chunks, text_sha256, text_size_bytes, text_media_type, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (document_id, version) DO NOTHING",
    )
    .bind(about.document_id.to_string())
    .bind(storable(version.version))
    .bind(version.chunks)
    .bind(storable(&version.text.sha256))
    .bind(version.text.size_bytes)
    .bind(storable(&version.text.media_type))
    .bind(about.at)
    .execute(connection)
    .await?;
    Ok(())
}

/// What people should know of the document, in this request; nothing where there is nothing to say.
async fn set_notes(connection: &mut DbConnection, about: &About<'_>, notes: &[String]) -> Result<(), StoreError> {
    sqlx::query("UPDATE ingest_documents SET notes = $3 WHERE ingest_id = $1 AND document_id = $2")
        .bind(about.ingest_id.to_string())
        .bind(about.document_id.to_string())
        .bind((!notes.is_empty()).then(|| to_json(&notes)))
        .execute(connection)
        .await?;
    Ok(())
}

struct Embedding<'e> {
    model: &'e str,
    dimensions: i32,
}

/// No document counts for more chunks: sums of what others wrote must stay numbers.
const MAX_CHUNKS: i64 = 1 << 32;

/// The version can be found now: the document's chunks in the collection's count are replaced.
async fn set_indexed(
    connection: &mut DbConnection,
    about: &About<'_>,
    version: &str,
    chunks: i64,
    embedding: &Embedding<'_>,
) -> Result<(), StoreError> {
    let chunks = chunks.clamp(0, MAX_CHUNKS);
    let before = sqlx::query("SELECT indexed_version, indexed_chunks FROM documents WHERE document_id = $1")
        .bind(about.document_id.to_string())
        .fetch_optional(&mut *connection)
        .await?;
    // A document that was removed while this version was on its way to the indexes has no row any more.
    let Some(before) = before else { return Ok(()) };
    let was_indexed = before.try_get::<Option<String>, _>("indexed_version")?.is_some();
    let chunks_before: i64 = before.try_get("indexed_chunks")?;
    sqlx::query("UPDATE documents SET indexed_version = $2, indexed_chunks = $3 WHERE document_id = $1")
        .bind(about.document_id.to_string())
        .bind(storable(version))
        .bind(chunks)
        .execute(&mut *connection)
        .await?;
    let more_documents = i64::from(!was_indexed);
    let collection = Collection::new(about.namespace.clone(), about.collection.clone());
    count_in_collection(connection, &collection, more_documents, chunks - chunks_before).await?;
    note_embedding(connection, &collection, (embedding.model, embedding.dimensions), about.at).await
}

pub(crate) async fn count_in_collection(
    connection: &mut DbConnection,
    collection: &Collection,
    documents: i64,
    chunks: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO collections (namespace, name, documents, chunks, embed_model, dimensions, updated_at) VALUES ($1, $2, $3, $4, '', 0, 0)
         ON CONFLICT (namespace, name) DO UPDATE SET documents = collections.documents + excluded.documents, chunks = collections.chunks + excluded.chunks",
    )
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .bind(documents)
    .bind(chunks)
    .execute(connection)
    .await?;
    Ok(())
}

/// Keeps what the newest document, or the whole collection after it, was embedded with; of two at the same time that with the
/// greater name, so that the order in which the partitions are read does not show.
pub(crate) async fn note_embedding(
    connection: &mut DbConnection,
    collection: &Collection,
    (model, dimensions): (&str, i32),
    at: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE collections SET embed_model = $3, dimensions = $4, updated_at = $5
         WHERE namespace = $1 AND name = $2
           AND (updated_at < $5 OR (updated_at = $5 AND (embed_model < $3 OR (embed_model = $3 AND dimensions < $4))))",
    )
    .bind(collection.namespace.as_str())
    .bind(collection.name.as_str())
    .bind(storable(model))
    .bind(i64::from(dimensions))
    .bind(at)
    .execute(connection)
    .await?;
    Ok(())
}
