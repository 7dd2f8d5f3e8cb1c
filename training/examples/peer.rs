//! One side of `scripts/bench/finetune.py`: trains on a folder's model and tells each step, so that another trainer can be given
//! the same first adapter and the same tokens.
//!
//! `peer <base folder> <dataset.jsonl> <sft|dpo> <plan.json> <out folder>` writes `adapter_model.safetensors` and
//! `adapter_config.json` of the first adapter, `steps.jsonl` (tokens of each step) there, and prints a JSON line a step. At the
//! end `trained/` has the trained adapter, `said.json` what it says of the sequences of the first step, `merged.gguf` the model with it,
//! where one can be made, and `peaks.json` the peaks of memory in bytes: as estimated, up to the last step, and with the export.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use riverrun_training::dataset::{Format, read};
use riverrun_training::estimate::{self, Load};
use riverrun_training::export::{
    ADAPTER_CONFIG, ADAPTER_WEIGHTS, PeftFiles, Said, initial_files, peft_files, write_merged,
};
use riverrun_training::{BaseModel, Examples, Plan, Sets, StepReport, Watch, train};
use serde_json::json;

struct Told(Instant);

impl Watch for Told {
    fn step(&mut self, report: &StepReport) {
        let line = json!({
            "step": report.step, "loss": report.loss, "seconds": report.seconds, "tokens": report.tokens,
            "learning_rate": report.learning_rate, "since_start_s": self.0.elapsed().as_secs_f64(),
        });
        let _ = writeln!(std::io::stdout(), "{line}"); // nobody who reads is no failure
    }

    fn stop(&self) -> bool {
        false
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("peer <base folder> <dataset.jsonl> <sft|dpo> <plan.json> <out folder>");
    let (folder, dataset) = (PathBuf::from(next()?), PathBuf::from(next()?));
    let format = Format::by_name(&next()?).ok_or("the format is sft, dpo or chat")?;
    let plan: Plan = serde_json::from_slice(&std::fs::read(next()?)?)?;
    let out = PathBuf::from(next()?);
    let dataset = read(&std::fs::read(dataset)?, format)?;
    let base = Arc::new(BaseModel::load(&folder)?);
    let sets = Sets::of(&dataset, &plan, &base.text)?;
    let base_name = folder.to_string_lossy();
    write(&out, initial_files(&plan, &base, &base_name, &out)?)?;
    let mut steps = Vec::new();
    for step in 1..=plan.max_steps {
        serde_json::to_writer(&mut steps, &sets.of_step(&plan, step))?;
        steps.push(b'\n');
    }
    std::fs::write(out.join("steps.jsonl"), steps)?;
    let load = Load {
        train: sets.train.len() as u64,
        held_out: sets.held_out.len() as u64,
        mean_tokens: 1.0, // tells time, which is measured here
        longest: sets.longest() as u64,
        widths: sets.widths(),
    };
    // As the training sees it: the base is in memory already.
    let measures = riverrun_training::base::measure(&folder)?;
    let estimated = estimate::peaks(&measures, &plan, &load, estimate::available_bytes());
    let trained = train(&plan, base, &sets, &dataset.sha256(), &out.join("checkpoints"), &mut Told(began))?;
    let tuned = out.join("trained");
    write(&tuned, peft_files(&trained, &base_name, &tuned)?)?;
    let sequences = sets.of_step(&plan, 1);
    let said = Said::of(&trained, &Examples::Sequences(sequences.clone()))?;
    let said = json!({ "sequences": sequences, "log_probabilities": said.log_probabilities() });
    std::fs::write(out.join("said.json"), said.to_string())?;
    let steps = peak_bytes()?;
    // The other side makes no merged model: what follows is in the peak of the process, and in no comparison.
    write_merged(&trained, &folder, &out.join("merged.gguf"))?;
    let peaks = json!({ "estimated": estimated, "steps": steps, "export": peak_bytes()? });
    std::fs::write(out.join("peaks.json"), peaks.to_string())?;
    Ok(())
}

/// The most memory that this process has had, as the kernel counts it; `None` where no one says.
fn peak_bytes() -> Result<Option<u64>, Box<dyn Error>> {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return Ok(None) };
    let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) else { return Ok(None) };
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(Some(kib * 1024))
}

fn write(folder: &Path, files: PeftFiles) -> std::io::Result<()> {
    std::fs::write(folder.join(ADAPTER_WEIGHTS), files.weights)?;
    std::fs::write(folder.join(ADAPTER_CONFIG), files.config)
}
