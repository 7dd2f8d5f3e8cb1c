//! What was in the hands of a worker when its process ended, and how often. Without it a record that ends the process (memory that
//! runs out, a crash in native code) ends every process that reads it, for ever.
//!
//! Each process has a file of marks, one slot a batch: written before the batch is handed to its worker, blanked when it has ended.
//! Nothing is synced: what is written outlives the process, and the end of the machine is no fault of a record. The next process
//! on the same folder takes over the files of those that are gone. From [`ALONE_FROM`] ends on, a record is handled with no other
//! such record beside it, so that only the one to blame is blamed; at [`GIVEN_UP_AT`] it goes to the dead letters.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_log::TopicPartition;
use riverrun_schemas::EventId;

/// Ends of a process from which on a record is handled with no other such record beside it.
pub const ALONE_FROM: u32 = 2;
/// Ends of a process at which a record is given up. Many, since whoever kills processes may hit the same long work more than once.
pub const GIVEN_UP_AT: u32 = 10;

/// Bytes of a slot. Offsets of a batch that do not fit are not marked.
const SLOT: usize = 4096;
/// Slots of a file: what comes beyond is not marked.
const MAX_SLOTS: usize = 4096;
const PREFIX: &str = "marks-";

/// Records of one partition, as they stand in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    group: String,
    partition: TopicPartition,
    offsets: Vec<i64>,
    /// Processes that ended with them in hand.
    ends: u32,
    /// In the hands of a worker now; one more end when that is found by another process.
    held: bool,
}

impl Line {
    fn text(&self) -> String {
        let TopicPartition { topic, partition } = &self.partition;
        let state = if self.held { "held" } else { "known" };
        let mut text = format!("{state} {} {} {topic} {partition}", self.ends, self.group);
        for offset in &self.offsets {
            let word = format!(" {offset}");
            if text.len() + word.len() >= SLOT {
                break;
            }
            text.push_str(&word);
        }
        text.push('\n');
        text
    }

    /// `None` for what is no whole line.
    fn parse(slot: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(slot.split(|byte| *byte == b'\n').next()?).ok()?;
        let mut words = text.split(' ');
        let held = match words.next()? {
            "held" => true,
            "known" => false,
            _ => return None,
        };
        let ends = words.next()?.parse().ok()?;
        let group = words.next()?.to_owned();
        let partition = TopicPartition::new(words.next()?, words.next()?.parse().ok()?);
        let offsets = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { group, partition, offsets, ends, held })
    }
}

type Place = (String, TopicPartition);

#[derive(Debug, Default)]
struct Table {
    free: Vec<usize>,
    used: usize,
    /// What is in hand now, by its slot.
    held: BTreeMap<usize, Line>,
    /// What processes before this one ended with, with the slots that say so.
    known: HashMap<Place, BTreeMap<i64, (u32, usize)>>,
}

impl Table {
    fn slot(&mut self) -> Option<usize> {
        self.free.pop().or_else(|| {
            let next = (self.used < MAX_SLOTS).then_some(self.used)?;
            self.used += 1;
            Some(next)
        })
    }

    fn ends(&self, place: &Place, offset: i64) -> u32 {
        self.known.get(place).and_then(|of| of.get(&offset)).map_or(0, |(ends, _)| *ends)
    }
}

#[derive(Debug)]
struct Inner {
    file: File,
    table: Mutex<Table>,
    alone: tokio::sync::Mutex<()>,
}

/// The marks of this process. Clones are the same.
#[derive(Debug, Clone)]
pub struct InHand {
    inner: Arc<Inner>,
}

