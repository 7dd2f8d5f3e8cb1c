//! Which models are loaded. Those of every kind share one limit of memory; the least recently used idle ones make room for another.

use std::any::Any;
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell};

use super::{NAME, adapter};
use crate::error::ModelError;
use crate::provider::LoadedModel;
use crate::settings::ModelSettings;
use crate::split::with_others;

/// Encoders of a kind that stay loaded.
const MAX_ENCODERS: usize = 4;

/// A kind of loaded models. Each has a bound on their number; memory they share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Chat,
    Sentence,
    Cross,
    Gguf,
}

/// What can be loaded.
pub(super) trait Resident: Send + Sync + 'static {
    const CLASS: Class;

    /// Whether it can't answer any more, so that the next request loads it anew.
    fn is_dead(&self) -> bool;
}

/// The loaded models. Clones share them.
#[derive(Clone)]
pub(super) struct ModelPool {
    room: Room,
    wait: Duration,
    slots: Arc<Slots>,
}

/// What may be loaded at once.
#[derive(Debug, Clone, Copy)]
struct Room {
    chats: usize,
    encoders: usize,
    bytes: u64,
}

impl Room {
    fn most(self, class: Class) -> usize {
        match class {
            Class::Chat => self.chats,
            Class::Sentence | Class::Cross | Class::Gguf => self.encoders,
        }
    }
}

#[derive(Default)]
struct Slots {
    map: Mutex<SlotMap>,
    freed: Notify,
}

#[derive(Default)]
struct SlotMap {
    slots: HashMap<Key, Slot>,
    /// Grows with every use, so that the smallest is the least recently used.
    clock: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    class: Class,
    name: String,
}

struct Slot {
    cell: Cell,
    users: usize,
    last_used: u64,
    load: Load,
}

type Cell = Arc<OnceCell<Occupant>>;

/// A loaded model, whatever its type.
struct Occupant {
    resident: Arc<dyn Any + Send + Sync>,
    is_dead: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Occupant {
    fn of<R: Resident>(resident: Arc<R>) -> Self {
        let watched = Arc::clone(&resident);
        Occupant { resident, is_dead: Box::new(move || watched.is_dead()) }
    }
}

/// A model to load.
#[derive(Debug, Clone, Copy)]
struct Load {
    files: Files,
    /// Bytes that it takes once it is loaded.
    memory: u64,
}

/// The files of a model's weights, as far as they tell one from another under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Files {
    pub(super) bytes: u64,
    written: Option<SystemTime>,
    /// Of the adapter that is applied to them, where one is.
    pub(super) adapter_bytes: u64,
    /// When the adapter was written that is applied to them, where one is.
    adapted: Option<SystemTime>,
}

impl Files {
    pub(super) fn of(path: &Path, adapter: Option<&Path>) -> Self {
        let written = |meta: &Metadata| meta.modified().ok();
        let metas: Vec<Metadata> = with_others(path).iter().filter_map(|file| fs::metadata(file).ok()).collect();
        let adapted = adapter.and_then(|folder| fs::metadata(folder.join(adapter::WEIGHTS)).ok());
        Files {
            bytes: metas.iter().map(Metadata::len).sum(),
            written: metas.iter().filter_map(written).max(),
            adapter_bytes: adapted.as_ref().map_or(0, Metadata::len),
            adapted: adapted.as_ref().and_then(written),
        }
    }
}

/// A loaded model, which stays loaded until this is dropped.
pub(super) struct Lease<R> {
    resident: Arc<R>,
    _in_use: InUse,
}

impl<R> Deref for Lease<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.resident
    }
}

impl<R> Lease<R> {
    /// The model, for work that goes on beside this.
    pub(super) fn shared(&self) -> Arc<R> {
        Arc::clone(&self.resident)
    }
}

struct InUse {
    key: Key,
    cell: Cell,
    slots: Arc<Slots>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut map = self.slots.map.lock();
        if let Some(slot) = map.slots.get_mut(&self.key).filter(|slot| Arc::ptr_eq(&slot.cell, &self.cell)) {
            slot.users -= 1;
            // A model that failed to load, or whose thread ended, leaves no trace: the next request tries anew.
            let dead = self.cell.get().is_none_or(|occupant| (occupant.is_dead)());
            if slot.users == 0 && dead {
                map.slots.remove(&self.key);
            }
        }
        drop(map);
        self.slots.freed.notify_waiters();
    }
}

impl ModelPool {
    pub(super) fn new(settings: &ModelSettings) -> Self {
        let (chats, bytes) = (settings.max_loaded_models.max(1), settings.memory_bytes.unwrap_or(u64::MAX));
        ModelPool {
            room: Room { chats, encoders: MAX_ENCODERS, bytes },
            wait: settings.idle_timeout,
            slots: Arc::default(),
        }
    }

    /// Bytes that all loaded models may take.
    pub(super) fn bytes(&self) -> u64 {
        self.room.bytes
    }

    /// What is loaded, by name.
    pub(super) fn loaded(&self) -> Vec<LoadedModel> {
        self.slots.map.lock().loaded()
    }

