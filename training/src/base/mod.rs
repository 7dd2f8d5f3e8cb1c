//! Base models: Llama and Qwen2 networks, from a GGUF file or from a folder of safetensors, in 32-bit floats.
//!
//! Inside, weights lie as Hugging Face has them: `[out, in]`, and query and key rows in the order of `rotate_half`. GGUF files
//! of Llamas have those rows permuted; [`rows`] turns them back at loading and forth at export.

mod config;
mod gguf;
mod rows;
mod safetensors;

use std::path::{Path, PathBuf};

use candle_core::Tensor;

use crate::error::TrainingError;
use crate::text::TextCodec;

pub use config::{Config, Family};
pub(crate) use gguf::GgufFile;
pub(crate) use rows::{Way, permute};

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

/// A matrix `[out, in]`, and what is added to its result.
#[derive(Debug, Clone)]
pub(crate) struct Projection {
    pub(crate) weight: Tensor,
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
    /// Reads the model of a folder: `model.gguf`, or else `model.safetensors` with `config.json`, `tokenizer.json` and
    /// `tokenizer_config.json`.
    pub fn load(folder: &Path) -> Result<Self, TrainingError> {
        let gguf = folder.join(GGUF_FILE);
        if gguf.is_file() { gguf::load(&gguf) } else { safetensors::load(folder) }
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
    size(&folder.join(safetensors::WEIGHTS))?; // without weights there is nothing to train
    Ok(Measures { config, gguf_bytes: None })
}

/// The tokenizer and chat template of a folder's model, without its weights.
pub fn text_of(folder: &Path) -> Result<TextCodec, TrainingError> {
    let gguf = folder.join(GGUF_FILE);
    if gguf.is_file() { GgufFile::open(&gguf)?.text() } else { TextCodec::of_folder(folder) }
}
