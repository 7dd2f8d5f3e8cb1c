//! `riverrun finetune train`, `watch` and `cancel`.

use std::path::Path;
use std::time::Duration;

use riverrun_api::wire::{
    CancelBody, EstimateView, FinetuneBody, FinetuneCancelled, FinetuneJobAccepted, JobView, LoraBody, ModelVersionView,
};
use riverrun_schemas::counted;

use super::dataset::{Of, hand_in, read, tell_warnings};
use super::{TrainArgs, versions};
use crate::client::encode;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, tell};
use crate::progress;

/// How often a training is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long it may take until a training shows.
const FIRST_WORD: Duration = Duration::from_secs(60);

pub(super) async fn run(connection: &Connection, args: TrainArgs, output: Output) -> Result<(), CliError> {
    if args.detach && connection.is_hosting() {
        return Err(CliError::new(
            Exit::Usage,
            "--detach needs a running server: this command would end, and its training with it",
        )
        .hint("riverrun serve"));
    }
    let mut body = body(&args);
    // What can't be trained here is refused before a dataset is made of the file.
    if ["qlora", "rlhf"].contains(&args.method.as_str()) {
        let asked: Result<EstimateView, CliError> = connection.client.post("/finetune/estimate", &body).await;
        if let Some(refusal) = asked.err().filter(is_of_method) {
            return Err(refusal);
        }
    }
    body.dataset = dataset(connection, &args).await?;
    let estimate: Option<EstimateView> = match connection.client.post("/finetune/estimate", &body).await {
        Ok(estimate) => Some(estimate),
        Err(error) if args.estimate => return Err(or_no_file(error, &args.dataset)),
        Err(_) => None, // the training itself says what is wrong, or fetches the model that is missing
    };
    if args.estimate {
        return match estimate {
            Some(estimate) => output.show(&estimate, shown),
            None => Ok(()),
        };
    }
    if let Some(estimate) = &estimate {
        tell(&shown(estimate));
    }
    let accepted: FinetuneJobAccepted =
        connection.client.post("/finetune/jobs", &body).await.map_err(|error| or_no_file(error, &args.dataset))?;
    if args.detach {
        return output.show(&accepted, |accepted| accepted.job_id.clone());
    }
    tell(&format!("training {}", accepted.job_id));
    shows(connection, &accepted.job_id).await?;
    watch(connection, &accepted.job_id, output).await
}

