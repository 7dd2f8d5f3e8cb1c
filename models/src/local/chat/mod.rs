//! GGUF chat models: which are loaded, and the way of a request through one.

mod constraint;
mod engine;
mod generate;
mod memory;
mod output;
mod prefix;
mod prompt;
mod sampling;
mod schedule;
mod tally;
mod template;
mod tool_calls;

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

use super::gguf::Header;
use super::store::Found;
use super::{NAME, adapter};
use crate::error::ModelError;
use crate::provider::{ChatReply, ChatRequest, DeltaSink};
use crate::settings::ModelSettings;

use engine::{Engine, EngineSettings};
use memory::Demand;

/// The loaded chat models. At most so many, that take at most so many bytes, at once; the least recently used idle ones make room for another.
pub(super) struct ChatEngines {
    settings: EngineSettings,
    room: Room,
    wait: Duration,
    slots: Arc<Slots>,
}

/// What may be loaded at once.
#[derive(Debug, Clone, Copy)]
struct Room {
    models: usize,
    bytes: u64,
}

#[derive(Default)]
struct Slots {
    map: Mutex<SlotMap>,
    freed: Notify,
}

#[derive(Default)]
struct SlotMap {
    slots: HashMap<String, Slot>,
    /// Grows with every use, so that the smallest is the least recently used.
    clock: u64,
}

struct Slot {
    engine: Arc<OnceCell<Arc<Engine>>>,
    users: usize,
    last_used: u64,
    load: Load,
}

/// A model to load.
#[derive(Debug, Clone, Copy)]
struct Load {
    weights: Weights,
    /// Bytes that it takes once it is loaded.
    memory: u64,
}

/// The files of a model's weights, as far as they tell one from another under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Weights {
    bytes: u64,
    written: Option<SystemTime>,
    /// When the adapter was written that is applied to them, where one is.
    adapted: Option<SystemTime>,
}

impl Weights {
    fn of(path: &Path, adapter: Option<&Path>) -> Self {
        let written = |meta: &Metadata| meta.modified().ok();
        let meta = fs::metadata(path).ok();
        let adapted = adapter.and_then(|folder| fs::metadata(folder.join(adapter::WEIGHTS)).ok());
        Weights {
            bytes: meta.as_ref().map_or(0, Metadata::len),
            written: meta.as_ref().and_then(written),
            adapted: adapted.as_ref().and_then(written),
        }
    }
}

/// Keeps a model loaded while it is in use.
struct InUse {
    name: String,
    engine: Arc<OnceCell<Arc<Engine>>>,
    slots: Arc<Slots>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut map = self.slots.map.lock();
        if let Some(slot) = map.slots.get_mut(&self.name).filter(|slot| Arc::ptr_eq(&slot.engine, &self.engine)) {
            slot.users -= 1;
            // A model that failed to load, or whose thread ended, leaves no trace: the next request tries anew.
            let dead = self.engine.get().is_none_or(|engine| engine.is_dead());
            if slot.users == 0 && dead {
                map.slots.remove(&self.name);
            }
        }
        drop(map);
        self.slots.freed.notify_waiters();
    }
}

impl ChatEngines {
    pub(super) fn new(settings: &ModelSettings) -> Self {
        ChatEngines {
            settings: EngineSettings::of(settings),
            room: Room { models: settings.max_loaded_models.max(1), bytes: settings.memory_bytes.unwrap_or(u64::MAX) },
            wait: settings.idle_timeout,
            slots: Arc::default(),
        }
    }

    pub(super) async fn chat(
        &self,
        found: &Found,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        let (engine, _in_use) = self.acquire(found).await?;
        engine.chat(request, sink, cancel).await
    }

    pub(super) async fn count_tokens(&self, found: &Found, text: &str) -> Result<usize, ModelError> {
        let (engine, _in_use) = self.acquire(found).await?;
        let text = text.to_owned();
        blocking(move || Ok(engine.count_tokens(&text))).await
    }

    pub(super) async fn count_prompt(&self, found: &Found, request: &ChatRequest) -> Result<usize, ModelError> {
        let (engine, _in_use) = self.acquire(found).await?;
        let request = request.clone();
        blocking(move || engine.count_prompt(&request)).await
    }

    pub(super) async fn context_tokens(&self, found: &Found) -> Result<usize, ModelError> {
        let (engine, _in_use) = self.acquire(found).await?;
        Ok(engine.context_tokens())
    }

    /// The model, loaded. Waits for a loaded one to become idle when there is no room.
    async fn acquire(&self, found: &Found) -> Result<(Arc<Engine>, InUse), ModelError> {
        let path = found.folder.join("model.gguf");
        let weights = Weights::of(&path, found.adapter.as_deref());
        let load = Load { weights, memory: self.memory_of(&found.name, &path, weights)? };
        let claim = self.claim(&found.name, load);
        let in_use = tokio::time::timeout(self.wait, claim).await.map_err(|_| ModelError::RateLimited {
            provider: NAME.to_owned(),
            reason: "all loaded models are in use; RIVERRUN_MODEL_MAX_LOADED and RIVERRUN_MODEL_MEMORY_MB make room \
                     for more"
                .to_owned(),
            retry_after: None,
        })?;
        let load = || Engine::load(found.name.clone(), path, found.adapter.clone(), self.settings.clone());
        let engine = Arc::clone(in_use.engine.get_or_try_init(load).await?);
        Ok((engine, in_use))
    }

    /// What a model takes once it is loaded, which is no more than there may be. Of one that is loaded it is known; else its header tells.
    fn memory_of(&self, name: &str, path: &Path, weights: Weights) -> Result<u64, ModelError> {
        let known = self.slots.map.lock().memory_of(name, weights);
        if let Some(known) = known {
            return Ok(known);
        }
        let (shape, work) = (Header::read(path).shape, self.settings.work());
        Demand::of(weights.bytes, &shape, work).within(self.room.bytes, name, &shape, work).map(Demand::total)
    }

