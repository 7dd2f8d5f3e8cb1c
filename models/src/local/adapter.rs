//! LoRA adapters: a folder with `adapter_model.safetensors` and `adapter_config.json` in the layout of PEFT, as `riverrun finetune export` writes
//! it, is a chat model under the folder's name. Its base model, a GGUF file, is loaded, and the adapter is applied to it by llama.cpp: the
//! weights of the base stay as they are, and the system keeps them in memory once, whoever else has them loaded.
//!
//! llama.cpp reads adapters as GGUF files with the tensors `<base tensor>.lora_a` and `.lora_b` (its `convert_lora_to_gguf.py`). One is written
//! for the moment of loading.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::quantized::gguf_file::{self, Value as GgufValue};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use llama_cpp_2::model::{LlamaLoraAdapter, LlamaModel};
use serde_json::Value;

/// The matrices.
pub(super) const WEIGHTS: &str = "adapter_model.safetensors";
/// The settings beside them.
const CONFIG: &str = "adapter_config.json";
/// A larger file of matrices is refused: they are read whole.
const MAX_BYTES: u64 = 2 << 30;

/// Whether a folder is an adapter.
pub(super) fn is_there(folder: &Path) -> bool {
    folder.join(WEIGHTS).is_file() && folder.join(CONFIG).is_file()
}

/// The name of the model that an adapter was trained on. The error says what is wrong with its settings.
pub(super) fn base_of(folder: &Path) -> Result<String, String> {
    Config::read(folder).map(|config| config.base)
}

/// Applies an adapter to its base model, before any context is made of it. `scratch` is a folder for the moment.
pub(super) fn apply(folder: &Path, scratch: &Path, model: &mut LlamaModel) -> Result<LlamaLoraAdapter, String> {
    let config = Config::read(folder)?;
    let architecture = model.meta_val_str("general.architecture").map_err(|error| error.to_string())?;
    let heads = Heads {
        query: usize::try_from(model.n_head()).unwrap_or(0),
        key: usize::try_from(model.n_head_kv()).unwrap_or(0),
        neighbours: architecture == "llama",
    };
    let tensors = tensors(&folder.join(WEIGHTS), heads)?;
    let file = Scratch::new(scratch)?;
    write(&file.path, &architecture, config.alpha, &tensors)
        .map_err(|error| format!("{} can't be written: {error}", file.path.display()))?;
    model.lora_adapter_init(&file.path).map_err(|_| {
        format!(
            "llama.cpp refuses the adapter; it is of another base model than {:?} (its log is at level debug)",
            config.base
        )
    })
}

/// What of the settings counts.
#[derive(Debug, Clone, PartialEq)]
struct Config {
    base: String,
    /// What llama.cpp divides by the rank.
    alpha: f32,
}

impl Config {
    fn read(folder: &Path) -> Result<Self, String> {
        let bytes = fs::read(folder.join(CONFIG)).map_err(|error| format!("{CONFIG}: {error}"))?;
        let config: Value = serde_json::from_slice(&bytes).map_err(|error| format!("{CONFIG}: {error}"))?;
        Config::of(&config).map_err(|error| format!("{CONFIG}: {error}"))
    }

    /// Variants that llama.cpp does not compute are refused, not left out.
    fn of(config: &Value) -> Result<Self, String> {
        if config["peft_type"] != "LORA" {
            return Err(format!("peft_type is {}; LORA is what can be applied", config["peft_type"]));
        }
        if config["bias"].as_str().is_some_and(|bias| bias != "none") {
            return Err(format!("bias is {}; \"none\" is what can be applied", config["bias"]));
        }
        for field in ["use_dora", "fan_in_fan_out", "modules_to_save", "rank_pattern", "alpha_pattern"] {
            if !is_nothing(&config[field]) {
                return Err(format!("{field} is {}, which can't be applied", config[field]));
            }
        }
        let rank = config["r"].as_f64().filter(|rank| *rank >= 1.0).ok_or("r is no rank")?;
        let alpha = config["lora_alpha"].as_f64().filter(|alpha| alpha.is_finite()).ok_or("lora_alpha is no number")?;
        let alpha = if is_nothing(&config["use_rslora"]) { alpha } else { alpha * rank.sqrt() };
        let base = config["base_model_name_or_path"].as_str().unwrap_or_default();
        let base = base.strip_prefix("local/").unwrap_or(base).to_owned();
        if base.is_empty() {
            return Err("base_model_name_or_path names no model".to_owned());
        }
        Ok(Config { base, alpha: alpha as f32 })
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
    }
}

