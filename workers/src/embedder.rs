//! The embedder: from chunks to chunks with vectors.
//!
//! Several batches, of whatever documents, go to the model together, but for chunks that their document had before ([`reuse`]). A model
//! that is away is waited for; when the runtime gives a batch up, its document ends as failed with the model's own code, message and fix.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riverrun_knowledge::chunking::{Late, MAX_DIMENSIONS};
use riverrun_knowledge::{LanguageModels, charged_to};
use riverrun_log::{BlobStore, Outgoing};
use riverrun_models::{Account, EmbedPurpose, EmbedReply, ModelError, Purpose, SpansRequest};
use riverrun_schemas::ingest::{
    ChunkEvent, ChunksEmbedded, ChunksReady, ChunksWithdrawn, DocumentEmbedded, DocumentFailed, EmbeddedChunk,
    EmbeddingEvent, EmbeddingsWithdrawn, IngestEvent,
};
use riverrun_schemas::{BlobRef, DocumentId, Envelope, EventSet, IngestId, Namespace, counted};
use riverrun_stores::VectorStore;

use crate::about::about;
use crate::failures::{failure_of, reason};
use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};

mod reuse;

use reuse::{Plan, Reuse};

const NAME: &str = "embedder";

/// The value of [`DocumentFailed::stage`].
const STAGE: &str = "embed";

/// Batches that are embedded together, and how long the first of them waits for others: a model is fastest with many texts.
const MAX_BATCH: usize = 16;
const MAX_WAIT: Duration = Duration::from_millis(10);

/// Failed documents that are remembered, so that their last batch does not claim that all of them has vectors.
const MAX_FAILED: usize = 10_000;

/// Embeds chunks.
pub struct Embedder {
    models: Arc<dyn LanguageModels>,
    blobs: Option<Arc<dyn BlobStore>>,
    reuse: Reuse,
    failed: Mutex<Failed>,
}

#[derive(Default)]
struct Failed {
    documents: HashSet<(IngestId, DocumentId)>,
    order: VecDeque<(IngestId, DocumentId)>,
}

type ReadyDelivery<'d> = (&'d ChunksReady, &'d Envelope);

impl Embedder {
    /// An embedder with these models.
    pub fn new(models: Arc<dyn LanguageModels>) -> Self {
        Self { models, blobs: None, reuse: Reuse::default(), failed: Mutex::default() }
    }

    /// The same, with the texts that chunks are embedded within (late chunking).
    pub fn with_texts(mut self, blobs: Arc<dyn BlobStore>) -> Self {
        self.blobs = Some(blobs);
        self
    }

    /// The same, with the vectors that documents have already: what stayed of a document is not embedded again.
    pub fn with_vectors(mut self, store: Arc<dyn VectorStore>) -> Self {
        self.reuse = Reuse::of(store);
        self
    }

