//! Which committed offsets have had their time (`offsets.retention.minutes` of Apache Kafka).

use std::time::Duration;

use super::group::{Group, Phase};
use crate::meta::{GroupOffsets, OffsetItem};

/// Time after a start in which no offset goes (`offsets.retention.check.interval.ms` of Apache Kafka).
const GRACE: Duration = Duration::from_secs(600);

/// Whether a broker has been up for long enough for offsets to go. Who could not come while it was down, because it was, is to find
/// its place.
pub(crate) fn may_begin(up: Duration, retention: Duration) -> bool {
    up >= retention.min(GRACE)
}

/// What is known of a group besides its offsets.
pub(crate) struct Standing<'a> {
    /// The group itself, where it has or had members since the start.
    pub group: Option<&'a Group>,
    /// When its last member went, where that is known.
    pub emptied_ms: Option<i64>,
}

/// The offsets of a group that go because they were committed, and not used any more, before `before_ms`.
///
/// As in Apache Kafka the time begins when the last member goes: who reads a quiet partition commits nothing for weeks, and is to
/// find its place after a pause of a minute. Of a group with members only topics go to which none of them is subscribed.
pub(crate) fn expired(offsets: &GroupOffsets, standing: &Standing<'_>, before_ms: i64) -> Vec<(String, i32)> {
    let keeps = |item: &OffsetItem| match standing.group.filter(|group| group.phase() != Phase::Empty) {
        Some(group) => group.keeps_offsets_of(&item.topic),
        None => standing.emptied_ms.is_some_and(|at| at >= before_ms),
    };
    let old = offsets.iter().filter(|(_, item)| item.committed_ms < before_ms && !keeps(item));
    old.map(|(key, _)| key.clone()).collect()
}
