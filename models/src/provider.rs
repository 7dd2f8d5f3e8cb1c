//! The one interface that every model provider implements, and the types that cross it.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::error::ModelError;
use crate::spans::{EmbedTokenizer, SpansRequest};

/// Receives the pieces of an answer while it is generated. Pieces are valid UTF-8 and never empty; joined, they are [`ChatReply::text`].
pub trait DeltaSink: Send {
    /// Takes the next piece of the answer. Must not block: it runs on the task that reads the stream.
    fn delta(&mut self, text: &str);

    /// Takes the next piece of what the model thinks before it answers, where its provider tells that apart. It is no part of the answer, and
    /// comes before the first piece of it.
    fn thought(&mut self, _text: &str) {}

    /// Takes what a call used that fails or is dropped, where that is known: services charge for it. Of a call that ends well its reply tells.
    fn used(&mut self, _usage: Usage) {}

    /// Takes that what the call used is estimated: it was cut off before its provider counted. Told before [`DeltaSink::used`] or the reply.
    fn estimated(&mut self) {}
}

impl<F: FnMut(&str) + Send> DeltaSink for F {
    fn delta(&mut self, text: &str) {
        self(text);
    }
}

/// A sink for callers that only want the whole reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDeltas;

impl DeltaSink for NoDeltas {
    fn delta(&mut self, _text: &str) {}
}

/// Something that runs models: the in-process runtime, a model server, a hosted service.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The stable name that settings, flags and errors use.
    fn name(&self) -> &str;

    /// The models that this provider can name now.
    async fn list_models(&self) -> Result<Vec<ModelInfo>, ModelError>;

    /// Generates one assistant message, streaming its text into `sink`.
    ///
    /// A cancelled chat is not an error: the reply holds what was said until then and [`FinishReason::Cancelled`].
    /// A prompt that does not fit the model's context is refused with [`ModelError::ContextOverflow`], never cut.
    async fn chat(
        &self,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError>;

    /// Embeds texts; vectors come in the order of the inputs.
    async fn embed(&self, request: EmbedRequest) -> Result<EmbedReply, ModelError>;

    /// The tokenizer of an embedding model.
    async fn embed_tokenizer(&self, _model: &str) -> Result<Arc<dyn EmbedTokenizer>, ModelError> {
        Err(ModelError::unsupported(self.name(), "count the tokens of an embedding model"))
    }

    /// Embeds spans of one text, each in the light of what stands around it; vectors come in the order of the spans.
    async fn embed_spans(&self, _request: SpansRequest) -> Result<EmbedReply, ModelError> {
        Err(ModelError::unsupported(self.name(), "embed chunks within their document"))
    }

    /// Scores each document against the query; scores come in the order of the documents, higher is nearer.
    async fn rerank(&self, request: RerankRequest) -> Result<RerankReply, ModelError>;

    /// The first field of a request that this provider would pass over because its API has no such choice.
    fn leaves_out(&self, _request: &ChatRequest) -> Option<&'static str> {
        None
    }

    /// Asks whether the provider answers, cheaply: no model is loaded.
    async fn probe(&self) -> Result<ProbeReport, ModelError>;

    /// Counts the tokens of `text` with the model's own tokenizer.
    async fn count_tokens(&self, model: &str, text: &str) -> Result<usize, ModelError>;

    /// Counts the tokens of a whole chat request as the model reads it: template, tools and all.
    async fn count_prompt(&self, _request: &ChatRequest) -> Result<usize, ModelError> {
        Err(ModelError::unsupported(self.name(), "count the tokens of a whole prompt"))
    }

    /// Tokens that prompt and answer may have together.
    async fn context_tokens(&self, _model: &str) -> Result<usize, ModelError> {
        Err(ModelError::unsupported(self.name(), "tell the size of the context"))
    }
}

