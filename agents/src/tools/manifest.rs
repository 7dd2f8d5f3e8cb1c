//! What a tool says of itself.

use std::time::Duration;

use riverrun_schemas::Namespace;
use riverrun_schemas::agent::ToolEffect;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest a call may take when its manifest says nothing.
pub const DEFAULT_TOOL_TIME: Duration = Duration::from_secs(60);
/// Longest that a manifest may ask for.
pub const MAX_TOOL_TIME: Duration = Duration::from_secs(600);
/// Largest result, as JSON in bytes, when a manifest says nothing.
pub const DEFAULT_RESULT_BYTES: usize = 256 << 10;
/// Largest result that a manifest may ask for.
pub const MAX_RESULT_BYTES: usize = 4 << 20;

/// Where a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSource {
    /// A part of riverrun.
    Builtin,
    /// An HTTP request, described in the tools file.
    Http,
    /// A program on this machine, described in the tools file.
    Command,
    /// A tool of an MCP server.
    Mcp,
    /// A program behind the topics `riverrun.tools.calls` and `riverrun.tools.results`.
    Kafka,
}

impl ToolSource {
    /// The word that manifests and the API use.
    pub fn as_str(self) -> &'static str {
        match self {
            ToolSource::Builtin => "builtin",
            ToolSource::Http => "http",
            ToolSource::Command => "command",
            ToolSource::Mcp => "mcp",
            ToolSource::Kafka => "kafka",
        }
    }
}

impl std::fmt::Display for ToolSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a call can reach. For people and for the policy: a tool has no more than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Collections and documents of the namespace.
    Knowledge,
    /// Hosts outside, through the guarded client.
    Network,
    /// A program on this machine.
    Process,
    /// A program that speaks on the log.
    Log,
    /// Memory of the namespace.
    Memory,
    /// The warehouse of the namespace.
    Warehouse,
}

/// Where a call stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimits {
    /// Longest that a call may take, at most [`MAX_TOOL_TIME`].
    pub timeout: Duration,
    /// Largest result as JSON, in bytes; a larger one is an error, never cut.
    pub result_bytes: usize,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self { timeout: DEFAULT_TOOL_TIME, result_bytes: DEFAULT_RESULT_BYTES }
    }
}

impl Serialize for ToolLimits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown {
            timeout_ms: u64,
            result_bytes: usize,
        }
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        Shown { timeout_ms, result_bytes: self.result_bytes }.serialize(serializer)
    }
}

/// A tool as models, people and the policy see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolManifest {
    /// The name that a model calls it by; unique within a namespace.
    pub name: String,
    /// What it does and when to use it, for the model.
    pub description: String,
    /// JSON schema of the arguments: an object.
    pub input_schema: Value,
    /// What a call does to the world.
    pub effect: ToolEffect,
    /// Where it comes from.
    pub source: ToolSource,
    /// Where a call stops.
    pub limits: ToolLimits,
    /// What a call can reach.
    pub permissions: Vec<Permission>,
    /// The only namespace that has it; `None` is every one.
    pub namespace: Option<Namespace>,
}

impl ToolManifest {
    /// A tool of ours with the usual limits, in every namespace, that reaches nothing.
    pub fn builtin(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
        effect: ToolEffect,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema,
            effect,
            source: ToolSource::Builtin,
            limits: ToolLimits::default(),
            permissions: Vec::new(),
            namespace: None,
        }
    }

    /// The same with what a call reaches.
    pub fn needing(mut self, permissions: &[Permission]) -> Self {
        self.permissions = permissions.to_vec();
        self
    }

    /// The same with other limits.
    pub fn limited(mut self, limits: ToolLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether a run of that namespace has it.
    pub fn is_in(&self, namespace: &Namespace) -> bool {
        self.namespace.as_ref().is_none_or(|own| own == namespace)
    }
}
