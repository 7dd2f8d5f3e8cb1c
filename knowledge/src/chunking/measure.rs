//! How long a stretch of text is: in characters, or in tokens of the embedding model's own tokenizer.
//!
//! A tokenizer reads each window of a document once; a splitter that asks for the length of a part of it is answered by counting the
//! tokens that begin there. Where a part is cut within a word that may differ from what the tokenizer says of the part alone: chunks
//! are looked at again one by one, and those that are too long are cut.

use std::ops::Range;
use std::sync::Arc;

use riverrun_models::{EmbedTokenizer, ModelError};
use text_splitter::ChunkSizer;

use super::ChunkConfig;

/// A token counts for at most so many bytes: tokenizers make one token of a long word that they do not know.
const MAX_TOKEN_BYTES: usize = 64;

/// The unit of sizes and overlaps.
#[derive(Clone, Default)]
pub enum Measure {
    /// Unicode characters.
    #[default]
    Characters,
    /// Tokens of this tokenizer; a token counts for at most 64 bytes.
    Tokens(Arc<dyn EmbedTokenizer>),
}

/// Size, overlap and the unit that they count in.
#[derive(Clone)]
pub struct Sizing {
    pub(super) config: ChunkConfig,
    pub(super) measure: Measure,
}

impl Sizing {
    /// Sizes of this configuration, in this unit.
    pub fn new(config: ChunkConfig, measure: Measure) -> Self {
        Self { config, measure }
    }

    /// Bytes of a window that holds about so many chunks.
    pub(super) fn window_bytes(&self, chunks: usize, least: usize) -> usize {
        let bytes_each = match self.measure {
            Measure::Characters => 1,
            // Of ordinary text.
            Measure::Tokens(_) => 4,
        };
        least.max(chunks * self.config.size() * bytes_each)
    }

    /// What a splitter of this window asks.
    pub(super) fn sizer(&self, window: &str) -> Sizer {
        Sizer(match &self.measure {
            Measure::Characters => Lengths::Characters,
            Measure::Tokens(tokenizer) => Lengths::Tokens(TokenLengths::read(tokenizer.clone(), window)),
        })
    }

    /// Bytes of the longest beginning of `text` that is no longer than the size, and one character at least.
    pub(super) fn beginning(&self, text: &str) -> Result<usize, ModelError> {
        let size = self.config.size();
        let Measure::Tokens(tokenizer) = &self.measure else {
            return Ok(text.char_indices().nth(size).map_or(text.len(), |(length, _)| length));
        };
        let first = text.chars().next().map_or(0, char::len_utf8);
        let mut end = text.ceil_char_boundary(text.len().min(size.saturating_mul(MAX_TOKEN_BYTES)));
        if end.div_ceil(MAX_TOKEN_BYTES) > size {
            end = text.floor_char_boundary(size.saturating_mul(MAX_TOKEN_BYTES));
        }
        loop {
            let tokens = tokenizer.tokens(&text[..end])?;
            match tokens.get(size) {
                // Before the first token too many, and in any case further ahead than now.
                Some(beyond) if end > first => {
                    end = text.floor_char_boundary(beyond.start.min(end - 1)).max(first);
                }
                Some(_) | None => return Ok(end.max(first)),
            }
        }
    }
}

impl From<ChunkConfig> for Sizing {
    fn from(config: ChunkConfig) -> Self {
        Self { config, measure: Measure::Characters }
    }
}

/// Lengths of the parts of one window.
pub(super) struct Sizer(Lengths);

enum Lengths {
    Characters,
    Tokens(TokenLengths),
}

impl ChunkSizer for Sizer {
    fn size(&self, chunk: &str) -> usize {
        match &self.0 {
            Lengths::Characters => chunk.chars().count(),
            Lengths::Tokens(tokens) => tokens.length(chunk),
        }
    }
}

struct TokenLengths {
    tokenizer: Arc<dyn EmbedTokenizer>,
    /// Where the window lies in memory: parts of it are known by that.
    window: Range<usize>,
    /// First bytes of its tokens, in order.
    starts: Vec<usize>,
}

impl TokenLengths {
    fn read(tokenizer: Arc<dyn EmbedTokenizer>, window: &str) -> Self {
        // One that can't be read is found out when its chunks are looked at; until then the bytes bound them.
        let tokens = tokenizer.tokens(window).unwrap_or_default();
        let mut starts: Vec<usize> = tokens.into_iter().map(|token| token.start).collect();
        starts.sort_unstable();
        Self { tokenizer, window: place(window), starts }
    }

    fn length(&self, part: &str) -> usize {
        let at = place(part);
        let tokens = if self.window.start <= at.start && at.end <= self.window.end {
            let before = |byte: usize| self.starts.partition_point(|start| *start < byte);
            before(at.end - self.window.start) - before(at.start - self.window.start)
        } else {
            self.tokenizer.tokens(part).map_or(0, |tokens| tokens.len())
        };
        tokens.max(part.len().div_ceil(MAX_TOKEN_BYTES))
    }
}

/// The addresses of a text's bytes.
fn place(text: &str) -> Range<usize> {
    let start = text.as_ptr().addr();
    start..start + text.len()
}
