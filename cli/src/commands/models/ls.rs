//! `riverrun models` and `riverrun models ls`.

use riverrun_api::wire::{Items, ModelEntry};

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

pub async fn run(connection: &Connection, provider: Option<String>, output: Output) -> Result<(), CliError> {
    let found: Items<ModelEntry> = connection.client.get(&with_query("/models", &[("provider", provider)])).await?;
    output.show(&found, |found| {
        let rows = found.items.iter().map(row).collect();
        table(
            ["model", "kind", "present", "size", "loaded", "context", "dimensions", "source"],
            rows,
            "there are no models; fetch one: riverrun models pull <model>",
        )
    })
}

fn row(model: &ModelEntry) -> [String; 8] {
    fn number<T: ToString>(value: Option<T>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    let megabytes =
        |bytes: Option<u64>| bytes.map(|bytes| format!("{} MB", bytes.div_ceil(1_000_000))).unwrap_or_default();
    let present = if model.present { "yes" } else { "no" };
    [
        model.name.clone(),
        model.kind.clone(),
        present.to_owned(),
        megabytes(model.size_bytes),
        megabytes(model.loaded_bytes),
        number(model.context_tokens),
        number(model.dimensions),
        model.source.clone().unwrap_or_default(),
    ]
}
