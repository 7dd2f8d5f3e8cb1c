//! What this crate asks of models, so that retrieval and answers can be tested without a model of hundreds of megabytes.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_models::{
    Account, ChatReply, ChatRequest, DeltaSink, EmbedPurpose, EmbedReply, EmbedTokenizer, ModelError, Models, Reranker,
    SpansRequest,
};
use tokio_util::sync::CancellationToken;

/// The calls of [`Models`] that knowledge needs; they mean what they mean there.
#[async_trait]
pub trait LanguageModels: Send + Sync {
    /// Embeds texts, in their order.
    async fn embed(
        &self,
        model: Option<&str>,
        inputs: Vec<String>,
        purpose: EmbedPurpose,
    ) -> Result<EmbedReply, ModelError>;

    /// The tokenizer of an embedding model.
    async fn embed_tokenizer(&self, model: &str) -> Result<Arc<dyn EmbedTokenizer>, ModelError> {
        Err(unsupported(model, "count the tokens of an embedding model"))
    }

    /// Embeds spans of one text, each in the light of what stands around it.
    async fn embed_spans(&self, request: SpansRequest) -> Result<EmbedReply, ModelError> {
        Err(unsupported(&request.model, "embed chunks within their document"))
    }

    /// Whether [`LanguageModels::rerank`] works at once. Where it does not, a re-ranker may begin to be fetched by this.
    fn reranker(&self) -> Reranker;

    /// Scores documents against a query, in their order; higher is nearer. The re-ranker is fetched when it is not here.
    async fn rerank(&self, query: String, documents: Vec<String>) -> Result<Vec<f32>, ModelError>;

    /// Generates one message.
    async fn chat(
        &self,
        provider: Option<&str>,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError>;

    /// Tokens of a whole request as its model reads it.
    async fn count_prompt(&self, provider: Option<&str>, request: &ChatRequest) -> Result<usize, ModelError>;

    /// Tokens of a text by the model's own tokenizer.
    async fn count_tokens(&self, _provider: Option<&str>, model: &str, _text: &str) -> Result<usize, ModelError> {
        Err(unsupported(model, "count tokens"))
    }

    /// Tokens that prompt and answer may have together.
    async fn context_tokens(&self, provider: Option<&str>, model: &str) -> Result<usize, ModelError>;

    /// The same models, whose calls are charged to an account; none where nobody takes them down.
    fn charged_to(&self, _account: Account) -> Option<Arc<dyn LanguageModels>> {
        None
    }
}

/// Models whose calls are charged to an account, where calls are taken down.
pub fn charged_to(models: &Arc<dyn LanguageModels>, account: Account) -> Arc<dyn LanguageModels> {
    models.charged_to(account).unwrap_or_else(|| models.clone())
}

fn unsupported(model: &str, what: &str) -> ModelError {
    ModelError::Unsupported { provider: model.to_owned(), what: what.to_owned() }
}

#[async_trait]
impl LanguageModels for Models {
    async fn embed(
        &self,
        model: Option<&str>,
        inputs: Vec<String>,
        purpose: EmbedPurpose,
    ) -> Result<EmbedReply, ModelError> {
        Models::embed(self, model, inputs, purpose).await
    }

    async fn embed_tokenizer(&self, model: &str) -> Result<Arc<dyn EmbedTokenizer>, ModelError> {
        Models::embed_tokenizer(self, model).await
    }

    async fn embed_spans(&self, request: SpansRequest) -> Result<EmbedReply, ModelError> {
        Models::embed_spans(self, request).await
    }

    fn reranker(&self) -> Reranker {
        Models::reranker(self)
    }

    async fn rerank(&self, query: String, documents: Vec<String>) -> Result<Vec<f32>, ModelError> {
        Models::rerank(self, None, query, documents).await
    }

    async fn chat(
        &self,
        provider: Option<&str>,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        Models::chat(self, provider, request, sink, cancel).await
    }

    async fn count_prompt(&self, provider: Option<&str>, request: &ChatRequest) -> Result<usize, ModelError> {
        Models::count_prompt(self, provider, request).await
    }

    async fn count_tokens(&self, provider: Option<&str>, model: &str, text: &str) -> Result<usize, ModelError> {
        Models::count_tokens(self, provider, model, text).await
    }

    async fn context_tokens(&self, provider: Option<&str>, model: &str) -> Result<usize, ModelError> {
        Models::context_tokens(self, provider, model).await
    }

    fn charged_to(&self, account: Account) -> Option<Arc<dyn LanguageModels>> {
        Some(Arc::new(Models::charged_to(self, account)))
    }
}
