//! How long a training will take and how much memory it needs, before it starts. The arithmetic of the passes is counted; how
//! fast this machine multiplies is measured, and how fast it reads and writes models is stated.

use std::path::Path;
use std::time::Instant;

use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::base::{Config, Measures};
use crate::error::TrainingError;
use crate::export::SEQUENCES;
use crate::network::Memory;
use crate::plan::{Method, Plan};
use crate::reinforce::SAMPLES;
use crate::text::Widths;

mod memory;

use memory::Width;

/// Where a process finds the limits of its control group.
const GROUP: &str = "/sys/fs/cgroup";
/// Of memory that is free now, what a training may take.
const SHARE: f64 = 0.9;
/// What passes take beside their products: norms, rotations, softmax, gates, sums of gradients, copies.
const BESIDE_PRODUCTS: f64 = 1.25;
/// Prompts that a merged model answers before it counts as one that stops.
pub const GATE_PROMPTS: usize = 3;
/// Tokens of such an answer at most: far more than what was taught, for most.
pub const GATE_TOKENS: u32 = 512;

/// Bytes a second at which models are read, turned into floats and written. Stated and not measured: disks and caches differ too much for
/// a look of a moment. The figures in docs/finetuning.md leave 0.8 s to the 690 MB of SmolLM2 135M, file and floats, on two idle cores.
const MODEL_BYTES_PER_SECOND: f64 = 500e6;
/// Bytes of a merged model that are read for each token of an answer, a second: stated, for a machine of two cores.
const ANSWER_BYTES_PER_SECOND: f64 = 8e9;
/// Seconds until a training is taken, and from its end to the version in the registry: stated.
const HAND_OVER_SECONDS: f64 = 2.0;
/// Tokens of an answer of the gate that are counted with where those that were taught are shorter: not every model has learned to stop.
const USUAL_ANSWER: f64 = 128.0;
/// Of what was estimated, what it takes where the machine was busy while it was measured, and is idle then.
const IDLE: f64 = 0.25;
/// The same where it was idle then, and is busy later.
const BUSY: f64 = 4.0;
/// Products of an adapter on the way back, over those forward: its middle again, what goes through it, and its two gradients.
const ADAPTER_BACKWARD: f64 = 2.5;

/// What a training will take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Steps.
    pub steps: u64,
    /// How often each example comes.
    pub epochs: f64,
    /// Numbers that are trained.
    pub trainable_parameters: u64,
    /// Seconds from the command to the version: loading, steps, measurements, export and gate.
    pub seconds: f64,
    /// With an idle machine, and answers of the gate that are as long as those that were taught.
    pub seconds_low: f64,
    /// With a busy one, and answers that end at the gate's limit.
    pub seconds_high: f64,
    /// Bytes at the peak.
    pub memory_bytes: u64,
    /// Bytes that a training may take now; `None` where the system does not say.
    pub memory_available_bytes: Option<u64>,
    /// Whether the one is below the other.
    pub fits: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// What is known of the examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Examples that are trained on.
    pub train: u64,
    /// Examples that are held out.
    pub held_out: u64,
    /// Mean tokens of an example; of a preference, of one answer.
    pub mean_tokens: f64,
    /// Tokens of the longest one; of a preference, of its longer answer.
    pub longest: u64,
    /// What they take of a pass, where that is known. Else each counts as the longest one, and as if none began like another.
    pub widths: Option<Widths>,
}

/// The memory that the parts of a training take, each at its peak and with all that is there then. In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Peaks {
    /// Until the last step.
    pub steps: u64,
    /// From there to the merged model.
    pub export: u64,
    /// What either has of the process itself, without anything that is computed with.
    pub process: u64,
}

