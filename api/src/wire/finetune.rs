//! Fine-tuning: what is asked, and what is streamed.

use riverrun_stores::read_models::{JobView, StepLossView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Adapters; what is left out has its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoraBody {
    /// Rows of the smaller matrices, 1 to 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// How strongly adapters count, over the rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Part of the input that adapters do not see in training, below 0.9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<f32>,
    /// `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`, `up_proj`, `down_proj`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<String>>,
}

/// A training that is asked for; what is left out has its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinetuneBody {
    /// The model that comes out.
    pub name: String,
    /// `sft_lora` or `dpo`; `qlora` and `rlhf` need a CUDA GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Name of a dataset.
    pub dataset: String,
    /// A local chat model; the default one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_model: Option<String>,
    /// Steps at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u64>,
    /// Adapters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraBody>,
    /// The highest learning rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Examples of a pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// Passes of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulation: Option<usize>,
    /// Tokens of an example at most; longer ones are left out and counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_len: Option<usize>,
    /// Everything that is drawn follows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether a version must be surely better than its base on what was held out to be ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_gain: Option<bool>,
}

/// What a training will take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EstimateView {
    /// Steps.
    pub steps: u64,
    /// How often each example comes.
    pub epochs: f64,
    /// Numbers that are trained.
    pub trainable_parameters: u64,
    /// Seconds.
    pub seconds: f64,
    /// With an idle machine.
    pub seconds_low: f64,
    /// With a busy one.
    pub seconds_high: f64,
    /// Bytes at the peak.
    pub memory_bytes: u64,
    /// Bytes that may be taken now; null where the system does not say.
    pub memory_available_bytes: Option<u64>,
    /// Whether the one is below the other.
    pub fits: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A training that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FinetuneJobAccepted {
    /// Its id.
    pub job_id: String,
    /// Where it is told of.
    pub stream: String,
}

/// A wish to stop that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FinetuneCancelled {
    /// The training.
    pub job_id: String,
}

/// A way of teaching.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MethodEntry {
    /// Its name.
    pub name: String,
    /// Whether this machine can do it.
    pub available: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a training has that says nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FinetuneDefaults {
    /// The model that is trained.
    pub base_model: String,
    /// Models of this machine that can be asked for.
    pub base_models: Vec<String>,
    /// Ways of teaching.
    pub methods: Vec<MethodEntry>,
    /// Steps.
    pub max_steps: u64,
    /// Adapters.
    pub lora: LoraBody,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// Examples of a pass.
    pub batch_size: usize,
    /// Tokens of an example at most.
    pub seq_len: usize,
    /// What is drawn follows from it.
    pub seed: u64,
}

/// What a version is to be for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageBody {
    /// `ready`, `retired` or `candidate`.
    pub stage: String,
}

/// What `/ws/finetune/{id}` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FinetuneMessage {
    /// The training as it is now.
    Start {
        /// It.
        job: Box<JobView>,
    },
    /// A step is done.
    Progress {
        /// The step's number: from 1, without gaps.
        seq: i64,
        /// Steps at most.
        max_steps: i64,
        /// Its numbers.
        #[serde(flatten)]
        step: StepLossView,
    },
    /// The training as it ended.
    Final {
        /// It.
        job: Box<JobView>,
    },
}
