//! The topics of the log, from the list that creates them.

use axum::Json;
use riverrun_schemas::registry;
use riverrun_schemas::topics::all_specs;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::wire::{Items, TopicEntry};

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> OpenApiRouter<S> {
    OpenApiRouter::new().routes(routes!(topics))
}

/// The topics, with the records that are written on each.
#[utoipa::path(get, path = "/topics", tag = "log", responses((status = 200, body = Items<TopicEntry>)))]
async fn topics() -> Json<Items<TopicEntry>> {
    let items = all_specs()
        .iter()
        .map(|spec| {
            let mut records: Vec<String> = registry::all()
                .iter()
                .filter(|schema| schema.topic.name() == spec.name)
                .map(|schema| schema.record.clone())
                .collect();
            records.sort();
            records.dedup();
            TopicEntry {
                name: spec.name.clone(),
                partitions: spec.partitions,
                retention_ms: spec.retention_ms(),
                records,
            }
        })
        .collect();
    Json(Items { items })
}
