//! What the members of a consumer group are subscribed to.

use std::collections::HashSet;

use bytes::Bytes;

use super::Group;

impl Group {
    /// Topics that members of a consumer group are subscribed to; none if that cannot be told.
    pub(crate) fn subscribed_topics(&self) -> HashSet<String> {
        let mut topics = HashSet::new();
        for member in self.members.values() {
            for (_, metadata) in &member.protocols {
                topics.extend(subscription_topics(metadata).unwrap_or_default());
            }
        }
        topics
    }
}

/// Whether a member that is back asks for what it asked for before: the same protocols, and as a consumer the same topics.
/// What cooperative assignors put beside the topics is what a member owns: who was killed comes back with nothing, and
/// is to have what it had. (Apache Kafka compares the chosen protocol alone.)
pub(super) fn asks_for_the_same(protocol_type: &str, before: &[(String, Bytes)], now: &[(String, Bytes)]) -> bool {
    let topics =
        |metadata: &Bytes| subscription_topics(metadata).map(|all| all.into_iter().collect::<HashSet<String>>());
    let same = |old: &Bytes, new: &Bytes| match (topics(old), topics(new)) {
        (Some(old), Some(new)) => protocol_type == "consumer" && old == new,
        (_, None) | (None, _) => false,
    };
    before.len() == now.len()
        && before.iter().zip(now).all(|((a, old), (b, new))| a == b && (old == new || same(old, new)))
}

/// The topics in a consumer's subscription metadata (`ConsumerProtocolSubscription`: version, array of topics, …).
fn subscription_topics(metadata: &[u8]) -> Option<Vec<String>> {
    fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = from.split_at_checked(count)?;
        *from = rest;
        Some(taken)
    }
    let mut rest = metadata;
    let mut read = || -> Option<Vec<String>> {
        take(&mut rest, 2)?;
        let count = i32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
        let mut topics = Vec::new();
        for _ in 0..count {
            let length = i16::from_be_bytes(take(&mut rest, 2)?.try_into().ok()?);
            let name = take(&mut rest, usize::try_from(length).ok()?)?;
            topics.push(String::from_utf8(name.to_vec()).ok()?);
        }
        Some(topics)
    };
    read()
}
