//! The indexer: from chunks with vectors to chunks that can be found.
//!
//! A batch of records goes into both indexes and is made durable once, together with what other lanes bring meanwhile; only
//! then does it say of a document that it is indexed. With the last batch of a version the chunks of other versions go. Everything may be done twice: chunks have
//! derived ids.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riverrun_log::Outgoing;
use riverrun_schemas::ingest::{
    ChunksEmbedded, DocumentDeleted, DocumentFailed, DocumentIndexed, EmbeddedChunk, EmbeddingEvent,
    EmbeddingsWithdrawn, IngestEvent,
};
use riverrun_schemas::{Collection, Envelope, Failure, counted};
use riverrun_stores::{KeywordIndex, StoreError, StoredChunk, VectorPoint, VectorStore, Versions, metadata_tags};

use crate::about::about;
use crate::commits::{Commits, Fate};
use crate::failures::{failure_of, reason, store_failure};
use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};
use crate::turns::Turns;

const NAME: &str = "indexer";

/// The value of [`DocumentFailed::stage`].
const STAGE: &str = "index";

/// Records that are made durable together, and how long the first of them waits for others.
const MAX_BATCH: usize = 64;
const MAX_WAIT: Duration = Duration::from_millis(5);

/// Indexes chunks.
pub struct Indexer {
    vectors: Arc<dyn VectorStore>,
    keywords: Arc<dyn KeywordIndex>,
    turns: Turns,
    commits: Commits,
}

/// What was handed in, and the headers of its record.
type Handed<'d> = (&'d EmbeddingEvent, &'d Envelope);

/// What one record came to.
enum Written {
    /// Its chunks are in; others of the version follow.
    More,
    /// The version is whole; so many chunks of other versions went.
    Whole {
        /// Chunks of the version.
        chunks: i64,
        /// Chunks of other versions that were removed.
        removed: usize,
    },
    /// The document can't be taken in.
    Refused(Failure),
    /// The document is gone; so many of its chunks were there.
    Removed {
        /// In the vector store.
        vectors: usize,
        /// In the keyword index.
        keywords: usize,
    },
}

impl Indexer {
    /// An indexer of these two.
    pub fn new(vectors: Arc<dyn VectorStore>, keywords: Arc<dyn KeywordIndex>) -> Self {
        Self { vectors, keywords, turns: Turns::default(), commits: Commits::default() }
    }

    /// Takes its turns with these.
    pub fn with_turns(mut self, turns: Turns) -> Self {
        self.turns = turns;
        self
    }

    /// Who is alone with a collection: for whoever else writes to it.
    pub fn turns(&self) -> Turns {
        self.turns.clone()
    }

