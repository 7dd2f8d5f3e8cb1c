//! GGUF chat models: which are loaded, and the way of a request through one.

mod constraint;
mod engine;
mod generate;
mod output;
mod prefix;
mod prompt;
mod sampling;
mod template;
mod tool_calls;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

use super::NAME;
use super::store::Found;
use crate::error::ModelError;
use crate::provider::{ChatReply, ChatRequest, DeltaSink};
use crate::settings::ModelSettings;

use engine::{Engine, EngineSettings};

/// The loaded chat models. At most `max_loaded` at once; the least recently used idle one makes room for another.
pub(super) struct ChatEngines {
    settings: EngineSettings,
    max_loaded: usize,
    wait: Duration,
    slots: Arc<Slots>,
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
            max_loaded: settings.max_loaded_models.max(1),
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
        let in_use =
            tokio::time::timeout(self.wait, self.claim(&found.name)).await.map_err(|_| ModelError::RateLimited {
                provider: NAME.to_owned(),
                reason: format!(
                    "all {} loaded models are in use; RIVERRUN_MODEL_MAX_LOADED raises their number",
                    self.max_loaded
                ),
                retry_after: None,
            })?;
        let load = || Engine::load(found.name.clone(), found.folder.join("model.gguf"), self.settings.clone());
        let engine = Arc::clone(in_use.engine.get_or_try_init(load).await?);
        Ok((engine, in_use))
    }

    async fn claim(&self, name: &str) -> InUse {
        loop {
            let freed = self.slots.freed.notified();
            tokio::pin!(freed);
            // Registered before looking, so that nothing that is freed meanwhile is missed.
            freed.as_mut().enable();
            if let Some(engine) = self.slots.map.lock().claim(name, self.max_loaded) {
                return InUse { name: name.to_owned(), engine, slots: Arc::clone(&self.slots) };
            }
            freed.await;
        }
    }
}

impl SlotMap {
    fn claim(&mut self, name: &str, max_loaded: usize) -> Option<Arc<OnceCell<Arc<Engine>>>> {
        self.clock += 1;
        let clock = self.clock;
        if let Some(slot) = self.slots.get_mut(name) {
            slot.users += 1;
            slot.last_used = clock;
            return Some(Arc::clone(&slot.engine));
        }
        if self.slots.len() >= max_loaded {
            let idle = self.slots.iter().filter(|(_, slot)| slot.users == 0).min_by_key(|(_, slot)| slot.last_used);
            let victim = idle.map(|(name, _)| name.clone())?;
            tracing::debug!(model = %victim, "unloading a chat model to make room");
            self.slots.remove(&victim);
        }
        let engine = Arc::default();
        self.slots.insert(name.to_owned(), Slot { engine: Arc::clone(&engine), users: 1, last_used: clock });
        Some(engine)
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

    #[test]
    fn given_a_full_house_when_another_model_is_claimed_then_the_oldest_idle_one_goes() {
        let mut map = SlotMap::default();
        for name in ["a", "b"] {
            assert!(map.claim(name, 2).is_some());
        }
        assert!(map.claim("c", 2).is_none(), "both are in use");
        for slot in map.slots.values_mut() {
            slot.users = 0;
        }
        assert!(map.claim("a", 2).is_some());
        assert!(map.claim("c", 2).is_some());
        let mut names: Vec<&str> = map.slots.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "c"]);
    }
}
