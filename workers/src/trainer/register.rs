//! What comes out of a training: the adapter in the blob store, the merged model where the local runtime finds it, the gate, and
//! a version in the registry.

use std::path::{Path, PathBuf};
use std::time::Duration;

use riverrun_models::{Account, ChatRequest, FinishReason, Message, NoDeltas, Purpose};
use riverrun_schemas::finetune::{ModelRegistered, StartFinetune};
use riverrun_schemas::{Envelope, Failure, Namespace, now_ms};
use riverrun_training::base::GGUF_FILE;
use riverrun_training::dataset::{Example, Split, read};
use riverrun_training::estimate::{GATE_PROMPTS, GATE_TOKENS};
use riverrun_training::export::{self, Parity, PeftFiles, Said, Turn, Written};
use riverrun_training::{LEAST_HELD_OUT, Outcome, Sets, Trained, TrainingError};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::stop::Stop;
use super::work::{Ended, Job};
use super::{Trainer, history};
use crate::runtime::{Context, WorkError};

/// How often it is looked whether another training of the same model has put its version down.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What was made of a training on the disk.
struct Exported {
    outcome: Outcome,
    peft: PeftFiles,
    /// The merged model in its staging folder, with its bytes and how it agrees; or why there is none.
    merged: Result<(PathBuf, u64, Parity), String>,
}

/// Makes the files. `models` is the folder of models. Between two parts of the work it looks whether to stop.
fn export(
    start: &StartFinetune,
    job: &Job,
    (trained, sets): (Trained, &Sets),
    models: &Path,
    stop: &CancellationToken,
) -> Result<Exported, TrainingError> {
    let go_on = || if stop.is_cancelled() { Err(TrainingError::Cancelled) } else { Ok(()) };
    go_on()?;
    let outcome = trained.outcome.clone();
    let peft = export::peft_files(&trained, &start.base_model, &job.checkpoints.join("export"))?;
    let examples = if sets.held_out.is_empty() { &sets.train } else { &sets.held_out };
    let said = Said::of(&trained, examples)?;
    go_on()?;
    let staged = export::staging_folder(models, &start.job_id.to_string())?;
    let file = staged.join(GGUF_FILE);
    if let Written::Nothing { reason } = export::write_merged(&trained, &job.base_folder, &file)? {
        export::discard_staging(models, &start.job_id.to_string());
        return Ok(Exported { outcome, peft, merged: Err(reason) });
    }
    drop(trained); // two models at once may be more than there is room for
    go_on()?;
    let parity = said.compare(&staged)?;
    let bytes = std::fs::metadata(&file).map(|meta| meta.len()).unwrap_or_default();
    Ok(Exported { outcome, peft, merged: Ok((staged, bytes, parity)) })
}

/// What the merged model is asked.
fn prompts(job: &Job) -> Vec<String> {
    let examples = read(&job.dataset, job.format).map(|dataset| dataset.examples).unwrap_or_default();
    let examples: Vec<Example> = examples.into_iter().map(|(_, example)| example).collect();
    prompts_of(&examples, job.plan.seed)
}

/// Prompts that nothing was learned from, where anything was held out: an answer that was learned by heart ends where it did.
fn prompts_of(examples: &[Example], seed: u64) -> Vec<String> {
    let split = Split::of(examples.len(), seed);
    let places = if split.held_out.is_empty() { split.train } else { split.held_out };
    let prompt = |example: &Example| match example {
        Example::Sft { prompt, .. } | Example::Dpo { prompt, .. } => Some(prompt.clone()),
        Example::Chat { messages } => messages.iter().find(|turn| turn.role.is_user()).map(|turn| turn.content.clone()),
    };
    places.into_iter().filter_map(|place| prompt(examples.get(place)?)).take(GATE_PROMPTS).collect()
}

