//! The encoder of BERT and MPNet.
//!
//! Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding" (2018), and Song et al., "MPNet: Masked
//! and Permuted Pre-training for Language Understanding" (2020); written after `modeling_bert.py` and `modeling_mpnet.py` of Hugging Face
//! transformers. MPNet is BERT without token types, with positions that begin behind the padding id, and with one table of relative
//! position biases (the buckets of T5) that all layers share.
//!
//! The tokens of all texts of a batch stand one behind the other, so that nothing is ever padded: dense layers see all tokens as the rows
//! of one matrix, attention sees each text by itself. Weights are kept transposed, as the matrix product reads them fastest; those of
//! queries, keys and values stand side by side, so that one product makes all three.

use candle_core::{D, Device, Result, Tensor, bail};
use candle_nn::VarBuilder;
use rayon::prelude::*;
use serde::Deserialize;

use super::cores;
use super::kernels::{Activation, Norm, activate, add_bias, add_rows, softmax};

/// Distances beyond this share the last bucket.
const MAX_DISTANCE: f64 = 128.0;

/// What of `config.json` describes an encoder.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Config {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    #[serde(default = "default_activation")]
    hidden_act: String,
    max_position_embeddings: usize,
    #[serde(default)]
    type_vocab_size: usize,
    #[serde(default = "default_buckets")]
    relative_attention_num_buckets: usize,
    layer_norm_eps: f64,
    pad_token_id: Option<u32>,
    #[serde(default = "default_positions")]
    position_embedding_type: String,
}

fn default_activation() -> String {
    "gelu".to_owned()
}

fn default_buckets() -> usize {
    32
}

fn default_positions() -> String {
    "absolute".to_owned()
}

/// Names of the parts of a layer, which differ.
struct Names {
    q: &'static str,
    k: &'static str,
    v: &'static str,
    o: &'static str,
    norm: &'static str,
}

const BERT: Names = Names {
    q: "attention.self.query",
    k: "attention.self.key",
    v: "attention.self.value",
    o: "attention.output.dense",
    norm: "attention.output.LayerNorm",
};

const MPNET: Names = Names {
    q: "attention.attn.q",
    k: "attention.attn.k",
    v: "attention.attn.v",
    o: "attention.attn.o",
    norm: "attention.LayerNorm",
};

impl Config {
    fn is_mpnet(&self) -> bool {
        self.model_type == "mpnet"
    }

    /// The first position of a text: MPNet's first ones belong to the padding.
    fn first_position(&self) -> usize {
        if self.is_mpnet() { self.pad_token_id.unwrap_or(1) as usize + 1 } else { 0 }
    }

    /// Tokens that a text may have.
    pub(super) fn max_tokens(&self) -> usize {
        self.max_position_embeddings.saturating_sub(self.first_position())
    }
}

/// A loaded encoder.
pub(super) struct Encoder {
    words: Tensor,
    positions: Tensor,
    types: Option<Tensor>,
    norm: Norm,
    /// Rows are buckets, columns heads.
    relative: Option<Vec<Vec<f32>>>,
    layers: Vec<Layer>,
    heads: usize,
    first_position: usize,
}

struct Layer {
    /// Queries, keys and values: a third of the columns each.
    qkv: Dense,
    o: Dense,
    attention_norm: Norm,
    inner: Dense,
    outer: Dense,
    output_norm: Norm,
    activation: Activation,
}

struct Dense {
    /// Inputs are rows, outputs columns.
    weight: Tensor,
    bias: Vec<f32>,
}

