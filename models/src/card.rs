//! A model's card: what it can do here, measured. Whoever measures puts it on the log; what of it choices go by is told to
//! [`crate::Models::know`].

mod context;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::ModelError;
use crate::provider::{ChatRequest, Message, NoDeltas, Provider, ToolSpec};
use crate::words::counted;

/// Questions for each ability.
const QUESTIONS: usize = 4;
/// Tokens of the answer whose speed is measured.
const SPEED_TOKENS: u32 = 48;
/// Words of the prompt whose speed is measured.
const PROMPT_WORDS: usize = 300;
/// Characters of a processor's name that are kept.
const MAX_PROCESSOR: usize = 100;

/// What was measured of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCard {
    /// The provider that ran it.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Processor and threads that the speeds belong to.
    pub machine: String,
    /// Tokens that prompt and answer may have together, as the provider tells; where it does not, as they were met.
    pub context_tokens: Option<usize>,
    /// Tokens of the longest prompt whose beginning the model still knew, of those that were tried.
    pub usable_context_tokens: Option<usize>,
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
}

impl ModelCard {
    /// What choices go by.
    pub fn known(&self) -> Known {
        Known::of(self.context_tokens, self.questions, self.valid_json)
    }
}

/// What a card says that choices go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Tokens that prompt and answer may have together: goes where the provider does not tell.
    pub context_tokens: Option<usize>,
    /// Whether any of its answers was the JSON that was asked for.
    pub answers_json: bool,
}

impl Known {
    /// Of a card with these figures.
    pub fn of(context_tokens: Option<usize>, questions: usize, valid_json: usize) -> Self {
        Known { context_tokens, answers_json: questions == 0 || valid_json > 0 }
    }
}

/// How a model is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measuring {
    /// Tokens of the longest prompt.
    pub(crate) most_tokens: usize,
    /// Threads of the in-process runtime.
    pub(crate) threads: usize,
}

/// Measures a chat model with a few short questions and some longer ones. Fails when it cannot chat at all.
pub(crate) async fn measure(
    provider: &dyn Provider,
    model: &str,
    measuring: Measuring,
    cancel: &CancellationToken,
) -> Result<ModelCard, ModelError> {
    let (prompt_tokens_per_s, tokens_per_s) = speed(provider, model, cancel).await?;
    let context = context::measure(provider, model, measuring.most_tokens, prompt_tokens_per_s, cancel).await?;
    let mut card = ModelCard {
        provider: provider.name().to_owned(),
        model: model.to_owned(),
        machine: machine(measuring.threads),
        context_tokens: context.tokens,
        usable_context_tokens: context.usable,
        valid_json: 0,
        valid_tool_calls: 0,
        questions: QUESTIONS,
        prompt_tokens_per_s,
        tokens_per_s,
    };
    for city in ["Paris", "Lima", "Oslo", "Cairo"].iter().take(QUESTIONS) {
        card.valid_json += usize::from(answers_json(provider, model, city, cancel).await?);
        card.valid_tool_calls += usize::from(calls_tool(provider, model, city, cancel).await?);
    }
    Ok(card)
}

/// The processor's name, where the system tells it, and the threads of the runtime.
fn machine(threads: usize) -> String {
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = told.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim()));
    let name = name.filter(|name| !name.is_empty()).unwrap_or(std::env::consts::ARCH);
    let name: String = name.chars().take(MAX_PROCESSOR).collect();
    format!("{name}, {}", counted(threads, "thread"))
}

fn ask(model: &str, text: String) -> ChatRequest {
    let messages = vec![Message::user(text)];
    ChatRequest {
        model: model.to_owned(),
        messages,
        temperature: Some(0.0),
        max_tokens: Some(96),
        // What is measured is answers, and thoughts would leave no room for them.
        thinking: Some(false),
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
    // To a hundredth: more digits say nothing.
    let rate = |tokens: u64, time: Duration| {
        (tokens > 0 && !time.is_zero()).then(|| (tokens as f64 / time.as_secs_f64() * 100.0).round() / 100.0)
    };
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
