//! What the read model of fine-tuning shows.

use riverrun_schemas::BlobRef;
use riverrun_schemas::finetune::ModelStage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::read_models::run_views::FailureView;
use crate::read_models::time::Timestamp;

/// Ids of runs that are told one by one; all of them are in the dataset's lines.
pub const MAX_RUNS_TOLD: usize = 100;

/// The runs that examples were made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetRunsView {
    /// What was asked for.
    pub conditions: String,
    /// How many runs there are.
    pub count: i64,
    /// The first hundred of them. All are in the dataset's lines, each beside its example: `dataset.jsonl` of a version.
    pub run_ids: Vec<String>,
}

impl DatasetRunsView {
    /// Of all the runs of a dataset.
    pub fn of(conditions: String, runs: &[String]) -> Self {
        let count = i64::try_from(runs.len()).unwrap_or(i64::MAX);
        Self { conditions, count, run_ids: runs.iter().take(MAX_RUNS_TOLD).cloned().collect() }
    }

    /// As the event of the dataset keeps it: a remark about the whole.
    pub fn remark(&self) -> Value {
        json!({ "line": null, "reason": format!("made of {}: {}", riverrun_schemas::counted(self.count, "run"), self.conditions), (RUNS): self })
    }

    /// Takes it from among the remarks.
    pub fn take(remarks: &mut Value) -> Option<Self> {
        let list = remarks.as_array_mut()?;
        let at = list.iter().position(|remark| remark.get(RUNS).is_some())?;
        serde_json::from_value(list.remove(at)[RUNS].take()).ok()
    }

    /// From the plan of a training, where the dataset's are kept beside its numbers.
    pub fn of_plan(plan: &Value) -> Option<Self> {
        serde_json::from_value(plan.get(RUNS)?.clone()).ok()
    }
}

/// Where runs stand in a remark and in a plan.
pub const RUNS: &str = "runs";

/// A dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetView {
    /// Its name.
    pub name: String,
    /// `sft`, `dpo` or `chat`.
    pub format: String,
    /// Hash of its examples.
    pub sha256: String,
    /// How many there are.
    pub examples: i64,
    /// Those that are trained on with the usual seed.
    pub train_examples: i64,
    /// Those that are held out with it.
    pub eval_examples: i64,
    /// Lines that were left out because they are there already.
    pub duplicates: i64,
    /// Bytes of its examples.
    pub size_bytes: i64,
    /// `{min, p50, p95, max, total}` in tokens of the base model, and `{shared, widest, scored}` of a pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub tokens: Option<Value>,
    /// `[{line, reason}]`, the first hundred; `line` is null where it is about the whole.
    #[schema(value_type = Vec<Object>)]
    pub warnings: Value,
    /// The runs that it was made of, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<DatasetRunsView>,
    /// When it was handed in.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// A training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Its id.
    pub job_id: String,
    /// The model that comes out.
    pub name: String,
    /// `sft_lora` or `dpo`.
    pub method: String,
    /// Name of its dataset.
    pub dataset: String,
    /// Hash of its examples.
    pub dataset_sha256: String,
    /// The model that is trained.
    pub base_model: String,
    /// `queued`, `running`, `succeeded`, `failed` or `cancelled`.
    pub status: String,
    /// Steps that are done.
    pub step: i64,
    /// Steps at most.
    pub max_steps: i64,
    /// Loss of the last step.
    pub loss: Option<f64>,
    /// The last loss on what was held out.
    pub eval_loss: Option<f64>,
    /// The rate of the last step.
    pub learning_rate: Option<f64>,
    /// Tokens that go through the network a second.
    pub tokens_per_s: Option<f64>,
    /// Seconds to the last step.
    pub eta_s: Option<f64>,
    /// Its numbers.
    #[schema(value_type = Object)]
    pub settings: Value,
    /// The version that came out, `name@number`.
    pub model: Option<String>,
    /// Why it failed.
    pub error: Option<FailureView>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When a worker took it first.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

impl JobView {
    /// Whether it has ended.
    pub fn ended(&self) -> bool {
        !matches!(self.status.as_str(), "queued" | "running")
    }
}

/// A step of a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepLossView {
    /// Counts from 1.
    pub step: i64,
    /// Mean loss of its examples.
    pub loss: f64,
    /// Its learning rate.
    pub learning_rate: f64,
    /// Tokens that go through the network a second.
    pub tokens_per_s: f64,
    /// Seconds to the last step.
    pub eta_s: f64,
    /// Loss on what was held out, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_loss: Option<f64>,
}

/// Whether a version does what its adapter did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GateView {
    /// Merged and adapter agree, and generation stops.
    pub passed: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A version of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelVersionView {
    /// The model.
    pub model: String,
    /// Counts from 1.
    pub version: i64,
    /// The model that was trained.
    pub base_model: String,
    /// How.
    pub method: String,
    /// Numbers by name.
    #[schema(value_type = Object)]
    pub metrics: Value,
    /// Name of its dataset, which another may have by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// Hash of the examples.
    pub dataset_sha256: String,
    /// The runs that the examples were made of, where they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<DatasetRunsView>,
    /// Hash of the adapter's matrices.
    pub adapter_sha256: String,
    /// Bytes of the merged model's file; of the adapter, where there is none.
    pub size_bytes: i64,
    /// The training that it came out of.
    pub job_id: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// `candidate`, `ready` or `retired`.
    pub stage: String,
    /// Whether it does what its adapter did.
    pub gate: GateView,
    /// What the model of a chat is called for this version.
    pub chat_model: String,
}

/// The files of a version's adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterFiles {
    /// Its matrices.
    pub weights: BlobRef,
    /// Its settings, as JSON.
    pub config: String,
}

/// The stage of a row, where this build knows it.
pub(crate) fn stage_name(stage: ModelStage) -> Option<&'static str> {
    match stage {
        ModelStage::Candidate | ModelStage::Ready | ModelStage::Retired => Some(stage.as_str()),
        ModelStage::Unknown => None,
    }
}