/// Products of this machine a second, measured now: floating-point operations, multiplications and additions counted apart.
pub fn measure_speed() -> Result<f64, TrainingError> {
    const SIZE: usize = 512;
    let ones = Tensor::from_vec(vec![1f32; SIZE * SIZE], (SIZE, SIZE), &Device::Cpu)?;
    ones.matmul(&ones)?; // the first one starts threads
    let began = Instant::now();
    let mut times = 0;
    while times < 3 || began.elapsed().as_millis() < 50 {
        ones.matmul(&ones)?;
        times += 1;
    }
    Ok(f64::from(times) * 2.0 * (SIZE as f64).powi(3) / began.elapsed().as_secs_f64())
}

/// Bytes of memory that are free for use; `None` where the system does not say.
pub fn available_bytes() -> Option<u64> {
    let of_machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    });
    let read = |file: &str| std::fs::read_to_string(Path::new(GROUP).join(file)).unwrap_or_default();
    let of_group = group_bytes(&read("memory.max"), &read("memory.current"), &read("memory.stat"));
    of_machine.into_iter().chain(of_group).min()
}

/// What a control group leaves. What it uses includes pages of files that were read, which go when room is needed: a log and models
/// that were read once would else fill any container. `None` without a limit.
fn group_bytes(most: &str, used: &str, stat: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let of_files = stat.lines().find_map(|line| number(line.strip_prefix("inactive_file ")?)).unwrap_or_default();
    Some(number(most)?.saturating_sub(number(used)?.saturating_sub(of_files)))
}

/// Estimates a training of a model of those measures. Its memory is that of the steps or of the export, whichever is more: what
/// fits only until then would fail at its end.
pub fn estimate(base: &Measures, plan: &Plan, load: Load, speed: f64, available: Option<u64>) -> Estimate {
    let config = &base.config;
    let memory = memory_mode(config, plan, available);
    let Peaks { steps, export, .. } = peaks(base, plan, &load, available);
    let memory_bytes = steps.max(export);
    let may_take = available.map(|bytes| (bytes as f64 * SHARE) as u64);
    let fits = may_take.is_none_or(|may_take| memory_bytes <= may_take);
    let speed = speed.max(1.0);
    let passes = operations(config, plan, load, memory) * BESIDE_PRODUCTS / speed;
    let before_answers = passes + around(base, plan, load, speed);
    // About half of an example is scored.
    let most = f64::from(GATE_TOKENS);
    let taught = (load.mean_tokens.min(plan.seq_len as f64) / 2.0).min(most);
    let with_answers_of = |tokens: f64| before_answers + answering(config, load, tokens, speed);
    let reason = (!fits).then(|| {
        format!(
            "needs about {} MiB of memory, and {} MiB may be taken now",
            memory_bytes >> 20,
            may_take.unwrap_or_default() >> 20
        )
    });
    Estimate {
        steps: plan.max_steps,
        epochs: plan.max_steps as f64 * plan.examples_per_step() as f64 / load.train.max(1) as f64,
        trainable_parameters: plan.lora.parameters(config),
        seconds: with_answers_of(taught.max(USUAL_ANSWER)),
        seconds_low: with_answers_of(taught) * IDLE,
        seconds_high: with_answers_of(most) * BUSY,
        memory_bytes,
        memory_available_bytes: may_take,
        fits,
        reason,
    }
}

/// The memory of the steps and of the export.
pub fn peaks(base: &Measures, plan: &Plan, load: &Load, available: Option<u64>) -> Peaks {
    let config = &base.config;
    let longest = load.longest.min(plan.seq_len as u64);
    let width = Width::of_pass(plan, longest, load.widths);
    let mode = memory_mode(config, plan, available);
    Peaks {
        steps: memory::of_steps(config, plan, width, load.held_out > 0, mode),
        export: memory::of_export(base, plan, Width::of_parity(longest, load.widths)),
        process: memory::of_process(config),
    }
}

/// Refuses what does not fit.
pub fn check(estimate: &Estimate) -> Result<(), TrainingError> {
    match estimate.memory_available_bytes.filter(|_| !estimate.fits) {
        Some(available) => Err(TrainingError::DoesNotFit { needed: estimate.memory_bytes, available }),
        None => Ok(()),
    }
}

