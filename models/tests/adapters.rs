//! LoRA adapters on a real base model. It is looked for where the product looks: RIVERRUN_MODELS_DIR, then the cache folder.

mod support;

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use riverrun_models::{ChatRequest, ModelError, ModelKind, ModelSettings, Models, NoDeltas, Presence};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use support::ask;

const BASE: &str = "smollm2-135m-instruct";
/// Of the base: what goes into a layer, and the rows of its query and value matrices.
const HIDDEN: usize = 576;
const QUERY: usize = 576;
const VALUE: usize = 192;
const RANK: usize = 4;

/// Models of the machine, and adapters in `folder`; nothing when the developer said that there are none.
fn models(folder: &Path) -> Option<Models> {
    let mut settings = ModelSettings::from_env(&|name| std::env::var(name).ok()).unwrap();
    match settings.models_dir {
        Some(_) => settings.cache_dir = folder.to_owned(),
        None => settings.models_dir = Some(folder.to_owned()),
    }
    settings.offline = true;
    settings.context_tokens = 512;
    settings.threads = settings.threads.or(Some(1));
    settings.parallel = 1;
    let models = Models::new(settings).unwrap();
    if let Presence::Missing { fix } = models.presence(BASE).unwrap() {
        assert!(std::env::var("RIVERRUN_TEST_WITHOUT_MODELS").is_ok(), "model {BASE} is missing; {fix}");
        return None;
    }
    Some(models)
}

fn config(base: &str) -> Value {
    json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": RANK, "lora_alpha": 8, "lora_dropout": 0.0,
        "target_modules": ["q_proj", "v_proj"], "bias": "none", "fan_in_fan_out": false, "inference_mode": true,
    })
}

/// An adapter of the first layer that adds `much` of a few directions to what it lets through.
fn write_adapter(folder: &Path, config: &Value, much: f64, hidden: usize) {
    let numbers = |rows: usize, columns: usize, scale: f64| {
        let values: Vec<f32> = (0..rows * columns).map(|n| ((n * 37 % 101) as f64 / 101.0 * scale) as f32).collect();
        Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap()
    };
    let mut tensors = HashMap::new();
    for (module, rows) in [("q_proj", QUERY), ("v_proj", VALUE)] {
        let name = |letter: char| format!("base_model.model.model.layers.0.self_attn.{module}.lora_{letter}.weight");
        tensors.insert(name('A'), numbers(RANK, hidden, 1.0));
        tensors.insert(name('B'), numbers(rows, RANK, much));
    }
    std::fs::create_dir_all(folder).unwrap();
    candle_core::safetensors::save(&tensors, folder.join("adapter_model.safetensors")).unwrap();
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
}

async fn answer(models: &Models, model: &str) -> Result<String, ModelError> {
    let request = ChatRequest { temperature: Some(0.0), max_tokens: Some(24), ..ask(model, "What is a river?") };
    models.chat(Some("local"), request, &mut NoDeltas, CancellationToken::new()).await.map(|reply| reply.text)
}

#[tokio::test]
async fn given_adapters_when_they_are_asked_then_they_are_their_base_and_what_they_add() {
    let dir = tempfile::tempdir().unwrap();
    let Some(models) = models(dir.path()) else { return };
    write_adapter(&dir.path().join("nothing"), &config(BASE), 0.0, HIDDEN);
    write_adapter(&dir.path().join("much"), &config(&format!("local/{BASE}")), 5.0, HIDDEN);
    let base = answer(&models, BASE).await.unwrap();
    assert_eq!(answer(&models, "nothing").await.unwrap(), base);
    assert_ne!(answer(&models, "much").await.unwrap(), base);
    assert_eq!(answer(&models, BASE).await.unwrap(), base, "the base stays as it is");

    let listed = models.list_models(Some("local")).await.unwrap();
    let much = listed.iter().find(|info| info.name == "much").unwrap();
    assert_eq!((much.kind, much.present), (ModelKind::Chat, true));
    assert!(much.size_bytes.is_some_and(|bytes| bytes < 1_000_000), "{much:?}");
    let path = dir.path().join("much");
    assert_eq!(models.presence("much").unwrap(), Presence::Present { path });
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "files of the moment are gone: {left:?}");
}

#[tokio::test]
async fn given_adapters_that_do_not_fit_when_they_are_asked_then_the_error_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let Some(models) = models(dir.path()) else { return };
    write_adapter(&dir.path().join("narrow"), &config(BASE), 1.0, HIDDEN / 2);
    write_adapter(&dir.path().join("orphan"), &config("nobody-has-this"), 1.0, HIDDEN);
    let mut dora = config(BASE);
    dora["use_dora"] = json!(true);
    write_adapter(&dir.path().join("dora"), &dora, 1.0, HIDDEN);
    write_adapter(&dir.path().join("cut"), &config(BASE), 1.0, HIDDEN);
    let file = dir.path().join("cut/adapter_model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    for (model, code, says) in [
        ("narrow", "model_unreadable", "another base model"),
        ("orphan", "model_missing", "the base of the adapter \"orphan\""),
        ("dora", "model_unreadable", "use_dora"),
        ("cut", "model_unreadable", "adapter_model.safetensors"),
    ] {
        let error = answer(&models, model).await.unwrap_err();
        assert_eq!(error.code(), code, "{model}: {error}");
        assert!(error.to_string().contains(says) && error.hint().is_some(), "{model}: {error}");
    }
    assert!(answer(&models, BASE).await.is_ok());
}
