//! Fine-tuning: datasets, trainings and the models that came out. Events of a training are keyed by its id, a dataset by its
//! name, a model by its name: versions of a model count from 1 in the order of its partition. What models can do, trained here or
//! not, is beside them, keyed by `provider/model`, and so is what calls outside of runs used, keyed by namespace.

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::common::{BlobRef, Failure, Usage};
use crate::ids::{EventId, FinetuneId};
use crate::names::Namespace;

/// A model is to be trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartFinetune {
    /// The training.
    pub job_id: FinetuneId,
    /// The model that comes out.
    pub name: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Its examples as JSON lines; the hash is the dataset's.
    pub content: BlobRef,
    /// `sft`, `dpo` or `chat`.
    pub format: String,
    /// The model that is trained.
    pub base_model: String,
    /// Method and numbers, as JSON.
    pub plan_json: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

event_set! {
    /// What trainings are asked for.
    FinetuneCommand on FinetuneCommands;
    /// A model is to be trained.
    StartFinetune = "riverrun.finetune.StartFinetune", key |e| e.job_id.to_string(), id |e| EventId::derive(&[&e.job_id.to_string(), "start"]);
}

/// A dataset is there. Another one of the same name takes its place for trainings that come later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatasetRegistered {
    /// Its name.
    pub name: String,
    /// `sft`, `dpo` or `chat`.
    pub format: String,
    /// Its examples as JSON lines.
    pub content: BlobRef,
    /// How many.
    pub examples: i64,
    /// Those that are trained on with the usual seed.
    pub train_examples: i64,
    /// Those that are held out with it.
    pub eval_examples: i64,
    /// Lines that were left out because they are there already.
    pub duplicates: i64,
    /// Lengths in tokens of the base model, as JSON.
    pub tokens_json: Option<String>,
    /// Lines with reasons, as a JSON list.
    pub warnings_json: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A training will be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinetuneAccepted {
    /// The training.
    pub job_id: FinetuneId,
    /// The model that comes out.
    pub name: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Its examples as JSON lines.
    pub content: BlobRef,
    /// `sft`, `dpo` or `chat`.
    pub format: String,
    /// The model that is trained.
    pub base_model: String,
    /// Method and numbers, as JSON.
    pub plan_json: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

impl From<&StartFinetune> for FinetuneAccepted {
    fn from(command: &StartFinetune) -> Self {
        let StartFinetune { job_id, name, dataset, content, format, base_model, plan_json, at } = command.clone();
        Self { job_id, name, dataset, content, format, base_model, plan_json, at }
    }
}

/// A worker trains from here on; what others write with a lower epoch is void.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinetuneClaimed {
    /// The training.
    pub job_id: FinetuneId,
    /// Higher than that of every claim before.
    pub epoch: i64,
    /// Who.
    pub worker: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A step is done. After a takeover, steps behind the last checkpoint are told again, with the same losses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinetuneProgressed {
    /// The training.
    pub job_id: FinetuneId,
    /// The writer's claim.
    pub epoch: i64,
    /// Counts from 1.
    pub step: i64,
    /// Mean loss of the step's examples.
    pub loss: f64,
    /// Its learning rate.
    pub learning_rate: f64,
    /// Tokens that go through the network a second.
    pub tokens_per_s: f64,
    /// Seconds to the last step.
    pub eta_s: f64,
    /// Loss on what was held out, where it was measured.
    pub eval_loss: Option<f64>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A training is to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinetuneCancelRequested {
    /// The training.
    pub job_id: FinetuneId,
    /// Why.
    pub reason: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// How a training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinetuneOutcome {
    /// A version of a model came out.
    Succeeded,
    /// Nothing came out.
    Failed,
    /// Somebody stopped it.
    Cancelled,
    /// An end of a newer version.
    Unknown,
}

/// The one terminal event of a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinetuneFinished {
    /// The training.
    pub job_id: FinetuneId,
    /// The writer's claim.
    pub epoch: i64,
    /// How it ended.
    pub status: FinetuneOutcome,
    /// Steps that were taken.
    pub steps: i64,
    /// Loss of the last one.
    pub loss: Option<f64>,
    /// Loss on what was held out.
    pub eval_loss: Option<f64>,
    /// The version that came out, `name@number`.
    pub model: Option<String>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// A version of a model is there. Of one training there is one: what comes twice counts once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRegistered {
    /// The model.
    pub model: String,
    /// The training that it came out of.
    pub job_id: FinetuneId,
    /// The model that was trained.
    pub base_model: String,
    /// How.
    pub method: String,
    /// The dataset's hash.
    pub dataset_sha256: String,
    /// Numbers by name, as JSON.
    pub metrics_json: String,
    /// Its matrices, in the layout of PEFT.
    pub adapter: BlobRef,
    /// The settings beside them, as JSON.
    pub adapter_config: String,
    /// Bytes of the merged model's file; 0 where there is none.
    pub merged_bytes: i64,
    /// Whether merged and adapter agree, and generation stops.
    pub gate_passed: bool,
    /// Why not.
    pub gate_reason: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// What a version of a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelStage {
    /// It came out of a training.
    Candidate,
    /// It is the one to use.
    Ready,
    /// It is kept and not used.
    Retired,
    /// A stage of a newer version.
    Unknown,
}

impl ModelStage {
    /// The stages that can be asked for.
    pub const ALL: [ModelStage; 3] = [ModelStage::Candidate, ModelStage::Ready, ModelStage::Retired];

    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ModelStage::Candidate => "candidate",
            ModelStage::Ready => "ready",
            ModelStage::Retired => "retired",
            ModelStage::Unknown => "unknown",
        }
    }

    /// The stage of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == name)
    }
}

