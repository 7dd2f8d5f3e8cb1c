//! Tools that users define without code, in a file: HTTP requests, programs, MCP servers, programs behind the log.
//!
//! The file is read when a process starts. An entry that can't be used is left out and told, with its line and the fix
//! ([`DefinedTools::problems`]); the others work.

mod command;
mod file;
mod http;
mod kafka;
mod listing;
mod mcp;
mod mcp_result;
mod secrets;
mod template;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use riverrun_knowledge::web::GuardedClient;
use riverrun_log::{LogConfig, Producer};
use riverrun_schemas::Namespace;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::command::CommandTool;
use self::file::{Fault, fault};
use self::http::HttpTool;
use self::kafka::{KafkaTool, Topics};
use self::mcp::McpServer;
pub use self::secrets::SecretLookup;
use super::sandbox::Sandbox;
use super::tool_topics::{ToolTopics, TopicCounts};
use super::{Tool, ToolManifest, ToolSet, ToolSource};
use crate::toml_file::{FileError, line_of};

/// Names that are riverrun's own.
const RESERVED: &[&str] = &[
    "answer",
    "calculator",
    "clock",
    "document_read",
    "knowledge_search",
    "memory_recall",
    "note",
    "warehouse_query",
    "web_fetch",
];

/// What definitions are made with.
#[derive(Clone)]
pub struct DefinedConfig {
    /// The file; `None` is none.
    pub file: Option<PathBuf>,
    /// Whether a file that is not there is a problem: it was named, not looked for.
    pub must_exist: bool,
    /// The way out.
    pub web: GuardedClient,
    /// Starts programs; `None` where this program can't be a launcher.
    pub sandbox: Option<Sandbox>,
    /// The environment.
    pub secrets: SecretLookup,
}

/// An entry of the tools file that can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Counts from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// The tool or server; `None` when the file as a whole is meant.
    pub name: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// The fix.
    pub fix: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        if let Some(name) = &self.name {
            write!(f, ", {name}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// An MCP server, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// Tools that it listed; 0 before it was first started.
    pub tools: usize,
    /// Why it is not there, if it was tried.
    pub trouble: Option<String>,
}

/// The tools of a file. Clones share the servers that were started.
#[derive(Clone)]
pub struct DefinedTools {
    tools: Vec<Arc<dyn Tool>>,
    servers: Vec<Arc<McpServer>>,
    topics: Topics,
    problems: Arc<Vec<Problem>>,
}

impl DefinedTools {
    /// None.
    pub fn none() -> Self {
        Self { tools: Vec::new(), servers: Vec::new(), topics: Arc::default(), problems: Arc::default() }
    }

    /// Reads the file. Starts and contacts nothing.
    pub fn load(config: &DefinedConfig) -> Self {
        let Some(path) = &config.file else { return Self::none() };
        match read(path) {
            Ok(Some(text)) => Self::parse(path, &text, config),
            Ok(None) if !config.must_exist => Self::none(),
            Ok(None) => Self::broken(path, 0, "there is no such file", "make it, or unset RIVERRUN_TOOLS_FILE"),
            Err(reason) => Self::broken(path, 0, &reason, "make it a readable text file"),
        }
    }

    fn broken(path: &Path, line: usize, reason: &str, fix: &str) -> Self {
        let problem =
            Problem { file: path.to_owned(), line, name: None, reason: reason.to_owned(), fix: fix.to_owned() };
        Self { problems: Arc::new(vec![problem]), ..Self::none() }
    }

    fn parse(path: &Path, text: &str, config: &DefinedConfig) -> Self {
        let file = match file::parse(text) {
            Ok(file) => file,
            Err(FileError { line, reason }) => {
                return Self::broken(path, line, &reason, "correct the line; docs/tools.md shows every key");
            }
        };
        let mut loaded = Loaded { names: HashSet::new(), problems: Vec::new(), path, text };
        let topics = Topics::default();
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        for tool in &file.tool {
            let made = loaded.own(&tool.name, tool.namespace.as_ref()).and_then(|()| make(tool, config, &topics));
            tools.extend(loaded.keep(&tool.name, made));
        }
        let mut servers = Vec::new();
        for server in &file.mcp {
            let made = loaded
                .own(&server.name, server.namespace.as_ref())
                .and_then(|()| McpServer::new(server, &config.web, &config.secrets));
            servers.extend(loaded.keep(&server.name, made).map(Arc::new));
        }
        Self { tools, servers, topics, problems: Arc::new(loaded.problems) }
    }

    /// Entries that can't be used.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The MCP servers.
    pub fn servers(&self) -> Vec<ServerStatus> {
        let status = |server: &Arc<McpServer>| ServerStatus {
            name: server.name().to_owned(),
            tools: server.tools().len(),
            trouble: server.trouble(),
        };
        self.servers.iter().map(status).collect()
    }

    /// How many tools the file has, MCP servers aside.
    pub fn count(&self) -> usize {
        self.tools.len()
    }

    /// Whether some tool is a program.
    pub fn has_commands(&self) -> bool {
        self.tools.iter().any(|tool| tool.manifest().source == ToolSource::Command)
    }

    /// With what the names of each MCP server's tools begin, and the namespace that has them: a server lists its tools only
    /// when it runs.
    pub fn prefixes(&self) -> Vec<(Option<Namespace>, String)> {
        self.servers.iter().map(|server| (server.namespace.clone(), format!("{}__", server.name()))).collect()
    }

    /// Gives Kafka tools their log. Once; a second time changes nothing.
    pub fn connect(&self, log: LogConfig, producer: Producer, stop: CancellationToken) {
        if self.topics.set(ToolTopics::new(log, producer, stop)).is_err() {
            tracing::debug!("tool topics were connected before");
        }
    }

    /// What the tool topics brought; `None` without a log.
    pub fn topic_counts(&self) -> Option<TopicCounts> {
        self.topics.get().map(ToolTopics::counts)
    }
}

#[async_trait]
impl ToolSet for DefinedTools {
    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.iter().cloned().chain(self.servers.iter().flat_map(|server| server.tools())).collect()
    }

    async fn prepare(&self, namespace: &Namespace) {
        let mut starting = JoinSet::new();
        for server in &self.servers {
            if server.namespace.as_ref().is_none_or(|own| own == namespace) {
                let server = server.clone();
                starting.spawn(async move { server.prepare().await });
            }
        }
        starting.join_all().await;
    }
}

