//! What model calls cost: a table that is data (`prices.toml`), and rows of the operator's in front of it.

use std::path::Path;

use serde::Deserialize;

use crate::error::ModelError;
use crate::models::ProviderKind;
use crate::provider::{Cost, Usage};
use crate::remote::table::PROVIDERS;

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
    /// The same for those that the provider had in its cache; as others where the row does not say.
    cached_input: Option<f64>,
    /// The same for those that it put into its cache; as others where the row does not say.
    cache_write: Option<f64>,
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
                let bad = |reason: String| ModelError::BadPrices { path: path.display().to_string(), reason };
                let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
                toml::from_str::<Table>(&text).map_err(|error| bad(error.message().to_owned()))?.group
            }
        };
        // The file is part of the program and a test reads it.
        let table: Table = toml::from_str(include_str!("../prices.toml")).expect("prices.toml is valid");
        groups.extend(table.group);
        Ok(Prices { groups })
    }

    /// What a call cost: what the provider says, else by the table. A service without a row has tokens without a price, wherever the settings
    /// say that it is: a gateway in its place may charge, too. An operator whose does not has a row with prices of 0.
    pub(crate) fn cost(&self, provider: &str, model: &str, usage: Usage) -> Cost {
        let usd = usage.billed_nanousd.map(|nanos| nanos as f64 / 1e9).or_else(|| self.listed(provider, model, usage));
        let unpriced_tokens = if usd.is_none() && is_charged(provider) { usage.total() } else { 0 };
        Cost { usd, unpriced_tokens }
    }

    fn listed(&self, provider: &str, model: &str, usage: Usage) -> Option<f64> {
        let groups = self.groups.iter().filter(|group| group.provider == provider);
        let price = groups.flat_map(|group| &group.prices).find(|price| price.holds_for(model, usage))?;
        Some(price.of(usage) / PER)
    }
}

/// Whether a provider is one that charges: a hosted service.
fn is_charged(provider: &str) -> bool {
    PROVIDERS.iter().any(|spec| spec.name == provider && spec.kind == ProviderKind::Hosted)
}

impl Price {
    /// US dollars of a call, times [`PER`].
    fn of(&self, usage: Usage) -> f64 {
        // The two are parts of the prompt; a count that says otherwise makes no price negative.
        let cached = usage.cached_prompt_tokens.min(usage.prompt_tokens);
        let written = usage.cache_write_tokens.min(usage.prompt_tokens - cached);
        let others = usage.prompt_tokens - cached - written;
        others as f64 * self.input
            + cached as f64 * self.cached_input.unwrap_or(self.input)
            + written as f64 * self.cache_write.unwrap_or(self.input)
            + usage.completion_tokens as f64 * self.output
    }

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
            // A cache is cheaper to read than the rest, and no cheaper to write.
            for Price { model, input, cached_input, cache_write, .. } in &group.prices {
                assert!(cached_input.is_none_or(|cached| sane(cached) && cached < *input), "{model}");
                assert!(cache_write.is_none_or(|written| sane(written) && written >= *input), "{model}");
            }
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
        let usage = Usage { prompt_tokens: 1_000_000, completion_tokens: 500_000, ..Usage::default() };
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
            let Cost { usd, unpriced_tokens } = prices.cost(provider, model, usage);
            // What is not known is said where somebody charges for it.
            let wanted = if cost.is_none() && provider != "local" { 1_500_000 } else { 0 };
            assert_eq!(unpriced_tokens, wanted, "{provider}/{model}");
            assert_eq!(usd.map(|cost| (cost * 1e6).round()), cost.map(|cost: f64| (cost * 1e6).round()), "{model}");
        }
    }

    #[test]
    fn given_a_price_for_short_prompts_when_a_long_one_is_charged_then_its_own_row_counts_and_none_without_one() {
        let prices = Prices::read(None).unwrap();
        let cost = |provider, model, prompt_tokens| {
            let usage = Usage { prompt_tokens, completion_tokens: 100_000, ..Usage::default() };
            prices.cost(provider, model, usage).usd.map(|cost| (cost * 1e6).round())
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
        let usage = |prompt_tokens| Usage { prompt_tokens, completion_tokens: 0, ..Usage::default() };
        let tried = |tokens| prices.cost("groq", "m", usage(tokens));
        assert!(tried(10).usd.is_some() && tried(11) == Cost { usd: None, unpriced_tokens: 11 });
    }

    #[test]
    fn given_prices_of_the_operator_when_they_are_read_then_they_come_first_and_a_broken_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.toml");
        let text = "[[group]]\nas_of = \"2026-01-01\"\nprovider = \"openai\"\nprices = [{ model = \"gpt-4o-mini\", input = 1.0, output = 0.0 }]\n";
        std::fs::write(&path, text).unwrap();
        let usage = Usage { prompt_tokens: 1_000_000, completion_tokens: 0, ..Usage::default() };
        assert_eq!(Prices::read(Some(&path)).unwrap().cost("openai", "gpt-4o-mini", usage).usd, Some(1.0));
        std::fs::write(&path, "[[group]]\nprice = 1").unwrap();
        for (wrong, file) in [(path.as_path(), "prices.toml"), (Path::new("/nope/of/prices"), "/nope/of/prices")] {
            let error = Prices::read(Some(wrong)).unwrap_err();
            let said = error.to_string();
            assert!(said.contains("RIVERRUN_MODEL_PRICES") && said.contains(file), "{said}");
            assert!(error.hint().is_some_and(|hint| hint.contains("unset RIVERRUN_MODEL_PRICES")), "{error:?}");
        }
    }

    #[test]
    fn given_calls_with_a_cache_when_they_are_charged_then_its_tokens_have_their_own_price_or_that_of_others() {
        let prices = Prices::read(None).unwrap();
        let used = |cached, written| Usage {
            prompt_tokens: 100_000,
            cached_prompt_tokens: cached,
            cache_write_tokens: written,
            ..Usage::default()
        };
        for (provider, model, cached, written, cost) in [
            ("openai", "gpt-4o", 0, 0, 0.25),
            ("openai", "gpt-4o", 99_000, 0, 0.126_25),
            ("openai", "text-embedding-3-small", 99_000, 0, 0.002),
            ("anthropic", "claude-sonnet-4-5", 90_000, 0, 0.057),
            ("anthropic", "claude-sonnet-4-5", 0, 100_000, 0.375),
            ("anthropic", "claude-sonnet-4-5", 50_000, 50_000, 0.202_5),
            ("groq", "llama-3.3-70b-versatile", 99_000, 0, 0.059),
            // Parts that are more than the whole.
            ("openai", "gpt-4o", 500_000, 500_000, 0.125),
        ] {
            let found = prices.cost(provider, model, used(cached, written)).usd.unwrap();
            assert!((found - cost).abs() < 1e-9, "{model} {cached} {written}: {found}");
        }
    }

    #[test]
    fn given_a_provider_that_says_what_it_charges_when_the_cost_is_asked_for_then_that_counts() {
        let prices = Prices::read(None).unwrap();
        let usage = Usage { prompt_tokens: 1_000_000, billed_nanousd: Some(12_500_000), ..Usage::default() };
        for (provider, model) in [("openrouter", "a/model"), ("openai", "gpt-4o")] {
            assert_eq!(
                prices.cost(provider, model, usage),
                Cost { usd: Some(0.0125), unpriced_tokens: 0 },
                "{provider}"
            );
        }
    }
}