    /// Writes the records of one collection and makes them durable, alone with the collection (`VEC-2`, `KEY-2`).
    async fn index(&self, collection: &Collection, group: &[Handed<'_>]) -> Result<Vec<Outgoing>, StoreError> {
        let member = self.commits.join(collection);
        let written = loop {
            let turn = member.turn(&self.turns, collection).await;
            let written = self.write_all(collection, group).await?;
            if written.iter().any(|written| matches!(written, Written::Removed { .. })) {
                // Before anybody else writes: a collection that is empty may come back with another embedding model.
                self.commit(collection).await?;
                drop_if_empty(self.vectors.as_ref(), self.keywords.as_ref(), collection).await?;
                turn.committed();
                break written;
            }
            match member.fate(&turn.wrote()).await {
                Fate::Open(turn) => {
                    self.commit(collection).await?;
                    turn.committed();
                    break written;
                }
                Fate::Committed => break written,
                Fate::Lost => {}
            }
        };
        let said = group.iter().zip(written).filter_map(|((event, cause), written)| say(event, written, cause));
        Ok(said.collect())
    }

    async fn write_all(&self, collection: &Collection, group: &[Handed<'_>]) -> Result<Vec<Written>, StoreError> {
        let mut written = Vec::with_capacity(group.len());
        for (event, _) in group {
            written.push(match event {
                EmbeddingEvent::ChunksEmbedded(embedded) => self.write(collection, embedded).await?,
                EmbeddingEvent::EmbeddingsWithdrawn(gone) => self.withdraw(collection, gone).await?,
            });
        }
        Ok(written)
    }

    async fn commit(&self, collection: &Collection) -> Result<(), StoreError> {
        tokio::try_join!(flush_vectors(self.vectors.as_ref(), collection), self.keywords.commit(collection))?;
        Ok(())
    }

    /// Removes every chunk of the document.
    async fn withdraw(&self, collection: &Collection, gone: &EmbeddingsWithdrawn) -> Result<Written, StoreError> {
        // Only what is committed is counted.
        self.keywords.commit(collection).await?;
        let vectors = self.vectors.delete_document(collection, &gone.document_id, &Versions::All).await?;
        let keywords = self.keywords.delete_document(collection, &gone.document_id, &Versions::All).await?;
        Ok(Written::Removed { vectors, keywords })
    }

    async fn write(&self, collection: &Collection, embedded: &ChunksEmbedded) -> Result<Written, StoreError> {
        match self.try_write(collection, embedded).await {
            // A damaged index was set aside between two calls: the next try makes a new one.
            Err(error @ StoreError::NoCollection(_)) => Err(error),
            Err(error) if !error.retryable() => Ok(Written::Refused(store_failure(&error))),
            other => other,
        }
    }

    async fn try_write(&self, collection: &Collection, embedded: &ChunksEmbedded) -> Result<Written, StoreError> {
        let Some(points) = points(embedded) else {
            let message = format!(
                "batch {} of {} holds a vector that is not {} numbers",
                embedded.batch, embedded.source, embedded.dimensions
            );
            return Ok(Written::Refused(
                Failure::new("vector_damaged", message).with_hint("ingest the document again"),
            ));
        };
        if !points.is_empty() {
            self.vectors.ensure(collection, dimensions(embedded), &embedded.embed_model).await?;
            let chunks = points.iter().map(|point| point.chunk.clone()).collect();
            self.vectors.upsert(collection, points).await?;
            self.keywords.upsert(collection, chunks).await?;
        }
        if embedded.batch + 1 < embedded.batches {
            Ok(Written::More)
        } else {
            self.complete(collection, embedded).await
        }
    }

    /// With the last batch every chunk of the version must be there; one that is not failed on its way.
    async fn complete(&self, collection: &Collection, embedded: &ChunksEmbedded) -> Result<Written, StoreError> {
        let document = &embedded.document_id;
        let this = Versions::Only(embedded.version.clone());
        let expected = embedded.chunks.last().map_or(0, |chunk| i64::from(chunk.ordinal) + 1);
        let there = i64::try_from(self.vectors.count_document(collection, document, &this).await?).unwrap_or(i64::MAX);
        if there < expected {
            self.remove(collection, embedded, &this).await?;
            let chunks = counted(expected, "chunk");
            let message = format!("only {there} of {chunks} of {} came to the index", embedded.source);
            return Ok(Written::Refused(
                Failure::new("chunks_missing", message).with_hint("ingest the document again"),
            ));
        }
        let removed = self.remove(collection, embedded, &Versions::Except(embedded.version.clone())).await?;
        Ok(Written::Whole { chunks: expected, removed })
    }

    async fn remove(
        &self,
        collection: &Collection,
        embedded: &ChunksEmbedded,
        versions: &Versions,
    ) -> Result<usize, StoreError> {
        let removed = self.vectors.delete_document(collection, &embedded.document_id, versions).await?;
        self.keywords.delete_document(collection, &embedded.document_id, versions).await?;
        Ok(removed)
    }
}

/// A collection whose last document went is no collection: it may come back with another embedding model.
pub(crate) async fn drop_if_empty(
    vectors: &dyn VectorStore,
    keywords: &dyn KeywordIndex,
    collection: &Collection,
) -> Result<(), StoreError> {
    if vectors.count(collection).await? == 0 && keywords.count(collection).await? == 0 {
        vectors.drop_collection(collection).await?;
        keywords.drop_collection(collection).await?;
        if let Some(shadows) = vectors.shadows() {
            shadows.drop_collection(collection).await?;
        }
    }
    Ok(())
}

/// Makes vectors durable, where there are any.
pub(crate) async fn flush_vectors(vectors: &dyn VectorStore, collection: &Collection) -> Result<(), StoreError> {
    match vectors.flush(collection).await {
        // Every document of the group was refused before the collection came to be.
        Err(StoreError::NoCollection(_)) => Ok(()),
        other => other,
    }
}

#[async_trait]
impl Worker for Indexer {
    type Input = EmbeddingEvent;

    fn name(&self) -> &'static str {
        NAME
    }

    fn lanes(&self) -> Lanes {
        Lanes::PerPartition { max_batch: MAX_BATCH, max_wait: MAX_WAIT }
    }

    async fn handle(&self, batch: &[Delivery<EmbeddingEvent>], _context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let mut out = Vec::new();
        for (collection, group) in by_collection(batch) {
            out.extend(
                self.index(&collection, &group)
                    .await
                    .map_err(|error| WorkError::retry(error.code(), reason(&error, error.hint())))?,
            );
        }
        Ok(out)
    }

    fn dead(&self, delivery: &Delivery<EmbeddingEvent>, code: &str, reason: &str) -> Vec<Outgoing> {
        let refused = Written::Refused(failure_of(code, reason));
        say(&delivery.event, refused, &delivery.envelope).into_iter().collect()
    }
}

/// The records of each collection, in their order: what belongs together is made durable together.
fn by_collection(batch: &[Delivery<EmbeddingEvent>]) -> Vec<(Collection, Vec<Handed<'_>>)> {
    let mut groups: Vec<(Collection, Vec<Handed<'_>>)> = Vec::new();
    for delivery in batch {
        let (namespace, name) = match &delivery.event {
            EmbeddingEvent::ChunksEmbedded(event) => (&event.namespace, &event.collection),
            EmbeddingEvent::EmbeddingsWithdrawn(event) => (&event.namespace, &event.collection),
        };
        let entry = (&delivery.event, &delivery.envelope);
        match groups.iter_mut().find(|(of, _)| of.namespace == *namespace && of.name == *name) {
            Some((_, group)) => group.push(entry),
            None => groups.push((Collection::new(namespace.clone(), name.clone()), vec![entry])),
        }
    }
    groups
}

fn dimensions(embedded: &ChunksEmbedded) -> usize {
    usize::try_from(embedded.dimensions).unwrap_or(0)
}

/// `None` when a vector is not as long as the batch says.
pub(crate) fn points(embedded: &ChunksEmbedded) -> Option<Vec<VectorPoint>> {
    let point = |chunk: &EmbeddedChunk| {
        let vector = chunk.floats().filter(|vector| vector.len() == dimensions(embedded))?;
        Some(VectorPoint { chunk: stored_chunk(embedded, chunk), vector })
    };
    embedded.chunks.iter().map(point).collect()
}

pub(crate) fn stored_chunk(embedded: &ChunksEmbedded, chunk: &EmbeddedChunk) -> StoredChunk {
    StoredChunk {
        chunk_id: chunk.chunk_id,
        document_id: embedded.document_id,
        version: embedded.version.clone(),
        source: embedded.source.clone(),
        ordinal: chunk.ordinal,
        start: chunk.start,
        end: chunk.end,
        text: chunk.text.clone(),
        page: chunk.page,
        heading: chunk.heading.clone(),
        tags: embedded.metadata_json.as_deref().map(metadata_tags).unwrap_or_default(),
        layer: chunk.layer,
        leaves: chunk.leaves.clone(),
    }
}

/// The document's terminal event, when the record leads to one.
fn say(event: &EmbeddingEvent, written: Written, cause: &Envelope) -> Option<Outgoing> {
    let (said, source) = match event {
        EmbeddingEvent::ChunksEmbedded(embedded) => (end_of(embedded, written)?, &embedded.source),
        EmbeddingEvent::EmbeddingsWithdrawn(gone) => (deleted(gone, &written)?, &gone.source),
    };
    // An event of a few short fields always fits.
    Outgoing::caused_by(&said, NAME, cause)
        .inspect_err(|error| tracing::error!(source, error = %error, "event can't be written"))
        .ok()
}

fn end_of(embedded: &ChunksEmbedded, written: Written) -> Option<IngestEvent> {
    Some(match written {
        Written::More | Written::Removed { .. } => return None,
        Written::Whole { chunks, removed } => about!(
            embedded,
            DocumentIndexed {
                version: embedded.version.clone(),
                chunks,
                removed_chunks: count(removed),
                embed_model: embedded.embed_model.clone(),
                dimensions: embedded.dimensions,
            }
        )
        .into(),
        Written::Refused(failure) => {
            about!(embedded, DocumentFailed { stage: STAGE.to_owned(), error: failure }).into()
        }
    })
}

/// Nothing is said of a removal that was given up: the document may still be found.
fn deleted(gone: &EmbeddingsWithdrawn, written: &Written) -> Option<IngestEvent> {
    let Written::Removed { vectors, keywords } = written else { return None };
    let (tables, rows) = (gone.tables, gone.rows);
    Some(about!(gone, DocumentDeleted { vectors: count(*vectors), keywords: count(*keywords), tables, rows }).into())
}

fn count(chunks: usize) -> i64 {
    i64::try_from(chunks).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
