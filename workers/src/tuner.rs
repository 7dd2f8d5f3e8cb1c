//! The tuner: the searches of a collection learn from judgements where the vector of a question should point.
//!
//! Nothing of the collection changes: what is learned is a matrix that vectors of questions pass through ([`QueryAdapter`]). Whether it
//! helps is told by cross-validation, with the searches that everyone has: each question is searched with a matrix that was fitted to the
//! questions of other parts. A matrix that does not help is not used.
//!
//! - `JUDGE-1` a tuning that fails, or does not help, leaves the searches as they would be without;
//! - `JUDGE-2` the same judgements over the same chunks give the same matrix, in whatever order they came;
//! - `JUDGE-3` a collection that was removed, or got another embedding model, while it was learned from is not searched with that.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use riverrun_knowledge::retrieval::{JudgedQuestion, QueryAdapter};
use riverrun_knowledge::{LanguageModels, charged_to};
use riverrun_log::{BlobStore, Outgoing};
use riverrun_models::{Account, Purpose};
use riverrun_schemas::ingest::{
    CollectionTuneFailed, CollectionTuned, CollectionTuning, IngestCommand, IngestEvent, SearchGain, TuneCollection,
};
use riverrun_schemas::{BlobRef, Collection, Failure, now_ms};
use riverrun_stores::{CollectionInfo, KeywordIndex, StoreError, VectorStore};
use tokio::sync::Mutex;

use crate::failures::{failure_of, store_failure};
use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};

mod learning;
mod proving;

use learning::Material;

/// The name of its consumer group.
pub const NAME: &str = "tuner";
/// Requests that are in work at a time, so that each soon says that it is. Learned is from one after the other.
const PARALLEL: usize = 4;

/// Tunes collections.
pub struct Tuner {
    vectors: Arc<dyn VectorStore>,
    keywords: Arc<dyn KeywordIndex>,
    models: Arc<dyn LanguageModels>,
    blobs: Arc<dyn BlobStore>,
    /// Whoever learns takes what cores there are.
    learning: Mutex<()>,
}

/// A tuning that ended, one way or the other.
type Ended = Result<IngestEvent, Failure>;

impl Tuner {
    /// A tuner of these collections.
    pub fn new(
        vectors: Arc<dyn VectorStore>,
        keywords: Arc<dyn KeywordIndex>,
        models: Arc<dyn LanguageModels>,
        blobs: Arc<dyn BlobStore>,
    ) -> Self {
        Self { vectors, keywords, models, blobs, learning: Mutex::default() }
    }

    async fn tune(
        &self,
        command: &TuneCollection,
        delivery: &Delivery<IngestCommand>,
        context: &Context,
    ) -> Result<Ended, WorkError> {
        let Some(judgements) = &command.judgements else {
            return Ok(Ok(tuned(command, String::new(), None, 0, Vec::new())));
        };
        // What is removed from now on is not what is learned from.
        let at = now_ms();
        let collection = Collection::new(command.namespace.clone(), command.collection.clone());
        let Some(info) = self.vectors.info(&collection).await? else {
            return Ok(Err(store_failure(&StoreError::NoCollection(collection))));
        };
        if info.dimensions > QueryAdapter::MAX_DIMENSIONS {
            let (has, most) = (info.dimensions, QueryAdapter::MAX_DIMENSIONS);
            let message = format!("vectors of {:?} have {has} numbers; at most {most} are tuned", info.model);
            return Ok(Err(Failure::new("vectors_too_long", message)));
        }
        let judged = match self.judgements(judgements).await? {
            Ok(judged) => judged,
            Err(failure) => return Ok(Err(failure)),
        };
        let judged = learning::answerable(self.vectors.as_ref(), &collection, judged).await?;
        if judged.len() < JudgedQuestion::MIN {
            return Ok(Err(too_few(judged.len())));
        }
        let begun = CollectionTuning {
            ingest_id: command.ingest_id,
            namespace: command.namespace.clone(),
            collection: command.collection.clone(),
            queries: count(judged.len()),
            at,
        };
        context.producer.send_one(self.outgoing(IngestEvent::from(begun), &delivery.envelope)?).await?;
        let _alone = self.learning.lock().await;
        let models = charged_to(&self.models, Account::of(&collection.namespace, Purpose::Search));
        let material = learning::gather(self.vectors.as_ref(), models.as_ref(), &info, judged).await?;
        let questions = material.questions.len();
        if questions < JudgedQuestion::MIN {
            return Ok(Err(too_few(questions)));
        }
        let material = Arc::new(material);
        let gains = proving::gains(self, models, &info, &material).await?;
        let adapter = match helps(&gains) {
            true => Some(self.keep(material.clone()).await?),
            false => None,
        };
        Ok(match self.changed(&info).await? {
            Some(failure) => Err(failure),
            None => Ok(tuned(command, info.model, adapter, count(questions), gains)),
        })
    }

