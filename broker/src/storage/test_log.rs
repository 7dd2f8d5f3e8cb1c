//! A partition over a folder, without a broker, for tests of what is done to logs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::RwLock;
use tempfile::TempDir;

use super::disk::{Disk, RealDisk};
use super::files::FileCache;
use super::flusher::FlushQueue;
use super::partition::{Partition, PartitionName, Shared};
use super::producers::Beginning;
use super::recovery::Recovered;
use super::trouble::Troubles;
use crate::topic_config::TopicConfig;
use crate::wire::batch::{BatchHeader, build_batch};

/// Whose transactions are appended.
pub(crate) const PRODUCER: i64 = 7;
const TRANSACTIONAL: i16 = 0x10;
const SEGMENT_BYTES: u64 = 1 << 20;

pub(crate) fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

/// The partition's folder.
pub(crate) fn folder(place: &TempDir) -> PathBuf {
    place.path().join("0")
}

/// A partition of a topic with these settings over what was recovered.
pub(crate) fn open(place: &TempDir, recovered: Recovered, settings: &[(&str, &str)]) -> Arc<Partition> {
    let settings: BTreeMap<String, String> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let config = Arc::new(RwLock::new(Arc::new(TopicConfig::new(&settings, SEGMENT_BYTES))));
    let files = Arc::new(FileCache::new(disk(), 8));
    let root = place.path().to_path_buf();
    let troubles = Arc::new(Troubles::new(disk(), root.clone()));
    let shared = Shared { files, queue: Arc::new(FlushQueue::default()), root, troubles };
    let name = PartitionName { topic: "t".into(), index: 0 };
    Partition::new(name, folder(place), config, shared, 0, recovered)
}

/// Appends a record with this key, within a transaction if it has a sequence number, and waits for the disk.
pub(crate) fn append(partition: &Arc<Partition>, key: u8, sequence: Option<i32>) {
    let is_transactional = sequence.is_some();
    let header = BatchHeader {
        base_offset: 0,
        size: 0,
        attributes: if is_transactional { TRANSACTIONAL } else { 0 },
        last_offset_delta: 0,
        base_timestamp: 1_000,
        max_timestamp: 1_000,
        producer_id: if is_transactional { PRODUCER } else { -1 },
        producer_epoch: if is_transactional { 0 } else { -1 },
        base_sequence: sequence.unwrap_or(-1),
        records: 1,
    };
    let bytes = build_batch(&header, &[16, 0, 0, 0, 2, key, 2, b'v', 0]);
    let header = BatchHeader::parse_checked(&bytes).unwrap();
    partition.append(header, BytesMut::from(&bytes[..]), None, Beginning::Anywhere).unwrap();
    partition.flush();
}
