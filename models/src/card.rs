//! A model's card: what it can do here, measured.
//!
//! Cards are files beside the models and not events on the log: they describe a machine as much as a model, they are made by a command
//! that needs no log, and nothing is decided by them that a replay would have to repeat.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::ModelError;
use crate::provider::{ChatRequest, Message, NoDeltas, Provider, ToolSpec};

/// Questions for each ability.
const QUESTIONS: usize = 4;
/// Tokens of the answer whose speed is measured.
const SPEED_TOKENS: u32 = 48;
/// Words of the prompt whose speed is measured.
const PROMPT_WORDS: usize = 300;

/// What was measured of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCard {
    /// The provider that ran it.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Tokens that prompt and answer may have together, where the provider tells.
    pub context_tokens: Option<usize>,
    /// Answers that were JSON of the schema that was asked for, of `questions`.
    pub valid_json: usize,
    /// Answers that called the offered tool with its argument, of `questions`.
    pub valid_tool_calls: usize,
    /// Questions for each of the two.
    pub questions: usize,
    /// Prompt tokens a second until the first piece of the answer.
    pub prompt_tokens_per_s: Option<f64>,
    /// Tokens of the answer a second, behind the first piece.
    pub tokens_per_s: Option<f64>,
    /// When it was measured, in milliseconds since the epoch.
    pub measured_at_ms: u64,
}

/// Measures a chat model with a few short questions. Fails when it cannot chat at all.
pub(crate) async fn measure(
    provider: &dyn Provider,
    model: &str,
    cancel: &CancellationToken,
) -> Result<ModelCard, ModelError> {
    let (prompt_tokens_per_s, tokens_per_s) = speed(provider, model, cancel).await?;
    let mut card = ModelCard {
        provider: provider.name().to_owned(),
        model: model.to_owned(),
        context_tokens: provider.context_tokens(model).await.ok(),
        valid_json: 0,
        valid_tool_calls: 0,
        questions: QUESTIONS,
        prompt_tokens_per_s,
        tokens_per_s,
        measured_at_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_millis() as u64),
    };
    for city in ["Paris", "Lima", "Oslo", "Cairo"].iter().take(QUESTIONS) {
        card.valid_json += usize::from(answers_json(provider, model, city, cancel).await?);
        card.valid_tool_calls += usize::from(calls_tool(provider, model, city, cancel).await?);
    }
    Ok(card)
}

fn ask(model: &str, text: String) -> ChatRequest {
    let messages = vec![Message::user(text)];
    ChatRequest {
        model: model.to_owned(),
        messages,
        temperature: Some(0.0),
        max_tokens: Some(96),
        ..ChatRequest::default()
    }
}

async fn speed(
    provider: &dyn Provider,
    model: &str,
    cancel: &CancellationToken,
) -> Result<(Option<f64>, Option<f64>), ModelError> {
    // The model is loaded before anything is timed.
    let first = ChatRequest { max_tokens: Some(1), ..ask(model, "Hello".to_owned()) };
    provider.chat(first, &mut NoDeltas, cancel.clone()).await?;
    let words: Vec<String> = (0..PROMPT_WORDS).map(|number| number.to_string()).collect();
    let text = format!("{}\nGo on counting, as far as you can.", words.join(" "));
    let request = ChatRequest { max_tokens: Some(SPEED_TOKENS), ..ask(model, text) };
    let start = Instant::now();
    let mut shown: Option<Duration> = None;
    let mut sink = |_: &str| {
        shown.get_or_insert_with(|| start.elapsed());
    };
    let reply = provider.chat(request, &mut sink, cancel.clone()).await?;
    if cancel.is_cancelled() {
        return Err(ModelError::Cancelled);
    }
    let rate =
        |tokens: u64, time: Duration| (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64());
    let Some(shown) = shown else { return Ok((None, None)) };
    let behind = start.elapsed().saturating_sub(shown);
    Ok((rate(reply.usage.prompt_tokens, shown), rate(reply.usage.completion_tokens.saturating_sub(1), behind)))
}

