//! The reembedder: a collection gets another embedding model while it is searched and written to.
//!
//! Its chunks are embedded into a shadow of the collection; when nothing is missing there the two are swapped, alone with the
//! collection and at once (`VEC-3`). Nothing is read from sources again, and chunks keep their ids, so that the keyword index stays
//! as it is.
//!
//! - `REEMBED-1` searches find everything in the collection before, during and after the swap;
//! - `REEMBED-2` what was indexed or removed before the swap is so after it;
//! - `REEMBED-3` it goes on where it was after a crash: what the shadow has is not embedded again.
//!
//! The work is done in slices: after each the command is handed in again, so that no record is in work for long and a stop is quick.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use riverrun_knowledge::chunking::embedding_text_of;
use riverrun_knowledge::{LanguageModels, charged_to};
use riverrun_log::Outgoing;
use riverrun_models::{Account, Purpose};
use riverrun_schemas::ingest::{
    CollectionReembedFailed, CollectionReembedded, CollectionReembedding, IngestCommand, IngestEvent, ReembedCollection,
};
use riverrun_schemas::{ChunkId, Collection, DocumentId, Failure, now_ms};
use riverrun_stores::{CollectionInfo, StoreError, StoredChunk, VectorPoint, VectorStore, Versions};

use crate::embedder::{vectors, work_error};
use crate::failures::{failure_of, store_failure};
use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};
use crate::turns::Turns;

const NAME: &str = "reembedder";

/// Collections that are worked on at a time.
const PARALLEL: usize = 2;
/// Chunks that are embedded together.
const MAX_BATCH: usize = 64;
/// How long a slice lasts.
const SLICE: Duration = Duration::from_secs(30);

/// Embeds collections anew.
pub struct Reembedder {
    vectors: Arc<dyn VectorStore>,
    models: Arc<dyn LanguageModels>,
    /// Shared with whoever else writes to collections.
    turns: Turns,
    /// Two requests for one collection wait for each other.
    requests: Turns,
}

/// A collection, its shadow, and the model that the shadow has.
struct Job<'r> {
    reembedder: &'r Reembedder,
    shadows: Arc<dyn VectorStore>,
    collection: &'r Collection,
    model: &'r str,
}

/// How far a slice came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// Nothing is missing in the shadow.
    All,
    /// The slice is over.
    Part,
}

/// What a command comes to for now.
enum Came {
    /// It is handed in again, and this is said before.
    On(Option<IngestEvent>),
    /// It has ended.
    End(IngestEvent),
}

impl Reembedder {
    /// A reembedder of these collections, which takes its turn with whoever else writes to them.
    pub fn new(vectors: Arc<dyn VectorStore>, models: Arc<dyn LanguageModels>, turns: Turns) -> Self {
        Self { vectors, models, turns, requests: Turns::default() }
    }

    async fn reembed(&self, command: &ReembedCollection) -> Result<Came, WorkError> {
        let collection = Collection::new(command.namespace.clone(), command.collection.clone());
        let request = self.requests.of(&collection);
        let _alone = request.lock().await;
        let Some(shadows) = self.vectors.shadows() else {
            return Ok(Came::End(failed(command, store_failure(&StoreError::Unsupported("swap a collection")))));
        };
        let job = Job { reembedder: self, shadows, collection: &collection, model: &command.embed_model };
        match self.vectors.info(&collection).await {
            Ok(None) => {
                job.forget().await?;
                Ok(Came::End(failed(command, store_failure(&StoreError::NoCollection(collection.clone())))))
            }
            Ok(Some(info)) if info.model == command.embed_model => {
                // The swap was the last that was done of it, or there is nothing to do.
                job.forget().await?;
                Ok(Came::End(job.done(command, info.dimensions).await?))
            }
            Ok(Some(info)) => job.go_on(command, &info).await,
            Err(error) => Err(error.into()),
        }
    }
}

