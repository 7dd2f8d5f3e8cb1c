//! What vectors and keywords have in common: one engine a collection, in a folder of its own under one root, opened when
//! first used and used from threads that may block.

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_schemas::Collection;

use crate::error::StoreError;
use crate::folder;
use crate::gaps::{Damage, Gap, GapState, Gaps};
use crate::open_set::{Closable, OpenSet};

mod aside;

/// Engines put whole backtraces into what they panic with.
const MAX_PANIC_CHARS: usize = 300;

/// The engines of one kind, by collection.
pub(crate) struct Shelf<T> {
    kind: &'static str,
    root: PathBuf,
    engines: OpenSet<T>,
    /// What could not be opened since the process started, one a collection.
    damaged: Mutex<Vec<Damage>>,
    /// Where it is told at once that a collection is not whole.
    gaps: Gaps,
}

impl<T: Closable> Shelf<T> {
    /// A shelf in that folder, which is made if need be, with so many engines open at once.
    pub(crate) fn open(kind: &'static str, root: &Path, max_open: usize) -> Result<Self, StoreError> {
        fs::create_dir_all(root).map_err(StoreError::io("creating", root))?;
        Ok(Self::later(kind, root, max_open))
    }

    /// The same in a folder that whoever writes first makes.
    pub(crate) fn later(kind: &'static str, root: &Path, max_open: usize) -> Self {
        Self {
            kind,
            root: root.to_path_buf(),
            engines: OpenSet::new(max_open),
            damaged: Mutex::default(),
            gaps: Gaps::default(),
        }
    }

    /// The same that tells of damage in `gaps`, before anybody is answered.
    pub(crate) fn telling(self, gaps: Gaps) -> Self {
        Self { gaps, ..self }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn folder(&self, collection: &Collection) -> PathBuf {
        self.root.join(collection.physical_name())
    }

    /// Uses the engine beside other readers.
    pub(crate) fn read<R>(
        &self,
        collection: &Collection,
        open: impl Fn(&Path) -> Result<T, StoreError>,
        work: impl FnOnce(&T) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.engines.read(&collection.physical_name(), || self.opened(collection, &open), work)
    }

    /// Looks at the engine without waiting; `None` where it is not open, or somebody uses it alone.
    pub(crate) fn glance<R>(&self, collection: &Collection, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.engines.glance(&collection.physical_name(), look)
    }

    /// Uses the engine alone.
    pub(crate) fn write<R>(
        &self,
        collection: &Collection,
        open: impl Fn(&Path) -> Result<T, StoreError>,
        work: impl FnOnce(&mut T) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.engines.write(&collection.physical_name(), || self.opened(collection, &open), work)
    }

    /// Opens the engine. One that is damaged is moved out of the way, once, and what is then there is opened: nothing, or a new one.
    fn opened(&self, collection: &Collection, open: &impl Fn(&Path) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let folder = self.folder(collection);
        let attempt = || {
            catch_unwind(AssertUnwindSafe(|| open(&folder))).unwrap_or_else(|panic| {
                Err(StoreError::Index { kind: self.kind, path: folder.clone(), reason: panic_message(panic) })
            })
        };
        match attempt() {
            Err(error) if error.is_damage() && aside::is_writable(&self.root) => {
                self.move_damaged(collection, &error.to_string())?;
                attempt()
            }
            other => other,
        }
    }

    /// Moves the folder of a damaged engine out of the way, and keeps in mind that it was damaged. Nobody has it open.
    fn move_damaged(&self, collection: &Collection, reason: &str) -> Result<(), StoreError> {
        let Some(kept_at) = aside::keep(&self.folder(collection))? else { return Ok(()) };
        let kind = self.kind;
        tracing::error!(%collection, kind, reason, kept_at = %kept_at.display(), "damaged index set aside");
        let found = format!("its {kind} index was damaged and is kept at {}", kept_at.display());
        self.gaps.note(collection, Gap { reason: found, state: GapState::Mending, elsewhere: false });
        let damage = Damage { collection: collection.clone(), kind, reason: reason.to_owned(), kept_at };
        let mut damaged = self.damaged.lock();
        damaged.retain(|known| known.collection != *collection);
        damaged.push(damage);
        Ok(())
    }

    /// The same with an engine that may be open.
    pub(crate) fn set_damaged_aside(&self, collection: &Collection, reason: &str) -> Result<(), StoreError> {
        self.closed(collection, || self.move_damaged(collection, reason))
    }

    /// Moves the collection's folder out of the way because somebody wants that; false when there was none.
    pub(crate) fn set_aside(&self, collection: &Collection, reason: &str) -> Result<bool, StoreError> {
        let kept_at = self.closed(collection, || aside::keep(&self.folder(collection)))?;
        let kind = self.kind;
        if let Some(kept_at) = &kept_at {
            tracing::warn!(%collection, kind, reason, kept_at = %kept_at.display(), "index set aside");
        }
        Ok(kept_at.is_some())
    }

    /// What could not be opened since the process started.
    pub(crate) fn damaged(&self) -> Vec<Damage> {
        self.damaged.lock().clone()
    }

    /// Closes the engine if it is open and keeps everybody out while `then` runs.
    pub(crate) fn closed<R>(&self, collection: &Collection, then: impl FnOnce() -> R) -> R {
        self.engines.closed(&collection.physical_name(), then)
    }

    /// Deletes the collection's folder; false when there was none.
    pub(crate) fn remove(&self, collection: &Collection) -> Result<bool, StoreError> {
        self.closed(collection, || folder::remove(&self.folder(collection)))
    }
}

/// Runs on a thread that may block. A panic of the engine becomes an error.
pub(crate) async fn blocking<I, T, R>(
    inner: &Arc<I>,
    shelf: impl Fn(&I) -> &Shelf<T>,
    collection: &Collection,
    work: impl FnOnce(&I, &Collection) -> Result<R, StoreError> + Send + 'static,
) -> Result<R, StoreError>
where
    I: Send + Sync + 'static,
    T: Closable,
    R: Send + 'static,
{
    let (shared, owned) = (inner.clone(), collection.clone());
    match tokio::task::spawn_blocking(move || work(&shared, &owned)).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => {
            let shelf = shelf(inner);
            let (kind, path) = (shelf.kind, shelf.folder(collection));
            Err(StoreError::Index { kind, path, reason: panic_message(error.into_panic()) })
        }
        Err(_) => Err(StoreError::ShuttingDown),
    }
}

/// A collection that is not there holds nothing.
pub(crate) fn nothing_if_missing<R: Default>(result: Result<R, StoreError>) -> Result<R, StoreError> {
    match result {
        Err(StoreError::NoCollection(_)) => Ok(R::default()),
        other => other,
    }
}

/// What a panic said, without the backtrace.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let text =
        panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "no message".to_owned());
    format!(
        "the engine panicked: {}",
        text.lines().next().unwrap_or_default().chars().take(MAX_PANIC_CHARS).collect::<String>()
    )
}
