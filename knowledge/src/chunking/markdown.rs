//! Like `recursive`, but headings, lists and code blocks are kept together where they fit, and tables always are.

use text_splitter::MarkdownSplitter;

use super::measure::Sizer;
use super::recursive::splitter_config;
use super::windows::windowed;
use super::{Chunker, Sizing, whole_tables};
use crate::sources::ExtractedText;

/// Splits by the structure of CommonMark and its usual extensions.
pub struct MarkdownChunks;

/// Chunks that a window holds about, and its least length. Larger than for plain text, because a window that begins within
/// a block is split as if it were text.
const WINDOW_CHUNKS: usize = 80;
const MIN_WINDOW_BYTES: usize = 4 << 10;

impl Chunker for MarkdownChunks {
    fn name(&self) -> &'static str {
        "markdown"
    }

    fn split<'t>(&self, text: &'t ExtractedText, sizing: &Sizing) -> Vec<(usize, &'t str)> {
        let found = windowed(&text.text, sizing.window_bytes(WINDOW_CHUNKS, MIN_WINDOW_BYTES), |window| {
            MarkdownSplitter::<Sizer>::new(splitter_config(sizing, window)).chunk_indices(window).collect()
        });
        whole_tables::kept(&text.text, found, sizing)
    }
}