impl InHand {
    /// Takes over what processes that are gone left in `folder`, which is made when it is missing.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let name = format!("{PREFIX}{}", EventId::new());
        let draft = folder.join(format!("draft-{name}"));
        let file = File::options().read(true).write(true).create_new(true).open(&draft)?;
        // Locked before it has a name that others look at.
        file.try_lock().map_err(io::Error::from)?;
        fs::rename(&draft, folder.join(&name))?;
        let inner = Inner { file, table: Mutex::default(), alone: tokio::sync::Mutex::default() };
        let marks = Self { inner: Arc::new(inner) };
        let mut found: HashMap<Place, BTreeMap<i64, u32>> = HashMap::new();
        let mut left = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_other = path.file_name().is_some_and(|other| {
                let other = other.to_string_lossy();
                other.starts_with(PREFIX) && other != name
            });
            if is_other && let Some(text) = left_behind(&path)? {
                gather(&text, &mut found);
                left.push(path);
            }
        }
        marks.remember(found)?;
        left.iter().try_for_each(fs::remove_file)?;
        Ok(marks)
    }

    fn remember(&self, found: HashMap<Place, BTreeMap<i64, u32>>) -> io::Result<()> {
        let mut table = self.inner.table.lock();
        for (place, offsets) in found {
            for (offset, ends) in offsets {
                let Some(slot) = table.slot() else { return Ok(()) };
                let (group, partition) = place.clone();
                self.write(slot, &Line { group, partition, offsets: vec![offset], ends, held: false })?;
                table.known.entry(place.clone()).or_default().insert(offset, (ends, slot));
            }
        }
        Ok(())
    }

    fn write(&self, slot: usize, line: &Line) -> io::Result<()> {
        self.inner.file.write_all_at(line.text().as_bytes(), (slot * SLOT) as u64)
    }

    /// What can't be blanked counts as an end too many, which is harmless before it is many.
    fn blank(&self, slot: usize) {
        if let Err(error) = self.inner.file.write_all_at(b"\n", (slot * SLOT) as u64) {
            tracing::debug!(error = %error, "a mark can't be taken back");
        }
    }

    /// How many processes ended with that record in hand.
    pub(super) fn ends(&self, group: &str, partition: &TopicPartition, offset: i64) -> u32 {
        let table = self.inner.table.lock();
        if table.known.is_empty() { 0 } else { table.ends(&(group.to_owned(), partition.clone()), offset) }
    }

    /// Marks records of one partition until what is returned is dropped. When there is no room, or the disk refuses, nothing is
    /// marked: the work matters more.
    pub(super) fn mark(&self, group: &str, partition: &TopicPartition, offsets: Vec<i64>) -> Mark {
        let place = (group.to_owned(), partition.clone());
        let mut table = self.inner.table.lock();
        let ends = offsets.iter().map(|offset| table.ends(&place, *offset)).max().unwrap_or(0);
        let slot = table.slot();
        if let Some(slot) = slot {
            let (group, partition) = place;
            let line = Line { group, partition, offsets, ends, held: true };
            self.write_if_possible(slot, &line);
            table.held.insert(slot, line);
        }
        Mark { marks: self.clone(), slot }
    }

    fn write_if_possible(&self, slot: usize, line: &Line) {
        if let Err(error) = self.write(slot, line) {
            tracing::debug!(error = %error, "records in hand can't be marked");
        }
    }

    /// A record in hand has got on: whoever is handed it again goes on from there, so the ends before are not its fault.
    pub(super) fn got_on(&self, group: &str, partition: &TopicPartition, offset: i64) {
        self.forget(group, partition, offset);
        for (slot, line) in &mut self.inner.table.lock().held {
            let is_it = line.group == group && line.partition == *partition && line.offsets.contains(&offset);
            if is_it && line.ends > 0 {
                line.ends = 0;
                self.write_if_possible(*slot, line);
            }
        }
    }

    /// Waits until no other record that processes ended with is in hand.
    pub(super) async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.inner.alone.lock().await
    }

    /// A record has ended, well or as a dead letter.
    pub(super) fn forget(&self, group: &str, partition: &TopicPartition, offset: i64) {
        self.drop_known(group, partition, |known| known == offset);
    }

    /// Everything before `offset` has ended, here or elsewhere.
    pub(super) fn passed(&self, group: &str, partition: &TopicPartition, offset: i64) {
        self.drop_known(group, partition, |known| known < offset);
    }

    fn drop_known(&self, group: &str, partition: &TopicPartition, is_ended: impl Fn(i64) -> bool) {
        let mut table = self.inner.table.lock();
        if table.known.is_empty() {
            return;
        }
        let place = (group.to_owned(), partition.clone());
        let Some(mut of) = table.known.remove(&place) else { return };
        of.retain(|offset, (_, slot)| {
            let ended = is_ended(*offset);
            if ended {
                self.blank(*slot);
                table.free.push(*slot);
            }
            !ended
        });
        if !of.is_empty() {
            table.known.insert(place, of);
        }
    }
}

/// Records that are in hand.
#[must_use]
pub(super) struct Mark {
    marks: InHand,
    slot: Option<usize>,
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let mut table = self.marks.inner.table.lock();
            self.marks.blank(slot);
            table.held.remove(&slot);
            table.free.push(slot);
        }
    }
}

/// The bytes of a file whose process is gone.
fn left_behind(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        // Another process took it over.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => fs::read(path).map(Some).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(None),
            _ => Err(error),
        }),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Adds what a file says to what others said; of two numbers the larger counts.
