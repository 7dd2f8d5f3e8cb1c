//! A worker whose behaviour its inputs choose, and the inputs.
#![allow(dead_code)] // each test file uses its own part

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riverrun_log::Outgoing;
use riverrun_schemas::ingest::{
    DocumentFailed, DocumentQueued, IngestCommand, IngestEvent, SubmitDocument, document_id,
};
use riverrun_schemas::{BlobRef, Collection, Failure, IngestId, Namespace};
use riverrun_workers::runtime::{Context, Delivery, DeliveryMode, Lanes, WorkError, Worker};
use tokio::sync::Notify;

pub(crate) const PER_KEY: Lanes = Lanes::PerKey { parallel: 4, max_batch: 8 };
pub(crate) const PER_PARTITION: Lanes = Lanes::PerPartition { max_batch: 64, max_wait: Duration::from_millis(5) };

/// `behaviour` is what the worker does with it: `ok`, `retry-2` (fails twice), `poison`, `panic`, `fatal`, `hold` (until released).
pub(crate) fn command(document: &str, number: usize, behaviour: &str) -> IngestCommand {
    let collection = Collection::new(Namespace::default(), "docs".parse().unwrap());
    SubmitDocument {
        document_id: document_id(&collection, document),
        ingest_id: IngestId::derive(&[document, &number.to_string()]),
        namespace: collection.namespace,
        collection: collection.name,
        source: format!("{document}/{number}/{behaviour}"),
        source_type: None,
        content: blob(),
        embed_model: "m".into(),
        chunk_size: 1,
        chunk_overlap: 0,
        metadata_json: None,
        table: None,
        strategy: None,
        chunk_unit: None,
        again: false,
        at: 0,
    }
    .into()
}

pub(crate) fn blob() -> BlobRef {
    BlobRef { sha256: "0".repeat(64), size_bytes: 0, media_type: "text/plain".into() }
}

/// `n` commands to each of `documents`, well behaved.
pub(crate) fn commands(documents: usize, n: usize) -> Vec<IngestCommand> {
    (0..n)
        .flat_map(|number| (0..documents).map(move |document| command(&format!("d{document}"), number, "ok")))
        .collect()
}

pub(crate) fn source(event: &IngestEvent) -> String {
    match event {
        IngestEvent::DocumentQueued(e) => e.source.clone(),
        IngestEvent::DocumentFailed(e) => format!("{} failed: {}", e.source, e.error.code),
        other => panic!("unexpected {other:?}"),
    }
}

/// Answers each command with `DocumentQueued`.
#[derive(Clone)]
pub(crate) struct Echo {
    pub name: &'static str,
    pub answers_for_topic: bool,
    pub lanes: Lanes,
    pub mode: DeliveryMode,
    pub pause: Duration,
    /// Sources in the order in which they were done, over all clones.
    pub done: Arc<Mutex<Vec<String>>>,
    pub tries: Arc<Mutex<HashMap<String, u32>>>,
    pub working: Arc<AtomicUsize>,
    pub most_working: Arc<AtomicUsize>,
    pub release: Arc<Notify>,
}

impl Echo {
    pub(crate) fn new(lanes: Lanes) -> Self {
        Self {
            name: "echo",
            answers_for_topic: true,
            lanes,
            mode: DeliveryMode::AtLeastOnce,
            pause: Duration::ZERO,
            done: Arc::default(),
            tries: Arc::default(),
            working: Arc::default(),
            most_working: Arc::default(),
            release: Arc::default(),
        }
    }

    async fn one(&self, delivery: &Delivery<IngestCommand>) -> Result<Outgoing, WorkError> {
        let submit = submitted(delivery);
        let tried = {
            let mut tries = self.tries.lock();
            let tried = tries.entry(submit.source.clone()).or_default();
            *tried += 1;
            *tried
        };
        match submit.source.rsplit('/').next().unwrap_or_default() {
            "poison" => return Err(WorkError::poison("bad_document", "can't be read")),
            "fatal" => return Err(WorkError::fatal("no_store", "the store is gone")),
            "panic" => panic!("at the disco"),
            "hold" => self.release.notified().await,
            behaviour => {
                if let Some(failures) = behaviour.strip_prefix("retry-")
                    && tried <= failures.parse().unwrap()
                {
                    return Err(WorkError::retry("busy", "try later"));
                }
            }
        }
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        let event = queued(submit);
        Ok(Outgoing::caused_by(&event, "echo", &delivery.envelope)?)
    }
}

pub(crate) fn submitted(delivery: &Delivery<IngestCommand>) -> &SubmitDocument {
    match &delivery.event {
        IngestCommand::SubmitDocument(submit) => submit,
        other => panic!("unexpected {other:?}"),
    }
}

pub(crate) fn queued(submit: &SubmitDocument) -> IngestEvent {
    DocumentQueued {
        document_id: submit.document_id,
        ingest_id: submit.ingest_id,
        namespace: submit.namespace.clone(),
        collection: submit.collection.clone(),
        source: submit.source.clone(),
        content: submit.content.clone(),
        at: 0,
    }
    .into()
}

#[async_trait]
impl Worker for Echo {
    type Input = IngestCommand;

    fn name(&self) -> &'static str {
        self.name
    }

    fn answers_for_topic(&self) -> bool {
        self.answers_for_topic
    }

    fn lanes(&self) -> Lanes {
        self.lanes
    }

    fn delivery(&self) -> DeliveryMode {
        self.mode
    }

    async fn handle(&self, batch: &[Delivery<IngestCommand>], _context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let working = self.working.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_working.fetch_max(working, Ordering::SeqCst);
        let _ends = Ends(&self.working);
        let mut outputs = Vec::new();
        for delivery in batch {
            outputs.push(self.one(delivery).await?);
        }
        self.done.lock().extend(batch.iter().map(|d| submitted(d).source.clone()));
        Ok(outputs)
    }

    fn dead(&self, delivery: &Delivery<IngestCommand>, code: &str, reason: &str) -> Vec<Outgoing> {
        let submit = submitted(delivery);
        let event: IngestEvent = DocumentFailed {
            document_id: submit.document_id,
            ingest_id: submit.ingest_id,
            namespace: submit.namespace.clone(),
            collection: submit.collection.clone(),
            source: submit.source.clone(),
            stage: "read".into(),
            error: Failure::new(code, reason),
            at: 0,
        }
        .into();
        vec![Outgoing::caused_by(&event, "echo", &delivery.envelope).unwrap()]
    }
}

struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
