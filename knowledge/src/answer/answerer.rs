use std::sync::Arc;
use std::time::Instant;

use riverrun_models::{Account, ChatReply, ChatRequest, FinishReason, ModelError, Purpose};
use riverrun_schemas::Collection;
use tokio_util::sync::CancellationToken;

use super::citations::{self, Checked};
use super::markers::MarkerFilter;
use super::prompt;
use super::reading::{Reading, Source};
use super::types::{AskError, AskReply, AskRequest, AskTimes, AskUsage, DroppedChunk};
use crate::models::{LanguageModels, charged_to};
use crate::retrieval::{Retriever, SearchItem, SearchResult, Texts};
use crate::room;

/// Settings of answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerConfig {
    /// Most tokens of an answer; they are kept free in the model's context.
    pub max_answer_tokens: u32,
    /// Cosine similarity below which the nearest chunk counts as "nothing found" when not one word matched either. Low,
    /// because models differ: it only stops answers from what is unrelated by every measure.
    pub min_similarity: f32,
}

impl Default for AnswerConfig {
    fn default() -> Self {
        Self { max_answer_tokens: 512, min_similarity: 0.1 }
    }
}

/// Answers questions from collections. Clones share the retriever and the models.
#[derive(Clone)]
pub struct Answerer {
    retriever: Retriever,
    models: Arc<dyn LanguageModels>,
    config: AnswerConfig,
}

/// A generated text and what it was generated from.
struct Generated {
    reply: ChatReply,
    text: String,
    removed: Vec<String>,
    read: Reading,
}

impl Answerer {
    /// An answerer over this retriever.
    pub fn new(retriever: Retriever, models: Arc<dyn LanguageModels>, config: AnswerConfig) -> Self {
        Self { retriever, models, config }
    }

    /// Answers a question. `on_delta` gets the answer in pieces while it is generated, already without numbers that nobody
    /// gave; numbers that the check adds are only in the reply. A cancelled answer is what was said until then.
    pub async fn ask(
        &self,
        request: &AskRequest,
        on_delta: &mut (dyn FnMut(&str) + Send),
        cancel: CancellationToken,
    ) -> Result<AskReply, AskError> {
        let found = self.retriever.search(&request.search).await?;
        if !self.is_related(&found.items) {
            return Ok(nothing_found(&request.search.collection, found, on_delta));
        }
        let SearchResult { items, took_ms, mut notes, .. } = found;
        let texts = self.texts(request, &items, &mut notes).await;
        let source = Source { items: &items, texts: &texts };
        let since = Instant::now();
        let Generated { reply, text, removed, read } = self.generate(request, source, on_delta, cancel).await?;
        let took_ms = AskTimes { search: took_ms, generate: Some(crate::retrieval::elapsed_ms(since)) };
        notes.extend(read.shortened(request.context_bytes));
        let passages: Vec<&SearchItem> = read.passages.iter().collect();
        let checked = citations::check(&text, &request.search.query, &passages);
        let dropped = dropped(&items[read.seen..], &reply.model);
        Ok(reply_of(checked, reply, took_ms, dropped, removed, notes))
    }

    /// The texts of the chunks, where the model is to read what stands around them. What can't be read is left out.
    async fn texts(&self, request: &AskRequest, items: &[SearchItem], notes: &mut Vec<String>) -> Texts {
        if request.context_bytes == 0 {
            return Texts::default();
        }
        let collection = &request.search.collection;
        let found: Vec<(&Collection, &SearchItem)> = items.iter().map(|item| (collection, item)).collect();
        let (texts, failure) = self.retriever.texts(&found).await;
        notes.extend(failure.map(|failure| format!("what stands around chunks was left out: {failure}")));
        texts
    }

    fn is_related(&self, items: &[SearchItem]) -> bool {
        items.iter().any(|item| {
            item.scores.sparse.is_some() || item.scores.dense.is_some_and(|score| score >= self.config.min_similarity)
        })
    }

