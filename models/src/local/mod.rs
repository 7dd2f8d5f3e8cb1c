//! Models in this process: GGUF models on llama.cpp, encoders and cross-encoders on candle.

mod adapter;
mod chat;
mod encoders;
mod extent;
mod gguf;
mod llama;
mod pool;
mod sound;
mod store;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::error::ModelError;
use crate::progress::{PullProgress, default_progress};
use crate::provider::{
    ChatReply, ChatRequest, DeltaSink, EmbedReply, EmbedRequest, LoadedModel, ModelInfo, ModelKind, ProbeReport,
    Provider, RerankReply, RerankRequest,
};
use crate::settings::ModelSettings;
use crate::spans::{EmbedTokenizer, SpansRequest};
use crate::token_vectors::{TokenVectors, TokenVectorsRequest};

use chat::ChatEngines;
pub(crate) use chat::{Piece, ThoughtSplitter};
use encoders::Encoders;
use pool::ModelPool;
use store::ModelStore;
pub use store::Presence;

/// The provider of the models that run in this process.
pub const NAME: &str = "local";

/// Runs models in this process. Models are found or fetched, and loaded, when they are first used.
pub struct Local {
    store: ModelStore,
    pool: ModelPool,
    chats: ChatEngines,
    encoders: Encoders,
    context_tokens: usize,
    progress: Arc<dyn PullProgress>,
}

impl Local {
    /// A runtime with nothing loaded.
    pub fn new(settings: &ModelSettings) -> Result<Self, ModelError> {
        let pool = ModelPool::new(settings);
        Ok(Local {
            store: ModelStore::new(settings)?,
            chats: ChatEngines::new(settings, pool.clone()),
            encoders: Encoders::new(settings.effective_threads(), pool.clone()),
            pool,
            context_tokens: settings.context_tokens,
            progress: default_progress(),
        })
    }

    /// Whether a model is on this machine; nothing is loaded or fetched.
    pub fn presence(&self, model: &str) -> Result<Presence, ModelError> {
        self.store.presence(model)
    }

    /// The same, and an error where the file of a GGUF model is shorter than it says itself.
    pub(crate) fn presence_of_whole(&self, model: &str) -> Result<Presence, ModelError> {
        self.store.presence_of_whole(model)
    }

    /// Whether the hub can be asked for a model: it is not switched off, and the name is one of the catalog's or a repository's. Whether the
    /// hub has the model is not known.
    pub fn can_fetch(&self, model: &str) -> bool {
        self.store.can_fetch(model)
    }

    /// Fetches a model from the hub unless it is on this machine.
    pub async fn pull(
        &self,
        model: &str,
        progress: &dyn PullProgress,
        cancel: &CancellationToken,
    ) -> Result<ModelInfo, ModelError> {
        let found = self.store.pull(model, progress, cancel).await?;
        let listed = self.listed().into_iter().find(|info| info.name == found.name);
        listed.ok_or_else(|| ModelError::internal(format!("model {model:?} vanished from {}", found.folder.display())))
    }

    /// The same for nobody who waits: progress shows where this process shows it.
    pub(crate) async fn fetch(&self, model: &str) -> Result<(), ModelError> {
        self.store.pull(model, &*self.progress, &CancellationToken::new()).await.map(drop)
    }

    /// Removes a fetched model from the cache and answers the bytes that it had.
    pub fn remove(&self, model: &str) -> Result<u64, ModelError> {
        self.store.remove(model)
    }

    /// The models that are loaded, by name, with what they take of the memory that the settings allow.
    pub fn loaded(&self) -> Vec<LoadedModel> {
        self.pool.loaded()
    }

    /// The models of this machine, and the known ones that are not here.
    fn listed(&self) -> Vec<ModelInfo> {
        let loaded = self.pool.loaded();
        let mut list = self.store.list();
        for info in &mut list {
            info.loaded_bytes = loaded.iter().find(|model| model.name == info.name).map(|model| model.bytes);
        }
        list
    }

    /// The tokens of texts as a layer of an embedding model sees them. The model is fetched when it is not here.
    pub async fn token_vectors(&self, request: TokenVectorsRequest) -> Result<TokenVectors, ModelError> {
        let found = self.ensure(&request.model, ModelKind::Embed, &CancellationToken::new()).await?;
        self.encoders.token_vectors(&found, request).await
    }

    async fn ensure(
        &self,
        model: &str,
        kind: ModelKind,
        cancel: &CancellationToken,
    ) -> Result<store::Found, ModelError> {
        self.store.ensure(model, kind, &*self.progress, cancel).await
    }
}

#[async_trait]
impl Provider for Local {
    fn name(&self) -> &str {
        NAME
    }

    async fn list_models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        Ok(self.listed())
    }

    async fn chat(
        &self,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        let found = self.ensure(&request.model, ModelKind::Chat, &cancel).await?;
        self.chats.chat(&found, request, sink, cancel).await
    }

    async fn embed(&self, request: EmbedRequest) -> Result<EmbedReply, ModelError> {
        let found = self.ensure(&request.model, ModelKind::Embed, &CancellationToken::new()).await?;
        self.encoders.embed(&found, request).await
    }

    async fn embed_tokenizer(&self, model: &str) -> Result<Arc<dyn EmbedTokenizer>, ModelError> {
        let found = self.ensure(model, ModelKind::Embed, &CancellationToken::new()).await?;
        self.encoders.tokenizer(&found).await
    }

    async fn embed_spans(&self, request: SpansRequest) -> Result<EmbedReply, ModelError> {
        let found = self.ensure(&request.model, ModelKind::Embed, &CancellationToken::new()).await?;
        self.encoders.embed_spans(&found, request).await
    }

    async fn rerank(&self, request: RerankRequest) -> Result<RerankReply, ModelError> {
        let found = self.ensure(&request.model, ModelKind::Rerank, &CancellationToken::new()).await?;
        self.encoders.rerank(&found, request).await
    }

    async fn probe(&self) -> Result<ProbeReport, ModelError> {
        let start = Instant::now();
        let models = self.store.list().iter().filter(|info| info.present).count();
        Ok(ProbeReport {
            provider: NAME.to_owned(),
            address: None,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            latency_ms: start.elapsed().as_millis() as u64,
            models,
        })
    }

    async fn count_tokens(&self, model: &str, text: &str) -> Result<usize, ModelError> {
        let found = self.ensure(model, ModelKind::Chat, &CancellationToken::new()).await?;
        self.chats.count_tokens(&found, text).await
    }

    async fn count_prompt(&self, request: &ChatRequest) -> Result<usize, ModelError> {
        let found = self.ensure(&request.model, ModelKind::Chat, &CancellationToken::new()).await?;
        self.chats.count_prompt(&found, request).await
    }

    async fn context_tokens(&self, model: &str) -> Result<usize, ModelError> {
        let trained = crate::catalog::find(model).and_then(|entry| entry.context);
        match trained.and_then(|tokens| usize::try_from(tokens).ok()) {
            Some(trained) => Ok(trained.min(self.context_tokens)),
            None => {
                let found = self.ensure(model, ModelKind::Chat, &CancellationToken::new()).await?;
                self.chats.context_tokens(&found).await
            }
        }
    }
}
