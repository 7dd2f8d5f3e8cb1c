//! Whether a prompt fits its model's context, before it is sent: some servers cut silently what does not.
//!
//! Tokens are counted by the model's own tokenizer where its provider has one. Where it has none they are estimated from the
//! length of the text, rather too many when it is asked what fits, rather too few when it is asked what can't; between the
//! two the model's server has the last word.

use std::time::Duration;

use riverrun_models::{ChatRequest, Message, ModelError, ToolCall};

use crate::models::LanguageModels;

/// Tokens that a call must have for its answer, if it may have as many.
pub const LEAST_ANSWER: usize = 32;

/// How long a provider may take to tell the size of a context; behind it, the size is not known.
const MAX_ASKING: Duration = Duration::from_secs(10);
/// Bytes a token where the tokenizer can't be asked: fewer than texts usually have, so that the estimate is rather too large.
const BYTES_PER_TOKEN: usize = 3;
/// More bytes than a token has in any text but runs of one character, of which each counts as one byte.
const MOST_BYTES_PER_TOKEN: usize = 8;
/// Tokens around a message where they are estimated.
const ROLE_TOKENS: usize = 8;
/// More tokens than a chat template puts around a message, and around all of them.
const AROUND_MESSAGE: usize = 32;
const AROUND_ALL: usize = 128;

/// How tokens are counted, from the best way to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// The whole prompt, by the model's own tokenizer and template.
    Prompt,
    /// Its texts, by the model's own tokenizer.
    Texts,
    /// Its texts, by their length: the provider shows no tokenizer.
    Lengths,
}

impl Counting {
    /// The next best way.
    pub fn next(self) -> Self {
        match self {
            Self::Prompt => Self::Texts,
            Self::Texts | Self::Lengths => Self::Lengths,
        }
    }

    /// Tokens of a request in this way.
    ///
    /// # Errors
    /// When the provider can't count so; by lengths it never fails.
    pub async fn count(
        self,
        models: &dyn LanguageModels,
        provider: Option<&str>,
        request: &ChatRequest,
    ) -> Result<usize, ModelError> {
        match self {
            Self::Prompt => models.count_prompt(provider, request).await,
            Self::Texts => {
                let texts: Vec<&str> = request.messages.iter().map(|message| message.content.as_str()).collect();
                let tokens = models.count_tokens(provider, &request.model, &texts.join("\n")).await?;
                Ok(tokens + estimate_around(&request.messages))
            }
            Self::Lengths => Ok(estimate(&request.messages)),
        }
    }
}

/// Tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// How many.
    pub tokens: usize,
    /// Whether they were estimated from the length of the text.
    pub estimated: bool,
}

/// Tokens of a request, in the best way that its provider has.
pub async fn count(models: &dyn LanguageModels, provider: Option<&str>, request: &ChatRequest) -> Counted {
    for counting in [Counting::Prompt, Counting::Texts] {
        match counting.count(models, provider, request).await {
            Ok(tokens) => return Counted { tokens, estimated: false },
            Err(error) => tracing::debug!(error = %error, ?counting, "tokens are counted in another way"),
        }
    }
    Counted { tokens: estimate(&request.messages), estimated: true }
}

/// Tokens that prompt and answer may have together; `None` where nobody tells.
pub async fn context_tokens(models: &dyn LanguageModels, provider: Option<&str>, model: &str) -> Option<usize> {
    match tokio::time::timeout(MAX_ASKING, models.context_tokens(provider, model)).await {
        Ok(Ok(tokens)) => Some(tokens),
        Ok(Err(error)) => {
            tracing::debug!(error = %error, "the size of the context is not known");
            None
        }
        Err(_) => {
            tracing::debug!(limit_s = MAX_ASKING.as_secs(), "the size of the context was not told in time");
            None
        }
    }
}

/// Refuses a request that can't fit its model's context, before it is sent, with the tokens of both.
///
/// # Errors
/// [`ModelError::ContextOverflow`], and nothing else: what can't be asked is not known.
pub async fn check(
    models: &dyn LanguageModels,
    provider: Option<&str>,
    request: &ChatRequest,
) -> Result<(), ModelError> {
    let Some(context) = context_tokens(models, provider, &request.model).await else { return Ok(()) };
    let answer = request.max_tokens.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX).min(LEAST_ANSWER);
    if at_most(request).saturating_add(answer) <= context {
        return Ok(());
    }
    let counted = count(models, provider, request).await;
    let tokens = if counted.estimated { at_least(&request.messages) } else { counted.tokens };
    if tokens.saturating_add(answer) <= context {
        return Ok(());
    }
    Err(overflow(&request.model, tokens, context))
}

/// The error that says that a prompt with so many tokens does not fit.
fn overflow(model: &str, tokens: usize, context: usize) -> ModelError {
    let model = if model.is_empty() { "default" } else { model };
    ModelError::ContextOverflow { model: model.to_owned(), tokens, limit: context }
}

/// No tokenizer makes more tokens of this request: a token stands for a byte at least.
pub fn at_most(request: &ChatRequest) -> usize {
    let schema = request.response_schema.as_ref().map_or(0, |schema| schema.to_string().len());
    let tools: usize = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len() + AROUND_MESSAGE)
        .sum();
    let messages: usize = request.messages.iter().map(|message| length(message) + AROUND_MESSAGE).sum();
    messages + tools + schema + AROUND_ALL
}

/// Bytes of what a message says and calls.
fn length(message: &Message) -> usize {
    let call = |call: &ToolCall| call.name.len() + call.arguments.to_string().len() + AROUND_MESSAGE;
    message.content.len() + message.tool_calls.iter().map(call).sum::<usize>()
}

/// Tokens of a conversation where the model's own tokenizer can't be asked: rather too few.
pub fn at_least(messages: &[Message]) -> usize {
    messages.iter().map(|message| letters(&message.content).div_ceil(MOST_BYTES_PER_TOKEN)).sum()
}

/// Bytes of a text in which a run of one byte counts once.
fn letters(text: &str) -> usize {
    let bytes = text.as_bytes();
    bytes.windows(2).filter(|pair| pair[0] != pair[1]).count() + usize::from(!bytes.is_empty())
}

/// Tokens of a conversation where the model's own tokenizer can't be asked: rather too many.
pub fn estimate(messages: &[Message]) -> usize {
    messages.iter().map(|message| estimate_text(&message.content)).sum::<usize>() + estimate_around(messages)
}

/// Tokens of a text, rather too many.
pub fn estimate_text(text: &str) -> usize {
    text.len().div_ceil(BYTES_PER_TOKEN)
}

/// Tokens that a chat template puts around the messages, where only their texts can be counted.
fn estimate_around(messages: &[Message]) -> usize {
    messages.len() * ROLE_TOKENS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_a_text_says_when_its_tokens_are_estimated_then_the_bounds_are_in_order(text in ".{0,300}") {
            let request = ChatRequest { messages: vec![Message::user(text.clone())], ..ChatRequest::default() };
            prop_assert!(at_least(&request.messages) <= estimate(&request.messages));
            prop_assert!(estimate(&request.messages) <= at_most(&request));
            prop_assert!(at_least(&request.messages) <= text.len());
        }
    }

    #[test]
    fn given_runs_of_one_character_when_the_least_tokens_are_counted_then_each_run_counts_once() {
        for (text, count) in [("", 0), ("a", 1), ("aaaa", 1), ("aab", 2), ("a  b", 3), ("| --- |", 5)] {
            assert_eq!(letters(text), count, "{text:?}");
        }
        assert_eq!(at_least(&[Message::user(" ".repeat(100_000))]), 1);
    }
}
