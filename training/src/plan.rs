//! What a training does: its method and its numbers.

use serde::{Deserialize, Serialize};

use crate::dataset::Format;
use crate::device::device_of;
use crate::error::TrainingError;
use crate::lora::LoraSettings;
use crate::optimizer::Schedule;

/// Most steps of a training.
pub const MAX_STEPS: u64 = 100_000;
const MAX_BATCH: usize = 256;
const MAX_SEQUENCE: usize = 8192;

/// How a model is taught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// To write the completions of examples, with adapters.
    SftLora,
    /// To prefer one answer to another, with adapters.
    Dpo,
    /// Like `sft_lora` over a base in four bits; needs a CUDA GPU.
    Qlora,
    /// By the feedback of a reward model; needs a CUDA GPU.
    Rlhf,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 4] = [Method::SftLora, Method::Dpo, Method::Qlora, Method::Rlhf];

    /// Its name in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::SftLora => "sft_lora",
            Method::Dpo => "dpo",
            Method::Qlora => "qlora",
            Method::Rlhf => "rlhf",
        }
    }

    /// The method of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// Refuses what this machine, or this build, can't do.
    pub fn check(self) -> Result<(), TrainingError> {
        device_of(self).map(drop)
    }

    /// Refuses examples that it can't learn from.
    pub fn check_format(self, format: Format) -> Result<(), TrainingError> {
        let fits = match self {
            Method::Dpo | Method::Rlhf => format == Format::Dpo,
            Method::SftLora | Method::Qlora => format != Format::Dpo,
        };
        if fits {
            return Ok(());
        }
        let reason = format!("holds {} examples, which {} can't learn from", format.as_str(), self.as_str());
        Err(TrainingError::Setting { field: "dataset", reason })
    }
}

/// Everything that decides what comes out, beside the base model and the examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// How the model is taught.
    pub method: Method,
    /// The adapters.
    pub lora: LoraSettings,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// Steps.
    pub max_steps: u64,
    /// Examples of a pass.
    pub batch_size: usize,
    /// Passes of a step.
    pub accumulation: usize,
    /// Tokens of an example at most; longer ones are left out, and counted.
    pub seq_len: usize,
    /// Everything that is drawn follows from it.
    pub seed: u64,
    /// Steps in which the learning rate rises.
    pub warmup_steps: u64,
    /// How strongly weights are drawn to 0.
    pub weight_decay: f64,
    /// Gradients of a step are no longer than this.
    pub max_grad_norm: f64,
    /// How strongly a preference, or a reward, holds on to the base model.
    pub dpo_beta: f64,
    /// Steps between two measurements on what was held out.
    pub eval_every: u64,
    /// Steps between two checkpoints.
    pub checkpoint_every: u64,
    /// Measurements without a gain before training stops early; 0 goes on to the end.
    pub patience: u32,
    /// Whether a version must be surely better than its base on what was held out to be ready.
    #[serde(default)]
    pub require_gain: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            method: Method::SftLora,
            lora: LoraSettings::default(),
            learning_rate: 2e-4,
            max_steps: 200,
            batch_size: 4,
            accumulation: 1,
            seq_len: 512,
            seed: 42,
            warmup_steps: 10,
            weight_decay: 0.0,
            max_grad_norm: 1.0,
            dpo_beta: 0.1,
            eval_every: 25,
            checkpoint_every: 25,
            patience: 4,
            require_gain: false,
        }
    }
}

impl Plan {
    /// Refuses what can't be.
    pub fn check(&self) -> Result<(), TrainingError> {
        self.method.check()?;
        self.lora.check()?;
        let faults = [
            (
                "learning_rate",
                self.learning_rate > 0.0 && self.learning_rate <= 1.0,
                format!("is {}, which is not above 0 and at most 1", self.learning_rate),
            ),
            (
                "max_steps",
                (1..=MAX_STEPS).contains(&self.max_steps),
                format!("is {}, which is not between 1 and 100000", self.max_steps),
            ),
            (
                "batch_size",
                (1..=MAX_BATCH).contains(&self.batch_size),
                format!("is {}, which is not between 1 and 256", self.batch_size),
            ),
            (
                "accumulation",
                (1..=MAX_BATCH).contains(&self.accumulation),
                format!("is {}, which is not between 1 and 256", self.accumulation),
            ),
            (
                "seq_len",
                (8..=MAX_SEQUENCE).contains(&self.seq_len),
                format!("is {}, which is not between 8 and 8192", self.seq_len),
            ),
            (
                "warmup_steps",
                self.warmup_steps <= self.max_steps,
                format!("is {}, which is more than max_steps, {}", self.warmup_steps, self.max_steps),
            ),
            (
                "weight_decay",
                (0.0..=1.0).contains(&self.weight_decay),
                format!("is {}, which is not between 0 and 1", self.weight_decay),
            ),
            ("max_grad_norm", self.max_grad_norm > 0.0, format!("is {}, which is not above 0", self.max_grad_norm)),
            (
                "dpo_beta",
                self.dpo_beta > 0.0 && self.dpo_beta <= 10.0,
                format!("is {}, which is not above 0 and at most 10", self.dpo_beta),
            ),
            ("eval_every", self.eval_every > 0, "is 0, which is not above 0".to_owned()),
            ("checkpoint_every", self.checkpoint_every > 0, "is 0, which is not above 0".to_owned()),
        ];
        match faults.into_iter().find(|(_, fits, _)| !fits) {
            None => Ok(()),
            Some((field, _, reason)) => Err(TrainingError::Setting { field, reason }),
        }
    }

    /// Examples of a step.
    pub fn examples_per_step(&self) -> usize {
        self.batch_size * self.accumulation
    }

    pub(crate) fn schedule(&self) -> Schedule {
        Schedule { learning_rate: self.learning_rate, warmup_steps: self.warmup_steps, max_steps: self.max_steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_values_at_their_bounds_when_a_plan_is_checked_then_what_is_said_of_those_refused_is_true() {
        let with_rate = |learning_rate: f64| Plan { learning_rate, ..Plan::default() };
        let with_beta = |dpo_beta: f64| Plan { dpo_beta, ..Plan::default() };
        for plan in [with_rate(1e-9), with_rate(1.0), with_beta(1e-9), with_beta(10.0)] {
            plan.check().unwrap();
        }
        for (plan, told) in [
            (with_rate(0.0), "learning_rate: is 0, which is not above 0 and at most 1"),
            (with_rate(1.5), "learning_rate: is 1.5, which is not above 0 and at most 1"),
            (with_beta(0.0), "dpo_beta: is 0, which is not above 0 and at most 10"),
            (with_beta(-1.0), "dpo_beta: is -1, which is not above 0 and at most 10"),
        ] {
            assert_eq!(plan.check().unwrap_err().to_string(), told);
        }
    }
}
