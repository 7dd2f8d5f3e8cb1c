//! Base models: Llama and Qwen2 networks, from a GGUF file or from a folder of safetensors, in 32-bit floats; their
//! layers in four bits, where a training asks for it.
//!
//! Inside, weights lie as Hugging Face has them: `[out, in]`, and query and key rows in the order of `rotate_half`. GGUF files
//! of Llamas have those rows permuted; [`rows`] turns them back at loading and forth at export.

mod config;
mod gguf;
mod nf4;
mod rows;
mod safetensors;
mod tensors;
mod weight;

use std::path::{Path, PathBuf};

use candle_core::Tensor;

use crate::error::TrainingError;
use crate::lora::Target;
use crate::text::TextCodec;

pub use config::{Config, Family};
pub(crate) use gguf::GgufFile;
pub(crate) use rows::{Way, permute};
#[cfg(test)]
pub(crate) use tensors::Tensors;
pub(crate) use weight::Weight;

/// Name of the GGUF file in a model's folder.
pub const GGUF_FILE: &str = "model.gguf";

/// The frozen weights of a layer.
#[derive(Debug, Clone)]
pub(crate) struct LayerWeights {
    pub(crate) attention_norm: Tensor,
    pub(crate) q: Projection,
    pub(crate) k: Projection,
    pub(crate) v: Projection,
    pub(crate) o: Projection,
    pub(crate) mlp_norm: Tensor,
    pub(crate) gate: Projection,
    pub(crate) up: Projection,
    pub(crate) down: Projection,
}

impl LayerWeights {
    pub(crate) fn projection(&self, target: Target) -> &Projection {
        match target {
            Target::Q => &self.q,
            Target::K => &self.k,
            Target::V => &self.v,
            Target::O => &self.o,
            Target::Gate => &self.gate,
            Target::Up => &self.up,
            Target::Down => &self.down,
        }
    }

    /// Its projections, in the order of the network.
    pub(crate) fn projections(&self) -> [(Target, &Projection); 7] {
        [
            (Target::Q, &self.q),
            (Target::K, &self.k),
            (Target::V, &self.v),
            (Target::O, &self.o),
            (Target::Gate, &self.gate),
            (Target::Up, &self.up),
            (Target::Down, &self.down),
        ]
    }
}

/// Refuses weights of far more numbers than the measures say: they would all be read, and nobody has estimated them.
fn check_count(numbers: u64, config: &Config) -> Result<(), String> {
    const BESIDE: u64 = 1 << 20; // biases, tables of positions, headers
    let known = config.parameters();
    if numbers > 2 * known + BESIDE {
        return Err(format!("it has about {numbers} weights, and a model of its measures {known}"));
    }
    Ok(())
}

/// A matrix `[out, in]`, and what is added to its result.
#[derive(Debug, Clone)]
pub(crate) struct Projection {
    pub(crate) weight: Weight,
    pub(crate) bias: Option<Tensor>,
}

/// Everything of a base model that training needs.
pub struct BaseModel {
    /// Where it was read from.
    pub path: PathBuf,
    /// Its measures.
    pub config: Config,
    /// Its tokenizer and chat template.
    pub text: TextCodec,
    pub(crate) embeddings: Tensor,
    /// `None` where the embeddings are used for the output too.
    pub(crate) output: Option<Tensor>,
    pub(crate) norm: Tensor,
    pub(crate) layers: Vec<LayerWeights>,
    /// What the frequencies of positions are divided by, where the model was stretched that way.
    pub(crate) rope_factors: Option<Vec<f32>>,
}

impl BaseModel {
    /// Reads the model of a folder: `model.gguf`, or else `model.safetensors`, in one file or in several that an index names, with
    /// `config.json`, `tokenizer.json` and `tokenizer_config.json`.
    pub fn load(folder: &Path) -> Result<Self, TrainingError> {
        let gguf = folder.join(GGUF_FILE);
        let model = if gguf.is_file() { gguf::load(&gguf)? } else { safetensors::load(folder)? };
        model.check_sizes().map_err(|reason| TrainingError::base(&model.path, reason))?;
        Ok(model)
    }

    /// Refuses tensors that are not as large as the measures say: passes count on it.
    fn check_sizes(&self) -> Result<(), String> {
        let (hidden, vocab) = (self.config.hidden, self.config.vocab);
        let fits = |name: &str, found: &[usize], wanted: &[usize]| {
            if found == wanted { Ok(()) } else { Err(format!("its {name} has the sizes {found:?}, not {wanted:?}")) }
        };
        fits("embeddings", self.embeddings.dims(), &[vocab, hidden])?;
        fits("output", self.head().dims(), &[vocab, hidden])?;
        fits("last norm", self.norm.dims(), &[hidden])?;
        for (at, layer) in self.layers.iter().enumerate() {
            fits(&format!("norm of layer {at}"), layer.attention_norm.dims(), &[hidden])?;
            fits(&format!("MLP norm of layer {at}"), layer.mlp_norm.dims(), &[hidden])?;
            for (target, projection) in layer.projections() {
                let (inner, outer) = target.sizes(&self.config);
                let name = format!("{} of layer {at}", target.as_str());
                fits(&name, projection.weight.dims(), &[outer, inner])?;
                projection.bias.as_ref().map_or(Ok(()), |bias| fits(&name, bias.dims(), &[outer]))?;
            }
        }
        Ok(())
    }

    /// The matrix that turns hidden states into scores of tokens.
    pub(crate) fn head(&self) -> &Tensor {
        self.output.as_ref().unwrap_or(&self.embeddings)
    }
}

/// A base model as far as it is known without its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Measures {
    /// The measures of its network.
    pub config: Config,
    /// Bytes of its GGUF file, of which a merged one is made; `None` where it is no such file.
    pub gguf_bytes: Option<u64>,
}

/// What a folder's model measures, without reading its weights.
pub fn measure(folder: &Path) -> Result<Measures, TrainingError> {
    let size = |file: &Path| -> Result<u64, TrainingError> {
        Ok(std::fs::metadata(file).map_err(TrainingError::io("reading", file))?.len())
    };
    let gguf = folder.join(GGUF_FILE);
    if gguf.is_file() {
        return Ok(Measures { config: GgufFile::open(&gguf)?.config()?, gguf_bytes: Some(size(&gguf)?) });
    }
    let config = safetensors::config(folder)?;
    safetensors::check_weights(folder, &config)?; // without weights there is nothing to train
    Ok(Measures { config, gguf_bytes: None })
}

/// The tokenizer and chat template of a folder's model, without its weights.
pub fn text_of(folder: &Path) -> Result<TextCodec, TrainingError> {
    let gguf = folder.join(GGUF_FILE);
    if gguf.is_file() { GgufFile::open(&gguf)?.text() } else { TextCodec::of_folder(folder) }
}
