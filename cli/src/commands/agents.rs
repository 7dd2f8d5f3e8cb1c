//! `riverrun agents`.

use riverrun_api::wire::{AgentEntry, Items};

use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

pub async fn run(connection: &Connection, output: Output) -> Result<(), CliError> {
    let found: Items<AgentEntry> = connection.client.get("/agents").await?;
    output.show(&found, |found| {
        let row = |agent: &AgentEntry| {
            [agent.name.clone(), agent.description.clone(), agent.capabilities.join(", "), agent.tags.join(", ")]
        };
        table(
            ["agent", "what it does", "capabilities", "tags"],
            found.items.iter().map(row).collect(),
            "there are no agents",
        )
    })
}
