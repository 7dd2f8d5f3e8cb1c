//! The shapes of OpenAI's API that `/v1` reads. Of those that it can't satisfy only values that change nothing are taken. Fields that are not
//! listed are ignored: clients send labels and hints, which change nothing here.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A chat.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CompletionBody {
    /// A chat model, `provider/model`, or `agent/<name>`; `agent/auto` lets the supervisor choose. Empty or `default` is the default model.
    #[serde(deserialize_with = "or_default")]
    pub model: String,
    /// The conversation, oldest first.
    pub messages: Vec<CompletionMessage>,
    /// Answer with server-sent events.
    pub stream: Option<bool>,
    /// What the stream tells besides.
    pub stream_options: Option<StreamOptions>,
    /// Sampling temperature, 0 to 2.
    pub temperature: Option<f32>,
    /// Nucleus sampling.
    pub top_p: Option<f32>,
    /// Most tokens to write.
    pub max_tokens: Option<u32>,
    /// The newer name of the same.
    pub max_completion_tokens: Option<u32>,
    /// One or more texts that end the answer.
    #[schema(value_type = Option<Object>)]
    pub stop: Option<OneOrMany>,
    /// Seed of the sampler.
    pub seed: Option<i64>,
    /// Tools that the model may call.
    pub tools: Option<Vec<CompletionTool>>,
    /// `auto`, `none`, `required`, or `{"type": "function", "function": {"name": "…"}}`.
    #[schema(value_type = Option<Object>)]
    pub tool_choice: Option<Value>,
    /// `text`, `json_object`, or `json_schema` with a schema. Not OpenAI's, for models in the process: `{"type": "grammar", "grammar": "…"}` in Lark's
    /// notation, and `{"type": "regex", "regex": "…"}`.
    #[schema(value_type = Option<Object>)]
    pub response_format: Option<Value>,
    /// The namespace of an agent's run; `default` when left out. Not OpenAI's: clients send it as an extra field.
    pub namespace: Option<String>,
    /// Answers; only 1.
    pub n: Option<u32>,
    /// Of local models and servers that have it.
    pub top_k: Option<u32>,
    /// Of local models and servers that have it.
    pub min_p: Option<f32>,
    /// Of local models and servers that have it.
    pub repeat_penalty: Option<f32>,
    /// Whether an answer may hold several calls (the default); with `false` it is given with its first one.
    pub parallel_tool_calls: Option<bool>,
    /// Probabilities of tokens; only `false`.
    #[schema(value_type = Option<Object>)]
    pub logprobs: Option<Value>,
    /// The same of other tokens; only 0.
    #[schema(value_type = Option<Object>)]
    pub top_logprobs: Option<Value>,
    /// Other chances of tokens; only an empty object.
    #[schema(value_type = Option<Object>)]
    pub logit_bias: Option<Value>,
    /// For each time that the answer has a token, -2 to 2; where the model's service has it.
    pub frequency_penalty: Option<f32>,
    /// Once the answer has a token, -2 to 2; where the model's service has it.
    pub presence_penalty: Option<f32>,
    /// The older form of `tools`; only an empty list.
    #[schema(value_type = Option<Object>)]
    pub functions: Option<Value>,
    /// The older form of `tool_choice`; only `auto` or `none`.
    #[schema(value_type = Option<Object>)]
    pub function_call: Option<Value>,
    /// Only `["text"]`.
    #[schema(value_type = Option<Object>)]
    pub modalities: Option<Value>,
    /// Not written; only null.
    #[schema(value_type = Option<Object>)]
    pub audio: Option<Value>,
    /// Not done; only null.
    #[schema(value_type = Option<Object>)]
    pub web_search_options: Option<Value>,
    /// `none`: a model in the process answers without thoughts; `minimal` to `xhigh`: it thinks first where it can. Of others only `none`.
    #[schema(value_type = Option<Object>)]
    pub reasoning_effort: Option<Value>,
    /// `{"enable_thinking": true}` or `false`: the same. Not OpenAI's, for models in the process.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Value>,
    /// Only `medium`.
    #[schema(value_type = Option<Object>)]
    pub verbosity: Option<Value>,
    /// Completions are not kept; only `false`.
    #[schema(value_type = Option<Object>)]
    pub store: Option<Value>,
    /// Only `auto` or `default`.
    #[schema(value_type = Option<Object>)]
    pub service_tier: Option<Value>,
}

/// What a stream tells besides.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct StreamOptions {
    /// One more chunk with the tokens.
    #[serde(deserialize_with = "or_default")]
    pub include_usage: bool,
}

/// Clients write null for what they leave out.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A text or several.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts; lists of token ids are not read")]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        match self {
            OneOrMany::One(_) => false,
            OneOrMany::Many(texts) => texts.is_empty(),
        }
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CompletionMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Text, or parts of type `text`.
    #[schema(value_type = Option<Object>)]
    pub content: Option<Value>,
    /// On `assistant`: the calls that it asked for.
    pub tool_calls: Option<Vec<CompletionCall>>,
    /// On `tool`: the call that this is the result of.
    pub tool_call_id: Option<String>,
    /// The older form of `tool_calls`; only null.
    #[schema(value_type = Option<Object>)]
    pub function_call: Option<Value>,
}

/// A call that a model asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CompletionCall {
    /// Its id.
    #[serde(deserialize_with = "or_default")]
    pub id: String,
    /// What is called.
    pub function: CompletionFunction,
}

/// A function and its arguments.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CompletionFunction {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// JSON as text.
    #[serde(deserialize_with = "or_default")]
    pub arguments: String,
}

/// A tool.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CompletionTool {
    /// What it is.
    pub function: CompletionToolFunction,
}

/// What a tool is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CompletionToolFunction {
    /// Its name.
    pub name: String,
    /// What it does.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// JSON schema of its arguments.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub parameters: Value,
}

/// Texts to embed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EmbeddingsBody {
    /// An embedding model or `provider/model`; empty or `default` is the default one.
    #[serde(default)]
    pub model: String,
    /// A text or several.
    #[schema(value_type = Object)]
    pub input: OneOrMany,
    /// `float` (the default) or `base64`.
    #[serde(default)]
    pub encoding_format: Option<String>,
    /// The length that the vectors should have. Sent to services whose API has it; models of this machine and of servers without the choice have
    /// their own length alone, and a hosted service without it is not asked.
    #[serde(default)]
    pub dimensions: Option<usize>,
    /// What the texts are embedded for, which some models want to be told: `document` (the default; also `passage`, `search_document`), or
    /// `query` (also `search_query`).
    #[serde(default)]
    pub input_type: Option<String>,
}
