//! What a partition holds: first and one past the last offset, and what follows when an offset outside is asked for.

use std::time::{Duration, Instant};

use rdkafka::consumer::{Consumer, ConsumerContext, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::error::{LogError, code_of};
use crate::record::{StartAt, TopicPartition};

/// How long a broker may take to say what a partition holds.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a partition without a leader is asked again.
const LEADER_PAUSE: Duration = Duration::from_millis(50);

/// First offset of a partition and one past its last that `read_committed` readers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: i64,
    pub(crate) high: i64,
}

/// Asks the broker; blocks. A partition that is getting a leader just now, as each of a topic that was just made does, and each of
/// a broker that is replaced, is waited for.
pub(crate) fn bounds<C: ConsumerContext + 'static>(
    consumer: &StreamConsumer<C>,
    partition: &TopicPartition,
) -> Result<Bounds, LogError> {
    let ask = || consumer.fetch_watermarks(&partition.topic, partition.partition, QUERY_TIMEOUT);
    until_led(QUERY_TIMEOUT, ask)
        .map(|(low, high)| Bounds { low, high })
        .map_err(|error| LogError::kafka(format!("ask for the offsets of {partition}"), error))
}

/// Asks again while the partition has no leader, at most about `limit`; blocks.
#[expect(clippy::disallowed_methods, reason = "the client blocks as well: callers are on threads of their own")]
fn until_led<T>(limit: Duration, mut ask: impl FnMut() -> Result<T, KafkaError>) -> Result<T, KafkaError> {
    let since = Instant::now();
    loop {
        match ask() {
            Err(error) if leader_moves(&error) && since.elapsed() < limit => std::thread::sleep(LEADER_PAUSE),
            done => return done,
        }
    }
}

fn leader_moves(error: &KafkaError) -> bool {
    matches!(
        code_of(error),
        Some(
            RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::ReplicaNotAvailable
                | RDKafkaErrorCode::FencedLeaderEpoch
                | RDKafkaErrorCode::UnknownLeaderEpoch
        )
    )
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

    #[test]
    fn given_a_partition_without_a_leader_when_it_is_asked_then_it_is_asked_again_until_it_has_one() {
        let mut asked = 0;
        let answer = until_led(QUERY_TIMEOUT, || {
            asked += 1;
            match asked {
                1 => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::NotLeaderForPartition)),
                2 => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::LeaderNotAvailable)),
                _ => Ok(asked),
            }
        });
        assert_eq!(answer.ok(), Some(3));
    }

    #[test]
    fn given_what_waiting_does_not_help_or_has_no_end_when_it_is_asked_then_the_error_is_handed_on() {
        for (code, limit) in [
            (RDKafkaErrorCode::UnknownTopicOrPartition, QUERY_TIMEOUT),
            (RDKafkaErrorCode::TopicAuthorizationFailed, QUERY_TIMEOUT),
            (RDKafkaErrorCode::NotLeaderForPartition, Duration::ZERO),
        ] {
            let mut asked = 0;
            let answer: Result<(), KafkaError> = until_led(limit, || {
                asked += 1;
                Err(KafkaError::MetadataFetch(code))
            });
            assert_eq!(answer.err().as_ref().and_then(code_of), Some(code));
            assert_eq!(asked, 1, "{code:?}");
        }
    }
}
