//! What a partition's folder holds after a start.
//!
//! Segments with a checkpoint are taken as described there; what lies behind the checkpoint is scanned, checksum by
//! checksum. A bad batch at the very end of the last segment is a torn write; it is set aside and cut off. A bad batch with a
//! good one behind it (or in any earlier segment) is corruption, and so is a file shorter than its checkpoint says, or a
//! checkpoint without its file: the partition then ends at the last good offset (where the first files are missing, it begins
//! behind them), refuses writes, and keeps its files untouched (`DURABLE-3`: a log is never silently shortened).

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::disk::{Disk, DiskFile, OpenMode};
use super::journal::set_aside;
use super::partition::MAX_GROUP_BYTES;
use super::producers::Producers;
use super::segment::{Checkpoint, Segment, parse_name};
use crate::clock::now_ms;
use crate::wire::batch::{BatchError, BatchHeader, HEADER_LEN, marker_of};

const SCAN_CHUNK: usize = 1 << 20;
/// What a medium writes whole or not at all.
const SECTOR: usize = 512;

/// What was found.
#[derive(Default)]
pub(crate) struct Recovered {
    /// In order; the last is the active one.
    pub segments: Vec<Segment>,
    /// Offset of the next record.
    pub end_offset: i64,
    /// Producers as of the end.
    pub producers: Producers,
    /// Set when the log is corrupt before its end: what, where, and what to do.
    pub corrupt: Option<String>,
}

impl Recovered {
    /// A checkpoint may be older than the compaction of what lies before it. All that lies before the end of a compacted
    /// segment has been through compaction: of the transactions that it found aborted there is no record.
    fn forget_removed_transactions(&mut self) {
        let Some(last) = self.segments.iter().rposition(|segment| segment.generation > 0) else { return };
        let end = self.segments.get(last + 1).map_or(self.end_offset, |next| next.base_offset);
        self.producers.forget_aborted_before(end);
    }
}

/// Reads a partition's folder, setting a torn tail aside. A folder that does not exist is an empty log.
pub(crate) fn recover(disk: &Arc<dyn Disk>, folder: &Path) -> io::Result<Recovered> {
    let mut found = recover_segments(disk, folder)?;
    found.forget_removed_transactions();
    Ok(found)
}

fn recover_segments(disk: &Arc<dyn Disk>, folder: &Path) -> io::Result<Recovered> {
    let mut found = Recovered::default();
    let mut beginning_lost = None;
    let segments = list_segments(disk, folder)?;
    let last = segments.len().saturating_sub(1);
    for (at, Listed { mut segment, is_missing }) in segments.into_iter().enumerate() {
        let merged = found.segments.last().is_some_and(|before| before.generation > segment.generation);
        if merged && segment.base_offset < found.end_offset {
            // Compaction has put this segment into the one before and was interrupted before it could remove it.
            segment.remove(&**disk)?;
            continue;
        }
        if is_missing {
            let reason = missing(&**disk, &segment);
            if found.segments.is_empty() && at < last {
                // What stands behind it can be read all the same.
                beginning_lost.get_or_insert(reason);
                continue;
            }
            found.corrupt = Some(reason);
            return Ok(found);
        }
        // Every segment but a compacted one begins where the one before it ended.
        let before = found.segments.last();
        if before.is_some_and(|before| before.generation == 0 && found.end_offset != segment.base_offset) {
            found.corrupt = Some(format!(
                "{} does not begin at offset {}, a segment is missing; restore it or delete the topic",
                segment.path.display(),
                found.end_offset
            ));
            return Ok(found);
        }
        found.end_offset = found.end_offset.max(segment.base_offset);
        let bad = load(&**disk, &mut segment, &mut found)?;
        if let Some(bad) = bad
            && found.corrupt.is_none()
        {
            let unfinished = if at == last { unfinished_write(&bad, found.end_offset)? } else { None };
            found.corrupt = match unfinished {
                Some(bytes) => cut_off(&**disk, folder, &segment, &bad, &bytes)?,
                None => Some(format!(
                    "{} is corrupt at byte {} ({}), readable up to offset {}; restore the file from a backup or delete the topic",
                    segment.path.display(),
                    bad.position,
                    bad.error,
                    found.end_offset
                )),
            };
        }
        found.segments.push(segment);
        if found.corrupt.is_some() {
            return Ok(found);
        }
    }
    found.corrupt = beginning_lost;
    Ok(found)
}

