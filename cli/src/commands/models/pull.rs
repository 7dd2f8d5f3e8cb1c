//! `riverrun models pull`.

use riverrun_api::routes::models::entry;
use riverrun_models::{ModelError, default_progress};
use tokio_util::sync::CancellationToken;

use crate::error::{CliError, Exit};
use crate::host;
use crate::output::{Output, tell};
use crate::settings::Settings;
use crate::signals::Signals;

/// The models folder is shared by all processes of a user: no server is needed, and one that runs finds the model there.
pub async fn run(settings: &Settings, model: &str, output: Output) -> Result<(), CliError> {
    let core = host::core(settings)?;
    let (progress, cancel) = (default_progress(), CancellationToken::new());
    let mut signals = Signals::listen()?;
    let pulling = core.models().pull(model, &*progress, &cancel);
    let pulled = tokio::select! {
        pulled = pulling => pulled,
        () = signals.next() => {
            cancel.cancel();
            return Err(CliError::interrupted().hint("the next pull goes on where this one stopped"));
        }
    };
    let info = pulled.map_err(|error| {
        // As every other command says it of a model that can't be had.
        let gone = error.retryable() || matches!(error, ModelError::ModelMissing { .. });
        let exit = if gone { Exit::ServiceDown } else { Exit::Refused };
        CliError::new(exit, error.to_string()).maybe_hint(error.hint())
    })?;
    tell(&format!("{} is there", info.name));
    let shown = entry(info);
    output.show(&shown, |shown| shown.source.clone().unwrap_or_else(|| shown.name.clone()))
}