/// Keeps what layers compute where there is room for it.
pub(crate) fn memory_mode(config: &Config, plan: &Plan, available: Option<u64>) -> Memory {
    // What layers compute lies on the GPU then, whose memory nobody has asked for.
    if matches!(plan.method, Method::Qlora | Method::Rlhf) {
        return Memory::Recompute;
    }
    let longest = Width::of_pass(plan, plan.seq_len as u64, None);
    let needed = memory::of_steps(config, plan, longest, true, Memory::Keep);
    match available {
        Some(available) if needed as f64 <= available as f64 * SHARE / 2.0 => Memory::Keep,
        _ => Memory::Recompute,
    }
}

/// Sequences that a pass has of an example.
fn answers(method: Method) -> usize {
    match method {
        Method::SftLora | Method::Qlora => 1,
        Method::Dpo => 2,
        Method::Rlhf => SAMPLES,
    }
}

/// Examples that are measured on at the end.
fn measured_on(load: Load) -> f64 {
    if load.held_out > 0 { load.held_out as f64 } else { load.train as f64 }
}

/// Seconds of what stands around the passes: the base is loaded; at the end it is read once more, merged and written, loaded as a model of
/// its own, compared with the adapter, and loaded by the runtime that answers.
fn around(base: &Measures, plan: &Plan, load: Load, speed: f64) -> f64 {
    let numbers = base.config.parameters() as f64;
    // Of 32-bit floats, and of the 16-bit ones of a merged model.
    let (floats, merged) = (4.0 * numbers, 2.0 * numbers);
    let file = base.gguf_bytes.map_or(merged, |bytes| bytes as f64);
    let loaded = file + floats;
    let exported = file + merged + (merged + floats) + merged;
    let (adapted, _) = plan.lora.adapted(&base.config);
    let merging = 2.0 * plan.lora.rank as f64 * adapted as f64;
    let length = load.mean_tokens.min(plan.seq_len as f64);
    // With the adapter, and merged.
    let compared = 2.0 * measured_on(load).min(SEQUENCES as f64) * 2.0 * numbers * length;
    HAND_OVER_SECONDS + (loaded + exported) / MODEL_BYTES_PER_SECOND + (merging + compared) / speed
}

/// Seconds of the gate's answers, of so many tokens each. One token after another reads the whole model, and multiplies with it once.
fn answering(config: &Config, load: Load, tokens: f64, speed: f64) -> f64 {
    let numbers = config.parameters() as f64;
    let of_token = (2.0 * numbers / ANSWER_BYTES_PER_SECOND).max(2.0 * numbers / speed);
    measured_on(load).min(GATE_PROMPTS as f64) * tokens * of_token
}

