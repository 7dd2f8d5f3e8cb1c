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

use candle_core::{Device, Result, Tensor, bail};
use candle_nn::VarBuilder;
use parking_lot::Mutex;
use rayon::prelude::*;
use serde::Deserialize;

use super::attention::{Biases, Heads, Text, attend};
use super::cores;
use super::hidden::{Hidden, Wanted, numbers};
use super::kernels::{Activation, Norm, activate, add, add_bias};
use super::panels::{By, Former, Panels};
use super::shares;

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
    /// A row for each position.
    positions: Vec<f32>,
    /// A row for each type.
    types: Option<Vec<f32>>,
    norm: Norm,
    /// Rows are buckets, columns heads.
    relative: Option<Vec<Vec<f32>>>,
    layers: Vec<Layer>,
    first_position: usize,
    /// What computations that are over wrote into: as many as there were at once. Memory that is new costs time when it is first written.
    spare: Mutex<Vec<Work>>,
}

/// What layers write into, one after the other.
#[derive(Default)]
struct Work {
    qkv: Vec<f32>,
    mixed: Vec<f32>,
    inner: Vec<f32>,
}

struct Layer {
    heads: Heads,
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
    /// A column for each output.
    weight: Panels,
    bias: Vec<f32>,
}

impl Encoder {
    /// The encoder whose tensors begin with `vb`'s prefix.
    pub(super) fn load(vb: &VarBuilder<'_>, config: &Config) -> Result<Self> {
        let Config { hidden_size: hidden, intermediate_size: inner, num_attention_heads: heads, .. } = *config;
        if hidden == 0 || inner == 0 {
            bail!("hidden_size {hidden} and intermediate_size {inner} must both be above 0");
        }
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
            (Some(numbers(&table(config.type_vocab_size, "token_type_embeddings")?)?), None)
        };
        Ok(Encoder {
            words: table(config.vocab_size, "word_embeddings")?,
            positions: numbers(&table(config.max_position_embeddings, "position_embeddings")?)?,
            types,
            norm: norm(&embeddings.pp("LayerNorm"), config)?,
            relative,
            layers,
            first_position: config.first_position(),
            spare: Mutex::default(),
        })
    }

    /// How many layers it has.
    pub(super) fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The vectors of the tokens of texts that stand one behind the other; `lengths` are their counts of tokens.
    pub(super) fn forward(&self, ids: &[u32], types: &[u32], lengths: &[usize], wanted: Wanted) -> Result<Hidden> {
        self.through(self.layers.len(), ids, types, lengths, wanted)
    }

    /// Those of all tokens, as the first `layers` layers make them.
    pub(super) fn forward_to(&self, ids: &[u32], types: &[u32], lengths: &[usize], layers: usize) -> Result<Hidden> {
        self.through(layers, ids, types, lengths, Wanted::All)
    }

    fn through(&self, layers: usize, ids: &[u32], types: &[u32], lengths: &[usize], wanted: Wanted) -> Result<Hidden> {
        cores::run(|| {
            let threads = rayon::current_num_threads();
            let Some(shares) = shares::of(lengths, threads) else {
                return self.compute(layers, ids, types, lengths, (wanted, By::Pool));
            };
            let computed = shares.par_iter().map(|share| {
                let (ids, types) = (share.gather(ids, lengths), share.gather(types, lengths));
                self.compute(layers, &ids, &types, &share.lengths(lengths), (wanted, By::Caller))
            });
            let parts = computed.collect::<Result<Vec<Hidden>>>()?;
            let rows: Vec<usize> = lengths.iter().map(|length| wanted.of(*length)).collect();
            Ok(shares::joined(&shares, &parts, &rows))
        })
    }

    fn compute(
        &self,
        layers: usize,
        ids: &[u32],
        types: &[u32],
        lengths: &[usize],
        (wanted, by): (Wanted, By),
    ) -> Result<Hidden> {
        let biases: Vec<Option<Biases>> = lengths.iter().map(|length| self.biases(*length)).collect();
        let mut hidden = self.embedded(ids, types, lengths)?;
        let mut work = self.spare.lock().pop().unwrap_or_default();
        for (index, layer) in self.layers[..layers].iter().enumerate() {
            // What stands behind the keys and values of the last layer is computed of the wanted tokens alone.
            let wanted = if index + 1 == layers { wanted } else { Wanted::All };
            layer.forward(&mut hidden, &mut work, lengths, &biases, (wanted, by));
        }
        self.spare.lock().push(work);
        Ok(hidden)
    }

    /// What goes into the first layer.
    fn embedded(&self, ids: &[u32], types: &[u32], lengths: &[usize]) -> Result<Hidden> {
        let words = self.words.index_select(&Tensor::from_slice(ids, ids.len(), &Device::Cpu)?, 0)?;
        let mut hidden = Hidden::of(&words)?;
        let width = hidden.width;
        let positions = lengths.iter().flat_map(|length| self.first_position..self.first_position + length);
        for ((hidden, position), kind) in hidden.numbers.chunks_exact_mut(width).zip(positions).zip(types) {
            add(hidden, row(&self.positions, width, position, "position")?);
            if let Some(table) = &self.types {
                add(hidden, row(table, width, *kind as usize, "type")?);
            }
        }
        self.norm.apply(&mut hidden.numbers);
        Ok(hidden)
    }

    /// For each head, the bias of each distance within a text of this length; the same in all layers.
    fn biases(&self, length: usize) -> Option<Biases> {
        let table = self.relative.as_ref()?;
        let last = length as i64 - 1;
        let rows: Vec<&Vec<f32>> =
            (-last..=last).map(|distance| &table[bucket(distance, table.len()) as usize]).collect();
        let heads = table.first().map_or(0, Vec::len);
        Some((0..heads).map(|head| rows.iter().map(|row| row[head]).collect()).collect())
    }
}

