//! The tools file: what users write. `[[tool]]` with one of `http`, `command`, `kafka`; `[[mcp]]` a server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use riverrun_schemas::Namespace;
use riverrun_schemas::agent::ToolEffect;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toml::Spanned;

use crate::toml_file::{self, FileError};
use crate::tools::{DEFAULT_TOOL_TIME, MAX_RESULT_BYTES, MAX_TOOL_TIME, ToolLimits};

/// Largest file.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;
/// Most tools and servers of a file.
const MAX_ENTRIES: usize = 200;
/// Longest name.
const MAX_NAME: usize = 48;
/// Longest description, in characters: every model call carries it.
const MAX_DESCRIPTION: usize = 1_000;
/// Longest string argument when the file says nothing: what a model writes must have an end.
const DEFAULT_MAX_LENGTH: usize = 2_000;
/// Largest result of a user's tool when the file says nothing.
const DEFAULT_RESULT_BYTES: usize = 64 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) tool: Vec<Tool>,
    #[serde(default)]
    pub(super) mcp: Vec<Mcp>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tool {
    pub(super) name: Spanned<String>,
    pub(super) description: String,
    pub(super) effect: Effect,
    #[serde(default)]
    pub(super) namespace: Option<Namespace>,
    #[serde(default)]
    pub(super) timeout_s: Option<u64>,
    #[serde(default)]
    pub(super) max_result_bytes: Option<usize>,
    /// JSON schema of each argument.
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, toml::Table>,
    /// Names of those that may be left out.
    #[serde(default)]
    pub(super) optional: Vec<String>,
    #[serde(default)]
    pub(super) http: Option<Http>,
    #[serde(default)]
    pub(super) command: Option<Command>,
    #[serde(default)]
    pub(super) kafka: Option<Kafka>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Http {
    #[serde(default = "get")]
    pub(super) method: String,
    pub(super) url: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Text>,
    /// JSON with placeholders; left out, the arguments that the URL does not use.
    #[serde(default)]
    pub(super) body: Option<toml::Table>,
}

fn get() -> String {
    "GET".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    pub(super) program: PathBuf,
    #[serde(default)]
    pub(super) args: Vec<Argument>,
    /// A placeholder.
    #[serde(default)]
    pub(super) stdin: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Text>,
    #[serde(default)]
    pub(super) read: Vec<PathBuf>,
    #[serde(default)]
    pub(super) write: Vec<PathBuf>,
    #[serde(default)]
    pub(super) network: bool,
    #[serde(default)]
    pub(super) memory_mb: Option<u64>,
    #[serde(default)]
    pub(super) processes: Option<u64>,
}

/// One argument, or several that stand or are left out together.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Argument {
    One(String),
    Group(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kafka {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mcp {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) namespace: Option<Namespace>,
    /// Effect of every tool of the server that says nothing else; `external` when left out.
    #[serde(default)]
    pub(super) effect: Option<Effect>,
    /// Whether the server is believed when it says that a tool only reads.
    #[serde(default)]
    pub(super) trust_read_only: bool,
    /// The only tools that are taken, by the server's names.
    #[serde(default)]
    pub(super) tools: Option<Vec<String>>,
    #[serde(default)]
    pub(super) timeout_s: Option<u64>,
    #[serde(default)]
    pub(super) max_result_bytes: Option<usize>,
    /// A program that speaks on its standard input and output.
    #[serde(default)]
    pub(super) command: Option<PathBuf>,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Text>,
    /// Or an address that speaks streamable HTTP.
    #[serde(default)]
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Text>,
}

/// A text of the file, or a secret of the environment, with text before it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Text {
    Plain(String),
    Secret(SecretText),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretText {
    /// Name of an environment variable.
    pub(super) env: String,
    /// Such as `Bearer `.
    #[serde(default)]
    pub(super) prefix: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Effect {
    None,
    Idempotent,
    External,
}

impl From<Effect> for ToolEffect {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::None => ToolEffect::None,
            Effect::Idempotent => ToolEffect::Idempotent,
            Effect::External => ToolEffect::External,
        }
    }
}

/// Reads the whole file; a fault in it leaves nothing.
pub(super) fn parse(text: &str) -> Result<File, FileError> {
    let file: File = toml_file::parse(text)?;
    let entries = file.tool.len() + file.mcp.len();
    if entries > MAX_ENTRIES {
        return Err(FileError {
            line: 1,
            reason: format!("{entries} tools and servers, at most {MAX_ENTRIES} are read"),
        });
    }
    Ok(file)
}

/// What is wrong with one entry: the rule and the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) reason: String,
    pub(super) fix: String,
}

