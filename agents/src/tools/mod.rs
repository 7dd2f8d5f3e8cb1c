//! Tools: one file a built-in tool, one line in [`Toolbox::builtin`] to add it.

mod beginning;
mod calculator;
mod clock;
pub mod defined;
mod document_read;
pub mod knowledge_search;
mod manifest;
pub mod memory_recall;
#[cfg(test)]
mod memory_tests;
pub mod note;
pub mod sandbox;
mod tool_topics;
mod toolbox;
pub mod warehouse_query;
mod web_fetch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riverrun_knowledge::web::GuardedClient;
use riverrun_schemas::{CollectionName, Namespace};
use riverrun_stores::Warehouse;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use beginning::beginning;
pub use defined::{DefinedConfig, DefinedTools};
pub(crate) use document_read::DOCUMENT_READ;
pub use document_read::{Document, Documents, ReadFailure};
pub use knowledge_search::{Hit, KNOWLEDGE_SEARCH, Passages, Search, SearchFailure};
pub use manifest::{
    DEFAULT_RESULT_BYTES, DEFAULT_TOOL_TIME, MAX_RESULT_BYTES, MAX_TOOL_TIME, Permission, ToolLimits, ToolManifest,
    ToolSource,
};
pub use memory_recall::{MEMORY_RECALL, MemoryRecall};
pub use note::{NOTE, Note};
pub use tool_topics::TopicCounts;
pub use toolbox::{ToolSet, Toolbox, UnknownTool};
pub use warehouse_query::WAREHOUSE_QUERY;

use crate::memory::{Memory, MemoryScope};

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
    /// Its result is larger than allowed.
    #[error("the result has {bytes} bytes, at most {limit} are taken: ask for less")]
    TooLarge {
        /// As JSON.
        bytes: usize,
        /// The tool's limit.
        limit: usize,
    },
    /// Nothing left this process: the tool could not be reached, or was not begun.
    #[error("{0}")]
    NotSent(String),
    /// It broke off while it was under way: what it did until then is not known.
    #[error("{0}")]
    Lost(String),
    /// The run was asked to stop.
    #[error("cancelled")]
    Cancelled,
}

impl ToolError {
    /// Whether nobody knows what the call did outside: it was made, and neither a result nor a refusal came back.
    pub fn leaves_outcome_unknown(&self) -> bool {
        match self {
            ToolError::TimedOut(_) | ToolError::Lost(_) => true,
            ToolError::Arguments(_)
            | ToolError::Failed(_)
            | ToolError::NotSent(_)
            | ToolError::TooLarge { .. }
            | ToolError::Cancelled => false,
        }
    }
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

/// What built-in tools work with. A tool whose part is missing is not there.
#[derive(Clone)]
pub struct Dependencies {
    /// The knowledge base.
    pub search: Arc<dyn Search>,
    /// Stored documents.
    pub documents: Option<Arc<dyn Documents>>,
    /// The way out.
    pub web: Option<GuardedClient>,
    /// What conversations remember.
    pub memory: Option<Arc<dyn Memory>>,
    /// Tables.
    pub warehouse: Option<Arc<dyn Warehouse>>,
}

impl Dependencies {
    /// The least that there always is.
    pub fn new(search: Arc<dyn Search>) -> Self {
        Self { search, documents: None, web: None, memory: None, warehouse: None }
    }
}

impl<S: Search + 'static> From<Arc<S>> for Dependencies {
    fn from(search: Arc<S>) -> Self {
        Self::new(search)
    }
}

impl Toolbox {
    /// The built-in tools.
    pub fn builtin(dependencies: impl Into<Dependencies>) -> Self {
        let with: Dependencies = dependencies.into();
        let mut tools: Vec<Arc<dyn Tool>> = vec![
            Arc::new(calculator::Calculator),
            Arc::new(clock::Clock),
            Arc::new(knowledge_search::KnowledgeSearch::new(with.search)),
        ];
        tools.extend(with.documents.map(|documents| Arc::new(document_read::DocumentRead::new(documents)) as _));
        if let Some(memory) = with.memory {
            tools.push(Arc::new(MemoryRecall::new(memory.clone())));
            tools.push(Arc::new(Note::new(memory)));
        }
        tools.extend(with.warehouse.map(warehouse_query::tool));
        tools.extend(with.web.map(|web| Arc::new(web_fetch::WebFetch::new(web)) as _));
        Toolbox::new(tools)
    }
}
