use std::path::Path;
use std::sync::Arc;

use candle_core::Device;

use crate::base::{BaseModel, Config, Family, GGUF_FILE};
use crate::dataset::{Format, read};
use crate::error::TrainingError;
use crate::examples::{Examples, Sets};
use crate::export::{Said, Written, write_merged};
use crate::lora::Target;
use crate::plan::{Method, Plan};
use crate::testing::{base, plan, sequences, tokenizer_json, vocabulary, write_tokenizer};
use crate::text::{EncodedPair, TextCodec};
use crate::trainer::{StepReport, Trained, Watch, prepared, train, train_prepared};

#[derive(Default)]
struct Seen {
    reports: Vec<StepReport>,
    /// Stops when so many steps were told.
    stop_after: Option<usize>,
    /// What is told reaches nobody.
    unheard: bool,
}

impl Watch for Seen {
    fn step(&mut self, report: &StepReport) {
        self.reports.push(report.clone());
    }

    fn settled(&mut self) -> bool {
        !self.unheard
    }

    fn stop(&self) -> bool {
        self.stop_after.is_some_and(|steps| self.reports.len() >= steps)
    }
}

impl Seen {
    fn losses(&self) -> Vec<(u64, f64, Option<f64>)> {
        self.reports.iter().map(|report| (report.step, report.loss, report.eval_loss)).collect()
    }
}

fn sets(method: Method) -> Sets {
    let of = |count, seed| match method {
        Method::Dpo | Method::Rlhf => {
            let pairs = sequences(count, seed).into_iter().zip(sequences(count, seed + 50));
            Examples::Pairs(pairs.map(|(chosen, rejected)| EncodedPair { chosen, rejected }).collect())
        }
        Method::SftLora | Method::Qlora => Examples::Sequences(sequences(count, seed)),
    };
    Sets { train: of(7, 1), held_out: of(3, 2), too_long: 0 }
}

fn run(plan: &Plan, base: &Arc<BaseModel>, folder: &Path, seen: &mut Seen) -> Result<Trained, TrainingError> {
    train(plan, Arc::clone(base), &sets(plan.method), "hash", folder, seen)
}

#[test]
fn given_an_interrupted_training_when_it_goes_on_then_every_loss_is_that_of_an_uninterrupted_one() {
    for method in [Method::SftLora, Method::Dpo] {
        let base = base(Family::Llama);
        let mut plan = Plan { method, accumulation: 2, ..plan() };
        plan.lora.dropout = 0.1;
        let whole = tempfile::tempdir().unwrap();
        let mut expected = Seen::default();
        let outcome = run(&plan, &base, whole.path(), &mut expected).unwrap().outcome;
        assert_eq!(expected.reports.len(), 12);
        for stop in [1, 5, 7, 11] {
            let folder = tempfile::tempdir().unwrap();
            let mut first = Seen { stop_after: Some(stop), ..Seen::default() };
            let ended = run(&plan, &base, folder.path(), &mut first);
            assert!(matches!(ended, Err(TrainingError::Cancelled)));
            let mut second = Seen::default();
            let again = run(&plan, &base, folder.path(), &mut second).unwrap().outcome;
            let from = second.losses()[0].0 as usize - 1;
            assert_eq!(from, stop / 5 * 5, "it goes on from the last checkpoint");
            assert_eq!(first.losses(), expected.losses()[..stop]);
            assert_eq!(second.losses(), expected.losses()[from..], "{method:?} stopped after {stop}");
            assert_eq!(again, outcome);
        }
    }
}

#[test]
fn given_checkpoints_that_must_or_can_not_be_written_then_training_goes_on_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut unheard = Seen { unheard: true, ..Seen::default() };
    run(&plan(), &base(Family::Llama), folder.path(), &mut unheard).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "none is ahead of what is known");
    let in_the_way = folder.path().join("file");
    std::fs::write(&in_the_way, "where checkpoints would go").unwrap();
    let mut seen = Seen::default();
    run(&plan(), &base(Family::Llama), &in_the_way, &mut seen).unwrap();
    assert_eq!(seen.losses(), unheard.losses());
    assert!(in_the_way.is_file());
}

#[test]
fn given_enough_steps_then_what_is_taught_is_learned() {
    for method in [Method::SftLora, Method::Dpo] {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan { method, max_steps: 60, learning_rate: 3e-2, dpo_beta: 0.5, ..plan() };
        let mut seen = Seen::default();
        run(&plan, &base(Family::Qwen2), folder.path(), &mut seen).unwrap();
        let (first, last) = (seen.reports[0].loss, seen.reports[59].loss);
        assert!(last < first * 0.8, "{method:?}: {first} to {last}");
        assert!(seen.reports.iter().all(|report| report.tokens > 0 && report.gradient_norm > 0.0));
    }
}

