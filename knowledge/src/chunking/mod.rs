//! Chunking: from a document's text to the spans that are embedded and found.
//!
//! Invariants, held by property tests for every strategy:
//! - `CHUNK-1`: `stored_text[chunk.start..chunk.end] == chunk.text`;
//! - `CHUNK-2`: starts strictly increase, and so do ends;
//! - `CHUNK-3`: no chunk is empty or white space only, and none has more characters, or tokens, than the chunk size;
//! - `CHUNK-4`: every character of the text that is not white space is in some chunk.

use riverrun_models::ModelError;
use riverrun_schemas::ingest::Chunk;
use riverrun_schemas::{ChunkId, DocumentId};
use sha2::{Digest, Sha256};

use crate::sources::{ExtractedText, Source};

mod batches;
mod code;
mod config;
mod late;
mod markdown;
mod measure;
mod raptor;
mod recursive;
mod whole_tables;
mod windows;

pub use batches::{MAX_BATCH_CHUNKS, MAX_DIMENSIONS, batches};
pub use config::{ChunkConfig, ChunkError, ChunkUnit};
pub use late::{LATE, Late};
pub use markdown::MarkdownChunks;
pub use measure::{Measure, Sizing};
pub use raptor::{RAPTOR, Raptor};
pub use recursive::Recursive;

/// Characters of a chunk when nothing is set.
pub const DEFAULT_SIZE: usize = 800;
/// Characters that neighbours share when nothing is set.
pub const DEFAULT_OVERLAP: usize = 100;
/// Largest chunk size in characters: such a chunk and its vector still fit in one event, whatever its characters.
pub const MAX_SIZE: usize = 32_000;
/// Tokens of a chunk when sizes are in tokens and nothing is set.
pub const DEFAULT_TOKENS: usize = 200;
/// Tokens that neighbours share when sizes are in tokens and nothing is set.
pub const DEFAULT_TOKENS_OVERLAP: usize = 25;
/// Largest chunk size in tokens, for the same reason.
pub const MAX_TOKENS: usize = 3_000;
/// Most chunks of one document; beyond it the document is refused.
pub const MAX_CHUNKS: usize = 100_000;

/// Raised whenever the same bytes and settings would give other chunks than before, so that versions differ.
const PIPELINE: &str = "riverrun-chunks-1";

/// A strategy.
pub trait Chunker: Send + Sync {
    /// The name that versions carry.
    fn name(&self) -> &'static str;

    /// The chunks as `(first byte, text)` in reading order. May break `CHUNK-2` and `CHUNK-3`: [`chunks`] mends that.
    fn split<'t>(&self, text: &'t ExtractedText, sizing: &Sizing) -> Vec<(usize, &'t str)>;
}

/// Every strategy; a new one is one line here.
static CHUNKERS: &[&dyn Chunker] = &[&Recursive, &MarkdownChunks, &Late, &Raptor];

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

/// The version of a document: lower-case hex of a SHA-256 over everything that its chunks and vectors follow from, that is the
/// SHA-256 of its bytes, how its text is taken out and split (source, strategy, size, overlap, the pipeline's own version), its
/// metadata and the table its rows go to. The embedding model is part of it where its tokens are counted, and not otherwise: a
/// collection that is re-embedded has the same chunks. Equal versions mean that nothing is to do; each part carries its length.
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
    let counted_by = match config.unit {
        ChunkUnit::Characters => "",
        ChunkUnit::Tokens => embed_model,
    };
    let mut parts = vec![
        PIPELINE,
        content_sha256,
        source.name(),
        chunker.name(),
        &size,
        &overlap,
        counted_by,
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
    sizing: impl Into<Sizing>,
    document_id: &DocumentId,
    version: &str,
) -> Result<Vec<Chunk>, ChunkError> {
    let sizing = sizing.into();
    let uncountable = |error: ModelError| ChunkError::Tokenizer { name: name.to_owned(), reason: error.to_string() };
    let split = fitting(&text.text, in_order(chunker.split(text, &sizing)), &sizing).map_err(uncountable)?;
    let spans = without_gaps(&text.text, split, &sizing).map_err(uncountable)?;
    if spans.len() > MAX_CHUNKS {
        return Err(ChunkError::TooMany { name: name.to_owned(), size: sizing.config.size, unit: sizing.config.unit });
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
            layer: 0,
            leaves: Vec::new(),
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

/// Cuts what has more tokens by itself than it was counted for within its window, as a part of a word may.
fn fitting<'t>(
    text: &'t str,
    spans: Vec<(usize, &'t str)>,
    sizing: &Sizing,
) -> Result<Vec<(usize, &'t str)>, ModelError> {
    if sizing.config.unit == ChunkUnit::Characters {
        return Ok(spans);
    }
    let mut fit = Vec::with_capacity(spans.len());
    for (start, part) in spans {
        fit.extend(pieces(text, start, start + part.len(), sizing)?);
    }
    Ok(in_order(fit))
}

/// Adds what a splitter has left out, such as a line that it took for part of a block that it then dropped: no word of a
/// document may be in no chunk.
fn without_gaps<'t>(
    text: &'t str,
    spans: Vec<(usize, &'t str)>,
    sizing: &Sizing,
) -> Result<Vec<(usize, &'t str)>, ModelError> {
    let mut whole = Vec::with_capacity(spans.len());
    let mut covered = 0;
    for (start, part) in spans {
        whole.extend(pieces(text, covered, start, sizing)?);
        whole.push((start, part));
        covered = start + part.len();
    }
    whole.extend(pieces(text, covered, text.len(), sizing)?);
    Ok(whole)
}

/// The words of a stretch of text in pieces of at most the size.
fn pieces<'t>(text: &'t str, from: usize, to: usize, sizing: &Sizing) -> Result<Vec<(usize, &'t str)>, ModelError> {
    let Some(gap) = text.get(from..to).filter(|gap| !gap.trim().is_empty()) else { return Ok(Vec::new()) };
    let mut at = from + (gap.len() - gap.trim_start().len());
    let end = from + gap.trim_end().len();
    let mut found = Vec::new();
    while at < end {
        let length = sizing.beginning(&text[at..end])?;
        found.push((at, &text[at..at + length]));
        at += length;
    }
    found.retain(|(_, piece)| !piece.trim().is_empty());
    Ok(found)
}

/// What is embedded for a chunk: its headings, which the chunk alone may not tell, and its text.
pub fn embedding_text(chunk: &Chunk) -> String {
    embedding_text_of(chunk.heading.as_deref(), &chunk.text)
}

/// The same for a chunk that is stored.
pub fn embedding_text_of(heading: Option<&str>, text: &str) -> String {
    match heading {
        Some(heading) => format!("{heading}\n{text}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
