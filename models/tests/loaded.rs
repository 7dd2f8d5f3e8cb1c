//! One limit of memory for all models of the process, on small models that the test makes itself.

mod support;

use std::path::Path;

use riverrun_models::{EmbedPurpose, LoadedModel, ModelError, ModelSettings, Models};
use serde_json::json;
use support::tiny;

fn write_models(models: &Path) {
    for name in ["bert-a", "bert-b"] {
        tiny::bert().write(&models.join(name), &tiny::bert_config(json!({})));
    }
    let (tensors, config) = tiny::modern(true);
    tensors.write(&models.join("cross"), &config);
}

fn within(dir: &Path, bytes: u64) -> Models {
    Models::new(ModelSettings { memory_bytes: Some(bytes), ..support::settings(dir) }).unwrap()
}

async fn embed(models: &Models, model: &str) -> Result<(), ModelError> {
    models.embed(Some(model), vec!["river runs".to_owned()], EmbedPurpose::Document).await.map(drop)
}

async fn rerank(models: &Models) -> Result<(), ModelError> {
    models.rerank(Some("cross"), "river".to_owned(), vec!["sea".to_owned()]).await.map(drop)
}

fn names(models: &Models) -> Vec<String> {
    models.local().loaded().into_iter().map(|model| model.name).collect()
}

/// What each model takes, as it is told where there is no limit.
async fn sizes(dir: &Path) -> [u64; 3] {
    let models = Models::new(support::settings(dir)).unwrap();
    for name in ["bert-a", "bert-b"] {
        embed(&models, name).await.unwrap();
    }
    rerank(&models).await.unwrap();
    let loaded = models.local().loaded();
    let size = |name: &str| loaded.iter().find(|model: &&LoadedModel| model.name == name).unwrap().bytes;
    [size("bert-a"), size("bert-b"), size("cross")]
}

#[tokio::test]
async fn given_a_limit_when_encoders_and_a_cross_encoder_take_turns_then_the_least_recently_used_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    write_models(&dir.path().join("models"));
    let [a, b, cross] = sizes(dir.path()).await;
    assert!(a == b && a > 0 && cross > 0);
    let models = within(dir.path(), a + b.max(cross));
    embed(&models, "bert-a").await.unwrap();
    embed(&models, "bert-b").await.unwrap();
    embed(&models, "bert-a").await.unwrap();
    assert_eq!(names(&models), ["bert-a", "bert-b"]);
    rerank(&models).await.unwrap();
    assert_eq!(names(&models), ["bert-a", "cross"], "the other encoder was used longest ago");
    embed(&models, "bert-b").await.unwrap();
    assert!(names(&models).contains(&"bert-b".to_owned()), "it is loaded again");
}

#[tokio::test]
async fn given_a_model_that_is_larger_than_the_limit_when_it_is_used_then_it_is_refused_with_size_limit_and_fix() {
    let dir = tempfile::tempdir().unwrap();
    write_models(&dir.path().join("models"));
    let [a, _, cross] = sizes(dir.path()).await;
    let models = within(dir.path(), a.min(cross) - 1);
    for refused in [embed(&models, "bert-a").await, rerank(&models).await] {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), "model_bad_request", "{error}");
        let told = error.to_string();
        for part in ["MB (", "of weights", "RIVERRUN_MODEL_MEMORY_MB leaves room for", "raise it to"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    assert!(names(&models).is_empty());
}

#[tokio::test]
async fn given_models_of_this_machine_when_they_are_listed_then_those_that_are_loaded_show_what_they_take() {
    let dir = tempfile::tempdir().unwrap();
    write_models(&dir.path().join("models"));
    let models = Models::new(support::settings(dir.path())).unwrap();
    let loaded = async |name: &str| {
        let listed = models.list_models(Some("local")).await.unwrap();
        listed.into_iter().find(|model| model.name == name).unwrap().loaded_bytes
    };
    assert_eq!(loaded("bert-a").await, None);
    embed(&models, "bert-a").await.unwrap();
    let file = dir.path().join("models/bert-a/model.safetensors");
    assert!(loaded("bert-a").await > Some(file.metadata().unwrap().len() / 2));
    assert_eq!(loaded("bert-b").await, None);
}
