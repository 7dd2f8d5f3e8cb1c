//! Why something about a project can't be done.

use riverrun_knowledge::sources::SourceError;
use riverrun_log::BlobError;
use riverrun_models::ModelError;
use riverrun_schemas::Failure;

/// Why something about a project can't be done.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// The source can't be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The copy can't be read or written.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The model does not answer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Something about the project itself.
    #[error("{message}")]
    Refused {
        /// Stable, lower snake case.
        code: &'static str,
        /// What failed, on what.
        message: String,
        /// The fix.
        hint: String,
    },
}

impl ProjectError {
    /// A refusal.
    pub fn refused(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { code, message: message.into(), hint: hint.into() }
    }

    /// Whether the same may succeed later.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Blob(error) if error.retryable())
    }

    /// As events carry it.
    pub fn failure(&self) -> Failure {
        match self {
            Self::Source(error) => error.failure(),
            Self::Blob(error) => Failure::new(error.code(), error.to_string()),
            Self::Model(error) => {
                Failure { code: error.code().to_owned(), message: error.to_string(), hint: error.hint() }
            }
            Self::Refused { code, message, hint } => Failure::new(*code, message.clone()).with_hint(hint.clone()),
        }
    }
}
