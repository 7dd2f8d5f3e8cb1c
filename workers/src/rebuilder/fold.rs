//! What a collection should hold, folded from `ingest.events` and `ingest.embeddings`. Pure.
//!
//! The embeddings of a document and its removals lie in one partition, in the order in which the indexer takes them: whatever it has
//! done with a document is in the fold of that partition up to its end. The events say what it made of it.

use std::collections::BTreeMap;

use riverrun_schemas::ingest::{ChunkEvent, EmbeddingEvent, IngestEvent};
use riverrun_schemas::{Collection, CollectionName, DocumentId, IngestId, Namespace};

/// Failed requests about a document that are remembered: more than can be on their way at once.
const MAX_FAILED: usize = 32;
/// Versions of a document that are remembered, with the one that is found.
const MAX_VERSIONS: usize = 16;

/// Which topic chunks are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// `ingest.embeddings`, with vectors.
    Embeddings,
    /// `ingest.chunks`, without.
    Chunks,
}

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) partition: i32,
    pub(super) offset: i64,
}

/// How far partitions were read: one past the last offset of each.
pub(super) type Ends = BTreeMap<i32, i64>;

impl Place {
    /// Whether the record was not there yet.
    fn is_behind(self, ends: &Ends) -> bool {
        ends.get(&self.partition).is_none_or(|end| self.offset >= *end)
    }
}

/// A batch of a version's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    place: Place,
    chunks: usize,
}

/// The batches of one version of a document that are on the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) ingest: IngestId,
    pub(super) version: String,
    model: String,
    batches: i32,
    parts: BTreeMap<i32, Part>,
}

impl Version {
    fn is_whole(&self) -> bool {
        usize::try_from(self.batches).is_ok_and(|batches| batches > 0 && self.parts.len() == batches)
    }

    /// Its chunks that are on the log.
    pub(super) fn chunks(&self) -> usize {
        self.parts.values().map(|part| part.chunks).sum()
    }

    /// Where its batches lie.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.parts.values().map(|part| part.place)
    }

    /// Whether some of it came to the log later: then the indexer has it before it, and does it.
    pub(super) fn is_behind(&self, ends: &Ends) -> bool {
        self.places().any(|place| place.is_behind(ends))
    }
}

/// What the indexer said last of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Indexed {
    ingest: IngestId,
    chunks: usize,
}

#[derive(Debug, Default)]
struct Document {
    /// In the order in which their last batches came, since the last removal.
    versions: Vec<Version>,
    /// Chunks of what was indexed, when their embeddings are not on the log any more.
    ready: Option<Version>,
    indexed: Option<Indexed>,
    failed: Vec<IngestId>,
    /// The removal of which it was said last that it is done.
    deleted: Option<IngestId>,
    /// The last removal on its way, and where it lies.
    withdrawn: Option<(IngestId, Place)>,
}

/// What of a document should be found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted<'f> {
    /// The version that a search finds.
    pub(super) whole: Option<(&'f Version, Origin)>,
    /// A newer one that is not whole yet: the indexer needs what came of it.
    pub(super) coming: Option<&'f Version>,
    /// So many chunks should be found, and their records are gone.
    pub(super) lost: Option<usize>,
    /// The removal on its way.
    removal: Option<Place>,
}

impl Wanted<'_> {
    /// Nothing of the document should be found, and it isn't the indexer that removes it behind `ends`.
    pub(super) fn is_gone(&self, ends: &Ends) -> bool {
        self.is_nothing() && self.removal.is_none_or(|place| !place.is_behind(ends))
    }

    /// Nothing of the document should be found.
    pub(super) fn is_nothing(&self) -> bool {
        self.whole.is_none() && self.coming.is_none() && self.lost.is_none()
    }

    /// Whether these chunks should be found.
    pub(super) fn is(&self, ingest: IngestId, version: &str) -> bool {
        let same = |known: &Version| known.ingest == ingest && known.version == version;
        self.whole.is_some_and(|(known, _)| same(known)) || self.coming.is_some_and(same)
    }
}

impl Document {
    fn part(&mut self, ingest: IngestId, version: &str, model: &str, batches: i32) -> &mut Version {
        let known = self.versions.iter().position(|known| known.ingest == ingest && known.version == version);
        // A batch that is written again, after a crash of the embedder, is the last word again.
        let this = match known {
            Some(at) => self.versions.remove(at),
            None => Version {
                ingest,
                version: version.to_owned(),
                model: model.to_owned(),
                batches,
                parts: BTreeMap::new(),
            },
        };
        self.versions.push(this);
        self.forget_old();
        let last = self.versions.len() - 1;
        &mut self.versions[last]
    }

