//! `riverrun dlq ls`.

use riverrun_api::wire::{DeadLetterEntry, Items};

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, table};

pub async fn run(
    connection: &Connection,
    topic: Option<String>,
    limit: Option<usize>,
    output: Output,
) -> Result<(), CliError> {
    let path = with_query("/dlq", &[("topic", topic), ("limit", limit.map(|limit| limit.to_string()))]);
    let found: Items<DeadLetterEntry> = connection.client.get(&path).await?;
    output.show(&found, |found| {
        let row = |letter: &DeadLetterEntry| {
            [
                letter.id.clone(),
                letter.status.clone(),
                letter.code.clone(),
                letter.group.clone(),
                letter.at.to_string(),
                clip(&letter.reason, 80),
            ]
        };
        table(
            ["dead letter", "status", "code", "group", "at", "reason"],
            found.items.iter().map(row).collect(),
            "there are no dead letters",
        )
    })
}
