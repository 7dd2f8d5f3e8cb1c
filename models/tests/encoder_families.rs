//! The families of encoders that run on `candle-transformers`, on small models that the test makes itself.

mod support;

use std::path::Path;

use riverrun_models::{EmbedPurpose, Models};
use serde_json::json;
use support::tiny::{self, HIDDEN};

const FAMILIES: [&str; 4] = ["modern", "nomic", "jina", "roberta"];

fn write_families(models: &Path) {
    let (tensors, config) = tiny::modern(false);
    tensors.write(&models.join("modern"), &config);
    let (tensors, config) = tiny::nomic();
    tensors.write(&models.join("nomic"), &config);
    let (tensors, config) = tiny::jina();
    tensors.write(&models.join("jina"), &config);
    write_roberta(&models.join("roberta"));
}

/// RoBERTa with BERT's weights: its positions begin behind the padding id, and it has one type of token.
fn write_roberta(folder: &Path) {
    let mut tensors = tiny::bert();
    tensors.shift("embeddings.position_embeddings.weight", 1);
    tensors.cut("embeddings.token_type_embeddings.weight", 1);
    tensors.rename(|name| format!("roberta.{name}"));
    let config = json!({
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "max_position_embeddings": 33,
        "type_vocab_size": 1, "pad_token_id": 0,
    });
    tensors.write(folder, &tiny::bert_config(config));
}

fn inputs() -> Vec<String> {
    let texts = ["river runs", "", "kafka reads event log", "sea log", "sea", "log event log event log event log"];
    texts.iter().map(|text| (*text).to_owned()).collect()
}

async fn embed(models: &Models, model: &str, inputs: &[&str], purpose: EmbedPurpose) -> Vec<Vec<f32>> {
    let inputs = inputs.iter().map(|input| (*input).to_owned()).collect();
    models.embed(Some(model), inputs, purpose).await.unwrap().vectors
}

fn near(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4)
}

