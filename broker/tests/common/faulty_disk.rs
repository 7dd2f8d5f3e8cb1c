//! A disk that can be full, or fail to sync.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use riverrun_broker::{Disk, DiskFile, OpenMode, RealDisk};

/// The real disk with two switches.
#[derive(Default)]
pub(crate) struct Switches {
    pub(crate) full: AtomicBool,
    pub(crate) syncs_fail: AtomicBool,
}

pub(crate) struct FaultyDisk(pub(crate) Arc<Switches>);
struct FaultyFile(Arc<dyn DiskFile>, Arc<Switches>);

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FaultyFile(RealDisk.open(path, mode)?, self.0.clone())))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        RealDisk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(buffer, position)
    }
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if self.1.full.load(Ordering::SeqCst) {
            // Half of it fits, as on a real disk.
            self.0.write_all_at(&bytes[..bytes.len() / 2], position)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_all_at(bytes, position)
    }
    fn sync_data(&self) -> io::Result<()> {
        if self.1.syncs_fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("the medium is broken"));
        }
        self.0.sync_data()
    }
    fn set_len(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
