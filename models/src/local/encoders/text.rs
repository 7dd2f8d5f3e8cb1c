//! From texts to padded tensors.

use std::path::Path;

use candle_core::{Device, Tensor};
use thiserror::Error;
use tokenizers::{EncodeInput, Encoding, Tokenizer, TruncationParams, TruncationStrategy};

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

/// A tokenizer that cuts at the model's length and leaves padding to the batches.
pub(super) struct TextReader {
    tokenizer: Tokenizer,
    pad: u32,
}

/// Tokens of a batch, padded to the longest.
pub(super) struct PaddedBatch {
    pub(super) ids: Tensor,
    pub(super) types: Tensor,
    /// 1 for a token, 0 for padding; 32-bit floats.
    pub(super) mask: Tensor,
}

impl TextReader {
    pub(super) fn load(folder: &Path, max_tokens: usize, pad: u32) -> Result<Self, EncodeError> {
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
        Ok(TextReader { tokenizer, pad })
    }

    pub(super) fn encode<'s, E>(&self, inputs: Vec<E>) -> Result<Vec<Encoding>, EncodeError>
    where
        E: Into<EncodeInput<'s>> + Send,
    {
        self.tokenizer.encode_batch(inputs, true).map_err(|error| EncodeError(format!("tokenizer: {error}")))
    }

    /// Puts some of the encodings into tensors.
    pub(super) fn pad(&self, encodings: &[Encoding], batch: &[usize]) -> Result<PaddedBatch, EncodeError> {
        let longest = batch.iter().map(|index| encodings[*index].len()).max().unwrap_or(0);
        let shape = (batch.len(), longest);
        let mut ids = vec![self.pad; batch.len() * longest];
        let mut types = vec![0_u32; batch.len() * longest];
        let mut mask = vec![0_f32; batch.len() * longest];
        for (row, index) in batch.iter().enumerate() {
            let encoding = &encodings[*index];
            let cells = row * longest..row * longest + encoding.len();
            ids[cells.clone()].copy_from_slice(encoding.get_ids());
            types[cells.clone()].copy_from_slice(encoding.get_type_ids());
            mask[cells].fill(1.0);
        }
        Ok(PaddedBatch {
            ids: Tensor::from_vec(ids, shape, &Device::Cpu)?,
            types: Tensor::from_vec(types, shape, &Device::Cpu)?,
            mask: Tensor::from_vec(mask, shape, &Device::Cpu)?,
        })
    }
}
