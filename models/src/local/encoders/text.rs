//! From texts to tokens.

use std::path::Path;

use thiserror::Error;
use tokenizers::{EncodeInput, Encoding, Tokenizer, TruncationParams, TruncationStrategy};
use tokio_util::sync::CancellationToken;

/// What failed in an encoder.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct EncodeError(pub(super) String);

impl From<candle_core::Error> for EncodeError {
    fn from(error: candle_core::Error) -> Self {
        // Without the backtrace that candle appends.
        EncodeError(error.to_string().lines().next().unwrap_or_default().to_owned())
    }
}

/// Says that nobody waits any more, so that a caller who went does not keep the cores from others.
pub(super) fn check_waited_for(caller: &CancellationToken) -> Result<(), EncodeError> {
    if caller.is_cancelled() { Err(EncodeError("its caller has gone".to_owned())) } else { Ok(()) }
}

/// A tokenizer that cuts at the model's length and pads nothing.
pub(super) struct TextReader {
    tokenizer: Tokenizer,
}

impl TextReader {
    pub(super) fn load(folder: &Path, max_tokens: usize) -> Result<Self, EncodeError> {
        let path = folder.join("tokenizer.json");
        let bad = |error: tokenizers::Error| EncodeError(format!("{}: {error}", path.display()));
        let mut tokenizer = Tokenizer::from_file(&path).map_err(bad)?;
        // The longest real tokenizers add 4 tokens to a pair; below that there is no room for text.
        if max_tokens < 8 {
            return Err(EncodeError(format!("the model reads only {max_tokens} tokens")));
        }
        let truncation = TruncationParams {
            max_length: max_tokens,
            strategy: TruncationStrategy::LongestFirst,
            ..Default::default()
        };
        tokenizer.with_padding(None).with_truncation(Some(truncation)).map_err(bad)?;
        Ok(TextReader { tokenizer })
    }

    pub(super) fn encode<'s, E>(&self, inputs: Vec<E>) -> Result<Vec<Encoding>, EncodeError>
    where
        E: Into<EncodeInput<'s>> + Send,
    {
        let encodings = self.tokenizer.encode_batch(inputs, true);
        let encodings = encodings.map_err(|error| EncodeError(format!("tokenizer: {error}")))?;
        // One that adds no special tokens makes nothing of an empty text.
        if encodings.iter().any(Encoding::is_empty) {
            return Err(EncodeError("a text has no tokens".to_owned()));
        }
        Ok(encodings)
    }
}

/// Ids and types of the tokens of all texts, one text behind the other.
pub(super) fn joined(encodings: &[Encoding]) -> (Vec<u32>, Vec<u32>) {
    let all = |of: fn(&Encoding) -> &[u32]| encodings.iter().flat_map(of).copied().collect();
    (all(Encoding::get_ids), all(Encoding::get_type_ids))
}