#[test]
fn given_nothing_that_gets_better_then_it_stops_early() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { learning_rate: 1e-9, patience: 2, max_steps: 50, ..plan() };
    let mut seen = Seen::default();
    let outcome = run(&plan, &base(Family::Llama), folder.path(), &mut seen).unwrap().outcome;
    assert!(outcome.stopped_early && outcome.steps == 8, "{outcome:?}");
    assert!(outcome.eval_loss.is_some() && outcome.base_loss.is_some());
}

#[test]
fn given_a_rate_that_destroys_the_model_then_it_says_so_or_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan();
    plan.learning_rate = f64::NAN;
    assert!(matches!(
        run(&plan, &base(Family::Llama), folder.path(), &mut Seen::default()),
        Err(TrainingError::Setting { field: "learning_rate", .. })
    ));
    for method in [Method::Qlora, Method::Rlhf] {
        plan.method = method;
        let error = run(&plan, &base(Family::Llama), folder.path(), &mut Seen::default()).err().unwrap();
        assert_eq!(error.code(), "cuda_required");
        assert!(error.to_string().contains("CUDA GPU is required"));
    }
}

#[test]
fn given_lines_when_they_become_tokens_then_answers_are_taught_with_their_end_and_nothing_else() {
    let text = vocabulary().codec().unwrap();
    let encoded = text.completion("ab", "cd").unwrap();
    let taught: Vec<u32> =
        encoded.ids.iter().zip(&encoded.taught).filter(|(_, taught)| **taught).map(|(id, _)| *id).collect();
    assert_eq!(taught, [4, 5, 1], "c, d and the end of the turn");
    assert_eq!(encoded.ids[0], 0);
    assert!(text.completion("a<|im_end|>", "b").unwrap_err().contains("control token"));
    let file = br#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]}"#;
    let dataset = read(file, Format::Chat).unwrap();
    let sets = Sets::of(&dataset, &Plan { seq_len: 64, ..plan() }, &text).unwrap();
    let Examples::Sequences(all) = &sets.train else { panic!("sequences") };
    assert_eq!(all[0].taught_tokens(), 4, "both answers, each with its end");
    let short = Sets::of(&dataset, &Plan { seq_len: 8, ..plan() }, &text);
    assert_eq!(short.unwrap_err().code(), "invalid_request");
    assert!(Sets::of(&dataset, &Plan { method: Method::Dpo, ..plan() }, &text).is_err());
}

#[test]
fn given_a_base_that_is_no_gguf_file_when_it_is_merged_then_the_file_says_what_the_adapter_said() {
    for family in [Family::Llama, Family::Qwen2] {
        let (folder, base_folder, staged) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_tokenizer(base_folder.path(), &tokenizer_json());
        let plan = Plan { max_steps: 20, learning_rate: 3e-2, ..plan() };
        let trained = run(&plan, &base(family), folder.path(), &mut Seen::default()).unwrap();
        let file = staged.path().join(GGUF_FILE);
        assert_eq!(write_merged(&trained, base_folder.path(), &file).unwrap(), Written::File);
        let parity = Said::of(&trained, &sets(plan.method).held_out).unwrap().compare(staged.path()).unwrap();
        assert!(parity.passed(), "{family:?}: {parity:?}");
        let merged = BaseModel::load(staged.path()).unwrap();
        let norm_eps = f64::from(trained.base.config.norm_eps as f32); // as the file has it
        assert_eq!(merged.config, Config { norm_eps, ..trained.base.config.clone() });
        let said = |text: &TextCodec| text.completion("tan", "bird nest").unwrap();
        assert_eq!(said(&merged.text), said(&trained.base.text));
    }
}

/// As `qlora` and `rlhf` train on a GPU, but on the CPU.
fn run_as_on_gpu(plan: &Plan, base: Arc<BaseModel>, folder: &Path, seen: &mut Seen) -> Result<Trained, TrainingError> {
    let base = prepared(plan.method, base, &Device::Cpu)?;
    assert_eq!(base.is_in_four_bits(), plan.method == Method::Qlora);
    train_prepared(plan, base, &sets(plan.method), "hash", folder, seen)
}

