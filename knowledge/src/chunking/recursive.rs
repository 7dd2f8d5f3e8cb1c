//! Paragraphs, then sentences, then words, then characters: the largest of them that fits. Programs in a language whose
//! grammar is here are split by their syntax tree.

use text_splitter::TextSplitter;

use super::code;
use super::measure::Sizer;
use super::windows::windowed;
use super::{Chunker, Sizing};
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

    fn split<'t>(&self, text: &'t ExtractedText, sizing: &Sizing) -> Vec<(usize, &'t str)> {
        if let Some(chunks) = text.language.as_deref().and_then(|language| code::split(&text.text, language, sizing)) {
            return chunks;
        }
        windowed(&text.text, sizing.window_bytes(WINDOW_CHUNKS, MIN_WINDOW_BYTES), |window| {
            TextSplitter::<Sizer>::new(splitter_config(sizing, window)).chunk_indices(window).collect()
        })
    }
}

/// The configuration of a splitter for this window alone.
pub(super) fn splitter_config(sizing: &Sizing, window: &str) -> text_splitter::ChunkConfig<Sizer> {
    let base = text_splitter::ChunkConfig::new(sizing.config.size());
    match base.with_overlap(sizing.config.overlap()) {
        Ok(with_overlap) => with_overlap.with_sizer(sizing.sizer(window)),
        Err(error) => unreachable!("the overlap was checked to be below the size: {error}"),
    }
}
