//! Which bytes and texts documents still have. The bytes of the version that is found are kept, for a rebuild may read them again; so are
//! those of whatever has come to no end. Texts are kept as long as their document: citations of earlier answers count in them.

use std::collections::HashMap;

use riverrun_schemas::{DocumentId, IngestId};

use super::hash::Hash;

/// The documents of a log. Pure.
#[derive(Debug, Clone, Default)]
pub(super) struct Documents {
    documents: HashMap<DocumentId, Document>,
}

#[derive(Debug, Clone, Default)]
struct Document {
    /// Of every version since the last removal.
    texts: Vec<Hash>,
    /// Those whose bytes are kept, in the order in which they came.
    requests: Vec<Request>,
    /// Removals, each of which counts once.
    removals: Vec<IngestId>,
}

#[derive(Debug, Clone)]
struct Request {
    ingest: IngestId,
    content: Vec<Hash>,
    indexed: bool,
}

impl Document {
    fn place_of(&self, ingest: IngestId) -> Option<usize> {
        self.requests.iter().position(|request| request.ingest == ingest)
    }
}

impl Documents {
    pub(super) fn queued(&mut self, document: DocumentId, ingest: IngestId, names: Vec<Hash>) {
        let known = self.documents.entry(document).or_default();
        match known.place_of(ingest) {
            Some(at) => known.requests[at].content.extend(names),
            None => known.requests.push(Request { ingest, content: names, indexed: false }),
        }
    }

    pub(super) fn chunked(&mut self, document: DocumentId, names: Vec<Hash>) {
        let known = self.documents.entry(document).or_default();
        known.texts.extend(names);
        known.texts.dedup();
    }

    /// The same bytes are those of the version that is found.
    pub(super) fn unchanged(&mut self, document: DocumentId, ingest: IngestId) {
        if let Some(known) = self.documents.get_mut(&document) {
            known.requests.retain(|request| request.ingest != ingest || request.indexed);
        }
    }

    /// What came before it and was found is replaced by it.
    pub(super) fn indexed(&mut self, document: DocumentId, ingest: IngestId) {
        let Some(known) = self.documents.get_mut(&document) else { return };
        let Some(found) = known.place_of(ingest) else { return };
        known.requests[found].indexed = true;
        let mut at = 0;
        known.requests.retain(|request| {
            at += 1;
            at > found || !request.indexed
        });
    }

    pub(super) fn withdrawn(&mut self, document: DocumentId, removal: IngestId) {
        let known = self.documents.entry(document).or_default();
        if !known.removals.contains(&removal) {
            known.removals.push(removal);
            known.requests.clear();
            known.texts.clear();
        }
    }

    /// All that they have.
    pub(super) fn living(self) -> impl Iterator<Item = Hash> {
        self.documents.into_values().flat_map(|document| {
            document.requests.into_iter().flat_map(|request| request.content).chain(document.texts)
        })
    }
}
