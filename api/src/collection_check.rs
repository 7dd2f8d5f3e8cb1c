//! Whether read model, vectors and keywords of a collection hold the same chunks. Two walks, each in bounded memory: one through the
//! chunk ids of both indexes, which tells whose chunk is where it should not be or lacks its counterpart; one through the documents of
//! the read model, which tells what neither index has.

use std::collections::{BTreeMap, BTreeSet};

use riverrun_schemas::{Collection, DocumentId};
use riverrun_stores::read_models::documents::{self, IndexedDocument};
use riverrun_stores::{ChunkKey, Compared, Comparison, StoreError};

use crate::state::Parts;
use crate::wire::{CheckedChunk, ChunkFault, CollectionCheck, IndexName, Orphan};

/// Documents that are looked for together.
const PAGE: usize = 500;
/// Documents that differ: with more of them the look ends.
const MAX_ORPHANS: usize = 1_000;
/// Chunks that are named.
const MAX_NAMED: usize = 200;

/// Compares all of it.
pub(crate) async fn run(parts: &Parts, collection: &Collection) -> Result<CollectionCheck, StoreError> {
    let mut found = Findings::default();
    let mut comparison = Comparison::new(parts.vectors.as_ref(), parts.keywords.as_ref(), collection);
    while !found.is_full() {
        let Some(compared) = comparison.next().await? else { break };
        let known = documents::indexed_among(&parts.sql, collection, &documents_of(&compared)).await?;
        found.chunks(compared, &known);
    }
    let mut after = None;
    while !found.is_full() {
        let page = documents::indexed_after(&parts.sql, collection, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.document_id);
        let ids: Vec<DocumentId> = page.iter().map(|document| document.document_id).collect();
        let vectors = parts.vectors.count_documents(collection, &ids).await?;
        let keywords = parts.keywords.count_documents(collection, &ids).await?;
        let counted = |counts: &BTreeMap<DocumentId, usize>, id: &DocumentId| counts.get(id).copied().unwrap_or(0);
        for document in &page {
            let id = &document.document_id;
            found.document(document, counted(&vectors, id), counted(&keywords, id));
        }
    }
    let orphans = orphans(parts, collection, &found).await?;
    Ok(CollectionCheck {
        collection: collection.name.to_string(),
        namespace: collection.namespace.to_string(),
        chunks: documents::indexed_chunks(&parts.sql, collection).await?,
        vectors: parts.vectors.count(collection).await?,
        keywords: parts.keywords.count(collection).await?,
        truncated: found.is_full(),
        missing: found.documents.values().map(|difference| difference.missing).sum(),
        surplus: found.documents.values().map(|difference| difference.surplus).sum(),
        orphans,
        differences: found.named,
        problems: Vec::new(),
    })
}

fn documents_of(compared: &Compared) -> BTreeSet<DocumentId> {
    let Compared { both, vectors, keywords } = compared;
    both.iter().chain(vectors).chain(keywords).map(|key| key.document_id).collect()
}

/// The documents that differ, with what is counted of each.
async fn orphans(parts: &Parts, collection: &Collection, found: &Findings) -> Result<Vec<Orphan>, StoreError> {
    let ids: BTreeSet<DocumentId> = found.documents.keys().copied().take(MAX_ORPHANS).collect();
    let known = documents::indexed_among(&parts.sql, collection, &ids).await?;
    let ids: Vec<DocumentId> = ids.into_iter().collect();
    let vectors = parts.vectors.count_documents(collection, &ids).await?;
    let keywords = parts.keywords.count_documents(collection, &ids).await?;
    let orphan = |id: &DocumentId| Orphan {
        document_id: id.to_string(),
        chunks: known.get(id).map_or(0, |document| document.chunks),
        vectors: vectors.get(id).copied().unwrap_or(0),
        keywords: keywords.get(id).copied().unwrap_or(0),
    };
    Ok(ids.iter().map(orphan).collect())
}

/// What is wrong with a document.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Difference {
    missing: usize,
    surplus: usize,
    /// Chunks of the version that is found: in the vectors only, in the keywords only.
    only: (usize, usize),
    /// Chunks of other versions, in the vectors and in the keywords.
    other: (usize, usize),
}

/// What was found so far. Pure.
#[derive(Debug, Default)]
struct Findings {
    documents: BTreeMap<DocumentId, Difference>,
    named: Vec<CheckedChunk>,
}

impl Findings {
    fn is_full(&self) -> bool {
        self.documents.len() >= MAX_ORPHANS
    }

    /// Chunks by who holds them, with those of their documents that a search can find.
    fn chunks(&mut self, compared: Compared, known: &BTreeMap<DocumentId, IndexedDocument>) {
        let is_found =
            |key: &ChunkKey| known.get(&key.document_id).is_some_and(|document| document.version == key.version);
        let Compared { both, vectors, keywords } = compared;
        for key in both.iter().filter(|key| !is_found(key)) {
            self.surplus(key, &[IndexName::Vectors, IndexName::Keywords]);
        }
        for (held_by, keys) in [(IndexName::Vectors, vectors), (IndexName::Keywords, keywords)] {
            for key in &keys {
                if is_found(key) { self.missing(key, held_by) } else { self.surplus(key, &[held_by]) }
            }
        }
    }

