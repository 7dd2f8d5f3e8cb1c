//! What a service's refusals and faults mean for whoever asked, and what to do about them.

use super::protocol::Fault;
use super::table::{Spec, Wire};
use super::{Remote, signed};
use crate::error::ModelError;
use crate::models::ProviderKind;

impl Remote {
    /// What a fault in a reply means.
    pub(super) fn faulty(&self, fault: Fault, model: &str) -> ModelError {
        match fault {
            Fault::Broken(reason) => self.server.bad_response(None, reason),
            Fault::Refused(reason) => ModelError::bad_request(self.spec.name, self.server.redact(&reason)),
            Fault::Busy(reason) => ModelError::RateLimited {
                provider: self.spec.name.to_owned(),
                reason: self.server.redact(&reason),
                retry_after: None,
            },
            Fault::Overflow { tokens, limit } => ModelError::ContextOverflow { model: model.to_owned(), tokens, limit },
        }
    }

    /// Turns the server's refusals into what they mean for the model that was asked for.
    pub(super) fn explain(&self, error: ModelError, model: &str) -> ModelError {
        let ollama = matches!(self.spec.wire, Wire::Ollama);
        match error {
            ModelError::ModelMissing { reason, fix, .. } => {
                let fix = if ollama { format!("`ollama pull {model}`") } else { fix };
                ModelError::ModelMissing { model: model.to_owned(), reason, fix }
            }
            ModelError::BadRequest { reason, .. } if ollama && reason.contains("does not support tools") => {
                self.unsupported(&format!("call tools with model {model:?}"))
            }
            ModelError::ContextOverflow { tokens, limit, .. } => {
                ModelError::ContextOverflow { model: model.to_owned(), tokens, limit }
            }
            other => signed::permitted(self.spec, other),
        }
    }
}

/// What to do when a service does not answer.
pub(super) fn fix(spec: &Spec) -> String {
    let setting = spec.address_setting();
    match (spec.wire, spec.kind) {
        (Wire::Ollama, _) => {
            format!(
                "start it with `ollama serve`, or set {setting} to its address, or unset that to use the in-process runtime"
            )
        }
        (_, ProviderKind::Hosted) => format!("check the network, or {setting} where it is set"),
        _ => format!("start the server, or set {setting} to its address"),
    }
}

/// Whether an error may mean that a text is too long. Services say so in words of their own; one that means something else comes again.
pub(super) fn is_of_the_texts(error: &ModelError) -> bool {
    const WORDS: [&str; 6] = ["token", "length", "long", "large", "exceed", "maximum"];
    let speaks_of_length = |reason: &str| {
        let reason = reason.to_lowercase();
        WORDS.iter().any(|word| reason.contains(word))
    };
    matches!(error, ModelError::ContextOverflow { .. })
        || matches!(error, ModelError::BadRequest { reason, .. } if speaks_of_length(reason))
}