    /// The model, loaded once however many ask for it at the same time. Waits for a loaded one to become idle when there is no room. `memory`
    /// is asked what it will take only while it is not loaded, and refuses what can never fit.
    pub(super) async fn lease<R: Resident>(
        &self,
        name: &str,
        files: Files,
        memory: impl Future<Output = Result<u64, ModelError>>,
        load: impl Future<Output = Result<Arc<R>, ModelError>>,
    ) -> Result<Lease<R>, ModelError> {
        let key = Key { class: R::CLASS, name: name.to_owned() };
        let known = self.slots.map.lock().memory_of(&key, files);
        let memory = match known {
            Some(known) => known,
            None => memory.await?,
        };
        let claim = self.claim(key, Load { files, memory });
        let in_use = tokio::time::timeout(self.wait, claim).await.map_err(|_| ModelError::RateLimited {
            provider: NAME.to_owned(),
            reason: "all loaded models are in use; RIVERRUN_MODEL_MAX_LOADED and RIVERRUN_MODEL_MEMORY_MB make room \
                     for more"
                .to_owned(),
            retry_after: None,
        })?;
        let occupant = in_use.cell.get_or_try_init(|| async { load.await.map(Occupant::of) }).await?;
        let resident = Arc::clone(&occupant.resident).downcast::<R>();
        let resident =
            resident.map_err(|_| ModelError::internal(format!("model {name:?} is loaded as something else")))?;
        Ok(Lease { resident, _in_use: in_use })
    }

    async fn claim(&self, key: Key, load: Load) -> InUse {
        loop {
            let freed = self.slots.freed.notified();
            tokio::pin!(freed);
            // Registered before looking, so that nothing that is freed meanwhile is missed.
            freed.as_mut().enable();
            let claimed = self.slots.map.lock().claim(&key, load, self.room);
            if let Some(cell) = claimed {
                return InUse { key, cell, slots: Arc::clone(&self.slots) };
            }
            freed.await;
        }
    }
}

impl SlotMap {
    /// A place for a model; none while those in use leave no room, and then nothing is unloaded.
    fn claim(&mut self, key: &Key, load: Load, room: Room) -> Option<Cell> {
        self.clock += 1;
        let clock = self.clock;
        // A model that was replaced under its name is another one; who uses the former goes on with it.
        if self.slots.get(key).is_some_and(|slot| slot.load.files != load.files) {
            self.slots.remove(key);
        }
        if let Some(slot) = self.slots.get_mut(key) {
            slot.users += 1;
            slot.last_used = clock;
            return Some(Arc::clone(&slot.cell));
        }
        let most = room.most(key.class);
        let (busy, taken) = self.sums(key.class, |slot| slot.users > 0);
        if busy >= most || taken.saturating_add(load.memory) > room.bytes {
            return None;
        }
        loop {
            let (count, taken) = self.sums(key.class, |_| true);
            let victim = if count >= most {
                self.idle(|other| other == key.class)
            } else if taken.saturating_add(load.memory) > room.bytes {
                self.idle(|_| true)
            } else {
                break;
            }?;
            tracing::debug!(model = %victim.name, "unloading a model to make room");
            self.slots.remove(&victim);
        }
        let cell = Cell::default();
        self.slots.insert(key.clone(), Slot { cell: Arc::clone(&cell), users: 1, last_used: clock, load });
        Some(cell)
    }

    /// Of some slots: how many are of a class, and the bytes of all.
    fn sums(&self, class: Class, counts: impl Fn(&Slot) -> bool) -> (usize, u64) {
        let counted = self.slots.iter().filter(|(_, slot)| counts(slot));
        counted.fold((0, 0_u64), |(count, bytes), (key, slot)| {
            (count + usize::from(key.class == class), bytes.saturating_add(slot.load.memory))
        })
    }

    /// The least recently used of those that nobody uses.
    fn idle(&self, wanted: impl Fn(Class) -> bool) -> Option<Key> {
        let idle = self.slots.iter().filter(|(key, slot)| slot.users == 0 && wanted(key.class));
        idle.min_by_key(|(_, slot)| slot.last_used).map(|(key, _)| key.clone())
    }

    fn memory_of(&self, key: &Key, files: Files) -> Option<u64> {
        let slot = self.slots.get(key).filter(|slot| slot.load.files == files);
        slot.map(|slot| slot.load.memory)
    }

    fn loaded(&self) -> Vec<LoadedModel> {
        let loaded = self.slots.iter().filter(|(_, slot)| slot.cell.initialized());
        let mut models: Vec<LoadedModel> =
            loaded.map(|(key, slot)| LoadedModel { name: key.name.clone(), bytes: slot.load.memory }).collect();
        models.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        models
    }
}

/// A number of bytes from what a file says, which may be anything: what is too large to count is as large as can be.
pub(super) fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product: u64, factor| product.saturating_mul(*factor))
}

/// As refusals say it: a part counts as a whole.
pub(super) fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests;
