//! Tiny encoders of every family, with weights that are the same in every run.

use std::collections::HashMap;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value as GgufValue};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use serde_json::{Value, json};

pub(crate) const HIDDEN: usize = 16;
const WORDS: [&str; 12] =
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "river", "runs", "sea", "log", "event", "kafka", "reads", "search_query:"];

/// The tensors of a model while it is made.
#[derive(Default)]
pub(crate) struct Tensors {
    map: HashMap<String, Tensor>,
}

impl Tensors {
    /// Numbers that depend on the tensor's name only, so that models of several families can share their weights.
    pub(crate) fn add(&mut self, name: &str, shape: &[usize]) {
        let mut seed = name.bytes().fold(42_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) as f32 / (1_u64 << 31) as f32 - 0.5) * 0.8
        };
        let numbers: Vec<f32> = (0..shape.iter().product::<usize>()).map(|_| next()).collect();
        self.map.insert(name.to_owned(), Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap());
    }

    pub(crate) fn dense(&mut self, name: &str, from: usize, to: usize) {
        self.add(&format!("{name}.weight"), &[to, from]);
        self.add(&format!("{name}.bias"), &[to]);
    }

    pub(crate) fn norm(&mut self, name: &str) {
        self.add(&format!("{name}.weight"), &[HIDDEN]);
        self.add(&format!("{name}.bias"), &[HIDDEN]);
    }

    /// Puts rows of zeros before a table.
    pub(crate) fn shift(&mut self, name: &str, rows: usize) {
        let table = &self.map[name];
        let zeros = Tensor::zeros((rows, table.dim(1).unwrap()), table.dtype(), &Device::Cpu).unwrap();
        let shifted = Tensor::cat(&[&zeros, table], 0).unwrap();
        self.map.insert(name.to_owned(), shifted);
    }

    /// Keeps the first rows of a table.
    pub(crate) fn cut(&mut self, name: &str, rows: usize) {
        let cut = self.map[name].narrow(0, 0, rows).unwrap().contiguous().unwrap();
        self.map.insert(name.to_owned(), cut);
    }

    /// Renames all tensors.
    pub(crate) fn rename(&mut self, change: impl Fn(&str) -> String) {
        self.map = self.map.drain().map(|(name, tensor)| (change(&name), tensor)).collect();
    }

    /// Writes a model's folder.
    pub(crate) fn write(&self, folder: &Path, config: &Value) {
        std::fs::create_dir_all(folder).unwrap();
        candle_core::safetensors::save(&self.map, folder.join("model.safetensors")).unwrap();
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        std::fs::write(folder.join("tokenizer.json"), tokenizer().to_string()).unwrap();
    }
}

impl Tensors {
    /// Writes the folder of the same model, a BERT, as a GGUF file.
    pub(crate) fn write_gguf(&self, folder: &Path, config: &Value) {
        self.write_gguf_files(folder, config, &["model.gguf"]);
    }

    /// The same in as many files as there are names, as llama.cpp's own tool splits one.
    pub(crate) fn write_gguf_files(&self, folder: &Path, config: &Value, names: &[&str]) {
        let number = |name: &str| GgufValue::U32(config[name].as_u64().unwrap() as u32);
        let mark = |name: &str, usual: u64| GgufValue::U32(config[name].as_u64().unwrap_or(usual) as u32);
        let text = |text: &str| GgufValue::String(text.to_owned());
        // Words have a mark before them where parts of words have none.
        let word = |word: &&str| match word.starts_with('[') {
            true => text(word),
            false => text(&format!("\u{2581}{word}")),
        };
        let kind = |word: &&str| GgufValue::I32(if word.starts_with('[') { 3 } else { 1 });
        let metadata = [
            ("general.architecture", text("bert")),
            ("bert.context_length", number("max_position_embeddings")),
            ("bert.embedding_length", number("hidden_size")),
            ("bert.block_count", number("num_hidden_layers")),
            ("bert.feed_forward_length", number("intermediate_size")),
            ("bert.attention.head_count", number("num_attention_heads")),
            ("bert.attention.layer_norm_epsilon", GgufValue::F32(1e-5)),
            ("bert.attention.causal", GgufValue::Bool(false)),
            ("bert.pooling_type", GgufValue::U32(1)),
            ("tokenizer.ggml.model", text("bert")),
            ("tokenizer.ggml.tokens", GgufValue::Array(WORDS.iter().map(word).collect())),
            ("tokenizer.ggml.token_type", GgufValue::Array(WORDS.iter().map(kind).collect())),
            ("tokenizer.ggml.token_type_count", number("type_vocab_size")),
            ("tokenizer.ggml.padding_token_id", GgufValue::U32(0)),
            ("tokenizer.ggml.unknown_token_id", GgufValue::U32(1)),
            ("tokenizer.ggml.mask_token_id", GgufValue::U32(1)),
            ("tokenizer.ggml.bos_token_id", mark("cls_token_id", 2)),
            ("tokenizer.ggml.seperator_token_id", mark("sep_token_id", 3)),
        ];
        let quantized =
            |(name, tensor): (&String, &Tensor)| (gguf_name(name), QTensor::quantize(tensor, GgmlDType::F32).unwrap());
        let tensors: Vec<(String, QTensor)> = self.map.iter().map(quantized).collect();
        let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        std::fs::create_dir_all(folder).unwrap();
        let parts = tensors.chunks(tensors.len().div_ceil(names.len()));
        for (number, (name, part)) in names.iter().zip(parts).enumerate() {
            let split = [
                ("split.no", GgufValue::U16(number as u16)),
                ("split.count", GgufValue::U16(names.len() as u16)),
                ("split.tensors.count", GgufValue::I32(tensors.len() as i32)),
            ];
            // Only the first says what the model is, and one that is alone says nothing of others.
            let of_model = metadata.iter().filter(|_| number == 0);
            let of_split = split.iter().filter(|_| names.len() > 1);
            let said: Vec<(&str, &GgufValue)> = of_model.chain(of_split).map(|(name, value)| (*name, value)).collect();
            let mut file = std::fs::File::create(folder.join(name)).unwrap();
            gguf_file::write(&mut file, &said, part).unwrap();
        }
    }
}

