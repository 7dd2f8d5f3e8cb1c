//! `riverrun models probe`.

use riverrun_models::ModelCard;
use tokio_util::sync::CancellationToken;

use crate::error::{CliError, Exit};
use crate::host;
use crate::output::{Output, tell};
use crate::settings::Settings;
use crate::signals::Signals;

/// Measures a model with a few questions and keeps its card.
pub async fn run(settings: &Settings, model: &str, provider: Option<&str>, output: Output) -> Result<(), CliError> {
    let core = host::core(settings)?;
    let cancel = CancellationToken::new();
    let mut signals = Signals::listen()?;
    tell("asking the model a few questions");
    let measured = tokio::select! {
        measured = core.models().measure(provider, model, &cancel) => measured,
        () = signals.next() => {
            cancel.cancel();
            return Err(CliError::interrupted());
        }
    };
    let card = measured.map_err(|error| {
        let exit = if error.retryable() { Exit::ServiceDown } else { Exit::Refused };
        CliError::new(exit, error.to_string()).maybe_hint(error.hint())
    })?;
    output.show(&card, people)
}

fn people(card: &ModelCard) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "unknown".to_owned(), |rate| format!("{rate:.1}"));
    let context = card.context_tokens.map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string());
    format!(
        "{}/{}\ncontext: {context} tokens\nvalid JSON: {} of {}\nvalid tool calls: {} of {}\nprompt: {} tokens/s\nanswer: {} tokens/s",
        card.provider,
        card.model,
        card.valid_json,
        card.questions,
        card.valid_tool_calls,
        card.questions,
        rate(card.prompt_tokens_per_s),
        rate(card.tokens_per_s),
    )
}
