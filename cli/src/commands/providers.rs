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
    [provider.name.clone(), provider.kind.clone(), key, default.to_owned(), address(provider)]
}

/// Where it is; of one that is not in the process and has no address of its own, the settings that give it one.
fn address(provider: &ProviderEntry) -> String {
    match (&provider.address, provider.name.as_str()) {
        (Some(address), _) => address.clone(),
        (None, "local") => "in this process".to_owned(),
        (None, "bedrock") => "not set (AWS_REGION)".to_owned(),
        (None, name) => format!("not set (RIVERRUN_{}_BASE_URL)", name.to_uppercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_providers_when_they_are_shown_then_only_the_local_one_is_in_this_process() {
        let shown = |name: &str, address: Option<&str>| {
            let entry = ProviderEntry {
                name: name.to_owned(),
                default: false,
                kind: "hosted".to_owned(),
                has_key: Some(false),
                address: address.map(str::to_owned),
            };
            row(&entry)[4].clone()
        };
        assert_eq!(shown("local", None), "in this process");
        assert_eq!(shown("azure", None), "not set (RIVERRUN_AZURE_BASE_URL)");
        assert_eq!(shown("vllm", None), "not set (RIVERRUN_VLLM_BASE_URL)");
        assert_eq!(shown("bedrock", None), "not set (AWS_REGION)");
        assert_eq!(shown("azure", Some("https://club.openai.azure.com")), "https://club.openai.azure.com");
    }
}
