//! What stays of neighbouring segments becomes one file, which is written as they are read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::CHUNK;
use super::reader::Batches;
use crate::storage::disk::{Disk, DiskFile, OpenMode};
use crate::storage::partition::Partition;
use crate::storage::segment::{Checkpoint, Segment};
use crate::wire::batch::BatchHeader;

/// What becomes of a batch.
pub(super) enum Outcome {
    /// It stays as it is.
    Stays,
    /// These bytes come in its place.
    Becomes(Vec<u8>),
    /// Nothing is left of it.
    Goes,
}

/// A file in the making. As long as all of its first segment stays as it is, nothing is written: it may come to nothing.
pub(super) struct Merge<'a> {
    partition: &'a Partition,
    first: (u64, PathBuf),
    /// Segments that are in it as a whole.
    old: Vec<Segment>,
    new: Segment,
    temporary: PathBuf,
    file: Option<Arc<dyn DiskFile>>,
    /// Bytes that are in the file, or, as long as there is none, at the beginning of the first segment's.
    flushed: u64,
    buffer: Vec<u8>,
    is_unchanged: bool,
}

/// What a merge goes back to when the next segment does not fit.
struct Mark {
    new: Segment,
    is_unchanged: bool,
}

impl<'a> Merge<'a> {
    /// Nothing yet, in the place of `first` and perhaps of some behind it.
    pub(super) fn begin(partition: &'a Partition, first: &Segment) -> Self {
        Self {
            partition,
            first: (first.id, first.path.clone()),
            old: Vec::new(),
            new: Segment::new(&partition.folder, first.base_offset, first.generation),
            temporary: first.path.with_extension("log.tmp"),
            file: None,
            flushed: 0,
            buffer: Vec::new(),
            is_unchanged: true,
        }
    }

    /// Adds what stays of the next segment; whether it fits into `limit` bytes with those before. The first one always does.
    pub(super) fn add(
        &mut self,
        segment: &Segment,
        limit: u64,
        mut decide: impl FnMut(&BatchHeader, &[u8]) -> Outcome,
    ) -> io::Result<bool> {
        let is_first = self.old.is_empty();
        let before = Mark { new: self.new.clone(), is_unchanged: self.is_unchanged };
        self.is_unchanged &= is_first;
        let mut batches = Batches::of(self.partition, segment)?;
        while let Some((header, batch)) = batches.advance()? {
            match decide(&header, batch) {
                Outcome::Stays => self.push(&header, batch)?,
                Outcome::Becomes(bytes) => {
                    self.is_unchanged = false;
                    self.push(&BatchHeader::parse(&bytes).map_err(io::Error::other)?, &bytes)?;
                }
                Outcome::Goes => self.is_unchanged = false,
            }
            if !is_first && self.new.size > limit {
                self.back_to(before);
                return Ok(false);
            }
        }
        self.old.push(segment.clone());
        Ok(true)
    }

    fn push(&mut self, header: &BatchHeader, bytes: &[u8]) -> io::Result<()> {
        self.new.push(header);
        if self.is_unchanged {
            self.flushed = self.new.size;
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    fn back_to(&mut self, mark: Mark) {
        match mark.new.size.checked_sub(self.flushed) {
            Some(held) => self.buffer.truncate(held as usize),
            None => {
                self.buffer.clear();
                self.flushed = mark.new.size;
            }
        }
        self.new = mark.new;
        self.is_unchanged = mark.is_unchanged;
    }

    fn flush(&mut self) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.open()?,
        };
        file.write_all_at(&self.buffer, self.flushed)?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// The file, with what stays as it is at the beginning of the first segment.
    fn open(&mut self) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.partition.shared.files.disk().open(&self.temporary, OpenMode::Truncate)?;
        self.file = Some(file.clone());
        let (id, path) = &self.first;
        let from = self.partition.shared.files.get(*id, path)?;
        let mut chunk = vec![0; CHUNK].into_boxed_slice();
        let mut at = 0;
        while at < self.flushed {
            let size = (self.flushed - at).min(CHUNK as u64) as usize;
            let read = from.read_at(&mut chunk[..size], at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.write_all_at(&chunk[..read], at)?;
            at += read as u64;
        }
        Ok(file)
    }

    /// Puts the file in the place of the segments that it was made of, which end at `end_offset`. Returns its size.
    pub(super) fn finish(mut self, end_offset: i64) -> io::Result<u64> {
        if self.is_unchanged {
            return Ok(self.new.size);
        }
        self.flush()?;
        let old = std::mem::take(&mut self.old);
        let new = self.named(&old);
        if let Some(file) = &self.file {
            // A segment that did not fit may have left something.
            if file.len()? > new.size {
                file.set_len(new.size)?;
            }
            file.sync_data()?;
        }
        let disk = self.partition.shared.files.disk();
        // The producers at the end are those of the last segment's checkpoint.
        let last = old.last().and_then(|segment| Checkpoint::read(&**disk, &segment.checkpoint_path()));
        let checkpoint = last.map(|last| Checkpoint::of(&new, end_offset, last.producers));
        if let Err(error) = put_in_place(&**disk, &self.temporary, &new, checkpoint) {
            // Without its segment it would say that something was lost.
            let _ = disk.remove_file(&new.checkpoint_path());
            return Err(error);
        }
        self.file = None;
        let size = new.size;
        self.partition.swap_segments(&old, new, end_offset);
        Ok(size)
    }

    /// The description under the name that comes behind those of `old`.
    fn named(&self, old: &[Segment]) -> Segment {
        let generation = old.iter().map(|segment| segment.generation).max().unwrap_or(0) + 1;
        let named = Segment::new(&self.partition.folder, self.new.base_offset, generation);
        Segment {
            id: named.id,
            path: named.path,
            generation,
            first_ms: old.first().and_then(|segment| segment.first_ms),
            last_ms: old.last().and_then(|segment| segment.last_ms),
            ..self.new.clone()
        }
    }
}

impl Drop for Merge<'_> {
    /// What came to nothing takes no room.
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = self.partition.shared.files.disk().remove_file(&self.temporary);
        }
    }
}

/// Gives a complete file its name, behind its checkpoint if there is one.
fn put_in_place(disk: &dyn Disk, temporary: &Path, new: &Segment, checkpoint: Option<Checkpoint>) -> io::Result<()> {
    match checkpoint {
        Some(checkpoint) => checkpoint.write(disk, &new.checkpoint_path())?,
        // One of an earlier attempt would describe other contents.
        None => drop(disk.remove_file(&new.checkpoint_path())),
    }
    disk.rename(temporary, &new.path)?;
    new.path.parent().map_or(Ok(()), |folder| disk.sync_dir(folder))
}
