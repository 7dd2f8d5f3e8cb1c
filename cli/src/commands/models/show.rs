//! `riverrun models show`.

use riverrun_api::routes::models::entry;
use serde_json::{Value, json};

use crate::error::{CliError, Exit};
use crate::host;
use crate::output::Output;
use crate::settings::Settings;

/// What is known of a model, and what was measured of it.
pub async fn run(settings: &Settings, model: &str, provider: Option<&str>, output: Output) -> Result<(), CliError> {
    let core = host::core(settings)?;
    let models = core.models();
    let failed = |error: riverrun_models::ModelError| {
        let exit = if error.retryable() { Exit::ServiceDown } else { Exit::Refused };
        CliError::new(exit, error.to_string()).maybe_hint(error.hint())
    };
    let listed = models.list_models(Some(provider.unwrap_or("local"))).await.map_err(failed)?;
    let info = listed.into_iter().find(|info| info.name == model).ok_or_else(|| {
        CliError::new(Exit::Refused, format!("there is no model {model:?}")).hint("riverrun models lists them")
    })?;
    let card = models.card(&info.provider, &info.name);
    let mut shown = serde_json::to_value(entry(info)).map_err(std::io::Error::other)?;
    shown["card"] = json!(card);
    output.show(&shown, people)
}

fn people(shown: &Value) -> String {
    let line = |name: &str, value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(format!("{name}: {text}")),
        other => Some(format!("{name}: {other}")),
    };
    let fields = shown.as_object().into_iter().flatten().filter(|(name, _)| *name != "card");
    let mut lines: Vec<String> = fields.filter_map(|(name, value)| line(name, value)).collect();
    match shown["card"].as_object() {
        Some(card) => lines.extend(card.iter().filter_map(|(name, value)| line(&format!("card.{name}"), value))),
        None => lines.push("card: none; riverrun models probe measures one".to_owned()),
    }
    lines.join("\n")
}
