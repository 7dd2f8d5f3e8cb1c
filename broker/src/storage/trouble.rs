//! What keeps the broker from writing, known from the first failure until writing works again.
//!
//! Clients of the protocol are told of each batch that is refused, by an error that they try again; why, and what to do, is for
//! the program around the broker to tell.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::disk::{Disk, OpenMode};
use crate::clock::now_ms;

/// A disk with less room than this counts as full: what was accepted before has to find some to end in.
const RESERVE_BYTES: u64 = 4 << 20;
/// How often it is tried whether writing works again.
const PROBE_PAUSE: Duration = Duration::from_millis(500);
/// The file that this is tried with, in the data folder.
const PROBE: &str = "probe.tmp";
/// More than what is left of a page that a file has already.
const PROBE_BYTES: usize = 64 << 10;

/// What kind of failure a write met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFault {
    /// There is no room, or the quota is used up.
    Full,
    /// The file system takes no writes.
    ReadOnly,
    /// The process or the system has as many files open as it may.
    NoHandles,
    /// Anything else.
    Other,
}

impl StorageFault {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Self::ReadOnly,
            _ if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) => Self::NoHandles,
            _ => Self::Other,
        }
    }
}

/// Why the broker can't write at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageTrouble {
    /// The file or folder that the last write failed in.
    pub path: PathBuf,
    /// What kind of failure it was.
    pub fault: StorageFault,
    /// What the system says.
    pub error: String,
    /// When the first write failed, in milliseconds since the epoch.
    pub since_ms: i64,
    /// What to do.
    pub fix: String,
}

impl fmt::Display for StorageTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = (now_ms() - self.since_ms).max(0) / 1_000;
        let Self { path, error, .. } = self;
        write!(f, "the log can't be written since {seconds} s: {}: {error}", path.display())
    }
}

/// The trouble that there is, if there is any.
pub(crate) struct Troubles {
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    now: watch::Sender<Option<StorageTrouble>>,
}

impl Troubles {
    /// None yet, below this folder.
    pub(crate) fn new(disk: Arc<dyn Disk>, data_dir: PathBuf) -> Self {
        Self { disk, data_dir, now: watch::Sender::new(None) }
    }

    /// A write to `path` has failed.
    pub(crate) fn failed(&self, path: &Path, error: &io::Error) {
        let fault = StorageFault::of(error);
        let trouble = StorageTrouble {
            path: path.to_path_buf(),
            fault,
            error: error.to_string(),
            since_ms: now_ms(),
            fix: fix(fault, &self.data_dir),
        };
        self.now.send_modify(|now| {
            let since_ms = now.as_ref().map_or(trouble.since_ms, |known| known.since_ms);
            *now = Some(StorageTrouble { since_ms, ..trouble });
        });
    }

    /// What there is now. A disk that is about to be full counts as one that is.
    pub(crate) fn now(&self) -> Option<StorageTrouble> {
        let known = self.now.borrow().clone();
        if known.is_some() {
            return known;
        }
        if let Err(error) = self.look_for_room() {
            self.failed(&self.data_dir, &error);
        }
        self.now.borrow().clone()
    }

    /// Tells of every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<StorageTrouble>> {
        self.now.subscribe()
    }

    /// Looks now and then whether a trouble has passed, also while nobody writes, until `shutdown`.
    pub(crate) async fn look_after(self: Arc<Self>, shutdown: CancellationToken) {
        let mut changes = self.subscribe();
        loop {
            tokio::select! {
                () = appears(&mut changes) => {}
                () = shutdown.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(PROBE_PAUSE) => {}
                () = shutdown.cancelled() => return,
            }
            let this = self.clone();
            if tokio::task::spawn_blocking(move || this.probe()).await.is_err() {
                tracing::error!("looking whether the log can be written again failed");
            }
        }
    }

    /// Forgets the trouble if a file can be written. Blocks.
    fn probe(&self) {
        if let Err(error) = self.try_write() {
            tracing::debug!(folder = %self.data_dir.display(), error = %error, "the log can't be written yet");
            return;
        }
        if self.now.send_replace(None).is_some() {
            tracing::info!(folder = %self.data_dir.display(), "the log can be written again");
        }
    }

    fn try_write(&self) -> io::Result<()> {
        self.look_for_room()?;
        let path = self.data_dir.join(PROBE);
        let file = self.disk.open(&path, OpenMode::Truncate)?;
        let written = file.write_all_at(&[0; PROBE_BYTES], 0).and_then(|()| file.sync_data());
        drop(file);
        let removed = self.disk.remove_file(&path);
        written.and(removed)
    }

    fn look_for_room(&self) -> io::Result<()> {
        // Where it can't be told, a write will.
        check_room(self.disk.free_bytes(&self.data_dir).unwrap_or(u64::MAX))
    }
}

/// Resolves once there is a trouble; never where there will be none any more.
async fn appears(changes: &mut watch::Receiver<Option<StorageTrouble>>) {
    let is_told = changes.wait_for(Option::is_some).await.is_ok();
    if !is_told {
        std::future::pending::<()>().await;
    }
}

