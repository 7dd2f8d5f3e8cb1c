//! Embedding models beyond whole texts: their tokenizers, for counting, and vectors of spans of one text.

use std::ops::Range;

use crate::error::ModelError;

/// The tokenizer of an embedding model. Counting takes no weights.
pub trait EmbedTokenizer: Send + Sync {
    /// The bytes of `text` that each of its tokens stands for, in order, without special tokens. A token may stand for no byte, and two
    /// for the same ones.
    fn tokens(&self, text: &str) -> Result<Vec<Range<usize>>, ModelError>;

    /// Tokens of a text that the model reads, special ones not counted.
    fn max_tokens(&self) -> usize;
}

/// A text of which spans are embedded, each in the light of what stands around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpansRequest {
    /// The model's name at the provider.
    pub model: String,
    /// The text; what is longer than the model reads is read in windows.
    pub text: String,
    /// Bytes of the text. Every span lies within it, at boundaries of characters.
    pub spans: Vec<Range<usize>>,
}

impl SpansRequest {
    /// The first span that is none of the text.
    pub(crate) fn bad_span(&self) -> Option<&Range<usize>> {
        self.spans.iter().find(|span| self.text.get((*span).clone()).is_none_or(str::is_empty))
    }
}