/// What a version is for was changed. `ready` counts only for a version that has passed its gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelStaged {
    /// The model.
    pub model: String,
    /// Counts from 1.
    pub version: i32,
    /// What for.
    pub stage: ModelStage,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// What a model can do was measured. The last of a model, its provider and a machine counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelProbed {
    /// The provider that ran it.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Processor and threads that the speeds belong to.
    pub machine: String,
    /// Tokens of prompt and answer together, as the provider tells, or as it was met.
    pub context_tokens: Option<i64>,
    /// Tokens of the longest prompt whose beginning the model still knew.
    pub usable_context_tokens: Option<i64>,
    /// Questions for each of the next two.
    pub questions: i64,
    /// Answers that were JSON of the schema that was asked for.
    pub valid_json: i64,
    /// Answers that called the offered tool with its argument.
    pub valid_tool_calls: i64,
    /// Tokens of a prompt a second.
    pub prompt_tokens_per_s: Option<f64>,
    /// Tokens of an answer a second, behind its first piece.
    pub tokens_per_s: Option<f64>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Models were called outside of runs: the sum of some calls of one account and model. What a run's agent used is in the run's own events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelUsed {
    /// One that comes twice is the same one.
    pub use_id: EventId,
    /// The namespace.
    pub namespace: Namespace,
    /// The conversation within it, where there is one.
    pub session: Option<String>,
    /// What for: `chat`, `embed`, `search`, `ask`, `memory`, `ingest`, `project`, `finetune`, `routing` or `probe`.
    pub purpose: String,
    /// The provider that answered.
    pub provider: String,
    /// The model's name there.
    pub model: String,
    /// How many calls this is the sum of.
    pub calls: i64,
    /// What they used.
    pub usage: Usage,
    /// Milliseconds since the epoch.
    pub at: i64,
}

macro_rules! id {
    ($($part:expr),+) => {
        EventId::derive(&[$(&$part.to_string()),+])
    };
}

event_set! {
    /// Events of fine-tuning.
    FinetuneEvent on FinetuneEvents;
    /// A dataset is there.
    DatasetRegistered = "riverrun.finetune.DatasetRegistered", key |e| e.name.clone(), id |e| id!("dataset", e.name, e.content.sha256, e.at);
    /// A training will be done.
    FinetuneAccepted = "riverrun.finetune.FinetuneAccepted", key |e| e.job_id.to_string(), id |e| id!(e.job_id, "accepted");
    /// A worker trains.
    FinetuneClaimed = "riverrun.finetune.FinetuneClaimed", key |e| e.job_id.to_string(), id |e| id!(e.job_id, "claimed", e.epoch);
    /// A step is done.
    FinetuneProgressed = "riverrun.finetune.FinetuneProgressed", key |e| e.job_id.to_string(), id |e| id!(e.job_id, "step", e.epoch, e.step);
    /// A training is to stop.
    FinetuneCancelRequested = "riverrun.finetune.FinetuneCancelRequested", key |e| e.job_id.to_string(), id |e| id!(e.job_id, "cancel", e.at);
    /// A training has ended.
    FinetuneFinished = "riverrun.finetune.FinetuneFinished", key |e| e.job_id.to_string(), id |e| id!(e.job_id, "finished", e.epoch);
    /// A version of a model is there.
    ModelRegistered = "riverrun.finetune.ModelRegistered", key |e| e.model.clone(), id |e| id!(e.job_id, "registered");
    /// What a version is for was changed.
    ModelStaged = "riverrun.finetune.ModelStaged", key |e| e.model.clone(), id |e| id!("staged", e.model, e.version, e.stage.as_str(), e.at);
    /// What a model can do was measured.
    ModelProbed = "riverrun.finetune.ModelProbed", key |e| format!("{}/{}", e.provider, e.model), id |e| id!("probed", e.provider, e.model, e.machine, e.at);
    /// Models were called outside of runs.
    ModelUsed = "riverrun.finetune.ModelUsed", key |e| format!("used/{}", e.namespace), id |e| e.use_id;
}
