//! Models in Hugging Face's layout: `config.json`, `model.safetensors` or the files that an index names, `tokenizer.json`,
//! `tokenizer_config.json`.

use std::io::ErrorKind;
use std::path::Path;

use candle_core::Tensor;
use serde_json::Value;

use super::tensors::{Tensors, files_of};
use super::{BaseModel, Config, Family, LayerWeights, Projection, check_count};
use crate::error::TrainingError;
use crate::files;
use crate::text::TextCodec;

const CONFIG: &str = "config.json";
/// Bytes of a number, at most.
const LARGEST_NUMBER: u64 = 8;

pub(super) fn config(folder: &Path) -> Result<Config, TrainingError> {
    let path = folder.join(CONFIG);
    let bytes = files::read(&path, files::MAX_SETTINGS)?;
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

/// Refuses files that can't be those of such a network, without reading them.
pub(super) fn check_weights(folder: &Path, config: &Config) -> Result<(), TrainingError> {
    let sizes = files_of(folder)?.iter().map(|path| size(path)).collect::<Result<Vec<u64>, _>>()?;
    check_count(sizes.iter().sum::<u64>() / LARGEST_NUMBER, config)
        .map_err(|reason| TrainingError::base(folder, reason))
}

fn size(path: &Path) -> Result<u64, TrainingError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(TrainingError::base(path, "it is not there")),
        found => Ok(found.map_err(TrainingError::io("reading", path))?.len()),
    }
}

struct Weights<'p> {
    path: &'p Path,
    tensors: Tensors,
}

