//! The narrow waist between the broker and the file system, so that tests can put a failing disk in.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// It must exist; read and write.
    Existing,
    /// It is created, or emptied when it exists.
    Truncate,
}

/// An open file with positioned reads and writes.
pub trait DiskFile: Send + Sync {
    /// Fills `buffer` from `position`, fewer bytes only at the end of the file; returns how many.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `position`.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Waits until data and size are on the medium.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts or extends the file.
    fn set_len(&self, size: u64) -> io::Result<()>;
    /// Current size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A file system.
pub trait Disk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a folder and its parents.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names in a folder; a folder that does not exist has none.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// Replaces `to` by `from` atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with all that is in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Bytes that this process may still write below a folder; `u64::MAX` where that is not known.
    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// The operating system's file system.
#[derive(Debug, Default, Clone, Copy)]
pub struct RealDisk;

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match FileExt::read_at(self, &mut buffer[done..], position + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        File::set_len(self, size)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if mode == OpenMode::Truncate {
            options.create(true).truncate(true);
        }
        Ok(Arc::new(options.open(path)?))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        match std::fs::read_dir(path) {
            Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(path)?;
        if found.f_blocks == 0 {
            // Some file systems of networks and containers count nothing.
            return Ok(u64::MAX);
        }
        let is_root = rustix::process::geteuid().is_root();
        // Some blocks are kept for root alone.
        let blocks = if is_root { found.f_bfree } else { found.f_bavail };
        Ok(blocks.saturating_mul(found.f_frsize))
    }
}

/// Creates `path` and makes every folder on the way to it durable, up to and including the entry in `root`.
pub(crate) fn create_dir_durable(disk: &dyn Disk, root: &Path, path: &Path) -> io::Result<()> {
    disk.create_dir_all(path)?;
    for folder in path.ancestors() {
        disk.sync_dir(folder)?;
        if folder == root {
            break;
        }
    }
    Ok(())
}
