//! From a request to what a training does. Pure, but for looking at the base model.

use std::path::PathBuf;

use riverrun_models::{Models, Presence};
use riverrun_schemas::not_there;
use riverrun_stores::read_models::DatasetView;
use riverrun_training::dataset::Format;
use riverrun_training::estimate::{self, Estimate, Load};
use riverrun_training::text::Widths;
use riverrun_training::{LoraSettings, Method, Plan, Target, TrainingError, base, export};

use crate::error::ApiError;
use crate::wire::{EstimateView, FinetuneBody, LoraBody};

/// The plan of a request. What needs a GPU is refused first: nothing else about it would help.
pub(super) fn plan_of(body: &FinetuneBody) -> Result<Plan, ApiError> {
    let usual = Plan::default();
    let method = match body.method.as_deref() {
        None => usual.method,
        Some(name) => Method::by_name(name)
            .ok_or_else(|| ApiError::field("method", not_there(name, Method::ALL.map(Method::as_str))))?,
    };
    method.check()?;
    export::check_name(&body.name)?;
    let max_steps = body.max_steps.unwrap_or(usual.max_steps);
    let plan = Plan {
        method,
        lora: lora(body.lora.as_ref())?,
        learning_rate: body.learning_rate.unwrap_or(match method {
            Method::Dpo | Method::Rlhf => 5e-5,
            Method::SftLora | Method::Qlora => usual.learning_rate,
        }),
        max_steps,
        batch_size: body.batch_size.unwrap_or(usual.batch_size),
        accumulation: body.accumulation.unwrap_or(usual.accumulation),
        seq_len: body.seq_len.unwrap_or(usual.seq_len),
        seed: body.seed.unwrap_or(usual.seed),
        require_gain: body.require_gain.unwrap_or(usual.require_gain),
        // A tenth of a short training, as of a long one no more than usual.
        warmup_steps: usual.warmup_steps.min(max_steps / 10),
        ..usual
    };
    plan.check()?;
    Ok(plan)
}

fn lora(body: Option<&LoraBody>) -> Result<LoraSettings, ApiError> {
    let usual = LoraSettings::default();
    let Some(body) = body else { return Ok(usual) };
    let targets = match &body.targets {
        None => usual.targets,
        Some(names) => names
            .iter()
            .map(|name| {
                Target::by_name(name)
                    .ok_or_else(|| ApiError::field("lora.targets", not_there(name, Target::ALL.map(Target::as_str))))
            })
            .collect::<Result<_, _>>()?,
    };
    Ok(LoraSettings {
        rank: body.rank.unwrap_or(usual.rank),
        alpha: body.alpha.unwrap_or(usual.alpha),
        dropout: body.dropout.unwrap_or(usual.dropout),
        targets,
    })
}

/// The model of a request, without the name of its provider.
pub(super) fn base_model(body: &FinetuneBody, models: &Models) -> String {
    let name = body.base_model.as_deref().unwrap_or_else(|| models.default_chat_model());
    name.strip_prefix("local/").unwrap_or(name).to_owned()
}

/// Where the base model is, when it is here.
pub(super) fn base_folder(models: &Models, name: &str) -> Result<Option<PathBuf>, ApiError> {
    Ok(match models.presence(&format!("local/{name}"))? {
        Presence::Present { path } => Some(path),
        Presence::Missing { .. } => None,
    })
}

/// Refuses a dataset that the method can't learn from.
pub(super) fn check_format(plan: &Plan, dataset: &DatasetView) -> Result<(), ApiError> {
    let format = Format::by_name(&dataset.format)
        .ok_or_else(|| ApiError::internal(format!("dataset {} has the format {}", dataset.name, dataset.format)))?;
    Ok(plan.method.check_format(format)?)
}

