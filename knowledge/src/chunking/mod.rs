//! Chunking: from a document's text to the spans that are embedded and found.
//!
//! Invariants, held by property tests for every strategy:
//! - `CHUNK-1`: `stored_text[chunk.start..chunk.end] == chunk.text`;
//! - `CHUNK-2`: starts strictly increase, and so do ends;
//! - `CHUNK-3`: no chunk is empty or white space only, and none has more characters than the chunk size;
//! - `CHUNK-4`: every character of the text that is not white space is in some chunk.

use riverrun_schemas::ingest::Chunk;
use riverrun_schemas::{ChunkId, DocumentId, Failure};
use sha2::{Digest, Sha256};

use crate::sources::{ExtractedText, Source};

mod batches;
mod code;
mod markdown;
mod recursive;
mod windows;

pub use batches::{MAX_BATCH_CHUNKS, MAX_DIMENSIONS, batches};
pub use markdown::MarkdownChunks;
pub use recursive::Recursive;

/// Characters of a chunk when nothing is set.
pub const DEFAULT_SIZE: usize = 800;
/// Characters that neighbours share when nothing is set.
pub const DEFAULT_OVERLAP: usize = 100;
/// Largest chunk size in characters: such a chunk and its vector still fit in one event, whatever its characters.
pub const MAX_SIZE: usize = 32_000;
/// Most chunks of one document; beyond it the document is refused.
pub const MAX_CHUNKS: usize = 100_000;

/// Raised whenever the same bytes and settings would give other chunks than before, so that versions differ.
const PIPELINE: &str = "riverrun-chunks-1";

/// A strategy.
pub trait Chunker: Send + Sync {
    /// The name that versions carry.
    fn name(&self) -> &'static str;

    /// The chunks as `(first byte, text)` in reading order. May break `CHUNK-2` and `CHUNK-3`: [`chunks`] mends that.
    fn split<'t>(&self, text: &'t ExtractedText, config: ChunkConfig) -> Vec<(usize, &'t str)>;
}

/// Every strategy; a new one is one line here.
static CHUNKERS: &[&dyn Chunker] = &[&Recursive, &MarkdownChunks];

/// The names of the strategies.
pub fn strategy_names() -> Vec<&'static str> {
    CHUNKERS.iter().map(|chunker| chunker.name()).collect()
}

/// The strategy of that name; that of the source when none is named.
pub fn chunker(strategy: Option<&str>, source: &dyn Source) -> Result<&'static dyn Chunker, ChunkError> {
    let Some(name) = strategy else { return Ok(source.chunker()) };
    let found = CHUNKERS.iter().find(|chunker| chunker.name() == name).copied();
    found.ok_or_else(|| ChunkError::UnknownStrategy { given: name.to_owned() })
}

/// Size and overlap, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkConfig {
    size: usize,
    overlap: usize,
}

/// Size or overlap can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The size is zero, negative or too large.
    #[error("RIVERRUN_CHUNK_SIZE is {size}, which is not between 1 and {MAX_SIZE} characters")]
    BadSize {
        /// What was asked for.
        size: i64,
    },
    /// The overlap is negative or leaves no room for anything new.
    #[error(
        "RIVERRUN_CHUNK_OVERLAP is {overlap}, which is not between 0 and one less than RIVERRUN_CHUNK_SIZE, {size}"
    )]
    BadOverlap {
        /// What was asked for.
        overlap: i64,
        /// The size that it has to be below.
        size: i64,
    },
    /// There is no such strategy.
    #[error("there is no chunking strategy {given:?}")]
    UnknownStrategy {
        /// What was asked for.
        given: String,
    },
    /// The document is too long for chunks of this size.
    #[error("{name} has more than {MAX_CHUNKS} chunks with RIVERRUN_CHUNK_SIZE {size}")]
    TooMany {
        /// The document.
        name: String,
        /// The chunk size in characters.
        size: usize,
    },
}

impl ChunkError {
    /// Stable code, lower snake case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadSize { .. } => "bad_chunk_size",
            Self::BadOverlap { .. } => "bad_chunk_overlap",
            Self::UnknownStrategy { .. } => "unknown_strategy",
            Self::TooMany { .. } => "too_many_chunks",
        }
    }

    /// The fix.
    pub fn hint(&self) -> String {
        match self {
            Self::BadSize { .. } => {
                format!("set RIVERRUN_CHUNK_SIZE to a number of characters, for example {DEFAULT_SIZE}")
            }
            Self::BadOverlap { size, .. } => {
                format!(
                    "set RIVERRUN_CHUNK_OVERLAP to a number below RIVERRUN_CHUNK_SIZE, for example {}",
                    (size / 8).max(0)
                )
            }
            Self::UnknownStrategy { .. } => format!("choose one of: {}", strategy_names().join(", ")),
            Self::TooMany { .. } => "raise RIVERRUN_CHUNK_SIZE, or split the document".to_owned(),
        }
    }

    /// As events and problem documents carry it.
    pub fn failure(&self) -> Failure {
        Failure::new(self.code(), self.to_string()).with_hint(self.hint())
    }
}

