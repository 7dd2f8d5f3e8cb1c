//! The rebuilder: keywords and vectors that were lost, damaged or are behind are made again from the log, beside searches, ingests and
//! removals.
//!
//! Chunks and vectors come from `ingest.embeddings`; where these are gone, or are of another model than the collection has, chunks (from
//! there or from `ingest.chunks`) are embedded anew. A document whose chunks are on neither is handed in again from its stored bytes.
//! Nothing is read from sources.
//!
//! - `REBUILD-1` at its end the indexes hold what the log says, document by document and version by version, or it says what the log has
//!   not any more;
//! - `REBUILD-2` a document that was removed, or a version that was replaced, never comes back: what is written was looked up on the log
//!   to its end while nobody else wrote to the collection;
//! - `REBUILD-3` it goes on after a crash: what is there and right is not written again.
//!
//! The collection is mended in place: what is found of it goes on being found.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_knowledge::LanguageModels;
use riverrun_log::Outgoing;
use riverrun_schemas::ingest::{
    CollectionRebuildFailed, CollectionRebuilding, CollectionRebuilt, IngestCommand, IngestEvent, RebuildCollection,
};
use riverrun_schemas::{Collection, Envelope, now_ms};
use riverrun_stores::{Gap, GapState, Gaps, KeywordIndex, VectorStore};
use tokio_util::sync::CancellationToken;

use crate::failures::failure_of;
use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};
use crate::turns::Turns;

mod batch;
mod fold;
mod follow;
mod mend;

use mend::{Done, Mend};

/// Its name among the workers.
pub const NAME: &str = "rebuilder";

/// Tries before a rebuild is given up, with up to a minute between them: a model or a server comes back meanwhile.
pub const MAX_ATTEMPTS: u32 = 20;

/// Collections that are worked on at a time.
const PARALLEL: usize = 2;
/// Documents that an end names.
const MAX_NAMED: usize = 100;

/// Makes collections again.
pub struct Rebuilder {
    vectors: Arc<dyn VectorStore>,
    keywords: Arc<dyn KeywordIndex>,
    models: Arc<dyn LanguageModels>,
    /// Shared with whoever else writes to collections.
    turns: Turns,
    /// Two requests for one collection wait for each other.
    requests: Turns,
    gaps: Gaps,
    stop: CancellationToken,
}

impl Rebuilder {
    /// A rebuilder of these two, which takes its turn with whoever else writes to them and tells in `gaps` what is not whole yet. When
    /// `stop` is cancelled it lets go at once: the next process goes on.
    pub fn new(
        vectors: Arc<dyn VectorStore>,
        keywords: Arc<dyn KeywordIndex>,
        models: Arc<dyn LanguageModels>,
        (turns, gaps): (Turns, Gaps),
        stop: CancellationToken,
    ) -> Self {
        Self { vectors, keywords, models, turns, requests: Turns::default(), gaps, stop }
    }

    async fn rebuild(
        &self,
        command: &RebuildCollection,
        cause: &Envelope,
        context: &Context,
    ) -> Result<Vec<Outgoing>, WorkError> {
        let collection = Collection::new(command.namespace.clone(), command.collection.clone());
        let request = self.requests.of(&collection);
        let _alone = request.lock().await;
        self.go_on()?;
        self.begin(command, &collection, cause, context).await?;
        if command.afresh {
            self.set_aside(&collection, true, true, "it is made again from nothing").await?;
            // Once: what follows completes what is there.
            let rest = RebuildCollection { afresh: false, ..command.clone() };
            return Ok(vec![self.outgoing(IngestCommand::from(rest), cause)?]);
        }
        self.examine(&collection).await?;
        let done = Mend::open(self, context, &collection, (command.ingest_id, cause)).await?.run().await?;
        self.tell(&collection, &done);
        Ok(vec![self.outgoing(IngestEvent::from(rebuilt(command, done)), cause)?])
    }

    /// The process goes on.
    fn go_on(&self) -> Result<(), WorkError> {
        if self.stop.is_cancelled() {
            return Err(WorkError::retry("stopped", "the process is stopping; the next one goes on"));
        }
        Ok(())
    }