/// What llama.cpp calls a tensor of BERT.
fn gguf_name(name: &str) -> String {
    let (place, kind) = name.rsplit_once('.').unwrap();
    let layered = |place: &str| {
        let (layer, part) = place.strip_prefix("encoder.layer.").unwrap().split_once('.').unwrap();
        let part = match part {
            "attention.self.query" => "attn_q",
            "attention.self.key" => "attn_k",
            "attention.self.value" => "attn_v",
            "attention.output.dense" => "attn_output",
            "attention.output.LayerNorm" => "attn_output_norm",
            "intermediate.dense" => "ffn_up",
            "output.dense" => "ffn_down",
            "output.LayerNorm" => "layer_output_norm",
            other => panic!("{other} is no part of a layer of BERT"),
        };
        format!("blk.{layer}.{part}")
    };
    let place = match place {
        "embeddings.word_embeddings" => "token_embd".to_owned(),
        "embeddings.position_embeddings" => "position_embd".to_owned(),
        "embeddings.token_type_embeddings" => "token_types".to_owned(),
        "embeddings.LayerNorm" => "token_embd_norm".to_owned(),
        other => layered(other),
    };
    format!("{place}.{kind}")
}

impl Tensors {
    /// Attention as BERT and its kin name it; returns the layer's name.
    fn bert_attention(&mut self, layer: usize) -> String {
        let layer = format!("encoder.layer.{layer}");
        for part in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"] {
            self.dense(&format!("{layer}.{part}"), HIDDEN, HIDDEN);
        }
        self.norm(&format!("{layer}.attention.output.LayerNorm"));
        layer
    }
}

/// The tensors of BERT, without a head.
pub(crate) fn bert() -> Tensors {
    let mut tensors = Tensors::default();
    for (name, rows) in [("word", WORDS.len()), ("position", 32), ("token_type", 2)] {
        tensors.add(&format!("embeddings.{name}_embeddings.weight"), &[rows, HIDDEN]);
    }
    tensors.norm("embeddings.LayerNorm");
    for layer in 0..2 {
        let layer = tensors.bert_attention(layer);
        tensors.dense(&format!("{layer}.intermediate.dense"), HIDDEN, 32);
        tensors.dense(&format!("{layer}.output.dense"), 32, HIDDEN);
        tensors.norm(&format!("{layer}.output.LayerNorm"));
    }
    tensors
}

/// BERT's configuration with changes.
pub(crate) fn bert_config(changes: Value) -> Value {
    let mut config = json!({
        "architectures": ["BertModel"], "model_type": "bert", "vocab_size": WORDS.len(), "hidden_size": HIDDEN,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "hidden_act": "gelu",
        "max_position_embeddings": 32, "type_vocab_size": 2, "layer_norm_eps": 1e-5, "pad_token_id": 0,
    });
    for (name, value) in changes.as_object().unwrap() {
        config[name.as_str()] = value.clone();
    }
    config
}