impl Trainer {
    pub(super) async fn register(
        &self,
        start: &StartFinetune,
        (cause, context): (&Envelope, &Context),
        (job, trained, sets): (Job, Trained, Sets),
        stop: &Stop,
    ) -> Result<Ended, WorkError> {
        let models = self.models.settings().cache_dir.clone();
        let asked = prompts(&job);
        let requires_gain = job.plan.require_gain;
        let (made_for, folder, token) = (start.clone(), models.clone(), stop.token().clone());
        let work = move || export(&made_for, &job, (trained, &sets), &folder, &token);
        let exported = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(exported)) => exported,
            Ok(Err(TrainingError::Cancelled)) => return stop.ended(),
            Ok(Err(error)) => {
                export::discard_staging(&models, &start.job_id.to_string()); // makes room, should it be tried again
                return self.fails(start.job_id, &error);
            }
            Err(panic) => return Ok(Ended::failed(Failure::new("internal", format!("the export broke off: {panic}")))),
        };
        let put = self.blobs.put_bytes(exported.peft.weights.into(), "application/vnd.safetensors").await;
        let adapter = put.map_err(|error| WorkError::retry(error.code(), &error))?;
        let turn = match self.turn(&models, &start.name, stop).await {
            Ok(Some(turn)) => turn,
            Ok(None) => return stop.ended(),
            Err(error) => return self.fails(start.job_id, &error),
        };
        let versions = history::versions(context, &start.name).await?;
        // What it will be, unless somebody who has another folder of models is faster. One that is known, from before a crash, stays.
        let number = versions.of(start.job_id).unwrap_or_else(|| versions.next());
        let (merged_bytes, gate) = match &exported.merged {
            Err(reason) => (0, Err(format!("the base is no GGUF file, and none can be made of it: {reason}"))),
            Ok((staged, bytes, parity)) => {
                if let Err(error) = export::publish(staged, &models, &start.name, number) {
                    return self.fails(start.job_id, &error);
                }
                let gate = self.gate(&version_of(&start.name, number), parity, (asked, stop)).await;
                (i64::try_from(*bytes).unwrap_or(i64::MAX), gate)
            }
        };
        // Once more, and on the log itself: whoever was told that it will be cancelled must not find a version.
        if self.is_unwanted(start, context, stop).await? {
            return stop.ended();
        }
        let gate = gate.and_then(|()| gained(&exported.outcome, requires_gain));
        let registered = ModelRegistered {
            model: start.name.clone(),
            job_id: start.job_id,
            base_model: start.base_model.clone(),
            method: method(start),
            dataset_sha256: start.content.sha256.clone(),
            metrics_json: metrics(&exported.outcome, exported.merged.as_ref().ok().map(|(_, _, parity)| parity)),
            adapter,
            adapter_config: String::from_utf8(exported.peft.config).unwrap_or_default(),
            merged_bytes,
            gate_passed: gate.is_ok(),
            gate_reason: gate.err(),
            at: now_ms(),
        };
        self.tell(registered, cause, context).await?;
        let number = self.settle(start, context, &models).await?;
        drop(turn); // the next one sees the version, and its folder
        Ok(Ended::succeeded(&exported.outcome, version_of(&start.name, number)))
    }

    /// Waits for the turn to put a version of the model into the folder; `None` where the training is stopped before.
    async fn turn(&self, models: &Path, model: &str, stop: &Stop) -> Result<Option<Turn>, TrainingError> {
        while !stop.is_set() {
            if let Some(turn) = export::take_turn(models, model)? {
                return Ok(Some(turn));
            }
            tokio::select! {
                () = stop.token().cancelled() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
        Ok(None)
    }

    /// Follows the log: what it says now is the version's number, and what the model's name means. What is registered has not
    /// failed, so whatever goes wrong here is tried again.
    async fn settle(&self, start: &StartFinetune, context: &Context, models: &Path) -> Result<i64, WorkError> {
        let versions = history::versions(context, &start.name).await?;
        let Some(number) = versions.of(start.job_id) else {
            let what = format!("the version of {} is not on the log yet", start.job_id);
            return Err(WorkError::retry("version_unknown", what));
        };
        export::settle(models, &start.name, &start.job_id.to_string(), Some(number))
            .map_err(|error| WorkError::retry(error.code(), &error))?;
        if let Some(named) =
            versions.named().filter(|named| export::merged_folder(models, &start.name, *named).is_dir())
            && let Err(error) = export::point(models, &start.name, Some(named))
        {
            tracing::warn!(model = start.name, version = named, error = %error, "the name of the model can't be pointed to its version");
        }
        Ok(number)
    }

    /// Takes away what a training has left among the models from which no version came: a process may have died over it.
    pub(super) async fn withdraw(&self, start: &StartFinetune, context: &Context) -> Result<(), WorkError> {
        let (models, job) = (&self.models.settings().cache_dir, start.job_id.to_string());
        let number = history::versions(context, &start.name).await?.of(start.job_id);
        export::discard_staging(models, &job);
        if let Err(error) = export::settle(models, &start.name, &job, number) {
            tracing::warn!(training = job, error = %error, "the merged model of a training without a version stays");
        }
        Ok(())
    }

    /// Whether it was stopped, or somebody wants it to be and was not heard yet.
    async fn is_unwanted(&self, start: &StartFinetune, context: &Context, stop: &Stop) -> Result<bool, WorkError> {
        let (_, history, _) = history::read(context, start.job_id).await?;
        if history.cancelled {
            stop.wish();
        }
        Ok(stop.is_set())
    }

    /// Whether the merged model is what the adapter was, and ends its answers by itself. When it is stopped, what it says is of no
    /// account.
    async fn gate(
        &self,
        chat_model: &str,
        parity: &Parity,
        (prompts, stop): (Vec<String>, &Stop),
    ) -> Result<(), String> {
        if !parity.passed() {
            return Err(format!(
                "merged and adapter differ by {:.4} in a log probability, more than {}",
                parity.max_difference,
                export::MAX_DIFFERENCE
            ));
        }
        let (mut stopped, all) = (0, prompts.len());
        // Trainings are of no namespace.
        let models = self.models.charged_to(Account::of(Namespace::default(), Purpose::Finetune));
        for prompt in prompts {
            let request = ChatRequest {
                model: format!("local/{chat_model}"),
                messages: vec![Message::user(prompt)],
                temperature: Some(0.0),
                max_tokens: Some(GATE_TOKENS),
                ..ChatRequest::default()
            };
            let reply = models.chat(None, request, &mut NoDeltas, stop.token().clone()).await;
            let reply = reply.map_err(|error| format!("the local runtime can't run it: {error}"))?;
            stopped += usize::from(reply.finish == FinishReason::Stop);
        }
        if 2 * stopped > all {
            return Ok(());
        }
        Err(format!("of {all} answers {stopped} ended within {GATE_TOKENS} tokens"))
    }
}

/// What the model of a chat is called for a version.
fn version_of(model: &str, number: i64) -> String {
    format!("{model}@{number}")
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
        None => Err(format!("too few held-out examples ({} of at least {LEAST_HELD_OUT})", outcome.held_out)),
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

#[cfg(test)]
mod tests {
    use riverrun_training::Gain;

    use super::*;

    fn examples(count: usize) -> Vec<Example> {
        let one = |place: usize| Example::Sft { prompt: place.to_string(), completion: "x".to_owned() };
        (0..count).map(one).collect()
    }

    fn outcome(gain: Option<Gain>, held_out: usize) -> Outcome {
        Outcome {
            steps: 1,
            loss: 1.0,
            base_loss: None,
            eval_loss: None,
            best_step: None,
            stopped_early: false,
            gain,
            held_out,
            too_long: 0,
        }
    }

    #[test]
    fn given_held_out_examples_then_only_their_prompts_are_asked_and_else_the_first_of_the_file() {
        for count in [10, 20, 100] {
            let held_out = Split::of(count, 42).held_out;
            let wanted: Vec<String> = held_out.iter().take(GATE_PROMPTS).map(ToString::to_string).collect();
            assert_eq!(prompts_of(&examples(count), 42), wanted, "of {count}");
        }
        assert_eq!(prompts_of(&examples(5), 42), ["0", "1", "2"]);
    }

    #[test]
    fn given_a_gain_that_is_asked_for_when_too_few_examples_are_held_out_then_it_is_said_how_many() {
        assert_eq!(gained(&outcome(None, 3), true).unwrap_err(), "too few held-out examples (3 of at least 8)");
        assert!(gained(&outcome(None, 3), false).is_ok());
        let gain = Gain { mean: 0.5, low: 0.4, high: 0.6, examples: 8 };
        assert!(gained(&outcome(Some(gain), 8), true).is_ok());
        let unsure = Gain { low: -0.1, ..gain };
        assert!(gained(&outcome(Some(unsure), 8), true).unwrap_err().starts_with("no improvement"));
    }
}
