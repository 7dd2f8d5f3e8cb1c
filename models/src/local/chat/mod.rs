//! GGUF chat models: which are loaded, and the way of a request through one.

mod constraint;
mod engine;
mod generate;
mod json;
mod memory;
mod output;
#[cfg(test)]
mod plain_tests;
mod prefix;
mod prompt;
mod repetition;
mod sampling;
mod schedule;
mod tally;
mod template;
mod thoughts;
mod tool_calls;

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::NAME;
use super::gguf::Header;
use super::pool::{Class, Files, Lease, ModelPool, Resident};
use super::store::Found;
use crate::error::ModelError;
use crate::provider::{ChatReply, ChatRequest, DeltaSink};
use crate::settings::ModelSettings;

use engine::{Engine, EngineSettings};
use memory::Demand;
pub(crate) use thoughts::{Piece, ThoughtSplitter};

/// The chat models of a pool.
pub(super) struct ChatEngines {
    settings: EngineSettings,
    pool: ModelPool,
}

impl Resident for Engine {
    const CLASS: Class = Class::Chat;

    fn is_dead(&self) -> bool {
        Engine::is_dead(self)
    }
}

impl ChatEngines {
    pub(super) fn new(settings: &ModelSettings, pool: ModelPool) -> Self {
        ChatEngines { settings: EngineSettings::of(settings), pool }
    }

    pub(super) async fn chat(
        &self,
        found: &Found,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        let lease = self.acquire(found).await?;
        lease.shared().chat(request, sink, cancel).await
    }

    pub(super) async fn count_tokens(&self, found: &Found, text: &str) -> Result<usize, ModelError> {
        let engine = self.acquire(found).await?;
        let text = text.to_owned();
        blocking(move || Ok(engine.count_tokens(&text))).await
    }

    pub(super) async fn count_prompt(&self, found: &Found, request: &ChatRequest) -> Result<usize, ModelError> {
        let engine = self.acquire(found).await?;
        let request = request.clone();
        blocking(move || engine.count_prompt(&request)).await
    }

    pub(super) async fn context_tokens(&self, found: &Found) -> Result<usize, ModelError> {
        Ok(self.acquire(found).await?.context_tokens())
    }

    async fn acquire(&self, found: &Found) -> Result<Lease<Engine>, ModelError> {
        let path = found.weights();
        let files = Files::of(&path, found.adapter.as_deref());
        let memory = async { self.memory_of(&found.name, &path, files) };
        let load = async {
            Engine::load(found.name.clone(), path.clone(), found.adapter.clone(), self.settings.clone()).await
        };
        self.pool.lease(&found.name, files, memory, load).await.map_err(|error| error.or_fix(|| found.fix()))
    }

    /// What a model will take, which is no more than there may be; its header tells.
    fn memory_of(&self, name: &str, path: &Path, files: Files) -> Result<u64, ModelError> {
        let (shape, work) = (Header::read(path).shape, self.settings.work());
        // The runtime keeps the matrices of an adapter in 32 bits; their file may have them in 16.
        let weights = files.bytes.saturating_add(files.adapter_bytes.saturating_mul(2));
        Demand::of(weights, &shape, work).within(self.pool.bytes(), name, &shape, work).map(Demand::total)
    }
}

/// Whether the whole answer has a form, so that it can be no call of a tool and has no place for thoughts.
fn is_constrained(request: &ChatRequest) -> bool {
    request.response_schema.is_some() || request.grammar.is_some()
}

/// Runs work that takes the CPU for a while.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ModelError> + Send + 'static,
) -> Result<T, ModelError> {
    tokio::task::spawn_blocking(work).await.map_err(ModelError::internal)?
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::local::adapter;

    #[test]
    fn given_an_adapter_when_what_its_model_takes_is_counted_then_its_matrices_count_beside_the_base() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("model.gguf");
        fs::write(&base, "base").unwrap();
        fs::write(folder.path().join(adapter::WEIGHTS), [0; 10]).unwrap();
        let settings = ModelSettings::default();
        let engines = ChatEngines::new(&settings, ModelPool::new(&settings));
        let memory = |adapter: Option<&Path>| engines.memory_of("m", &base, Files::of(&base, adapter)).unwrap();
        assert_eq!((memory(None), memory(Some(folder.path()))), (4, 24));
    }
}
