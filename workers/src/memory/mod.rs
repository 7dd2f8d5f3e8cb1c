//! The workers of memory: one puts runs into the conversations that they belong to, one keeps what can be recalled, one
//! writes summaries.
//!
//! Each has a consumer group of its own, so that a chat model that is down holds up summaries and nothing else. None of them
//! ever gives a conversation up: what fails because a model is away is tried until it is there again, and what was said is
//! in the tables meanwhile.

mod episodes;
mod recorder;
mod sessions;
mod summarizer;

use riverrun_log::LogError;
use riverrun_models::ModelError;

use crate::runtime::{RuntimeConfig, WorkError};

pub use episodes::EpisodeKeeper;
pub use recorder::RunRecorder;
pub use summarizer::Summarizer;

/// The loop's settings for workers of memory: a failure that may pass is tried without end.
pub fn patient(config: RuntimeConfig) -> RuntimeConfig {
    RuntimeConfig { max_attempts: u32::MAX, ..config }
}

/// A model that is away, missing or out of place comes back; a request that it refuses is refused for ever.
fn model_error(error: &ModelError) -> WorkError {
    match error {
        ModelError::ContextOverflow { .. } | ModelError::BadRequest { .. } => WorkError::poison(error.code(), error),
        ModelError::RuntimeDown { .. }
        | ModelError::ModelMissing { .. }
        | ModelError::ModelUnreadable { .. }
        | ModelError::Unauthorized { .. }
        | ModelError::RateLimited { .. }
        | ModelError::BadResponse { .. }
        | ModelError::Timeout { .. }
        | ModelError::Cancelled
        | ModelError::Unsupported { .. }
        | ModelError::UnknownProvider { .. }
        | ModelError::BadPrices { .. }
        | ModelError::Internal { .. } => WorkError::retry(error.code(), error),
    }
}

/// Reading the log fails for a while, never for ever.
fn log_error(error: &LogError) -> WorkError {
    WorkError::retry(error.code(), error)
}
