//! What is said between runs and programs that serve tools: `riverrun.tools.calls` and `riverrun.tools.results`.

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::ids::EventId;
use crate::names::Namespace;

/// A run uses a tool that any program may serve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCalled {
    /// The same for the same call: also the idempotency key.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// The run's namespace.
    pub namespace: Namespace,
    /// A JSON object that satisfies the tool's schema.
    pub arguments_json: String,
    /// Milliseconds since the epoch after which nobody waits for an answer.
    pub deadline: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
}

event_set! {
    /// Calls of tools.
    ToolCall on ToolsCalls;
    /// A run uses a tool that any program may serve.
    ToolCalled = "riverrun.tools.ToolCalled", key |e| e.call_id.clone(), id |e| EventId::derive(&[&e.call_id, "called"]);
}

/// What came of a call. The first answer counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolAnswered {
    /// Of the call.
    pub call_id: String,
    /// JSON, on success.
    pub result_json: Option<String>,
    /// What went wrong, for the model.
    pub error: Option<String>,
    /// Milliseconds since the epoch.
    pub at: i64,
}

event_set! {
    /// Answers to calls of tools.
    ToolAnswer on ToolsResults;
    /// What came of a call.
    ToolAnswered = "riverrun.tools.ToolAnswered", key |e| e.call_id.clone(), id |e| EventId::derive(&[&e.call_id, "answered"]);
}