/// How the base keeps the rows of its query and key matrices.
#[derive(Debug, Clone, Copy)]
struct Heads {
    query: usize,
    key: usize,
    /// The two halves of a head's rows stand by turns, as llama.cpp turns them; PEFT has one half behind the other.
    neighbours: bool,
}

/// The matrices under llama.cpp's names, in 32-bit floats.
fn tensors(path: &Path, heads: Heads) -> Result<BTreeMap<String, Tensor>, String> {
    let bytes = fs::metadata(path).map_err(|error| format!("{WEIGHTS}: {error}"))?.len();
    if bytes > MAX_BYTES {
        return Err(format!("{WEIGHTS} has {bytes} bytes, more than {MAX_BYTES}"));
    }
    let loaded: HashMap<String, Tensor> =
        candle_core::safetensors::load(path, &Device::Cpu).map_err(|error| format!("{WEIGHTS}: {error}"))?;
    let mut named = BTreeMap::new();
    for (name, tensor) in loaded {
        let (layer, module, letter) =
            place(&name).ok_or_else(|| format!("{WEIGHTS}: it changes {name:?}, which can't be applied"))?;
        let turned = match (letter, module) {
            ('b', "attn_q") if heads.neighbours => turn(&tensor, heads.query),
            ('b', "attn_k") if heads.neighbours => turn(&tensor, heads.key),
            _ => Ok(tensor),
        };
        let tensor = turned.map_err(|error| format!("{WEIGHTS}: {name}: {error}"))?;
        named.insert(format!("blk.{layer}.{module}.weight.lora_{letter}"), tensor);
    }
    if named.is_empty() {
        return Err(format!("{WEIGHTS} is empty"));
    }
    Ok(named)
}

/// Layer, name of the matrix in GGUF files, and `a` or `b`, of a name in PEFT's layout.
fn place(name: &str) -> Option<(u32, &'static str, char)> {
    let (layer, rest) = name.strip_prefix("base_model.model.model.layers.")?.split_once('.')?;
    let (module, letter) = match rest.strip_suffix(".lora_A.weight") {
        Some(module) => (module, 'a'),
        None => (rest.strip_suffix(".lora_B.weight")?, 'b'),
    };
    let module = match module {
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        _ => return None,
    };
    Some((layer.parse().ok()?, module, letter))
}

/// The rows of each head, its halves by turns.
fn turn(matrix: &Tensor, heads: usize) -> candle_core::Result<Tensor> {
    let (rows, columns) = matrix.dims2()?;
    if heads == 0 || !rows.is_multiple_of(2 * heads) {
        candle_core::bail!("{rows} rows are not those of {heads} heads");
    }
    matrix.reshape((heads, 2, rows / heads / 2, columns))?.transpose(1, 2)?.contiguous()?.reshape((rows, columns))
}

fn write(path: &Path, architecture: &str, alpha: f32, tensors: &BTreeMap<String, Tensor>) -> candle_core::Result<()> {
    let text = |text: &str| GgufValue::String(text.to_owned());
    let metadata = [
        ("general.type", text("adapter")),
        ("general.architecture", text(architecture)),
        ("adapter.type", text("lora")),
        ("adapter.lora.alpha", GgufValue::F32(alpha)),
    ];
    let metadata: Vec<(&str, &GgufValue)> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let quantize = |(name, tensor): (&String, &Tensor)| {
        QTensor::quantize(tensor, GgmlDType::F32).map(|quantized| (name.clone(), quantized))
    };
    let quantized = tensors.iter().map(quantize).collect::<candle_core::Result<Vec<(String, QTensor)>>>()?;
    let listed: Vec<(&str, &QTensor)> = quantized.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut writer = BufWriter::new(File::create(path)?);
    gguf_file::write(&mut writer, &metadata, &listed)?;
    Ok(writer.flush()?)
}

