//! A bounded set of open segment files, shared by all partitions.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile, OpenMode};

/// Keeps at most `capacity` files open; the least recently used is closed first (once its readers are done).
pub(crate) struct FileCache {
    disk: Arc<dyn Disk>,
    capacity: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    files: HashMap<u64, (Arc<dyn DiskFile>, u64)>,
    clock: u64,
}

impl FileCache {
    /// An empty cache over `disk`.
    pub(crate) fn new(disk: Arc<dyn Disk>, capacity: usize) -> Self {
        Self { disk, capacity: capacity.max(1), open: Mutex::default() }
    }

    /// The disk below.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The open file of segment `id`, opened from `path` if need be.
    pub(crate) fn get(&self, id: u64, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.open.lock().touch(id) {
            return Ok(file);
        }
        let file = self.disk.open(path, OpenMode::Existing)?;
        self.insert(id, file.clone());
        Ok(file)
    }

    /// Keeps an already opened file.
    pub(crate) fn insert(&self, id: u64, file: Arc<dyn DiskFile>) {
        let mut open = self.open.lock();
        open.clock += 1;
        let clock = open.clock;
        open.files.insert(id, (file, clock));
        if open.files.len() > self.capacity {
            let oldest = open.files.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            oldest.and_then(|id| open.files.remove(&id));
        }
    }

    /// Forgets a file that has been replaced or removed.
    pub(crate) fn forget(&self, id: u64) {
        self.open.lock().files.remove(&id);
    }
}

impl Open {
    fn touch(&mut self, id: u64) -> Option<Arc<dyn DiskFile>> {
        self.clock += 1;
        let clock = self.clock;
        let (file, used) = self.files.get_mut(&id)?;
        *used = clock;
        Some(file.clone())
    }
}
