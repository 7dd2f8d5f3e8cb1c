//! `riverrun providers`.

use riverrun_api::wire::{Items, ProviderEntry};

use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

pub async fn run(connection: &Connection, output: Output) -> Result<(), CliError> {
    let found: Items<ProviderEntry> = connection.client.get("/providers").await?;
    output.show(&found, |found| {
        let rows = found.items.iter().map(row).collect();
        table(["provider", "kind", "key", "default", "address"], rows, "there are no providers")
    })
}

fn row(provider: &ProviderEntry) -> [String; 5] {
    let key = match provider.has_key {
        None => "not needed".to_owned(),
        Some(true) => "set".to_owned(),
        Some(false) => format!("missing (RIVERRUN_{}_API_KEY)", provider.name.to_uppercase()),
    };
    let default = if provider.default { "default" } else { "" };
    [
        provider.name.clone(),
        provider.kind.clone(),
        key,
        default.to_owned(),
        provider.address.clone().unwrap_or_else(|| "in this process".to_owned()),
    ]
}
