//! A tiny model with random weights, and texts for it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use serde_json::{Map, Value, json};

use crate::base::{BaseModel, Config, Family, LayerWeights, Projection};
use crate::lora::LoraSettings;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::text::{Encoded, GgufVocabulary};

pub(crate) fn config(family: Family) -> Config {
    Config {
        family,
        layers: 2,
        hidden: 8,
        intermediate: 12,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        vocab: 20,
        norm_eps: 1e-5,
        rope_theta: 100.0,
        context: 64,
        own_output: false,
    }
}

struct Weights(Rng);

impl Weights {
    fn tensor(&mut self, shape: &[usize], middle: f32) -> Tensor {
        let count: usize = shape.iter().product();
        let numbers: Vec<f32> = (0..count).map(|_| middle + 0.8 * (self.0.unit() - 0.5)).collect();
        Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()
    }

    fn projection(&mut self, outer: usize, inner: usize, bias: bool) -> Projection {
        let weight = self.tensor(&[outer, inner], 0.0);
        Projection::new(weight, bias.then(|| self.tensor(&[outer], 0.0)))
    }
}

pub(crate) fn base(family: Family) -> Arc<BaseModel> {
    let config = config(family);
    let mut weights = Weights(Rng::of(11, &[]));
    let biased = family == Family::Qwen2;
    let (hidden, mlp) = (config.hidden, config.intermediate);
    let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let layers = (0..config.layers)
        .map(|_| LayerWeights {
            attention_norm: weights.tensor(&[hidden], 1.0),
            q: weights.projection(queries, hidden, biased),
            k: weights.projection(keys, hidden, biased),
            v: weights.projection(keys, hidden, biased),
            o: weights.projection(hidden, queries, false),
            mlp_norm: weights.tensor(&[hidden], 1.0),
            gate: weights.projection(mlp, hidden, false),
            up: weights.projection(mlp, hidden, false),
            down: weights.projection(hidden, mlp, false),
        })
        .collect();
    let text = vocabulary().codec().unwrap();
    Arc::new(BaseModel {
        path: "tiny".into(),
        text,
        embeddings: weights.tensor(&[config.vocab, hidden], 0.0),
        output: None,
        norm: weights.tensor(&[hidden], 1.0),
        layers,
        rope_factors: None,
        config,
    })
}

/// Its tensors, as Hugging Face names them.
pub(crate) fn tensors_of(base: &BaseModel) -> HashMap<String, Tensor> {
    let mut all = HashMap::from([
        ("model.embed_tokens.weight".to_owned(), base.embeddings.clone()),
        ("model.norm.weight".to_owned(), base.norm.clone()),
    ]);
    for (at, layer) in base.layers.iter().enumerate() {
        let of = format!("model.layers.{at}");
        all.insert(format!("{of}.input_layernorm.weight"), layer.attention_norm.clone());
        all.insert(format!("{of}.post_attention_layernorm.weight"), layer.mlp_norm.clone());
        for (target, projection) in layer.projections() {
            let name = format!("{of}.{}.{}", target.module(), target.as_str());
            all.insert(format!("{name}.weight"), projection.weight.floats().unwrap());
            all.extend(projection.bias.iter().map(|bias| (format!("{name}.bias"), bias.clone())));
        }
    }
    all
}

/// Writes a model in Hugging Face's layout.
pub(crate) fn write_folder(folder: &Path, config: &Config, tensors: &HashMap<String, Tensor>) {
    let settings = json!({ "model_type": config.family.as_str(), "num_hidden_layers": config.layers, "hidden_size": config.hidden,
        "intermediate_size": config.intermediate, "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim, "vocab_size": config.vocab, "rms_norm_eps": config.norm_eps, "rope_theta": config.rope_theta,
        "max_position_embeddings": config.context, "tie_word_embeddings": !config.own_output });
    std::fs::write(folder.join("config.json"), settings.to_string()).unwrap();
    write_tokenizer(folder, &tokenizer_json());
    candle_core::safetensors::save(tensors, folder.join("model.safetensors")).unwrap();
}

/// Letters and the marks of ChatML.
pub(crate) fn vocabulary() -> GgufVocabulary {
    let letters = [
        "<|im_start|>",
        "<|im_end|>",
        "a",
        "b",
        "c",
        "d",
        "e",
        "s",
        "i",
        "t",
        "n",
        "u",
        "r",
        "y",
        "m",
        "Ċ",
        "Ġ",
        "an",
        "er",
        "st",
    ];
    GgufVocabulary {
        tokens: letters.iter().map(|letter| (*letter).to_owned()).collect(),
        merges: ["a n", "e r", "s t"].iter().map(|merge| (*merge).to_owned()).collect(),
        controls: vec![0, 1],
        splitting: "smollm".to_owned(),
        template: None,
        bos: Some(0),
        eos: Some(1),
        add_bos: false,
    }
}

/// The same as a `tokenizer.json`.
pub(crate) fn tokenizer_json() -> Value {
    let GgufVocabulary { tokens, merges, controls, .. } = vocabulary();
    let ids: Map<String, Value> = tokens.iter().zip(0u32..).map(|(token, id)| (token.clone(), id.into())).collect();
    let special = |id: &usize| {
        json!({ "id": id, "content": tokens[*id], "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true })
    };
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({ "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null, "decoder": bytes,
        "added_tokens": controls.iter().map(special).collect::<Vec<_>>(),
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [{ "type": "Digits", "individual_digits": true }, bytes] },
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": ids,
            "merges": merges } })
}

/// Puts a tokenizer into a folder in Hugging Face's layout.
pub(crate) fn write_tokenizer(folder: &Path, tokenizer: &Value) {
    let settings = json!({ "bos_token": "<|im_start|>", "eos_token": "<|im_end|>" });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.join("tokenizer_config.json"), settings.to_string()).unwrap();
}

/// Sequences of random tokens, of which about half are taught.
pub(crate) fn sequences(count: usize, seed: u64) -> Vec<Encoded> {
    let mut rng = Rng::of(seed, &[]);
    let one = |_| {
        let length = 4 + rng.below(6);
        let ids: Vec<u32> = (0..length).map(|_| rng.below(20) as u32).collect();
        let taught = (0..length).map(|at| at >= length / 2).collect();
        Encoded { ids, taught }
    };
    (0..count).map(one).collect()
}

pub(crate) fn plan() -> Plan {
    Plan {
        lora: LoraSettings { rank: 2, alpha: 4.0, ..LoraSettings::default() },
        learning_rate: 1e-2,
        max_steps: 12,
        batch_size: 3,
        seq_len: 32,
        warmup_steps: 2,
        eval_every: 4,
        checkpoint_every: 5,
        patience: 0,
        ..Plan::default()
    }
}