impl ChunkConfig {
    /// Checks size and overlap, both in characters.
    pub fn new(size: i64, overlap: i64) -> Result<Self, ChunkError> {
        let checked_size = usize::try_from(size)
            .ok()
            .filter(|size| (1..=MAX_SIZE).contains(size))
            .ok_or(ChunkError::BadSize { size })?;
        let checked_overlap = usize::try_from(overlap)
            .ok()
            .filter(|overlap| *overlap < checked_size)
            .ok_or(ChunkError::BadOverlap { overlap, size })?;
        Ok(Self { size: checked_size, overlap: checked_overlap })
    }

    /// Most characters of a chunk.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Characters that neighbours share at most.
    pub fn overlap(&self) -> usize {
        self.overlap
    }
}

impl Default for ChunkConfig {
    fn default() -> Self {
        Self { size: DEFAULT_SIZE, overlap: DEFAULT_OVERLAP }
    }
}

/// The version of a document: lower-case hex of a SHA-256 over everything that its chunks and vectors follow from, that is the
/// SHA-256 of its bytes, how its text is taken out and split (source, strategy, size, overlap, the pipeline's own version), its
/// embedding model, its metadata and the table its rows go to. Equal versions mean that nothing is to do; each part carries its length.
pub fn version(
    content_sha256: &str,
    source: &dyn Source,
    chunker: &dyn Chunker,
    config: ChunkConfig,
    embed_model: &str,
    metadata_json: Option<&str>,
    table: Option<&str>,
) -> String {
    let (size, overlap) = (config.size.to_string(), config.overlap.to_string());
    let mut parts = vec![
        PIPELINE,
        content_sha256,
        source.name(),
        chunker.name(),
        &size,
        &overlap,
        embed_model,
        metadata_json.unwrap_or(""),
    ];
    parts.extend(table);
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Splits a document's text into its chunks. `name` is only for messages.
pub fn chunks(
    name: &str,
    text: &ExtractedText,
    chunker: &dyn Chunker,
    config: ChunkConfig,
    document_id: &DocumentId,
    version: &str,
) -> Result<Vec<Chunk>, ChunkError> {
    let spans = without_gaps(&text.text, in_order(chunker.split(text, config)), config.size);
    if spans.len() > MAX_CHUNKS {
        return Err(ChunkError::TooMany { name: name.to_owned(), size: config.size });
    }
    let document = document_id.to_string();
    let mut headings = text.headings();
    let chunk = |(ordinal, (start, part)): (usize, (usize, &str))| {
        let end = start + part.len();
        Chunk {
            chunk_id: ChunkId::derive(&[&document, version, &start.to_string(), &end.to_string()]),
            ordinal: i32::try_from(ordinal).unwrap_or(i32::MAX),
            start: start as i64,
            end: end as i64,
            text: part.to_owned(),
            page: text.page(start),
            heading: headings.above(start),
        }
    };
    Ok(spans.into_iter().enumerate().map(chunk).collect())
}

/// Leaves out white space and whatever lies within the chunk before it, so that starts and ends strictly increase.
fn in_order(spans: Vec<(usize, &str)>) -> Vec<(usize, &str)> {
    let mut kept: Vec<(usize, &str)> = Vec::with_capacity(spans.len());
    for (start, part) in spans {
        let end = start + part.len();
        // A chunk that begins where the one before does and goes on further takes its place.
        if kept.last().is_some_and(|(last, text)| *last == start && end > last + text.len()) {
            kept.pop();
        }
        let goes_on = kept.last().is_none_or(|(last, text)| start > *last && end > last + text.len());
        if goes_on && !part.trim().is_empty() {
            kept.push((start, part));
        }
    }
    kept
}

/// Adds what a splitter has left out, such as a line that it took for part of a block that it then dropped: no word of a
/// document may be in no chunk.
fn without_gaps<'t>(text: &'t str, spans: Vec<(usize, &'t str)>, size: usize) -> Vec<(usize, &'t str)> {
    let mut whole = Vec::with_capacity(spans.len());
    let mut covered = 0;
    for (start, part) in spans {
        whole.extend(pieces(text, covered, start, size));
        whole.push((start, part));
        covered = start + part.len();
    }
    whole.extend(pieces(text, covered, text.len(), size));
    whole
}

/// The words of a stretch of text in pieces of at most `size` characters.
fn pieces(text: &str, from: usize, to: usize, size: usize) -> Vec<(usize, &str)> {
    let Some(gap) = text.get(from..to).filter(|gap| !gap.trim().is_empty()) else { return Vec::new() };
    let mut at = from + (gap.len() - gap.trim_start().len());
    let end = from + gap.trim_end().len();
    let mut found = Vec::new();
    while at < end {
        let length = text[at..end].char_indices().nth(size).map_or(end - at, |(length, _)| length);
        found.push((at, &text[at..at + length]));
        at += length;
    }
    found.retain(|(_, piece)| !piece.trim().is_empty());
    found
}

/// What is embedded for a chunk: its headings, which the chunk alone may not tell, and its text.
pub fn embedding_text(chunk: &Chunk) -> String {
    match &chunk.heading {
        Some(heading) => format!("{heading}\n{}", chunk.text),
        None => chunk.text.clone(),
    }
}

#[cfg(test)]
mod tests;
