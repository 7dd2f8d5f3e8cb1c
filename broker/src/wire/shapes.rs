//! The shape of every announced request, after the message definitions of Apache Kafka
//! (`clients/src/main/resources/common/message/*.json`).

use kafka_protocol::messages::ApiKey;

use super::shape::{Field, Kind};

const END: i16 = i16::MAX;
const I32_KIND: Kind = Kind::Fixed(4);
const I64_KIND: Kind = Kind::Fixed(8);
const TEXT_KIND: Kind = Kind::Text;

const fn field(kind: Kind, min: i16, max: i16) -> Field {
    Field { kind, min, max }
}
const fn always(kind: Kind) -> Field {
    field(kind, 0, END)
}
const fn since(kind: Kind, min: i16) -> Field {
    field(kind, min, END)
}
const I8: Kind = Kind::Fixed(1);
const BOOL: Kind = Kind::Fixed(1);
const I16: Kind = Kind::Fixed(2);
const I32: Kind = I32_KIND;
const I64: Kind = I64_KIND;
const UUID: Kind = Kind::Fixed(16);
const TEXT: Kind = Kind::Text;
const NULLABLE_TEXT: Kind = Kind::NullableText;
const I32S: Kind = Kind::Values(&I32_KIND);
const I64S: Kind = Kind::Values(&I64_KIND);
const TEXTS: Kind = Kind::Values(&TEXT_KIND);

/// The fields of `key`'s request; empty for what is not announced.
pub fn shape_of(key: ApiKey) -> &'static [Field] {
    match key {
        ApiKey::Produce => PRODUCE,
        ApiKey::Fetch => FETCH,
        ApiKey::ListOffsets => LIST_OFFSETS,
        ApiKey::Metadata => METADATA,
        ApiKey::OffsetCommit => OFFSET_COMMIT,
        ApiKey::OffsetFetch => OFFSET_FETCH,
        ApiKey::FindCoordinator => FIND_COORDINATOR,
        ApiKey::JoinGroup => JOIN_GROUP,
        ApiKey::Heartbeat => HEARTBEAT,
        ApiKey::LeaveGroup => LEAVE_GROUP,
        ApiKey::SyncGroup => SYNC_GROUP,
        ApiKey::DescribeGroups => DESCRIBE_GROUPS,
        ApiKey::ListGroups => LIST_GROUPS,
        ApiKey::SaslHandshake => SASL_HANDSHAKE,
        ApiKey::ApiVersions => API_VERSIONS,
        ApiKey::CreateTopics => CREATE_TOPICS,
        ApiKey::DeleteTopics => DELETE_TOPICS,
        ApiKey::DeleteRecords => DELETE_RECORDS,
        ApiKey::InitProducerId => INIT_PRODUCER_ID,
        ApiKey::OffsetForLeaderEpoch => OFFSET_FOR_LEADER_EPOCH,
        ApiKey::AddPartitionsToTxn => ADD_PARTITIONS_TO_TXN,
        ApiKey::AddOffsetsToTxn => ADD_OFFSETS_TO_TXN,
        ApiKey::EndTxn => END_TXN,
        ApiKey::TxnOffsetCommit => TXN_OFFSET_COMMIT,
        ApiKey::DescribeConfigs => DESCRIBE_CONFIGS,
        ApiKey::SaslAuthenticate => SASL_AUTHENTICATE,
        ApiKey::AlterConfigs => ALTER_CONFIGS,
        ApiKey::CreatePartitions => CREATE_PARTITIONS,
        ApiKey::DeleteGroups => DELETE_GROUPS,
        ApiKey::IncrementalAlterConfigs => INCREMENTAL_ALTER_CONFIGS,
        ApiKey::OffsetDelete => OFFSET_DELETE,
        ApiKey::DescribeCluster => DESCRIBE_CLUSTER,
        ApiKey::DescribeProducers => DESCRIBE_PRODUCERS,
        ApiKey::DescribeTransactions => DESCRIBE_TRANSACTIONS,
        ApiKey::ListTransactions => LIST_TRANSACTIONS,
        _ => &[],
    }
}

