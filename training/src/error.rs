//! What can go wrong in training, and what to do about it.

use std::path::{Path, PathBuf};

use crate::dataset::DatasetError;

/// Training could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    /// The method needs hardware that is not there.
    #[error("method {method} can't run here: CUDA GPU is required")]
    CudaRequired {
        /// `qlora` or `rlhf`.
        method: String,
    },
    /// The dataset is not one.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A setting is out of its range, or does not fit the others.
    #[error("{field}: {reason}")]
    Setting {
        /// The setting's name in the request.
        field: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// The base model's files can't be used for training.
    #[error("base model in {path} can't be trained: {reason}", path = path.display())]
    Base {
        /// Its folder or file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The training needs more memory than there is.
    #[error("training needs about {needed} bytes of memory, and {available} are available")]
    DoesNotFit {
        /// Bytes.
        needed: u64,
        /// Bytes.
        available: u64,
    },
    /// The loss is not a number any more.
    #[error("the loss of step {step} is not finite")]
    Diverged {
        /// Counts from 1.
        step: u64,
    },
    /// A checkpoint can't be gone on from.
    #[error("checkpoint {path} can't be used: {reason}", path = path.display())]
    Checkpoint {
        /// Its folder.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{what} {path} failed: {source}", path = path.display())]
    Io {
        /// What was done, for example `reading`.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody wanted it to stop.
    #[error("cancelled")]
    Cancelled,
    /// The arithmetic failed: a defect, or a damaged model.
    #[error("computation failed: {0}")]
    Compute(String),
}

impl From<candle_core::Error> for TrainingError {
    fn from(error: candle_core::Error) -> Self {
        Self::Compute(error.to_string())
    }
}

impl TrainingError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn base(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Base { path: path.to_path_buf(), reason: reason.to_string() }
    }

    /// Stable code for answers and events.
    pub fn code(&self) -> &'static str {
        match self {
            Self::CudaRequired { .. } => "cuda_required",
            Self::Dataset(_) => "invalid_dataset",
            Self::Setting { .. } => "invalid_request",
            Self::Base { .. } => "base_model_unusable",
            Self::DoesNotFit { .. } => "does_not_fit",
            Self::Diverged { .. } => "training_diverged",
            Self::Checkpoint { .. } => "checkpoint_unusable",
            Self::Io { .. } => "training_io_failed",
            Self::Cancelled => "cancelled",
            Self::Compute(_) => "training_failed",
        }
    }

    /// Whether the same call may succeed later without anybody doing anything else than making room.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Io { .. })
    }

    /// The fix, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::CudaRequired { .. } => Some("use sft_lora or dpo, which train on a CPU".to_owned()),
            Self::Dataset(_) => Some("correct the lines that are named and hand the file in again".to_owned()),
            Self::Base { .. } => {
                Some("use a base model of the llama or qwen2 family that `riverrun models` lists as present".to_owned())
            }
            Self::DoesNotFit { .. } => Some("lower seq_len or batch_size, or take a smaller base model".to_owned()),
            Self::Diverged { .. } => Some("lower learning_rate, or look for broken examples in the dataset".to_owned()),
            Self::Checkpoint { path, .. } => {
                Some(format!("remove {} and the training starts again from its first step", path.display()))
            }
            Self::Io { .. } => Some("make room on the disk of RIVERRUN_DATA_DIR".to_owned()),
            Self::Setting { .. } | Self::Cancelled | Self::Compute(_) => None,
        }
    }
}