    /// Embeds batches of one model, as far as they are new.
    async fn embed(&self, model: &str, group: &[ReadyDelivery<'_>]) -> Result<Vec<Outgoing>, WorkError> {
        let mut batches = Vec::with_capacity(group.len());
        for (ready, _) in group {
            batches.push((*ready, self.reuse.known(ready).await));
        }
        let mut plans = Plan::all(batches);
        // Neighbours are of one namespace.
        let models = match group.first() {
            Some((ready, _)) => self.models_for(ready),
            None => return Ok(Vec::new()),
        };
        let made = fill(models.as_ref(), model, &mut plans).await?;
        plans.iter().for_each(Plan::prove);
        let dimensions = made.or_else(|| plans.iter().find_map(Plan::dimensions)).unwrap_or(0);
        plans.iter_mut().for_each(|plan| plan.settle(dimensions));
        fill(models.as_ref(), model, &mut plans).await?;
        let mut out = Vec::new();
        for ((ready, cause), plan) in group.iter().zip(plans) {
            let lacking = || WorkError::retry("vectors_missing", format!("chunks of {} have no vector", ready.source));
            let vectors = plan.finished().ok_or_else(lacking)?;
            out.extend(self.say(ready, &vectors, dimensions as i32, cause)?);
        }
        Ok(out)
    }

    /// The models, charged to the namespace of a document.
    fn models_for(&self, ready: &ChunksReady) -> Arc<dyn LanguageModels> {
        charged_to(&self.models, Account::of(&ready.namespace, Purpose::Ingest))
    }

    /// Embeds a batch within the text that it stands in.
    async fn embed_within(
        &self,
        ready: &ChunksReady,
        context: &BlobRef,
        cause: &Envelope,
    ) -> Result<Vec<Outgoing>, WorkError> {
        let Some(blobs) = &self.blobs else {
            let fix =
                "set RIVERRUN_S3_BUCKET for the embedders as the whole cluster has it, and ingest the document again";
            let what = format!(
                "{} is to be embedded within its text, and this worker has no blobs to read it from",
                ready.source
            );
            return Err(WorkError::poison("text_missing", reason(what, Some(fix))));
        };
        let bytes = blobs.get(context).await?;
        let within = std::str::from_utf8(&bytes).ok().and_then(|text| {
            let (bytes, spans) = Late::context(text, &ready.chunks)?;
            Some((text[bytes].to_owned(), spans))
        });
        let Some((text, spans)) = within else {
            let what = format!("the chunks of {} are not of its stored text", ready.source);
            return Err(WorkError::poison("text_damaged", reason(what, Some("ingest the document again"))));
        };
        let (model, count) = (ready.embed_model.clone(), spans.len());
        let reply = self.models_for(ready).embed_spans(SpansRequest { model: model.clone(), text, spans }).await;
        let reply = reply.and_then(|reply| usable(&model, reply, count)).map_err(|error| work_error(&error))?;
        self.say(ready, &reply.vectors, reply.dimensions as i32, cause)
    }

    /// The batch with its vectors and, when it is the last one, that the document is done here.
    fn say(
        &self,
        ready: &ChunksReady,
        vectors: &[Vec<f32>],
        dimensions: i32,
        cause: &Envelope,
    ) -> Result<Vec<Outgoing>, WorkError> {
        let chunks = ready
            .chunks
            .iter()
            .cloned()
            .zip(vectors)
            .map(|(chunk, vector)| EmbeddedChunk::new(chunk, vector))
            .collect();
        let batch = about!(
            ready,
            ChunksEmbedded {
                version: ready.version.clone(),
                embed_model: ready.embed_model.clone(),
                batch: ready.batch,
                batches: ready.batches,
                metadata_json: ready.metadata_json.clone(),
                dimensions,
                chunks,
            }
        );
        let mut out = vec![outgoing(EmbeddingEvent::from(batch), cause)?];
        if ready.batch + 1 == ready.batches && !self.has_failed(ready) {
            // Without its batches the count of chunks is in the last ordinal.
            let chunks = ready.chunks.last().map_or(0, |chunk| i64::from(chunk.ordinal) + 1);
            let event = about!(ready, DocumentEmbedded { version: ready.version.clone(), chunks, dimensions });
            out.push(outgoing(IngestEvent::from(event), cause)?);
        }
        Ok(out)
    }

    fn has_failed(&self, ready: &ChunksReady) -> bool {
        self.failed.lock().documents.contains(&(ready.ingest_id, ready.document_id))
    }
}

/// Embeds what has no vector yet; the length of the vectors, where something had none.
async fn fill(models: &dyn LanguageModels, model: &str, plans: &mut [Plan]) -> Result<Option<usize>, WorkError> {
    let texts: Vec<String> = plans.iter().flat_map(|plan| plan.lacking().cloned()).collect();
    if texts.is_empty() {
        return Ok(None);
    }
    let reply = vectors(models, model, texts).await.map_err(|error| work_error(&error))?;
    let mut made = reply.vectors.into_iter();
    plans.iter_mut().for_each(|plan| plan.fill(&mut made));
    Ok(Some(reply.dimensions))
}

/// One usable vector for every text.
pub(crate) async fn vectors(
    models: &dyn LanguageModels,
    model: &str,
    texts: Vec<String>,
) -> Result<EmbedReply, ModelError> {
    let count = texts.len();
    usable(model, models.embed(Some(model), texts, EmbedPurpose::Document).await?, count)
}

fn usable(model: &str, reply: EmbedReply, count: usize) -> Result<EmbedReply, ModelError> {
    if reply.truncated > 0 {
        tracing::warn!(
            model,
            chunks = reply.truncated,
            "chunks are longer than the model reads and only their beginning was embedded; lower RIVERRUN_CHUNK_SIZE"
        );
    }
    let defect = |reason: String| ModelError::BadResponse { provider: model.to_owned(), status: Some(200), reason };
    if reply.vectors.len() != count {
        return Err(defect(format!("{} came for {}", counted(reply.vectors.len(), "vector"), counted(count, "text"))));
    }
    if reply.dimensions == 0 || reply.dimensions > MAX_DIMENSIONS {
        return Err(defect(format!(
            "vectors have {} dimensions, which is not between 1 and {MAX_DIMENSIONS}",
            reply.dimensions
        )));
    }
    let is_usable = |vector: &Vec<f32>| vector.len() == reply.dimensions && vector.iter().all(|x| x.is_finite());
    match reply.vectors.iter().position(|vector| !is_usable(vector)) {
        Some(at) => Err(defect(format!("vector {at} has a wrong length or a number that is not finite"))),
        None => Ok(reply),
    }
}

impl Failed {
    fn insert(&mut self, document: (IngestId, DocumentId)) {
        if self.documents.insert(document) {
            self.order.push_back(document);
        }
        if self.order.len() > MAX_FAILED
            && let Some(oldest) = self.order.pop_front()
        {
            self.documents.remove(&oldest);
        }
    }
}

#[async_trait]
impl Worker for Embedder {
    type Input = ChunkEvent;