    /// What became of the collection meanwhile, where it is not what was learned from (`JUDGE-3`).
    async fn changed(&self, info: &CollectionInfo) -> Result<Option<Failure>, WorkError> {
        let now = self.vectors.info(&info.collection).await?;
        Ok(match now {
            Some(now) if now == *info => None,
            Some(now) => Some(changed(info, &now.model)),
            None => Some(store_failure(&StoreError::NoCollection(info.collection.clone()))),
        })
    }

    async fn judgements(&self, blob: &BlobRef) -> Result<Result<Vec<JudgedQuestion>, Failure>, WorkError> {
        let bytes = match self.blobs.get(blob).await {
            Ok(bytes) => bytes,
            Err(error) if error.retryable() => return Err(error.into()),
            Err(error) => return Ok(Err(Failure::new(error.code(), format!("the judgements can't be read: {error}")))),
        };
        let bad = |reason: String| Failure::new("bad_judgements", reason);
        let judged = match serde_json::from_slice::<Vec<JudgedQuestion>>(&bytes) {
            Ok(judged) => judged,
            Err(error) => return Ok(Err(bad(format!("the judgements can't be read: {error}")))),
        };
        // The API looks at them before, and whoever writes to the log may not have.
        Ok(match JudgedQuestion::fault(&judged) {
            Some(reason) => Err(bad(format!("the judgements can't be learned from: {reason}"))),
            None => Ok(judged),
        })
    }

    /// Fits a matrix to all questions, and keeps it.
    async fn keep(&self, material: Arc<Material>) -> Result<BlobRef, WorkError> {
        let adapter = material.fit_in_background(|_| true).await?;
        let kept = self.blobs.put_bytes(Bytes::from(adapter.to_bytes()), QueryAdapter::MEDIA_TYPE).await;
        kept.map_err(WorkError::from)
    }
}

/// Whether nDCG@10 is higher, as a mean over the ways of searching.
fn helps(gains: &[SearchGain]) -> bool {
    gains.iter().map(|gain| gain.ndcg_after - gain.ndcg_before).sum::<f64>() > 0.0
}

fn changed(info: &CollectionInfo, model: &str) -> Failure {
    let (what, before) = (info.collection.quoted(), &info.model);
    Failure::new(
        "collection_changed",
        format!("{what} got vectors of {model:?} while those of {before:?} were learned from"),
    )
    .with_hint("tune it again")
}

/// A collection that is gone is no dead letter: the next try says so.
fn read_error(error: StoreError) -> WorkError {
    match error {
        StoreError::NoCollection(_) => WorkError::retry(error.code(), &error),
        _ => error.into(),
    }
}

fn too_few(questions: usize) -> Failure {
    let message = format!(
        "{questions} judged questions have a relevant document in the collection; tuning needs {}",
        JudgedQuestion::MIN
    );
    Failure::new("too_few_judgements", message)
        .with_hint("judge more questions, and ingest the documents that are judged")
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn tuned(
    command: &TuneCollection,
    embed_model: String,
    adapter: Option<BlobRef>,
    queries: i64,
    gains: Vec<SearchGain>,
) -> IngestEvent {
    CollectionTuned {
        ingest_id: command.ingest_id,
        namespace: command.namespace.clone(),
        collection: command.collection.clone(),
        embed_model,
        adapter,
        queries,
        gains,
        at: now_ms(),
    }
    .into()
}

fn failed(command: &TuneCollection, error: Failure) -> IngestEvent {
    CollectionTuneFailed {
        ingest_id: command.ingest_id,
        namespace: command.namespace.clone(),
        collection: command.collection.clone(),
        error,
        at: now_ms(),
    }
    .into()
}

#[async_trait]
impl Worker for Tuner {
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
            let IngestCommand::TuneCollection(command) = &delivery.event else { continue };
            let event = self.tune(command, delivery, context).await?.unwrap_or_else(|error| failed(command, error));
            out.push(self.outgoing(event, &delivery.envelope)?);
        }
        Ok(out)
    }

    fn dead(&self, delivery: &Delivery<IngestCommand>, code: &str, reason: &str) -> Vec<Outgoing> {
        let IngestCommand::TuneCollection(command) = &delivery.event else { return Vec::new() };
        self.outgoing(failed(command, failure_of(code, reason)), &delivery.envelope).into_iter().collect()
    }
}
