use riverrun_stores::read_models::UsageView;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An agent type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentEntry {
    /// The name that a run request gives.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// For filters and for people.
    pub tags: Vec<String>,
}

/// A tool manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolEntry {
    /// The name that a model calls it by.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON schema of its arguments.
    #[schema(value_type = Object)]
    pub input_schema: Value,
    /// What a call does to the world: `none`, `idempotent` or `external`.
    pub effect: String,
    /// Where it comes from: `builtin`, `http`, `command`, `mcp` or `kafka`.
    pub source: String,
    /// Where a call stops.
    pub limits: ToolLimitsEntry,
    /// Whether a call by hand wants to be confirmed.
    pub needs_approval: bool,
    /// What a call can reach: `knowledge`, `network`, `process`, `log`, `memory`, `warehouse`.
    pub permissions: Vec<String>,
    /// The namespace it is in.
    pub namespace: String,
}

/// Where a call of a tool stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolLimitsEntry {
    /// Longest that a call takes, in milliseconds.
    pub timeout_ms: u64,
    /// Largest result as JSON, in bytes.
    pub result_bytes: usize,
}

/// A call of a tool by whoever asks, outside of any run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolCallBody {
    /// What the tool's schema asks for.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// The namespace whose tool it is; `default` when left out.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Makes the call although it changes something outside.
    #[serde(default)]
    pub confirm: Option<bool>,
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolCallDone {
    /// Idempotency key of the call.
    pub call_id: String,
    /// Its result.
    #[schema(value_type = Object)]
    pub result: Value,
    /// How long it took.
    pub took_ms: u64,
}

/// A model provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProviderEntry {
    /// The name that requests and settings use.
    pub name: String,
    /// Whether it answers requests that name no provider.
    pub default: bool,
    /// `local`, `server` or `hosted`.
    pub kind: String,
    /// Whether a key is set; null where none is needed.
    pub has_key: Option<bool>,
    /// Its address; null for the in-process runtime, and where none is set.
    pub address: Option<String>,
}

/// A model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelEntry {
    /// The name to ask for it.
    pub name: String,
    /// Its provider.
    pub provider: String,
    /// `chat`, `embed`, `rerank` or `unknown`.
    pub kind: String,
    /// False for a known model that would have to be fetched first.
    pub present: bool,
    /// Bytes on disk.
    pub size_bytes: Option<u64>,
    /// Bytes of memory that it takes in the server's process; null while it is not loaded there.
    pub loaded_bytes: Option<u64>,
    /// Tokens that it reads at once.
    pub context_tokens: Option<u64>,
    /// Length of its vectors.
    pub dimensions: Option<usize>,
    /// Where it lies or comes from.
    pub source: Option<String>,
}

/// Which model to measure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeBody {
    /// The chat model; it may carry its provider, as in `provider/model`.
    pub model: String,
    /// Model provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

/// Words for a chat model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatBody {
    /// The conversation, oldest first; at least one message.
    pub messages: Vec<ChatMessage>,
    /// Model provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Chat model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sampling temperature, 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Most tokens to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Answer with server-sent events (the default): `delta` `{text}` while the model writes, then `final`, or `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Its text.
    pub content: String,
}

/// What the model said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatDone {
    /// Its words.
    pub text: String,
    /// The model that answered.
    pub model: String,
    /// Why it ended: `stop`, `length`, `repetition` of a model that said the same over and over, `tool_calls` or `cancelled`.
    pub finish_reason: String,
    /// Tokens read and written.
    pub usage: UsageView,
}

/// Text to embed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbedBody {
    /// The texts, 1 to 256.
    pub inputs: Vec<String>,
    /// Model provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Embedding model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Vectors, in the order of the texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EmbedDone {
    /// The model that made them.
    pub model: String,
    /// Length of each.
    pub dimensions: usize,
    /// One a text.
    pub vectors: Vec<Vec<f32>>,
    /// Texts longer than the model reads, of which only the beginning counts.
    pub truncated: usize,
    /// Tokens read.
    pub usage: UsageView,
}

/// A topic of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopicEntry {
    /// Its name.
    pub name: String,
    /// How many partitions it has.
    pub partitions: i32,
    /// How long records stay, in milliseconds; -1 for ever. Not there for a topic of others on a broker of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<i64>,
    /// The records that riverrun writes on it.
    pub records: Vec<String>,
    /// Others have made it: nothing of riverrun's is on it.
    #[serde(default)]
    pub foreign: bool,
    /// Offsets from its first record to its last, where the broker is the embedded one; markers of transactions, and what compaction
    /// has removed, count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_count: Option<u64>,
    /// Bytes on the disk, where the broker is the embedded one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}
