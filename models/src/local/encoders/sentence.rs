//! Sentence encoders: one vector per text, after the sentence-transformers layout.

use std::path::Path;

use candle_core::Tensor;
use candle_transformers::models::bert::{BertModel, Config as BertConfig};

use super::batching;
use super::layout::{self, Layout, Pooling};
use super::mpnet::{self, Mpnet};
use super::text::{EncodeError, PaddedBatch, TextReader};
use super::weights::Weights;

/// A loaded encoder.
pub(super) struct SentenceEncoder {
    body: Body,
    reader: TextReader,
    layout: Layout,
}

enum Body {
    Bert(BertModel),
    Mpnet(Mpnet),
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
        let weights = Weights::read(&folder.join("model.safetensors"))?;
        let probe = "embeddings.word_embeddings.weight";
        let (body, positions, pad) = match config["model_type"].as_str() {
            Some("bert") => {
                let config: BertConfig = layout::typed(&config)?;
                let model = BertModel::load(weights.rooted_at("bert", probe), &config)?;
                (Body::Bert(model), config.max_position_embeddings, config.pad_token_id as u32)
            }
            Some("mpnet") => {
                let config: mpnet::Config = layout::typed(&config)?;
                let model = Mpnet::load(weights.rooted_at("mpnet", probe), &config)?;
                // The first positions belong to the padding.
                let positions = config.max_position_embeddings.saturating_sub(config.pad_token_id as usize + 1);
                (Body::Mpnet(model), positions, config.pad_token_id)
            }
            other => {
                let name = other.unwrap_or("none");
                return Err(EncodeError(format!("architecture '{name}' is not supported; supported: bert, mpnet")));
            }
        };
        let max_tokens = layout.max_tokens.unwrap_or(positions).min(positions);
        Ok(SentenceEncoder { body, reader: TextReader::load(folder, max_tokens, pad)?, layout })
    }

    /// Embeds texts.
    pub(super) fn embed(&self, texts: Vec<String>) -> Result<Embedded, EncodeError> {
        let count = texts.len();
        let encodings = self.reader.encode(texts)?;
        let truncated = encodings.iter().filter(|encoding| !encoding.get_overflowing().is_empty()).count();
        let lengths: Vec<usize> = encodings.iter().map(|encoding| encoding.len()).collect();
        let mut vectors = vec![Vec::new(); count];
        for batch in batching::plan(&lengths) {
            let padded = self.reader.pad(&encodings, &batch)?;
            let rows = self.pool(&padded)?.to_vec2::<f32>()?;
            for (index, row) in batch.into_iter().zip(rows) {
                vectors[index] = row;
            }
        }
        Ok(Embedded { vectors, truncated, tokens: lengths.iter().sum::<usize>() as u64 })
    }

    fn pool(&self, batch: &PaddedBatch) -> Result<Tensor, EncodeError> {
        let hidden = match &self.body {
            Body::Bert(model) => model.forward(&batch.ids, &batch.types, Some(&batch.mask))?,
            Body::Mpnet(model) => model.forward(&batch.ids, &batch.mask)?,
        };
        let mask = batch.mask.unsqueeze(2)?;
        let pooled = match self.layout.pooling {
            Pooling::Mean => {
                let count = mask.sum(1)?.clamp(1e-9, f64::INFINITY)?;
                hidden.broadcast_mul(&mask)?.sum(1)?.broadcast_div(&count)?
            }
            Pooling::Cls => hidden.narrow(1, 0, 1)?.squeeze(1)?,
            Pooling::Max => hidden.broadcast_add(&((mask - 1.0)? * 1e9)?)?.max(1)?,
        };
        if !self.layout.normalize {
            return Ok(pooled);
        }
        let norm = pooled.sqr()?.sum_keepdim(1)?.sqrt()?.clamp(1e-12, f64::INFINITY)?;
        Ok(pooled.broadcast_div(&norm)?)
    }
}