/// Waits until a training that was just accepted can be looked at: what shows it may be behind the log on a machine that is busy.
async fn shows(connection: &Connection, job_id: &str) -> Result<(), CliError> {
    let since = tokio::time::Instant::now();
    let path = format!("/finetune/jobs/{}", encode(job_id));
    loop {
        match connection.client.get::<JobView>(&path).await {
            Err(error) if error.code.as_deref() == Some("finetune_job_not_found") && since.elapsed() < FIRST_WORD => {}
            seen => return seen.map(|_| ()),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// A dataset that is not there, as whoever may have meant a file reads it: of one that is there no name was asked for.
fn or_no_file(error: CliError, given: &str) -> CliError {
    if error.code.as_deref() != Some("dataset_not_found") {
        return error;
    }
    CliError { message: format!("{given:?} is neither a file that is here nor the name of a dataset"), ..error }
}

/// Whether it is the method that was refused, and not the dataset, which is not handed in yet.
fn is_of_method(error: &CliError) -> bool {
    error.code.as_deref() == Some("cuda_required")
}

/// The dataset's name; a file is handed in under the name of the model. A folder is none: it may happen to be called like a dataset.
async fn dataset(connection: &Connection, args: &TrainArgs) -> Result<String, CliError> {
    let path = Path::new(&args.dataset);
    if !path.exists() || path.is_dir() {
        return Ok(args.dataset.clone());
    }
    let usual = if ["dpo", "rlhf"].contains(&args.method.as_str()) { "dpo" } else { "sft" };
    let format = args.format.as_deref().unwrap_or(usual);
    let of = Of { format, base_model: args.base_model.as_deref(), from_runs: None };
    let view = hand_in(connection, &args.name, of, read(path).await?).await?;
    tell_warnings(&view);
    Ok(view.name)
}

fn body(args: &TrainArgs) -> FinetuneBody {
    let lora = LoraBody {
        rank: args.rank,
        alpha: args.alpha,
        dropout: args.dropout,
        targets: (!args.targets.is_empty()).then(|| args.targets.clone()),
    };
    FinetuneBody {
        name: args.name.clone(),
        method: Some(args.method.clone()),
        dataset: args.dataset.clone(),
        base_model: args.base_model.clone(),
        max_steps: args.max_steps,
        lora: Some(lora),
        learning_rate: args.learning_rate,
        batch_size: args.batch_size,
        accumulation: args.accumulation,
        seq_len: args.seq_len,
        seed: args.seed,
        require_gain: args.require_gain.then_some(true),
    }
}

fn shown(estimate: &EstimateView) -> String {
    let fits = match &estimate.reason {
        Some(reason) => format!("does not fit: {reason}"),
        None => "fits".to_owned(),
    };
    format!(
        "{}, {:.1} epochs, {}; about {} ({} to {}); {} MiB of memory at the peak, {fits}",
        counted(estimate.steps, "step"),
        estimate.epochs,
        counted(estimate.trainable_parameters, "trained number"),
        duration(estimate.seconds),
        duration(estimate.seconds_low),
        duration(estimate.seconds_high),
        estimate.memory_bytes >> 20,
    )
}

pub(super) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Follows a training to its end.
pub(super) async fn watch(connection: &Connection, job_id: &str, output: Output) -> Result<(), CliError> {
    let path = format!("/finetune/jobs/{}", encode(job_id));
    let mut job: JobView = connection.client.get(&path).await?;
    let bar = progress::bar(output, u64::try_from(job.max_steps).ok(), "steps");
    while !job.ended() {
        bar.set_position(u64::try_from(job.step).unwrap_or_default());
        bar.set_message(line(&job));
        tokio::time::sleep(LOOK_AGAIN).await;
        job = connection.client.get(&path).await?;
    }
    bar.finish_and_clear();
    output.show(&job, ended)?;
    if let (Some(version), false) = (&job.model, output.json) {
        let view: Result<ModelVersionView, CliError> = connection.client.get(&versions::place(version)?).await;
        // The training has ended well: that nobody can be asked about its version is no failure of it.
        if let Some(doubt) = view.ok().as_ref().and_then(versions::candidate) {
            tell(&doubt);
        }
    }
    outcome(&job)
}

/// Success, or why not.
fn outcome(job: &JobView) -> Result<(), CliError> {
    let listed = "riverrun finetune jobs";
    match &job.error {
        Some(error) => Err(CliError::new(Exit::of_failure(&error.code), error.message.clone())
            .hint(listed)
            .maybe_hint(error.hint.clone())),
        None if job.status == "cancelled" => {
            Err(CliError::new(Exit::Failed, format!("training {} was cancelled", job.job_id)).hint(listed))
        }
        None => Ok(()),
    }
}

fn line(job: &JobView) -> String {
    match (job.loss, job.eta_s) {
        (Some(loss), Some(eta)) => {
            let held_out = job.eval_loss.map_or(String::new(), |loss| format!(" · held out {loss:.4}"));
            format!(
                "loss {loss:.4}{held_out} · {:.0} tokens/s · {} left",
                job.tokens_per_s.unwrap_or_default(),
                duration(eta)
            )
        }
        _ => job.status.clone(),
    }
}

fn ended(job: &JobView) -> String {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
    let model = job.model.as_deref().map_or(String::new(), |model| format!("\nmodel      {model}"));
    format!(
        "training   {}\nstatus     {} after {} of {}\nloss       {} (held out {}){model}",
        job.job_id,
        job.status,
        job.step,
        counted(job.max_steps, "step"),
        number(job.loss),
        number(job.eval_loss)
    )
}

pub(super) async fn cancel(
    connection: &Connection,
    job_id: &str,
    reason: Option<String>,
    output: Output,
) -> Result<(), CliError> {
    let path = format!("/finetune/jobs/{}/cancel", encode(job_id));
    let done: FinetuneCancelled = connection.client.post(&path, &CancelBody { reason }).await?;
    output.show(&done, |done| format!("{} stops within a step", done.job_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_name_that_is_no_dataset_when_it_is_trained_on_then_the_file_that_may_have_been_meant_is_told_of() {
        let refused = |code: &str| {
            let hint = CliError::new(Exit::Refused, "refused").hint("riverrun finetune datasets");
            or_no_file(CliError { code: Some(code.to_owned()), ..hint }, "verses.jsonl")
        };
        let missing = refused("dataset_not_found");
        assert_eq!(missing.message, "\"verses.jsonl\" is neither a file that is here nor the name of a dataset");
        assert_eq!(missing.hint.as_deref(), Some("riverrun finetune datasets"), "what to do stays");
        assert_eq!(refused("model_missing").message, "refused");
    }

    #[test]
    fn given_a_server_that_has_a_gpu_when_the_dataset_is_not_there_yet_then_that_is_no_refusal_of_the_method() {
        let refused = |code: &str| CliError { code: Some(code.to_owned()), ..CliError::new(Exit::Failed, "refused") };
        assert!(is_of_method(&refused("cuda_required")));
        assert!(!is_of_method(&refused("dataset_not_found")));
    }

    #[test]
    fn given_a_training_that_ended_when_it_was_followed_then_the_exit_code_says_how() {
        let ended = |status: &str, code: Option<&str>| {
            let error = code.map(|code| serde_json::json!({ "code": code, "message": "it failed" }));
            let view = serde_json::json!({
                "job_id": "job_x", "name": "poet", "method": "sft_lora", "dataset": "verses", "dataset_sha256": "ab",
                "base_model": "small", "status": status, "step": 3, "max_steps": 9, "loss": null, "eval_loss": null,
                "learning_rate": null, "tokens_per_s": null, "eta_s": null, "settings": {}, "model": null, "error": error,
                "created_at": "2026-01-01T00:00:00Z", "started_at": null, "finished_at": null,
            });
            outcome(&serde_json::from_value(view).unwrap()).map_err(|error| (error.exit, error.hint.is_some()))
        };
        assert_eq!(ended("succeeded", None), Ok(()));
        assert_eq!(ended("cancelled", None), Err((Exit::Failed, true)));
        assert_eq!(ended("failed", Some("training_diverged")), Err((Exit::Failed, true)));
        assert_eq!(ended("failed", Some("model_missing")), Err((Exit::ServiceDown, true)));
    }

    #[test]
    fn given_seconds_then_people_can_read_them() {
        for (seconds, text) in [(0.2, "0 s"), (59.6, "1 min 0 s"), (125.0, "2 min 5 s"), (7_380.0, "2 h 3 min")] {
            assert_eq!(duration(seconds), text);
        }
    }
}
