//! The base model with the adapter added to its weights, as a GGUF file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::whole;
use crate::base::{Config, Family, GGUF_FILE, GgufFile, LayerWeights, Way, Weight, permute};
use crate::checkpoint::sync;
use crate::error::TrainingError;
use crate::lora::Target;
use crate::text::{Listed, TokenizerFiles};
use crate::trainer::Trained;

/// What merged matrices are kept in: half the size of a 32-bit float, and close enough that the parity gate passes.
pub(super) const MERGED: GgmlDType = GgmlDType::F16;

/// Whether a merged file was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It was.
    File,
    /// The base is no GGUF file, and none can be made of it.
    Nothing {
        /// Why not.
        reason: String,
    },
}

/// What a GGUF file consists of.
struct Parts {
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, QTensor)>,
}

/// Writes `path`: of a base that is a GGUF file every tensor as it is, but those with an adapter as `W + scale · B A` in 16-bit
/// floats, and over a base in four bits every projection as it came back from there; of one in Hugging Face's layout all of them in
/// 16-bit floats, with its tokenizer, where llama.cpp knows that. `path` is synced when this returns. `base` is the folder that was
/// trained on. What is added is computed matrix by matrix: all at once they would be as large as the base, which is held beside them.
pub fn write_merged(trained: &Trained, base: &Path, path: &Path) -> Result<Written, TrainingError> {
    let file = base.join(GGUF_FILE);
    let parts = if file.is_file() {
        of_file(trained, &file)?
    } else {
        let config = &trained.base.config;
        match Listed::of(&TokenizerFiles::read(base)?, &trained.base.text, config.vocab) {
            Ok(listed) => Parts { metadata: whole::metadata(config, &listed), tensors: whole::tensors(trained)? },
            Err(reason) => return Ok(Written::Nothing { reason }),
        }
    };
    write(&parts, path)?;
    Ok(Written::File)
}

/// The parts of a base that is a GGUF file.
fn of_file(trained: &Trained, base: &Path) -> Result<Parts, TrainingError> {
    let mut file = GgufFile::open(base)?;
    let mut changed = changed(trained);
    let mut names: Vec<String> = file.content.tensor_infos.keys().cloned().collect();
    names.sort();
    let mut tensors: Vec<(String, QTensor)> = Vec::with_capacity(names.len());
    for name in names {
        let raw = file.raw(&name)?;
        let tensor = match changed.remove(&name) {
            Some(place) => QTensor::quantize(&place.merged(trained, &raw)?, MERGED)?,
            None => raw,
        };
        tensors.push((name, tensor));
    }
    if let Some(name) = changed.keys().next() {
        return Err(TrainingError::base(base, format!("it has no tensor {name}")));
    }
    // Our writer aligns to the usual 32 bytes, whatever the base did.
    let kept = file.content.metadata.into_iter().filter(|(key, _)| key != "general.alignment");
    let mut metadata: Vec<(String, Value)> = kept.collect();
    metadata.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(Parts { metadata, tensors })
}

fn write(parts: &Parts, path: &Path) -> Result<(), TrainingError> {
    let metadata: Vec<(&str, &Value)> = parts.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> = parts.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let target = File::create(path).map_err(TrainingError::io("creating", path))?;
    let mut writer = BufWriter::new(target);
    let failed = |error: String| TrainingError::io("writing", path)(std::io::Error::other(error));
    gguf_file::write(&mut writer, &metadata, &tensors).map_err(|error| failed(error.to_string()))?;
    writer.flush().map_err(TrainingError::io("writing", path))?;
    drop(writer);
    sync(path)
}

/// A matrix that is not written as it lies in the base's file.
struct Changed {
    target: Target,
    /// The place of its `A`, where it has an adapter.
    adapter: Option<usize>,
    /// What it was trained beside, where that is not what the file has.
    held: Option<Weight>,
}

impl Changed {
    fn merged(&self, trained: &Trained, raw: &QTensor) -> Result<Tensor, TrainingError> {
        let matrix = match &self.held {
            Some(held) => in_file(&held.floats()?.to_device(&Device::Cpu)?, self.target, &trained.base.config)?,
            None => raw.dequantize(&Device::Cpu)?,
        };
        match self.adapter {
            Some(at) => Ok((matrix + delta(trained, self.target, at)?)?),
            None => Ok(matrix),
        }
    }
}

/// By the names of tensors in the file: projections that have an adapter. Over a base in four bits, all of them: the adapter was
/// trained beside those, and makes up for what they lost.
fn changed(trained: &Trained) -> HashMap<String, Changed> {
    let adapters: HashMap<(usize, Target), usize> = trained.adapter.places().collect();
    let four_bits = trained.base.is_in_four_bits();
    let of_layer = |(layer, weights): (usize, &LayerWeights)| {
        let all = weights.projections().map(|(target, projection)| {
            let held = four_bits.then(|| projection.weight.clone());
            let name = format!("blk.{layer}.{}.weight", target.gguf());
            (name, Changed { target, adapter: adapters.get(&(layer, target)).copied(), held })
        });
        all.into_iter().filter(|(_, changed)| changed.adapter.is_some() || changed.held.is_some())
    };
    trained.base.layers.iter().enumerate().flat_map(of_layer).collect()
}

/// `scale · B A`, with its rows as they lie in the file.
pub(super) fn delta(trained: &Trained, target: Target, at: usize) -> Result<Tensor, TrainingError> {
    let variables = trained.adapter.variables();
    let (a, b) = (variables[at].as_detached_tensor(), variables[at + 1].as_detached_tensor());
    let product = (b.matmul(&a)? * trained.adapter.settings.scale())?;
    in_file(&product, target, &trained.base.config)
}

/// A projection's matrix with its rows as they lie in the file.
pub(super) fn in_file(matrix: &Tensor, target: Target, config: &Config) -> Result<Tensor, TrainingError> {
    let heads = match target {
        Target::Q => config.heads,
        Target::K => config.kv_heads,
        Target::V | Target::O | Target::Gate | Target::Up | Target::Down => return Ok(matrix.clone()),
    };
    Ok(if config.family == Family::Llama { permute(matrix, heads, Way::ToGguf)? } else { matrix.clone() })
}
