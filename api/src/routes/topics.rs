//! The topics of the log: those of the list that creates them, and what others have made beside them.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{FromRef, State};
use riverrun_log::LogError;
use riverrun_log::broker::{FiguresHandle, PartitionStats, TopicInfo};
use riverrun_schemas::registry;
use riverrun_schemas::topics::{TopicSpec, all_specs};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::state::{AppState, OpenLog};
use crate::wire::{Items, Problem, TopicEntry};

/// So begin the topics in which Kafka keeps its own books.
const INTERNAL: &str = "__";

pub(super) fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    OpenLog: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(topics))
}

/// The topics, with the records that are written on each, and with what they hold where the broker is the embedded one. Topics that
/// others have made come last; without a log there are only ours.
#[utoipa::path(get, path = "/topics", tag = "log", responses(
    (status = 200, body = Items<TopicEntry>),
    (status = 503, body = Problem),
))]
async fn topics(State(log): State<OpenLog>) -> Result<Json<Items<TopicEntry>>, ApiError> {
    let there = match log.0 {
        Some(state) => on_broker(&state).await?,
        None => BTreeMap::new(),
    };
    Ok(Json(Items { items: entries(there) }))
}

/// A topic as the broker has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OnBroker {
    partitions: i32,
    /// What only the embedded broker says: retention, records and bytes.
    held: Option<Held>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    retention_ms: i64,
    records: u64,
    bytes: u64,
}

async fn on_broker(state: &AppState) -> Result<BTreeMap<String, OnBroker>, LogError> {
    let parts = state.parts();
    if let Some(figures) = parts.embedded_broker.as_ref().and_then(FiguresHandle::read) {
        return Ok(figures.topics.into_iter().map(|topic| (topic.name.clone(), figured(&topic))).collect());
    }
    let found = parts.admin.topics().await?.into_iter();
    Ok(found.map(|topic| (topic.name, OnBroker { partitions: topic.partitions, held: None })).collect())
}

fn figured(topic: &TopicInfo) -> OnBroker {
    let records = |one: &PartitionStats| u64::try_from(one.end_offset - one.start_offset).unwrap_or(0);
    let held = Held {
        retention_ms: topic.retention_ms.unwrap_or(-1),
        records: topic.partitions.iter().map(records).sum(),
        bytes: topic.partitions.iter().map(|one| one.size_bytes).sum(),
    };
    OnBroker { partitions: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX), held: Some(held) }
}

/// Ours in the order of their list, then those of others by name.
fn entries(mut there: BTreeMap<String, OnBroker>) -> Vec<TopicEntry> {
    let mut entries: Vec<TopicEntry> = all_specs().iter().map(|spec| own(spec, there.remove(&spec.name))).collect();
    let foreign = there.into_iter().filter(|(name, _)| !name.starts_with(INTERNAL));
    entries.extend(foreign.map(|(name, topic)| TopicEntry {
        name,
        partitions: topic.partitions,
        retention_ms: topic.held.map(|held| held.retention_ms),
        records: Vec::new(),
        foreign: true,
        record_count: topic.held.map(|held| held.records),
        size_bytes: topic.held.map(|held| held.bytes),
    }));
    entries
}

fn own(spec: &TopicSpec, there: Option<OnBroker>) -> TopicEntry {
    let held = there.and_then(|topic| topic.held);
    TopicEntry {
        name: spec.name.clone(),
        partitions: there.map_or(spec.partitions, |topic| topic.partitions),
        retention_ms: Some(held.map_or(spec.retention_ms(), |held| held.retention_ms)),
        records: written_on(&spec.name),
        foreign: false,
        record_count: held.map(|held| held.records),
        size_bytes: held.map(|held| held.bytes),
    }
}

fn written_on(topic: &str) -> Vec<String> {
    let schemas = registry::all().iter().filter(|schema| schema.topic.name() == topic);
    let mut records: Vec<String> = schemas.map(|schema| schema.record.clone()).collect();
    records.sort();
    records.dedup();
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_topics_on_the_broker_when_listed_then_ours_come_first_and_those_of_others_are_marked() {
        let held = Held { retention_ms: 1_000, records: 7, bytes: 700 };
        let name = |name: &str| name.to_owned();
        let there = BTreeMap::from([
            (name("__consumer_offsets"), OnBroker { partitions: 50, held: None }),
            (name("b.orders"), OnBroker { partitions: 2, held: None }),
            (name("a.orders"), OnBroker { partitions: 3, held: Some(held) }),
            (name("riverrun.agent.events"), OnBroker { partitions: 9, held: Some(held) }),
        ]);
        let entries = entries(there);
        let (own, foreign) = entries.split_at(all_specs().len());
        assert!(own.iter().all(|topic| !topic.foreign && topic.retention_ms.is_some()));
        let events = own.iter().find(|topic| topic.name == "riverrun.agent.events").unwrap();
        assert_eq!((events.partitions, events.record_count, events.size_bytes), (9, Some(7), Some(700)));
        assert!(!events.records.is_empty());
        let said: Vec<(&str, i32, Option<u64>)> =
            foreign.iter().map(|topic| (topic.name.as_str(), topic.partitions, topic.record_count)).collect();
        assert_eq!(said, [("a.orders", 3, Some(7)), ("b.orders", 2, None)]);
        assert!(foreign.iter().all(|topic| topic.foreign));
    }
}
