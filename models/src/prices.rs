//! What model calls cost: a table that is data (`prices.toml`), and rows of the operator's in front of it.

use std::path::Path;

use serde::Deserialize;

use crate::error::ModelError;
use crate::provider::Usage;

/// Price lists are per so many tokens.
const PER: f64 = 1e6;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// The day on which the source said so.
    #[serde(rename = "as_of")]
    _as_of: String,
    /// Whose list it is, and who quoted it; an operator's own file may leave it out.
    #[serde(rename = "source", default)]
    _source: Option<String>,
    provider: String,
    prices: Vec<Price>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    model: String,
    /// The most tokens of a prompt that the row is for; longer ones have a row of their own behind it, or no known price.
    prompt_up_to: Option<u64>,
    /// US dollars for a million tokens read.
    input: f64,
    /// US dollars for a million tokens written.
    output: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    group: Vec<Group>,
}

/// All known prices.
#[derive(Debug, Default)]
pub(crate) struct Prices {
    groups: Vec<Group>,
}

impl Prices {
    /// The table of the program, behind that of a file of the same form.
    pub(crate) fn read(own: Option<&Path>) -> Result<Self, ModelError> {
        let mut groups = match own {
            None => Vec::new(),
            Some(path) => {
                let bad = |reason: String| {
                    ModelError::bad_request(
                        "prices",
                        format!("RIVERRUN_MODEL_PRICES: {} can't be read: {reason}", path.display()),
                    )
                };
                let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
                toml::from_str::<Table>(&text).map_err(|error| bad(error.message().to_owned()))?.group
            }
        };
        // The file is part of the program and a test reads it.
        let table: Table = toml::from_str(include_str!("../prices.toml")).expect("prices.toml is valid");
        groups.extend(table.group);
        Ok(Prices { groups })
    }

    /// US dollars of a call, where its price is known.
    pub(crate) fn cost(&self, provider: &str, model: &str, usage: Usage) -> Option<f64> {
        let groups = self.groups.iter().filter(|group| group.provider == provider);
        let price = groups.flat_map(|group| &group.prices).find(|price| price.holds_for(model, usage))?;
        let cost = usage.prompt_tokens as f64 * price.input + usage.completion_tokens as f64 * price.output;
        Some(cost / PER)
    }
}

impl Price {
    fn holds_for(&self, model: &str, usage: Usage) -> bool {
        is_version(&self.model, model) && self.prompt_up_to.is_none_or(|most| usage.prompt_tokens <= most)
    }
}

/// Whether `model` is the listed one or a dated or newest version of it. A single digit is no date but another model: `claude-sonnet-4` is not
/// the price of `claude-sonnet-4-5`.
fn is_version(listed: &str, model: &str) -> bool {
    let is_date = |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_digit());
    match model.strip_prefix(listed) {
        Some("" | "-latest") => true,
        Some(rest) => rest.strip_prefix('-').is_some_and(|version| version.split('-').all(is_date)),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_the_table_when_it_is_read_then_prices_are_sane_and_providers_are_known() {
        let prices = Prices::read(None).unwrap();
        for group in &prices.groups {
            assert!(crate::remote::table::find(&group.provider).is_some(), "{}", group.provider);
            let sane = |price: f64| price.is_finite() && (0.0..1000.0).contains(&price);
            assert!(group.prices.iter().all(|price| sane(price.input) && sane(price.output)));
        }
    }

    #[test]
    fn given_the_table_when_it_is_read_then_every_group_says_whose_prices_they_are_and_of_which_day() {
        let table: toml::Table = toml::from_str(include_str!("../prices.toml")).unwrap();
        for group in table["group"].as_array().unwrap() {
            let text = |field: &str| group.get(field).and_then(toml::Value::as_str).unwrap_or_default();
            let day: Vec<usize> = text("as_of").split('-').map(str::len).collect();
            assert_eq!(day, [4, 2, 2], "{group:?}");
            assert!(text("source").contains(", as "), "{group:?}");
        }
    }

    #[test]
    fn given_calls_when_their_cost_is_asked_for_then_versions_count_and_unknown_models_have_none() {
        let prices = Prices::read(None).unwrap();
        let usage = Usage { prompt_tokens: 1_000_000, completion_tokens: 500_000 };
        for (provider, model, cost) in [
            ("openai", "gpt-4o-mini", Some(0.45)),
            ("openai", "gpt-4o-mini-2024-07-18", Some(0.45)),
            ("openai", "gpt-4o-mini-audio-preview", None),
            ("anthropic", "claude-sonnet-4-5-20250929", Some(17.25)),
            ("anthropic", "claude-sonnet-4-20250514", Some(17.25)),
            ("anthropic", "claude-haiku-4-5-20251001", Some(3.5)),
            ("anthropic", "claude-sonnet-4-9", None),
            ("anthropic", "claude-sonnet-4-9-20280101", None),
            ("cohere", "command-r-08-2024", Some(0.45)),
            ("cohere", "command-r-03-2024", None),
            ("gemini", "gpt-4o-mini", None),
            ("local", "gpt-4o-mini", None),
        ] {
            let found = prices.cost(provider, model, usage);
            assert_eq!(found.map(|cost| (cost * 1e6).round()), cost.map(|cost: f64| (cost * 1e6).round()), "{model}");
        }
    }

    #[test]
    fn given_a_price_for_short_prompts_when_a_long_one_is_charged_then_its_own_row_counts_and_none_without_one() {
        let prices = Prices::read(None).unwrap();
        let cost = |provider, model, prompt_tokens| {
            let usage = Usage { prompt_tokens, completion_tokens: 100_000 };
            prices.cost(provider, model, usage).map(|cost| (cost * 1e6).round())
        };
        for (provider, model, short, long) in [
            ("gemini", "gemini-2.5-pro", 1_250_000.0, 2_000_005.0),
            ("anthropic", "claude-sonnet-4-5", 2_100_000.0, 3_450_012.0),
        ] {
            assert_eq!((cost(provider, model, 200_000), cost(provider, model, 200_002)), (Some(short), Some(long)));
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.toml");
        let text = "[[group]]\nas_of = \"2026-01-01\"\nprovider = \"groq\"\nprices = [{ model = \"m\", prompt_up_to = 10, input = 1.0, output = 0.0 }]\n";
        std::fs::write(&path, text).unwrap();
        let prices = Prices::read(Some(&path)).unwrap();
        let usage = |prompt_tokens| Usage { prompt_tokens, completion_tokens: 0 };
        assert!(prices.cost("groq", "m", usage(10)).is_some() && prices.cost("groq", "m", usage(11)).is_none());
    }

    #[test]
    fn given_prices_of_the_operator_when_they_are_read_then_they_come_first_and_a_broken_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.toml");
        let text = "[[group]]\nas_of = \"2026-01-01\"\nprovider = \"openai\"\nprices = [{ model = \"gpt-4o-mini\", input = 1.0, output = 0.0 }]\n";
        std::fs::write(&path, text).unwrap();
        let usage = Usage { prompt_tokens: 1_000_000, completion_tokens: 0 };
        assert_eq!(Prices::read(Some(&path)).unwrap().cost("openai", "gpt-4o-mini", usage), Some(1.0));
        std::fs::write(&path, "[[group]]\nprice = 1").unwrap();
        let error = Prices::read(Some(&path)).unwrap_err().to_string();
        assert!(error.contains("RIVERRUN_MODEL_PRICES") && error.contains("prices.toml"), "{error}");
    }
}
