use std::sync::Arc;
use std::time::Instant;

use riverrun_models::{ChatReply, ChatRequest, FinishReason, ModelError};
use riverrun_schemas::Collection;
use tokio_util::sync::CancellationToken;

use super::citations::{self, Checked};
use super::markers::MarkerFilter;
use super::prompt;
use super::types::{AskError, AskReply, AskRequest, AskTimes, AskUsage, DroppedChunk};
use crate::models::LanguageModels;
use crate::retrieval::{Retriever, SearchItem, SearchResult};
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
    /// How many of the chunks, from the best on, the model saw.
    seen: usize,
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
        let chunks: Vec<&SearchItem> = found.items.iter().collect();
        let since = Instant::now();
        let generated = self.generate(request, &chunks, on_delta, cancel).await?;
        let generate_ms = crate::retrieval::elapsed_ms(since);
        let Generated { reply, text, removed, seen } = generated;
        let checked = citations::check(&text, &request.search.query, &chunks[..seen]);
        let dropped = dropped(&chunks[seen..], &reply.model);
        let took_ms = AskTimes { search: found.took_ms, generate: Some(generate_ms) };
        Ok(reply_of(checked, reply, took_ms, dropped, removed, found.notes))
    }

    fn is_related(&self, items: &[SearchItem]) -> bool {
        items.iter().any(|item| {
            item.scores.sparse.is_some() || item.scores.dense.is_some_and(|score| score >= self.config.min_similarity)
        })
    }

    async fn generate(
        &self,
        request: &AskRequest,
        chunks: &[&SearchItem],
        on_delta: &mut (dyn FnMut(&str) + Send),
        cancel: CancellationToken,
    ) -> Result<Generated, AskError> {
        let mut seen = self.fitting(request, chunks).await?;
        loop {
            let mut filter = MarkerFilter::new(seen);
            let mut text = String::new();
            let mut sink = |piece: &str| show(filter.push(piece), &mut text, on_delta);
            let chat = self.chat_request(request, &chunks[..seen]);
            match self.models.chat(request.provider.as_deref(), chat, &mut sink, cancel.clone()).await {
                Ok(reply) => {
                    show(filter.finish(), &mut text, on_delta);
                    let text = text.trim().to_owned();
                    return Ok(Generated { reply, text, removed: filter.removed().to_vec(), seen });
                }
                // The provider could not tell before; nothing was generated yet. Fewer chunks may do.
                Err(ModelError::ContextOverflow { .. }) if seen > 1 && text.is_empty() => seen -= 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How many chunks, from the best on, fit in the model's context beside the answer. All of them where nobody tells its size:
    /// then the provider refuses what does not fit.
    async fn fitting(&self, request: &AskRequest, chunks: &[&SearchItem]) -> Result<usize, AskError> {
        let (provider, model) = (request.provider.as_deref(), request.model.as_deref().unwrap_or_default());
        let context = match self.models.context_tokens(provider, model).await {
            Ok(context) => context,
            Err(ModelError::Unsupported { .. }) => return Ok(chunks.len()),
            Err(error) => return Err(error.into()),
        };
        let most = context.saturating_sub(self.config.max_answer_tokens as usize);
        let mut tokens = 0;
        for seen in (1..=chunks.len()).rev() {
            let chat = self.chat_request(request, &chunks[..seen]);
            let counted = room::count(self.models.as_ref(), provider, &chat).await;
            // An estimate is rather too large: about the best chunk alone, the model's server has the last word.
            tokens = if counted.estimated && seen == 1 { room::at_least(&chat.messages) } else { counted.tokens };
            if tokens <= most {
                return Ok(seen);
            }
        }
        Err(AskError::ContextTooSmall { model: model.to_owned(), tokens, context })
    }

    fn chat_request(&self, request: &AskRequest, chunks: &[&SearchItem]) -> ChatRequest {
        ChatRequest {
            model: request.model.clone().unwrap_or_default(),
            messages: prompt::messages(&request.search.query, chunks),
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

fn dropped(chunks: &[&SearchItem], model: &str) -> Vec<DroppedChunk> {
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
    AskReply {
        found: !citations::is_refusal(&checked.answer),
        answer: checked.answer,
        citations: checked.citations,
        sentences: checked.sentences,
        usage: AskUsage {
            prompt_tokens: reply.usage.prompt_tokens,
            completion_tokens: reply.usage.completion_tokens,
            total_tokens: reply.usage.total(),
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