/// What is there of a file so far.
struct Loaded<'f> {
    names: HashSet<(Option<Namespace>, String)>,
    problems: Vec<Problem>,
    path: &'f Path,
    text: &'f str,
}

impl Loaded<'_> {
    /// Takes a name that nobody has: not riverrun, and no other entry that a run could see beside it.
    fn own(&mut self, name: &toml::Spanned<String>, namespace: Option<&Namespace>) -> Result<(), Fault> {
        let name = name.get_ref();
        file::check_name(name)?;
        if RESERVED.contains(&name.as_str()) {
            return fault(format!("{name} is a name of riverrun's own"), "choose another name");
        }
        let taken = self.names.iter().any(|(other, taken)| {
            taken == name && (other.is_none() || namespace.is_none() || other.as_ref() == namespace)
        });
        if taken {
            return fault(
                format!("{name} is defined twice"),
                "choose another name, or put them into different namespaces",
            );
        }
        self.names.insert((namespace.cloned(), name.clone()));
        Ok(())
    }

    fn keep<T>(&mut self, name: &toml::Spanned<String>, made: Result<T, Fault>) -> Option<T> {
        made.map_err(|Fault { reason, fix }| {
            self.problems.push(Problem {
                file: self.path.to_owned(),
                line: line_of(self.text, name.span().start),
                name: Some(name.get_ref().chars().take(80).collect()),
                reason,
                fix,
            });
        })
        .ok()
    }
}

/// `None` when there is no file.
fn read(path: &Path) -> Result<Option<String>, String> {
    match std::fs::metadata(path) {
        Ok(found) if found.len() > file::MAX_FILE_BYTES => {
            return Err(format!("it has {} bytes, at most {} are read", found.len(), file::MAX_FILE_BYTES));
        }
        Ok(found) if !found.is_file() => return Err("it is no file".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    std::fs::read_to_string(path).map(Some).map_err(|error| error.to_string())
}

fn make(tool: &file::Tool, config: &DefinedConfig, topics: &Topics) -> Result<Arc<dyn Tool>, Fault> {
    let mut manifest = ToolManifest::builtin(
        tool.name.get_ref().clone(),
        tool.description()?,
        tool.input_schema()?,
        tool.effect.into(),
    )
    .limited(file::limits(tool.timeout_s, tool.max_result_bytes)?);
    manifest.namespace = tool.namespace.clone();
    match (&tool.http, &tool.command, &tool.kafka) {
        (Some(http), None, None) => Ok(Arc::new(HttpTool::new(manifest, http, config.web.clone(), &config.secrets)?)),
        (None, Some(command), None) => {
            Ok(Arc::new(CommandTool::new(manifest, command, config.sandbox.clone(), &config.secrets)?))
        }
        (None, None, Some(file::Kafka {})) => Ok(Arc::new(KafkaTool::new(manifest, topics.clone()))),
        _ => fault("the tool has not exactly one of http, command and kafka", "give one of the three"),
    }
}

#[cfg(test)]
#[path = "defined_tests.rs"]
mod tests;
