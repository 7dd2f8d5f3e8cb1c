//! Figures of the embedded broker: for `/metrics`, and in a line for `diagnose`.

use riverrun_log::broker::{Figures, TopicInfo};
use riverrun_schemas::counted;

use crate::metrics::Page;

const MIB: f64 = (1 << 20) as f64;

/// Writes the broker's figures. The number of series is bounded by its limits on partitions, and by its groups.
pub(crate) fn write(figures: &Figures, page: &mut Page) {
    for (name, kind, help, value) in [
        ("riverrun_broker_connections", "gauge", "connections to the broker", figures.connections),
        (
            "riverrun_broker_refused_connections_total",
            "counter",
            "connections refused because of the limit",
            figures.refused_connections,
        ),
        (
            "riverrun_broker_unauthenticated_connections_total",
            "counter",
            "connections ended for want of authentication",
            figures.unauthenticated_connections,
        ),
        ("riverrun_broker_requests_total", "counter", "requests to the broker", figures.requests),
        ("riverrun_broker_received_bytes_total", "counter", "bytes of requests to the broker", figures.received_bytes),
        ("riverrun_broker_sent_bytes_total", "counter", "bytes of answers of the broker", figures.sent_bytes),
    ] {
        page.sample(name, kind, help, &[], value as f64);
    }
    partitions(figures, page, "riverrun_broker_log_start_offset", "first offset", |p| p.start_offset as f64);
    partitions(figures, page, "riverrun_broker_log_end_offset", "offset of the next record", |p| p.end_offset as f64);
    partitions(figures, page, "riverrun_broker_log_bytes", "bytes on disk", |p| p.size_bytes as f64);
    partitions(figures, page, "riverrun_broker_log_segments", "segment files", |p| p.segments as f64);
    partitions(figures, page, "riverrun_broker_log_damaged", "1 while a log takes no records", |p| {
        f64::from(u8::from(p.error.is_some()))
    });
    for group in &figures.groups {
        let labels = [("group", group.id.as_str()), ("state", group.state)];
        page.sample("riverrun_broker_group_members", "gauge", "members", &labels, group.members.len() as f64);
    }
    for group in &figures.groups {
        for (topic, partition, _, lag) in &group.offsets {
            let partition = partition.to_string();
            let labels = [("group", group.id.as_str()), ("topic", topic.as_str()), ("partition", partition.as_str())];
            page.sample("riverrun_broker_group_lag", "gauge", "records behind what is committed", &labels, *lag as f64);
        }
    }
}

fn partitions(
    figures: &Figures,
    page: &mut Page,
    name: &str,
    help: &str,
    value: impl Fn(&riverrun_log::broker::PartitionStats) -> f64,
) {
    for topic in &figures.topics {
        for partition in &topic.partitions {
            let index = partition.partition.to_string();
            let labels = [("topic", topic.name.as_str()), ("partition", index.as_str())];
            page.sample(name, "gauge", help, &labels, value(partition));
        }
    }
}

/// Sizes of the log in a line, and what is wrong with it if something is.
pub(crate) fn line(topics: &[TopicInfo]) -> String {
    let partitions = || topics.iter().flat_map(|topic| topic.partitions.iter().map(move |one| (&topic.name, one)));
    let bytes: u64 = partitions().map(|(_, partition)| partition.size_bytes).sum();
    let largest = topics.iter().max_by_key(|topic| size(topic)).filter(|topic| size(topic) > 0);
    let (all, parts) = (counted(topics.len(), "topic"), counted(partitions().count(), "partition"));
    let mut line = format!("{all}, {parts}, {:.1} MiB", bytes as f64 / MIB);
    if let Some(largest) = largest {
        line.push_str(&format!(", most in {} ({:.1} MiB)", largest.name, size(largest) as f64 / MIB));
    }
    for (topic, partition) in partitions() {
        if let Some(error) = &partition.error {
            line.push_str(&format!("; {topic}-{} takes no records: {error}", partition.partition));
        }
    }
    line
}

fn size(topic: &TopicInfo) -> u64 {
    topic.partitions.iter().map(|partition| partition.size_bytes).sum()
}
