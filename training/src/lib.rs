//! Fine-tuning on a CPU: datasets, low-rank adapters for Llama and Qwen2 models, checkpoints, export, measures. Nothing here knows the log: the
//! trainer worker tells it what happens. With the feature `cuda`, on a GPU also beside a base in four bits and
//! by rewards.
//!
//! Invariants:
//! - TRAIN-1: the same plan, examples, base and seed give the same losses, also when training was interrupted anywhere.
//! - TRAIN-2: only completions are learned, each with the token that ends it, as the base model's template writes them.
//! - TRAIN-3: a checkpoint is there wholly or not at all, and never ahead of the steps that were told.

pub mod base;
pub mod dataset;
pub mod estimate;
pub mod evaluate;
pub mod export;
pub mod query_adapter;
pub mod text;

mod checkpoint;
mod device;
mod error;
mod examples;
mod files;
mod gain;
mod lora;
mod network;
mod objective;
mod optimizer;
mod plan;
mod reinforce;
mod reward;
mod rng;
mod rollout;
mod trainer;

pub use base::BaseModel;
pub use checkpoint::is_begun;
pub use error::TrainingError;
pub use examples::{Examples, Sets, unfit};
pub use gain::{Gain, LEAST_HELD_OUT};
pub use lora::{LoraSettings, Target};
pub use plan::{MAX_STEPS, Method, Plan};
pub use trainer::{Outcome, StepReport, Trained, Watch, train};

#[cfg(test)]
mod gradient_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod trainer_tests;

#[cfg(test)]
#[path = "../../fuzz/harness.rs"]
mod fuzz;
#[cfg(test)]
mod fuzz_tests;
