//! `riverrun tools`: what agents of a namespace can use.

use riverrun_api::wire::{Items, ToolEntry};

use crate::args::NamespaceArgs;
use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

pub async fn run(connection: &Connection, args: NamespaceArgs, output: Output) -> Result<(), CliError> {
    let found: Items<ToolEntry> =
        connection.client.get(&with_query("/tools", &[("namespace", args.namespace)])).await?;
    output.show(&found, |found| {
        let row = |tool: &ToolEntry| {
            [
                tool.name.clone(),
                tool.description.clone(),
                arguments(tool),
                tool.effect.clone(),
                tool.source.clone(),
                format!("{} s, {}", tool.limits.timeout_ms / 1_000, size(tool.limits.result_bytes)),
                tool.namespace.clone(),
            ]
        };
        table(
            ["tool", "what it does", "arguments", "effect", "source", "limits", "namespace"],
            found.items.iter().map(row).collect(),
            "there are no tools",
        )
    })
}

fn size(bytes: usize) -> String {
    if bytes < 1 << 10 { format!("{bytes} B") } else { format!("{} KiB", bytes >> 10) }
}

fn arguments(tool: &ToolEntry) -> String {
    let properties = tool.input_schema.get("properties").and_then(|properties| properties.as_object());
    properties.map(|properties| properties.keys().cloned().collect::<Vec<_>>().join(", ")).unwrap_or_default()
}