/// Jina's BERT: gated layers, no positions.
pub(crate) fn jina() -> (Tensors, Value) {
    let mut tensors = Tensors::default();
    for (name, rows) in [("word", WORDS.len()), ("token_type", 2)] {
        tensors.add(&format!("embeddings.{name}_embeddings.weight"), &[rows, HIDDEN]);
    }
    tensors.norm("embeddings.LayerNorm");
    for layer in 0..2 {
        let layer = tensors.bert_attention(layer);
        tensors.add(&format!("{layer}.mlp.gated_layers.weight"), &[64, HIDDEN]);
        tensors.dense(&format!("{layer}.mlp.wo"), 32, HIDDEN);
        tensors.norm(&format!("{layer}.mlp.layernorm"));
    }
    (tensors, bert_config(json!({"position_embedding_type": "alibi", "feed_forward_type": "geglu"})))
}

/// nomic-bert.
pub(crate) fn nomic() -> (Tensors, Value) {
    let mut tensors = Tensors::default();
    for (name, rows) in [("word", WORDS.len()), ("token_type", 2)] {
        tensors.add(&format!("embeddings.{name}_embeddings.weight"), &[rows, HIDDEN]);
    }
    tensors.norm("emb_ln");
    for layer in 0..2 {
        let layer = format!("encoder.layers.{layer}");
        tensors.add(&format!("{layer}.attn.Wqkv.weight"), &[3 * HIDDEN, HIDDEN]);
        tensors.add(&format!("{layer}.attn.out_proj.weight"), &[HIDDEN, HIDDEN]);
        for gate in ["fc11", "fc12"] {
            tensors.add(&format!("{layer}.mlp.{gate}.weight"), &[32, HIDDEN]);
        }
        tensors.add(&format!("{layer}.mlp.fc2.weight"), &[HIDDEN, 32]);
        for norm in ["norm1", "norm2"] {
            tensors.norm(&format!("{layer}.{norm}"));
        }
    }
    let config = json!({
        "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "vocab_size": WORDS.len(), "n_embd": HIDDEN,
        "n_head": 4, "n_layer": 2, "n_inner": 32, "n_positions": 32, "type_vocab_size": 2, "layer_norm_epsilon": 1e-12,
        "rotary_emb_fraction": 1.0, "rotary_emb_base": 1000, "activation_function": "swiglu",
    });
    (tensors, config)
}

/// ModernBERT; with a head when it is to score.
pub(crate) fn modern(head: bool) -> (Tensors, Value) {
    let root = if head { "model." } else { "" };
    let mut tensors = Tensors::default();
    tensors.add(&format!("{root}embeddings.tok_embeddings.weight"), &[WORDS.len(), HIDDEN]);
    tensors.add(&format!("{root}embeddings.norm.weight"), &[HIDDEN]);
    for layer in 0..3 {
        let path = format!("{root}layers.{layer}");
        tensors.add(&format!("{path}.attn.Wqkv.weight"), &[3 * HIDDEN, HIDDEN]);
        tensors.add(&format!("{path}.attn.Wo.weight"), &[HIDDEN, HIDDEN]);
        tensors.add(&format!("{path}.mlp.Wi.weight"), &[64, HIDDEN]);
        tensors.add(&format!("{path}.mlp.Wo.weight"), &[HIDDEN, 32]);
        tensors.add(&format!("{path}.mlp_norm.weight"), &[HIDDEN]);
        if layer > 0 {
            tensors.add(&format!("{path}.attn_norm.weight"), &[HIDDEN]);
        }
    }
    tensors.add(&format!("{root}final_norm.weight"), &[HIDDEN]);
    if head {
        tensors.add("head.dense.weight", &[HIDDEN, HIDDEN]);
        tensors.add("head.norm.weight", &[HIDDEN]);
        tensors.dense("classifier", HIDDEN, 1);
    }
    let name = if head { "ModernBertForSequenceClassification" } else { "ModernBertModel" };
    let config = json!({
        "architectures": [name], "model_type": "modernbert", "vocab_size": WORDS.len(), "hidden_size": HIDDEN,
        "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32, "max_position_embeddings": 32,
        "norm_eps": 1e-5, "pad_token_id": 0, "local_attention": 4, "hidden_activation": "gelu",
        "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "classifier_pooling": "mean",
    });
    (tensors, config)
}

fn tokenizer() -> Value {
    let vocab: HashMap<&str, usize> = WORDS.iter().enumerate().map(|(id, word)| (*word, id)).collect();
    let special = |name: &str, kind: usize| json!({"SpecialToken": {"id": name, "type_id": kind}});
    let sequence = |name: &str, kind: usize| json!({"Sequence": {"id": name, "type_id": kind}});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0)],
            "pair": [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0), sequence("B", 1), special("[SEP]", 1)],
            "special_tokens": {
                "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]},
            },
        },
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
    })
}
