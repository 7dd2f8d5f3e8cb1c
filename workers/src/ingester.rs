//! The ingester: from a path to documents, from a document to chunks.
//!
//! `StartIngest` is read into `SubmitDocument` commands, one a document, whose bytes are in the blob store; each of them
//! becomes `DocumentChunked` and `ChunksReady`, or `DocumentUnchanged`, or `DocumentFailed`. What a document was last is
//! asked of the log, never of a read model ([`history`]).

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use riverrun_knowledge::LanguageModels;
use riverrun_knowledge::chunking::{self, Chunker, LATE, RAPTOR, Sizing};
use riverrun_knowledge::sources::{self, Access, ExtractedText, Limits, Source, SourceError, SourceSecrets};
use riverrun_knowledge::web::{GuardedClient, WebPolicy};
use riverrun_log::{BlobError, BlobStore, LogConfig, LogError, Outgoing, Schemas, TopicPartition};
use riverrun_schemas::ingest::{
    Chunk, ChunkEvent, ChunksReady, DeleteCollection, DeleteDocument, DocumentChunked, DocumentFailed, DocumentQueued,
    DocumentUnchanged, IngestCommand, IngestEvent, IngestFailed, IngestScanned, StartIngest, SubmitDocument,
    document_id,
};
use riverrun_schemas::{BlobRef, Collection, Envelope, Failure, now_ms};
use riverrun_stores::WarehouseLoader;

use crate::about::about;
use crate::failures::failure_of;
use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};

mod batches;
pub mod history;
mod measures;
mod query;
mod reading;
mod removal;
mod tables;
mod tree;

use batches::ready_batches;
use history::{Decision, History};
use measures::Measures;
use reading::{Read, Reading};
use removal::Removal;
use tables::Tables;

const NAME: &str = "ingester";

/// The value of [`DocumentFailed::stage`].
const STAGE: &str = "ingest";

/// Settings of the ingester.
#[derive(Debug, Clone)]
pub struct IngesterConfig {
    /// How much one request may read.
    pub limits: Limits,
    /// Requests and documents that are worked on at a time.
    pub parallel: usize,
    /// Which hosts may be asked for pages and repositories.
    pub web: WebPolicy,
    /// What variables in addresses of databases stand for.
    pub secrets: SourceSecrets,
}

impl Default for IngesterConfig {
    fn default() -> Self {
        Self { limits: Limits::default(), parallel: 4, web: WebPolicy::default(), secrets: SourceSecrets::default() }
    }
}

/// Reads sources and splits documents.
#[derive(Debug)]
pub struct Ingester {
    blobs: Arc<dyn BlobStore>,
    history: History,
    removal: Removal,
    tables: Tables,
    measures: Measures,
    access: Access,
    config: IngesterConfig,
}

/// The document's text with its chunks, ready to be said.
struct Prepared {
    text: ExtractedText,
    chunks: Vec<Chunk>,
}

/// What a document says of itself, and what it was read as.
struct Told {
    title: Option<String>,
    author: Option<String>,
    pages: Option<i32>,
    encoding: Option<String>,
    read_as: &'static str,
    notes: Vec<String>,
}

impl Ingester {
    /// An ingester that asks `log` what documents were before.
    pub fn new(log: LogConfig, schemas: Schemas, blobs: Arc<dyn BlobStore>, config: IngesterConfig) -> Self {
        let access = Access { web: GuardedClient::new(config.web.clone()), secrets: config.secrets.clone() };
        Self {
            blobs,
            history: History::new(log.clone(), schemas.clone()),
            removal: Removal::new(log, schemas),
            tables: Tables::default(),
            measures: Measures::default(),
            access,
            config,
        }
    }

    /// The same, with a warehouse for tabular documents.
    pub fn with_warehouse(mut self, warehouse: Arc<dyn WarehouseLoader>) -> Self {
        self.tables = Tables::of(warehouse);
        self
    }

    /// The same, with the models whose tokens sizes may count.
    pub fn with_models(mut self, models: Arc<dyn LanguageModels>) -> Self {
        self.measures = Measures::of(models);
        self
    }

    async fn start(&self, start: &StartIngest, cause: &Envelope) -> Result<Vec<Outgoing>, WorkError> {
        let read = self.read_source(start).await?;
        let of_query = || sources::batches_of(&start.source, start.source_type.as_deref(), start.query.as_deref());
        if let Some(base) = start.content.is_none().then(of_query).flatten() {
            return self.queried(start, &base, read, cause).await;
        }
        match read {
            Ok(reading) => self.scanned(start, reading, cause),
            Err(failure) => Ok(vec![self.outgoing(IngestEvent::from(ingest_failed(start, failure)), cause)?]),
        }
    }

