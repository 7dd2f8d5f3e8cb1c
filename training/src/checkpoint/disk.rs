//! What checkpoints are written through, so that tests can have a disk that is full at any moment.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The part of a file system that a checkpoint needs.
pub(super) trait Disk {
    /// A file that is written to.
    type File: Write;

    /// Makes a folder, with those above it.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes a file, or empties one.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Makes a file, or the names in a folder, survive a power failure.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Gives a folder another name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Takes a folder away with all in it.
    fn remove(&self, folder: &Path) -> io::Result<()>;
}

/// That of the system.
pub(super) struct System;

impl Disk for System {
    type File = File;

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        File::create(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path).and_then(|file| file.sync_all())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, folder: &Path) -> io::Result<()> {
        fs::remove_dir_all(folder)
    }
}

#[cfg(test)]
pub(super) mod full {
    //! A disk on which room ends, as a real one does it: what fits of a write is there, and the rest is not.

    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// The system's disk with so much room, whose `failing`th call, from 0, finds none.
    pub(in crate::checkpoint) struct FullDisk {
        room: Rc<Cell<usize>>,
        calls: Rc<Cell<usize>>,
        failing: usize,
    }

    pub(in crate::checkpoint) struct FullFile {
        file: File,
        room: Rc<Cell<usize>>,
        calls: Rc<Cell<usize>>,
        failing: usize,
    }

    fn counted(calls: &Cell<usize>, failing: usize) -> io::Result<()> {
        let call = calls.replace(calls.get() + 1);
        if call == failing { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    impl FullDisk {
        /// Has room for so many bytes.
        pub(in crate::checkpoint) fn of(room: usize) -> Self {
            Self { room: Rc::new(Cell::new(room)), calls: Rc::default(), failing: usize::MAX }
        }

        /// Has room, but not for one call.
        pub(in crate::checkpoint) fn failing(call: usize) -> Self {
            Self { failing: call, ..Self::of(usize::MAX) }
        }

        /// How often it was called.
        pub(in crate::checkpoint) fn calls(&self) -> usize {
            self.calls.get()
        }

        fn call(&self) -> io::Result<&'static System> {
            counted(&self.calls, self.failing).map(|()| &System)
        }
    }

    impl Write for FullFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            counted(&self.calls, self.failing)?;
            let fits = bytes.len().min(self.room.get());
            if fits == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room.set(self.room.get() - fits);
            self.file.write_all(&bytes[..fits])?;
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.file.flush()
        }
    }

    impl Disk for FullDisk {
        type File = FullFile;

        fn create_folder(&self, path: &Path) -> io::Result<()> {
            self.call()?.create_folder(path)
        }

        fn create(&self, path: &Path) -> io::Result<FullFile> {
            let file = self.call()?.create(path)?;
            Ok(FullFile { file, room: Rc::clone(&self.room), calls: Rc::clone(&self.calls), failing: self.failing })
        }

        fn sync(&self, path: &Path) -> io::Result<()> {
            self.call()?.sync(path)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.call()?.rename(from, to)
        }

        fn remove(&self, folder: &Path) -> io::Result<()> {
            self.call()?.remove(folder)
        }
    }
}