fn gather(text: &[u8], found: &mut HashMap<Place, BTreeMap<i64, u32>>) {
    for line in text.chunks(SLOT).take(MAX_SLOTS).filter_map(Line::parse) {
        let ends = line.ends + u32::from(line.held);
        let of = found.entry((line.group, line.partition)).or_default();
        for offset in line.offsets {
            let known = of.entry(offset).or_default();
            *known = (*known).max(ends);
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn partition() -> TopicPartition {
        TopicPartition::new("t", 3)
    }

    fn ends(marks: &InHand) -> Vec<u32> {
        (0..5).map(|offset| marks.ends("g", &partition(), offset)).collect()
    }

    /// What a process finds that starts after one with these marks was killed.
    fn after_kill(folder: &Path) -> (TempDir, InHand) {
        let next = TempDir::new().unwrap();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, next.path().join(path.file_name().unwrap())).unwrap();
        }
        let marks = InHand::open(next.path()).unwrap();
        (next, marks)
    }

    #[test]
    fn given_records_in_hand_when_the_process_is_killed_then_they_are_known_and_what_had_ended_is_not() {
        let folder = TempDir::new().unwrap();
        let marks = InHand::open(folder.path()).unwrap();
        let ended = marks.mark("g", &partition(), vec![0]);
        let held = marks.mark("g", &partition(), vec![1, 3]);
        drop(ended);
        let (second, marks) = after_kill(folder.path());
        assert_eq!(ends(&marks), [0, 1, 0, 1, 0]);
        assert_eq!(marks.ends("other", &partition(), 1), 0);
        let again = marks.mark("g", &partition(), vec![3]);
        let (third, marks) = after_kill(second.path());
        assert_eq!(ends(&marks), [0, 1, 0, 2, 0], "what was not in hand is still known");
        marks.forget("g", &partition(), 3);
        let (_fourth, marks) = after_kill(third.path());
        assert_eq!(ends(&marks), [0, 1, 0, 0, 0]);
        marks.passed("g", &partition(), 2);
        assert_eq!(ends(&marks), [0; 5]);
        drop((held, again));
    }

    #[test]
    fn given_a_record_that_gets_on_when_its_process_is_killed_then_only_the_ends_since_are_counted() {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("marks-gone"), "held 8 g t 3 1 2\n").unwrap();
        let marks = InHand::open(folder.path()).unwrap();
        let held = marks.mark("g", &partition(), vec![1]);
        assert_eq!(ends(&marks), [0, 9, 9, 0, 0]);
        marks.got_on("g", &partition(), 1);
        assert_eq!(ends(&marks), [0, 0, 9, 0, 0]);
        let (_second, marks) = after_kill(folder.path());
        assert_eq!(ends(&marks), [0, 1, 9, 0, 0]);
        drop(held);
    }

    #[test]
    fn given_a_process_that_lives_when_another_starts_on_the_folder_then_its_marks_are_its_own() {
        let folder = TempDir::new().unwrap();
        let first = InHand::open(folder.path()).unwrap();
        let held = first.mark("g", &partition(), vec![1]);
        let second = InHand::open(folder.path()).unwrap();
        assert_eq!(ends(&second), [0; 5]);
        drop((held, first));
        assert_eq!(ends(&InHand::open(folder.path()).unwrap()), [0; 5], "it ended well");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the files of those that are gone go");
    }

    #[test]
    fn given_files_that_are_damaged_when_opened_then_what_can_be_read_counts() {
        let folder = TempDir::new().unwrap();
        let mut text = vec![0xff; SLOT];
        text.extend(format!("{:SLOT$}", "held 4 g t 3 2\n").as_bytes());
        text.extend(b"held 4 g t 3 two\nheld");
        fs::write(folder.path().join("marks-damaged"), text).unwrap();
        assert_eq!(ends(&InHand::open(folder.path()).unwrap()), [0, 0, 5, 0, 0]);
    }

    #[test]
    fn given_more_than_there_is_room_for_when_marked_then_the_work_goes_on_and_slots_come_back() {
        let folder = TempDir::new().unwrap();
        let marks = InHand::open(folder.path()).unwrap();
        let all: Vec<Mark> = (0..=MAX_SLOTS as i64).map(|n| marks.mark("g", &partition(), vec![n])).collect();
        assert!(all[MAX_SLOTS].slot.is_none());
        drop(all);
        let wide = marks.mark("g", &partition(), (0..100_000).collect());
        assert!(wide.slot.is_some());
        let (_second, marks) = after_kill(folder.path());
        assert_eq!(ends(&marks), [1; 5]);
    }
}