    async fn submit(
        &self,
        submit: &SubmitDocument,
        delivery: &Delivery<IngestCommand>,
    ) -> Result<Vec<Outgoing>, WorkError> {
        let cause = &delivery.envelope;
        let mut out = vec![self.outgoing(IngestEvent::from(queued(submit)), cause)?];
        match self.decide(submit, delivery).await? {
            Ok(said) => out.extend(said),
            Err(failure) => out.push(self.outgoing(IngestEvent::from(document_failed(submit, failure)), cause)?),
        }
        Ok(out)
    }

    /// What becomes of a document; the inner error is what it fails with.
    async fn decide(
        &self,
        submit: &SubmitDocument,
        delivery: &Delivery<IngestCommand>,
    ) -> Result<Result<Vec<Outgoing>, Failure>, WorkError> {
        let (config, measure) = match self.measures.of_document(submit).await? {
            Ok(found) => found,
            Err(failure) => return Ok(Err(failure)),
        };
        let bytes = match self.blobs.get(&submit.content).await {
            Ok(bytes) => bytes,
            Err(error) if error.retryable() => return Err(error.into()),
            Err(error) => return Ok(Err(unreadable(submit, &error))),
        };
        let source = match sources::detect(submit.source.as_ref(), &bytes, submit.source_type.as_deref()) {
            Ok(source) => source,
            Err(error) => return Ok(Err(error.failure())),
        };
        let chunker = match chunking::chunker(submit.strategy.as_deref(), source) {
            Ok(chunker) => chunker,
            Err(error) => return Ok(Err(error.failure())),
        };
        let version = chunking::version(
            &submit.content.sha256,
            source,
            chunker,
            config,
            &submit.embed_model,
            submit.metadata_json.as_deref(),
            submit.table.as_deref(),
        );
        let decision =
            self.history.decide(delivery.position.partition, submit.ingest_id, submit.document_id, &version).await;
        match decision.map_err(|error| log_retry(&error))? {
            Decision::Unchanged if !submit.again => {
                Ok(match self.tables.load(submit, &version, source, bytes).await? {
                    Ok(()) => {
                        let event = IngestEvent::from(unchanged(submit, version));
                        Ok(vec![self.outgoing(event, &delivery.envelope)?])
                    }
                    Err(failure) => Err(failure),
                })
            }
            Decision::Take | Decision::Unchanged => {
                let sizing = Sizing::new(config, measure);
                self.take(submit, version, (source, chunker), sizing, bytes, &delivery.envelope).await
            }
        }
    }

