//! The layout of PEFT: `adapter_model.safetensors` and `adapter_config.json`.

use std::collections::HashMap;
use std::path::Path;

use candle_core::Tensor;
use serde_json::json;

use crate::base::BaseModel;
use crate::error::TrainingError;
use crate::lora::Adapter;
use crate::plan::Plan;
use crate::trainer::Trained;

/// Name of the file of matrices.
pub const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";
/// Name of the file of settings.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";

/// The two files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeftFiles {
    /// `adapter_model.safetensors`.
    pub weights: Vec<u8>,
    /// `adapter_config.json`.
    pub config: Vec<u8>,
}

/// Makes the files of a trained adapter. `scratch` is a folder for the moment; `base_model` is the name that PEFT will look for.
pub fn peft_files(trained: &Trained, base_model: &str, scratch: &Path) -> Result<PeftFiles, TrainingError> {
    files(&trained.adapter, base_model, scratch)
}

/// The files of the adapter that a training begins with: whoever compares trainers gives both the same.
pub fn initial_files(
    plan: &Plan,
    base: &BaseModel,
    base_model: &str,
    scratch: &Path,
) -> Result<PeftFiles, TrainingError> {
    files(&Adapter::new(&plan.lora, &base.config, plan.seed)?, base_model, scratch)
}

fn files(adapter: &Adapter, base_model: &str, scratch: &Path) -> Result<PeftFiles, TrainingError> {
    let mut tensors: HashMap<String, Tensor> = HashMap::new();
    for ((layer, target), at) in adapter.places() {
        let module = format!("base_model.model.model.layers.{layer}.{}.{}", target.module(), target.as_str());
        for (letter, at) in [("A", at), ("B", at + 1)] {
            tensors.insert(format!("{module}.lora_{letter}.weight"), adapter.variables()[at].as_detached_tensor());
        }
    }
    std::fs::create_dir_all(scratch).map_err(TrainingError::io("creating", scratch))?;
    let path = scratch.join(ADAPTER_WEIGHTS);
    let saved = candle_core::safetensors::save(&tensors, &path);
    saved.map_err(|error| TrainingError::io("writing", &path)(std::io::Error::other(error.to_string())))?;
    let weights = std::fs::read(&path).map_err(TrainingError::io("reading", &path))?;
    let settings = &adapter.settings;
    let targets: Vec<&str> = settings.sorted_targets().into_iter().map(|target| target.as_str()).collect();
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": targets,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
    });
    Ok(PeftFiles { weights, config: config.to_string().into_bytes() })
}
