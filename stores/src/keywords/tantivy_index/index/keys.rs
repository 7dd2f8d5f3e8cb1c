//! The chunks of an index by their ids, a page at a time.

use std::collections::{BTreeMap, BTreeSet};

use riverrun_schemas::{ChunkId, DocumentId};
use tantivy::collector::TopDocs;
use tantivy::index::SegmentReader;
use tantivy::schema::IndexRecordOption;
use tantivy::{DocSet, TERMINATED};

use super::{OpenIndex, exactly, failed};
use crate::agreement::{ChunkKey, KeyPage};
use crate::chunk::Versions;
use crate::error::StoreError;

impl OpenIndex {
    /// How many chunks each of these documents has; one without a chunk is left out.
    pub(crate) fn count_documents(&self, documents: &[DocumentId]) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        let mut found = BTreeMap::new();
        for document in documents {
            let chunks = self.count_document(document, &Versions::All)?;
            if chunks > 0 {
                found.insert(*document, chunks);
            }
        }
        Ok(found)
    }

    /// Up to `limit` chunks from this id on, by id: the texts of ids sort as the ids do.
    pub(crate) fn ids(&self, from: Option<ChunkId>, limit: usize) -> Result<KeyPage<ChunkId>, StoreError> {
        let searcher = self.reader.searcher();
        let (from, wanted) = (from.map(|from| from.to_string()).unwrap_or_default(), limit.saturating_add(1));
        let mut ids = BTreeSet::new();
        for segment in searcher.segment_readers() {
            ids.extend(self.ids_of(segment, &from, wanted)?);
            while ids.len() > wanted {
                ids.pop_last();
            }
        }
        Ok(KeyPage::of(ids.into_iter().collect(), limit, |id| *id))
    }

    /// The first ids of a segment from `from` on whose chunks are not deleted.
    fn ids_of(&self, segment: &SegmentReader, from: &str, wanted: usize) -> Result<Vec<ChunkId>, StoreError> {
        let unread = |error: std::io::Error| failed(&self.path, error);
        let inverted = segment.inverted_index(self.fields.chunk_id).map_err(|error| failed(&self.path, error))?;
        let mut terms = inverted.terms().range().ge(from.as_bytes()).into_stream().map_err(unread)?;
        let mut ids = Vec::new();
        while ids.len() < wanted && terms.advance() {
            let mut postings =
                inverted.read_postings_from_terminfo(terms.value(), IndexRecordOption::Basic).map_err(unread)?;
            while postings.doc() != TERMINATED && segment.is_deleted(postings.doc()) {
                postings.advance();
            }
            if postings.doc() != TERMINATED {
                let text = String::from_utf8_lossy(terms.key());
                let id = text.parse::<ChunkId>().map_err(|error| failed(&self.path, format!("{text}: {error}")))?;
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// What these chunks are parts of; what is not there is left out.
    pub(crate) fn keys_of(&self, chunks: &[ChunkId]) -> Result<Vec<ChunkKey>, StoreError> {
        let searcher = self.reader.searcher();
        let mut keys = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let query = exactly(self.fields.chunk_id, &chunk.to_string());
            let found = searcher
                .search(&query, &TopDocs::with_limit(1).order_by_score())
                .map_err(|error| failed(&self.path, error))?;
            for (_, address) in found {
                keys.push(self.stored(&searcher, address)?);
            }
        }
        Ok(keys)
    }
}
