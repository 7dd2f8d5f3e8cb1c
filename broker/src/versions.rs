//! The one table of announced APIs.
//!
//! A version is announced only if its whole meaning is implemented, and every announced version is exercised by
//! `tests/versions.rs`: each request is generated from its [shape](crate::wire::shape), decoded, answered and encoded.

use kafka_protocol::messages::ApiKey;

/// An API with the inclusive range of versions that this broker answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced {
    /// Which request.
    pub key: ApiKey,
    /// Oldest version answered.
    pub min: i16,
    /// Newest version answered.
    pub max: i16,
}

const fn api(key: ApiKey, min: i16, max: i16) -> Announced {
    Announced { key, min, max }
}

/// Everything that is announced.
///
/// What is left out on purpose: the new consumer group protocol (KIP-848) and share groups, `ListTransactions` 2 (a filter by
/// regular expression), and what only brokers say to each other.
pub const ANNOUNCED: &[Announced] = &[
    api(ApiKey::Produce, 3, 13),
    api(ApiKey::Fetch, 4, 18),
    api(ApiKey::ListOffsets, 1, 10),
    api(ApiKey::Metadata, 0, 13),
    api(ApiKey::OffsetCommit, 2, 9),
    api(ApiKey::OffsetFetch, 1, 9),
    api(ApiKey::FindCoordinator, 0, 6),
    api(ApiKey::JoinGroup, 0, 9),
    api(ApiKey::Heartbeat, 0, 4),
    api(ApiKey::LeaveGroup, 0, 5),
    api(ApiKey::SyncGroup, 0, 5),
    api(ApiKey::DescribeGroups, 0, 6),
    api(ApiKey::ListGroups, 0, 5),
    api(ApiKey::SaslHandshake, 0, 1),
    api(ApiKey::ApiVersions, 0, 4),
    api(ApiKey::CreateTopics, 2, 7),
    api(ApiKey::DeleteTopics, 1, 6),
    api(ApiKey::DeleteRecords, 0, 2),
    api(ApiKey::InitProducerId, 0, 5),
    api(ApiKey::OffsetForLeaderEpoch, 2, 4),
    api(ApiKey::AddPartitionsToTxn, 0, 5),
    api(ApiKey::AddOffsetsToTxn, 0, 4),
    api(ApiKey::EndTxn, 0, 5),
    api(ApiKey::TxnOffsetCommit, 0, 5),
    api(ApiKey::DescribeConfigs, 1, 4),
    api(ApiKey::SaslAuthenticate, 0, 2),
    api(ApiKey::AlterConfigs, 0, 2),
    api(ApiKey::CreatePartitions, 0, 3),
    api(ApiKey::DeleteGroups, 0, 2),
    api(ApiKey::IncrementalAlterConfigs, 0, 1),
    api(ApiKey::OffsetDelete, 0, 0),
    api(ApiKey::DescribeCluster, 0, 2),
    api(ApiKey::DescribeProducers, 0, 0),
    api(ApiKey::DescribeTransactions, 0, 0),
    api(ApiKey::ListTransactions, 0, 1),
];

/// The newest transaction protocol that is spoken (KIP-890), as the level of the feature `transaction.version`.
pub const TRANSACTION_PROTOCOL: i16 = 2;

/// The announced range of an API by its number on the wire.
pub fn announced(key: i16) -> Option<Announced> {
    ANNOUNCED.iter().copied().find(|api| api.key as i16 == key)
}

/// Whether `version` of `key` is encoded in the flexible (compact, tagged) form.
pub fn is_flexible(key: ApiKey, version: i16) -> bool {
    key.request_header_version(version) >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_the_table_when_compared_with_the_codec_then_every_version_is_known_to_it() {
        for api in ANNOUNCED {
            let known = api.key.valid_versions();
            assert!(known.min <= api.min && api.max <= known.max, "{:?}: codec knows {known}", api);
        }
    }

    #[test]
    fn given_the_table_when_listed_then_no_api_appears_twice() {
        let mut keys: Vec<i16> = ANNOUNCED.iter().map(|api| api.key as i16).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), ANNOUNCED.len());
    }
}