    /// What was indexed replaced everything before it.
    fn forget_old(&mut self) {
        let found = self.indexed.as_ref().and_then(|indexed| {
            self.versions.iter().position(|version| version.ingest == indexed.ingest && version.is_whole())
        });
        if let Some(at) = found {
            self.versions.drain(..at);
        }
        while self.versions.len() > MAX_VERSIONS {
            self.versions.remove(usize::from(found.is_some()));
        }
    }

    fn wanted(&self, model: &str) -> Wanted<'_> {
        let is_indexed =
            |version: &Version| self.indexed.as_ref().is_some_and(|indexed| indexed.ingest == version.ingest);
        // Of another model than the collection's the indexer takes none; those that it took were there before the model changed.
        let refused = |version: &Version| {
            !is_indexed(version) && (self.failed.contains(&version.ingest) || version.model != model)
        };
        let whole = self.versions.iter().rposition(|version| version.is_whole() && !refused(version));
        let removal = self.withdrawn.filter(|(ingest, _)| self.deleted != Some(*ingest)).map(|(_, place)| place);
        let coming = self.versions.last().filter(|last| !last.is_whole() && !refused(last) && !is_indexed(last));
        if let Some(at) = whole {
            return Wanted { whole: Some((&self.versions[at], Origin::Embeddings)), coming, lost: None, removal };
        }
        // What was indexed before a removal that is on its way goes with it.
        let known = self.indexed.as_ref().filter(|_| removal.is_none());
        let ready = self.ready.as_ref().filter(|ready| is_indexed(ready) && ready.is_whole());
        match (known, ready) {
            (Some(_), Some(ready)) => Wanted { whole: Some((ready, Origin::Chunks)), coming, lost: None, removal },
            (known, _) => Wanted { whole: None, coming, lost: known.map(|indexed| indexed.chunks), removal },
        }
    }
}

/// The fold of one collection. About 300 bytes a document.
#[derive(Debug)]
pub(super) struct Fold {
    collection: Collection,
    documents: BTreeMap<DocumentId, Document>,
    /// The model that the collection had last, and when.
    model: Option<(i64, String)>,
}

impl Fold {
    pub(super) fn new(collection: Collection) -> Self {
        Self { collection, documents: BTreeMap::new(), model: None }
    }

    fn is_of(&self, namespace: &Namespace, name: &CollectionName) -> bool {
        self.collection.namespace == *namespace && self.collection.name == *name
    }

    fn has_model(&mut self, at: i64, model: &str) {
        if self.model.as_ref().is_none_or(|(known, _)| *known <= at) {
            self.model = Some((at, model.to_owned()));
        }
    }

