//! What is particular to a provider whose requests may be signed instead of carrying a key.

use super::table::Spec;
use crate::error::ModelError;
use crate::http::sigv4::Signer;
use crate::settings::{ModelSettings, aws};

/// The name that Bedrock's requests are signed for.
const SIGNED_SERVICE: &str = "bedrock";
/// What AWS says to those that it knows and does not let in.
const FORBIDDEN: [&str; 3] = ["not authorized to perform", "have access to the model", "Model access is denied"];
/// What is to be done then.
const PERMISSION: &str = "let the identity do what the answer names (bedrock:InvokeModel and bedrock:InvokeModelWithResponseStream to chat, \
     bedrock:ListFoundationModels to list models), and the account use the model (Bedrock's console, model access)";

/// What signs requests to a provider, where that is so and everything is set.
pub(super) fn signer(spec: &Spec, settings: &ModelSettings) -> Option<Signer> {
    let (credentials, region) = (settings.aws.credentials.clone()?, settings.aws.region.clone()?);
    spec.is_signed().then_some(Signer { credentials, region, service: SIGNED_SERVICE })
}

/// Whether there is what signs, but for the region.
pub(super) fn lacks_region(spec: &Spec, settings: &ModelSettings) -> bool {
    spec.is_signed() && settings.aws.credentials.is_some() && settings.aws.region.is_none()
}

/// The settings that let requests in, for errors.
pub(super) fn key_setting(spec: &Spec, signed: bool) -> String {
    match spec.makers_key_setting() {
        Some(_) if signed => aws::CREDENTIALS.to_owned(),
        Some(makers) => format!("{} (or {makers}, or {} with {})", spec.key_setting(), aws::CREDENTIALS, aws::REGION),
        None => spec.key_setting(),
    }
}

/// Tells a key that may not do something from one that is wrong.
pub(super) fn permitted(spec: &Spec, error: ModelError) -> ModelError {
    match error {
        ModelError::Unauthorized { provider, reason, setting, .. }
            if spec.is_signed() && FORBIDDEN.iter().any(|words| reason.contains(words)) =>
        {
            ModelError::Unauthorized { provider, reason, setting, fix: Some(PERMISSION.to_owned()) }
        }
        other => other,
    }
}
