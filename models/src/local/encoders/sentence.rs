//! Sentence encoders: one vector per text, after the sentence-transformers layout.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::batching;
use super::body::{self, Body};
use super::hidden::Wanted;
use super::layout::{self, Layout, Pooling, Prompts};
use super::text::{self, EncodeError, TextReader};
use super::weights::Weights;

/// A loaded encoder.
pub(super) struct SentenceEncoder {
    pub(super) encoder: Body,
    pub(super) reader: TextReader,
    pub(super) layout: Layout,
    pub(super) prompts: Prompts,
}

/// Vectors in the order of the texts.
pub(super) struct Embedded {
    pub(super) vectors: Vec<Vec<f32>>,
    /// Texts that were longer than the model reads.
    pub(super) truncated: usize,
    pub(super) tokens: u64,
}

impl SentenceEncoder {
    pub(super) fn load(folder: &Path) -> Result<Self, EncodeError> {
        let config = layout::config(folder)?;
        let layout = Layout::read(folder)?;
        let max_tokens = layout.max_tokens.unwrap_or(usize::MAX).min(body::max_tokens(&config)?);
        let root = Weights::read(&folder.join("model.safetensors"))?.into_builder();
        let encoder = Body::load(&config, &root)?;
        let prompts = layout.prompts.clone().unwrap_or_else(|| body::prompts(&config));
        Ok(SentenceEncoder { encoder, reader: TextReader::load(folder, max_tokens)?, layout, prompts })
    }

    /// Embeds texts, as long as the caller waits.
    pub(super) fn embed(&self, texts: Vec<String>, caller: &CancellationToken) -> Result<Embedded, EncodeError> {
        let encodings = self.reader.encode(texts)?;
        let truncated = encodings.iter().filter(|encoding| !encoding.get_overflowing().is_empty()).count();
        let lengths: Vec<usize> = encodings.iter().map(|encoding| encoding.len()).collect();
        let wanted = if self.layout.pooling == Pooling::Cls { Wanted::First } else { Wanted::All };
        let mut vectors = Vec::with_capacity(encodings.len());
        for batch in batching::plan(&lengths) {
            text::check_waited_for(caller)?;
            let lengths = &lengths[batch.clone()];
            let (ids, types) = text::joined(&encodings[batch]);
            let hidden = self.encoder.forward(&ids, &types, lengths, wanted)?;
            let mut rest = hidden.numbers.as_slice();
            for length in lengths {
                let (tokens, behind) = rest.split_at(wanted.of(*length) * hidden.width);
                vectors.push(self.pool(tokens, hidden.width));
                rest = behind;
            }
        }
        Ok(Embedded { vectors, truncated, tokens: lengths.iter().sum::<usize>() as u64 })
    }

    /// The vector of a text from those of its tokens.
    fn pool(&self, tokens: &[f32], width: usize) -> Vec<f32> {
        let rows = tokens.chunks_exact(width);
        let fold = |start: f32, join: fn(f32, f32) -> f32| {
            rows.clone().fold(vec![start; width], |mut pooled, row| {
                pooled.iter_mut().zip(row).for_each(|(all, one)| *all = join(*all, *one));
                pooled
            })
        };
        let pooled = match self.layout.pooling {
            Pooling::Mean => {
                let count = rows.len() as f32;
                fold(0.0, |sum, one| sum + one).into_iter().map(|sum| sum / count).collect()
            }
            Pooling::Cls => tokens[..width].to_vec(),
            Pooling::Max => fold(f32::NEG_INFINITY, f32::max),
        };
        self.normalized(pooled)
    }

    /// A vector of length 1, where the model's are.
    pub(super) fn normalized(&self, mut vector: Vec<f32>) -> Vec<f32> {
        if self.layout.normalize {
            let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-12);
            vector.iter_mut().for_each(|x| *x /= norm);
        }
        vector
    }
}
