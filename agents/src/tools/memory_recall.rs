//! What was said earlier in the run's conversation.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_schemas::agent::ToolEffect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Permission, Tool, ToolContext, ToolError, ToolManifest, parse, schema_of};
use crate::memory::{ContextRequest, DEFAULT_RECALL, MAX_RECALL, Memory, Recalled};

/// The tool's name; a run that belongs to a conversation begins with a call of it.
pub const MEMORY_RECALL: &str = "memory_recall";

/// Most bytes of a result as JSON: it lies on the log with the step, never in the blob store, since prompts are made from it.
const MAX_RESULT: usize = 48 << 10;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What to remember, in a few words
    #[schemars(length(max = 2000))]
    query: String,
    /// How many memories to return, at most 20
    #[serde(default)]
    #[schemars(range(min = 1, max = 20))]
    k: Option<usize>,
    /// Also the newest turns of the conversation
    #[serde(default)]
    window: Option<bool>,
}

/// Reads the memory of the run's conversation.
pub struct MemoryRecall {
    memory: Arc<dyn Memory>,
}

impl MemoryRecall {
    /// Over that memory.
    pub fn new(memory: Arc<dyn Memory>) -> Self {
        Self { memory }
    }
}

#[async_trait]
impl Tool for MemoryRecall {
    fn manifest(&self) -> ToolManifest {
        ToolManifest::builtin(
            MEMORY_RECALL,
            "Recalls what was said earlier in this conversation, and notes made in it. Use it when the task refers to something from before.",
            schema_of::<Arguments>(),
            ToolEffect::None,
        )
        .needing(&[Permission::Memory])
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let Arguments { query, k, window } = parse(arguments)?;
        let scope = context.memory.as_ref().ok_or_else(|| {
            ToolError::Failed("the run belongs to no conversation, so there is nothing to recall".into())
        })?;
        let request = ContextRequest {
            query: Some(query),
            k: k.unwrap_or(DEFAULT_RECALL).clamp(1, MAX_RECALL),
            reserved_tokens: 0,
        };
        if let (Some(true), Some(turn)) = (window, scope.behind) {
            self.memory.await_turn(&scope.session, turn).await;
        }
        let found = self
            .memory
            .context(&scope.session, &request)
            .await
            .map_err(|error| ToolError::Failed(error.to_string()))?;
        let mut recalled = Recalled::from(&found);
        if !window.unwrap_or(false) {
            recalled.turns.clear();
        }
        serde_json::to_value(recalled.within(MAX_RESULT)).map_err(|error| ToolError::Failed(error.to_string()))
    }
}
