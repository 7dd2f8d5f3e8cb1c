//! The tools that a process has, and the one place where a call's time and size are held.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_schemas::Namespace;
use serde_json::Value;

use super::manifest::{MAX_TOOL_TIME, ToolManifest};
use super::{Tool, ToolContext, ToolError};

/// Largest arguments of a call, as JSON in bytes: they stand in an event.
const MAX_ARGUMENT_BYTES: usize = 128 << 10;

/// Tools that come and go, such as those of servers elsewhere.
#[async_trait]
pub trait ToolSet: Send + Sync {
    /// Those that are there now.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// Gets what a namespace has ready, within a bounded time; what is not there stays away.
    async fn prepare(&self, namespace: &Namespace);
}

/// The tools that a process has. Clones share them.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
    sets: Vec<Arc<dyn ToolSet>>,
}

impl Toolbox {
    /// These.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        Self { tools, sets: Vec::new() }
    }

    /// The same with one more: for tools that a user or a test brings.
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// The same with tools that come and go.
    pub fn with_set(mut self, set: Arc<dyn ToolSet>) -> Self {
        self.sets.push(set);
        self
    }

    fn all(&self) -> impl Iterator<Item = Arc<dyn Tool>> {
        self.tools.iter().cloned().chain(self.sets.iter().flat_map(|set| set.tools()))
    }

    /// Every manifest of every namespace, in a fixed order.
    pub fn manifests(&self) -> Vec<ToolManifest> {
        self.all().map(|tool| tool.manifest()).collect()
    }

    /// Gets the tools of a namespace ready that are started when they are first needed. Once before a run decides
    /// anything; takes no time when they are.
    pub async fn prepare(&self, namespace: &Namespace) {
        for set in &self.sets {
            set.prepare(namespace).await;
        }
    }

    /// The manifests of those of a namespace's tools that `allowed` names, or all of them; an unknown name, or one of
    /// another namespace, is an error that lists the known.
    pub fn select(&self, namespace: &Namespace, allowed: Option<&[String]>) -> Result<Vec<ToolManifest>, UnknownTool> {
        let mut all = self.manifests();
        all.retain(|tool| tool.is_in(namespace));
        let Some(allowed) = allowed else { return Ok(all) };
        if let Some(name) = allowed.iter().find(|name| !all.iter().any(|tool| tool.name == **name)) {
            return Err(UnknownTool {
                name: name.chars().take(80).collect(),
                known: all.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", "),
            });
        }
        all.retain(|tool| allowed.contains(&tool.name));
        Ok(all)
    }

    /// Calls a tool of the context's namespace by name: within its time, the run's life, and its size of result.
    pub async fn call(&self, name: &str, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let found = self.all().map(|tool| (tool.manifest(), tool));
        let (manifest, tool) = found
            .into_iter()
            .find(|(manifest, _)| manifest.name == name && manifest.is_in(&context.namespace))
            .ok_or_else(|| ToolError::NotSent(format!("there is no tool {name:?} in this namespace")))?;
        check_arguments(&manifest, &arguments)?;
        let timeout = manifest.limits.timeout.min(MAX_TOOL_TIME);
        let result = tokio::select! {
            biased;
            () = context.cancel.cancelled() => Err(ToolError::Cancelled),
            result = tokio::time::timeout(timeout, tool.call(arguments, context)) => {
                result.unwrap_or(Err(ToolError::TimedOut(timeout)))
            }
        }?;
        match json_bytes(&result) {
            bytes if bytes > manifest.limits.result_bytes => {
                Err(ToolError::TooLarge { bytes, limit: manifest.limits.result_bytes })
            }
            _ => Ok(result),
        }
    }
}

/// The arguments are of a size and are what the tool's schema says, whoever calls.
fn check_arguments(manifest: &ToolManifest, arguments: &Value) -> Result<(), ToolError> {
    let bytes = json_bytes(arguments);
    if bytes > MAX_ARGUMENT_BYTES {
        return Err(ToolError::Arguments(format!("they have {bytes} bytes, at most {MAX_ARGUMENT_BYTES} are taken")));
    }
    let cut = |text: String| text.chars().take(300).collect::<String>();
    let validator = jsonschema::validator_for(&manifest.input_schema)
        .map_err(|error| ToolError::Failed(cut(format!("{} has no usable schema: {error}", manifest.name))))?;
    validator.validate(arguments).map_err(|error| ToolError::Arguments(cut(error.to_string())))
}

/// How long a value is as JSON, without writing it anywhere.
fn json_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}

/// A run request names a tool that does not exist in its namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool {name:?}; the tools are {known}")]
pub struct UnknownTool {
    /// The name asked for.
    pub name: String,
    /// Those that exist.
    pub known: String,
}

#[cfg(test)]
#[path = "toolbox_tests.rs"]
mod tests;
