//! Changed datasets and model files. `fuzz/README.md` says how to try more of them.

use std::collections::HashMap;
use std::io::Cursor;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use tempfile::TempDir;

use crate::base::{BaseModel, GGUF_FILE, Tensors, measure, text_of};
use crate::dataset::{self, Format};
use crate::fuzz::{Target, run};
use crate::testing::{tokenizer_json, write_tokenizer};
use crate::text::{Listed, TokenizerFiles};

#[test]
fn datasets_are_read_or_refused() {
    let corpus = [
        b"{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"c\",\"completion\":\"d\"}\n".to_vec(),
        b"{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}\r\n".to_vec(),
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]}\n".to_vec(),
    ];
    let words = ["\u{feff}", "\"completion\":", "\\ud800", "1e999", "null", "\r\n", "[[[["];
    run(&Target { name: "datasets", corpus: &corpus, words: &words, inputs: 3_000 }, |bytes| {
        for format in Format::ALL {
            if let Ok(found) = dataset::read(bytes, format) {
                assert!(!found.examples.is_empty(), "a dataset without examples");
            }
        }
    });
}

/// A Llama of one layer whose tensors are too few to train, and the same with a vocabulary.
fn gguf(more: &[(&str, Value)]) -> Vec<u8> {
    let text = |text: &str| Value::String(text.to_owned());
    let texts = |list: &[&str]| Value::Array(list.iter().map(|one| Value::String((*one).to_owned())).collect());
    let mut metadata = vec![
        ("general.alignment", Value::U32(32)),
        ("general.architecture", text("llama")),
        ("llama.attention.head_count", Value::U32(2)),
        ("llama.attention.head_count_kv", Value::U32(1)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.block_count", Value::U32(1)),
        ("llama.context_length", Value::U32(64)),
        ("llama.embedding_length", Value::U32(8)),
        ("llama.feed_forward_length", Value::U32(16)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(false)),
        ("tokenizer.ggml.eos_token_id", Value::U32(2)),
        ("tokenizer.ggml.merges", texts(&["a b", "ab a"])),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("smollm")),
        ("tokenizer.ggml.token_type", Value::Array(vec![Value::I32(1), Value::I32(1), Value::I32(3)])),
        ("tokenizer.ggml.tokens", texts(&["a", "b", "<|end|>"])),
    ];
    metadata.extend_from_slice(more);
    let listed: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let square = Tensor::zeros((3, 8), DType::F32, &Device::Cpu).unwrap();
    let row = Tensor::zeros(8, DType::F32, &Device::Cpu).unwrap();
    let square = QTensor::quantize(&square, GgmlDType::F32).unwrap();
    let row = QTensor::quantize(&row, GgmlDType::F32).unwrap();
    let tensors = [("blk.0.attn_norm.weight", &row), ("output_norm.weight", &row), ("token_embd.weight", &square)];
    let mut out = Cursor::new(Vec::new());
    gguf_file::write(&mut out, &listed, &tensors).unwrap();
    out.into_inner()
}

#[test]
fn gguf_models_are_read_or_refused() {
    let template = Value::String("{% for m in messages %}{{ m.content }}{% endfor %}".to_owned());
    let corpus = [gguf(&[]), gguf(&[("tokenizer.chat_template", template), ("llama.rope.freq_base", Value::F32(1e4))])];
    let folder = TempDir::new().unwrap();
    let words = ["general.alignment", "llama", "qwen2", "token_embd.weight", "GGUF"];
    run(&Target { name: "gguf_models", corpus: &corpus, words: &words, inputs: 1_000 }, |bytes| {
        std::fs::write(folder.path().join(GGUF_FILE), bytes).unwrap();
        let measured = measure(folder.path());
        let _ = text_of(folder.path());
        // What has been measured has passed the checks: its tensors are asked for too.
        if measured.is_ok() {
            let _ = BaseModel::load(folder.path());
        }
    });
}

#[test]
fn safetensors_are_read_or_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensor = Tensor::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
    let tensors = HashMap::from([("model.norm.weight", tensor.clone()), ("lm_head.weight", tensor)]);
    candle_core::safetensors::save(&tensors, &path).unwrap();
    let corpus = [std::fs::read(&path).unwrap()];
    let words = ["\"dtype\":\"F64\"", "\"shape\":[", "\"data_offsets\":[0,", "18446744073709551615", "__metadata__"];
    run(&Target { name: "safetensors", corpus: &corpus, words: &words, inputs: 3_000 }, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        if let Ok(mut tensors) = Tensors::open(folder.path()) {
            let _ = tensors.take("model.norm.weight");
            let _ = tensors.take("lm_head.weight");
        }
    });
}

#[test]
fn tokenizers_are_read_or_refused() {
    let folder = TempDir::new().unwrap();
    let mut newer = tokenizer_json();
    newer["model"]["merges"] = serde_json::json!([["a", "n"], ["e", "r"]]);
    let corpus = [tokenizer_json().to_string().into_bytes(), newer.to_string().into_bytes()];
    write_tokenizer(folder.path(), &tokenizer_json());
    let words =
        ["\"type\":", "null", "4294967295", "Precompiled", "WordPiece", "Unigram", "\"Regex\":\"(\"", "[[", "\\u0000"];
    run(&Target { name: "tokenizers", corpus: &corpus, words: &words, inputs: 2_000 }, |bytes| {
        std::fs::write(folder.path().join("tokenizer.json"), bytes).unwrap();
        let Ok(text) = text_of(folder.path()) else { return };
        if let Ok(files) = TokenizerFiles::read(folder.path()) {
            let _ = Listed::of(&files, &text, 24);
        }
    });
}