/// What to say of a segment of which only the checkpoint is there.
fn missing(disk: &dyn Disk, segment: &Segment) -> String {
    let checkpoint = segment.checkpoint_path();
    let had = Checkpoint::read(disk, &checkpoint)
        .map_or_else(String::new, |said| format!(" and had {} bytes up to offset {}", said.size, said.end_offset));
    format!(
        "{} is missing{had}; restore the file from a backup, or remove {} to go on without its records",
        segment.path.display(),
        checkpoint.display()
    )
}

struct Bad {
    file: Arc<dyn DiskFile>,
    position: u64,
    error: BatchError,
}

/// A segment by the names of its files.
struct Listed {
    segment: Segment,
    /// Only its checkpoint is there.
    is_missing: bool,
}

/// The segments in order; leftovers of an interrupted compaction are removed.
fn list_segments(disk: &Arc<dyn Disk>, folder: &Path) -> io::Result<Vec<Listed>> {
    let (mut logs, mut checkpoints) = (Vec::new(), Vec::new());
    for path in disk.list(folder)? {
        if path.extension().is_some_and(|extension| extension == "tmp") {
            disk.remove_file(&path)?;
        } else if let Some(name) = parse_name(&path, "log") {
            logs.push(name);
        } else if let Some(name) = parse_name(&path, "idx") {
            checkpoints.push(name);
        }
    }
    logs.sort_unstable();
    checkpoints.retain(|name| logs.binary_search(name).is_err());
    let mut segments: Vec<Listed> = Vec::new();
    for (base_offset, generation) in logs {
        let segment = Segment::new(folder, base_offset, generation);
        // The newer generation was complete before it got its name.
        if let Some(older) = segments.pop_if(|before| before.segment.base_offset == base_offset) {
            older.segment.remove(&**disk)?;
        }
        segments.push(Listed { segment, is_missing: false });
    }
    for (base_offset, generation) in checkpoints {
        let segment = Segment::new(folder, base_offset, generation);
        match segments.binary_search_by_key(&base_offset, |other| other.segment.base_offset) {
            // Compaction writes it before its file gets its name, beside the file that is to be replaced.
            Ok(at) if !segments[at].is_missing => segment.remove(&**disk)?,
            Ok(_) => {}
            Err(at) => segments.insert(at, Listed { segment, is_missing: true }),
        }
    }
    Ok(segments)
}

fn load(disk: &dyn Disk, segment: &mut Segment, found: &mut Recovered) -> io::Result<Option<Bad>> {
    let file = disk.open(&segment.path, OpenMode::Existing)?;
    let size = file.len()?;
    let mut lost = None;
    match Checkpoint::read(disk, &segment.checkpoint_path()) {
        // It is written when all that it covers is synced: what is missing was there.
        Some(checkpoint) if checkpoint.size > size => lost = Some(checkpoint.size),
        Some(checkpoint) => {
            checkpoint.restore(segment);
            found.end_offset = checkpoint.end_offset;
            found.producers = checkpoint.producers.into();
        }
        None => {}
    }
    if segment.size < size || segment.checkpointed == 0 {
        // What a process that was killed had written, or had only given its name, can be read and may not be on the medium yet;
        // from now on others build on it.
        file.sync_data()?;
        segment.path.parent().map_or(Ok(()), |folder| disk.sync_dir(folder))?;
    }
    let bad = scan(file, size, segment, found)?;
    found.corrupt = lost.map(|synced| {
        format!(
            "{} ends at byte {size} and had {synced}, readable up to offset {}; restore the file from a backup or delete the topic",
            segment.path.display(),
            found.end_offset
        )
    });
    Ok(bad)
}