/// Floating-point operations of the passes: steps and measurements.
fn operations(config: &Config, plan: &Plan, load: Load, memory: Memory) -> f64 {
    let embeddings = config.vocab as f64 * config.hidden as f64;
    let body = config.parameters() as f64 - embeddings * if config.own_output { 2.0 } else { 1.0 };
    let length = load.mean_tokens.min(plan.seq_len as f64);
    let tokens = length * answers(plan.method) as f64;
    // About half of an example is scored.
    let scored = tokens / 2.0;
    let head = 2.0 * embeddings * scored;
    let adapter = 2.0 * plan.lora.parameters(config) as f64 * tokens;
    // Scores of every pair of a sequence, and what is taken by them; on the way back each product becomes two, and scores come again.
    let attention = 4.0 * (config.layers * config.heads * config.head_dim) as f64 * length * tokens;
    let layers = 2.0 * body * tokens + adapter + attention;
    let forward = layers + head;
    let backward = 2.0 * body * tokens + ADAPTER_BACKWARD * adapter + 2.5 * attention + head;
    let again = match memory {
        Memory::Keep => 0.0,
        Memory::Recompute => layers,
    };
    let reference = match plan.method {
        Method::SftLora | Method::Qlora => 0.0,
        Method::Dpo => forward,
        // The reference, its last states for the reward, and a pass for each token that is drawn.
        Method::Rlhf => (2.0 + length / 2.0) * forward,
    };
    let trained = plan.max_steps as f64 * plan.examples_per_step() as f64;
    // The base before the first step; behind every so many steps, and the last; at the end base and adapter, example by example.
    let measured = (1 + plan.max_steps.div_ceil(plan.eval_every) + 2) as f64 * load.held_out as f64;
    trained * (forward + backward + again + reference) + measured * (forward + reference)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::Family;
    use crate::lora::{LoraSettings, Target};

    /// Of SmolLM2-135M.
    pub(crate) fn small() -> Config {
        Config {
            family: Family::Llama,
            layers: 30,
            hidden: 576,
            intermediate: 1536,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            vocab: 49152,
            norm_eps: 1e-5,
            rope_theta: 1e5,
            context: 8192,
            own_output: false,
        }
    }

    #[test]
    fn given_a_known_model_then_its_parameters_are_those_of_its_makers() {
        assert_eq!(small().parameters(), 134_515_008);
    }

    #[test]
    fn given_less_memory_then_less_is_kept_and_what_can_not_fit_is_refused() {
        let plan = Plan::default();
        let load = Load { train: 100, held_out: 10, mean_tokens: 100.0, longest: 300, widths: None };
        let base = Measures { config: small(), gguf_bytes: None };
        let at = |available: u64| estimate(&base, &plan, load, 5e10, Some(available));
        let (much, some, little) = (at(64 << 30), at(4 << 30), at(400 << 20));
        assert!(much.fits && some.fits && !little.fits, "{some:?}");
        assert!(much.memory_bytes > some.memory_bytes && much.seconds < some.seconds);
        assert_eq!(check(&little).unwrap_err().code(), "does_not_fit");
        assert!(little.reason.is_some() && check(&some).is_ok());
        assert!((much.epochs - 8.0).abs() < 1e-9);
    }

    #[test]
    fn given_an_export_that_takes_more_than_the_steps_then_the_estimate_is_that_of_the_export() {
        let plan = Plan { batch_size: 1, ..Plan::default() };
        let load = Load { train: 100, held_out: 10, mean_tokens: 8.0, longest: 8, widths: None };
        let of = |gguf_bytes| estimate(&Measures { config: small(), gguf_bytes }, &plan, load, 5e10, Some(64 << 30));
        let (folder, small_file, large_file) = (of(None), of(Some(40 << 20)), of(Some(440 << 20)));
        assert!(folder.memory_bytes > small_file.memory_bytes, "all of it becomes 16-bit floats");
        // With what the allocator may hold on to.
        assert_eq!(large_file.memory_bytes - small_file.memory_bytes, 440 << 20);
        assert!(small_file.seconds < large_file.seconds, "a larger file takes longer to be read");
        let (adapted, largest) = plan.lora.adapted(&small());
        let one = |method| {
            let lora = LoraSettings { targets: vec![Target::Q], ..plan.lora.clone() };
            let base = Measures { config: small(), gguf_bytes: Some(200 << 20) };
            estimate(&base, &Plan { method, lora, ..plan.clone() }, load, 5e10, Some(64 << 30)).memory_bytes
        };
        assert!(
            one(Method::Qlora) > one(Method::SftLora),
            "all projections are written, not the one that has an adapter"
        );
        assert_eq!((adapted, largest), (30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536), 576 * 1536));
    }

    #[test]
    fn given_short_examples_then_what_they_need_fits_where_the_longest_that_the_plan_allows_would_not() {
        let plan = Plan { seq_len: 8192, batch_size: 8, ..Plan::default() };
        let base = Measures { config: small(), gguf_bytes: None };
        let of = |longest| {
            let load = Load { train: 100, held_out: 10, mean_tokens: 50.0, longest, widths: None };
            estimate(&base, &plan, load, 5e10, Some(8 << 30))
        };
        assert!(of(100).fits && !of(8192).fits);
    }

    #[test]
    fn given_few_steps_then_loading_export_and_the_answers_of_the_gate_are_most_of_what_is_estimated() {
        let base = Measures { config: small(), gguf_bytes: Some(145 << 20) };
        let load = Load { train: 20, held_out: 2, mean_tokens: 30.0, longest: 60, widths: None };
        let of = |max_steps, speed: f64| {
            let plan = Plan { max_steps, batch_size: 1, ..Plan::default() };
            estimate(&base, &plan, load, speed, Some(64 << 30))
        };
        let one = of(1, 5e10);
        // 2.2 GB of models at 500 MB a second, and two answers of 128 tokens that read 270 MB each time.
        assert!((10.0..30.0).contains(&one.seconds), "{one:?}");
        // The answers alone, should neither end by itself on a machine that is busy.
        assert!(one.seconds_high > BUSY * 2.0 * 512.0 * 0.27e9 / ANSWER_BYTES_PER_SECOND, "{one:?}");
        assert!(one.seconds_low < one.seconds / 3.0, "{one:?}");
        let passes = of(101, 5e10).seconds - one.seconds;
        assert!(
            passes > 0.0 && (of(201, 5e10).seconds - one.seconds) / passes < 2.2,
            "steps add what they took before"
        );
        assert!(of(1, 1e9).seconds > one.seconds, "a machine that multiplies slowly answers slowly");
    }

    #[test]
    fn given_any_training_then_what_is_estimated_lies_between_its_bounds() {
        for (train, held_out, mean_tokens) in [(1, 0, 1.0), (9, 0, 40.0), (100, 10, 300.0), (1_000_000, 256, 5_000.0)] {
            for max_steps in [1, 200, 100_000] {
                for gguf_bytes in [None, Some(0), Some(10 << 30)] {
                    for speed in [0.0, 1e9, 1e12] {
                        let load = Load { train, held_out, mean_tokens, longest: 512, widths: None };
                        let plan = Plan { max_steps, ..Plan::default() };
                        let base = Measures { config: small(), gguf_bytes };
                        let found = estimate(&base, &plan, load, speed, None);
                        let order = [0.0, found.seconds_low, found.seconds, found.seconds_high, f64::INFINITY];
                        assert!(order.is_sorted_by(|a, b| a < b), "{found:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn given_examples_that_are_held_out_then_every_time_that_they_are_measured_is_counted() {
        let of = |eval_every, held_out| {
            let plan = Plan { eval_every, ..Plan::default() };
            let load = Load { train: 100, held_out, mean_tokens: 100.0, longest: 300, widths: None };
            operations(&small(), &plan, load, Memory::Keep)
        };
        let measuring = |eval_every| of(eval_every, 1000) - of(eval_every, 0);
        // Of 200 steps: 8 times and once more before, and base and adapter at the end; or behind the last step alone.
        assert!((measuring(25) / measuring(1000) - 11.0 / 4.0).abs() < 1e-6);
    }

    #[test]
    fn given_long_examples_then_their_attention_takes_more_than_its_share() {
        let of = |mean_tokens| {
            let load = Load { train: 100, held_out: 0, mean_tokens, longest: 8192, widths: None };
            operations(&small(), &Plan { seq_len: 8192, ..Plan::default() }, load, Memory::Keep)
        };
        assert!(of(8000.0) > 12.0 * of(800.0));
    }

    #[test]
    fn given_a_container_then_files_that_it_has_read_take_nothing_from_its_limit() {
        let stat = "anon 300\nfile 600\ninactive_anon 7\ninactive_file 500\nactive_file 100\n";
        assert_eq!(group_bytes("1000\n", "900\n", stat), Some(600));
        assert_eq!(group_bytes("1000\n", "900\n", ""), Some(100));
        assert_eq!(group_bytes("1000\n", "1200\n", ""), Some(0));
        assert_eq!(group_bytes("max\n", "900\n", stat), None);
        assert_eq!(group_bytes("", "", ""), None);
    }

    #[test]
    fn given_this_machine_then_it_multiplies() {
        assert!(measure_speed().unwrap() > 1e7);
    }
}
