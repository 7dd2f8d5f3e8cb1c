//! Documents whose chunks are nowhere on the log any more: handed in again from the bytes that were stored when they came.
//!
//! `ingest.chunks` is kept for days and `ingest.embeddings` may have been cut, while the events of documents and their bytes stay. What
//! becomes of such a document is the work of ingester, embedder and indexer as for any other, so that its chunks are on the log again. One
//! whose bytes are gone fails there, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use riverrun_knowledge::chunking::ChunkUnit;
use riverrun_schemas::ingest::{DocumentChunked, IngestCommand, IngestEvent, IngestScanned, SubmitDocument};
use riverrun_schemas::{BlobRef, DocumentId, IngestId, Topic, now_ms};
use riverrun_stores::{Gap, GapState};

use super::super::follow::Follow;
use super::{Mend, decoded};
use crate::runtime::{WorkError, Worker};

/// How long none of them may come to an end before the try is given up. The next one waits on, and hands nothing in twice.
const PATIENCE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(250);

/// What the log tells of documents that were lost. Pure.
#[derive(Debug)]
struct Again {
    /// The request that they are handed in with: the same for each try of a rebuild.
    request: IngestId,
    /// The requests that they were indexed with.
    lost: BTreeMap<DocumentId, IngestId>,
    content: BTreeMap<DocumentId, BlobRef>,
    chunked: BTreeMap<DocumentId, DocumentChunked>,
    /// Those that an earlier try has handed in.
    handed_in: BTreeSet<DocumentId>,
}

impl Again {
    fn new(request: IngestId, lost: BTreeMap<DocumentId, IngestId>) -> Self {
        Self { request, lost, content: BTreeMap::new(), chunked: BTreeMap::new(), handed_in: BTreeSet::new() }
    }

    fn is_of(&self, document: &DocumentId, ingest: IngestId) -> bool {
        self.lost.get(document) == Some(&ingest)
    }

    /// Takes the next event.
    fn event(&mut self, event: &IngestEvent) {
        if let IngestEvent::DocumentQueued(e) = event {
            if e.ingest_id == self.request {
                self.handed_in.insert(e.document_id);
            } else if self.is_of(&e.document_id, e.ingest_id) {
                self.content.insert(e.document_id, e.content.clone());
            }
        }
        if let IngestEvent::DocumentChunked(e) = event
            && self.is_of(&e.document_id, e.ingest_id)
        {
            self.chunked.insert(e.document_id, e.clone());
        }
    }

    /// Those that can be handed in, with the request that each was indexed with.
    fn known(&self) -> Vec<(DocumentId, IngestId)> {
        let known = |document: &DocumentId| self.content.contains_key(document) && self.chunked.contains_key(document);
        self.lost
            .iter()
            .filter(|(document, _)| known(document))
            .map(|(document, ingest)| (*document, *ingest))
            .collect()
    }

    /// The commands that hand them in, for a collection of that model.
    fn submissions(&self, model: &str) -> Vec<SubmitDocument> {
        let new = self.chunked.iter().filter(|(document, _)| !self.handed_in.contains(*document));
        new.filter_map(|(document, chunked)| Some(self.submission(chunked, self.content.get(document)?, model)))
            .collect()
    }

    fn submission(&self, chunked: &DocumentChunked, content: &BlobRef, model: &str) -> SubmitDocument {
        let (chunk_size, chunk_overlap) = sizes(chunked);
        SubmitDocument {
            document_id: chunked.document_id,
            ingest_id: self.request,
            namespace: chunked.namespace.clone(),
            collection: chunked.collection.clone(),
            source: chunked.source.clone(),
            source_type: chunked.source_type.clone(),
            content: content.clone(),
            embed_model: if model.is_empty() { chunked.embed_model.clone() } else { model.to_owned() },
            chunk_size,
            chunk_overlap,
            metadata_json: chunked.metadata_json.clone(),
            table: chunked.table.clone(),
            strategy: chunked.strategy.clone(),
            chunk_unit: chunked.chunk_unit.clone(),
            again: true,
            at: now_ms(),
        }
    }
}

/// Size and overlap as they were; the usual ones where an older build did not write them down.
fn sizes(chunked: &DocumentChunked) -> (i64, i64) {
    if chunked.chunk_size > 0 {
        return (chunked.chunk_size, chunked.chunk_overlap);
    }
    let (size, overlap) = ChunkUnit::Characters.defaults();
    (i64::try_from(size).unwrap_or(i64::MAX), i64::try_from(overlap).unwrap_or(0))
}