impl Job<'_> {
    /// The models, charged to the collection's namespace.
    fn models(&self) -> Arc<dyn LanguageModels> {
        charged_to(&self.reembedder.models, Account::of(&self.collection.namespace, Purpose::Ingest))
    }

    async fn go_on(&self, command: &ReembedCollection, info: &CollectionInfo) -> Result<Came, WorkError> {
        let there = self.shadows.info(self.collection).await?;
        let Some(shadow) = there.filter(|shadow| shadow.model == self.model) else {
            self.begin().await?;
            return Ok(Came::On(Some(self.begun(command, info).await?)));
        };
        let until = Instant::now() + SLICE;
        // First what is plainly missing, then, while others still write, whatever else differs.
        if self.copy(until, false).await? == Reached::Part || self.copy(until, true).await? == Reached::Part {
            return Ok(Came::On(None));
        }
        let turn = self.reembedder.turns.of(self.collection);
        let _alone = turn.lock().await;
        // Nobody writes now: what came since is little.
        if self.copy(until + SLICE, true).await? == Reached::Part {
            return Ok(Came::On(None));
        }
        self.reembedder.vectors.swap(self.collection).await?;
        Ok(Came::End(self.done(command, shadow.dimensions).await?))
    }

    /// Makes an empty shadow, with vectors as long as the model's.
    async fn begin(&self) -> Result<(), WorkError> {
        self.forget().await?;
        let probe = vectors(self.models().as_ref(), self.model, vec!["length".to_owned()]).await;
        let probe = probe.map_err(|error| work_error(&error))?;
        let made = self.shadows.ensure(self.collection, probe.dimensions, self.model).await;
        made.map_err(WorkError::from)
    }

    async fn forget(&self) -> Result<(), WorkError> {
        self.shadows.drop_collection(self.collection).await.map(drop).map_err(WorkError::from)
    }

    /// Brings the shadow to what the collection holds: by counts alone, or chunk by chunk. What was written is durable.
    async fn copy(&self, until: Instant, exactly: bool) -> Result<Reached, WorkError> {
        let copied = self.copy_documents(until, exactly).await;
        // Also what was done until an error counts.
        self.shadows.flush(self.collection).await?;
        copied
    }

    async fn copy_documents(&self, until: Instant, exactly: bool) -> Result<Reached, WorkError> {
        let wanted = self.documents(&self.reembedder.vectors).await?;
        let there = self.documents(&self.shadows).await?;
        for document in there.keys().filter(|document| !wanted.contains_key(*document)) {
            self.remove(document, &Versions::All).await?;
        }
        for (document, chunks) in &wanted {
            let differs = exactly || there.get(document) != Some(chunks);
            if differs && self.copy_document(document, until).await? == Reached::Part {
                return Ok(Reached::Part);
            }
        }
        Ok(Reached::All)
    }

    async fn documents(&self, store: &Arc<dyn VectorStore>) -> Result<BTreeMap<DocumentId, usize>, WorkError> {
        store.documents(self.collection).await.map_err(WorkError::from)
    }

    /// A chunk's id follows from document, version and span: the same id is the same chunk.
    async fn copy_document(&self, document: &DocumentId, until: Instant) -> Result<Reached, WorkError> {
        let wanted = self.chunks(&self.reembedder.vectors, document).await?;
        let there = self.chunks(&self.shadows, document).await?;
        let versions: BTreeSet<&str> = wanted.iter().map(|chunk| chunk.version.as_str()).collect();
        let gone: BTreeSet<&str> =
            there.iter().map(|chunk| chunk.version.as_str()).filter(|version| !versions.contains(version)).collect();
        for version in gone {
            self.remove(document, &Versions::Only(version.to_owned())).await?;
        }
        let known: HashSet<ChunkId> = there.iter().map(|chunk| chunk.chunk_id).collect();
        let missing: Vec<StoredChunk> = wanted.into_iter().filter(|chunk| !known.contains(&chunk.chunk_id)).collect();
        for batch in missing.chunks(MAX_BATCH) {
            self.embed(batch).await?;
            // Only what takes a model takes long.
            if Instant::now() >= until {
                return Ok(Reached::Part);
            }
        }
        Ok(Reached::All)
    }

    async fn chunks(&self, store: &Arc<dyn VectorStore>, document: &DocumentId) -> Result<Vec<StoredChunk>, WorkError> {
        store.chunks(self.collection, document).await.map_err(WorkError::from)
    }

    async fn embed(&self, chunks: &[StoredChunk]) -> Result<(), WorkError> {
        let texts = chunks.iter().map(|chunk| embedding_text_of(chunk.heading.as_deref(), &chunk.text)).collect();
        let reply = vectors(self.models().as_ref(), self.model, texts).await;
        let reply = reply.map_err(|error| work_error(&error))?;
        let points = chunks.iter().cloned().zip(reply.vectors).map(|(chunk, vector)| VectorPoint { chunk, vector });
        self.shadows.upsert(self.collection, points.collect()).await.map_err(WorkError::from)
    }

    async fn remove(&self, document: &DocumentId, versions: &Versions) -> Result<(), WorkError> {
        let removed = self.shadows.delete_document(self.collection, document, versions).await;
        removed.map(drop).map_err(WorkError::from)
    }

    async fn counts(&self) -> Result<(i64, i64), WorkError> {
        let documents = self.documents(&self.reembedder.vectors).await?;
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        Ok((count(documents.len()), count(documents.values().sum())))
    }

    async fn begun(&self, command: &ReembedCollection, info: &CollectionInfo) -> Result<IngestEvent, WorkError> {
        let (documents, chunks) = self.counts().await?;
        let event = CollectionReembedding {
            ingest_id: command.ingest_id,
            namespace: command.namespace.clone(),
            collection: command.collection.clone(),
            from_model: info.model.clone(),
            embed_model: command.embed_model.clone(),
            documents,
            chunks,
            at: now_ms(),
        };
        Ok(event.into())
    }

    async fn done(&self, command: &ReembedCollection, dimensions: usize) -> Result<IngestEvent, WorkError> {
        let (documents, chunks) = self.counts().await?;
        let event = CollectionReembedded {
            ingest_id: command.ingest_id,
            namespace: command.namespace.clone(),
            collection: command.collection.clone(),
            embed_model: command.embed_model.clone(),
            dimensions: i32::try_from(dimensions).unwrap_or(i32::MAX),
            documents,
            chunks,
            at: now_ms(),
        };
        Ok(event.into())
    }
}

