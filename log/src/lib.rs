//! The only place that knows Kafka: producing, consuming, tailing, transactions, dead letters, blobs, administration and
//! the start of the embedded broker. Everything above speaks in [`Record`]s, [`Outgoing`]s and typed events.

pub mod admin;
pub mod archive;
pub mod blobs;
pub mod dead_letters;
pub mod embedded;
pub mod lag;
pub mod registry;

mod clock;
mod config;
mod context;
mod error;
mod group;
mod outbox;
mod partitioner;
mod producer;
mod record;
mod tail;
mod transaction;
mod watermarks;

/// What the embedded broker says of itself, and how it is reached from elsewhere.
pub mod broker {
    pub use riverrun_broker::{
        Figures, FiguresHandle, PartitionStats, SecureListener, StorageFault, StorageTrouble, TlsFiles, TopicInfo,
    };
}

pub use blobs::{BlobError, BlobStore, ObjectStoreBlobs, S3Config};
pub use config::{LogConfig, refused_setting};
pub use dead_letters::DeadLetter;
pub use embedded::EmbeddedBroker;
pub use error::LogError;
pub use group::{
    AssignedPartition, CommitOffset, GroupConfig, GroupConsumer, GroupMetadata, GroupWatch, OutOfRange, SessionEvent,
};
pub use partitioner::partition_of;
pub use producer::{MAX_EVENT_BYTES, Producer};
pub use record::{Outgoing, Position, Record, StartAt, TopicPartition};
pub use registry::{Credentials, RegistryConfig, RegistryError, SchemaRegistry, Schemas};
pub use tail::Tail;
pub use transaction::TransactionalProducer;
