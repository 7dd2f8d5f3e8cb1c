//! Models in Hugging Face's layout: `config.json`, `model.safetensors`, `tokenizer.json`, `tokenizer_config.json`.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use serde_json::Value;

use super::{BaseModel, Config, Family, LayerWeights, Projection};
use crate::error::TrainingError;
use crate::text::TextCodec;

pub(super) const WEIGHTS: &str = "model.safetensors";
const CONFIG: &str = "config.json";

pub(super) fn config(folder: &Path) -> Result<Config, TrainingError> {
    let path = folder.join(CONFIG);
    let bytes = std::fs::read(&path).map_err(TrainingError::io("reading", &path))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| TrainingError::base(&path, error))?;
    let bad = |reason: String| TrainingError::base(&path, reason);
    let name = value["architectures"][0].as_str().or(value["model_type"].as_str()).unwrap_or("nothing");
    let family = Family::by_name(name)
        .ok_or_else(|| bad(format!("its architecture is {name}; llama and qwen2 can be trained")))?;
    let scaling = &value["rope_scaling"];
    if !scaling.is_null() && scaling["rope_type"].as_str() != Some("default") {
        return Err(bad(format!("its positions are scaled: {scaling}")));
    }
    let number = |key: &str| value[key].as_u64().and_then(|n| usize::try_from(n).ok());
    let wanted = |key: &str| number(key).ok_or_else(|| bad(format!("it has no {key}")));
    let theta = value["rope_theta"].as_f64().or(value["rope_parameters"]["rope_theta"].as_f64());
    let (hidden, heads) = (wanted("hidden_size")?, wanted("num_attention_heads")?);
    let config = Config {
        family,
        layers: wanted("num_hidden_layers")?,
        hidden,
        intermediate: wanted("intermediate_size")?,
        heads,
        kv_heads: number("num_key_value_heads").unwrap_or(heads),
        head_dim: number("head_dim").unwrap_or(hidden / heads.max(1)),
        vocab: wanted("vocab_size")?,
        norm_eps: value["rms_norm_eps"].as_f64().unwrap_or(1e-6),
        rope_theta: theta.unwrap_or(10_000.0),
        context: number("max_position_embeddings").unwrap_or(2048),
        own_output: value["tie_word_embeddings"].as_bool() != Some(true),
    };
    config.check().map_err(bad)?;
    Ok(config)
}

struct Weights<'p> {
    path: &'p Path,
    tensors: HashMap<String, Tensor>,
}

impl Weights<'_> {
    fn maybe(&mut self, name: &str) -> Result<Option<Tensor>, TrainingError> {
        let tensor = self.tensors.remove(name);
        Ok(tensor.map(|tensor| tensor.to_dtype(DType::F32)).transpose()?)
    }

    fn tensor(&mut self, name: &str) -> Result<Tensor, TrainingError> {
        let path = self.path;
        self.maybe(name)?.ok_or_else(|| TrainingError::base(path, format!("it has no tensor {name}")))
    }

    fn projection(&mut self, layer: usize, name: &str) -> Result<Projection, TrainingError> {
        let weight = self.tensor(&format!("model.layers.{layer}.{name}.weight"))?;
        let bias = self.maybe(&format!("model.layers.{layer}.{name}.bias"))?;
        Ok(Projection { weight, bias })
    }

    fn layer(&mut self, layer: usize) -> Result<LayerWeights, TrainingError> {
        Ok(LayerWeights {
            attention_norm: self.tensor(&format!("model.layers.{layer}.input_layernorm.weight"))?,
            q: self.projection(layer, "self_attn.q_proj")?,
            k: self.projection(layer, "self_attn.k_proj")?,
            v: self.projection(layer, "self_attn.v_proj")?,
            o: self.projection(layer, "self_attn.o_proj")?,
            mlp_norm: self.tensor(&format!("model.layers.{layer}.post_attention_layernorm.weight"))?,
            gate: self.projection(layer, "mlp.gate_proj")?,
            up: self.projection(layer, "mlp.up_proj")?,
            down: self.projection(layer, "mlp.down_proj")?,
        })
    }
}

pub(super) fn load(folder: &Path) -> Result<BaseModel, TrainingError> {
    let config = config(folder)?;
    let text = TextCodec::of_folder(folder)?;
    let path = folder.join(WEIGHTS);
    let tensors =
        candle_core::safetensors::load(&path, &Device::Cpu).map_err(|error| TrainingError::base(&path, error))?;
    let mut weights = Weights { path: &path, tensors };
    let output = if config.own_output { Some(weights.tensor("lm_head.weight")?) } else { None };
    let layers = (0..config.layers).map(|layer| weights.layer(layer)).collect::<Result<Vec<_>, _>>()?;
    Ok(BaseModel {
        path: folder.to_path_buf(),
        text,
        embeddings: weights.tensor("model.embed_tokens.weight")?,
        output,
        norm: weights.tensor("model.norm.weight")?,
        layers,
        rope_factors: None,
        config,
    })
}
