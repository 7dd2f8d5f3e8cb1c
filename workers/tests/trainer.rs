//! The trainer against a real broker and a hub that takes its time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use riverrun_log::{BlobStore, ObjectStoreBlobs, partition_of};
use riverrun_models::{ModelSettings, Models};
use riverrun_schemas::finetune::{
    FinetuneCancelRequested, FinetuneCommand, FinetuneEvent, FinetuneFinished, FinetuneOutcome, StartFinetune,
};
use riverrun_schemas::{BlobRef, Decoded, EventSet, FinetuneId, Topic};
use riverrun_training::Plan;
use riverrun_workers::runtime::testkit::{self, Stack, eventually};
use riverrun_workers::runtime::{self, Worker, WorkerHandle};
use riverrun_workers::trainer::Trainer;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

/// A hub whose answers outlast any test.
async fn slow_hub() -> MockServer {
    let hub = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_secs(3_600));
    Mock::given(any()).respond_with(slow).mount(&hub).await;
    hub
}

fn trainer(stack: &Stack, hub: &MockServer, folder: &TempDir) -> WorkerHandle {
    let settings = ModelSettings {
        cache_dir: folder.path().join("models"),
        hub_base_url: hub.uri(),
        idle_timeout: Duration::from_secs(3_600),
        ..ModelSettings::default()
    };
    let blobs = Arc::new(ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap());
    let stop = CancellationToken::new();
    let trainer = Trainer::new(Models::new(settings).unwrap(), blobs, folder.path().join("finetune"), stop.clone());
    runtime::spawn(trainer, stack.config(), stop)
}

fn command(job_id: FinetuneId) -> FinetuneCommand {
    let content = BlobRef { sha256: "0".repeat(64), size_bytes: 1, media_type: "application/x-ndjson".to_owned() };
    FinetuneCommand::StartFinetune(StartFinetune {
        job_id,
        name: "poet".to_owned(),
        dataset: "verses".to_owned(),
        content,
        format: "sft".to_owned(),
        base_model: "someone/tiny:model.gguf".to_owned(),
        plan_json: serde_json::to_string(&Plan::default()).unwrap(),
        at: 0,
    })
}