#[tokio::test]
async fn given_every_family_when_texts_are_embedded_then_vectors_do_not_depend_on_their_company() {
    let dir = tempfile::tempdir().unwrap();
    write_families(&dir.path().join("models"));
    let models = Models::new(support::settings(dir.path())).unwrap();
    for family in FAMILIES {
        let reply = models.embed(Some(family), inputs(), EmbedPurpose::Document).await.unwrap();
        assert_eq!((reply.vectors.len(), reply.dimensions), (inputs().len(), HIDDEN), "{family}");
        for (input, vector) in inputs().iter().zip(&reply.vectors) {
            let alone = embed(&models, family, &[input.as_str()], EmbedPurpose::Document).await;
            assert!(near(&alone[0], vector), "{family}: '{input}'");
            assert!((vector.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-4, "{family}");
        }
        // Eight of each, in two blocks and by turns: apart by many places for whoever sees places.
        let (blocks, turns) = ("river ".repeat(8) + &"sea ".repeat(8), "river sea ".repeat(8));
        let order = embed(&models, family, &[&blocks, &turns], EmbedPurpose::Document).await;
        assert!(!near(&order[0], &order[1]), "{family} knows the order of words");
        let long = "log ".repeat(100);
        let cut = models.embed(Some(family), vec![long], EmbedPurpose::Document).await.unwrap();
        assert_eq!(cut.truncated, 1, "{family}");
    }
}

#[tokio::test]
async fn given_the_same_weights_when_both_codes_run_them_then_vectors_are_equal() {
    let dir = tempfile::tempdir().unwrap();
    let models_dir = dir.path().join("models");
    tiny::bert().write(&models_dir.join("bert"), &tiny::bert_config(json!({})));
    write_roberta(&models_dir.join("roberta"));
    let models = Models::new(support::settings(dir.path())).unwrap();
    let texts = inputs();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let ours = embed(&models, "bert", &texts, EmbedPurpose::Document).await;
    let stock = embed(&models, "roberta", &texts, EmbedPurpose::Document).await;
    for ((text, ours), stock) in texts.iter().zip(&ours).zip(&stock) {
        assert!(near(ours, stock), "'{text}': {ours:?} and {stock:?}");
    }
}

#[tokio::test]
async fn given_the_same_weights_in_a_gguf_file_when_llama_cpp_runs_them_then_vectors_are_equal() {
    let dir = tempfile::tempdir().unwrap();
    let models_dir = dir.path().join("models");
    let config = tiny::bert_config(json!({}));
    tiny::bert().write(&models_dir.join("bert"), &config);
    tiny::bert().write_gguf(&models_dir.join("gguf"), &config);
    let models = Models::new(support::settings(dir.path())).unwrap();
    let texts = ["river runs", "kafka reads event log", "sea log", "sea", "event log event log event log"];
    let ours = embed(&models, "bert", &texts, EmbedPurpose::Document).await;
    let llama = embed(&models, "gguf", &texts, EmbedPurpose::Document).await;
    for ((text, ours), llama) in texts.iter().zip(&ours).zip(&llama) {
        let cosine: f32 = ours.iter().zip(llama).map(|(one, other)| one * other).sum();
        assert!(cosine >= 0.999, "'{text}': {cosine}");
        let alone = embed(&models, "gguf", &[*text], EmbedPurpose::Document).await;
        assert!(near(&alone[0], llama), "'{text}' depends on its company");
    }
    let cut = models.embed(Some("gguf"), vec!["log ".repeat(100)], EmbedPurpose::Document).await.unwrap();
    assert_eq!((cut.truncated, cut.usage.prompt_tokens), (1, 32));
}

#[tokio::test]
async fn given_prompts_of_family_and_files_when_queries_are_embedded_then_the_files_decide() {
    let dir = tempfile::tempdir().unwrap();
    let models_dir = dir.path().join("models");
    let (tensors, config) = tiny::nomic();
    tensors.write(&models_dir.join("plain"), &config);
    tensors.write(&models_dir.join("said"), &config);
    let prompts = json!({"prompts": {"query": "", "document": "sea "}});
    std::fs::write(models_dir.join("said/config_sentence_transformers.json"), prompts.to_string()).unwrap();
    let models = Models::new(support::settings(dir.path())).unwrap();
    let query = embed(&models, "plain", &["river"], EmbedPurpose::Query).await;
    let said = embed(&models, "said", &["search_query: river", "river"], EmbedPurpose::Query).await;
    assert!(near(&query[0], &said[0]), "nomic-bert's own prefix");
    assert!(!near(&query[0], &said[1]));
    let document = embed(&models, "said", &["river"], EmbedPurpose::Document).await;
    let spelled = embed(&models, "said", &["sea river"], EmbedPurpose::Query).await;
    assert!(near(&document[0], &spelled[0]));
}

#[tokio::test]
async fn given_the_pooling_file_when_it_says_cls_then_the_first_token_is_the_vector() {
    let dir = tempfile::tempdir().unwrap();
    let models_dir = dir.path().join("models");
    let (tensors, config) = tiny::modern(false);
    for (name, cls) in [("mean", false), ("cls", true)] {
        let folder = models_dir.join(name);
        tensors.write(&folder, &config);
        std::fs::create_dir(folder.join("1_Pooling")).unwrap();
        let pooling = json!({"pooling_mode_cls_token": cls, "pooling_mode_mean_tokens": !cls});
        std::fs::write(folder.join("1_Pooling/config.json"), pooling.to_string()).unwrap();
    }
    let models = Models::new(support::settings(dir.path())).unwrap();
    let mean = embed(&models, "mean", &["river runs"], EmbedPurpose::Document).await;
    let cls = embed(&models, "cls", &["river runs"], EmbedPurpose::Document).await;
    assert!(!near(&mean[0], &cls[0]));
}

#[tokio::test]
async fn given_cross_encoders_of_other_families_when_documents_are_scored_then_scores_differ_and_hold_alone() {
    let dir = tempfile::tempdir().unwrap();
    let models_dir = dir.path().join("models");
    let (tensors, config) = tiny::modern(true);
    tensors.write(&models_dir.join("modern"), &config);
    let mut tensors = tiny::bert();
    tensors.shift("embeddings.position_embeddings.weight", 1);
    tensors.cut("embeddings.token_type_embeddings.weight", 1);
    tensors.rename(|name| format!("roberta.{name}"));
    tensors.dense("classifier.dense", HIDDEN, HIDDEN);
    tensors.dense("classifier.out_proj", HIDDEN, 1);
    let config = json!({
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"],
        "max_position_embeddings": 33, "type_vocab_size": 1, "pad_token_id": 0, "id2label": {"0": "LABEL_0"},
    });
    tensors.write(&models_dir.join("roberta"), &tiny::bert_config(config));
    let models = Models::new(support::settings(dir.path())).unwrap();
    for family in ["modern", "roberta"] {
        let query = "river runs".to_owned();
        let scores = models.rerank(Some(family), query.clone(), inputs()).await.unwrap();
        assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{family}: {scores:?}");
        assert!(scores.iter().any(|score| (score - scores[0]).abs() > 1e-5), "{family}: {scores:?}");
        for (input, score) in inputs().into_iter().zip(&scores) {
            let alone = models.rerank(Some(family), query.clone(), vec![input]).await.unwrap();
            assert!((alone[0] - score).abs() < 1e-5, "{family}");
        }
    }
}

#[tokio::test]
async fn given_variants_that_are_not_computed_when_they_are_loaded_then_the_error_says_what() {
    let dir = tempfile::tempdir().unwrap();
    let models_dir = dir.path().join("models");
    let variants = [
        ("relu-modern", tiny::modern(false), json!({"hidden_activation": "relu"}), "hidden_activation"),
        ("biased-modern", tiny::modern(false), json!({"attention_bias": true}), "attention_bias"),
        ("part-nomic", tiny::nomic(), json!({"rotary_emb_fraction": 0.5}), "rotary_emb_fraction"),
        ("heads-nomic", tiny::nomic(), json!({"n_head": 3}), "3 heads"),
        ("plain-jina", tiny::jina(), json!({"feed_forward_type": "original"}), "feed_forward_type"),
        ("other", tiny::jina(), json!({"model_type": "deberta"}), "deberta"),
    ];
    for (name, (tensors, mut config), changes, _) in variants.iter().map(|(n, (t, c), j, e)| (n, (t, c.clone()), j, e))
    {
        for (key, value) in changes.as_object().unwrap() {
            config[key.as_str()] = value.clone();
        }
        tensors.write(&models_dir.join(name), &config);
    }
    let models = Models::new(support::settings(dir.path())).unwrap();
    for (name, _, _, expected) in &variants {
        let error = models.embed(Some(name), inputs(), EmbedPurpose::Document).await.unwrap_err();
        assert_eq!(error.code(), "model_unreadable", "{name}: {error}");
        assert!(error.to_string().contains(expected), "{name}: {error}");
    }
}

/// The beginning of a GGUF file of an encoder: no tensors follow.
fn gguf_header(pooling: u32) -> Vec<u8> {
    let text = |text: &str| [(text.len() as u64).to_le_bytes().as_slice(), text.as_bytes()].concat();
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    file.extend(0_u64.to_le_bytes());
    file.extend(2_u64.to_le_bytes());
    file.extend(text("general.architecture"));
    file.extend(8_u32.to_le_bytes());
    file.extend(text("bert"));
    file.extend(text("bert.pooling_type"));
    file.extend(4_u32.to_le_bytes());
    file.extend(pooling.to_le_bytes());
    file
}

#[tokio::test]
async fn given_gguf_files_with_sizes_that_can_t_be_when_they_are_asked_then_they_are_refused_and_the_process_lives() {
    let dir = tempfile::tempdir().unwrap();
    let impossible = [
        ("num_hidden_layers", 0_u32),
        ("num_hidden_layers", 513),
        ("num_hidden_layers", u32::MAX),
        ("max_position_embeddings", 1 << 31),
        ("hidden_size", 1 << 31),
        ("hidden_size", 0),
        ("num_attention_heads", 0),
        ("num_attention_heads", u32::MAX),
        ("intermediate_size", u32::MAX),
        ("cls_token_id", 1 << 20),
        ("sep_token_id", u32::MAX),
    ];
    for (index, (field, value)) in impossible.iter().enumerate() {
        let config = tiny::bert_config(json!({*field: value}));
        tiny::bert().write_gguf(&dir.path().join("models").join(index.to_string()), &config);
    }
    let models = Models::new(support::settings(dir.path())).unwrap();
    for (index, (field, value)) in impossible.iter().enumerate() {
        let refused = models.embed(Some(&index.to_string()), inputs(), EmbedPurpose::Query).await.unwrap_err();
        assert_eq!(refused.code(), "model_unreadable", "{field} {value}: {refused}");
    }
}

#[tokio::test]
async fn given_gguf_files_when_they_are_asked_then_their_pooling_says_for_what_and_broken_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (name, pooling) in [("embedder", 1), ("reranker", 4)] {
        let folder = dir.path().join("models").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("model.gguf"), gguf_header(pooling)).unwrap();
    }
    let models = Models::new(support::settings(dir.path())).unwrap();
    let documents = || inputs().into_iter().take(2).collect::<Vec<String>>();
    let unreadable = models.embed(Some("embedder"), documents(), EmbedPurpose::Query).await.unwrap_err();
    assert_eq!(unreadable.code(), "model_unreadable", "{unreadable}");
    let unreadable = models.rerank(Some("reranker"), "river".to_owned(), documents()).await.unwrap_err();
    assert_eq!(unreadable.code(), "model_unreadable", "{unreadable}");
    let wrong = models.rerank(Some("embedder"), "river".to_owned(), documents()).await.unwrap_err();
    assert_eq!(wrong.code(), "model_bad_request", "{wrong}");
    assert!(wrong.to_string().contains("for embedding, not for re-ranking"), "{wrong}");
}