pub(super) fn fault<T>(reason: impl Into<String>, fix: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { reason: reason.into(), fix: fix.into() })
}

/// A name that models and people can write: `[a-z][a-z0-9_]*`.
pub(super) fn check_name(name: &str) -> Result<(), Fault> {
    let fits = name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !name.contains("__");
    if fits {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    fault(
        format!("{shown:?} is no name of a tool"),
        format!("use a-z, 0-9 and single _, a letter first, at most {MAX_NAME} characters"),
    )
}

pub(super) fn limits(timeout_s: Option<u64>, max_result_bytes: Option<usize>) -> Result<ToolLimits, Fault> {
    let most = MAX_TOOL_TIME.as_secs();
    let timeout = match timeout_s {
        None => DEFAULT_TOOL_TIME,
        Some(seconds) if (1..=most).contains(&seconds) => Duration::from_secs(seconds),
        Some(seconds) => return fault(format!("timeout_s is {seconds}"), format!("use 1 to {most}")),
    };
    let result_bytes = match max_result_bytes {
        None => DEFAULT_RESULT_BYTES,
        Some(bytes) if (1..=MAX_RESULT_BYTES).contains(&bytes) => bytes,
        Some(bytes) => return fault(format!("max_result_bytes is {bytes}"), format!("use 1 to {MAX_RESULT_BYTES}")),
    };
    Ok(ToolLimits { timeout, result_bytes })
}

/// How long a call may take until the server is reached: less than its whole time, so that a call that reached nobody is not
/// taken for one that was not answered.
pub(super) fn reach_time(limits: ToolLimits) -> Duration {
    limits.timeout.mul_f32(0.9)
}

impl Tool {
    pub(super) fn description(&self) -> Result<String, Fault> {
        let text = self.description.trim();
        if text.is_empty() || text.chars().count() > MAX_DESCRIPTION {
            return fault(
                format!("description has {} characters", text.chars().count()),
                format!("say in 1 to {MAX_DESCRIPTION} characters what the tool does and when to use it"),
            );
        }
        Ok(text.to_owned())
    }

    /// The JSON schema of all arguments.
    pub(super) fn input_schema(&self) -> Result<Value, Fault> {
        let mut properties = Map::new();
        for (name, table) in &self.arguments {
            let fits = !name.is_empty()
                && name.len() <= 64
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            if !fits {
                return fault(format!("argument {name:?} has no usable name"), "use a-z, A-Z, 0-9, _ and -");
            }
            properties.insert(name.clone(), argument_schema(name, table)?);
        }
        if let Some(name) = self.optional.iter().find(|name| !self.arguments.contains_key(*name)) {
            return fault(format!("optional names {name:?}, which is no argument"), "name arguments of this tool");
        }
        let required: Vec<&String> = self.arguments.keys().filter(|name| !self.optional.contains(name)).collect();
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        match jsonschema::validator_for(&schema) {
            Ok(_) => Ok(schema),
            Err(error) => fault(format!("the arguments are no JSON schema: {error}"), "see json-schema.org"),
        }
    }
}

fn argument_schema(name: &str, table: &toml::Table) -> Result<Value, Fault> {
    let mut schema = serde_json::to_value(table).unwrap_or_default();
    let Some(kind) = schema["type"].as_str().map(str::to_owned) else {
        return fault(
            format!("argument {name:?} has no type"),
            "give type = \"string\", \"integer\", \"number\", \"boolean\", \"array\" or \"object\"",
        );
    };
    let bounded = ["maxLength", "enum", "const", "pattern", "format"].iter().any(|word| schema.get(word).is_some());
    if kind == "string" && !bounded {
        schema["maxLength"] = json!(DEFAULT_MAX_LENGTH);
    }
    Ok(schema)
}
