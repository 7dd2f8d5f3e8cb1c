//! A partition's log: what is queued, what is durable, who waits.
//!
//! Two locks. `state` is held for moments and never across I/O; `writer` is held by whoever changes files (flusher,
//! retention, compaction), always on a thread that may block, and is taken first.

mod checkpoints;
mod removal;
mod state;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kafka_protocol::ResponseError;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use super::disk::{OpenMode, create_dir_durable};
use super::files::FileCache;
use super::flusher::FlushQueue;
use super::producers::{Aborted, Admission, Beginning, Producers};
use super::recovery::Recovered;
use super::segment::Segment;
use super::trouble::Troubles;
use crate::clock::now_ms;
use crate::topic_config::TopicConfig;
use crate::wire::batch::{BatchHeader, Marker, assign_offset, stamp_append_time};

use state::{Health, Pending};
pub(in crate::storage) use state::{MAX_GROUP_BYTES, State};

/// Pause between attempts to repair a partition after a failed write.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);

/// What all partitions share.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Open files.
    pub files: Arc<FileCache>,
    /// Where partitions with something to write queue up.
    pub queue: Arc<FlushQueue>,
    /// The data folder.
    pub root: PathBuf,
    /// Where failed writes are told.
    pub troubles: Arc<Troubles>,
}

/// Names a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionName {
    /// Topic.
    pub topic: String,
    /// Index in it.
    pub index: i32,
}

impl std::fmt::Display for PartitionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

/// A partition of a topic.
pub(crate) struct Partition {
    /// Its name.
    pub name: PartitionName,
    pub(super) shared: Shared,
    pub(super) folder: PathBuf,
    pub(super) config: Arc<RwLock<Arc<TopicConfig>>>,
    pub(super) state: Mutex<State>,
    pub(super) writer: Mutex<()>,
}

/// An accepted batch.
pub(crate) struct Appended {
    /// Offset of its first record.
    pub base_offset: i64,
    /// The broker's time if the topic stamps it, else -1.
    pub append_time_ms: i64,
    /// Start of the log.
    pub log_start: i64,
    /// Resolves when the batch is durable; none if it is so already.
    pub durable: Option<oneshot::Receiver<Result<(), ResponseError>>>,
}

/// The ends of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// First offset that may be read.
    pub log_start: i64,
    /// End of what is durable.
    pub high_watermark: i64,
    /// End of what is decided: no open transaction begins before it.
    pub last_stable: i64,
}

impl Bounds {
    /// End of what a reader may see.
    pub(crate) fn visible(&self, committed_only: bool) -> i64 {
        if committed_only { self.last_stable } else { self.high_watermark }
    }
}

/// Figures for people.
#[derive(Debug, Clone)]
pub struct PartitionStats {
    /// Index in the topic.
    pub partition: i32,
    /// First offset.
    pub start_offset: i64,
    /// Offset of the next record.
    pub end_offset: i64,
    /// Durable bytes on disk.
    pub size_bytes: u64,
    /// Number of segment files.
    pub segments: usize,
    /// What is wrong, if something is.
    pub error: Option<String>,
}

impl Partition {
    /// A partition over what recovery found (nothing, for a new one).
    pub(crate) fn new(
        name: PartitionName,
        folder: PathBuf,
        config: Arc<RwLock<Arc<TopicConfig>>>,
        shared: Shared,
        log_start: i64,
        recovered: Recovered,
    ) -> Arc<Self> {
        let first = recovered.segments.first().map_or(0, |segment| segment.base_offset);
        let log_start = log_start.max(first);
        let end = recovered.end_offset.max(log_start);
        let is_scanned = recovered.segments.last().is_some_and(|active| active.size > active.checkpointed);
        let state = State {
            segments: recovered.segments,
            log_start,
            high_watermark: end,
            log_end: end,
            queued: recovered.producers.clone(),
            durable: recovered.producers,
            pending: VecDeque::new(),
            scheduled: false,
            waiters: VecDeque::new(),
            fetchers: HashMap::new(),
            next_fetcher: 0,
            tail: VecDeque::new(),
            tail_bytes: 0,
            last_append_ms: 0,
            uncheckpointed_since_ms: is_scanned.then(now_ms),
            health: recovered.corrupt.map_or(Health::Good, Health::Corrupt),
            damage: None,
        };
        Arc::new(Self { name, shared, folder, config, state: Mutex::new(state), writer: Mutex::new(()) })
    }