/// One request for an assistant message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatRequest {
    /// The model's name at the provider; empty means the default model when asked through [`crate::Models`].
    pub model: String,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// JSON schema that the whole answer must satisfy. Where it is set, `tools` are shown to the model but not parsed out of its answer.
    pub response_schema: Option<Value>,
    /// Grammar that the whole answer must follow, in the place of a schema. Providers that can't hold an answer to one refuse it.
    pub grammar: Option<Grammar>,
    /// 0 is greedy and deterministic for the same sequence of requests; unset is the provider's default.
    pub temperature: Option<f32>,
    /// Nucleus sampling; unset is the provider's default.
    pub top_p: Option<f32>,
    /// Only so many of the likeliest tokens are drawn from; unset is the provider's default. Left out where there is no such
    /// choice, which [`Provider::leaves_out`] tells.
    pub top_k: Option<u32>,
    /// Tokens less likely than this part of the likeliest one are not drawn; as above.
    pub min_p: Option<f32>,
    /// Makes tokens that came lately less likely, 1 being none; as above.
    pub repeat_penalty: Option<f32>,
    /// Taken off the logit of a token for each time that the answer has it, 0 being none; as above.
    pub frequency_penalty: Option<f32>,
    /// Taken off the logit of a token once the answer has it, 0 being none; as above.
    pub presence_penalty: Option<f32>,
    /// Bound on generated tokens; unset means what the context leaves.
    pub max_tokens: Option<u32>,
    /// Generation ends before the first of these; they are not part of the answer.
    pub stop: Vec<String>,
    /// Seed of the sampler, for reproducible answers at a temperature above 0.
    pub seed: Option<u64>,
    /// Whether a model that can think before it answers does; unset is the model's own way. Only the in-process runtime passes it on, and an
    /// answer with a schema or a grammar is given without thoughts there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
}

/// What an answer may look like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grammar {
    /// In Lark's notation, as llguidance reads it; its rule `start` is the whole answer.
    Lark(String),
    /// A regular expression that the whole answer matches.
    Regex(String),
}

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// The person or program that asks.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The name that chat templates and wire formats use.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// Its text.
    #[serde(default)]
    pub content: String,
    /// The calls that an assistant message asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// For [`Role::Tool`]: the call that this is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    fn of(role: Role, content: impl Into<String>) -> Self {
        Message { role, content: content.into(), tool_calls: Vec::new(), tool_call_id: None }
    }

    /// A system message.
    pub fn system(content: impl Into<String>) -> Self {
        Message::of(Role::System, content)
    }

    /// A user message.
    pub fn user(content: impl Into<String>) -> Self {
        Message::of(Role::User, content)
    }

    /// An assistant message without tool calls.
    pub fn assistant(content: impl Into<String>) -> Self {
        Message::of(Role::Assistant, content)
    }

    /// The result of the tool call `call_id`.
    pub fn tool(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Message { tool_call_id: Some(call_id.into()), ..Message::of(Role::Tool, content) }
    }
}

/// A tool that is offered to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique among the tools of a request.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON schema of the arguments.
    pub parameters: Value,
}

/// A call that the model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within the conversation.
    pub id: String,
    /// The tool's name, as the model wrote it; not checked against the offered tools.
    pub name: String,
    /// The arguments, a JSON object; not checked against the tool's schema.
    pub arguments: Value,
}

/// A generated assistant message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatReply {
    /// The text without tool calls.
    pub text: String,
    /// The calls that the model asks for.
    pub tool_calls: Vec<ToolCall>,
    /// Tokens read and written.
    pub usage: Usage,
    /// Why generation ended.
    pub finish: FinishReason,
    /// The model that answered.
    pub model: String,
}

/// Token counts of one request, by the model's own tokenizer as far as the provider tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, including those that a prefix cache spared.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Of the prompt's tokens, those that the provider had in its cache, as far as it tells: most charge less for them.
    #[serde(default)]
    pub cached_prompt_tokens: u64,
    /// Of the prompt's tokens, those that the provider put into its cache, where it charges for that.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// What the provider says that it charges, in billionths of a US dollar; most don't say.
    #[serde(default)]
    pub billed_nanousd: Option<u64>,
}

impl Usage {
    /// Prompt and completion together.
    pub fn total(self) -> u64 {
        self.prompt_tokens + self.completion_tokens
    }
}

