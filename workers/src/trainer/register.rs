//! What comes out of a training: the adapter in the blob store, the merged model where the local runtime finds it, the gate, and
//! a version in the registry.

use std::path::{Path, PathBuf};

use riverrun_models::{ChatRequest, FinishReason, Message, NoDeltas};
use riverrun_schemas::finetune::{ModelRegistered, StartFinetune};
use riverrun_schemas::{Envelope, Failure, now_ms};
use riverrun_training::base::GGUF_FILE;
use riverrun_training::dataset::{Example, read};
use riverrun_training::export::{self, Parity, PeftFiles, Said};
use riverrun_training::{Outcome, Sets, Trained, TrainingError};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::work::{Ended, Job};
use super::{Trainer, failure, history};
use crate::runtime::{Context, WorkError};

/// Prompts that the merged model answers before it counts as one that stops.
const PROMPTS: usize = 3;
/// Tokens of such an answer: far more than what was taught, for most.
const MAX_ANSWER: u32 = 512;

/// What was made of a training on the disk.
struct Exported {
    outcome: Outcome,
    peft: PeftFiles,
    /// The merged model in its staging folder, with its bytes and how it agrees; none for a base that is no GGUF file.
    merged: Option<(PathBuf, u64, Parity)>,
}

/// Makes the files. `models` is the folder of models.
fn export(
    start: &StartFinetune,
    job: &Job,
    trained: Trained,
    sets: &Sets,
    models: &Path,
) -> Result<Exported, TrainingError> {
    let outcome = trained.outcome.clone();
    let peft = export::peft_files(&trained, &start.base_model, &job.checkpoints.join("export"))?;
    let base = job.base_folder.join(GGUF_FILE);
    if !base.is_file() {
        return Ok(Exported { outcome, peft, merged: None });
    }
    let examples = if sets.held_out.is_empty() { &sets.train } else { &sets.held_out };
    let said = Said::of(&trained, examples)?;
    let staged = export::staging_folder(models, &start.job_id.to_string())?;
    let file = staged.join(GGUF_FILE);
    export::write_merged(&trained, &base, &file)?;
    drop(trained); // two models at once may be more than there is room for
    let parity = said.compare(&staged)?;
    let bytes = std::fs::metadata(&file).map(|meta| meta.len()).unwrap_or_default();
    Ok(Exported { outcome, peft, merged: Some((staged, bytes, parity)) })
}

fn prompts(job: &Job) -> Vec<String> {
    let examples = read(&job.dataset, job.format).map(|dataset| dataset.examples).unwrap_or_default();
    let prompt = |example: Example| match example {
        Example::Sft { prompt, .. } | Example::Dpo { prompt, .. } => Some(prompt),
        Example::Chat { messages } => messages.into_iter().find(|turn| turn.role.is_user()).map(|turn| turn.content),
    };
    examples.into_iter().filter_map(|(_, example)| prompt(example)).take(PROMPTS).collect()
}

