//! Programs by their syntax tree, so that functions and classes stay together where they fit.

use text_splitter::CodeSplitter;

use super::ChunkConfig;
use super::recursive::splitter_config;
use super::windows::windowed;

/// Chunks that a window holds about, and its least length: large, because what a window cuts through has no tree.
const WINDOW_CHUNKS: usize = 80;
const MIN_WINDOW_BYTES: usize = 32 << 10;

type Splitter = CodeSplitter<text_splitter::Characters>;

/// A splitter by the name that sources give a language.
fn splitter(language: &str, config: ChunkConfig) -> Option<Splitter> {
    let config = splitter_config(config);
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
pub(super) fn split<'t>(text: &'t str, language: &str, config: ChunkConfig) -> Option<Vec<(usize, &'t str)>> {
    let splitter = splitter(language, config)?;
    Some(windowed(text, MIN_WINDOW_BYTES.max(WINDOW_CHUNKS * config.size()), |window| {
        splitter.chunk_indices(window).collect()
    }))
}