fn row<'t>(table: &'t [f32], width: usize, index: usize, what: &str) -> Result<&'t [f32]> {
    match table.get(index * width..(index + 1) * width) {
        Some(row) => Ok(row),
        None => bail!("a token has {what} {index}, the model {}", table.len() / width),
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
        let count = config.num_attention_heads;
        Ok(Layer {
            heads: Heads { count, size: hidden / count },
            qkv: Dense::load_beside(&[names.q, names.k, names.v].map(|name| vb.pp(name)), hidden, hidden)?,
            o: Dense::load(&vb.pp(names.o), hidden, hidden)?,
            attention_norm: norm(&vb.pp(names.norm), config)?,
            inner: Dense::load(&vb.pp("intermediate.dense"), hidden, inner)?,
            outer: Dense::load(&vb.pp("output.dense"), inner, hidden)?,
            output_norm: norm(&vb.pp("output.LayerNorm"), config)?,
            activation,
        })
    }

    /// Puts what the layer makes of the wanted tokens into the place of its inputs.
    fn forward(
        &self,
        hidden: &mut Hidden,
        work: &mut Work,
        lengths: &[usize],
        biases: &[Option<Biases>],
        (wanted, by): (Wanted, By),
    ) {
        let texts = lengths.iter().zip(biases).scan(0_usize, |end, (length, biases)| {
            let start = *end;
            *end += *length;
            Some(Text { start, length: *length, asking: wanted.of(*length), biases: biases.as_ref() })
        });
        let Work { qkv, mixed, inner } = work;
        self.qkv.replace(qkv, &hidden.numbers, by);
        add_bias(qkv, &self.qkv.bias);
        hidden.keep(wanted, lengths);
        resize(mixed, hidden.numbers.len());
        attend(mixed, qkv, &texts.collect::<Vec<_>>(), self.heads);
        self.o.add(&mut hidden.numbers, mixed, by);
        self.attention_norm.apply_with(&mut hidden.numbers, &self.o.bias);
        self.inner.replace(inner, &hidden.numbers, by);
        activate(inner, &self.inner.bias, self.activation);
        self.outer.add(&mut hidden.numbers, inner, by);
        self.output_norm.apply_with(&mut hidden.numbers, &self.outer.bias);
    }
}

impl Dense {
    fn load(vb: &VarBuilder<'_>, inputs: usize, outputs: usize) -> Result<Self> {
        Dense::load_beside(std::slice::from_ref(vb), inputs, outputs)
    }

    /// Several of one shape as one, whose outputs stand side by side.
    fn load_beside(all: &[VarBuilder<'_>], inputs: usize, outputs: usize) -> Result<Self> {
        let weights = all.iter().map(|vb| vb.get((outputs, inputs), "weight")).collect::<Result<Vec<Tensor>>>()?;
        let biases = all.iter().map(|vb| vb.get(outputs, "bias")?.to_vec1::<f32>());
        let bias = biases.collect::<Result<Vec<Vec<f32>>>>()?.concat();
        Ok(Dense { weight: Panels::of_columns(&numbers(&Tensor::cat(&weights, 0)?)?, inputs), bias })
    }

    /// Its outputs without the bias, whatever is in `out`.
    fn replace(&self, out: &mut Vec<f32>, rows: &[f32], by: By) {
        resize(out, rows.len() / self.weight.depth() * self.bias.len());
        self.weight.multiply(out, Former::Replaced, rows, by);
    }

    /// Adds its outputs without the bias to `out`.
    fn add(&self, out: &mut [f32], rows: &[f32], by: By) {
        self.weight.multiply(out, Former::Kept, rows, by);
    }
}

/// A length for what is written anew: what is in it does not count.
fn resize(numbers: &mut Vec<f32>, length: usize) {
    numbers.resize(length, 0.0);
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