impl Mend<'_> {
    /// Hands in again what is missing, once a rebuild, and waits until all of it has ended. False when nothing came of it.
    pub(super) async fn hand_in_again(&mut self, missing: &[DocumentId], model: &str) -> Result<bool, WorkError> {
        if missing.is_empty() || std::mem::replace(&mut self.handed_in, true) {
            return Ok(false);
        }
        let again = self.remembered(missing).await?;
        let known = again.known();
        if known.is_empty() {
            return Ok(false);
        }
        self.say_again(known.len());
        self.submit(&again, known.len(), model).await?;
        self.wait_for(&known, again.request).await?;
        Ok(true)
    }

    async fn remembered(&self, missing: &[DocumentId]) -> Result<Again, WorkError> {
        let request = IngestId::derive(&["again", &self.request.0.to_string()]);
        let lost = missing.iter().filter_map(|document| Some((*document, self.fold.indexed_by(document)?))).collect();
        let mut again = Again::new(request, lost);
        let schemas = &self.context.schemas;
        let take = |record: &riverrun_log::Record| {
            if let Some(event) = decoded::<IngestEvent>(schemas, record) {
                again.event(&event);
            }
        };
        Follow::open(&self.context.log, Topic::IngestEvents, take).await?;
        Ok(again)
    }

    fn say_again(&self, documents: usize) {
        tracing::info!(collection = %self.collection, documents, "documents are handed in again, their chunks are not on the log any more");
        if self.rebuilder.gaps.of(self.collection).is_none() {
            let are = riverrun_schemas::agreed(documents, "is", "are");
            let reason = format!("{documents} of its documents {are} made again from what was handed in");
            self.rebuilder.gaps.note(self.collection, Gap { reason, state: GapState::Mending, elsewhere: false });
        }
    }

    async fn submit(&self, again: &Again, documents: usize, model: &str) -> Result<(), WorkError> {
        let submissions = again.submissions(model);
        if submissions.is_empty() {
            return Ok(());
        }
        let cause = self.request.1;
        let scanned = IngestScanned {
            ingest_id: again.request,
            namespace: self.collection.namespace.clone(),
            collection: self.collection.name.clone(),
            source: format!("{}, made again", self.collection.name),
            documents: i64::try_from(documents).unwrap_or(i64::MAX),
            skipped: 0,
            left_out: Vec::new(),
            at: now_ms(),
        };
        let mut records = vec![self.rebuilder.outgoing(IngestEvent::from(scanned), cause)?];
        for submission in submissions {
            records.push(self.rebuilder.outgoing(IngestCommand::from(submission), cause)?);
        }
        self.context.producer.send_many(records).await?;
        Ok(())
    }

    async fn wait_for(&mut self, handed_in: &[(DocumentId, IngestId)], request: IngestId) -> Result<(), WorkError> {
        let (mut open, mut since) = (usize::MAX, Instant::now());
        loop {
            self.catch_up().await?;
            let awaited =
                |(document, before): &&(DocumentId, IngestId)| self.fold.is_awaited(document, *before, request);
            let now = handed_in.iter().filter(awaited).count();
            if now == 0 {
                return Ok(());
            }
            if now < open {
                (open, since) = (now, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                let reason = format!(
                    "{now} documents that were handed in again have not ended, and none did for {} s",
                    PATIENCE.as_secs()
                );
                return Err(WorkError::retry("documents_awaited", reason));
            }
            self.rebuilder.go_on()?;
            tokio::time::sleep(POLL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::ingest::DocumentQueued;

    use super::*;
    use crate::about::about;
    use crate::about::testing::of;

    fn blob(name: &str) -> BlobRef {
        BlobRef { sha256: name.to_owned(), size_bytes: 1, media_type: "text/plain".to_owned() }
    }

    fn queued(document: &str, ingest: &str) -> IngestEvent {
        about!(of(document, ingest), DocumentQueued { content: blob(&format!("{document} {ingest}")) }).into()
    }

    fn chunked(document: &str, ingest: &str, chunk_size: i64) -> IngestEvent {
        about!(
            of(document, ingest),
            DocumentChunked {
                version: "v".to_owned(),
                text: blob("text"),
                chunks: 2,
                embed_model: "old".to_owned(),
                title: None,
                metadata_json: Some("{}".to_owned()),
                author: None,
                pages: None,
                encoding: None,
                read_as: None,
                fetched_at: None,
                source_type: Some("markdown".to_owned()),
                strategy: None,
                chunk_size,
                chunk_overlap: 10,
                chunk_unit: None,
                table: Some("prices".to_owned()),
                notes: Vec::new(),
            }
        )
        .into()
    }

    fn again(documents: &[&str], events: &[IngestEvent]) -> Again {
        let lost = documents.iter().map(|name| (DocumentId::derive(&[name]), IngestId::derive(&["before"]))).collect();
        let mut again = Again::new(IngestId::derive(&["again"]), lost);
        events.iter().for_each(|event| again.event(event));
        again
    }

    #[test]
    fn given_a_lost_document_then_it_is_handed_in_as_it_was_when_it_was_indexed() {
        let events =
            [queued("a", "before"), chunked("a", "before", 300), queued("a", "other"), chunked("a", "other", 900)];
        let again = again(&["a"], &events);
        let submissions = again.submissions("new");
        assert_eq!(submissions.len(), 1);
        let submit = &submissions[0];
        assert_eq!((submit.chunk_size, submit.chunk_overlap, submit.again), (300, 10, true));
        assert_eq!((submit.content.sha256.as_str(), submit.embed_model.as_str()), ("a before", "new"));
        assert_eq!((submit.source_type.as_deref(), submit.table.as_deref()), (Some("markdown"), Some("prices")));
        assert_eq!(submit.ingest_id, IngestId::derive(&["again"]));
        assert_eq!(again.submissions("")[0].embed_model, "old");
    }

    #[test]
    fn given_events_of_an_older_build_then_sizes_are_the_usual_ones() {
        let again = again(&["a"], &[queued("a", "before"), chunked("a", "before", 0)]);
        assert_eq!((again.submissions("m")[0].chunk_size, again.submissions("m")[0].chunk_overlap), (800, 100));
    }

    #[test]
    fn given_what_the_log_does_not_tell_or_an_earlier_try_handed_in_then_it_is_not_handed_in() {
        let events = [
            queued("told", "before"),
            chunked("told", "before", 300),
            queued("told", "again"),
            queued("half", "before"),
            chunked("whole", "before", 300),
        ];
        let again = again(&["told", "half", "whole"], &events);
        assert_eq!(again.known(), [(DocumentId::derive(&["told"]), IngestId::derive(&["before"]))]);
        assert!(again.submissions("m").is_empty());
    }
}
