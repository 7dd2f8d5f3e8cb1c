//! Settings of a broker and what can go wrong at its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::security::{SecureListener, SecurityError};
use crate::storage::disk::{Disk, RealDisk};
use crate::storage::journal::JournalError;

/// Settings of a broker. Begin with [`BrokerConfig::new`] and change what should differ.
#[derive(Clone)]
pub struct BrokerConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Folder for everything that is kept.
    pub data_dir: PathBuf,
    /// Host and port told to clients; none tells each client the address that it has connected to.
    pub advertised: Option<(String, u16)>,
    /// A second listener for clients beyond this machine; none listens on [`listen`](Self::listen) alone.
    pub secure: Option<SecureListener>,
    /// Whether asking for a topic, or producing to it, creates it.
    pub auto_create_topics: bool,
    /// Partitions of a topic when nothing is said.
    pub default_partitions: i32,
    /// Size at which a segment file is closed, for topics that say nothing.
    pub segment_bytes: u64,
    /// Most partitions of all topics together; creations beyond are refused.
    pub max_partitions: usize,
    /// Largest request in bytes; a connection that announces a larger one is closed.
    pub max_frame_bytes: usize,
    /// Most connections of a listener at a time; more are closed at once.
    pub max_connections: usize,
    /// Bytes of records that may wait for the disk; producers wait beyond.
    pub max_queued_bytes: usize,
    /// Most records' bytes in one fetch response, whatever the client asks for.
    pub max_fetch_bytes: usize,
    /// Threads that write and sync partitions.
    pub flush_threads: usize,
    /// Most segment files held open.
    pub max_open_files: usize,
    /// Size in bytes above which the journal is compacted.
    pub journal_compact_bytes: u64,
    /// How often retention, compaction, checkpoints and expiry are looked after.
    pub housekeeping_interval: Duration,
    /// How long what has been written to a partition may be without a checkpoint, which spares a start after a crash the scan.
    pub checkpoint_interval: Duration,
    /// A connection without requests is closed after this time.
    pub idle_timeout: Duration,
    /// A client that does not take its answer, or does not finish a request that it has begun, is cut off after this time.
    pub stall_timeout: Duration,
    /// Shortest session of a group member.
    pub min_session_timeout: Duration,
    /// Longest session of a group member.
    pub max_session_timeout: Duration,
    /// Longest time a transaction may stay open.
    pub max_transaction_timeout_ms: i32,
    /// Most transactional ids; more are refused.
    pub max_transactional_ids: usize,
    /// Offsets of a group without members are dropped after this time.
    pub offsets_retention: Duration,
    /// A producer that has not written for this time is forgotten by a partition.
    pub producer_expiry: Duration,
    /// A transactional id that has not been used for this time is forgotten.
    pub transactional_id_expiry: Duration,
    pub(crate) disk: Arc<dyn Disk>,
}

impl BrokerConfig {
    /// The defaults over `data_dir`: 127.0.0.1:9092, topics created on demand with one partition.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        const MIB: usize = 1 << 20;
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9092)),
            data_dir: data_dir.into(),
            advertised: None,
            secure: None,
            auto_create_topics: true,
            default_partitions: 1,
            segment_bytes: 64 * MIB as u64,
            max_partitions: 10_000,
            max_frame_bytes: 100 * MIB,
            max_connections: 2_000,
            max_queued_bytes: 256 * MIB,
            max_fetch_bytes: 64 * MIB,
            flush_threads: 4,
            max_open_files: 256,
            journal_compact_bytes: 8 * MIB as u64,
            housekeeping_interval: Duration::from_secs(5),
            checkpoint_interval: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(600),
            stall_timeout: Duration::from_secs(30),
            min_session_timeout: Duration::from_secs(1),
            max_session_timeout: Duration::from_secs(1800),
            max_transaction_timeout_ms: 900_000,
            max_transactional_ids: 100_000,
            offsets_retention: 7 * DAY,
            producer_expiry: DAY,
            transactional_id_expiry: 7 * DAY,
            disk: Arc::new(RealDisk),
        }
    }

    /// Listens elsewhere.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Keeps everything on another file system; for tests with a disk that fails.
    #[must_use]
    pub fn with_disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }
}

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Something listens there already.
    #[error("cannot listen on {address}, the address is in use: stop what listens there or choose another port")]
    AddressInUse {
        /// Where.
        address: SocketAddr,
    },
    /// The operating system refuses to listen there.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// Another broker owns the data folder.
    #[error("the data folder {path} is in use by another broker: stop it or choose another folder")]
    DataDirInUse {
        /// The folder.
        path: PathBuf,
    },
    /// The data folder cannot be used.
    #[error("cannot use the data folder {path}: {error}")]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The secure listener cannot be.
    #[error(transparent)]
    Security(#[from] SecurityError),
}
