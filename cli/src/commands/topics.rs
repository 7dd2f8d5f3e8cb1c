//! `riverrun topics`.

use riverrun_api::wire::{Items, TopicEntry};

use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

pub async fn run(connection: &Connection, output: Output) -> Result<(), CliError> {
    let found: Items<TopicEntry> = connection.client.get("/topics").await?;
    output.show(&found, |found| {
        let row = |topic: &TopicEntry| {
            let retention = if topic.retention_ms < 0 {
                "for ever".to_owned()
            } else {
                format!("{} h", topic.retention_ms / 3_600_000)
            };
            let records: Vec<&str> =
                topic.records.iter().map(|record| record.rsplit('.').next().unwrap_or(record)).collect();
            [topic.name.clone(), topic.partitions.to_string(), retention, records.join(", ")]
        };
        table(["topic", "partitions", "kept", "records"], found.items.iter().map(row).collect(), "there are no topics")
    })
}