impl std::ops::AddAssign for Usage {
    /// The sum of calls that one provider answered: it says of all what it charges, or of none.
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
        self.cached_prompt_tokens += other.cached_prompt_tokens;
        self.cache_write_tokens += other.cache_write_tokens;
        self.billed_nanousd = match (self.billed_nanousd, other.billed_nanousd) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
    }
}

/// What calls cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// US dollars, where the price is known.
    pub usd: Option<f64>,
    /// Tokens of a call that a service charges for and whose price is not known; 0 for models that run on machines of the operator's.
    pub unpriced_tokens: u64,
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended its message, or a stop string came.
    Stop,
    /// `max_tokens` or the end of the context was reached; constrained JSON may be incomplete.
    Length,
    /// The model said the same over and over, and was stopped ([`crate::ModelSettings::repetition_tokens`]) or reached its limit so.
    Repetition,
    /// The model asks for tool calls.
    ToolCalls,
    /// The caller cancelled.
    Cancelled,
}

impl FinishReason {
    /// Whether the answer was ended before the model ended it: what has a form may be incomplete.
    pub fn is_cut(self) -> bool {
        match self {
            FinishReason::Length | FinishReason::Repetition => true,
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Cancelled => false,
        }
    }
}

/// What a text is embedded for. Some models want another prefix for queries than for documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmbedPurpose {
    /// To be found.
    #[default]
    Document,
    /// To find.
    Query,
}

/// Texts to embed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbedRequest {
    /// The model's name at the provider.
    pub model: String,
    /// The texts; an empty list gives an empty reply.
    pub inputs: Vec<String>,
    /// What they are embedded for.
    #[serde(default)]
    pub purpose: EmbedPurpose,
    /// The length that the vectors should have; unset is the model's own. A hosted service whose API has no such choice refuses it before it is
    /// asked; models of this machine, and servers without the choice, give vectors of their own length.
    #[serde(default)]
    pub dimensions: Option<usize>,
}

/// Embedded texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbedReply {
    /// The model that embedded them.
    pub model: String,
    /// One vector per input, in the order of the inputs.
    pub vectors: Vec<Vec<f32>>,
    /// The length of every vector; 0 only when there was no input.
    pub dimensions: usize,
    /// Inputs longer than the model reads, of which only the beginning was embedded. 0 where the provider does not tell.
    #[serde(default)]
    pub truncated: usize,
    /// Tokens read.
    pub usage: Usage,
}

/// Documents to score against a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RerankRequest {
    /// The model's name at the provider.
    pub model: String,
    /// The question.
    pub query: String,
    /// The candidates.
    pub documents: Vec<String>,
}

/// What documents are worth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RerankReply {
    /// A score for each document, in their order; higher is nearer.
    pub scores: Vec<f32>,
    /// Tokens read, where the provider counts them.
    pub usage: Usage,
}

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Generates text.
    Chat,
    /// Embeds text.
    Embed,
    /// Scores pairs of texts.
    Rerank,
    /// The provider does not say.
    Unknown,
}

/// A model as its provider describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The name to ask for it.
    pub name: String,
    /// The provider that has it.
    pub provider: String,
    /// What it is for.
    pub kind: ModelKind,
    /// False for a known model that would have to be fetched first.
    pub present: bool,
    /// Bytes on disk.
    pub size_bytes: Option<u64>,
    /// Bytes of memory that it takes in this process; none while it is not loaded there.
    #[serde(default)]
    pub loaded_bytes: Option<u64>,
    /// Tokens that the model can read at once.
    pub context_tokens: Option<u64>,
    /// Length of its vectors.
    pub dimensions: Option<usize>,
    /// Where it lies or comes from.
    pub source: Option<String>,
}

/// A model that is loaded in this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedModel {
    /// Its name.
    pub name: String,
    /// Bytes of memory that it takes.
    pub bytes: u64,
}

/// What [`Provider::probe`] found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The provider's name.
    pub provider: String,
    /// Its address; none for the in-process runtime.
    pub address: Option<String>,
    /// Its version, where it tells.
    pub version: Option<String>,
    /// How long the answer took.
    pub latency_ms: u64,
    /// Models that it has.
    pub models: usize,
}
