//! A conversation that outgrows its model's context: which of it is left out, in which order, until the rest fits. What is left
//! out is told, never cut by a server.

use riverrun_knowledge::LanguageModels;
use riverrun_knowledge::room;
use riverrun_models::{ChatRequest, ModelError};

use super::MemoryContext;
use super::prompt::conversation;
use crate::compaction::{Room, Search};

/// Tokens that are kept for an answer, within a quarter of the context.
const ANSWER_TOKENS: u32 = 512;

/// What of a conversation is sent to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shown {
    /// The rest.
    pub context: MemoryContext,
    /// What is left out of it; `None` while all of it fits.
    pub left_out: Option<LeftOut>,
}

impl Shown {
    /// All of it.
    pub fn whole(context: MemoryContext) -> Self {
        Self { context, left_out: None }
    }
}

/// What is left out of a conversation, since it does not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Tokens of the prompt that was too large.
    pub tokens_before: usize,
    /// Tokens of the prompt that is sent instead.
    pub tokens_after: usize,
    /// Tokens of the model's context; 0 where nobody tells, and the model's server refused the prompt.
    pub context_tokens: usize,
    /// Whether tokens were estimated from the length of the text.
    pub estimated: bool,
    /// Of the newest turns, the oldest ones.
    pub turns: usize,
    /// Of the recalled memories, the least similar ones.
    pub memories: usize,
    /// Whether the summary is left out.
    pub summary: bool,
}

impl LeftOut {
    /// Both, one after the other.
    fn behind(self, earlier: Self) -> Self {
        Self {
            tokens_before: earlier.tokens_before,
            turns: earlier.turns + self.turns,
            memories: earlier.memories + self.memories,
            summary: earlier.summary || self.summary,
            ..self
        }
    }
}

/// How much is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Form {
    turns: usize,
    memories: usize,
    summary: bool,
}

/// Ever smaller forms: recalled memories go first, the least similar one first; then turns, the oldest first; then the summary.
fn forms(context: &MemoryContext) -> Vec<Form> {
    let mut form = Form::default();
    let mut forms = Vec::new();
    for _ in &context.episodes {
        form.memories += 1;
        forms.push(form);
    }
    for _ in &context.turns {
        form.turns += 1;
        forms.push(form);
    }
    if context.summary.is_some() {
        form.summary = true;
        forms.push(form);
    }
    forms
}

fn without(context: &MemoryContext, form: Form) -> MemoryContext {
    let mut rest = context.clone();
    rest.turns.drain(..form.turns.min(rest.turns.len()));
    rest.episodes.truncate(rest.episodes.len().saturating_sub(form.memories));
    rest.summary = rest.summary.filter(|_| !form.summary);
    rest
}

/// The request that shows this and says the new words.
pub fn chat_request(base: &ChatRequest, shown: &MemoryContext, text: &str) -> ChatRequest {
    ChatRequest { messages: conversation(shown, text), ..base.clone() }
}

/// As much of a conversation as fits the model's context beside the new words. `base` is the request without messages;
/// `refused` is what the model's server said of the request as it was shown.
///
/// # Errors
/// [`ModelError::ContextOverflow`] when not even the new words alone fit, or `refused` when there is nothing more to leave out.
pub async fn fit(
    models: &dyn LanguageModels,
    provider: Option<&str>,
    base: &ChatRequest,
    shown: Shown,
    text: &str,
    refused: Option<ModelError>,
) -> Result<Shown, ModelError> {
    let told = room::context_tokens(models, provider, &base.model).await;
    let context_tokens = match &refused {
        Some(ModelError::ContextOverflow { limit, .. }) if *limit > 0 => Some(*limit),
        Some(_) | None => told,
    };
    let whole = chat_request(base, &shown.context, text);
    let room = Room::new(context_tokens, ANSWER_TOKENS);
    if refused.is_none() && room.fits(room::at_most(&whole)) {
        return Ok(shown);
    }
    let before = room::count(models, provider, &whole).await;
    if refused.is_none() && room.fits(before.tokens) {
        return Ok(shown);
    }
    let mut search = Search::new(forms(&shown.context), room, before.tokens, refused.is_some());
    while let Some(form) = search.wanted() {
        let smaller = chat_request(base, &without(&shown.context, form), text);
        search.measured(room::count(models, provider, &smaller).await.tokens);
    }
    // Where tokens are estimated, and where the answer would be a short one, the least is sent.
    let is_possible = room.is_possible(before.tokens) && refused.is_none();
    let smallest = search.smallest().filter(|_| before.estimated || !is_possible);
    let Some((form, after)) = search.found().or(smallest) else {
        return match refused {
            Some(error) => Err(error),
            None => room::check(models, provider, &whole).await.map(|()| shown),
        };
    };
    let context = without(&shown.context, *form);
    room::check(models, provider, &chat_request(base, &context, text)).await?;
    let left_out = LeftOut {
        tokens_before: before.tokens,
        tokens_after: after,
        context_tokens: context_tokens.unwrap_or(0),
        estimated: before.estimated,
        turns: form.turns,
        memories: form.memories,
        summary: form.summary,
    };
    tracing::info!(
        tokens_before = left_out.tokens_before,
        tokens_after = left_out.tokens_after,
        context_tokens = left_out.context_tokens,
        "a conversation outgrew the model's context"
    );
    Ok(Shown { context, left_out: Some(shown.left_out.map_or(left_out, |earlier| left_out.behind(earlier))) })
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
