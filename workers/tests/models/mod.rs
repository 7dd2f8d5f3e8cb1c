//! Models without a model: vectors follow from texts, summaries are numbered, and calls wait until they may go on.
#![allow(dead_code)] // each test file uses its part

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use riverrun_knowledge::LanguageModels;
use riverrun_models::{
    ChatReply, ChatRequest, DeltaSink, EmbedPurpose, EmbedReply, FinishReason, ModelError, Reranker, Usage,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How many calls may go on where none is to be held up.
pub(crate) const ALL: usize = 100_000;

/// What the vector of a text is.
pub(crate) type Vector = fn(&str) -> Vec<f32>;

/// Which calls are counted and wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Embeddings,
    Summaries,
}

/// The models.
pub(crate) struct GatedModels {
    vector: Vector,
    held: Held,
    gate: Semaphore,
    calls: AtomicUsize,
    error: Option<ModelError>,
}

impl GatedModels {
    fn new(vector: Vector, held: Held, permits: usize, error: Option<ModelError>) -> Arc<Self> {
        Arc::new(Self { vector, held, gate: Semaphore::new(permits), calls: AtomicUsize::new(0), error })
    }

    /// Embeds so many batches, and then waits.
    pub(crate) fn embedding(vector: Vector, permits: usize) -> Arc<Self> {
        Self::new(vector, Held::Embeddings, permits, None)
    }

    /// Embeds whatever comes, writes so many summaries, and then waits.
    pub(crate) fn summarizing(vector: Vector, permits: usize) -> Arc<Self> {
        Self::new(vector, Held::Summaries, permits, None)
    }

    /// Fails to embed anything.
    pub(crate) fn failing(error: ModelError) -> Arc<Self> {
        Self::new(by_length, Held::Embeddings, ALL, Some(error))
    }

    /// Calls that came, those that wait included.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Nothing waits any more.
    pub(crate) fn open(&self) {
        self.gate.add_permits(ALL);
    }

    /// The number of the call, once it may go on.
    async fn turn(&self, kind: Held) -> usize {
        if self.held != kind {
            return 0;
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.error.is_none() {
            self.gate.acquire().await.unwrap().forget();
        }
        number
    }
}

/// Three numbers, of which one is how long the text is.
pub(crate) fn by_length(text: &str) -> Vec<f32> {
    vec![1.0, text.len() as f32, 0.5]
}

#[async_trait]
impl LanguageModels for GatedModels {
    async fn embed(&self, model: Option<&str>, inputs: Vec<String>, _: EmbedPurpose) -> Result<EmbedReply, ModelError> {
        self.turn(Held::Embeddings).await;
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let vectors: Vec<Vec<f32>> = inputs.iter().map(|text| (self.vector)(text)).collect();
        let dimensions = vectors.first().map_or(0, Vec::len);
        let model = model.unwrap_or_default().to_owned();
        Ok(EmbedReply { model, vectors, dimensions, truncated: 0, usage: Usage::default() })
    }

    fn reranker(&self) -> Reranker {
        Reranker::Off
    }

    async fn rerank(&self, _query: String, _documents: Vec<String>) -> Result<Vec<f32>, ModelError> {
        Err(ModelError::Cancelled)
    }

    async fn chat(
        &self,
        _provider: Option<&str>,
        _request: ChatRequest,
        _sink: &mut dyn DeltaSink,
        _cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        if self.held != Held::Summaries {
            return Err(ModelError::Cancelled);
        }
        let number = self.turn(Held::Summaries).await;
        Ok(ChatReply {
            text: format!("summary {number}"),
            tool_calls: Vec::new(),
            usage: Usage::default(),
            finish: FinishReason::Stop,
            model: "scripted".to_owned(),
        })
    }

    async fn count_prompt(&self, _provider: Option<&str>, _request: &ChatRequest) -> Result<usize, ModelError> {
        Err(ModelError::Cancelled)
    }

    async fn context_tokens(&self, _provider: Option<&str>, _model: &str) -> Result<usize, ModelError> {
        Err(ModelError::Cancelled)
    }
}
