//! `riverrun topics`.

use riverrun_api::wire::{Items, TopicEntry};

use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;

pub async fn run(connection: &Connection, output: Output) -> Result<(), CliError> {
    let found: Items<TopicEntry> = connection.client.get("/topics").await?;
    output.show(&found, listed)
}

fn listed(found: &Items<TopicEntry>) -> String {
    let head = ["topic", "partitions", "kept", "holds", "bytes", "records"];
    table(head, found.items.iter().map(row).collect(), "there are no topics")
}

fn row(topic: &TopicEntry) -> [String; 6] {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let records = if topic.foreign {
        "not of riverrun".to_owned()
    } else {
        let names = topic.records.iter().map(|record| record.rsplit('.').next().unwrap_or(record));
        names.collect::<Vec<_>>().join(", ")
    };
    [
        topic.name.clone(),
        topic.partitions.to_string(),
        topic.retention_ms.map_or_else(|| "-".to_owned(), kept),
        number(topic.record_count),
        number(topic.size_bytes),
        records,
    ]
}

fn kept(ms: i64) -> String {
    match ms {
        ..0 => "for ever".to_owned(),
        HOUR_MS.. => format!("{} h", ms / HOUR_MS),
        MINUTE_MS..HOUR_MS => format!("{} min", ms / MINUTE_MS),
        0..MINUTE_MS => format!("{} s", ms / SECOND_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_topics_of_ours_and_of_others_when_shown_then_each_says_what_it_holds_and_whose_it_is() {
        let own = TopicEntry {
            name: "riverrun.agent.events".into(),
            partitions: 6,
            retention_ms: Some(-1),
            records: vec!["riverrun.agent.RunClaimed".into(), "riverrun.agent.RunEnded".into()],
            foreign: false,
            record_count: Some(12),
            size_bytes: Some(3_456),
        };
        assert_eq!(row(&own), ["riverrun.agent.events", "6", "for ever", "12", "3456", "RunClaimed, RunEnded"]);
        let foreign =
            TopicEntry { name: "orders".into(), records: Vec::new(), foreign: true, retention_ms: None, ..own.clone() };
        let unknown = TopicEntry { record_count: None, size_bytes: None, ..foreign.clone() };
        assert_eq!(row(&foreign), ["orders", "6", "-", "12", "3456", "not of riverrun"]);
        assert_eq!(row(&unknown), ["orders", "6", "-", "-", "-", "not of riverrun"]);
        assert_eq!([999, 60_000, 7_200_000].map(kept), ["0 s", "1 min", "2 h"]);
    }
}
