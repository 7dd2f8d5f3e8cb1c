//! Chunking: from a document's text to the spans that are embedded and found.
//!
//! Invariants, held by property tests for every strategy:
//! - `CHUNK-1`: `stored_text[chunk.start..chunk.end] == chunk.text`;
//! - `CHUNK-2`: starts strictly increase, and so do ends;
//! - `CHUNK-3`: no chunk is empty or white space only, and none has more characters, or tokens, than the chunk size;
//! - `CHUNK-4`: every character of the text that is not white space is in some chunk.

use riverrun_models::ModelError;
use riverrun_schemas::ingest::Chunk;
use riverrun_schemas::{ChunkId, DocumentId, Failure};
use sha2::{Digest, Sha256};

use crate::sources::{ExtractedText, Source};

mod batches;
mod code;
mod late;
mod markdown;
mod measure;
mod recursive;
mod windows;

pub use batches::{MAX_BATCH_CHUNKS, MAX_DIMENSIONS, batches};
pub use late::{LATE, Late};
pub use markdown::MarkdownChunks;
pub use measure::{Measure, Sizing};
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
static CHUNKERS: &[&dyn Chunker] = &[&Recursive, &MarkdownChunks, &Late];

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
    unit: ChunkUnit,
}

/// What sizes and overlaps count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ChunkUnit {
    /// Unicode characters.
    #[default]
    Characters,
    /// Tokens of the embedding model's own tokenizer.
    Tokens,
}

impl ChunkUnit {
    /// Both names.
    pub const NAMES: [&'static str; 2] = ["characters", "tokens"];

    /// The name that settings, requests and events have.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Characters => Self::NAMES[0],
            Self::Tokens => Self::NAMES[1],
        }
    }

    /// The unit of that name; characters when none is named.
    pub fn named(name: Option<&str>) -> Result<Self, ChunkError> {
        match name {
            None | Some("characters") => Ok(Self::Characters),
            Some("tokens") => Ok(Self::Tokens),
            Some(other) => Err(ChunkError::BadUnit { given: other.to_owned() }),
        }
    }

    /// Size and overlap when nothing is set.
    pub fn defaults(self) -> (usize, usize) {
        match self {
            Self::Characters => (DEFAULT_SIZE, DEFAULT_OVERLAP),
            Self::Tokens => (DEFAULT_TOKENS, DEFAULT_TOKENS_OVERLAP),
        }
    }

    fn max_size(self) -> usize {
        match self {
            Self::Characters => MAX_SIZE,
            Self::Tokens => MAX_TOKENS,
        }
    }
}

impl std::fmt::Display for ChunkUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Size or overlap can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The size is zero, negative or too large.
    #[error("RIVERRUN_CHUNK_SIZE is {size}, which is not between 1 and {max} {unit}", max = .unit.max_size())]
    BadSize {
        /// What was asked for.
        size: i64,
        /// What it counts.
        unit: ChunkUnit,
    },
    /// There is no such unit.
    #[error("RIVERRUN_CHUNK_UNIT is {given:?}, which is neither characters nor tokens")]
    BadUnit {
        /// What was asked for.
        given: String,
    },
    /// The model does not read so many tokens at once.
    #[error("RIVERRUN_CHUNK_SIZE is {size} tokens, and the embedding model {model} reads {limit} at once")]
    BeyondModel {
        /// What was asked for.
        size: usize,
        /// The embedding model.
        model: String,
        /// What it reads.
        limit: usize,
    },
    /// The tokenizer could not read the document.
    #[error("the tokens of {name} can't be counted: {reason}")]
    Tokenizer {
        /// The document.
        name: String,
        /// What the tokenizer said.
        reason: String,
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
    #[error("{name} has more than {MAX_CHUNKS} chunks with RIVERRUN_CHUNK_SIZE {size} {unit}")]
    TooMany {
        /// The document.
        name: String,
        /// The chunk size.
        size: usize,
        /// What it counts.
        unit: ChunkUnit,
    },
}

impl ChunkError {
    /// Stable code, lower snake case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadSize { .. } | Self::BeyondModel { .. } => "bad_chunk_size",
            Self::BadUnit { .. } => "bad_chunk_unit",
            Self::Tokenizer { .. } => "tokenizer_failed",
            Self::BadOverlap { .. } => "bad_chunk_overlap",
            Self::UnknownStrategy { .. } => "unknown_strategy",
            Self::TooMany { .. } => "too_many_chunks",
        }
    }

    /// The fix.
    pub fn hint(&self) -> String {
        match self {
            Self::BadSize { unit, .. } => {
                format!("set RIVERRUN_CHUNK_SIZE to a number of {unit}, for example {}", unit.defaults().0)
            }
            Self::BadUnit { .. } => "set RIVERRUN_CHUNK_UNIT to characters or to tokens".to_owned(),
            Self::BeyondModel { limit, .. } => format!("set RIVERRUN_CHUNK_SIZE to {limit} or less"),
            Self::Tokenizer { .. } => "set RIVERRUN_CHUNK_UNIT to characters".to_owned(),
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
        Self::in_unit(size, overlap, ChunkUnit::Characters)
    }

    /// Checks size and overlap, both in that unit.
    pub fn in_unit(size: i64, overlap: i64, unit: ChunkUnit) -> Result<Self, ChunkError> {
        let checked_size = usize::try_from(size)
            .ok()
            .filter(|size| (1..=unit.max_size()).contains(size))
            .ok_or(ChunkError::BadSize { size, unit })?;
        let checked_overlap = usize::try_from(overlap)
            .ok()
            .filter(|overlap| *overlap < checked_size)
            .ok_or(ChunkError::BadOverlap { overlap, size })?;
        Ok(Self { size: checked_size, overlap: checked_overlap, unit })
    }

    /// Refuses chunks that the embedding model does not read whole.
    pub fn for_window(self, model: &str, limit: usize) -> Result<Self, ChunkError> {
        if self.size > limit {
            return Err(ChunkError::BeyondModel { size: self.size, model: model.to_owned(), limit });
        }
        Ok(self)
    }

    /// Most characters, or tokens, of a chunk.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Characters, or tokens, that neighbours share at most.
    pub fn overlap(&self) -> usize {
        self.overlap
    }

    /// What both count.
    pub fn unit(&self) -> ChunkUnit {
        self.unit
    }
}

impl Default for ChunkConfig {
    fn default() -> Self {
        Self { size: DEFAULT_SIZE, overlap: DEFAULT_OVERLAP, unit: ChunkUnit::Characters }
    }
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