impl Encoder {
    /// The encoder whose tensors begin with `vb`'s prefix.
    pub(super) fn load(vb: &VarBuilder<'_>, config: &Config) -> Result<Self> {
        let Config { hidden_size: hidden, num_attention_heads: heads, .. } = *config;
        if heads == 0 || hidden % heads != 0 {
            bail!("hidden_size {hidden} does not divide into {heads} heads");
        }
        if config.position_embedding_type != "absolute" {
            bail!("positions of type {:?} are not supported; supported: absolute", config.position_embedding_type);
        }
        let Some(activation) = Activation::named(&config.hidden_act) else {
            bail!("activation {:?} is not supported; supported: gelu, gelu_new, relu", config.hidden_act);
        };
        let embeddings = vb.pp("embeddings");
        let table = |rows: usize, name: &str| embeddings.get((rows, hidden), &format!("{name}.weight"));
        let encoder = vb.pp("encoder");
        let layers = (0..config.num_hidden_layers)
            .map(|index| Layer::load(&encoder.pp(format!("layer.{index}")), config, activation))
            .collect::<Result<Vec<_>>>()?;
        let (types, relative) = if config.is_mpnet() {
            let shape = (config.relative_attention_num_buckets, heads);
            (None, Some(encoder.get(shape, "relative_attention_bias.weight")?.to_vec2()?))
        } else {
            (Some(table(config.type_vocab_size, "token_type_embeddings")?), None)
        };
        Ok(Encoder {
            words: table(config.vocab_size, "word_embeddings")?,
            positions: table(config.max_position_embeddings, "position_embeddings")?,
            types,
            norm: norm(&embeddings.pp("LayerNorm"), config)?,
            relative,
            layers,
            heads,
            first_position: config.first_position(),
        })
    }

    /// How many layers it has.
    pub(super) fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The vectors of all tokens, `[tokens, hidden]`, of texts that stand one behind the other; `lengths` are their counts of tokens.
    pub(super) fn forward(&self, ids: Vec<u32>, types: Vec<u32>, lengths: &[usize]) -> Result<Tensor> {
        self.forward_to(ids, types, lengths, self.layers.len())
    }

    /// The same, through the first `layers` layers only.
    pub(super) fn forward_to(
        &self,
        ids: Vec<u32>,
        types: Vec<u32>,
        lengths: &[usize],
        layers: usize,
    ) -> Result<Tensor> {
        cores::run(|| self.compute(ids, types, lengths, layers))
    }

    fn compute(&self, ids: Vec<u32>, types: Vec<u32>, lengths: &[usize], layers: usize) -> Result<Tensor> {
        let count = ids.len();
        let indexes = |numbers: Vec<u32>| Tensor::from_vec(numbers, count, &Device::Cpu);
        let first = self.first_position as u32;
        let positions = lengths.iter().flat_map(|length| (0..*length as u32).map(|position| first + position));
        let mut hidden = self.words.index_select(&indexes(ids)?, 0)?;
        add_rows(&hidden, &self.positions.index_select(&indexes(positions.collect())?, 0)?)?;
        if let Some(table) = &self.types {
            add_rows(&hidden, &table.index_select(&indexes(types)?, 0)?)?;
        }
        self.norm.apply(&hidden)?;
        let biases: Vec<Option<Vec<Vec<f32>>>> = lengths.iter().map(|length| self.biases(*length)).collect();
        for layer in self.layers.iter().take(layers) {
            hidden = layer.forward(&hidden, lengths, &biases, self.heads)?;
        }
        Ok(hidden)
    }

