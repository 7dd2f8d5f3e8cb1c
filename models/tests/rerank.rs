//! Cross-encoders on a small model that the test makes itself: no published weights are at hand, so what is checked is what holds for any.

mod support;

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use riverrun_models::{EmbedPurpose, Models};
use serde_json::json;

const HIDDEN: usize = 16;
const WORDS: [&str; 12] =
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "river", "runs", "sea", "log", "event", "kafka", "reads", "a"];

/// Numbers that are the same in every run.
fn noise(count: usize, seed: &mut u64) -> Vec<f32> {
    let mut next = || {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((*seed >> 33) as f32 / (1_u64 << 31) as f32 - 0.5) * 0.8
    };
    (0..count).map(|_| next()).collect()
}

fn write_model(folder: &Path, head: bool, identity: bool) {
    std::fs::create_dir_all(folder).unwrap();
    let mut seed = 42;
    let mut tensors: HashMap<String, Tensor> = HashMap::new();
    let root = if head { "bert." } else { "" };
    let mut add = |name: String, shape: &[usize]| {
        let data = noise(shape.iter().product(), &mut seed);
        tensors.insert(name, Tensor::from_vec(data, shape, &Device::Cpu).unwrap());
    };
    let dense = |add: &mut dyn FnMut(String, &[usize]), name: &str, from: usize, to: usize| {
        add(format!("{name}.weight"), &[to, from]);
        add(format!("{name}.bias"), &[to]);
    };
    for (name, rows) in [("word", WORDS.len()), ("position", 32), ("token_type", 2)] {
        add(format!("{root}embeddings.{name}_embeddings.weight"), &[rows, HIDDEN]);
    }
    let norm = |add: &mut dyn FnMut(String, &[usize]), name: String| {
        add(format!("{name}.weight"), &[HIDDEN]);
        add(format!("{name}.bias"), &[HIDDEN]);
    };
    norm(&mut add, format!("{root}embeddings.LayerNorm"));
    for layer in 0..2 {
        let layer = format!("{root}encoder.layer.{layer}");
        for part in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"] {
            dense(&mut add, &format!("{layer}.{part}"), HIDDEN, HIDDEN);
        }
        norm(&mut add, format!("{layer}.attention.output.LayerNorm"));
        dense(&mut add, &format!("{layer}.intermediate.dense"), HIDDEN, 32);
        dense(&mut add, &format!("{layer}.output.dense"), 32, HIDDEN);
        norm(&mut add, format!("{layer}.output.LayerNorm"));
    }
    if head {
        dense(&mut add, "bert.pooler.dense", HIDDEN, HIDDEN);
        dense(&mut add, "classifier", HIDDEN, 1);
    }
    candle_core::safetensors::save(&tensors, folder.join("model.safetensors")).unwrap();

    let mut config = json!({
        "architectures": [if head { "BertForSequenceClassification" } else { "BertModel" }], "model_type": "bert",
        "vocab_size": WORDS.len(), "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 32, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "max_position_embeddings": 32,
        "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12, "pad_token_id": 0,
        "id2label": {"0": "LABEL_0"},
    });
    if identity {
        config["sentence_transformers"] = json!({"activation_fn": "torch.nn.modules.linear.Identity"});
    }
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let vocab: HashMap<&str, usize> = WORDS.iter().enumerate().map(|(id, word)| (*word, id)).collect();
    let special = |name: &str, kind: usize| json!({"SpecialToken": {"id": name, "type_id": kind}});
    let sequence = |name: &str, kind: usize| json!({"Sequence": {"id": name, "type_id": kind}});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "decoder": null,
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
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

fn documents() -> Vec<String> {
    let texts =
        ["a river", "kafka reads a log event", "", "the sea runs runs runs runs runs", "log", "event event event a a"];
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn given_a_cross_encoder_when_documents_are_scored_then_scores_do_not_depend_on_their_company() {
    let dir = tempfile::tempdir().unwrap();
    write_model(&dir.path().join("models/tiny"), true, true);
    write_model(&dir.path().join("models/tiny-sigmoid"), true, false);
    let models = Models::new(support::settings(dir.path())).unwrap();
    let query = "river runs".to_owned();
    let together = models.rerank(Some("tiny"), query.clone(), documents()).await.unwrap();
    assert_eq!(together.len(), documents().len());
    let mut reversed = documents();
    reversed.reverse();
    let mut backwards = models.rerank(Some("tiny"), query.clone(), reversed).await.unwrap();
    backwards.reverse();
    let squashed = models.rerank(Some("tiny-sigmoid"), query.clone(), documents()).await.unwrap();
    for (index, document) in documents().into_iter().enumerate() {
        let alone = models.rerank(Some("tiny"), query.clone(), vec![document]).await.unwrap()[0];
        assert!(
            (alone - together[index]).abs() < 1e-5,
            "document {index}: {alone} alone, {} together",
            together[index]
        );
        assert!((backwards[index] - together[index]).abs() < 1e-5);
        assert!((squashed[index] - 1.0 / (1.0 + (-alone).exp())).abs() < 1e-5);
    }
    let distinct = together.iter().filter(|score| (**score - together[0]).abs() > 1e-4).count();
    assert!(distinct >= 4, "different documents score differently: {together:?}");
    let other = models.rerank(Some("tiny"), "kafka".to_owned(), documents()).await.unwrap();
    assert!(other.iter().zip(&together).any(|(a, b)| (a - b).abs() > 1e-4), "the query matters");
    assert_eq!(models.rerank(Some("tiny"), query, vec![]).await.unwrap(), Vec::<f32>::new());
}

#[tokio::test]
async fn given_a_plain_encoder_when_texts_are_embedded_then_defaults_hold_and_long_texts_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    write_model(&dir.path().join("models/tiny"), false, false);
    let models = Models::new(support::settings(dir.path())).unwrap();
    let mut inputs = documents();
    inputs.push("log ".repeat(100));
    let reply = models.embed(Some("tiny"), inputs.clone(), EmbedPurpose::Document).await.unwrap();
    assert_eq!((reply.vectors.len(), reply.dimensions, reply.truncated), (inputs.len(), HIDDEN, 1));
    for (input, vector) in inputs.into_iter().zip(&reply.vectors) {
        let norm: f32 = vector.iter().map(|x| x * x).sum();
        assert!((norm - 1.0).abs() < 1e-4);
        let alone = models.embed(Some("tiny"), vec![input], EmbedPurpose::Document).await.unwrap();
        assert!(alone.vectors[0].iter().zip(vector).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    let empty = models.embed(Some("tiny"), vec![], EmbedPurpose::Document).await.unwrap();
    assert_eq!((empty.vectors.len(), empty.dimensions), (0, 0));
}
