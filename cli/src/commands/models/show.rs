//! `riverrun models show`.

use riverrun_api::wire::{Items, ModelCardView, ModelEntry, ProviderEntry};
use riverrun_models::listed_name;
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
    let client = &connection.client;
    let named = match provider {
        Some(provider) => (provider, model.to_owned()),
        None => split(model, &client.get::<Items<ProviderEntry>>("/providers").await?.items),
    };
    let (provider, model) = (named.0, named.1.as_str());
    let listed: Items<ModelEntry> = client.get(&with_query("/models", &[("provider", Some(provider.clone()))])).await?;
    let entry = listed.items.into_iter().find(|entry| is_meant(&entry.name, model)).ok_or_else(|| {
        CliError::new(Exit::Refused, format!("there is no model {model:?} at {provider}"))
            .hint(format!("riverrun models --provider {provider} lists them"))
    })?;
    // A card has the name that the model was asked by.
    let mut cards: Items<ModelCardView> = client.get(&cards_of(&provider, model)).await?;
    if cards.items.is_empty() && entry.name != model {
        cards = client.get(&cards_of(&provider, &entry.name)).await?;
    }
    let mut shown = serde_json::to_value(&entry).map_err(std::io::Error::other)?;
    shown["cards"] = json!(cards.items);
    output.show(&shown, |shown| people(shown, &cards.items))
}

fn cards_of(provider: &str, model: &str) -> String {
    with_query("/models/cards", &[("provider", Some(provider.to_owned())), ("model", Some(model.to_owned()))])
}

/// The provider of `provider/model`, else the in-process runtime.
fn split(model: &str, providers: &[ProviderEntry]) -> (String, String) {
    match model.split_once('/') {
        Some((provider, name)) if providers.iter().any(|known| known.name == provider) => {
            (provider.to_owned(), name.to_owned())
        }
        _ => ("local".to_owned(), model.to_owned()),
    }
}

/// Whether a listed name is that of a model by any name that it can be asked for by: one of the hub lies in a folder of its name, and Ollama
/// leaves out its usual tag.
fn is_meant(listed: &str, asked: &str) -> bool {
    listed == asked || listed_name(asked).as_deref() == Some(listed) || listed.strip_suffix(":latest") == Some(asked)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_names_that_a_model_can_be_asked_by_when_it_is_looked_for_then_each_finds_it() {
        assert!(is_meant("qwen2.5-0.5b-instruct", "qwen2.5-0.5b-instruct"));
        assert!(is_meant("o--r--sub--m.gguf", "o/r:sub/m.gguf") && is_meant("o--r", "o/r"));
        assert!(is_meant("o--r--m.gguf", "o/r:m-00002-of-00003.gguf") && is_meant("o--r--Q4_K_M", "o/r:q4_k_m"));
        assert!(is_meant("llama3:latest", "llama3") && !is_meant("llama3:70b", "llama3"));
    }

    #[test]
    fn given_a_provider_before_a_name_when_it_is_split_then_only_a_known_one_counts() {
        let known = ProviderEntry {
            name: "ollama".to_owned(),
            default: true,
            kind: "server".to_owned(),
            has_key: None,
            address: None,
        };
        let split = |model: &str| split(model, std::slice::from_ref(&known));
        assert_eq!(split("ollama/llama3"), ("ollama".to_owned(), "llama3".to_owned()));
        assert_eq!(split("owner/repo:m.gguf"), ("local".to_owned(), "owner/repo:m.gguf".to_owned()));
        assert_eq!(split("plain"), ("local".to_owned(), "plain".to_owned()));
    }
}