/// A file that goes with the value.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(folder: &Path) -> Result<Self, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(folder).map_err(|error| format!("{} can't be made: {error}", folder.display()))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Scratch { path: folder.join(format!(".adapter-{}-{number}.gguf", std::process::id())) })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // it may never have been written
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Value {
        json!({
            "peft_type": "LORA", "base_model_name_or_path": "local/small", "r": 4, "lora_alpha": 8.0, "bias": "none",
            "fan_in_fan_out": false, "modules_to_save": null, "rank_pattern": {},
        })
    }

    #[test]
    fn given_settings_when_they_are_read_then_base_and_scale_are_known_and_what_is_not_computed_is_refused() {
        assert_eq!(Config::of(&config()).unwrap(), Config { base: "small".into(), alpha: 8.0 });
        let mut stabilized = config();
        stabilized["use_rslora"] = json!(true);
        assert_eq!(Config::of(&stabilized).unwrap().alpha, 16.0);
        for (field, value) in [
            ("peft_type", json!("IA3")),
            ("bias", json!("all")),
            ("use_dora", json!(true)),
            ("modules_to_save", json!(["lm_head"])),
            ("rank_pattern", json!({"q_proj": 8})),
            ("r", json!(0)),
            ("lora_alpha", json!(null)),
            ("base_model_name_or_path", json!("")),
        ] {
            let mut changed = config();
            changed[field] = value;
            let error = Config::of(&changed).unwrap_err();
            assert!(error.contains(field) || field == "r", "{field}: {error}");
        }
    }

    #[test]
    fn given_names_of_peft_when_they_are_read_then_they_are_those_of_the_file_and_others_are_none() {
        let name = |rest: &str| format!("base_model.model.model.layers.11.{rest}");
        assert_eq!(place(&name("self_attn.q_proj.lora_A.weight")), Some((11, "attn_q", 'a')));
        assert_eq!(place(&name("mlp.down_proj.lora_B.weight")), Some((11, "ffn_down", 'b')));
        for other in
            ["self_attn.q_proj.weight", "self_attn.q_proj.lora_C.weight", "mlp.experts.0.up_proj.lora_A.weight", ""]
        {
            assert_eq!(place(&name(other)), None, "{other}");
        }
        assert_eq!(place("base_model.model.lm_head.lora_A.weight"), None);
    }

    #[test]
    fn given_rows_of_heads_when_they_are_turned_then_halves_become_neighbours() {
        let rows: Vec<f32> = (0..12_u8).map(f32::from).collect();
        let matrix = Tensor::from_vec(rows, (12, 1), &Device::Cpu).unwrap();
        let turned = turn(&matrix, 2).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(turned, [0., 3., 1., 4., 2., 5., 6., 9., 7., 10., 8., 11.]);
        assert!(turn(&matrix, 5).is_err() && turn(&matrix, 0).is_err());
    }

    #[test]
    fn given_an_adapter_when_it_is_written_then_a_gguf_file_holds_its_matrices_and_its_scale() {
        let dir = tempfile::tempdir().unwrap();
        let ones =
            |rows: usize, columns: usize| Tensor::ones((rows, columns), candle_core::DType::F32, &Device::Cpu).unwrap();
        let name = |letter: char| format!("base_model.model.model.layers.0.self_attn.v_proj.lora_{letter}.weight");
        let made = HashMap::from([(name('A'), ones(2, 6)), (name('B'), ones(4, 2))]);
        candle_core::safetensors::save(&made, dir.path().join(WEIGHTS)).unwrap();
        let heads = Heads { query: 2, key: 2, neighbours: true };
        let tensors = tensors(&dir.path().join(WEIGHTS), heads).unwrap();
        let file = Scratch::new(&dir.path().join("scratch")).unwrap();
        write(&file.path, "llama", 8.0, &tensors).unwrap();
        let content = gguf_file::Content::read(&mut File::open(&file.path).unwrap()).unwrap();
        assert_eq!(content.metadata["adapter.lora.alpha"].to_f32().unwrap(), 8.0);
        assert_eq!(content.metadata["general.type"].to_string().unwrap(), "adapter");
        let shape = |name: &str| content.tensor_infos[name].shape.dims().to_vec();
        assert_eq!(shape("blk.0.attn_v.weight.lora_a"), [2, 6]);
        assert_eq!(shape("blk.0.attn_v.weight.lora_b"), [4, 2]);
        let path = file.path.clone();
        drop(file);
        assert!(!path.exists());
    }
}