async fn end(stack: &Stack, job_id: FinetuneId) -> FinetuneFinished {
    eventually("the end", || async {
        stack.events::<FinetuneEvent>().await.into_iter().find_map(|event| match event {
            FinetuneEvent::FinetuneFinished(end) if end.job_id == job_id => Some(end),
            _ => None,
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_base_that_is_being_fetched_when_the_training_is_cancelled_then_it_ends_and_nothing_is_fetched() {
    let (stack, hub, folder) = (Stack::start().await, slow_hub().await, tempfile::tempdir().unwrap());
    let _worker = trainer(&stack, &hub, &folder);
    let job_id = FinetuneId::new();
    stack.send(&[command(job_id)]).await;
    eventually("a request to the hub", || async {
        hub.received_requests().await.filter(|requests| !requests.is_empty())
    })
    .await;
    let wish = FinetuneCancelRequested { job_id, reason: None, at: 0 };
    stack.send(&[FinetuneEvent::from(wish)]).await;
    let end = end(&stack, job_id).await;
    assert_eq!((end.status, end.error), (FinetuneOutcome::Cancelled, None));
}

#[tokio::test]
async fn given_a_training_that_is_given_up_before_anybody_took_it_on_when_that_is_told_then_it_is_there_and_has_failed()
{
    let folder = tempfile::tempdir().unwrap();
    let blobs = Arc::new(ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap());
    let models = Models::new(ModelSettings { offline: true, ..ModelSettings::default() }).unwrap();
    let trainer = Trainer::new(models, blobs, folder.path().join("finetune"), CancellationToken::new());
    let job_id = FinetuneId::new();
    let delivery = testkit::deliveries([command(job_id)]).remove(0);
    let told: Vec<FinetuneEvent> = trainer
        .dead(&delivery, "process_ended", "10 processes ended")
        .iter()
        .map(|record| match FinetuneEvent::decode(record.payload.as_deref().unwrap()).unwrap() {
            Decoded::Event(event) => event,
            Decoded::UnknownType { record } => panic!("{record}"),
        })
        .collect();
    let [FinetuneEvent::FinetuneAccepted(accepted), FinetuneEvent::FinetuneFinished(end)] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!((accepted.job_id, end.job_id, end.status), (job_id, job_id, FinetuneOutcome::Failed));
    assert_eq!(end.error.as_ref().unwrap().code, "process_ended");
}

const HIDDEN: usize = 32;
const MLP: usize = 64;
const CONTROLS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// A letter for each byte, as GPT-2's tokenizer writes them.
fn letters() -> Vec<String> {
    let plain = |byte: u32| (33..127).contains(&byte) || (161..173).contains(&byte) || (174..256).contains(&byte);
    let mut others = 256..;
    let letter = |byte: u32| if plain(byte) { byte } else { others.next().unwrap() };
    (0..256).map(letter).map(|code| char::from_u32(code).unwrap().to_string()).collect()
}

fn tokenizer() -> (Value, usize) {
    let tokens: Vec<String> =
        CONTROLS.iter().map(|text| (*text).to_owned()).chain(letters()).chain(["in".to_owned()]).collect();
    let special = |(id, text): (usize, &&str)| {
        json!({ "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true })
    };
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let ids: Map<String, Value> = tokens.iter().enumerate().map(|(id, text)| (text.clone(), id.into())).collect();
    let tokenizer = json!({ "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "decoder": bytes, "pre_tokenizer": bytes, "added_tokens": CONTROLS.iter().enumerate().map(special).collect::<Vec<_>>(),
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": ids,
            "merges": ["i n"] } });
    (tokenizer, tokens.len())
}

/// A Llama of one layer in Hugging Face's layout, good for nothing but to be trained.
fn write_base(folder: &Path) {
    let (tokenizer, vocab) = tokenizer();
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let mut shapes = vec![("model.embed_tokens.weight".to_owned(), vec![vocab, HIDDEN])];
    shapes.extend(
        ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
            .map(|name| (layer(name), vec![HIDDEN, HIDDEN])),
    );
    shapes.extend(["mlp.gate_proj", "mlp.up_proj"].map(|name| (layer(name), vec![MLP, HIDDEN])));
    shapes.push((layer("mlp.down_proj"), vec![HIDDEN, MLP]));
    shapes.push(("model.norm.weight".to_owned(), vec![HIDDEN]));
    shapes.extend(["input_layernorm", "post_attention_layernorm"].map(|name| (layer(name), vec![HIDDEN])));
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, shape) in shapes {
        let (from, count) = (data.len(), shape.iter().product::<usize>());
        // Something between -0.15 and 0.15 that looks drawn; norms are 1.
        let number =
            |at: usize| if shape.len() == 1 { 1.0 } else { ((at * 7919 + from) % 1009) as f32 / 3363.0 - 0.15 };
        (0..count).for_each(|at| data.extend(number(at).to_le_bytes()));
        header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": [from, data.len()] }));
    }
    let header = Value::Object(header).to_string();
    let mut weights = (header.len() as u64).to_le_bytes().to_vec();
    weights.extend(header.bytes());
    weights.extend(data);
    let config = json!({ "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": MLP, "vocab_size": vocab, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 2048, "tie_word_embeddings": true });
    std::fs::create_dir_all(folder).unwrap();
    for (name, content) in [
        ("config.json", config.to_string().into_bytes()),
        ("tokenizer.json", tokenizer.to_string().into_bytes()),
        ("tokenizer_config.json", json!({ "eos_token": CONTROLS[1] }).to_string().into_bytes()),
        ("model.safetensors", weights),
    ] {
        std::fs::write(folder.join(name), content).unwrap();
    }
}

/// Two trainings that lie in different partitions, so that two workers may have them at once.
fn two_ids() -> [FinetuneId; 2] {
    let partition =
        |id: &FinetuneId| partition_of(id.to_string().as_bytes(), Topic::FinetuneCommands.spec().partitions);
    let first = FinetuneId::new();
    let second = std::iter::repeat_with(FinetuneId::new).find(|id| partition(id) != partition(&first));
    [first, second.unwrap()]
}

#[tokio::test(flavor = "multi_thread")]
async fn given_two_trainers_of_one_model_when_both_end_then_each_version_is_that_of_its_training_and_runs_in_llama_cpp()
{
    let (stack, hub, folder) = (Stack::start().await, slow_hub().await, tempfile::tempdir().unwrap());
    let models = folder.path().join("models");
    write_base(&models.join("tiny"));
    let _workers = [trainer(&stack, &hub, &folder), trainer(&stack, &hub, &folder)];
    let lines: String = (0..12)
        .map(|n| json!({ "prompt": format!("say {n}"), "completion": n.to_string() }).to_string() + "\n")
        .collect();
    let blobs = ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap();
    let content = blobs.put_bytes(lines.into_bytes().into(), "application/x-ndjson").await.unwrap();
    let plan = Plan { max_steps: 2, warmup_steps: 0, batch_size: 2, seq_len: 128, ..Plan::default() };
    let ids = two_ids();
    let commands = ids.map(|job_id| {
        let FinetuneCommand::StartFinetune(start) = command(job_id);
        let plan_json = serde_json::to_string(&plan).unwrap();
        StartFinetune { base_model: "tiny".to_owned(), content: content.clone(), plan_json, ..start }
    });
    stack.send(&commands.map(FinetuneCommand::StartFinetune)).await;
    let mut told = Vec::new();
    for job_id in ids {
        let end = end(&stack, job_id).await;
        assert_eq!((end.status, end.error), (FinetuneOutcome::Succeeded, None));
        told.push(end.model.unwrap());
    }
    let registered: Vec<_> = stack
        .events::<FinetuneEvent>()
        .await
        .into_iter()
        .filter_map(|event| if let FinetuneEvent::ModelRegistered(event) = event { Some(event) } else { None })
        .collect();
    assert_eq!(registered.len(), 2);
    for (number, version) in (1..).zip(&registered) {
        let name = format!("poet@{number}");
        let job = ids.iter().position(|id| *id == version.job_id).unwrap();
        assert_eq!(told[job], name);
        let made_by = std::fs::read_to_string(models.join(&name).join("training")).unwrap();
        assert_eq!(made_by, version.job_id.to_string());
        assert_eq!(
            std::fs::metadata(models.join(&name).join("model.gguf")).unwrap().len() as i64,
            version.merged_bytes
        );
        // Whether a model that knows nothing ends its answers is all that may be wrong with it.
        let reason = version.gate_reason.clone().unwrap_or_default();
        assert!(version.gate_passed || reason.contains("ended within"), "{reason}");
    }
}
