//! Programs by their syntax tree, so that functions and classes stay together where they fit.

use text_splitter::CodeSplitter;

use super::measure::{Sizer, Sizing};
use super::recursive::splitter_config;
use super::windows::windowed;

/// Chunks that a window holds about, and its least length: large, because what a window cuts through has no tree.
const WINDOW_CHUNKS: usize = 80;
const MIN_WINDOW_BYTES: usize = 32 << 10;

type Splitter = CodeSplitter<Sizer>;

/// A splitter of this window, by the name that sources give a language.
fn splitter(language: &str, sizing: &Sizing, window: &str) -> Option<Splitter> {
    let config = splitter_config(sizing, window);
    let made = match language {
        "rust" => CodeSplitter::new(tree_sitter_rust::LANGUAGE, config),
        "python" => CodeSplitter::new(tree_sitter_python::LANGUAGE, config),
        "javascript" => CodeSplitter::new(tree_sitter_javascript::LANGUAGE, config),
        "typescript" => CodeSplitter::new(tree_sitter_typescript::LANGUAGE_TYPESCRIPT, config),
        "tsx" => CodeSplitter::new(tree_sitter_typescript::LANGUAGE_TSX, config),
        "go" => CodeSplitter::new(tree_sitter_go::LANGUAGE, config),
        _ => return None,
    };
    made.ok()
}

/// Splits a program; `None` for a language without a grammar here.
pub(super) fn split<'t>(text: &'t str, language: &str, sizing: &Sizing) -> Option<Vec<(usize, &'t str)>> {
    // Whether there is a grammar does not depend on the window.
    splitter(language, sizing, "")?;
    Some(windowed(text, sizing.window_bytes(WINDOW_CHUNKS, MIN_WINDOW_BYTES), |window| {
        splitter(language, sizing, window).map_or_else(Vec::new, |splitter| splitter.chunk_indices(window).collect())
    }))
}
