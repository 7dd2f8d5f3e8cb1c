//! The estimate of memory beside what a training allocates: never less, and not far more.

// Whoever counts allocations stands in front of the allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{Device, Tensor};
use riverrun_training::dataset::{Format, read};
use riverrun_training::estimate::{self, Load};
use riverrun_training::{BaseModel, Method, Plan, Sets, StepReport, Watch, base, train};
use serde_json::{Map, Value, json};

/// The estimate may be so many times what was needed.
const MOST: f64 = 1.3;
/// What products pack, which is estimated as a part of the process.
const PACKED: f64 = (8 << 20) as f64;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn more(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

fn less(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: all is done by the system's allocator, with what the caller gave; only sizes are counted beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller keeps to what is asked of it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller keeps to what is asked of it.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        less(layout.size());
        // SAFETY: the caller keeps to what is asked of it.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        more(size.saturating_sub(layout.size()));
        less(layout.size().saturating_sub(size));
        // SAFETY: the caller keeps to what is asked of it.
        unsafe { System.realloc(memory, layout, size) }
    }
}

const LAYERS: usize = 12;
const HIDDEN: usize = 128;
const MLP: usize = 384;
const KEYS: usize = 64;
const WORDS: usize = 2000;
const CONTROLS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// A Llama in Hugging Face's layout whose every word is a token.
fn write_base(folder: &Path) {
    let mut tensors = HashMap::new();
    let mut put = |name: String, shape: &[usize]| {
        let (from, count) = (tensors_seed(&name), shape.iter().product::<usize>());
        // Something between -0.15 and 0.15 that looks drawn; norms are 1.
        let number =
            |at: usize| if shape.len() == 1 { 1.0 } else { ((at * 7919 + from) % 1009) as f32 / 3363.0 - 0.15 };
        let numbers: Vec<f32> = (0..count).map(number).collect();
        tensors.insert(name, Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap());
    };
    put("model.embed_tokens.weight".to_owned(), &[WORDS, HIDDEN]);
    put("model.norm.weight".to_owned(), &[HIDDEN]);
    for layer in 0..LAYERS {
        for (name, shape) in [
            ("self_attn.q_proj", vec![HIDDEN, HIDDEN]),
            ("self_attn.k_proj", vec![KEYS, HIDDEN]),
            ("self_attn.v_proj", vec![KEYS, HIDDEN]),
            ("self_attn.o_proj", vec![HIDDEN, HIDDEN]),
            ("mlp.gate_proj", vec![MLP, HIDDEN]),
            ("mlp.up_proj", vec![MLP, HIDDEN]),
            ("mlp.down_proj", vec![HIDDEN, MLP]),
            ("input_layernorm", vec![HIDDEN]),
            ("post_attention_layernorm", vec![HIDDEN]),
        ] {
            put(format!("model.layers.{layer}.{name}.weight"), &shape);
        }
    }
    candle_core::safetensors::save(&tensors, folder.join("model.safetensors")).unwrap();
    let words = CONTROLS.iter().map(|control| (*control).to_owned()).chain((CONTROLS.len()..WORDS).map(word));
    let ids: Map<String, Value> = words.enumerate().map(|(id, word)| (word, id.into())).collect();
    let special = |(id, text): (usize, &&str)| {
        json!({ "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true })
    };
    let tokenizer = json!({ "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "decoder": null, "pre_tokenizer": { "type": "WhitespaceSplit" },
        "added_tokens": CONTROLS.iter().enumerate().map(special).collect::<Vec<_>>(),
        "model": { "type": "WordLevel", "vocab": ids, "unk_token": word(2) } });
    let config = json!({ "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": MLP, "vocab_size": WORDS, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 2048, "tie_word_embeddings": true });
    for (name, content) in [
        ("config.json", config),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", json!({ "eos_token": CONTROLS[1] })),
    ] {
        std::fs::write(folder.join(name), content.to_string()).unwrap();
    }
}

fn tensors_seed(name: &str) -> usize {
    name.bytes().map(usize::from).sum()
}

fn word(id: usize) -> String {
    format!("w{id}")
}

/// So many words, which follow from `from`.
fn words(from: usize, count: usize) -> String {
    (0..count).map(|at| word(2 + (from * 131 + at * 17) % (WORDS - 2))).collect::<Vec<_>>().join(" ")
}

/// Examples of about as many words each, which begin with `alike` words that all have.
fn examples(format: Format, alike: usize) -> Vec<u8> {
    let line = |number: usize| {
        let prompt = format!("{} {}", words(0, alike), words(number + 1, 60 - alike));
        let (answer, other) = (words(number + 500, 30), words(number + 900, 24));
        match format {
            Format::Dpo => json!({ "prompt": prompt, "chosen": answer, "rejected": other }),
            Format::Sft | Format::Chat => json!({ "prompt": prompt, "completion": answer }),
        }
    };
    (0..64).flat_map(|number| format!("{}\n", line(number)).into_bytes()).collect()
}

struct Alone;

impl Watch for Alone {
    fn step(&mut self, _: &StepReport) {}

    fn stop(&self) -> bool {
        false
    }
}

/// Bytes that a training takes at its peak, and those that were estimated.
fn taken(folder: &Path, plan: &Plan, (format, alike): (Format, usize)) -> (usize, u64) {
    let dataset = read(&examples(format, alike), format).unwrap();
    let checkpoints = tempfile::tempdir().unwrap();
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let base_model = Arc::new(BaseModel::load(folder).unwrap());
    let sets = Sets::of(&dataset, plan, &base_model.text).unwrap();
    let load = Load {
        train: sets.train.len() as u64,
        held_out: sets.held_out.len() as u64,
        mean_tokens: 1.0,
        longest: sets.longest() as u64,
        widths: sets.widths(),
    };
    assert!(load.widths.unwrap().shared >= alike as u64, "{load:?}");
    let measures = base::measure(folder).unwrap();
    let estimated = estimate::peaks(&measures, plan, &load, estimate::available_bytes());
    train(plan, base_model, &sets, &dataset.sha256(), checkpoints.path(), &mut Alone).unwrap();
    (PEAK.load(Ordering::Relaxed) - before, estimated.steps - estimated.process)
}

// One test: others beside it would be counted too.
#[test]
fn given_trainings_of_each_kind_then_the_estimate_is_not_below_what_they_take_and_not_far_above() {
    let folder = tempfile::tempdir().unwrap();
    write_base(folder.path());
    let plan = Plan { batch_size: 16, max_steps: 2, warmup_steps: 1, patience: 0, ..Plan::default() };
    let pairs = Plan { method: Method::Dpo, batch_size: 8, ..plan.clone() };
    let summed = Plan { accumulation: 2, ..plan.clone() };
    let dropped = Plan { lora: riverrun_training::LoraSettings { dropout: 0.1, ..plan.lora.clone() }, ..plan.clone() };
    for (name, plan, given) in [
        ("examples that share nothing", &plan, (Format::Sft, 0)),
        ("examples that begin alike", &plan, (Format::Sft, 40)),
        ("preferences", &pairs, (Format::Dpo, 0)),
        ("two passes a step", &summed, (Format::Sft, 0)),
        ("with dropout", &dropped, (Format::Sft, 0)),
    ] {
        let (found, estimated) = taken(folder.path(), plan, given);
        let (estimated, found) = (estimated as f64, found as f64);
        let fits = found <= estimated + PACKED && estimated <= MOST * found;
        assert!(fits, "{name}: {estimated} bytes estimated, {found} found: {:.2} times", estimated / found);
    }
}
