//! `riverrun models rm`.

use serde_json::json;

use crate::error::{CliError, Exit};
use crate::host;
use crate::output::{Output, tell};
use crate::settings::Settings;

/// Removes a fetched model from the cache; the operator's own folder is never changed.
pub fn run(settings: &Settings, model: &str, output: Output) -> Result<(), CliError> {
    let core = host::core(settings)?;
    let bytes = core
        .models()
        .remove(model)
        .map_err(|error| CliError::new(Exit::Refused, error.to_string()).maybe_hint(error.hint()))?;
    tell(&format!("removed {model}: {} MB", bytes.div_ceil(1_000_000)));
    output.show(&json!({"model": model, "removed_bytes": bytes}), |_| String::new())
}
