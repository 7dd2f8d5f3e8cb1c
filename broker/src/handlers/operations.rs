//! What a client is told it may do. There are no ACLs: whoever is in may do everything that there is to do with a kind of
//! resource.

const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

/// With a topic; the bits are those of Apache Kafka's `AclOperation`.
pub(super) const TOPIC: i32 = READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
/// With a group.
pub(super) const GROUP: i32 = READ | DELETE | DESCRIBE;
/// With the cluster.
pub(super) const CLUSTER: i32 =
    CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | DESCRIBE_CONFIGS | ALTER_CONFIGS | IDEMPOTENT_WRITE;
/// When nobody has asked.
pub(super) const NOT_ASKED: i32 = i32::MIN;