/// How long the examples are, as far as that is known.
pub(super) fn load(plan: &Plan, dataset: &DatasetView) -> Load {
    let number = |name: &str| dataset.tokens.as_ref().and_then(|tokens| tokens[name].as_u64());
    let longest = number("max").unwrap_or(plan.seq_len as u64);
    let mean = number("total").map(|total| total as f64 / dataset.examples.max(1) as f64);
    Load {
        train: u64::try_from(dataset.train_examples).unwrap_or_default(),
        held_out: u64::try_from(dataset.eval_examples).unwrap_or_default(),
        mean_tokens: mean.unwrap_or(plan.seq_len as f64 / 2.0),
        longest,
        // Datasets that are older than these numbers have none.
        widths: number("shared").zip(number("widest")).zip(number("scored")).map(|((shared, widest), scored)| Widths {
            shared,
            widest,
            scored,
        }),
    }
}

/// Measures the machine and estimates.
pub(super) async fn estimated(plan: Plan, load: Load, folder: PathBuf) -> Result<Estimate, ApiError> {
    let work = move || -> Result<Estimate, TrainingError> {
        let measures = base::measure(&folder)?;
        let speed = estimate::measure_speed()?;
        Ok(estimate::estimate(&measures, &plan, load, speed, estimate::available_bytes()))
    };
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| ApiError::internal("the estimate broke off"))??)
}

pub(super) fn view(estimate: Estimate) -> EstimateView {
    EstimateView {
        steps: estimate.steps,
        epochs: estimate.epochs,
        trainable_parameters: estimate.trainable_parameters,
        seconds: estimate.seconds,
        seconds_low: estimate.seconds_low,
        seconds_high: estimate.seconds_high,
        memory_bytes: estimate.memory_bytes,
        memory_available_bytes: estimate.memory_available_bytes,
        fits: estimate.fits,
        reason: estimate.reason,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plan(body: Value) -> Result<Plan, ApiError> {
        plan_of(&serde_json::from_value(body).unwrap())
    }

    #[test]
    fn given_requests_that_can_not_be_then_the_field_is_named() {
        for (body, field) in [
            (json!({"name": "a", "dataset": "d", "method": "magic"}), "method"),
            (json!({"name": "../a", "dataset": "d"}), "name"),
            (json!({"name": "a@2", "dataset": "d"}), "name"),
            (json!({"name": "a", "dataset": "d", "max_steps": 0}), "max_steps"),
            (json!({"name": "a", "dataset": "d", "batch_size": 0}), "batch_size"),
            (json!({"name": "a", "dataset": "d", "seq_len": 4}), "seq_len"),
            (json!({"name": "a", "dataset": "d", "learning_rate": -1.0}), "learning_rate"),
            (json!({"name": "a", "dataset": "d", "lora": {"rank": 0}}), "lora.rank"),
            (json!({"name": "a", "dataset": "d", "lora": {"targets": ["x"]}}), "lora.targets"),
            (json!({"name": "a", "dataset": "d", "lora": {"dropout": 0.95}}), "lora.dropout"),
        ] {
            let problem = plan(body.clone()).unwrap_err().problem();
            assert_eq!((problem.status, problem.errors[0].field.as_str()), (422, field), "{body}");
        }
    }

    #[test]
    fn given_a_method_that_needs_a_gpu_then_that_is_said_before_anything_else() {
        for method in ["qlora", "rlhf"] {
            let problem = plan(json!({"name": "../a", "dataset": "", "method": method})).unwrap_err().problem();
            assert_eq!((problem.status, problem.code.as_str()), (422, "cuda_required"));
            assert!(problem.detail.contains("CUDA GPU is required"), "{problem:?}");
        }
    }

    #[test]
    fn given_little_then_the_rest_has_defaults_and_a_short_training_a_short_warm_up() {
        let short = plan(json!({"name": "a", "dataset": "d", "max_steps": 20, "lora": {"rank": 4}})).unwrap();
        assert_eq!((short.max_steps, short.warmup_steps, short.lora.rank, short.lora.targets.len()), (20, 2, 4, 7));
        assert_eq!(plan(json!({"name": "a", "dataset": "d"})).unwrap(), Plan::default());
    }
}