#[async_trait]
impl Worker for Reembedder {
    type Input = IngestCommand;

    fn name(&self) -> &'static str {
        NAME
    }

    /// The ingester does.
    fn answers_for_topic(&self) -> bool {
        false
    }

    fn lanes(&self) -> Lanes {
        Lanes::PerKey { parallel: PARALLEL, max_batch: 1 }
    }

    async fn handle(&self, batch: &[Delivery<IngestCommand>], _context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let mut out = Vec::new();
        for delivery in batch {
            let command = match &delivery.event {
                IngestCommand::ReembedCollection(command) => command,
                // The ingester's, the rebuilder's and the tuner's.
                IngestCommand::StartIngest(_)
                | IngestCommand::SubmitDocument(_)
                | IngestCommand::DeleteDocument(_)
                | IngestCommand::DeleteCollection(_)
                | IngestCommand::RebuildCollection(_)
                | IngestCommand::TuneCollection(_)
                | IngestCommand::BuildTree(_) => continue,
            };
            let cause = &delivery.envelope;
            match self.reembed(command).await? {
                Came::On(said) => {
                    if let Some(event) = said {
                        out.push(self.outgoing(event, cause)?);
                    }
                    out.push(self.outgoing(IngestCommand::from(command.clone()), cause)?);
                }
                Came::End(event) => out.push(self.outgoing(event, cause)?),
            }
        }
        Ok(out)
    }

    fn dead(&self, delivery: &Delivery<IngestCommand>, code: &str, reason: &str) -> Vec<Outgoing> {
        let IngestCommand::ReembedCollection(command) = &delivery.event else { return Vec::new() };
        self.outgoing(failed(command, failure_of(code, reason)), &delivery.envelope).into_iter().collect()
    }
}

fn failed(command: &ReembedCollection, error: Failure) -> IngestEvent {
    CollectionReembedFailed {
        ingest_id: command.ingest_id,
        namespace: command.namespace.clone(),
        collection: command.collection.clone(),
        embed_model: command.embed_model.clone(),
        error,
        at: now_ms(),
    }
    .into()
}
