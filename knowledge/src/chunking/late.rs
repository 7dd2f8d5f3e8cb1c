//! Chunks as others would make them, each embedded in the light of the text around it: see [`ChunksReady`].
//!
//! After Günther et al., "Late Chunking: Contextual Chunk Embeddings Using Long-Context Embedding Models" (2024, arXiv 2409.04701): the
//! encoder reads first and chunks are pooled afterwards, so that "it" and "the city" mean what the document means by them.
//!
//! [`ChunksReady`]: riverrun_schemas::ingest::ChunksReady

use std::ops::Range;

use riverrun_schemas::ingest::Chunk;

use super::{Chunker, MarkdownChunks, Recursive, Sizing};
use crate::sources::ExtractedText;

/// The name of the strategy.
pub const LATE: &str = "late";

/// Bytes before and behind a batch of chunks that the encoder reads with it.
const CONTEXT_BYTES: usize = 8 << 10;

/// Splits by structure; the vectors are made from the chunks within their text.
pub struct Late;

impl Late {
    /// The bytes of the document that the encoder reads for a batch, and the chunks' places within them. `None` when the chunks are not
    /// of this text.
    pub fn context(text: &str, chunks: &[Chunk]) -> Option<(Range<usize>, Vec<Range<usize>>)> {
        let spans: Vec<Range<usize>> = chunks.iter().map(|chunk| span(text, chunk)).collect::<Option<_>>()?;
        let start = spans.iter().map(|span| span.start).min()?;
        let end = spans.iter().map(|span| span.end).max()?;
        let from = text.floor_char_boundary(start.saturating_sub(CONTEXT_BYTES));
        let to = text.ceil_char_boundary(text.len().min(end + CONTEXT_BYTES));
        let within = spans.into_iter().map(|span| span.start - from..span.end - from).collect();
        Some((from..to, within))
    }
}

fn span(text: &str, chunk: &Chunk) -> Option<Range<usize>> {
    let span = usize::try_from(chunk.start).ok()?..usize::try_from(chunk.end).ok()?;
    (text.get(span.clone())? == chunk.text).then_some(span)
}

impl Chunker for Late {
    fn name(&self) -> &'static str {
        LATE
    }

    fn split<'t>(&self, text: &'t ExtractedText, sizing: &Sizing) -> Vec<(usize, &'t str)> {
        if text.sections.is_empty() { Recursive.split(text, sizing) } else { MarkdownChunks.split(text, sizing) }
    }
}
