//! The base model's GGUF file with the adapter added to its weights.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use crate::base::{Family, GgufFile, Way, permute};
use crate::checkpoint::sync;
use crate::error::TrainingError;
use crate::lora::Target;
use crate::trainer::Trained;

/// What merged matrices are kept in: half the size of a 32-bit float, and close enough that the parity gate passes.
const MERGED: GgmlDType = GgmlDType::F16;

/// Writes `path`: every tensor of the base as it is, but those with an adapter as `W + scale · B A` in 16-bit floats. `path` is
/// synced when this returns. `base` is the GGUF file that was trained on. What is added is computed matrix by matrix: all at once
/// they would be as large as the base, which is held beside them.
pub fn write_merged(trained: &Trained, base: &Path, path: &Path) -> Result<(), TrainingError> {
    let mut file = GgufFile::open(base)?;
    let mut adapted = adapted(trained);
    let mut names: Vec<String> = file.content.tensor_infos.keys().cloned().collect();
    names.sort();
    let mut tensors: Vec<(String, QTensor)> = Vec::with_capacity(names.len());
    for name in names {
        let raw = file.raw(&name)?;
        let tensor = match adapted.remove(&name) {
            Some((target, at)) => {
                let merged = (raw.dequantize(&Device::Cpu)? + delta(trained, target, at)?)?;
                QTensor::quantize(&merged, MERGED)?
            }
            None => raw,
        };
        tensors.push((name, tensor));
    }
    if let Some(name) = adapted.keys().next() {
        return Err(TrainingError::base(base, format!("it has no tensor {name}")));
    }
    // Our writer aligns to the usual 32 bytes, whatever the base did.
    let mut metadata: Vec<(&str, &Value)> = file
        .content
        .metadata
        .iter()
        .filter(|(key, _)| *key != "general.alignment")
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    metadata.sort_by_key(|(key, _)| *key);
    let listed: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let target = File::create(path).map_err(TrainingError::io("creating", path))?;
    let mut writer = BufWriter::new(target);
    let failed = |error: String| TrainingError::io("writing", path)(std::io::Error::other(error));
    gguf_file::write(&mut writer, &metadata, &listed).map_err(|error| failed(error.to_string()))?;
    writer.flush().map_err(TrainingError::io("writing", path))?;
    drop(writer);
    sync(path)
}

/// By the names of tensors in the file: which projection has an adapter, and the place of its `A`.
fn adapted(trained: &Trained) -> HashMap<String, (Target, usize)> {
    let named = |((layer, target), at): ((usize, Target), usize)| {
        (format!("blk.{layer}.{}.weight", target.gguf()), (target, at))
    };
    trained.adapter.places().map(named).collect()
}

/// `scale · B A`, with its rows as they lie in the file.
fn delta(trained: &Trained, target: Target, at: usize) -> Result<Tensor, TrainingError> {
    let config = &trained.base.config;
    let variables = trained.adapter.variables();
    let (a, b) = (variables[at].as_detached_tensor(), variables[at + 1].as_detached_tensor());
    let product = (b.matmul(&a)? * trained.adapter.settings.scale())?;
    let heads = match target {
        Target::Q => config.heads,
        Target::K => config.kv_heads,
        Target::V | Target::O | Target::Gate | Target::Up | Target::Down => return Ok(product),
    };
    Ok(if config.family == Family::Llama { permute(&product, heads, Way::ToGguf)? } else { product })
}
