//! MPNet, which candle-transformers lacks.
//!
//! Song et al., "MPNet: Masked and Permuted Pre-training for Language Understanding" (2020); written after `modeling_mpnet.py` of
//! Hugging Face transformers. BERT's encoder without token types, with positions that begin behind the padding id, and with one table of
//! relative position biases (the buckets of T5) that all layers share.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear, Module, VarBuilder, embedding, layer_norm, linear};
use serde::Deserialize;

/// Distances beyond this share the last bucket.
const MAX_DISTANCE: f64 = 128.0;

/// `config.json` of an MPNet model.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Config {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    pub(super) max_position_embeddings: usize,
    #[serde(default = "default_buckets")]
    relative_attention_num_buckets: usize,
    layer_norm_eps: f64,
    #[serde(default = "default_pad")]
    pub(super) pad_token_id: u32,
}

fn default_buckets() -> usize {
    32
}

fn default_pad() -> u32 {
    1
}

/// The encoder.
pub(super) struct Mpnet {
    words: Embedding,
    positions: Embedding,
    norm: LayerNorm,
    relative_bias: Embedding,
    layers: Vec<Layer>,
    buckets: usize,
    first_position: u32,
}

struct Layer {
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    attention_norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    output_norm: LayerNorm,
    heads: usize,
}

impl Mpnet {
    pub(super) fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        let Config { hidden_size, layer_norm_eps, .. } = *config;
        if config.num_attention_heads == 0 || hidden_size % config.num_attention_heads != 0 {
            candle_core::bail!("hidden_size {hidden_size} does not divide into {} heads", config.num_attention_heads);
        }
        let embeddings = vb.pp("embeddings");
        let encoder = vb.pp("encoder");
        let layers = (0..config.num_hidden_layers)
            .map(|index| Layer::load(encoder.pp(format!("layer.{index}")), config))
            .collect::<Result<Vec<_>>>()?;
        Ok(Mpnet {
            words: embedding(config.vocab_size, hidden_size, embeddings.pp("word_embeddings"))?,
            positions: embedding(config.max_position_embeddings, hidden_size, embeddings.pp("position_embeddings"))?,
            norm: layer_norm(hidden_size, layer_norm_eps, embeddings.pp("LayerNorm"))?,
            relative_bias: embedding(
                config.relative_attention_num_buckets,
                config.num_attention_heads,
                encoder.pp("relative_attention_bias"),
            )?,
            layers,
            buckets: config.relative_attention_num_buckets,
            first_position: config.pad_token_id + 1,
        })
    }

    /// Token vectors `[batch, length, hidden]` from ids and a mask of 1 for tokens and 0 for padding, which stands at the end.
    pub(super) fn forward(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (_, length) = ids.dims2()?;
        let first = self.first_position;
        let positions = Tensor::arange(first, first + length as u32, ids.device())?;
        let embedded = self.words.forward(ids)?.broadcast_add(&self.positions.forward(&positions)?)?;
        let mut hidden = self.norm.forward(&embedded)?;
        let bias = self.attention_bias(length, mask)?;
        for layer in &self.layers {
            hidden = layer.forward(&hidden, &bias)?;
        }
        Ok(hidden)
    }

    /// Relative positions and padding together, `[batch, heads, length, length]`: the same for all layers, so it is made once.
    fn attention_bias(&self, length: usize, mask: &Tensor) -> Result<Tensor> {
        let buckets: Vec<u32> = (0..length)
            .flat_map(|query| (0..length).map(move |key| (query, key)))
            .map(|(query, key)| bucket(key as i64 - query as i64, self.buckets))
            .collect();
        let buckets = Tensor::from_vec(buckets, (length, length), &Device::Cpu)?;
        let relative = self.relative_bias.forward(&buckets)?.permute((2, 0, 1))?.unsqueeze(0)?;
        let padding = ((mask.to_dtype(DType::F32)? - 1.0)? * f64::from(f32::MAX))?.unsqueeze(1)?.unsqueeze(1)?;
        relative.broadcast_add(&padding)?.contiguous()
    }
}

/// The bucket of a distance (key − query): half of the buckets for each direction, exact up to a quarter, logarithmic beyond.
fn bucket(distance: i64, buckets: usize) -> u32 {
    let half = buckets / 2;
    let exact = half / 2;
    let base = if distance > 0 { half } else { 0 };
    let far = distance.unsigned_abs() as usize;
    let offset = if far < exact {
        far
    } else {
        // In 32 bits, as the original computes it: at exact powers the rounding decides the bucket.
        let ratio = (far as f32 / exact as f32).ln() / (MAX_DISTANCE / exact as f64).ln() as f32;
        (exact + (ratio * (half - exact) as f32) as usize).min(half - 1)
    };
    (base + offset) as u32
}

impl Layer {
    fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        let hidden = config.hidden_size;
        let attention = vb.pp("attention");
        let square = |name: &str| linear(hidden, hidden, attention.pp("attn").pp(name));
        Ok(Layer {
            q: square("q")?,
            k: square("k")?,
            v: square("v")?,
            o: square("o")?,
            attention_norm: layer_norm(hidden, config.layer_norm_eps, attention.pp("LayerNorm"))?,
            inner: linear(hidden, config.intermediate_size, vb.pp("intermediate.dense"))?,
            outer: linear(config.intermediate_size, hidden, vb.pp("output.dense"))?,
            output_norm: layer_norm(hidden, config.layer_norm_eps, vb.pp("output.LayerNorm"))?,
            heads: config.num_attention_heads,
        })
    }

    fn forward(&self, hidden: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let attended = self.attention_norm.forward(&(self.attend(hidden, bias)? + hidden)?)?;
        let inner = self.inner.forward(&attended)?.gelu_erf()?;
        self.output_norm.forward(&(self.outer.forward(&inner)? + attended)?)
    }

    fn attend(&self, hidden: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let (batch, length, size) = hidden.dims3()?;
        let split =
            |x: Tensor| x.reshape((batch, length, self.heads, size / self.heads))?.transpose(1, 2)?.contiguous();
        let scale = 1.0 / ((size / self.heads) as f64).sqrt();
        let q = (split(self.q.forward(hidden)?)? * scale)?;
        let k = split(self.k.forward(hidden)?)?;
        let v = split(self.v.forward(hidden)?)?;
        let scores = (q.matmul(&k.transpose(D::Minus2, D::Minus1)?)? + bias)?;
        let weights = candle_nn::ops::softmax_last_dim(&scores)?;
        let mixed = weights.matmul(&v)?.transpose(1, 2)?.reshape((batch, length, size))?;
        self.o.forward(&mixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_distances_when_they_are_bucketed_then_they_are_those_of_t5() {
        // From `relative_position_bucket` of the original, 32 buckets, distances up to 128.
        let expected = [
            (0, 0),
            (-1, 1),
            (-7, 7),
            (-8, 8),
            (-11, 8),
            (-12, 9),
            (-16, 10),
            (-32, 12),
            (-64, 14),
            (-91, 15),
            (-127, 15),
            (-400, 15),
            (1, 17),
            (7, 23),
            (8, 24),
            (12, 25),
            (127, 31),
            (400, 31),
        ];
        for (distance, bucket_expected) in expected {
            assert_eq!(bucket(distance, 32), bucket_expected, "distance {distance}");
        }
    }
}
