//! What can go wrong with a model, and what to do about it.

use std::time::Duration;

use thiserror::Error;

/// A failure of a provider. The message says what failed and the value; [`ModelError::hint`] says what to do.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// The server does not answer.
    #[error("model runtime {provider:?} at {address} does not answer: {reason}")]
    RuntimeDown {
        /// The provider's name.
        provider: String,
        /// The address that was tried.
        address: String,
        /// What the attempt ended with.
        reason: String,
        /// What to do.
        fix: String,
    },
    /// The model is not there.
    #[error("model {model:?} is not there: {reason}")]
    ModelMissing {
        /// The name that was asked for.
        model: String,
        /// Where was looked.
        reason: String,
        /// What to do.
        fix: String,
    },
    /// The model's files are there and cannot be used.
    #[error("model {model:?} can't be loaded from {path}: {reason}")]
    ModelUnreadable {
        /// The model's name.
        model: String,
        /// The file or folder.
        path: String,
        /// What is wrong with it.
        reason: String,
        /// What to do where fetching it again is not the answer.
        fix: Option<String>,
    },
    /// The key is missing or refused.
    #[error("provider {provider:?} refused the request: {reason}")]
    Unauthorized {
        /// The provider's name.
        provider: String,
        /// What it said.
        reason: String,
        /// The setting that holds the key.
        setting: String,
        /// What to do where another key is not the answer.
        fix: Option<String>,
    },
    /// Too many requests, there or in our own queue.
    #[error("provider {provider:?} is at its limit: {reason}")]
    RateLimited {
        /// The provider's name.
        provider: String,
        /// What it said.
        reason: String,
        /// When to try again, where it tells.
        retry_after: Option<Duration>,
    },
    /// The prompt does not fit.
    #[error("the prompt has {tokens} tokens and does not fit the context of {limit} tokens of model {model:?}")]
    ContextOverflow {
        /// The model's name.
        model: String,
        /// Tokens of the prompt; 0 where the provider does not tell.
        tokens: usize,
        /// Tokens that the context holds; 0 where the provider does not tell.
        limit: usize,
    },
    /// The request is wrong.
    #[error("bad request to provider {provider:?}: {reason}")]
    BadRequest {
        /// The provider's name.
        provider: String,
        /// What is wrong.
        reason: String,
    },
    /// The provider answered with a failure or with something that is not its protocol.
    #[error("bad response from provider {provider:?}: {reason}")]
    BadResponse {
        /// The provider's name.
        provider: String,
        /// The HTTP status, where there is one.
        status: Option<u16>,
        /// What is wrong.
        reason: String,
    },
    /// No answer, or no further piece of it, in time.
    #[error("provider {provider:?} took longer than {} ms{}", .limit.as_millis(), .what)]
    Timeout {
        /// The provider's name.
        provider: String,
        /// The limit that passed.
        limit: Duration,
        /// What was waited for, with a leading space, or nothing.
        what: &'static str,
    },
    /// The caller cancelled something that has no partial result.
    #[error("cancelled")]
    Cancelled,
    /// The provider cannot do this at all.
    #[error("provider {provider:?} can't {what}")]
    Unsupported {
        /// The provider's name.
        provider: String,
        /// What was asked, as a verb.
        what: String,
    },
    /// There is no provider of this name.
    #[error("unknown provider {name:?}; known: {known}")]
    UnknownProvider {
        /// The name that was asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// The operator's own prices can't be read.
    #[error("setting RIVERRUN_MODEL_PRICES: {path:?} can't be read as a table of prices: {reason}")]
    BadPrices {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A defect, or a failure of this machine.
    #[error("model runtime failed: {reason}")]
    Internal {
        /// What failed.
        reason: String,
    },
}

impl ModelError {
    /// Stable code for programs, lower snake case.
    pub fn code(&self) -> &'static str {
        match self {
            ModelError::RuntimeDown { .. } => "model_runtime_down",
            ModelError::ModelMissing { .. } => "model_missing",
            ModelError::ModelUnreadable { .. } => "model_unreadable",
            ModelError::Unauthorized { .. } => "model_unauthorized",
            ModelError::RateLimited { .. } => "model_rate_limited",
            ModelError::ContextOverflow { .. } => "context_overflow",
            ModelError::BadRequest { .. } => "model_bad_request",
            ModelError::BadResponse { .. } => "model_bad_response",
            ModelError::Timeout { .. } => "model_timeout",
            ModelError::Cancelled => "model_cancelled",
            ModelError::Unsupported { .. } => "model_unsupported",
            ModelError::UnknownProvider { .. } => "unknown_provider",
            ModelError::BadPrices { .. } => "bad_prices",
            ModelError::Internal { .. } => "model_internal",
        }
    }

    /// The fix, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ModelError::RuntimeDown { fix, .. } | ModelError::ModelMissing { fix, .. } => Some(fix.clone()),
            ModelError::ModelUnreadable { model, fix, .. } => Some(fix.clone().unwrap_or_else(|| {
                format!("remove the folder and fetch the model again with `riverrun models pull {model}`")
            })),
            ModelError::Unauthorized { setting, fix, .. } => {
                Some(fix.clone().unwrap_or_else(|| format!("set {setting} to a valid key")))
            }
            ModelError::RateLimited { retry_after, .. } => Some(match retry_after {
                Some(wait) => format!("try again in {} s", wait.as_secs().max(1)),
                None => "try again later".to_owned(),
            }),
            ModelError::ContextOverflow { .. } => Some(
                "shorten the input, or raise RIVERRUN_MODEL_CONTEXT_TOKENS up to what the model was trained for"
                    .to_owned(),
            ),
            ModelError::Timeout { .. } => Some(
                "use a smaller model, or raise RIVERRUN_MODEL_TIMEOUT_MS or RIVERRUN_MODEL_IDLE_TIMEOUT_MS".to_owned(),
            ),
            ModelError::Unsupported { .. } => {
                Some("choose another provider; `riverrun providers` lists them".to_owned())
            }
            ModelError::UnknownProvider { .. } => Some("`riverrun providers` lists the providers".to_owned()),
            ModelError::BadPrices { .. } => Some(
                "name a file of the form that docs/models.md#cost shows, or unset RIVERRUN_MODEL_PRICES: the program has prices of its own"
                    .to_owned(),
            ),
            ModelError::BadResponse { .. } => Some(
                "look at what the server logs, or choose another model or provider; `riverrun providers` lists them"
                    .to_owned(),
            ),
            ModelError::BadRequest { .. } | ModelError::Cancelled | ModelError::Internal { .. } => None,
        }
    }

    /// Whether the same request may succeed later without any change.
    pub fn retryable(&self) -> bool {
        match self {
            ModelError::RuntimeDown { .. } | ModelError::RateLimited { .. } | ModelError::Timeout { .. } => true,
            ModelError::BadResponse { status, .. } => status.is_none_or(|status| status >= 500),
            ModelError::ModelMissing { .. }
            | ModelError::ModelUnreadable { .. }
            | ModelError::Unauthorized { .. }
            | ModelError::ContextOverflow { .. }
            | ModelError::BadRequest { .. }
            | ModelError::Cancelled
            | ModelError::Unsupported { .. }
            | ModelError::UnknownProvider { .. }
            | ModelError::BadPrices { .. }
            | ModelError::Internal { .. } => false,
        }
    }

    /// The same error, with what to do where it is about files that can't be used.
    pub(crate) fn or_fix(self, otherwise: impl FnOnce() -> String) -> Self {
        match self {
            ModelError::ModelUnreadable { model, path, reason, fix: None } => {
                ModelError::ModelUnreadable { model, path, reason, fix: Some(otherwise()) }
            }
            other => other,
        }
    }

    pub(crate) fn internal(reason: impl std::fmt::Display) -> Self {
        ModelError::Internal { reason: reason.to_string() }
    }

    pub(crate) fn bad_request(provider: &str, reason: impl std::fmt::Display) -> Self {
        ModelError::BadRequest { provider: provider.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn bad_response(provider: &str, status: Option<u16>, reason: impl std::fmt::Display) -> Self {
        ModelError::BadResponse { provider: provider.to_owned(), status, reason: reason.to_string() }
    }

    pub(crate) fn unsupported(provider: &str, what: &str) -> Self {
        ModelError::Unsupported { provider: provider.to_owned(), what: what.to_owned() }
    }
}
