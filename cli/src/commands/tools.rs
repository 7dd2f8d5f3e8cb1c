//! `riverrun tools`.

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
            [tool.name.clone(), tool.description.clone(), arguments(tool), tool.effect.clone(), tool.source.clone()]
        };
        table(
            ["tool", "what it does", "arguments", "effect", "source"],
            found.items.iter().map(row).collect(),
            "there are no tools",
        )
    })
}

fn arguments(tool: &ToolEntry) -> String {
    let properties = tool.input_schema.get("properties").and_then(|properties| properties.as_object());
    properties.map(|properties| properties.keys().cloned().collect::<Vec<_>>().join(", ")).unwrap_or_default()
}
