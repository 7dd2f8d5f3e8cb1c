//! Tools: one file a tool, one line here to add it.

mod calculator;
mod clock;
pub mod knowledge_search;
pub mod memory_recall;
#[cfg(test)]
mod memory_tests;
pub mod note;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riverrun_schemas::agent::ToolEffect;
use riverrun_schemas::{CollectionName, Namespace};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use knowledge_search::{Hit, KNOWLEDGE_SEARCH, Search, SearchFailure};
pub use memory_recall::{MEMORY_RECALL, MemoryRecall};
pub use note::{NOTE, Note};

use crate::memory::{Memory, MemoryScope};

/// No call may take longer, unless its manifest says less.
pub const MAX_TOOL_TIME: Duration = Duration::from_secs(60);

/// What a tool says of itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolManifest {
    /// The name that a model calls it by.
    pub name: &'static str,
    /// What it does and when to use it, for the model.
    pub description: &'static str,
    /// JSON schema of the arguments, made from their type.
    pub input_schema: Value,
    /// What a call does to the world.
    pub effect: ToolEffect,
    /// Where it comes from: `builtin` for those of this folder.
    pub source: &'static str,
}

/// What a call may know and use.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The run's namespace: a tool sees nothing of another.
    pub namespace: Namespace,
    /// The collections that the run may read; `None` is every one of the namespace.
    pub collections: Option<Vec<CollectionName>>,
    /// Idempotency key of the call.
    pub call_id: String,
    /// Set when the run was asked to stop.
    pub cancel: CancellationToken,
    /// The conversation that the run belongs to: a tool sees nothing of another.
    pub memory: Option<MemoryScope>,
}

/// Why a call gave no result. The text goes to the model, which may try something else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The arguments are not what the schema says.
    #[error("bad arguments: {0}")]
    Arguments(String),
    /// The tool could not do it.
    #[error("{0}")]
    Failed(String),
    /// It took longer than allowed.
    #[error("no result within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The run was asked to stop.
    #[error("cancelled")]
    Cancelled,
}

/// Something that an agent can use.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Name, purpose, arguments, effect.
    fn manifest(&self) -> ToolManifest;

    /// Does it. Must not outlive a cancelled context.
    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError>;
}

/// The JSON schema of an argument type, without what only people read.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    if let Some(map) = schema.as_object_mut() {
        map.remove("$schema");
        map.remove("title");
        map.insert("additionalProperties".into(), Value::Bool(false));
    }
    schema
}

/// Reads a call's arguments into their type; the message names what is wrong.
pub(crate) fn parse<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments).map_err(|error| ToolError::Arguments(error.to_string()))
}

/// The tools that a process has.
#[derive(Clone)]
pub struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
}

impl Toolbox {
    /// The built-in tools; `search` answers for the knowledge base.
    pub fn builtin(search: Arc<dyn Search>) -> Self {
        Self {
            tools: vec![
                Arc::new(calculator::Calculator),
                Arc::new(clock::Clock),
                Arc::new(knowledge_search::KnowledgeSearch::new(search)),
            ],
        }
    }

    /// The same with those that read and write the memory of conversations.
    pub fn with_memory(self, memory: Arc<dyn Memory>) -> Self {
        self.with(Arc::new(MemoryRecall::new(memory.clone()))).with(Arc::new(Note::new(memory)))
    }

    /// The same with one more: for tools that a user or a test brings.
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Every manifest, in a fixed order.
    pub fn manifests(&self) -> Vec<ToolManifest> {
        self.tools.iter().map(|tool| tool.manifest()).collect()
    }

    /// The manifests of those tools that `allowed` names, or all; an unknown name is an error that lists the known.
    pub fn select(&self, allowed: Option<&[String]>) -> Result<Vec<ToolManifest>, UnknownTool> {
        let all = self.manifests();
        let Some(allowed) = allowed else { return Ok(all) };
        if let Some(name) = allowed.iter().find(|name| !all.iter().any(|tool| tool.name == name.as_str())) {
            return Err(UnknownTool {
                name: name.clone(),
                known: all.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", "),
            });
        }
        Ok(all.into_iter().filter(|tool| allowed.iter().any(|name| name == tool.name)).collect())
    }

    /// Calls a tool by name, within its time and the run's life.
    pub async fn call(&self, name: &str, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let tool = self
            .tools
            .iter()
            .find(|tool| tool.manifest().name == name)
            .ok_or_else(|| ToolError::Failed(format!("there is no tool {name:?}")))?;
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => Err(ToolError::Cancelled),
            result = tokio::time::timeout(MAX_TOOL_TIME, tool.call(arguments, context)) => {
                result.unwrap_or(Err(ToolError::TimedOut(MAX_TOOL_TIME)))
            }
        }
    }
}

/// A run request names a tool that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool {name:?}; the tools are {known}")]
pub struct UnknownTool {
    /// The name asked for.
    pub name: String,
    /// Those that exist.
    pub known: String,
}