impl Trainer {
    pub(super) async fn register(
        &self,
        start: &StartFinetune,
        (cause, context): (&Envelope, &Context),
        (job, trained, sets): (Job, Trained, Sets),
    ) -> Result<Ended, WorkError> {
        let models = self.models.settings().cache_dir.clone();
        let asked = prompts(&job);
        let requires_gain = job.plan.require_gain;
        let (made_for, folder) = (start.clone(), models.clone());
        let made = tokio::task::spawn_blocking(move || export(&made_for, &job, trained, &sets, &folder)).await;
        let exported = match made {
            Ok(Ok(exported)) => exported,
            Ok(Err(error)) => {
                export::discard_staging(&models, &start.job_id.to_string());
                return Ok(Ended::failed(failure(&error)));
            }
            Err(panic) => return Ok(Ended::failed(Failure::new("internal", format!("the export broke off: {panic}")))),
        };
        let put = self.blobs.put_bytes(exported.peft.weights.into(), "application/vnd.safetensors").await;
        let adapter = put.map_err(|error| WorkError::retry(error.code(), &error))?;
        let version = history::version(context, &start.name, start.job_id).await?;
        let (merged_bytes, gate) = match &exported.merged {
            None => (0, Err("the base is no GGUF file, so there is no merged model to compare".to_owned())),
            Some((staged, bytes, parity)) => {
                if let Err(error) = export::publish(staged, &models, &start.name, version) {
                    return Ok(Ended::failed(failure(&error)));
                }
                let chat_model = format!("{}@{version}", start.name);
                (i64::try_from(*bytes).unwrap_or(i64::MAX), self.gate(&chat_model, parity, asked).await)
            }
        };
        let gate = gate.and_then(|()| gained(&exported.outcome, requires_gain));
        let registered = ModelRegistered {
            model: start.name.clone(),
            job_id: start.job_id,
            base_model: start.base_model.clone(),
            method: method(start),
            dataset_sha256: start.content.sha256.clone(),
            metrics_json: metrics(&exported.outcome, exported.merged.as_ref().map(|(_, _, parity)| parity)),
            adapter,
            adapter_config: String::from_utf8(exported.peft.config).unwrap_or_default(),
            merged_bytes,
            gate_passed: gate.is_ok(),
            gate_reason: gate.as_ref().err().cloned(),
            at: now_ms(),
        };
        self.tell(registered, cause, context).await?;
        if gate.is_ok()
            && let Err(error) = export::point(&models, &start.name, Some(version))
        {
            tracing::warn!(model = start.name, error = %error, "the name of the model can't be pointed to its new version");
        }
        Ok(Ended::succeeded(&exported.outcome, format!("{}@{version}", start.name)))
    }

    /// Whether the merged model is what the adapter was, and ends its answers by itself.
    async fn gate(&self, chat_model: &str, parity: &Parity, prompts: Vec<String>) -> Result<(), String> {
        if !parity.passed() {
            return Err(format!(
                "merged and adapter differ by {:.4} in a log probability, more than {}",
                parity.max_difference,
                export::MAX_DIFFERENCE
            ));
        }
        let (mut stopped, all) = (0, prompts.len());
        for prompt in prompts {
            let request = ChatRequest {
                model: format!("local/{chat_model}"),
                messages: vec![Message::user(prompt)],
                temperature: Some(0.0),
                max_tokens: Some(MAX_ANSWER),
                ..ChatRequest::default()
            };
            let reply = self.models.chat(None, request, &mut NoDeltas, CancellationToken::new()).await;
            let reply = reply.map_err(|error| format!("the local runtime can't run it: {error}"))?;
            stopped += usize::from(reply.finish == FinishReason::Stop);
        }
        if 2 * stopped > all {
            return Ok(());
        }
        Err(format!("of {all} answers {stopped} ended within {MAX_ANSWER} tokens"))
    }
}

/// Whether the version is better than its base, where that was asked for.
fn gained(outcome: &Outcome, required: bool) -> Result<(), String> {
    if !required {
        return Ok(());
    }
    match &outcome.gain {
        Some(gain) if gain.is_sure() => Ok(()),
        Some(gain) => Err(format!(
            "no improvement: the loss of {} held-out examples fell by {:.4} ({:.4} to {:.4} with 95% confidence)",
            gain.examples, gain.mean, gain.low, gain.high
        )),
        None => Err("too few examples are held out to say whether it is better".to_owned()),
    }
}

fn method(start: &StartFinetune) -> String {
    let plan: Value = serde_json::from_str(&start.plan_json).unwrap_or_default();
    plan["method"].as_str().unwrap_or_default().to_owned()
}

fn metrics(outcome: &Outcome, parity: Option<&Parity>) -> String {
    let named = [
        ("steps", Some(outcome.steps as f64)),
        ("loss", Some(outcome.loss)),
        ("eval_loss", outcome.eval_loss),
        ("eval_loss_base", outcome.base_loss),
        ("best_step", outcome.best_step.map(|step| step as f64)),
        ("gain", outcome.gain.map(|gain| gain.mean)),
        ("gain_low", outcome.gain.map(|gain| gain.low)),
        ("gain_high", outcome.gain.map(|gain| gain.high)),
        ("examples_too_long", Some(outcome.too_long as f64)),
        ("parity_max_difference", parity.map(|parity| parity.max_difference)),
    ];
    let known = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
    Value::Object(known.collect::<Map<_, _>>()).to_string()
}