    /// The topic's settings at this moment.
    pub(crate) fn config(&self) -> Arc<TopicConfig> {
        self.config.read().clone()
    }

    /// Queues a client's batch, already checked for its checksum and size.
    pub(crate) fn append(
        self: &Arc<Self>,
        header: BatchHeader,
        bytes: BytesMut,
        memory: Option<OwnedSemaphorePermit>,
        beginning: Beginning,
    ) -> Result<Appended, ResponseError> {
        let mut state = self.state.lock();
        self.ensure_writable(&mut state)?;
        if header.producer_id >= 0
            && let Admission::Duplicate { base_offset, last_offset } = state.queued.admit(&header, beginning)?
        {
            let durable = (last_offset >= state.high_watermark).then(|| state.wait_for(last_offset));
            return Ok(Appended { base_offset, append_time_ms: -1, log_start: state.log_start, durable });
        }
        Ok(self.enqueue(&mut state, header, None, bytes, memory))
    }

    /// Queues a transaction marker.
    pub(crate) fn append_marker(
        self: &Arc<Self>,
        header: BatchHeader,
        marker: Marker,
        bytes: BytesMut,
    ) -> Result<Appended, ResponseError> {
        let mut state = self.state.lock();
        self.ensure_writable(&mut state)?;
        state.queued.admit_marker(header.producer_id, header.producer_epoch)?;
        Ok(self.enqueue(&mut state, header, Some(marker), bytes, None))
    }

    fn enqueue(
        self: &Arc<Self>,
        state: &mut State,
        mut header: BatchHeader,
        marker: Option<Marker>,
        mut bytes: BytesMut,
        memory: Option<OwnedSemaphorePermit>,
    ) -> Appended {
        header.base_offset = state.log_end;
        assign_offset(&mut bytes, header.base_offset);
        let mut append_time_ms = -1;
        let now = now_ms();
        if self.config().log_append_time() && marker.is_none() {
            append_time_ms = now;
            header.max_timestamp = now;
            stamp_append_time(&mut bytes, now);
        }
        state.queued.apply(&header, marker, now);
        state.log_end = header.last_offset() + 1;
        let durable = state.wait_for(header.last_offset());
        state.pending.push_back(Pending { header, marker, bytes: bytes.freeze(), _memory: memory });
        self.schedule(state);
        let log_start = state.log_start;
        Appended { base_offset: header.base_offset, append_time_ms, log_start, durable: Some(durable) }
    }

    fn ensure_writable(self: &Arc<Self>, state: &mut State) -> Result<(), ResponseError> {
        match &state.health {
            Health::Good => Ok(()),
            Health::Corrupt(_) => Err(ResponseError::KafkaStorageError),
            Health::Deleted => Err(ResponseError::UnknownTopicOrPartition),
            Health::Failed { since } => {
                if since.elapsed() >= REPAIR_PAUSE {
                    self.schedule(state);
                }
                Err(ResponseError::KafkaStorageError)
            }
        }
    }

    /// Tries to repair a log that could not be written when it is time, also if nobody writes to it.
    pub(crate) fn mend(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if matches!(state.health, Health::Failed { since } if since.elapsed() >= REPAIR_PAUSE) {
            self.schedule(&mut state);
        }
    }

    fn schedule(self: &Arc<Self>, state: &mut State) {
        if !state.scheduled {
            state.scheduled = true;
            self.shared.queue.push(self.clone());
        }
    }