const SASL_HANDSHAKE: &[Field] = &[always(TEXT)]; // mechanism
const SASL_AUTHENTICATE: &[Field] = &[always(Kind::Blob)]; // token

const PRODUCE: &[Field] = &[
    always(NULLABLE_TEXT), // transactional_id
    always(I16),           // acks
    always(I32),           // timeout_ms
    always(Kind::Structs(&[
        field(TEXT, 0, 12), // topic
        since(UUID, 13),    // topic id
        always(Kind::Structs(&[always(I32), always(Kind::NullableBlob)])),
    ])),
];

const FETCH: &[Field] = &[
    field(I32, 0, 14), // replica_id
    always(I32),       // max_wait_ms
    always(I32),       // min_bytes
    always(I32),       // max_bytes
    always(I8),        // isolation_level
    since(I32, 7),     // session_id
    since(I32, 7),     // session_epoch
    always(Kind::Structs(&[
        field(TEXT, 0, 12),
        since(UUID, 13),
        always(Kind::Structs(&[
            always(I32),    // partition
            since(I32, 9),  // current_leader_epoch
            always(I64),    // fetch_offset
            since(I32, 12), // last_fetched_epoch
            since(I64, 5),  // log_start_offset
            always(I32),    // partition_max_bytes
        ])),
    ])),
    since(Kind::Structs(&[field(TEXT, 7, 12), since(UUID, 13), always(I32S)]), 7), // forgotten topics
    since(TEXT, 11),                                                               // rack_id
];

const LIST_OFFSETS: &[Field] = &[
    always(I32),  // replica_id
    since(I8, 2), // isolation_level
    always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32), since(I32, 4), always(I64)]))])),
    since(I32, 10), // timeout_ms
];

const METADATA: &[Field] = &[
    // Null means all topics; version 0 has no null.
    always(Kind::NullableStructs(&[since(UUID, 10), field(TEXT, 0, 9), since(NULLABLE_TEXT, 10)])),
    since(BOOL, 4),
    field(BOOL, 8, 10),
    since(BOOL, 8),
];

const OFFSET_COMMIT: &[Field] = &[
    always(TEXT),
    always(I32),             // generation
    always(TEXT),            // member_id
    since(NULLABLE_TEXT, 7), // group_instance_id
    field(I64, 2, 4),        // retention_time_ms
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), always(I64), since(I32, 6), always(NULLABLE_TEXT)])),
    ])),
];

const OFFSET_FETCH: &[Field] = &[
    field(TEXT, 0, 7),
    field(Kind::Structs(&[always(TEXT), always(I32S)]), 0, 1),
    field(Kind::NullableStructs(&[always(TEXT), always(I32S)]), 2, 7),
    since(
        Kind::Structs(&[
            always(TEXT),
            since(NULLABLE_TEXT, 9), // member_id
            since(I32, 9),           // member_epoch
            always(Kind::NullableStructs(&[always(TEXT), always(I32S)])),
        ]),
        8,
    ),
    since(BOOL, 7), // require_stable
];

const FIND_COORDINATOR: &[Field] = &[field(TEXT, 0, 3), since(I8, 1), since(TEXTS, 4)];

const JOIN_GROUP: &[Field] = &[
    always(TEXT),
    always(I32),             // session_timeout_ms
    since(I32, 1),           // rebalance_timeout_ms
    always(TEXT),            // member_id
    since(NULLABLE_TEXT, 5), // group_instance_id
    always(TEXT),            // protocol_type
    always(Kind::Structs(&[always(TEXT), always(Kind::Blob)])),
    since(NULLABLE_TEXT, 8), // reason
];

const HEARTBEAT: &[Field] = &[always(TEXT), always(I32), always(TEXT), since(NULLABLE_TEXT, 3)];

const LEAVE_GROUP: &[Field] = &[
    always(TEXT),
    field(TEXT, 0, 2),
    since(Kind::Structs(&[always(TEXT), always(NULLABLE_TEXT), since(NULLABLE_TEXT, 5)]), 3),
];

const SYNC_GROUP: &[Field] = &[
    always(TEXT),
    always(I32),
    always(TEXT),
    since(NULLABLE_TEXT, 3),
    since(NULLABLE_TEXT, 5),
    since(NULLABLE_TEXT, 5),
    always(Kind::Structs(&[always(TEXT), always(Kind::Blob)])),
];

