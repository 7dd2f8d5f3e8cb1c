//! What the members of a consumer group are subscribed to.

use std::collections::HashSet;

use bytes::Bytes;
use kafka_protocol::ResponseError;

use super::{Group, Phase};

/// The protocol type of consumer groups.
const CONSUMER: &str = "consumer";

impl Group {
    /// Whether offsets may be deleted at all: a group with members must be one of consumers, whose subscriptions tell which
    /// offsets are in use (`ClassicGroup.validateOffsetDelete` of Apache Kafka).
    pub(crate) fn check_offset_delete(&self) -> Result<(), ResponseError> {
        match self.phase {
            Phase::Empty => Ok(()),
            Phase::Dead => Err(ResponseError::GroupIdNotFound),
            Phase::PreparingRebalance | Phase::CompletingRebalance | Phase::Stable => {
                if self.protocol_type() == Some(CONSUMER) { Ok(()) } else { Err(ResponseError::NonEmptyGroup) }
            }
        }
    }

    /// Whether offsets of `topic` stay however old they are. Only a settled group of consumers can tell what it does not need.
    pub(crate) fn keeps_offsets_of(&self, topic: &str) -> bool {
        match self.phase {
            Phase::Empty | Phase::Dead => false,
            Phase::PreparingRebalance | Phase::CompletingRebalance => true,
            Phase::Stable => self.protocol_type() != Some(CONSUMER) || self.is_subscribed_to(topic),
        }
    }

    /// Whether members of a consumer group consume `topic`. As long as that cannot be told, because no protocol has been chosen
    /// yet or a subscription is not readable, they may consume any.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        if self.members.is_empty() || self.protocol_type() != Some(CONSUMER) {
            return false;
        }
        let told = self.protocol().and_then(|protocol| {
            let subscriptions = self.members.values().map(|member| subscription_topics(&member.metadata(protocol)));
            subscriptions.collect::<Option<Vec<_>>>()
        });
        told.is_none_or(|subscriptions| subscriptions.iter().flatten().any(|name| name == topic))
    }
}

/// Whether a member that is back asks for what it asked for before: the same protocols, and as a consumer the same topics.
/// What cooperative assignors put beside the topics is what a member owns: who was killed comes back with nothing, and
/// is to have what it had. (Apache Kafka compares the chosen protocol alone.)
pub(super) fn asks_for_the_same(protocol_type: &str, before: &[(String, Bytes)], now: &[(String, Bytes)]) -> bool {
    let topics =
        |metadata: &Bytes| subscription_topics(metadata).map(|all| all.into_iter().collect::<HashSet<String>>());
    let same = |old: &Bytes, new: &Bytes| match (topics(old), topics(new)) {
        (Some(old), Some(new)) => protocol_type == CONSUMER && old == new,
        (_, None) | (None, _) => false,
    };
    before.len() == now.len()
        && before.iter().zip(now).all(|((a, old), (b, new))| a == b && (old == new || same(old, new)))
}

/// The topics in a consumer's subscription metadata (`ConsumerProtocolSubscription`: version, array of topics, …); none if it
/// is not readable.
fn subscription_topics(metadata: &[u8]) -> Option<Vec<String>> {
    fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = from.split_at_checked(count)?;
        *from = rest;
        Some(taken)
    }
    let mut rest = metadata;
    take(&mut rest, 2)?;
    let count = i32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
    let mut topics = Vec::new();
    for _ in 0..count {
        let length = i16::from_be_bytes(take(&mut rest, 2)?.try_into().ok()?);
        let name = take(&mut rest, usize::try_from(length).ok()?)?;
        topics.push(String::from_utf8(name.to_vec()).ok()?);
    }
    Some(topics)
}
