//! A disk in memory that forgets: what has not been synced may be lost, in any part and order, when the power goes.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_broker::{Disk, DiskFile, OpenMode};

use crate::dice::Dice;

const SECTOR: usize = 512;

/// A change of a file's contents that has not been synced.
enum Change {
    Write { position: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Default)]
struct Contents {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

/// A change of a folder that has not been synced.
enum Naming {
    Put { path: PathBuf, file: u64 },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
}

impl Naming {
    fn folder(&self) -> Option<&Path> {
        match self {
            Naming::Put { path, .. } | Naming::Remove { path } => path.parent(),
            Naming::Rename { to, .. } => to.parent(),
        }
    }
}

type Names = BTreeMap<PathBuf, u64>;

#[derive(Default)]
struct State {
    names: Names,
    durable_names: Names,
    unsynced: Vec<Naming>,
    contents: HashMap<u64, Contents>,
    next_file: u64,
    /// Counts power cuts and kills; handles from before one are of no use.
    life: u64,
    calls: u64,
    /// The call with this number fails, once.
    fail_at: Option<u64>,
    /// The power goes before the call with this number.
    dies_at: Option<u64>,
    dead: bool,
}

/// The disk. Clones are the same disk; a clone is of use until the next power cut.
#[derive(Clone)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
    life: u64,
}

struct SimFile {
    disk: SimDisk,
    file: u64,
}

enum Fate {
    Happens,
    Fails,
}

impl SimDisk {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), life: 0 }
    }

    /// Fails the `n`-th call from now, once.
    pub(crate) fn fail_at(&self, n: u64) {
        let mut state = self.state.lock();
        state.fail_at = Some(state.calls + n);
    }

    /// Whether the call that was to fail has been made.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().fail_at.is_none()
    }

    /// Cuts the power before the `n`-th call from now.
    pub(crate) fn die_at(&self, n: u64) {
        let mut state = self.state.lock();
        state.dies_at = Some(state.calls + n);
    }

    /// Whether the power is gone.
    pub(crate) fn is_dead(&self) -> bool {
        let state = self.state.lock();
        state.dead || state.life != self.life
    }

    /// What the power cut leaves, as a disk that works again.
    pub(crate) fn after_power_cut(&self, dice: &mut Dice) -> Self {
        let mut state = self.state.lock();
        let unsynced = std::mem::take(&mut state.unsynced);
        let mut names = state.durable_names.clone();
        for naming in unsynced {
            if dice.roll(2) == 0 {
                apply(&mut names, &naming);
            }
        }
        let mut files: Vec<u64> = state.contents.keys().copied().collect();
        files.sort_unstable();
        for file in files {
            if let Some(contents) = state.contents.get_mut(&file) {
                contents.settle(dice);
            }
        }
        state.names = names.clone();
        state.durable_names = names;
        drop(state);
        self.after_kill()
    }

    /// What a process finds that starts after another one was killed: everything that was written, synced or not.
    pub(crate) fn after_kill(&self) -> Self {
        let mut state = self.state.lock();
        state.life += 1;
        state.dead = false;
        state.fail_at = None;
        state.dies_at = None;
        Self { state: self.state.clone(), life: state.life }
    }

    fn call<T>(&self, work: impl FnOnce(&mut State, Fate) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        state.calls += 1;
        if state.dies_at.is_some_and(|at| state.calls >= at) {
            state.dead = true;
        }
        if state.dead || state.life != self.life {
            return Err(io::Error::other("the power is gone"));
        }
        if state.fail_at.is_some_and(|at| state.calls >= at) {
            state.fail_at = None;
            return work(&mut state, Fate::Fails);
        }
        work(&mut state, Fate::Happens)
    }
}

fn failed<T>() -> io::Result<T> {
    Err(io::Error::other("this call was to fail"))
}

fn apply(names: &mut Names, naming: &Naming) {
    match naming {
        Naming::Put { path, file } => drop(names.insert(path.clone(), *file)),
        Naming::Remove { path } => drop(names.remove(path)),
        Naming::Rename { from, to } => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
    }
}

impl State {
    fn rename(&mut self, naming: Naming) {
        apply(&mut self.names, &naming);
        self.unsynced.push(naming);
    }
}