#[test]
fn given_a_base_in_four_bits_when_it_is_trained_then_the_loss_falls() {
    for family in [Family::Llama, Family::Qwen2] {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan { method: Method::Qlora, max_steps: 60, learning_rate: 3e-2, ..plan() };
        let mut seen = Seen::default();
        run_as_on_gpu(&plan, base(family), folder.path(), &mut seen).unwrap();
        let (first, last) = (seen.reports[0].loss, seen.reports[59].loss);
        assert!(last < first * 0.8, "{family:?}: {first} to {last}");
    }
}

#[test]
fn given_an_interrupted_training_as_on_a_gpu_when_it_goes_on_then_every_loss_is_the_same() {
    for method in [Method::Qlora, Method::Rlhf] {
        let plan = Plan { method, accumulation: 2, ..plan() };
        let (whole, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut expected = Seen::default();
        let outcome = run_as_on_gpu(&plan, base(Family::Llama), whole.path(), &mut expected).unwrap().outcome;
        let mut first = Seen { stop_after: Some(7), ..Seen::default() };
        let ended = run_as_on_gpu(&plan, base(Family::Llama), folder.path(), &mut first);
        assert!(matches!(ended, Err(TrainingError::Cancelled)));
        let mut second = Seen::default();
        let again = run_as_on_gpu(&plan, base(Family::Llama), folder.path(), &mut second).unwrap().outcome;
        assert_eq!(second.losses(), expected.losses()[5..], "{method:?}");
        assert_eq!(again, outcome, "{method:?}");
    }
}

#[test]
fn given_preferences_when_a_policy_is_rewarded_by_what_was_learned_of_them_then_its_rewards_rise() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        method: Method::Rlhf,
        max_steps: 90,
        batch_size: 7,
        seq_len: 12,
        learning_rate: 3e-2,
        dpo_beta: 0.02,
        ..plan()
    };
    let mut seen = Seen::default();
    let outcome = run_as_on_gpu(&plan, base(Family::Llama), folder.path(), &mut seen).unwrap().outcome;
    let mean = |reports: &[StepReport]| reports.iter().map(|report| report.loss).sum::<f64>() / reports.len() as f64;
    let (first, last) = (mean(&seen.reports[..15]), mean(&seen.reports[75..]));
    assert!(last < first, "less the mean reward: {first} to {last}");
    assert!(outcome.base_loss.is_some() && outcome.eval_loss < outcome.base_loss, "{outcome:?}");
}

#[test]
fn given_a_base_in_four_bits_when_it_is_merged_then_the_file_says_what_the_adapter_said() {
    for family in [Family::Llama, Family::Qwen2] {
        let (folder, base_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_tokenizer(base_folder.path(), &tokenizer_json());
        let mut plan = Plan { method: Method::Qlora, max_steps: 20, learning_rate: 3e-2, ..plan() };
        // The other projections have no adapter, and are not what the base's file has.
        plan.lora.targets = vec![Target::Q, Target::Down];
        let mut before = (base_folder, base(family));
        // First beside a base in Hugging Face's layout, then beside the GGUF file that came of it.
        for round in ["folder", "file"] {
            let staged = tempfile::tempdir().unwrap();
            let checkpoints = folder.path().join(round);
            let trained = run_as_on_gpu(&plan, Arc::clone(&before.1), &checkpoints, &mut Seen::default()).unwrap();
            let file = staged.path().join(GGUF_FILE);
            assert_eq!(write_merged(&trained, before.0.path(), &file).unwrap(), Written::File);
            let parity = Said::of(&trained, &sets(plan.method).held_out).unwrap().compare(staged.path()).unwrap();
            assert!(parity.passed(), "{family:?} from a {round}: {parity:?}");
            let merged = BaseModel::load(staged.path()).unwrap();
            before = (staged, Arc::new(merged));
        }
    }
}

#[test]
fn given_a_tokenizer_that_llama_cpp_does_not_know_then_nothing_is_merged_and_it_is_said_why() {
    let (folder, base_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut tokenizer = tokenizer_json();
    tokenizer["model"]["merges"] = serde_json::json!([]);
    write_tokenizer(base_folder.path(), &tokenizer);
    let plan = Plan { max_steps: 2, ..plan() };
    let trained = run(&plan, &base(Family::Llama), folder.path(), &mut Seen::default()).unwrap();
    let file = folder.path().join(GGUF_FILE);
    let written = write_merged(&trained, base_folder.path(), &file).unwrap();
    assert!(matches!(&written, Written::Nothing { reason } if reason.contains("merges")), "{written:?}");
    assert!(!file.exists());
}