    /// A chunk of what nothing should be found of.
    fn surplus(&mut self, key: &ChunkKey, held_by: &[IndexName]) {
        let difference = self.documents.entry(key.document_id).or_default();
        difference.surplus += held_by.len();
        for index in held_by {
            match index {
                IndexName::Vectors => difference.other.0 += 1,
                IndexName::Keywords => difference.other.1 += 1,
            }
        }
        self.name(key, held_by, ChunkFault::Surplus);
    }

    /// A chunk that should be in both, and is in one.
    fn missing(&mut self, key: &ChunkKey, held_by: IndexName) {
        let difference = self.documents.entry(key.document_id).or_default();
        difference.missing += 1;
        match held_by {
            IndexName::Vectors => difference.only.0 += 1,
            IndexName::Keywords => difference.only.1 += 1,
        }
        self.name(key, &[held_by], ChunkFault::Missing);
    }

    fn name(&mut self, key: &ChunkKey, held_by: &[IndexName], fault: ChunkFault) {
        if self.named.len() < MAX_NAMED {
            self.named.push(CheckedChunk {
                chunk_id: key.chunk_id.to_string(),
                document_id: key.document_id.to_string(),
                version: key.version.clone(),
                held_by: held_by.to_vec(),
                fault,
            });
        }
    }

    /// A document that a search can find, with how many chunks of whatever version each index has: what both lack, or have too many of.
    fn document(&mut self, document: &IndexedDocument, vectors: usize, keywords: usize) {
        let known = self.documents.get(&document.document_id).copied().unwrap_or_default();
        // Who holds all that the vectors hold, and what only the keywords do.
        let of_version = vectors.saturating_sub(known.other.0) + known.only.1;
        let of_keywords = keywords.saturating_sub(known.other.1) + known.only.0;
        let (least, most) = (of_version.min(of_keywords), of_version.max(of_keywords));
        let (lacking, beyond) = (document.chunks.saturating_sub(least), most.saturating_sub(document.chunks));
        if lacking > 0 || beyond > 0 {
            let difference = self.documents.entry(document.document_id).or_default();
            difference.missing += 2 * lacking;
            difference.surplus += beyond;
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::ChunkId;

    use super::*;

    fn document(name: &str) -> DocumentId {
        DocumentId::derive(&[name])
    }

    fn key(name: &str, version: &str, number: usize) -> ChunkKey {
        ChunkKey {
            chunk_id: ChunkId::derive(&[name, version, &number.to_string()]),
            document_id: document(name),
            version: version.to_owned(),
        }
    }

    fn indexed(name: &str, version: &str, chunks: usize) -> IndexedDocument {
        IndexedDocument { document_id: document(name), version: version.to_owned(), chunks }
    }

    fn found(compared: Compared, documents: &[(IndexedDocument, usize, usize)]) -> Findings {
        let known = documents.iter().map(|(known, ..)| (known.document_id, known.clone())).collect();
        let mut found = Findings::default();
        found.chunks(compared, &known);
        for (known, vectors, keywords) in documents {
            found.document(known, *vectors, *keywords);
        }
        found
    }

    fn sums(found: &Findings) -> Vec<(DocumentId, usize, usize)> {
        found.documents.iter().map(|(id, difference)| (*id, difference.missing, difference.surplus)).collect()
    }

    #[test]
    fn given_a_chunk_that_lacks_and_one_too_many_when_counts_agree_then_both_are_found_by_name() {
        // Two of two in either index, and still not the same two.
        let compared = Compared {
            both: vec![key("a", "v1", 0)],
            vectors: vec![key("a", "v1", 1)],
            keywords: vec![key("a", "v0", 1)],
        };
        let found = found(compared, &[(indexed("a", "v1", 2), 2, 2)]);
        assert_eq!(sums(&found), [(document("a"), 1, 1)]);
        let named: Vec<_> = found.named.iter().map(|chunk| (chunk.chunk_id.clone(), chunk.fault)).collect();
        let id = |version| key("a", version, 1).chunk_id.to_string();
        assert_eq!(named, [(id("v1"), ChunkFault::Missing), (id("v0"), ChunkFault::Surplus)]);
    }

    #[test]
    fn given_what_neither_index_has_or_both_have_too_many_of_when_compared_then_it_is_found() {
        let both = (0..3).map(|number| key("b", "v1", number)).collect();
        let whole = (indexed("b", "v1", 3), 3, 3);
        let found_of = |documents: &[(IndexedDocument, usize, usize)], both| {
            sums(&found(Compared { both, ..Compared::default() }, documents))
        };
        assert_eq!(found_of(&[whole], both), []);
        assert_eq!(found_of(&[(indexed("a", "v1", 2), 1, 1)], vec![key("a", "v1", 0)]), [(document("a"), 2, 0)]);
        // Of a document that nobody knows, and of another version beside one that lacks.
        assert_eq!(found_of(&[], vec![key("a", "v1", 0)]), [(document("a"), 0, 2)]);
        let stale = vec![key("a", "v1", 0), key("a", "v0", 1)];
        assert_eq!(found_of(&[(indexed("a", "v1", 2), 2, 2)], stale), [(document("a"), 2, 2)]);
    }

    #[test]
    fn given_more_differences_than_are_named_when_compared_then_the_lists_stay_bounded() {
        let vectors = (0..2 * MAX_NAMED).map(|number| key(&number.to_string(), "v1", 0)).collect();
        let found = found(Compared { vectors, ..Compared::default() }, &[]);
        assert_eq!((found.named.len(), found.documents.len()), (MAX_NAMED, 2 * MAX_NAMED));
    }
}