    /// Says on the log that it is worked on, before anything is.
    async fn begin(
        &self,
        command: &RebuildCollection,
        collection: &Collection,
        cause: &Envelope,
        context: &Context,
    ) -> Result<(), WorkError> {
        let found = self.gaps.of(collection).map(|gap| gap.reason);
        let event = CollectionRebuilding {
            ingest_id: command.ingest_id,
            namespace: command.namespace.clone(),
            collection: command.collection.clone(),
            reason: found.unwrap_or_else(|| "it was asked for".to_owned()),
            at: now_ms(),
        };
        context.producer.send_one(self.outgoing(IngestEvent::from(event), cause)?).await?;
        Ok(())
    }

    /// Reads both indexes wholly; one that is damaged is set aside.
    async fn examine(&self, collection: &Collection) -> Result<(), WorkError> {
        let (vectors, keywords) = tokio::join!(self.vectors.verify(collection), self.keywords.verify(collection));
        for (verified, of_vectors) in [(vectors, true), (keywords, false)] {
            match verified {
                Ok(()) => {}
                Err(error) if error.is_damage() => {
                    self.set_aside(collection, of_vectors, !of_vectors, &error.to_string()).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn set_aside(
        &self,
        collection: &Collection,
        vectors: bool,
        keywords: bool,
        reason: &str,
    ) -> Result<(), WorkError> {
        let gap = Gap { reason: reason.to_owned(), state: GapState::Mending, elsewhere: false };
        self.gaps.note(collection, gap);
        let turn = self.turns.of(collection);
        let _alone = turn.lock().await;
        if vectors {
            self.vectors.set_aside(collection, reason).await?;
        }
        if keywords {
            self.keywords.set_aside(collection, reason).await?;
        }
        Ok(())
    }

    fn tell(&self, collection: &Collection, done: &Done) {
        let (vectors, keywords, embedded) = (done.vectors, done.keywords, done.embedded);
        tracing::info!(%collection, vectors, keywords, embedded, removed = done.removed, missing = done.missing.len(), "collection made again");
        if done.missing.is_empty() {
            self.gaps.close(collection);
            return;
        }
        let reason = format!(
            "the chunks of {} of its documents are not on the log any more and could not be made again from what was handed in; remove these \
             documents, ingest their sources again, and rebuild it",
            done.missing.len()
        );
        self.gaps.note(collection, Gap { reason, state: GapState::Stuck, elsewhere: false });
    }
}

#[async_trait]
impl Worker for Rebuilder {
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

    async fn handle(&self, batch: &[Delivery<IngestCommand>], context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let mut out = Vec::new();
        for delivery in batch {
            if let Some(command) = asked(&delivery.event) {
                out.extend(self.rebuild(command, &delivery.envelope, context).await?);
            }
        }
        Ok(out)
    }

    fn dead(&self, delivery: &Delivery<IngestCommand>, code: &str, reason: &str) -> Vec<Outgoing> {
        let Some(command) = asked(&delivery.event) else { return Vec::new() };
        let error = failure_of(code, reason);
        let collection = Collection::new(command.namespace.clone(), command.collection.clone());
        let reason = format!("it could not be made again: {}", error.message);
        self.gaps.note(&collection, Gap { reason, state: GapState::Stuck, elsewhere: false });
        let event = CollectionRebuildFailed {
            ingest_id: command.ingest_id,
            namespace: command.namespace.clone(),
            collection: command.collection.clone(),
            error,
            at: now_ms(),
        };
        self.outgoing(IngestEvent::from(event), &delivery.envelope).into_iter().collect()
    }
}

/// All other commands are others' work.
fn asked(command: &IngestCommand) -> Option<&RebuildCollection> {
    match command {
        IngestCommand::RebuildCollection(command) => Some(command),
        IngestCommand::StartIngest(_)
        | IngestCommand::SubmitDocument(_)
        | IngestCommand::DeleteDocument(_)
        | IngestCommand::DeleteCollection(_)
        | IngestCommand::ReembedCollection(_)
        | IngestCommand::TuneCollection(_)
        | IngestCommand::BuildTree(_) => None,
    }
}

fn rebuilt(command: &RebuildCollection, done: Done) -> CollectionRebuilt {
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    CollectionRebuilt {
        ingest_id: command.ingest_id,
        namespace: command.namespace.clone(),
        collection: command.collection.clone(),
        embed_model: done.model,
        documents: count(done.documents),
        chunks: count(done.chunks),
        vectors: count(done.vectors),
        keywords: count(done.keywords),
        embedded: count(done.embedded),
        removed: count(done.removed),
        missing: count(done.missing.len()),
        missing_documents: done.missing.into_iter().take(MAX_NAMED).collect(),
        at: now_ms(),
    }
}