    async fn generate(
        &self,
        request: &AskRequest,
        source: Source<'_>,
        on_delta: &mut (dyn FnMut(&str) + Send),
        cancel: CancellationToken,
    ) -> Result<Generated, AskError> {
        let mut read = self.fitting(request, source).await?;
        let models = charged_to(&self.models, Account::of(&request.search.collection.namespace, Purpose::Ask));
        loop {
            let mut filter = MarkerFilter::new(read.passages.len());
            let mut text = String::new();
            let mut sink = |piece: &str| show(filter.push(piece), &mut text, on_delta);
            let chat = self.chat_request(request, &read.passages);
            match models.chat(request.provider.as_deref(), chat, &mut sink, cancel.clone()).await {
                Ok(reply) => {
                    show(filter.finish(), &mut text, on_delta);
                    let text = text.trim().to_owned();
                    return Ok(Generated { reply, text, removed: filter.removed().to_vec(), read });
                }
                // The provider could not tell before; nothing was generated yet. Less may do.
                Err(error @ ModelError::ContextOverflow { .. }) if text.is_empty() => {
                    read = read.less(source).ok_or(error)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// As much as fits in the model's context beside the answer. All of it where nobody tells its size: then the provider
    /// refuses what does not fit.
    async fn fitting(&self, request: &AskRequest, source: Source<'_>) -> Result<Reading, AskError> {
        let (provider, model) = (request.provider.as_deref(), request.model.as_deref().unwrap_or_default());
        let mut read = source.all(request.context_bytes);
        let context = match self.models.context_tokens(provider, model).await {
            Ok(context) => context,
            Err(ModelError::Unsupported { .. }) => return Ok(read),
            Err(error) => return Err(error.into()),
        };
        let most = context.saturating_sub(self.config.max_answer_tokens as usize);
        loop {
            let chat = self.chat_request(request, &read.passages);
            let counted = room::count(self.models.as_ref(), provider, &chat).await;
            // An estimate is rather too large: about the best chunk alone, the model's server has the last word.
            let tokens =
                if counted.estimated && read.is_least() { room::at_least(&chat.messages) } else { counted.tokens };
            if tokens <= most {
                return Ok(read);
            }
            let overflow = AskError::ContextTooSmall { model: model.to_owned(), tokens, context };
            read = read.less(source).ok_or(overflow)?;
        }
    }

    fn chat_request(&self, request: &AskRequest, passages: &[SearchItem]) -> ChatRequest {
        ChatRequest {
            model: request.model.clone().unwrap_or_default(),
            messages: prompt::messages(&request.search.query, passages),
            temperature: Some(request.temperature.unwrap_or(0.0)),
            max_tokens: Some(self.config.max_answer_tokens),
            ..ChatRequest::default()
        }
    }
}

fn show(piece: String, text: &mut String, on_delta: &mut (dyn FnMut(&str) + Send)) {
    if !piece.is_empty() {
        on_delta(&piece);
        text.push_str(&piece);
    }
}

/// The honest answer when there is nothing to answer from. No model is asked.
fn nothing_found(collection: &Collection, found: SearchResult, on_delta: &mut (dyn FnMut(&str) + Send)) -> AskReply {
    let answer = format!("There is nothing about this in the collection {:?}.", collection.name.as_str());
    on_delta(&answer);
    AskReply {
        answer,
        found: false,
        citations: Vec::new(),
        sentences: Vec::new(),
        usage: AskUsage::default(),
        took_ms: AskTimes { search: found.took_ms, generate: None },
        trace_id: None,
        model: None,
        finish: None,
        dropped: Vec::new(),
        removed_citations: Vec::new(),
        notes: found.notes,
    }
}

fn dropped(chunks: &[SearchItem], model: &str) -> Vec<DroppedChunk> {
    let reason = format!("it does not fit in the context of model {model:?} beside the better chunks");
    chunks
        .iter()
        .map(|chunk| DroppedChunk { chunk_id: chunk.chunk_id, source: chunk.source.clone(), reason: reason.clone() })
        .collect()
}

fn reply_of(
    checked: Checked,
    reply: ChatReply,
    took_ms: AskTimes,
    dropped: Vec<DroppedChunk>,
    removed: Vec<String>,
    mut notes: Vec<String>,
) -> AskReply {
    if reply.finish == FinishReason::Length {
        notes.push("the answer reached its limit of tokens and is cut".to_owned());
    }
    if reply.finish == FinishReason::Repetition {
        notes.push("the model said the same over and over, and the answer was ended there".to_owned());
    }
    AskReply {
        found: checked.is_answer(),
        answer: checked.answer,
        citations: checked.citations,
        sentences: checked.sentences,
        usage: AskUsage {
            prompt_tokens: reply.usage.prompt_tokens,
            completion_tokens: reply.usage.completion_tokens,
            total_tokens: reply.usage.total(),
            cached_prompt_tokens: reply.usage.cached_prompt_tokens,
            told: reply.usage,
            ..AskUsage::default()
        },
        took_ms,
        trace_id: None,
        model: Some(reply.model),
        finish: Some(reply.finish),
        dropped,
        removed_citations: removed,
        notes,
    }
}
