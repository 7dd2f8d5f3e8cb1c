//! The table of topics in the documentation: every topic has its row, and every type of event is named in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;
use toml::{Table, Value};

use crate::Findings;

const PAGE: &str = "docs/log-and-topics.md";
const REGISTRY: &str = "schemas/registry.toml";
const TOPICS: &str = "deploy/topics.toml";

pub(crate) fn check(root: &Path) -> Findings {
    let page = read(root, PAGE)?;
    let topics = entries(&read(root, TOPICS)?, "topic").with_context(|| format!("cannot parse {TOPICS}"))?;
    let schemas = entries(&read(root, REGISTRY)?, "schema").with_context(|| format!("cannot parse {REGISTRY}"))?;
    let mut findings: Vec<String> = topics
        .iter()
        .map(|topic| text(topic, "name"))
        .filter(|topic| row(&page, topic).is_none())
        .map(|topic| format!("{PAGE}: topic {topic} of {TOPICS} has no row; add one that begins with | `{topic}` |"))
        .collect();
    findings.extend(missing(&page, &schemas));
    Ok(findings)
}

fn read(root: &Path, file: &str) -> anyhow::Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
}

/// The tables of an array in a TOML file.
fn entries(file: &str, array: &str) -> anyhow::Result<Vec<Table>> {
    let file: Table = toml::from_str(file)?;
    let entries = file.get(array).and_then(Value::as_array).with_context(|| format!("there is no [[{array}]]"))?;
    Ok(entries.iter().filter_map(Value::as_table).cloned().collect())
}

fn text<'a>(entry: &'a Table, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Types of events that the row of their topic does not name, once for all their versions.
fn missing(page: &str, schemas: &[Table]) -> Vec<String> {
    let events: BTreeSet<(&str, &str)> =
        schemas.iter().map(|schema| (text(schema, "topic"), short(text(schema, "record")))).collect();
    events
        .into_iter()
        .filter(|(topic, event)| row(page, topic).is_some_and(|row| !row.contains(&format!("`{event}`"))))
        .map(|(topic, event)| {
            format!("{PAGE}: {event} is not in the row of {topic}; say there that it is on that topic")
        })
        .collect()
}

/// A record's name without its namespace.
fn short(record: &str) -> &str {
    record.rsplit_once('.').map_or(record, |(_, name)| name)
}

fn row<'a>(page: &'a str, topic: &str) -> Option<&'a str> {
    let begin = format!("| `{topic}` |");
    page.lines().find(|line| line.starts_with(&begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| topic | what |\n|---|---|\n| `a.events` | `Done`, `DoneTwice` |\n| `b.events` | `Other` |\n";

    fn schemas(events: &[(&str, &str)]) -> Vec<Table> {
        let list: String = events
            .iter()
            .map(|(topic, record)| format!("[[schema]]\ntopic = {topic:?}\nrecord = {record:?}\n"))
            .collect();
        entries(&list, "schema").unwrap()
    }

    #[test]
    fn given_events_of_a_table_when_checked_then_each_has_to_be_in_the_row_of_its_topic() {
        let named = schemas(&[("a.events", "x.Done"), ("a.events", "x.Done"), ("b.events", "x.Other")]);
        assert_eq!(missing(TABLE, &named), Vec::<String>::new());
        let others = schemas(&[("a.events", "x.Other"), ("b.events", "x.Oth"), ("a.events", "x.Twice")]);
        let found = missing(TABLE, &others);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("Other is not in the row of a.events"), "{found:?}");
    }

    #[test]
    fn given_a_topic_when_looked_for_then_only_a_row_of_its_own_counts() {
        assert!(row(TABLE, "a.events").is_some_and(|row| row.ends_with("`DoneTwice` |")));
        assert_eq!(row(TABLE, "a"), None);
        assert_eq!(row(TABLE, "Done"), None);
    }

    #[test]
    fn the_page_of_this_repository_has_every_topic_and_event() {
        assert_eq!(check(&crate::root()).unwrap(), Vec::<String>::new());
    }
}