    async fn claim(&self, name: &str, load: Load) -> InUse {
        loop {
            let freed = self.slots.freed.notified();
            tokio::pin!(freed);
            // Registered before looking, so that nothing that is freed meanwhile is missed.
            freed.as_mut().enable();
            if let Some(engine) = self.slots.map.lock().claim(name, load, self.room) {
                return InUse { name: name.to_owned(), engine, slots: Arc::clone(&self.slots) };
            }
            freed.await;
        }
    }
}

impl SlotMap {
    /// A place for a model; none while those in use leave no room.
    fn claim(&mut self, name: &str, load: Load, room: Room) -> Option<Arc<OnceCell<Arc<Engine>>>> {
        self.clock += 1;
        let clock = self.clock;
        // A model that was replaced under its name is another one; who uses the former goes on with it.
        if self.slots.get(name).is_some_and(|slot| slot.load.weights != load.weights) {
            self.slots.remove(name);
        }
        if let Some(slot) = self.slots.get_mut(name) {
            slot.users += 1;
            slot.last_used = clock;
            return Some(Arc::clone(&slot.engine));
        }
        while self.slots.len() >= room.models || self.bytes().saturating_add(load.memory) > room.bytes {
            let idle = self.slots.iter().filter(|(_, slot)| slot.users == 0).min_by_key(|(_, slot)| slot.last_used);
            let victim = idle.map(|(name, _)| name.clone())?;
            tracing::debug!(model = %victim, "unloading a chat model to make room");
            self.slots.remove(&victim);
        }
        let engine = Arc::default();
        self.slots.insert(name.to_owned(), Slot { engine: Arc::clone(&engine), users: 1, last_used: clock, load });
        Some(engine)
    }

    fn memory_of(&self, name: &str, weights: Weights) -> Option<u64> {
        let slot = self.slots.get(name).filter(|slot| slot.load.weights == weights);
        slot.map(|slot| slot.load.memory)
    }

    fn bytes(&self) -> u64 {
        self.slots.values().fold(0, |sum: u64, slot| sum.saturating_add(slot.load.memory))
    }
}

/// Runs work that takes the CPU for a while.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ModelError> + Send + 'static,
) -> Result<T, ModelError> {
    tokio::task::spawn_blocking(work).await.map_err(ModelError::internal)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(memory: u64) -> Load {
        let weights = Weights { bytes: 1, written: Some(SystemTime::UNIX_EPOCH), adapted: None };
        Load { weights, memory }
    }

    #[test]
    fn given_a_model_that_was_replaced_under_its_name_when_it_is_claimed_then_it_is_loaded_anew() {
        let room = Room { models: 2, bytes: u64::MAX };
        let mut map = SlotMap::default();
        let first = map.claim("a", of(1), room).unwrap();
        assert!(Arc::ptr_eq(&first, &map.claim("a", of(1), room).unwrap()));
        let weights = Weights { written: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1)), ..of(1).weights };
        let later = Load { weights, ..of(1) };
        assert_eq!((map.memory_of("a", of(2).weights), map.memory_of("a", weights)), (Some(1), None));
        assert!(!Arc::ptr_eq(&first, &map.claim("a", later, room).unwrap()));
        assert_eq!(names(&map), ["a"]);
    }

    #[test]
    fn given_an_adapter_that_was_written_anew_when_it_is_asked_for_then_it_is_another_model_on_the_same_weights() {
        let folder = tempfile::tempdir().unwrap();
        let (base, weights) = (folder.path().join("model.gguf"), folder.path().join(adapter::WEIGHTS));
        fs::write(&base, "base").unwrap();
        fs::write(&weights, "first").unwrap();
        let first = Weights::of(&base, Some(folder.path()));
        assert_eq!(first, Weights::of(&base, Some(folder.path())));
        assert_ne!(first, Weights::of(&base, None));
        let later = SystemTime::now() + Duration::from_secs(60);
        fs::File::options().write(true).open(&weights).unwrap().set_modified(later).unwrap();
        let second = Weights::of(&base, Some(folder.path()));
        assert_eq!((second.bytes, second.written), (first.bytes, first.written));
        assert_ne!(second, first);
    }

    fn names(map: &SlotMap) -> Vec<&str> {
        let mut names: Vec<&str> = map.slots.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn given_a_full_house_when_another_model_is_claimed_then_the_oldest_idle_one_goes() {
        let room = Room { models: 2, bytes: u64::MAX };
        let mut map = SlotMap::default();
        for name in ["a", "b"] {
            assert!(map.claim(name, of(1), room).is_some());
        }
        assert!(map.claim("c", of(1), room).is_none(), "both are in use");
        for slot in map.slots.values_mut() {
            slot.users = 0;
        }
        assert!(map.claim("a", of(1), room).is_some());
        assert!(map.claim("c", of(1), room).is_some());
        assert_eq!(names(&map), ["a", "c"]);
    }

    #[test]
    fn given_little_memory_when_a_large_model_is_claimed_then_as_many_go_as_must() {
        let room = Room { models: 9, bytes: 100 };
        let mut map = SlotMap::default();
        for name in ["a", "b", "c"] {
            assert!(map.claim(name, of(30), room).is_some());
        }
        assert!(map.claim("large", of(60), room).is_none(), "all are in use");
        for slot in map.slots.values_mut() {
            slot.users = 0;
        }
        assert!(map.claim("large", of(60), room).is_some());
        assert_eq!(names(&map), ["c", "large"]);
        assert!(map.claim("d", of(50), room).is_none(), "the large one is in use");
    }
}