    async fn take(
        &self,
        submit: &SubmitDocument,
        version: String,
        (source, chunker): (&'static dyn Source, &'static dyn Chunker),
        sizing: Sizing,
        bytes: Bytes,
        cause: &Envelope,
    ) -> Result<Result<Vec<Outgoing>, Failure>, WorkError> {
        let (name, id, of_version, content) =
            (submit.source.clone(), submit.document_id, version.clone(), bytes.clone());
        // A parser that panics on a document fails that document.
        let prepared = tokio::task::spawn_blocking(move || -> Result<Prepared, Failure> {
            let text = sources::extract(source, &name, &bytes).map_err(|error| error.failure())?;
            let chunks =
                chunking::chunks(&name, &text, chunker, sizing, &id, &of_version).map_err(|error| error.failure())?;
            Ok(Prepared { text, chunks })
        })
        .await;
        let prepared = match prepared {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(failure)) => return Ok(Err(failure)),
            Err(join) if join.is_panic() => return Ok(Err(extraction_panicked(&submit.source))),
            Err(_) => return Err(stopping()),
        };
        if prepared.chunks.is_empty() {
            return Ok(Err(SourceError::no_text(&submit.source, "there is nothing in it to find").failure()));
        }
        if let Err(failure) = self.tables.load(submit, &version, source, content).await? {
            return Ok(Err(failure));
        }
        let Prepared { text, chunks } = prepared;
        let pages = text.last_page();
        let ExtractedText { text, title, author, encoding, notes, .. } = text;
        let told = Told { title, author, pages, encoding, read_as: source.media_type(), notes };
        let stored = match self.blobs.put_bytes(Bytes::from(text), "text/plain; charset=utf-8").await {
            Ok(stored) => stored,
            Err(error) => return Err(error.into()),
        };
        let context = (chunker.name() == LATE).then(|| stored.clone());
        let event = IngestEvent::from(chunked(submit, &version, stored, chunks.len(), told));
        let mut out = vec![self.outgoing(event, cause)?];
        if chunker.name() == RAPTOR && tree::is_for(submit, chunks.len()) {
            let begun = IngestCommand::from(self.begun(submit, version, chunks).await?);
            out.push(self.outgoing(begun, cause)?);
            return Ok(Ok(out));
        }
        for ready in ready_batches!(submit, version, chunks, context) {
            out.push(self.outgoing(ChunkEvent::from(ready), cause)?);
        }
        Ok(Ok(out))
    }

    /// The commands and events of a source that was read.
    fn scanned(&self, start: &StartIngest, reading: Reading, cause: &Envelope) -> Result<Vec<Outgoing>, WorkError> {
        let tables = tables::of_documents(start, &reading);
        let Reading { documents, left_out, .. } = reading;
        let mut out = Vec::with_capacity(documents.len() + 1);
        let mut count = 0;
        for (read, table) in documents.into_iter().zip(tables) {
            match read {
                Read::Stored { source, source_type, content, .. } => {
                    let submit = SubmitDocument { table, ..submission(start, source, source_type, content) };
                    out.push(self.outgoing(IngestCommand::from(submit), cause)?);
                }
                Read::Refused { source, failure } => {
                    let refused = submission(start, source, start.source_type.clone(), no_content());
                    out.push(self.outgoing(IngestEvent::from(document_failed(&refused, failure)), cause)?);
                }
                Read::Skipped => continue,
            }
            count += 1;
        }
        let event = IngestScanned {
            ingest_id: start.ingest_id,
            namespace: start.namespace.clone(),
            collection: start.collection.clone(),
            source: start.source.clone(),
            documents: count,
            skipped: left_out.total() as i64,
            left_out: left_out.rows(),
            at: now_ms(),
        };
        out.push(self.outgoing(IngestEvent::from(event), cause)?);
        Ok(out)
    }

    /// A document goes: its tables first, then its chunks follow.
    async fn withdraw(&self, delete: &DeleteDocument, cause: &Envelope) -> Result<Vec<Outgoing>, WorkError> {
        let (event, follows) = removal::withdrawn(delete, &self.tables.remove(delete).await?);
        Ok(vec![self.outgoing(IngestEvent::from(event), cause)?, self.outgoing(ChunkEvent::from(follows), cause)?])
    }

    /// A collection goes: a command for each of its documents.
    async fn withdraw_all(&self, delete: &DeleteCollection, cause: &Envelope) -> Result<Vec<Outgoing>, WorkError> {
        let (event, documents) = self.removal.collection(delete).await?;
        let mut out = vec![self.outgoing(IngestEvent::from(event), cause)?];
        for command in documents {
            out.push(self.outgoing(IngestCommand::from(command), cause)?);
        }
        Ok(out)
    }
}

#[async_trait]
impl Worker for Ingester {
    type Input = IngestCommand;

    fn name(&self) -> &'static str {
        NAME
    }

    fn lanes(&self) -> Lanes {
        // One at a time: what is decided for a document has to be on the log before the next decision about it.
        Lanes::PerKey { parallel: self.config.parallel, max_batch: 1 }
    }

    async fn handle(&self, batch: &[Delivery<IngestCommand>], _context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let mut out = Vec::new();
        for delivery in batch {
            match &delivery.event {
                IngestCommand::StartIngest(start) => out.extend(self.start(start, &delivery.envelope).await?),
                IngestCommand::SubmitDocument(submit) => out.extend(self.submit(submit, delivery).await?),
                IngestCommand::DeleteDocument(delete) => out.extend(self.withdraw(delete, &delivery.envelope).await?),
                IngestCommand::DeleteCollection(delete) => {
                    out.extend(self.withdraw_all(delete, &delivery.envelope).await?);
                }
                // The reembedder's, the rebuilder's and the tuner's.
                IngestCommand::ReembedCollection(_)
                | IngestCommand::RebuildCollection(_)
                | IngestCommand::TuneCollection(_) => {}
                IngestCommand::BuildTree(tree) => out.extend(self.publish(tree, delivery).await?),
            }
        }
        Ok(out)
    }

    async fn revoked(&self, partitions: &[TopicPartition]) {
        self.history.forget(partitions.iter().map(|partition| partition.partition));
    }

    fn dead(&self, delivery: &Delivery<IngestCommand>, code: &str, reason: &str) -> Vec<Outgoing> {
        let failure = failure_of(code, reason);
        let event: IngestEvent = match &delivery.event {
            IngestCommand::StartIngest(start) => ingest_failed(start, failure).into(),
            IngestCommand::SubmitDocument(submit) => document_failed(submit, failure).into(),
            IngestCommand::BuildTree(tree) if tree.done => {
                about!(tree, DocumentFailed { stage: STAGE.to_owned(), error: failure }).into()
            }
            // The dead letter stays; who waits for the receipt is told by its absence, and deletes again.
            IngestCommand::DeleteDocument(_)
            | IngestCommand::DeleteCollection(_)
            | IngestCommand::ReembedCollection(_)
            | IngestCommand::RebuildCollection(_)
            | IngestCommand::TuneCollection(_)
            | IngestCommand::BuildTree(_) => return Vec::new(),
        };
        self.outgoing(event, &delivery.envelope).into_iter().collect()
    }
}