impl Contents {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push(change);
    }

    /// Each unsynced change may have reached the medium, sector by sector, in any order.
    fn settle(&mut self, dice: &mut Dice) {
        let mut changes = std::mem::take(&mut self.unsynced);
        while !changes.is_empty() {
            let change = changes.swap_remove(dice.roll(changes.len()));
            match change {
                Change::SetLen(_) if dice.roll(2) == 0 => change.apply(&mut self.durable),
                Change::SetLen(_) => {}
                Change::Write { position, bytes } => {
                    let mut at = 0;
                    while at < bytes.len() {
                        let end = ((position + at) / SECTOR + 1) * SECTOR - position;
                        let end = end.min(bytes.len());
                        if dice.roll(2) == 0 {
                            let sector = Change::Write { position: position + at, bytes: bytes[at..end].to_vec() };
                            sector.apply(&mut self.durable);
                        }
                        at = end;
                    }
                }
            }
        }
        self.now = self.durable.clone();
    }
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::SetLen(size) => to.resize(*size, 0),
            Change::Write { position, bytes } => {
                let end = position + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*position..end].copy_from_slice(bytes);
            }
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.call(|state, fate| {
            if matches!(fate, Fate::Fails) {
                return failed();
            }
            let file = match (state.names.get(path).copied(), mode) {
                (None, OpenMode::Existing) => return Err(io::ErrorKind::NotFound.into()),
                (Some(file), OpenMode::Existing) => file,
                (Some(file), OpenMode::Truncate) => {
                    if let Some(contents) = state.contents.get_mut(&file) {
                        contents.change(Change::SetLen(0));
                    }
                    file
                }
                (None, OpenMode::Truncate) => {
                    state.next_file += 1;
                    let file = state.next_file;
                    state.contents.insert(file, Contents::default());
                    state.rename(Naming::Put { path: path.to_path_buf(), file });
                    file
                }
            };
            let opened: Arc<dyn DiskFile> = Arc::new(SimFile { disk: self.clone(), file });
            Ok(opened)
        })
    }

    /// Folders are there as soon as something is in them.
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        self.call(|_, fate| if matches!(fate, Fate::Fails) { failed() } else { Ok(()) })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.call(|state, fate| {
            if matches!(fate, Fate::Fails) {
                return failed();
            }
            let below = state.names.keys().filter_map(|name| name.strip_prefix(path).ok()?.components().next());
            let mut found: Vec<PathBuf> = below.map(|first| path.join(first)).collect();
            found.dedup();
            Ok(found)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state, fate| {
            if matches!(fate, Fate::Fails) {
                return failed();
            }
            if !state.names.contains_key(from) {
                return Err(io::ErrorKind::NotFound.into());
            }
            state.rename(Naming::Rename { from: from.to_path_buf(), to: to.to_path_buf() });
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call(|state, fate| {
            if matches!(fate, Fate::Fails) {
                return failed();
            }
            if !state.names.contains_key(path) {
                return Err(io::ErrorKind::NotFound.into());
            }
            state.rename(Naming::Remove { path: path.to_path_buf() });
            Ok(())
        })
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.call(|state, fate| {
            if matches!(fate, Fate::Fails) {
                return failed();
            }
            let below: Vec<PathBuf> = state.names.keys().filter(|name| name.starts_with(path)).cloned().collect();
            below.into_iter().for_each(|path| state.rename(Naming::Remove { path }));
            Ok(())
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call(|state, fate| {
            if matches!(fate, Fate::Fails) {
                return failed();
            }
            let (synced, left): (Vec<Naming>, Vec<Naming>) =
                std::mem::take(&mut state.unsynced).into_iter().partition(|naming| naming.folder() == Some(path));
            state.unsynced = left;
            synced.iter().for_each(|naming| apply(&mut state.durable_names, naming));
            Ok(())
        })
    }
}

impl SimFile {
    fn with<T>(&self, work: impl FnOnce(&mut Contents, Fate) -> io::Result<T>) -> io::Result<T> {
        self.disk.call(|state, fate| match state.contents.get_mut(&self.file) {
            Some(contents) => work(contents, fate),
            None => Err(io::ErrorKind::NotFound.into()),
        })
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.with(|contents, fate| {
            if matches!(fate, Fate::Fails) {
                return failed();
            }
            let rest = contents.now.get(position as usize..).unwrap_or(&[]);
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.with(|contents, fate| {
            // A write that fails has written a part.
            let written = if matches!(fate, Fate::Fails) { &bytes[..bytes.len() / 2] } else { bytes };
            contents.change(Change::Write { position: position as usize, bytes: written.to_vec() });
            if matches!(fate, Fate::Fails) { failed() } else { Ok(()) }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|contents, fate| {
            if matches!(fate, Fate::Fails) {
                return failed();
            }
            contents.unsynced.clear();
            contents.durable = contents.now.clone();
            Ok(())
        })
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        self.with(|contents, fate| {
            if matches!(fate, Fate::Fails) {
                return failed();
            }
            contents.change(Change::SetLen(size as usize));
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|contents, fate| if matches!(fate, Fate::Fails) { failed() } else { Ok(contents.now.len() as u64) })
    }
}