    /// The model that the collection had last.
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_ref().map(|(_, model)| model.as_str())
    }

    /// Takes the next event of a partition of `ingest.events`.
    pub(super) fn event(&mut self, event: &IngestEvent) {
        match event {
            IngestEvent::DocumentIndexed(e) if self.is_of(&e.namespace, &e.collection) => {
                self.has_model(e.at, &e.embed_model);
                let document = self.documents.entry(e.document_id).or_default();
                let chunks = usize::try_from(e.chunks).unwrap_or(0);
                document.indexed = Some(Indexed { ingest: e.ingest_id, chunks });
                document.failed.retain(|failed| *failed != e.ingest_id);
                document.forget_old();
            }
            IngestEvent::DocumentFailed(e) if self.is_of(&e.namespace, &e.collection) => {
                let document = self.documents.entry(e.document_id).or_default();
                document.failed.push(e.ingest_id);
                if document.failed.len() > MAX_FAILED {
                    document.failed.remove(0);
                }
            }
            IngestEvent::DocumentDeleted(e) if self.is_of(&e.namespace, &e.collection) => {
                let document = self.documents.entry(e.document_id).or_default();
                (document.indexed, document.deleted) = (None, Some(e.ingest_id));
            }
            IngestEvent::CollectionReembedded(e) if self.is_of(&e.namespace, &e.collection) => {
                self.has_model(e.at, &e.embed_model);
            }
            IngestEvent::DocumentIndexed(_)
            | IngestEvent::DocumentFailed(_)
            | IngestEvent::DocumentDeleted(_)
            | IngestEvent::CollectionReembedded(_)
            | IngestEvent::IngestScanned(_)
            | IngestEvent::IngestFailed(_)
            | IngestEvent::DocumentQueued(_)
            | IngestEvent::DocumentUnchanged(_)
            | IngestEvent::DocumentChunked(_)
            | IngestEvent::DocumentEmbedded(_)
            // Its removal follows its chunks; until it comes there, the document is found.
            | IngestEvent::DocumentWithdrawn(_)
            | IngestEvent::CollectionWithdrawn(_)
            | IngestEvent::CollectionReembedding(_)
            | IngestEvent::CollectionReembedFailed(_)
            | IngestEvent::CollectionRebuilding(_)
            | IngestEvent::CollectionRebuilt(_)
            | IngestEvent::CollectionRebuildFailed(_)
            | IngestEvent::CollectionTuning(_)
            | IngestEvent::CollectionTuned(_)
            | IngestEvent::CollectionTuneFailed(_) => {}
        }
    }

    /// Takes the next record of a partition of `ingest.embeddings`.
    pub(super) fn embedding(&mut self, event: &EmbeddingEvent, place: Place) {
        match event {
            EmbeddingEvent::ChunksEmbedded(e) if self.is_of(&e.namespace, &e.collection) => {
                let document = self.documents.entry(e.document_id).or_default();
                let version = document.part(e.ingest_id, &e.version, &e.embed_model, e.batches);
                version.parts.insert(e.batch, Part { place, chunks: e.chunks.len() });
                document.forget_old();
            }
            EmbeddingEvent::EmbeddingsWithdrawn(e) if self.is_of(&e.namespace, &e.collection) => {
                let document = self.documents.entry(e.document_id).or_default();
                document.versions.clear();
                document.withdrawn = Some((e.ingest_id, place));
            }
            EmbeddingEvent::ChunksEmbedded(_) | EmbeddingEvent::EmbeddingsWithdrawn(_) => {}
        }
    }

    /// Takes a record of `ingest.chunks`: chunks of what was indexed and has no embeddings on the log.
    pub(super) fn chunks(&mut self, event: &ChunkEvent, place: Place) {
        let ChunkEvent::ChunksReady(e) = event else { return };
        if !self.is_of(&e.namespace, &e.collection) {
            return;
        }
        let Some(document) = self.documents.get_mut(&e.document_id) else { return };
        if document.indexed.as_ref().is_none_or(|indexed| indexed.ingest != e.ingest_id) {
            return;
        }
        let ready = document.ready.get_or_insert_with(|| Version {
            ingest: e.ingest_id,
            version: e.version.clone(),
            model: e.embed_model.clone(),
            batches: e.batches,
            parts: BTreeMap::new(),
        });
        if ready.ingest == e.ingest_id && ready.version == e.version {
            ready.parts.insert(e.batch, Part { place, chunks: e.chunks.len() });
        }
    }

    /// What should be found of a document in a collection of that model.
    pub(super) fn wanted(&self, document: &DocumentId, model: &str) -> Wanted<'_> {
        self.documents.get(document).map(|known| known.wanted(model)).unwrap_or_default()
    }

    /// The same of every document that was ever heard of.
    pub(super) fn all<'f>(&'f self, model: &'f str) -> impl Iterator<Item = (DocumentId, Wanted<'f>)> {
        self.documents.iter().map(move |(document, known)| (*document, known.wanted(model)))
    }

    /// The request that a document was indexed with last.
    pub(super) fn indexed_by(&self, document: &DocumentId) -> Option<IngestId> {
        self.documents.get(document)?.indexed.as_ref().map(|indexed| indexed.ingest)
    }

    /// Whether a document that was indexed with `before` and handed in again with `again` has come to no end since.
    pub(super) fn is_awaited(&self, document: &DocumentId, before: IngestId, again: IngestId) -> bool {
        let failed = || self.documents.get(document).is_some_and(|known| known.failed.contains(&again));
        self.indexed_by(document) == Some(before) && !failed()
    }

    /// Whether the records of some document are gone.
    pub(super) fn lacks_embeddings(&self, model: &str) -> bool {
        self.all(model).any(|(_, wanted)| wanted.lost.is_some())
    }
}

#[cfg(test)]
mod tests;
