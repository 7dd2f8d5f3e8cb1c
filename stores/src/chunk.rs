use riverrun_schemas::{ChunkId, DocumentId};
use serde::{Deserialize, Serialize};

/// No search gives more hits than this; a larger `k` is cut to it.
pub const MAX_HITS: usize = 1_000;

/// How many hits beyond `k` an index is asked for, so that equal scores around the cut are ordered by chunk id and not by
/// where they happen to lie. More equal scores than this at the cut: which of them are given is up to the index.
pub(crate) const TIE_SLACK: usize = 32;

/// A chunk as the indexes hold it: enough to show and to cite it without asking anybody else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredChunk {
    /// Derived from document, version and span.
    pub chunk_id: ChunkId,
    /// The document.
    pub document_id: DocumentId,
    /// The document's version.
    pub version: String,
    /// Where the document came from.
    pub source: String,
    /// Place among the document's chunks, from 0.
    pub ordinal: i32,
    /// First byte in the stored text.
    pub start: i64,
    /// First byte after it.
    pub end: i64,
    /// `stored_text[start..end]`.
    pub text: String,
    /// Page, from 1, where the format has pages.
    pub page: Option<i32>,
    /// The headings above it, joined by ` > `.
    pub heading: Option<String>,
}

/// Which chunks a search may find.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkFilter {
    /// Only those of these documents; empty for all.
    pub documents: Vec<DocumentId>,
}

/// Which versions of a document are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Versions {
    /// Every one.
    All,
    /// Only this one.
    Only(String),
    /// Every one but this.
    Except(String),
}

/// Best first; equal scores by chunk id.
pub(crate) fn in_order<H>(mut hits: Vec<H>, k: usize, key: impl Fn(&H) -> (f32, ChunkId)) -> Vec<H> {
    hits.sort_by(|a, b| {
        let ((score_a, id_a), (score_b, id_b)) = (key(a), key(b));
        // As text: the order that everybody sees.
        score_b.total_cmp(&score_a).then_with(|| id_a.to_string().cmp(&id_b.to_string()))
    });
    hits.truncate(k);
    hits
}
