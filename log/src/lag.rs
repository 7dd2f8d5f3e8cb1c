//! Lag as the embedded broker's own process asks for it: no client, no connection. [`Admin`](crate::admin::Admin) asks any other.

use std::collections::HashMap;

use riverrun_broker::FiguresHandle;

use crate::admin::{GroupTopics, PartitionLag};
use crate::error::LogError;
use crate::record::TopicPartition;

/// How far groups are behind, a line per partition: what [`Admin::lag`](crate::admin::Admin::lag) says of the same groups.
pub fn of_groups(broker: &FiguresHandle, groups: &[GroupTopics]) -> Result<Vec<PartitionLag>, LogError> {
    let mut lines = Vec::new();
    for GroupTopics { group, topics } in groups {
        for topic in topics {
            let positions = broker.positions(group, topic).ok_or_else(stopped)?;
            lines.extend(positions.into_iter().map(|position| PartitionLag {
                group: group.clone(),
                partition: TopicPartition::new(topic.as_str(), position.partition),
                committed: position.committed,
                end: position.end,
                lag: records_between(position.low, position.committed, position.end),
            }));
        }
    }
    Ok(lines)
}

/// One past the last offset of each partition that `read_committed` readers see; none for a partition that is not there.
pub fn ends<'p>(
    broker: &FiguresHandle,
    partitions: impl IntoIterator<Item = &'p TopicPartition>,
) -> HashMap<TopicPartition, i64> {
    let end = |at: &TopicPartition| Some((at.clone(), broker.end(&at.topic, at.partition)?));
    partitions.into_iter().filter_map(end).collect()
}

/// Records that a group has not handled. One that never committed begins at the first record, as one does that lagged too far.
pub(crate) fn records_between(low: i64, committed: Option<i64>, end: i64) -> i64 {
    (end - committed.unwrap_or(low).max(low)).max(0)
}

fn stopped() -> LogError {
    LogError::Stopped("the embedded broker".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_what_a_group_committed_when_compared_with_the_log_then_only_records_that_are_there_count() {
        for (low, committed, end, lag) in
            [(0, None, 5, 5), (3, None, 5, 2), (3, Some(1), 5, 2), (0, Some(4), 5, 1), (0, Some(9), 5, 0)]
        {
            assert_eq!(records_between(low, committed, end), lag, "{low} {committed:?} {end}");
        }
    }
}
