//! The tokenizer of an encoder alone, for counting.

use std::ops::Range;
use std::path::Path;

use tokenizers::Tokenizer;

use super::body;
use super::layout::{self, Layout};
use super::text::EncodeError;
use crate::error::ModelError;
use crate::spans::EmbedTokenizer;

/// A tokenizer that cuts nothing.
pub(super) struct Tokens {
    tokenizer: Tokenizer,
    max_tokens: usize,
}

impl Tokens {
    pub(super) fn load(folder: &Path) -> Result<Self, EncodeError> {
        let longest = body::max_tokens(&layout::config(folder)?)?;
        let window = Layout::read(folder)?.max_tokens.unwrap_or(usize::MAX).min(longest);
        let path = folder.join("tokenizer.json");
        let bad = |error: tokenizers::Error| EncodeError(format!("{}: {error}", path.display()));
        let mut tokenizer = Tokenizer::from_file(&path).map_err(bad)?;
        tokenizer.with_padding(None).with_truncation(None).map_err(bad)?;
        let framed = tokenizer.encode("a", true).map_err(bad)?;
        let special = framed.get_special_tokens_mask().iter().filter(|is_special| **is_special == 1).count();
        Ok(Tokens { tokenizer, max_tokens: window.saturating_sub(special) })
    }
}

impl EmbedTokenizer for Tokens {
    fn tokens(&self, text: &str) -> Result<Vec<Range<usize>>, ModelError> {
        let encoding = self.tokenizer.encode(text, false).map_err(ModelError::internal)?;
        Ok(encoding.get_offsets().iter().map(|(start, end)| *start..*end).collect())
    }

    fn max_tokens(&self) -> usize {
        self.max_tokens
    }
}
