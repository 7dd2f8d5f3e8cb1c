//! What a partition holds: first and one past the last offset, and what follows when an offset outside is asked for.

use std::time::Duration;

use rdkafka::consumer::{Consumer, ConsumerContext, StreamConsumer};

use crate::error::LogError;
use crate::record::{StartAt, TopicPartition};

/// How long a broker may take to say what a partition holds.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// First offset of a partition and one past its last that `read_committed` readers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: i64,
    pub(crate) high: i64,
}

/// Asks the broker; blocks.
pub(crate) fn bounds<C: ConsumerContext + 'static>(
    consumer: &StreamConsumer<C>,
    partition: &TopicPartition,
) -> Result<Bounds, LogError> {
    consumer
        .fetch_watermarks(&partition.topic, partition.partition, QUERY_TIMEOUT)
        .map(|(low, high)| Bounds { low, high })
        .map_err(|error| LogError::kafka(format!("ask for the offsets of {partition}"), error))
}

/// Where reading really starts, and the offset that was wanted but is not there.
pub(crate) fn resolve(start: StartAt, bounds: Bounds) -> (i64, Option<i64>) {
    match start {
        StartAt::Beginning => (bounds.low, None),
        StartAt::End => (bounds.high, None),
        StartAt::Offset(offset) if offset < bounds.low || offset > bounds.high => (bounds.low, Some(offset)),
        StartAt::Offset(offset) => (offset, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_outside_of_the_log_starts_at_its_first_record_and_says_so() {
        let bounds = Bounds { low: 10, high: 20 };
        assert_eq!(resolve(StartAt::Offset(9), bounds), (10, Some(9)));
        assert_eq!(resolve(StartAt::Offset(21), bounds), (10, Some(21)));
        assert_eq!(resolve(StartAt::Offset(10), bounds), (10, None));
        assert_eq!(resolve(StartAt::Offset(20), bounds), (20, None));
        assert_eq!(resolve(StartAt::Beginning, bounds), (10, None));
        assert_eq!(resolve(StartAt::End, bounds), (20, None));
    }
}