const DESCRIBE_GROUPS: &[Field] = &[always(TEXTS), since(BOOL, 3)];
const LIST_GROUPS: &[Field] = &[since(TEXTS, 4), since(TEXTS, 5)];
const API_VERSIONS: &[Field] = &[since(TEXT, 3), since(TEXT, 3)];

const CREATE_TOPICS: &[Field] = &[
    always(Kind::Structs(&[
        always(TEXT),
        always(I32),
        always(I16),
        always(Kind::Structs(&[always(I32), always(I32S)])),
        always(Kind::Structs(&[always(TEXT), always(NULLABLE_TEXT)])),
    ])),
    always(I32),
    always(BOOL),
];

const DELETE_TOPICS: &[Field] =
    &[since(Kind::Structs(&[always(NULLABLE_TEXT), always(UUID)]), 6), field(TEXTS, 0, 5), always(I32)];

const DELETE_RECORDS: &[Field] =
    &[always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32), always(I64)]))])), always(I32)];

const INIT_PRODUCER_ID: &[Field] = &[always(NULLABLE_TEXT), always(I32), since(I64, 3), since(I16, 3)];

const OFFSET_FOR_LEADER_EPOCH: &[Field] = &[
    since(I32, 3),
    always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32), always(I32), always(I32)]))])),
];

const TXN_TOPICS: Kind = Kind::Structs(&[always(TEXT), always(I32S)]);

const ADD_PARTITIONS_TO_TXN: &[Field] = &[
    since(Kind::Structs(&[always(TEXT), always(I64), always(I16), always(BOOL), always(TXN_TOPICS)]), 4),
    field(TEXT, 0, 3),
    field(I64, 0, 3),
    field(I16, 0, 3),
    field(TXN_TOPICS, 0, 3),
];

const ADD_OFFSETS_TO_TXN: &[Field] = &[always(TEXT), always(I64), always(I16), always(TEXT)];
const END_TXN: &[Field] = &[always(TEXT), always(I64), always(I16), always(BOOL)];

const TXN_OFFSET_COMMIT: &[Field] = &[
    always(TEXT),
    always(TEXT),
    always(I64),
    always(I16),
    since(I32, 3),
    since(TEXT, 3),
    since(NULLABLE_TEXT, 3),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), always(I64), since(I32, 2), always(NULLABLE_TEXT)])),
    ])),
];

const DESCRIBE_CONFIGS: &[Field] = &[
    always(Kind::Structs(&[always(I8), always(TEXT), always(Kind::NullableValues(&TEXT_KIND))])),
    always(BOOL),
    since(BOOL, 3),
];

const ALTER_CONFIGS: &[Field] = &[
    always(Kind::Structs(&[always(I8), always(TEXT), always(Kind::Structs(&[always(TEXT), always(NULLABLE_TEXT)]))])),
    always(BOOL),
];

const CREATE_PARTITIONS: &[Field] = &[
    always(Kind::Structs(&[always(TEXT), always(I32), always(Kind::NullableStructs(&[always(I32S)]))])),
    always(I32),
    always(BOOL),
];

const DELETE_GROUPS: &[Field] = &[always(TEXTS)];

const INCREMENTAL_ALTER_CONFIGS: &[Field] = &[
    always(Kind::Structs(&[
        always(I8),
        always(TEXT),
        always(Kind::Structs(&[always(TEXT), always(I8), always(NULLABLE_TEXT)])),
    ])),
    always(BOOL),
];

const OFFSET_DELETE: &[Field] =
    &[always(TEXT), always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32)]))]))];

const DESCRIBE_CLUSTER: &[Field] = &[always(BOOL), since(I8, 1), since(BOOL, 2)];
const DESCRIBE_PRODUCERS: &[Field] = &[always(Kind::Structs(&[always(TEXT), always(I32S)]))];
const DESCRIBE_TRANSACTIONS: &[Field] = &[always(TEXTS)];
const LIST_TRANSACTIONS: &[Field] = &[always(TEXTS), always(I64S), since(I64, 1)];