    /// Writes and syncs one group of what is queued; whether there is more. Blocks; called by the flusher threads.
    pub(crate) fn flush(&self) -> bool {
        let writer = self.writer.lock();
        let failed = matches!(self.state.lock().health, Health::Failed { .. });
        if failed {
            self.repair();
        }
        let group = self.state.lock().take_group();
        if let Err(error) = self.write_group(group) {
            tracing::error!(partition = %self.name, error = %error, "writing failed, the batches are refused");
            self.shared.troubles.failed(&self.folder, &error);
            self.state.lock().fail();
            self.repair();
        }
        drop(writer);
        let mut state = self.state.lock();
        state.scheduled = !state.pending.is_empty();
        state.scheduled
    }

    fn write_group(&self, mut group: VecDeque<Pending>) -> io::Result<()> {
        let config = self.config();
        while let Some(first) = group.front() {
            if self.state.lock().must_roll(first.bytes.len() as u64, &config) {
                self.roll()?;
            }
            let (id, path, size) = self.state.lock().active();
            let mut end = size;
            let mut part = Vec::new();
            while let Some(next) = group.front() {
                let fits = part.is_empty() || end + next.bytes.len() as u64 <= config.segment_bytes;
                if !fits {
                    break;
                }
                end += next.bytes.len() as u64;
                part.extend(group.pop_front());
            }
            let file = self.shared.files.get(id, &path)?;
            write_batches(&*file, &part, size)?;
            file.sync_data()?;
            let news = self.state.lock().publish(part);
            news.tell();
        }
        Ok(())
    }

    /// Seals the active segment with a checkpoint and starts the next. The writer lock is held.
    pub(super) fn roll(&self) -> io::Result<()> {
        let (checkpoint, base_offset) = {
            let state = self.state.lock();
            (state.checkpoint(), state.high_watermark)
        };
        let disk = self.shared.files.disk();
        match checkpoint {
            // Without its checkpoint the segment is scanned at the next start: slower, never wrong.
            Some((path, checkpoint)) => {
                if let Err(error) = checkpoint.write(&**disk, &path) {
                    tracing::warn!(partition = %self.name, error = %error, "segment checkpoint not written");
                }
            }
            None => create_dir_durable(&**disk, &self.shared.root, &self.folder)?,
        }
        let segment = Segment::new(&self.folder, base_offset, 0);
        let file = disk.open(&segment.path, OpenMode::Truncate)?;
        disk.sync_dir(&self.folder)?;
        self.shared.files.insert(segment.id, file);
        let mut state = self.state.lock();
        state.segments.push(segment);
        state.uncheckpointed_since_ms = None;
        Ok(())
    }

    /// Cuts the active file back to what is durable; afterwards the partition takes writes again.
    ///
    /// After a failed sync the page cache may hold bytes that are not on the medium and that a reading back would not
    /// betray; they were never acknowledged, and cutting them off makes memory and medium agree again.
    fn repair(&self) {
        let active = {
            let state = self.state.lock();
            state.segments.last().map(|segment| (segment.id, segment.path.clone(), segment.size))
        };
        let cut = active.map_or(Ok(()), |(id, path, size)| {
            self.shared.files.forget(id);
            let file = self.shared.files.get(id, &path)?;
            file.set_len(size)?;
            file.sync_data()
        });
        let mut state = self.state.lock();
        if !matches!(state.health, Health::Failed { .. }) {
            return;
        }
        match cut {
            Ok(()) => {
                state.health = Health::Good;
                tracing::info!(partition = %self.name, "the log is cut back to what is durable and takes writes again");
            }
            Err(error) => {
                state.health = Health::Failed { since: Instant::now() };
                self.shared.troubles.failed(&self.folder, &error);
                tracing::error!(partition = %self.name, error = %error, "the log cannot be repaired yet");
            }
        }
    }

    /// The ends of the log.
    pub(crate) fn bounds(&self) -> Bounds {
        self.state.lock().bounds()
    }

    /// Whether `offset` lies outside the log.
    pub(crate) fn is_out_of_range(&self, offset: i64) -> bool {
        let state = self.state.lock();
        offset < state.log_start || offset > state.log_end || state.health == Health::Deleted
    }