/// Resolves with a trouble that is still there `grace` after it has come: one that passes by itself is nobody's business.
pub(crate) async fn lasting(mut changes: watch::Receiver<Option<StorageTrouble>>, grace: Duration) -> StorageTrouble {
    loop {
        appears(&mut changes).await;
        tokio::time::sleep(grace).await;
        let now = changes.borrow().clone();
        if let Some(trouble) = now {
            return trouble;
        }
    }
}

fn check_room(free_bytes: u64) -> io::Result<()> {
    if free_bytes >= RESERVE_BYTES {
        return Ok(());
    }
    let said = format!("{free_bytes} bytes are free, which is less than the {RESERVE_BYTES} that are kept");
    Err(io::Error::new(io::ErrorKind::StorageFull, said))
}

fn fix(fault: StorageFault, data_dir: &Path) -> String {
    let folder = data_dir.display();
    match fault {
        StorageFault::Full => format!("free space in {folder}, or raise its quota; writing goes on by itself"),
        StorageFault::ReadOnly => format!("make {folder} writable for this process; writing goes on by itself"),
        StorageFault::NoHandles => {
            "raise the limit on open files (ulimit -n, or LimitNOFILE of the service) and start again".to_owned()
        }
        StorageFault::Other => format!("look at the disk that {folder} is on; writing goes on by itself once it works"),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tempfile::TempDir;

    use super::super::disk::RealDisk;
    use super::*;

    fn troubles(folder: &TempDir) -> Troubles {
        Troubles::new(Arc::new(RealDisk), folder.path().to_path_buf())
    }

    #[test]
    fn given_room_on_a_disk_when_there_is_less_than_the_reserve_then_it_counts_as_full() {
        for (free, is_full) in [(0, true), (RESERVE_BYTES - 1, true), (RESERVE_BYTES, false), (u64::MAX, false)] {
            let found = check_room(free).err();
            assert_eq!(found.map(|error| StorageFault::of(&error)), is_full.then_some(StorageFault::Full), "{free}");
        }
    }

    #[test]
    fn given_failures_when_they_are_told_then_each_kind_has_its_fix_and_the_first_says_since_when() {
        let folder = TempDir::new().unwrap();
        let troubles = troubles(&folder);
        let place = folder.path().display().to_string();
        for (error, fault, word) in [
            (Errno::NOSPC, StorageFault::Full, place.as_str()),
            (Errno::DQUOT, StorageFault::Full, place.as_str()),
            (Errno::ROFS, StorageFault::ReadOnly, place.as_str()),
            (Errno::ACCESS, StorageFault::ReadOnly, place.as_str()),
            (Errno::MFILE, StorageFault::NoHandles, "ulimit -n"),
            (Errno::IO, StorageFault::Other, place.as_str()),
        ] {
            troubles.failed(Path::new("/log/0"), &error.into());
            let told = troubles.now().unwrap();
            assert_eq!((told.fault, told.path.as_path()), (fault, Path::new("/log/0")));
            assert!(told.fix.contains(word) && told.to_string().contains("/log/0"), "{told:?}");
        }
        let since_ms = now_ms() - 10_000;
        troubles.now.send_modify(|now| now.as_mut().unwrap().since_ms = since_ms);
        troubles.failed(Path::new("/log/1"), &Errno::NOSPC.into());
        let told = troubles.now().unwrap();
        assert_eq!((told.since_ms, told.path.as_path()), (since_ms, Path::new("/log/1")));
        assert!(told.to_string().contains("since 1"), "ten seconds: {told}");
    }

    #[test]
    fn given_a_trouble_when_a_file_can_be_written_again_then_it_is_over_and_the_file_is_gone() {
        let folder = TempDir::new().unwrap();
        let gone = folder.path().join("gone");
        let troubles = Troubles::new(Arc::new(RealDisk), gone.clone());
        troubles.failed(&gone, &Errno::NOSPC.into());
        troubles.probe();
        assert!(troubles.now().is_some(), "its folder is not there");
        std::fs::create_dir(&gone).unwrap();
        troubles.probe();
        assert_eq!(troubles.now(), None);
        assert_eq!(std::fs::read_dir(&gone).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn given_a_trouble_that_passes_when_waited_for_one_that_lasts_then_it_is_not_told() {
        let folder = TempDir::new().unwrap();
        let troubles = troubles(&folder);
        let grace = Duration::from_millis(500);
        let mut waiting = std::pin::pin!(lasting(troubles.subscribe(), grace));
        troubles.failed(folder.path(), &Errno::IO.into());
        assert_eq!(waiting.as_mut().now_or_never(), None, "it may pass");
        troubles.now.send_replace(None);
        assert!(tokio::time::timeout(grace * 2, waiting.as_mut()).await.is_err(), "it has passed");
        troubles.failed(folder.path(), &Errno::NOSPC.into());
        assert_eq!(waiting.await.fault, StorageFault::Full);
    }
}
