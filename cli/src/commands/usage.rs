//! `riverrun usage`.

use clap::{Args, ValueEnum};
use riverrun_api::wire::{Items, UsageSum};
use riverrun_schemas::counted;

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table, tell};

/// Models without a price that are named; the others are counted.
const MAX_NAMED: usize = 10;

/// Options of `usage`.
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// What is summed by
    #[arg(long, value_enum, default_value_t = By::Namespace)]
    pub by: By,
    /// Only what is of this namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
}

/// What is summed by.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum By {
    /// Namespaces
    Namespace,
    /// Conversations
    Session,
    /// Models
    Model,
    /// Agent types
    Agent,
    /// What for: runs, chats, searches, documents, …
    Purpose,
}

pub async fn run(connection: &Connection, args: UsageArgs, output: Output) -> Result<(), CliError> {
    let by = args.by.to_possible_value().map(|value| value.get_name().to_owned());
    let query = with_query("/usage", &[("by", by.clone()), ("namespace", args.namespace.clone())]);
    let found: Items<UsageSum> = connection.client.get(&query).await?;
    if !output.json && found.items.iter().any(is_less) {
        let query = with_query("/usage", &[("by", Some("model".to_owned())), ("namespace", args.namespace)]);
        let by_model: Items<UsageSum> = connection.client.get(&query).await?;
        tell(&without_a_price(&by_model.items));
    }
    output.show(&found, |found| {
        let row = |sum: &UsageSum| {
            [
                shown_key(args.by, &sum.key),
                sum.runs.to_string(),
                sum.calls.to_string(),
                sum.usage.prompt_tokens.to_string(),
                sum.usage.completion_tokens.to_string(),
                shown_cost(sum),
            ]
        };
        let head =
            [by.as_deref().unwrap_or("group"), "runs", "other calls", "tokens read", "tokens written", "cost (USD)"];
        table(head, found.items.iter().map(row).collect(), "no model was called yet")
    })
}

/// Whether a group's cost is without some of its calls.
fn is_less(sum: &UsageSum) -> bool {
    sum.usage.unpriced_tokens > 0
}

/// The cost of a group, marked where it is without some of its calls.
fn shown_cost(sum: &UsageSum) -> String {
    match (sum.usage.cost_usd, is_less(sum)) {
        (Some(cost), false) => format!("{cost:.4}"),
        (Some(cost), true) => format!("≥ {cost:.4}"),
        (None, true) => "≥ 0".to_owned(),
        (None, false) => String::new(),
    }
}

/// Which models the costs are without, and what to do about it.
fn without_a_price(by_model: &[UsageSum]) -> String {
    let models = by_model.iter().filter(|sum| is_less(sum));
    let mut names: Vec<String> = models
        .map(|sum| {
            let tokens = counted(sum.usage.unpriced_tokens.unsigned_abs(), "token");
            format!("{} ({tokens})", shown_key(By::Model, &sum.key))
        })
        .collect();
    if names.len() > MAX_NAMED {
        let others = names.split_off(MAX_NAMED).len();
        names.push(format!("{others} more (riverrun usage --by model)"));
    }
    format!(
        "≥: the cost is without calls of models that have no known price: {}; a file that RIVERRUN_MODEL_PRICES names gives them one (docs/models.md#cost)",
        names.join(", ")
    )
}

/// The group as people read it. None named a model: that is the default one; no session or agent is none.
fn shown_key(by: By, key: &str) -> String {
    match by {
        By::Model if key.is_empty() => "(default)".to_owned(),
        By::Namespace | By::Session | By::Model | By::Agent | By::Purpose => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use riverrun_api::wire::UsageView;

    use super::*;

    fn sum(key: &str, cost_usd: Option<f64>, unpriced_tokens: i64) -> UsageSum {
        let usage = UsageView { cost_usd, unpriced_tokens, ..UsageView::default() };
        UsageSum { key: key.to_owned(), runs: 0, calls: 1, usage }
    }

    #[test]
    fn given_groups_with_calls_without_a_price_when_they_are_shown_then_costs_are_marked_and_models_named() {
        for (cost, unpriced, shown) in
            [(Some(0.2501), 0, "0.2501"), (Some(0.2501), 100_001, "≥ 0.2501"), (None, 5, "≥ 0"), (None, 0, "")]
        {
            assert_eq!(shown_cost(&sum("default", cost, unpriced)), shown);
        }
        let models =
            [sum("openai/gpt-4o", Some(0.2501), 0), sum("mistral/mistral-large", None, 100_001), sum("", None, 1)];
        let said = without_a_price(&models);
        assert!(said.contains("mistral/mistral-large (100001 tokens), (default) (1 token);"), "{said}");
        assert!(said.contains("RIVERRUN_MODEL_PRICES") && !said.contains("gpt-4o"), "{said}");
        let many: Vec<UsageSum> = (0..MAX_NAMED + 3).map(|number| sum(&format!("m{number}"), None, 1)).collect();
        assert!(without_a_price(&many).contains(", 3 more (riverrun usage --by model);"));
    }

    #[test]
    fn given_calls_of_no_agent_or_session_when_they_are_shown_then_only_a_model_has_a_default() {
        assert_eq!(shown_key(By::Model, ""), "(default)");
        for by in [By::Session, By::Agent] {
            assert_eq!(shown_key(by, ""), "", "a table shows that as -");
        }
        assert_eq!(shown_key(By::Model, "local/m"), "local/m");
    }
}