/// Walks the batches behind what the checkpoint covers.
fn scan(file: Arc<dyn DiskFile>, size: u64, segment: &mut Segment, found: &mut Recovered) -> io::Result<Option<Bad>> {
    let now = now_ms();
    let mut buffer = Vec::new();
    let mut start = segment.size;
    while segment.size < size {
        let within = (segment.size - start) as usize;
        let parsed = next_batch(&buffer, within, found.end_offset);
        let header = match parsed {
            Ok(header) => header,
            Err(BatchError::Incomplete) if start + (buffer.len() as u64) < size => {
                // The buffer ends within this batch: continue with a buffer that begins here and holds it whole.
                let wanted =
                    BatchHeader::parse(&buffer[within..]).map_or(SCAN_CHUNK, |header| header.size.max(SCAN_CHUNK));
                let wanted = (wanted as u64).min(size - segment.size) as usize;
                if within == 0 && wanted <= buffer.len() {
                    return Ok(Some(Bad { file, position: segment.size, error: BatchError::Incomplete }));
                }
                start = segment.size;
                buffer.resize(wanted, 0);
                let read = file.read_at(&mut buffer, start)?;
                buffer.truncate(read);
                continue;
            }
            Err(error) => return Ok(Some(Bad { file, position: segment.size, error })),
        };
        let marker = header
            .is_control()
            .then(|| marker_of(&header, &Bytes::copy_from_slice(&buffer[within..within + header.size])))
            .flatten();
        segment.push_at(&header, now);
        found.producers.apply(&header, marker, now);
        found.end_offset = header.last_offset() + 1;
    }
    Ok(None)
}

fn next_batch(buffer: &[u8], at: usize, expected: i64) -> Result<BatchHeader, BatchError> {
    let rest = buffer.get(at..).unwrap_or(&[]);
    let header = BatchHeader::parse_checked(rest)?;
    // The base offset is not covered by the checksum.
    if header.base_offset < expected { Err(BatchError::Malformed) } else { Ok(header) }
}

/// What stands at the end of the last segment, if it was written and never synced, and so never acknowledged.
///
/// Nothing good behind the bad batch: a write that was cut short. Something good behind it: parts of one write may reach the
/// medium in any order, and what is missing of it reads as zeros; a sector of zeros within the bad stretch, all of it no
/// longer than one group, is taken for that.
fn unfinished_write(bad: &Bad, end_offset: i64) -> io::Result<Option<Vec<u8>>> {
    let mut rest = vec![0; (bad.file.len()? - bad.position) as usize];
    let read = bad.file.read_at(&mut rest, bad.position)?;
    rest.truncate(read);
    let is_unfinished = good_batch_in(&rest, end_offset)
        .is_none_or(|good| rest.len() <= MAX_GROUP_BYTES && has_hole(&rest[..good], bad.position));
    Ok(is_unfinished.then_some(rest))
}

/// Cuts `bytes` off, which are all from the bad batch on. They are set aside first, since damage of the last batch looks the
/// same as an unfinished write. Returns what is wrong where there is no room for that; nothing is cut then.
fn cut_off(disk: &dyn Disk, folder: &Path, segment: &Segment, bad: &Bad, bytes: &[u8]) -> io::Result<Option<String>> {
    let aside = segment.path.with_extension(format!("{}.torn", bad.position));
    match set_aside(disk, folder, &aside, bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            return Ok(Some(format!(
                "{} ends with {} bytes of an unfinished write, which cannot be set aside as {} ({error}); free space and restart",
                segment.path.display(),
                bytes.len(),
                aside.display()
            )));
        }
        Err(error) => return Err(error),
    }
    tracing::warn!(
        file = %segment.path.display(), aside = %aside.display(), bytes = bytes.len(), position = bad.position,
        "an unfinished write at the end of the log is set aside and cut off"
    );
    bad.file.set_len(bad.position)?;
    bad.file.sync_data()?;
    Ok(None)
}

/// Whether something of `bytes`, which stand at `position` of their file, was never written: all zeros in one of its sectors,
/// or from its first byte to the end of that sector.
pub(super) fn has_hole(bytes: &[u8], position: u64) -> bool {
    let is_empty = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    let (first, rest) = bytes.split_at((SECTOR - position as usize % SECTOR).min(bytes.len()));
    is_empty(first) || rest.chunks_exact(SECTOR).any(is_empty)
}