    /// Bytes from `offset` to the visible end, to within an index interval.
    pub(crate) fn available(&self, offset: i64, committed_only: bool) -> u64 {
        let state = self.state.lock();
        let end = state.bounds().visible(committed_only);
        if offset >= end {
            return 0;
        }
        let mut bytes = 0;
        for segment in state.segments.iter().rev() {
            if segment.base_offset <= offset {
                let upto =
                    if end >= state.high_watermark { segment.size } else { segment.size.min(segment.floor(end) + 1) };
                return (bytes + upto.saturating_sub(segment.floor(offset))).max(1);
            }
            bytes += segment.size;
        }
        bytes.max(1)
    }

    /// Aborted transactions with records in `from..until`.
    pub(crate) fn aborted_in(&self, from: i64, until: i64) -> Vec<Aborted> {
        self.state.lock().durable.aborted_in(from, until).collect()
    }

    /// Runs `read` over the producers of the durable log.
    pub(crate) fn with_producers<T>(&self, read: impl FnOnce(&Producers) -> T) -> T {
        read(&self.state.lock().durable)
    }

    /// Whose transactions the durable log leaves open: producer ids with their epochs.
    pub(crate) fn open_transactions(&self) -> Vec<(i64, i16)> {
        self.with_producers(Producers::open_transactions)
    }

    /// Whether what is in the log, or queued for it, leaves a transaction of this producer open, under this epoch.
    pub(crate) fn is_within_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        self.state.lock().queued.is_within_transaction(producer_id, epoch)
    }

    /// `notify` is told of every append until the guard is dropped.
    pub(crate) fn watch(self: &Arc<Self>, notify: Arc<Notify>) -> WatchGuard {
        let mut state = self.state.lock();
        state.next_fetcher += 1;
        let id = state.next_fetcher;
        state.fetchers.insert(id, notify);
        WatchGuard { partition: self.clone(), id }
    }

    /// What is wrong with the log, if something is.
    pub(crate) fn error(&self) -> Option<String> {
        let state = self.state.lock();
        match &state.health {
            Health::Good => state.damage.clone(),
            Health::Deleted => None,
            Health::Failed { .. } => Some("the last write failed".into()),
            Health::Corrupt(reason) => Some(reason.clone()),
        }
    }

    /// A reader at `offset` has met damage. What stands before and behind it is served, and writes go on: they lie elsewhere.
    pub(in crate::storage) fn found_damage(&self, offset: i64, error: &dyn std::fmt::Display) {
        self.state.lock().damage = Some(format!(
            "the log is damaged from offset {offset} on ({error}); restore the file from a backup, or read on behind it"
        ));
    }

    /// Whether reads at `offset` must fail because the log is corrupt from there on.
    pub(crate) fn is_corrupt_at(&self, offset: i64) -> bool {
        let state = self.state.lock();
        matches!(state.health, Health::Corrupt(_)) && offset >= state.high_watermark
    }

    /// Figures for people.
    pub(crate) fn stats(&self) -> PartitionStats {
        let error = self.error();
        let state = self.state.lock();
        PartitionStats {
            partition: self.name.index,
            start_offset: state.log_start,
            end_offset: state.high_watermark,
            size_bytes: state.segments.iter().map(|segment| segment.size).sum(),
            segments: state.segments.len(),
            error,
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.state.lock().health == Health::Good
    }

    /// The folder with the segments.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

fn write_batches(file: &dyn super::disk::DiskFile, part: &[Pending], position: u64) -> io::Result<()> {
    if let [only] = part {
        return file.write_all_at(&only.bytes, position);
    }
    let mut buffer = Vec::with_capacity(part.iter().map(|pending| pending.bytes.len()).sum());
    part.iter().for_each(|pending| buffer.extend_from_slice(&pending.bytes));
    file.write_all_at(&buffer, position)
}

/// Ends a [`Partition::watch`].
pub(crate) struct WatchGuard {
    partition: Arc<Partition>,
    id: u64,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.partition.state.lock().fetchers.remove(&self.id);
    }
}
