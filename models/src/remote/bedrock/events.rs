//! The events of a stream of Converse, and its answers in one piece.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::protocol::Fault;
use crate::error::ModelError;
use crate::http::refusal::overflow_of;
use crate::provider::Usage;

/// One event of a stream, or a whole answer.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Event {
    pub(super) content_block_start: Option<Started>,
    pub(super) content_block_delta: Option<Piece>,
    pub(super) content_block_stop: Option<Stopped>,
    pub(super) message_stop: Option<Stop>,
    pub(super) metadata: Option<Metadata>,
    pub(super) exception: Option<Exception>,
    pub(super) output: Option<Output>,
    pub(super) stop_reason: Option<String>,
    pub(super) usage: Option<WireUsage>,
    /// An error in the place of an answer.
    pub(super) message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Started {
    pub(super) content_block_index: usize,
    #[serde(default)]
    pub(super) start: Block,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Block {
    pub(super) text: Option<String>,
    pub(super) tool_use: Option<ToolUse>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse {
    pub(super) tool_use_id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) input: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Piece {
    pub(super) content_block_index: usize,
    #[serde(default)]
    pub(super) delta: Delta,
}

/// Reasoning and citations are left out: they are not the answer.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Delta {
    pub(super) text: Option<String>,
    pub(super) tool_use: Option<Input>,
}

#[derive(Deserialize)]
pub(super) struct Input {
    #[serde(default)]
    pub(super) input: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stopped {
    pub(super) content_block_index: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stop {
    pub(super) stop_reason: String,
}

#[derive(Deserialize)]
pub(super) struct Metadata {
    pub(super) usage: WireUsage,
}

#[derive(Deserialize)]
pub(super) struct Output {
    pub(super) message: Answered,
}

#[derive(Deserialize)]
pub(super) struct Answered {
    #[serde(default)]
    pub(super) content: Vec<Block>,
}

#[derive(Deserialize)]
pub(super) struct Exception {
    kind: String,
    pub(super) message: String,
}

impl From<Exception> for Fault {
    fn from(exception: Exception) -> Self {
        let Exception { kind, message } = exception;
        let said = format!("{kind}: {message}");
        let body = json!({ "message": message }).to_string();
        match (kind.as_str(), overflow_of(body.as_bytes())) {
            ("validationException", Some(ModelError::ContextOverflow { tokens, limit, .. })) => {
                Fault::Overflow { tokens, limit }
            }
            ("validationException", _) => Fault::Refused(said),
            ("throttlingException" | "serviceUnavailableException", _) => Fault::Busy(said),
            _ => Fault::Broken(said),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireUsage {
    input_tokens: u64,
    cache_read_input_tokens: u64,
    cache_write_input_tokens: u64,
    output_tokens: u64,
}

impl From<WireUsage> for Usage {
    /// All that the model read, cached or not.
    fn from(usage: WireUsage) -> Self {
        let prompt_tokens = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_write_input_tokens;
        Usage {
            prompt_tokens,
            completion_tokens: usage.output_tokens,
            cached_prompt_tokens: usage.cache_read_input_tokens,
            cache_write_tokens: usage.cache_write_input_tokens,
            billed_nanousd: None,
        }
    }
}