/// Where a batch with a good checksum and a plausible offset begins behind the first byte.
fn good_batch_in(rest: &[u8], end_offset: i64) -> Option<usize> {
    let mut starts = 1..rest.len().saturating_sub(HEADER_LEN) + 1;
    starts.find(|at| {
        // Stored batches have leader epoch 0 and magic 2; looking at these first keeps the search cheap.
        rest.get(at + 12..at + 17) == Some(&[0, 0, 0, 0, 2])
            && BatchHeader::parse_checked(&rest[*at..]).is_ok_and(|header| header.base_offset >= end_offset)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::storage::disk::RealDisk;
    use crate::wire::batch::build_batch;

    fn batch(base_offset: i64, body: &[u8]) -> Vec<u8> {
        let header = BatchHeader {
            base_offset,
            size: 0,
            attributes: 0,
            last_offset_delta: 0,
            base_timestamp: 1_000,
            max_timestamp: 1_000,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records: 1,
        };
        build_batch(&header, body)
    }

    fn recovered(bytes: &[u8]) -> (Recovered, Vec<u8>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let segment = Segment::new(folder.path(), 0, 0);
        std::fs::write(&segment.path, bytes).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let found = recover(&disk, folder.path()).unwrap();
        let left = std::fs::read(&segment.path).unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        (found, left, files)
    }

    #[test]
    fn given_a_group_of_which_the_middle_is_missing_when_recovered_then_it_is_set_aside_and_the_log_goes_on() {
        let body = vec![1; 2_000];
        let good = batch(0, &body);
        let mut log = [good.clone(), batch(1, &body), batch(2, &body)].concat();
        let hole = good.len().next_multiple_of(SECTOR);
        log[hole..hole + SECTOR].fill(0);
        let (found, left, files) = recovered(&log);
        assert_eq!((found.end_offset, found.corrupt, left.len(), files), (1, None, good.len(), 2));
    }

    #[test]
    fn given_a_flipped_bit_in_the_last_batch_when_recovered_then_what_is_cut_is_kept_beside_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let segment = Segment::new(folder.path(), 0, 0);
        let (good, mut last) = (batch(0, &[1; 20]), batch(1, &[2; 20]));
        last[HEADER_LEN] ^= 1;
        std::fs::write(&segment.path, [&good[..], &last].concat()).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let found = recover(&disk, folder.path()).unwrap();
        let aside = segment.path.with_extension(format!("{}.torn", good.len()));
        assert_eq!((found.end_offset, found.corrupt), (1, None));
        assert_eq!(std::fs::read(&segment.path).unwrap(), good);
        assert_eq!(std::fs::read(aside).unwrap(), last);
    }

    #[test]
    fn given_damage_before_a_good_batch_when_recovered_then_nothing_is_cut() {
        let body = vec![1; 2_000];
        let good = batch(0, &body);
        let mut log = [good.clone(), batch(1, &body), batch(2, &body)].concat();
        log[good.len() + 700] ^= 1;
        let (found, left, files) = recovered(&log);
        assert!(found.corrupt.is_some());
        assert_eq!((found.end_offset, left, files), (1, log, 1));
    }

    #[test]
    fn given_a_checkpoint_of_an_interrupted_compaction_when_recovered_then_it_goes_and_nothing_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(&Segment::new(folder.path(), 0, 0).path, batch(0, &[1; 20])).unwrap();
        let left_over = Segment::new(folder.path(), 0, 1).checkpoint_path();
        std::fs::write(&left_over, "of a file that never got its name").unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let found = recover(&disk, folder.path()).unwrap();
        assert_eq!((found.end_offset, found.corrupt, left_over.exists()), (1, None, false));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn given_any_damage_when_recovered_then_nothing_panics_and_what_stands_before_it_is_found(
            sizes in proptest::collection::vec(1usize..900, 1..8),
            damage in proptest::collection::vec((0usize..8_000, any::<u8>()), 0..4),
            tail in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let batches: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(at, size)| batch(at as i64, &vec![at as u8; *size])).collect();
            let mut log = batches.concat();
            log.extend_from_slice(&tail);
            let mut first_damaged = log.len();
            for (at, byte) in damage {
                if let Some(old) = log.get_mut(at).filter(|old| **old != byte) {
                    *old = byte;
                    first_damaged = first_damaged.min(at);
                }
            }
            let mut end = 0;
            let sound = batches.iter().take_while(|batch| {
                end += batch.len();
                end <= first_damaged
            });
            let sound = sound.count() as i64;
            let (found, _, _) = recovered(&log);
            prop_assert!(found.end_offset >= sound, "{} of {sound}", found.end_offset);
        }

        #[test]
        fn given_any_bytes_when_recovered_then_nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..4_000)) {
            recovered(&bytes);
        }
    }
}