fn submission(start: &StartIngest, source: String, source_type: Option<String>, content: BlobRef) -> SubmitDocument {
    let collection = Collection::new(start.namespace.clone(), start.collection.clone());
    SubmitDocument {
        document_id: document_id(&collection, &source),
        ingest_id: start.ingest_id,
        namespace: start.namespace.clone(),
        collection: start.collection.clone(),
        source,
        source_type,
        content,
        embed_model: start.embed_model.clone(),
        chunk_size: start.chunk_size,
        chunk_overlap: start.chunk_overlap,
        metadata_json: start.metadata_json.clone(),
        table: start.table.clone(),
        strategy: start.strategy.clone(),
        chunk_unit: start.chunk_unit.clone(),
        again: false,
        at: now_ms(),
    }
}

/// Stands in a submission that is never sent.
fn no_content() -> BlobRef {
    BlobRef { sha256: String::new(), size_bytes: 0, media_type: String::new() }
}

fn queued(submit: &SubmitDocument) -> DocumentQueued {
    about!(submit, DocumentQueued { content: submit.content.clone() })
}

fn unchanged(submit: &SubmitDocument, version: String) -> DocumentUnchanged {
    about!(submit, DocumentUnchanged { version })
}

fn chunked(submit: &SubmitDocument, version: &str, text: BlobRef, chunks: usize, told: Told) -> DocumentChunked {
    let Told { title, author, pages, encoding, read_as, notes } = told;
    about!(
        submit,
        DocumentChunked {
            version: version.to_owned(),
            text,
            chunks: chunks as i64,
            embed_model: submit.embed_model.clone(),
            title,
            metadata_json: submit.metadata_json.clone(),
            author,
            pages,
            encoding,
            read_as: Some(read_as.to_owned()),
            fetched_at: Some(submit.at),
            source_type: submit.source_type.clone(),
            strategy: submit.strategy.clone(),
            chunk_size: submit.chunk_size,
            chunk_overlap: submit.chunk_overlap,
            chunk_unit: submit.chunk_unit.clone(),
            table: submit.table.clone(),
            notes,
        }
    )
}

fn document_failed(submit: &SubmitDocument, error: Failure) -> DocumentFailed {
    about!(submit, DocumentFailed { stage: STAGE.to_owned(), error })
}

fn ingest_failed(start: &StartIngest, error: Failure) -> IngestFailed {
    IngestFailed {
        ingest_id: start.ingest_id,
        namespace: start.namespace.clone(),
        collection: start.collection.clone(),
        source: start.source.clone(),
        error,
        at: now_ms(),
    }
}

fn unreadable(submit: &SubmitDocument, error: &BlobError) -> Failure {
    let fix = format!("riverrun docs rm {}, then ingest its source again", submit.document_id);
    Failure::new(error.code(), error.to_string()).with_hint(fix)
}

fn extraction_panicked(source: &str) -> Failure {
    Failure::new("extraction_failed", format!("taking the text out of {source} failed in a parser")).with_hint(
        "convert the document to plain text and ingest that; a report with the document helps to fix the parser",
    )
}

fn log_retry(error: &LogError) -> WorkError {
    WorkError::retry(error.code(), error)
}

fn stopping() -> WorkError {
    WorkError::retry("stopped", "the process is stopping")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, WorkError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| stopping())
}

#[cfg(test)]
mod tests;
