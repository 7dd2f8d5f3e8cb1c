//! What memory asks of models, so that it can be tested without a model of hundreds of megabytes.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_knowledge::room::{self, estimate_text};
use riverrun_models::{Account, ChatRequest, EmbedPurpose, EmbedReply, Message, ModelError, Models, NoDeltas, Purpose};
use riverrun_schemas::Session;
use tokio_util::sync::CancellationToken;

/// Text of a chat model, and which one wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The text.
    pub text: String,
    /// The model.
    pub model: String,
}

/// The calls of [`Models`] that memory needs, to the default models.
#[async_trait]
pub trait MemoryModels: Send + Sync {
    /// Tokens of a text by the chat model's own tokenizer; an estimate where that can't be asked.
    async fn count_tokens(&self, text: &str) -> usize;

    /// Tokens that a prompt and what is written for it may have together; `None` where nobody tells.
    async fn context_tokens(&self) -> Option<usize> {
        None
    }

    /// Writes a text of at most so many tokens, at temperature 0.
    async fn write(&self, messages: Vec<Message>, max_tokens: u32) -> Result<Written, ModelError>;

    /// Vectors of texts, in their order.
    async fn embed(&self, texts: Vec<String>, purpose: EmbedPurpose) -> Result<EmbedReply, ModelError>;

    /// The same models, whose calls are charged to an account; none where nobody takes them down.
    fn charged_to(&self, _account: Account) -> Option<Arc<dyn MemoryModels>> {
        None
    }
}

/// Models whose calls are charged to a conversation, where calls are taken down.
pub fn charged_to(models: &Arc<dyn MemoryModels>, session: &Session) -> Arc<dyn MemoryModels> {
    models.charged_to(account(session)).unwrap_or_else(|| models.clone())
}

/// The account of a conversation that is remembered.
pub fn account(session: &Session) -> Account {
    Account::of(&session.namespace, Purpose::Memory).in_session(&session.name)
}

#[async_trait]
impl MemoryModels for Models {
    async fn count_tokens(&self, text: &str) -> usize {
        match Models::count_tokens(self, None, "", text).await {
            Ok(tokens) => tokens,
            Err(error) => {
                tracing::debug!(error = %error, "tokens are estimated from the length of the text");
                estimate_text(text)
            }
        }
    }

    async fn context_tokens(&self) -> Option<usize> {
        room::context_tokens(self, None, "").await
    }

    async fn write(&self, messages: Vec<Message>, max_tokens: u32) -> Result<Written, ModelError> {
        let request =
            ChatRequest { messages, temperature: Some(0.0), max_tokens: Some(max_tokens), ..ChatRequest::default() };
        room::check(self, None, &request).await?;
        let reply = Models::chat(self, None, request, &mut NoDeltas, CancellationToken::new()).await?;
        Ok(Written { text: reply.text, model: reply.model })
    }

    async fn embed(&self, texts: Vec<String>, purpose: EmbedPurpose) -> Result<EmbedReply, ModelError> {
        Models::embed(self, None, texts, purpose).await
    }

    fn charged_to(&self, account: Account) -> Option<Arc<dyn MemoryModels>> {
        Some(Arc::new(Models::charged_to(self, account)))
    }
}
