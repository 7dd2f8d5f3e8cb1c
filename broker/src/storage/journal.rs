//! The journal: an append-only file of small entries that says what exists besides the records.
//!
//! Every entry is `magic, length, CRC-32C, JSON`. Entries are applied to the state in memory and queued under one lock, so
//! the order in the file is the order in memory; a thread writes and syncs them in groups and then tells those who wait. When
//! the file has grown, the state is written as a new file that replaces it atomically.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::disk::{Disk, DiskFile, OpenMode};
use super::recovery::has_hole;
use super::trouble::Troubles;

const MAGIC: [u8; 4] = *b"RRJ1";
const FRAME: usize = 12;
const MAX_ENTRY: usize = 64 << 20;
const NAME: &str = "meta.journal";
const REPAIR_PAUSE: Duration = Duration::from_secs(1);

/// A state that is the fold of its entries.
pub(crate) trait Folded: Default + Send + 'static {
    /// What changes it.
    type Entry: Serialize + DeserializeOwned;
    /// What takes an entry out of it again.
    type Undo: Send + 'static;
    /// Applies an entry.
    fn apply(&mut self, entry: Self::Entry);
    /// Entries that rebuild the state from nothing.
    fn snapshot(&self) -> Vec<Self::Entry>;
    /// What takes `entry`, which is about to be applied, back if it is refused; none where it is to stand all the same, or
    /// whoever recorded it takes it back.
    fn undo_of(&self, entry: &Self::Entry) -> Option<Self::Undo>;
    /// Takes a refused entry back. `later` belong to entries that came after it and may yet be accepted, in their order.
    fn undo(&mut self, undo: Self::Undo, later: &mut [&mut Self::Undo]);
}

/// Why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refuses.
    #[error("cannot read the journal {path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A bad entry with good ones behind it.
    #[error("the journal {path} is corrupt at byte {position}; restore it from a backup")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where.
        position: u64,
    },
}

/// Resolves when an entry is durable, or with the error to answer.
pub(crate) type Durable = oneshot::Receiver<Result<(), ResponseError>>;

/// A journaled state.
pub(crate) struct Journal<S: Folded> {
    core: Arc<Core<S>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Core<S: Folded> {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    compact_above: u64,
    troubles: Arc<Troubles>,
    inner: Mutex<Inner<S>>,
    ready: Condvar,
}

struct Inner<S: Folded> {
    state: S,
    pending: Vec<u8>,
    waiters: Vec<Waiter<S::Undo>>,
    /// Whether entries have been taken out of `pending` and are not known to be on the disk.
    writing: bool,
    failed: Option<Instant>,
    closed: bool,
}

/// An entry of which nobody knows yet whether it is durable.
struct Waiter<U> {
    told: oneshot::Sender<Result<(), ResponseError>>,
    undo: Option<U>,
}

/// What the thread owns.
struct File {
    file: Arc<dyn DiskFile>,
    size: u64,
    snapshot_size: u64,
}

/// The state with the journal's lock held; what is recorded while it is held stays together.
pub(crate) struct Locked<'a, S: Folded> {
    inner: parking_lot::MutexGuard<'a, Inner<S>>,
    core: &'a Core<S>,
}

impl<S: Folded> Journal<S> {
    /// Opens or creates the journal in `folder` and starts its thread, which tells `troubles` of what it can't write.
    /// `compact_above` is in bytes.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        compact_above: u64,
        troubles: Arc<Troubles>,
    ) -> Result<Self, JournalError> {
        let path = folder.join(NAME);
        let fail = |error| JournalError::Io { path: path.clone(), error };
        let (state, file) = load::<S>(&disk, folder, &path)?;
        let core = Arc::new(Core {
            disk,
            path: path.clone(),
            compact_above,
            troubles,
            inner: Mutex::new(Inner {
                state,
                pending: Vec::new(),
                waiters: Vec::new(),
                writing: false,
                failed: None,
                closed: false,
            }),
            ready: Condvar::new(),
        });
        let running = core.clone();
        let thread =
            std::thread::Builder::new().name("broker-journal".into()).spawn(move || running.run(file)).map_err(fail)?;
        Ok(Self { core, thread: Mutex::new(Some(thread)) })
    }

    /// The state, for reading and recording.
    pub(crate) fn lock(&self) -> Locked<'_, S> {
        Locked { inner: self.core.inner.lock(), core: &self.core }
    }

    /// Records one entry and waits until it is durable.
    pub(crate) async fn record(&self, entry: S::Entry) -> Result<(), ResponseError> {
        let durable = self.lock().record(entry)?;
        wait(durable).await
    }

    /// Writes what is queued and ends the thread. Blocks.
    pub(crate) fn stop(&self) {
        self.core.inner.lock().closed = true;
        self.core.ready.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the journal thread panicked");
        }
    }
}

