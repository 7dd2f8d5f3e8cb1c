//! Paragraphs, then sentences, then words, then characters: the largest of them that fits. Programs in a language whose
//! grammar is here are split by their syntax tree.

use text_splitter::TextSplitter;

use super::code;
use super::windows::windowed;
use super::{ChunkConfig, Chunker};
use crate::sources::ExtractedText;

/// Splits at the highest level of structure that fits, by the Unicode rules for sentences and words.
pub struct Recursive;

/// Chunks that a window holds about, and its least length.
const WINDOW_CHUNKS: usize = 20;
const MIN_WINDOW_BYTES: usize = 2 << 10;

impl Chunker for Recursive {
    fn name(&self) -> &'static str {
        "recursive"
    }

    fn split<'t>(&self, text: &'t ExtractedText, config: ChunkConfig) -> Vec<(usize, &'t str)> {
        if let Some(chunks) = text.language.as_deref().and_then(|language| code::split(&text.text, language, config)) {
            return chunks;
        }
        let splitter = TextSplitter::new(splitter_config(config));
        windowed(&text.text, MIN_WINDOW_BYTES.max(WINDOW_CHUNKS * config.size()), |window| {
            splitter.chunk_indices(window).collect()
        })
    }
}

pub(super) fn splitter_config(config: ChunkConfig) -> text_splitter::ChunkConfig<text_splitter::Characters> {
    let base = text_splitter::ChunkConfig::new(config.size());
    match base.with_overlap(config.overlap()) {
        Ok(with_overlap) => with_overlap,
        Err(error) => unreachable!("the overlap was checked to be below the size: {error}"),
    }
}
