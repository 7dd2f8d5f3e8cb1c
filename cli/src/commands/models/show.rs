//! `riverrun models show`.

use riverrun_api::wire::{Items, ModelCardView, ModelEntry};
use serde_json::{Value, json};

use super::probe;
use crate::client::with_query;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::Output;

/// What is known of a model, and what was measured of it on each machine, the newest first.
pub async fn run(
    connection: &Connection,
    model: &str,
    provider: Option<String>,
    output: Output,
) -> Result<(), CliError> {
    let provider = provider.unwrap_or_else(|| "local".to_owned());
    let client = &connection.client;
    let listed: Items<ModelEntry> = client.get(&with_query("/models", &[("provider", Some(provider.clone()))])).await?;
    let entry = listed.items.into_iter().find(|entry| entry.name == model).ok_or_else(|| {
        CliError::new(Exit::Refused, format!("there is no model {model:?} at {provider}"))
            .hint(format!("riverrun models --provider {provider} lists them"))
    })?;
    let about = [("provider", Some(provider)), ("model", Some(model.to_owned()))];
    let cards: Items<ModelCardView> = client.get(&with_query("/models/cards", &about)).await?;
    let mut shown = serde_json::to_value(&entry).map_err(std::io::Error::other)?;
    shown["cards"] = json!(cards.items);
    output.show(&shown, |shown| people(shown, &cards.items))
}

fn people(shown: &Value, cards: &[ModelCardView]) -> String {
    let line = |name: &str, value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(format!("{name}: {text}")),
        other => Some(format!("{name}: {other}")),
    };
    let fields = shown.as_object().into_iter().flatten().filter(|(name, _)| *name != "cards");
    let mut lines: Vec<String> = fields.filter_map(|(name, value)| line(name, value)).collect();
    for card in cards {
        lines.push(String::new());
        lines.push(probe::people(card));
    }
    if cards.is_empty() {
        lines.push("card: none; riverrun models probe measures one".to_owned());
    }
    lines.join("\n")
}