impl<S: Folded> Drop for Journal<S> {
    fn drop(&mut self) {
        self.core.inner.lock().closed = true;
        self.core.ready.notify_all();
    }
}

/// Waits for a recorded entry.
pub(crate) async fn wait(durable: Durable) -> Result<(), ResponseError> {
    durable.await.unwrap_or(Err(ResponseError::KafkaStorageError))
}

impl<S: Folded> Locked<'_, S> {
    /// Applies an entry and queues it for the disk. After a failed write nothing is taken until the journal is whole again.
    pub(crate) fn record(&mut self, entry: S::Entry) -> Result<Durable, ResponseError> {
        if self.inner.failed.is_some() {
            self.mend();
            return Err(ResponseError::KafkaStorageError);
        }
        let inner = &mut *self.inner;
        push_entry(&mut inner.pending, &entry).map_err(|error| {
            tracing::error!(error = %error, "journal entry not encodable");
            ResponseError::UnknownServerError
        })?;
        let undo = inner.state.undo_of(&entry);
        inner.state.apply(entry);
        let (told, receiver) = oneshot::channel();
        inner.waiters.push(Waiter { told, undo });
        self.core.ready.notify_all();
        Ok(receiver)
    }
}

impl<S: Folded> Locked<'_, S> {
    /// Records what undoes an entry that was refused, also while nothing else is taken: the refused one is part of the state,
    /// from which the next file is written. Nobody waits for it.
    pub(crate) fn take_back(&mut self, entry: S::Entry) {
        let inner = &mut *self.inner;
        if let Err(error) = push_entry(&mut inner.pending, &entry) {
            tracing::error!(error = %error, "journal entry not encodable");
            return;
        }
        inner.state.apply(entry);
        self.core.ready.notify_all();
    }

    /// Has a journal that could not be written tried again when it is time, which needs nobody who has something to record.
    pub(crate) fn mend(&self) {
        if repair_due(&self.inner) {
            self.core.ready.notify_all();
        }
    }

    /// Whether something that is part of the state may not be on the disk.
    pub(crate) fn is_behind(&self) -> bool {
        self.inner.writing || !self.inner.pending.is_empty() || self.inner.failed.is_some()
    }
}

impl<S: Folded> std::ops::Deref for Locked<'_, S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.inner.state
    }
}

impl<S: Folded> Inner<S> {
    /// Takes what was refused out of the state, the last first and before anybody is told, so that no client finds what another
    /// one, or itself, was refused.
    fn take_back(&mut self, refused: &mut [Waiter<S::Undo>]) {
        let mut later: Vec<&mut S::Undo> = self.waiters.iter_mut().filter_map(|waiter| waiter.undo.as_mut()).collect();
        for undo in refused.iter_mut().rev().filter_map(|waiter| waiter.undo.take()) {
            self.state.undo(undo, &mut later);
        }
    }
}

impl<S: Folded> Core<S> {
    fn run(&self, mut file: File) {
        loop {
            let (bytes, mut waiters, repair) = {
                let mut inner = self.inner.lock();
                while inner.pending.is_empty() && !inner.closed && !repair_due(&inner) {
                    self.ready.wait(&mut inner);
                }
                if inner.pending.is_empty() && inner.closed {
                    return;
                }
                let repair = inner.failed.is_some();
                inner.writing = true;
                (std::mem::take(&mut inner.pending), std::mem::take(&mut inner.waiters), repair)
            };
            let grown = file.size + bytes.len() as u64 > self.compact_above.max(4 * file.snapshot_size);
            let written = if repair || grown { self.rewrite(&mut file, &mut waiters) } else { file.append(&bytes) };
            if let Err(error) = &written {
                tracing::error!(file = %self.path.display(), error = %error, "writing the journal failed, changes are refused");
                self.troubles.failed(&self.path, error);
            }
            {
                let mut inner = self.inner.lock();
                inner.failed = written.is_err().then(Instant::now);
                inner.writing = false;
                if written.is_err() {
                    inner.take_back(&mut waiters);
                }
            }
            let answer = written.map_err(|_| ResponseError::KafkaStorageError);
            for waiter in waiters {
                let _ = waiter.told.send(answer);
            }
        }
    }