impl Weights<'_> {
    fn maybe(&mut self, name: &str) -> Result<Option<Tensor>, TrainingError> {
        self.tensors.take(name)
    }

    fn tensor(&mut self, name: &str) -> Result<Tensor, TrainingError> {
        let path = self.path;
        self.maybe(name)?.ok_or_else(|| TrainingError::base(path, format!("it has no tensor {name}")))
    }

    fn projection(&mut self, layer: usize, name: &str) -> Result<Projection, TrainingError> {
        let weight = self.tensor(&format!("model.layers.{layer}.{name}.weight"))?;
        let bias = self.maybe(&format!("model.layers.{layer}.{name}.bias"))?;
        Ok(Projection::new(weight, bias))
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
    check_weights(folder, &config)?;
    let text = TextCodec::of_folder(folder)?;
    let mut weights = Weights { path: folder, tensors: Tensors::open(folder)? };
    // The largest one first: while it is read, it is there twice.
    let embeddings = weights.tensor("model.embed_tokens.weight")?;
    let output = if config.own_output { Some(weights.tensor("lm_head.weight")?) } else { None };
    let layers = (0..config.layers).map(|layer| weights.layer(layer)).collect::<Result<Vec<_>, _>>()?;
    Ok(BaseModel {
        path: folder.to_path_buf(),
        text,
        embeddings,
        output,
        norm: weights.tensor("model.norm.weight")?,
        layers,
        rope_factors: None,
        config,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs::File;

    use candle_core::{DType, Device};
    use serde_json::{Map, json};

    use super::*;
    use crate::base::measure;
    use crate::base::tensors::WEIGHTS;
    use crate::testing::{base, tensors_of, write_folder};

    #[test]
    fn given_a_folder_then_it_is_read_and_a_tensor_of_another_size_is_named() {
        for family in [Family::Llama, Family::Qwen2] {
            let (folder, base) = (tempfile::tempdir().unwrap(), base(family));
            let mut tensors = tensors_of(&base);
            write_folder(folder.path(), &base.config, &tensors);
            assert_eq!(BaseModel::load(folder.path()).unwrap().config, base.config);
            for name in ["self_attn.k_proj", "mlp.up_proj", "input_layernorm"] {
                let name = format!("model.layers.1.{name}.weight");
                let wrong = Tensor::zeros((3, 5), DType::F32, &Device::Cpu).unwrap();
                let right = tensors.insert(name.clone(), wrong).unwrap();
                write_folder(folder.path(), &base.config, &tensors);
                let error = BaseModel::load(folder.path()).err().unwrap();
                assert!(error.code() == "base_model_unusable" && error.to_string().contains("layer 1"), "{error}");
                tensors.insert(name, right);
            }
        }
    }

    #[test]
    fn given_weights_that_are_far_larger_than_the_model_says_then_they_are_not_read() {
        let (folder, base) = (tempfile::tempdir().unwrap(), base(Family::Llama));
        write_folder(folder.path(), &base.config, &tensors_of(&base));
        assert!(measure(folder.path()).is_ok());
        // Nothing is written: it only says that it is so long.
        File::options().write(true).open(folder.path().join(WEIGHTS)).unwrap().set_len(1 << 40).unwrap();
        for error in [measure(folder.path()).err().unwrap(), BaseModel::load(folder.path()).err().unwrap()] {
            assert_eq!(error.code(), "base_model_unusable", "{error}");
        }
    }
    /// Spreads the weights of a folder over two files.
    fn spread(folder: &Path, tensors: &HashMap<String, Tensor>) {
        let mut map = Map::new();
        for number in 0..2 {
            let file = format!("model-0000{}-of-00002.safetensors", number + 1);
            let part = tensors.iter().filter(|(name, _)| name.len() % 2 == number);
            let part: HashMap<String, Tensor> = part.map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
            map.extend(part.keys().map(|name| (name.clone(), json!(file))));
            candle_core::safetensors::save(&part, folder.join(file)).unwrap();
        }
        std::fs::write(folder.join("model.safetensors.index.json"), json!({ "weight_map": map }).to_string()).unwrap();
        std::fs::remove_file(folder.join(WEIGHTS)).unwrap();
    }

    #[test]
    fn given_weights_in_several_files_then_they_are_read_and_a_file_that_is_not_there_is_named() {
        let (folder, base) = (tempfile::tempdir().unwrap(), base(Family::Qwen2));
        let halves = |tensor: &Tensor| tensor.to_dtype(DType::BF16).unwrap();
        let tensors: HashMap<String, Tensor> =
            tensors_of(&base).iter().map(|(name, tensor)| (name.clone(), halves(tensor))).collect();
        write_folder(folder.path(), &base.config, &tensors);
        spread(folder.path(), &tensors);
        let read = BaseModel::load(folder.path()).unwrap();
        let numbers = |tensor: &Tensor| {
            let floats = tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap();
            floats.to_vec1::<f32>().unwrap()
        };
        for (name, tensor) in tensors_of(&read) {
            assert_eq!(numbers(&tensor), numbers(&tensors[&name]), "{name}");
        }
        let second = folder.path().join("model-00002-of-00002.safetensors");
        std::fs::remove_file(&second).unwrap();
        for error in [measure(folder.path()).err().unwrap(), BaseModel::load(folder.path()).err().unwrap()] {
            assert!(error.to_string().contains("model-00002-of-00002.safetensors"), "{error}");
            assert_eq!(error.code(), "base_model_unusable");
        }
        for map in [json!({ "lm_head.weight": "../model.safetensors" }), json!({ "lm_head.weight": 7 }), json!({})] {
            let index = json!({ "weight_map": map }).to_string();
            std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
            assert_eq!(measure(folder.path()).err().unwrap().code(), "base_model_unusable");
        }
    }

    #[test]
    fn given_a_description_that_can_not_be_then_it_is_told_and_nothing_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let described = [
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#,
            r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#,
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
            r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#,
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615]}}"#,
            r#"{"a":7"#,
        ];
        let write = |text: &str, length: u64| {
            let bytes = [length.to_le_bytes().as_slice(), text.as_bytes(), [0u8; 8].as_slice()].concat();
            std::fs::write(folder.path().join(WEIGHTS), bytes).unwrap();
            Tensors::open(folder.path()).err().map(|error| error.code())
        };
        for text in described {
            assert_eq!(write(text, text.len() as u64), Some("base_model_unusable"), "{text}");
        }
        let right = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I64"}}"#;
        assert_eq!(write(right, 1 << 62), Some("base_model_unusable"));
        assert_eq!(write(right, right.len() as u64), None);
        let mut tensors = Tensors::open(folder.path()).unwrap();
        let zeros = tensors.take("a").unwrap().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(zeros, [0.0, 0.0]);
        assert!(tensors.take("a").unwrap().is_none() && tensors.take("b").unwrap().is_none());
    }
}
