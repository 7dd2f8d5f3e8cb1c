//! A durable single-node broker that speaks the Kafka protocol.
//!
//! Any Kafka client connects to it: topics, consumer groups, idempotent and transactional producers, retention and
//! compaction work as with Apache Kafka, within one node. Records are acknowledged and visible only after they have been
//! synced to disk. See [`Broker::start`].
//!
//! ```no_run
//! # async fn example() -> Result<(), riverrun_broker::StartError> {
//! use riverrun_broker::{Broker, BrokerConfig};
//!
//! let broker = Broker::start(BrokerConfig::new("/var/lib/broker")).await?;
//! println!("bootstrap.servers={}", broker.local_addr());
//! broker.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//! - One node: replication factor 1, `acks=1` and `acks=all` are the same, both wait for the sync. `acks=0` waits for nothing.
//! - Batches are kept as sent, until compaction takes records out of them.
//! - A torn write at the end of a log is set aside and cut off at start, as are the parts of a write that power took away
//!   in the middle. If sound batches follow a bad one otherwise, or something that was synced is gone, the partition ends at
//!   the last good offset, refuses writes and says so; its files are left alone.

mod broker;
mod clock;
mod config;
mod fetch_sessions;
mod figures;
mod groups;
mod handlers;
mod housekeeping;
mod lag;
mod meta;
mod node;
mod pace;
mod security;
mod server;
mod storage;
mod topic_config;
mod topics;
mod txn;
pub mod versions;
pub mod wire;

pub use broker::{Broker, GroupInfo, GroupMemberInfo, TopicInfo};
pub use config::{BrokerConfig, StartError};
pub use figures::{Figures, FiguresHandle};
pub use lag::GroupPosition;
pub use security::{SecureListener, SecurityError, TlsFiles};
pub use storage::disk::{Disk, DiskFile, OpenMode, RealDisk};
pub use storage::journal::JournalError;
pub use storage::partition::PartitionStats;
pub use storage::trouble::{StorageFault, StorageTrouble};

#[cfg(test)]
#[path = "../../fuzz/harness.rs"]
mod fuzz;
#[cfg(test)]
mod fuzz_tests;