    /// Replaces the file by the state as it is now. Whatever was queued up to now is part of it, and so are its waiters.
    fn rewrite(&self, file: &mut File, waiters: &mut Vec<Waiter<S::Undo>>) -> io::Result<()> {
        let entries = {
            let mut inner = self.inner.lock();
            inner.pending.clear();
            waiters.append(&mut inner.waiters);
            inner.state.snapshot()
        };
        let mut bytes = Vec::new();
        entries.iter().try_for_each(|entry| push_entry(&mut bytes, entry))?;
        let temporary = self.path.with_extension("journal.tmp");
        let new = self.disk.open(&temporary, OpenMode::Truncate)?;
        new.write_all_at(&bytes, 0)?;
        new.sync_data()?;
        self.disk.rename(&temporary, &self.path)?;
        self.path.parent().map_or(Ok(()), |folder| self.disk.sync_dir(folder))?;
        let size = bytes.len() as u64;
        *file = File { file: new, size, snapshot_size: size };
        Ok(())
    }
}

impl File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(bytes, self.size).and_then(|()| self.file.sync_data());
        match &written {
            Ok(()) => self.size += bytes.len() as u64,
            // What is refused is not to be found by a start that comes before the next file. Where that fails too, it may be.
            Err(_) => drop(self.file.set_len(self.size)),
        }
        written
    }
}

fn push_entry<E: Serialize>(into: &mut Vec<u8>, entry: &E) -> io::Result<()> {
    let body = serde_json::to_vec(entry).map_err(io::Error::other)?;
    if body.len() > MAX_ENTRY {
        return Err(io::Error::other(format!("entry of {} bytes, at most {MAX_ENTRY} are allowed", body.len())));
    }
    into.extend_from_slice(&MAGIC);
    into.extend_from_slice(&(body.len() as u32).to_be_bytes());
    into.extend_from_slice(&crc32c::crc32c(&body).to_be_bytes());
    into.extend_from_slice(&body);
    Ok(())
}

/// The entry at the start of `bytes` and its size with the frame.
fn parse_entry(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (head, rest) = bytes.split_at_checked(FRAME)?;
    let length = u32::from_be_bytes(head[4..8].try_into().ok()?) as usize;
    let body = rest.get(..length)?;
    let good = head[..4] == MAGIC && head[8..] == crc32c::crc32c(body).to_be_bytes();
    good.then_some((body, FRAME + length))
}

fn load<S: Folded>(disk: &Arc<dyn Disk>, folder: &Path, path: &Path) -> Result<(S, File), JournalError> {
    let fail = |error| JournalError::Io { path: path.to_path_buf(), error };
    let exists = disk.list(folder).map_err(fail)?.iter().any(|other| other == path);
    if !exists {
        let file = disk.open(path, OpenMode::Truncate).map_err(fail)?;
        disk.sync_dir(folder).map_err(fail)?;
        return Ok((S::default(), File { file, size: 0, snapshot_size: 0 }));
    }
    let file = disk.open(path, OpenMode::Existing).map_err(fail)?;
    // What a process that was killed had written or renamed and not synced can be read and may not be on the medium yet.
    file.sync_data().and_then(|()| disk.sync_dir(folder)).map_err(fail)?;
    let mut bytes = vec![0; file.len().map_err(fail)? as usize];
    let read = file.read_at(&mut bytes, 0).map_err(fail)?;
    bytes.truncate(read);
    let mut state = S::default();
    let mut at = 0;
    while let Some((body, size)) = parse_entry(&bytes[at..]) {
        let entry = serde_json::from_slice(body)
            .map_err(|_| JournalError::Corrupt { path: path.to_path_buf(), position: at as u64 })?;
        state.apply(entry);
        at += size;
    }
    if at < bytes.len() {
        let tail = &bytes[at..];
        let is_good = |start: &usize| tail[*start..].starts_with(&MAGIC) && parse_entry(&tail[*start..]).is_some();
        if let Some(good) = (1..tail.len()).find(is_good) {
            // Entries are text: zeros among them were never written, so neither was what stands behind them acknowledged.
            if !has_hole(&tail[..good], at as u64) {
                return Err(JournalError::Corrupt { path: path.to_path_buf(), position: at as u64 });
            }
            set_aside(&**disk, folder, &path.with_extension(format!("{at}.torn")), tail).map_err(fail)?;
        }
        tracing::warn!(file = %path.display(), bytes = tail.len(), "an unfinished journal entry is cut off");
        file.set_len(at as u64).and_then(|()| file.sync_data()).map_err(fail)?;
    }
    let size = at as u64;
    Ok((state, File { file, size, snapshot_size: 0 }))
}

/// Keeps a copy of bytes that are about to be cut off.
pub(super) fn set_aside(disk: &dyn Disk, folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let copy = disk.open(path, OpenMode::Truncate)?;
    copy.write_all_at(bytes, 0)?;
    copy.sync_data()?;
    disk.sync_dir(folder)
}

fn repair_due<S: Folded>(inner: &Inner<S>) -> bool {
    inner.failed.is_some_and(|since| since.elapsed() >= REPAIR_PAUSE)
}