    /// For each head, the bias of each distance within a text of this length; the same in all layers.
    fn biases(&self, length: usize) -> Option<Vec<Vec<f32>>> {
        let table = self.relative.as_ref()?;
        let last = length as i64 - 1;
        let rows: Vec<&Vec<f32>> =
            (-last..=last).map(|distance| &table[bucket(distance, table.len()) as usize]).collect();
        Some((0..self.heads).map(|head| rows.iter().map(|row| row[head]).collect()).collect())
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
    fn load(vb: &VarBuilder<'_>, config: &Config, activation: Activation) -> Result<Self> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let names = if config.is_mpnet() { &MPNET } else { &BERT };
        Ok(Layer {
            qkv: Dense::load_beside(&[names.q, names.k, names.v].map(|name| vb.pp(name)), hidden, hidden)?,
            o: Dense::load(&vb.pp(names.o), hidden, hidden)?,
            attention_norm: norm(&vb.pp(names.norm), config)?,
            inner: Dense::load(&vb.pp("intermediate.dense"), hidden, inner)?,
            outer: Dense::load(&vb.pp("output.dense"), inner, hidden)?,
            output_norm: norm(&vb.pp("output.LayerNorm"), config)?,
            activation,
        })
    }

    fn forward(
        &self,
        hidden: &Tensor,
        lengths: &[usize],
        biases: &[Option<Vec<Vec<f32>>>],
        heads: usize,
    ) -> Result<Tensor> {
        let mixed = self.attend(hidden, lengths, biases, heads)?;
        let attended = self.o.product(&mixed)?;
        self.attention_norm.apply_to_sum(&attended, &self.o.bias, hidden)?;
        let inner = self.inner.product(&attended)?;
        activate(&inner, &self.inner.bias, self.activation)?;
        let output = self.outer.product(&inner)?;
        self.output_norm.apply_to_sum(&output, &self.outer.bias, &attended)?;
        Ok(output)
    }

    /// What each token gathers from the others of its text.
    fn attend(
        &self,
        hidden: &Tensor,
        lengths: &[usize],
        biases: &[Option<Vec<Vec<f32>>>],
        heads: usize,
    ) -> Result<Tensor> {
        let size = hidden.dim(1)? / heads;
        let scale = 1.0 / (size as f32).sqrt();
        let qkv = self.qkv.forward(hidden)?;
        let starts = lengths.iter().scan(0_usize, |end, length| {
            let start = *end;
            *end += *length;
            Some(start)
        });
        let spans: Vec<(usize, usize)> = starts.zip(lengths.iter().copied()).collect();
        // Texts share nothing, so the threads take whole ones: the products within one are mostly too small to be parted.
        let attended = spans.par_iter().zip(biases).map(|(&(start, length), bias)| {
            let all = qkv.narrow(0, start, length)?.reshape((length, 3 * heads, size))?;
            // `[heads, length, size]`, without a copy.
            let part = |index: usize| all.narrow(1, index * heads, heads)?.transpose(0, 1);
            let scores = part(0)?.matmul(&part(1)?.transpose(D::Minus2, D::Minus1)?)?;
            softmax(&scores, scale, bias.as_deref())?;
            let mixed = scores.matmul(&part(2)?)?;
            mixed.transpose(0, 1)?.reshape((length, heads * size))
        });
        let texts: Vec<Tensor> = attended.collect::<Result<_>>()?;
        match texts.as_slice() {
            [one] => Ok(one.clone()),
            all => Tensor::cat(all, 0),
        }
    }
}

impl Dense {
    fn load(vb: &VarBuilder<'_>, inputs: usize, outputs: usize) -> Result<Self> {
        let weight = vb.get((outputs, inputs), "weight")?.t()?.contiguous()?;
        Ok(Dense { weight, bias: vb.get(outputs, "bias")?.to_vec1()? })
    }

    /// Several of one shape as one, whose outputs stand side by side.
    fn load_beside(all: &[VarBuilder<'_>], inputs: usize, outputs: usize) -> Result<Self> {
        let weights = all.iter().map(|vb| vb.get((outputs, inputs), "weight")).collect::<Result<Vec<Tensor>>>()?;
        let biases = all.iter().map(|vb| vb.get(outputs, "bias")?.to_vec1::<f32>());
        let bias = biases.collect::<Result<Vec<Vec<f32>>>>()?.concat();
        Ok(Dense { weight: Tensor::cat(&weights, 0)?.t()?.contiguous()?, bias })
    }

    /// Without the bias.
    fn product(&self, rows: &Tensor) -> Result<Tensor> {
        rows.matmul(&self.weight)
    }

    fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        let product = self.product(rows)?;
        add_bias(&product, &self.bias)?;
        Ok(product)
    }
}

fn norm(vb: &VarBuilder<'_>, config: &Config) -> Result<Norm> {
    // Old exports call them gamma and beta.
    let (weight, bias) = if vb.contains_tensor("weight") { ("weight", "bias") } else { ("gamma", "beta") };
    let read = |name: &str| vb.get(config.hidden_size, name)?.to_vec1();
    Ok(Norm { weight: read(weight)?, bias: read(bias)?, epsilon: config.layer_norm_eps as f32 })
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