    fn name(&self) -> &'static str {
        NAME
    }

    fn lanes(&self) -> Lanes {
        Lanes::PerPartition { max_batch: MAX_BATCH, max_wait: MAX_WAIT }
    }

    async fn handle(&self, batch: &[Delivery<ChunkEvent>], _context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let mut out = Vec::new();
        // Neighbours of one model and namespace go together; the order of a document's batches, and of its end, stays.
        for group in batch.chunk_by(|a, b| work_of(a).is_some() && work_of(a) == work_of(b)) {
            let mut ready: Vec<ReadyDelivery<'_>> = Vec::with_capacity(group.len());
            for delivery in group {
                match &delivery.event {
                    ChunkEvent::ChunksReady(event) => ready.push((event, &delivery.envelope)),
                    ChunkEvent::ChunksWithdrawn(event) => {
                        out.push(outgoing(EmbeddingEvent::from(passed_on(event)), &delivery.envelope)?);
                    }
                }
            }
            // Those within a text are one text each, and come where they stand among the others.
            for part in ready.chunk_by(|(a, _), (b, _)| a.context.is_none() && b.context.is_none()) {
                let Some((first, cause)) = part.first() else { continue };
                match &first.context {
                    Some(context) => out.extend(self.embed_within(first, context, cause).await?),
                    None => out.extend(self.embed(&first.embed_model, part).await?),
                }
            }
        }
        Ok(out)
    }

    fn dead(&self, delivery: &Delivery<ChunkEvent>, code: &str, reason: &str) -> Vec<Outgoing> {
        let failure = failure_of(code, reason);
        let ready = match &delivery.event {
            ChunkEvent::ChunksReady(ready) => ready,
            // Nothing in it can fail but the writing; what was indexed must go in any case.
            ChunkEvent::ChunksWithdrawn(event) => {
                let event = EmbeddingEvent::from(passed_on(event));
                return outgoing(event, &delivery.envelope).into_iter().collect();
            }
        };
        self.failed.lock().insert((ready.ingest_id, ready.document_id));
        let event = about!(ready, DocumentFailed { stage: STAGE.to_owned(), error: failure });
        outgoing(IngestEvent::from(event), &delivery.envelope).into_iter().collect()
    }
}

/// The model that a batch is to be embedded with, and for whom; `None` for what is only passed on.
fn work_of(delivery: &Delivery<ChunkEvent>) -> Option<(&str, &Namespace)> {
    match &delivery.event {
        ChunkEvent::ChunksReady(ready) => Some((ready.embed_model.as_str(), &ready.namespace)),
        ChunkEvent::ChunksWithdrawn(_) => None,
    }
}

fn passed_on(event: &ChunksWithdrawn) -> EmbeddingsWithdrawn {
    about!(event, EmbeddingsWithdrawn { tables: event.tables, rows: event.rows })
}

/// Whether waiting can help: the model comes back, is fetched, or the operator sets a key.
pub(crate) fn may_pass(error: &ModelError) -> bool {
    match error {
        ModelError::RuntimeDown { .. }
        | ModelError::ModelMissing { .. }
        | ModelError::ModelUnreadable { .. }
        | ModelError::Unauthorized { .. }
        | ModelError::RateLimited { .. }
        | ModelError::Timeout { .. }
        | ModelError::Cancelled
        | ModelError::Internal { .. } => true,
        ModelError::BadResponse { .. } => error.retryable(),
        ModelError::ContextOverflow { .. }
        | ModelError::BadRequest { .. }
        | ModelError::Unsupported { .. }
        | ModelError::UnknownProvider { .. }
        | ModelError::BadPrices { .. } => false,
    }
}

pub(crate) fn work_error(error: &ModelError) -> WorkError {
    let reason = reason(error, error.hint());
    if may_pass(error) { WorkError::retry(error.code(), reason) } else { WorkError::poison(error.code(), reason) }
}

fn outgoing<E: EventSet>(event: E, cause: &Envelope) -> Result<Outgoing, WorkError> {
    Outgoing::caused_by(&event, NAME, cause).map_err(|error| {
        let fix = "ingest with a smaller RIVERRUN_CHUNK_SIZE, or with an embedding model of fewer dimensions";
        WorkError::poison(error.code(), reason(&error, Some(fix)))
    })
}

#[cfg(test)]
mod tests;