async fn answers_json(
    provider: &dyn Provider,
    model: &str,
    city: &str,
    cancel: &CancellationToken,
) -> Result<bool, ModelError> {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["city", "country"],
        "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    });
    let text = format!("In which country is {city}? Answer as JSON with the fields city and country.");
    let request = ChatRequest { response_schema: Some(schema), ..ask(model, text) };
    let reply = provider.chat(request, &mut NoDeltas, cancel.clone()).await;
    Ok(match outcome(reply, cancel)? {
        Some(reply) => {
            let answer: Value = serde_json::from_str(&reply.text).unwrap_or_default();
            answer["city"].is_string() && answer["country"].is_string()
        }
        None => false,
    })
}

async fn calls_tool(
    provider: &dyn Provider,
    model: &str,
    city: &str,
    cancel: &CancellationToken,
) -> Result<bool, ModelError> {
    let tool = ToolSpec {
        name: "weather".to_owned(),
        description: "The weather in a city, now.".to_owned(),
        parameters: json!({"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}),
    };
    let request =
        ChatRequest { tools: vec![tool], ..ask(model, format!("What is the weather in {city}? Use the tool.")) };
    let reply = provider.chat(request, &mut NoDeltas, cancel.clone()).await;
    Ok(outcome(reply, cancel)?.is_some_and(|reply| {
        let call = reply.tool_calls.first();
        call.is_some_and(|call| call.name == "weather" && call.arguments["city"].is_string())
    }))
}

/// A model that cannot do something, or does it wrongly, is measured too; a provider that is gone is not.
fn outcome<T>(reply: Result<T, ModelError>, cancel: &CancellationToken) -> Result<Option<T>, ModelError> {
    match reply {
        _ if cancel.is_cancelled() => Err(ModelError::Cancelled),
        Ok(reply) => Ok(Some(reply)),
        Err(ModelError::Unsupported { .. } | ModelError::BadRequest { .. } | ModelError::BadResponse { .. }) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Where cards lie.
#[derive(Debug, Clone)]
pub(crate) struct Cards {
    folder: PathBuf,
}

impl Cards {
    pub(crate) fn new(cache_dir: &Path) -> Self {
        Cards { folder: cache_dir.join(".cards") }
    }

    fn path(&self, provider: &str, model: &str) -> PathBuf {
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
        self.folder.join(format!("{provider}--{}.json", model.chars().map(safe).take(150).collect::<String>()))
    }

    /// Keeps a card in the place of an older one.
    pub(crate) fn keep(&self, card: &ModelCard) -> Result<(), ModelError> {
        let path = self.path(&card.provider, &card.model);
        let partial = path.with_extension("partial");
        let text = serde_json::to_vec_pretty(card).map_err(ModelError::internal)?;
        std::fs::create_dir_all(&self.folder)
            .and_then(|()| std::fs::write(&partial, text))
            .and_then(|()| std::fs::rename(&partial, &path))
            .map_err(|error| ModelError::internal(format!("{} can't be written: {error}", path.display())))
    }

    /// The card of a model; none when it was never measured or its file is damaged.
    pub(crate) fn find(&self, provider: &str, model: &str) -> Option<ModelCard> {
        let card: ModelCard = serde_json::from_slice(&std::fs::read(self.path(provider, model)).ok()?).ok()?;
        (card.provider == provider && card.model == model).then_some(card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_card_when_it_is_kept_then_it_is_found_by_its_model_alone() {
        let dir = tempfile::tempdir().unwrap();
        let cards = Cards::new(dir.path());
        let card = ModelCard {
            provider: "openai".into(),
            model: "../a/b:c".into(),
            context_tokens: None,
            valid_json: 1,
            valid_tool_calls: 0,
            questions: QUESTIONS,
            prompt_tokens_per_s: None,
            tokens_per_s: Some(3.5),
            measured_at_ms: 1,
        };
        assert_eq!(cards.find("openai", "../a/b:c"), None);
        cards.keep(&card).unwrap();
        assert_eq!(cards.find("openai", "../a/b:c"), Some(card));
        assert_eq!(cards.find("openai", ".._a_b_c"), None, "another model that would have the same file");
        let files: Vec<_> = std::fs::read_dir(dir.path().join(".cards")).unwrap().collect();
        assert_eq!(files.len(), 1);
    }
}
