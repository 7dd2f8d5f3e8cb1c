//! `riverrun usage`.

use clap::{Args, ValueEnum};
use riverrun_api::wire::{Items, UsageSum};

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

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
    let query = with_query("/usage", &[("by", by.clone()), ("namespace", args.namespace)]);
    let found: Items<UsageSum> = connection.client.get(&query).await?;
    output.show(&found, |found| {
        let row = |sum: &UsageSum| {
            [
                shown_key(args.by, &sum.key),
                sum.runs.to_string(),
                sum.calls.to_string(),
                sum.usage.prompt_tokens.to_string(),
                sum.usage.completion_tokens.to_string(),
                sum.usage.cost_usd.map(|cost| format!("{cost:.4}")).unwrap_or_default(),
            ]
        };
        let head =
            [by.as_deref().unwrap_or("group"), "runs", "other calls", "tokens read", "tokens written", "cost (USD)"];
        table(head, found.items.iter().map(row).collect(), "no model was called yet")
    })
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
    use super::*;

    #[test]
    fn given_calls_of_no_agent_or_session_when_they_are_shown_then_only_a_model_has_a_default() {
        assert_eq!(shown_key(By::Model, ""), "(default)");
        for by in [By::Session, By::Agent] {
            assert_eq!(shown_key(by, ""), "", "a table shows that as -");
        }
        assert_eq!(shown_key(By::Model, "local/m"), "local/m");
    }
}
