//! How far a group is behind, as the broker's own process asks it: without a client.

use crate::figures::FiguresHandle;

/// What a partition holds, and what a group has committed in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPosition {
    /// Index in the topic.
    pub partition: i32,
    /// First offset.
    pub low: i64,
    /// One past the last offset that readers of decided transactions see.
    pub end: i64,
    /// The offset that the group reads next; none where it never committed one.
    pub committed: Option<i64>,
}

impl FiguresHandle {
    /// Where a group is in each partition of a topic, in order: nothing for a topic that is not there. None once the broker has
    /// stopped.
    pub fn positions(&self, group: &str, topic: &str) -> Option<Vec<GroupPosition>> {
        let node = self.0.upgrade()?;
        let partitions = node.topics.get(topic).map(|topic| topic.partitions()).unwrap_or_default();
        let meta = node.journal.lock();
        let positions = (0..).zip(&partitions).map(|(partition, found)| {
            let bounds = found.bounds();
            GroupPosition {
                partition,
                low: bounds.log_start,
                end: bounds.last_stable,
                committed: meta.offset(group, topic, partition).map(|item| item.offset),
            }
        });
        Some(positions.collect())
    }

    /// One past the last offset of a partition that readers of decided transactions see. None for one that is not there, and once
    /// the broker has stopped.
    pub fn end(&self, topic: &str, partition: i32) -> Option<i64> {
        let found = self.0.upgrade()?.topics.partition(topic, partition)?;
        Some(found.bounds().last_stable)
    }
}
