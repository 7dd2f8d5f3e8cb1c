//! Tools of MCP servers (<https://modelcontextprotocol.io>), over a program's standard input and output or over
//! streamable HTTP.
//!
//! A server is started when a run of its namespace first needs its tools, and again, with growing pauses, when it has
//! ended. Before a run, its tools are listed anew where it has said that they are others, and else once a minute. What it
//! says of its tools is text of a stranger: cut, cleaned, and never believed about effects unless the tools file says so.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use reqwest::header::{HeaderName, HeaderValue};
use riverrun_knowledge::web::GuardedClient;
use riverrun_schemas::Namespace;
use riverrun_schemas::agent::ToolEffect;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{NotificationContext, Peer, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::file::{self, Fault, Mcp, fault};
use super::listing;
use super::mcp_result::{text_of, value_of};
use super::secrets::{SecretLookup, Texts};
use crate::tools::sandbox::ProcessGroup;
use crate::tools::{Permission, Tool, ToolContext, ToolError, ToolLimits, ToolManifest, ToolSource};

/// How long a server may take to start and to list its tools.
const START_TIME: Duration = Duration::from_secs(20);
/// Pause before a server is started again after its first failure; it doubles with each, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long it may take to list its tools anew; when it takes longer, those that are known stay.
const LIST_TIME: Duration = Duration::from_secs(5);
/// After this time tools are listed anew even where nothing was said: not every server tells of changes.
const LIST_AGE: Duration = Duration::from_secs(60);
/// Most tools that are taken of a server.
const MAX_TOOLS: usize = 100;
/// Most characters of a server's error that are told.
const MAX_ERROR_TEXT: usize = 1_000;
/// Variables that a server gets besides those of its definition: what programs need to find anything.
const PASSED_ON: &[&str] = &["PATH", "HOME", "LANG", "TMPDIR", "USER", "LOGNAME"];

/// Where a server is.
enum Place {
    Program { command: PathBuf, arguments: Vec<String>, environment: Texts },
    Address { url: String, headers: Texts, web: GuardedClient },
}

pub(super) struct McpServer {
    name: String,
    pub(super) namespace: Option<Namespace>,
    place: Place,
    effect: Option<ToolEffect>,
    trust_read_only: bool,
    only: Option<Vec<String>>,
    limits: ToolLimits,
    link: Mutex<Link>,
    listed: RwLock<Vec<Arc<McpTool>>>,
    trouble: RwLock<Option<String>>,
}

struct Link {
    up: Option<Up>,
    failures: u32,
    not_before: Instant,
}

struct Up {
    service: RunningService<RoleClient, Hearing>,
    changed: Arc<AtomicBool>,
    listed_at: Instant,
    /// Ends what the server started when it is dropped.
    _group: Option<ProcessGroup>,
}

fn list_is_due(changed: bool, age: Duration) -> bool {
    changed || age >= LIST_AGE
}

/// Hears that a server has other tools now.
struct Hearing {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Hearing {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::SeqCst);
    }
}

impl Up {
    /// Whether its tools are to be listed anew; whoever is told so does it.
    fn takes_listing(&mut self, now: Instant) -> bool {
        let changed = self.changed.swap(false, Ordering::SeqCst);
        let due = list_is_due(changed, now.duration_since(self.listed_at));
        if due {
            self.listed_at = now;
        }
        due
    }
}

impl McpServer {
    pub(super) fn new(mcp: &Mcp, web: &GuardedClient, secrets: &SecretLookup) -> Result<Self, Fault> {
        let limits = file::limits(mcp.timeout_s, mcp.max_result_bytes)?;
        let place = match (&mcp.command, &mcp.url) {
            (Some(command), None) => program(mcp, command, secrets)?,
            (None, Some(url)) => address(mcp, url, &web.connecting_within(file::reach_time(limits)), secrets)?,
            _ => return fault("the server has not exactly one of command and url", "give one of the two"),
        };
        Ok(Self {
            name: mcp.name.get_ref().clone(),
            namespace: mcp.namespace.clone(),
            place,
            effect: mcp.effect.map(Into::into),
            trust_read_only: mcp.trust_read_only,
            only: mcp.tools.clone(),
            limits,
            link: Mutex::new(Link { up: None, failures: 0, not_before: Instant::now() }),
            listed: RwLock::default(),
            trouble: RwLock::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Why its tools are not there, if so.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.read().clone()
    }

    /// Those that it listed last.
    pub(super) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.listed.read().iter().map(|tool| tool.clone() as Arc<dyn Tool>).collect()
    }

    /// Starts it, unless it runs or its pause is not over; where it runs, has its tools listed anew when that is due.
    pub(super) async fn prepare(self: &Arc<Self>) {
        match self.peer().await {
            Ok(peer) => self.list_when_due(&peer).await,
            Err(reason) => tracing::warn!(server = self.name, reason, "mcp server is not there"),
        }
    }

    async fn list_when_due(self: &Arc<Self>, peer: &Peer<RoleClient>) {
        let due = self.link.lock().await.up.as_mut().is_some_and(|up| up.takes_listing(Instant::now()));
        if !due {
            return;
        }
        let reason = match tokio::time::timeout(LIST_TIME, peer.list_all_tools()).await {
            Ok(Ok(listed)) => return self.list(listed),
            Ok(Err(error)) => self.hide(&error.to_string()),
            Err(_) => format!("it did not answer within {} s", LIST_TIME.as_secs()),
        };
        tracing::warn!(
            server = self.name,
            reason,
            "an mcp server's tools can't be listed anew; those that are known stay"
        );
    }

    /// A connection, made if need be.
    async fn peer(self: &Arc<Self>) -> Result<Peer<RoleClient>, String> {
        let mut link = self.link.lock().await;
        if let Some(up) = &link.up
            && !up.service.peer().is_transport_closed()
        {
            return Ok(up.service.peer().clone());
        }
        link.up = None;
        let now = Instant::now();
        if now < link.not_before {
            let left = (link.not_before - now).as_secs() + 1;
            let reason = self.trouble().unwrap_or_else(|| "it has ended".to_owned());
            return Err(format!("mcp server {} is not there: {reason}; it is started again in {left} s", self.name));
        }
        let started = tokio::time::timeout(START_TIME, self.start())
            .await
            .unwrap_or_else(|_| Err(format!("it did not start within {} s", START_TIME.as_secs())));
        match started {
            Ok(up) => {
                let peer = up.service.peer().clone();
                // A server that ends again and again is not started in a spin.
                link.not_before = Instant::now() + FIRST_PAUSE;
                link.failures = 0;
                link.up = Some(up);
                *self.trouble.write() = None;
                Ok(peer)
            }
            Err(reason) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << link.failures.min(10)).min(LONGEST_PAUSE);
                link.failures += 1;
                link.not_before = Instant::now() + pause;
                let reason = self.hide(&reason);
                *self.trouble.write() = Some(reason.clone());
                Err(format!("mcp server {} is not there: {reason}", self.name))
            }
        }
    }

    async fn start(self: &Arc<Self>) -> Result<Up, String> {
        let changed = Arc::new(AtomicBool::new(false));
        let hearing = Hearing { changed: changed.clone() };
        let (service, group) = match &self.place {
            Place::Program { command, arguments, environment } => {
                let transport = self.child(command, arguments, environment).map_err(|error| error.to_string())?;
                let group = transport.id().map(ProcessGroup::new);
                (hearing.serve(transport).await.map_err(|error| error.to_string())?, group)
            }
            Place::Address { url, headers, web } => {
                let config = http_config(url, headers, self.limits.result_bytes)?;
                let client = web.connector().map_err(|error| error.to_string())?;
                let transport = StreamableHttpClientTransport::with_client(client, config);
                (hearing.serve(transport).await.map_err(|error| error.to_string())?, None)
            }
        };
        let listed = service.peer().list_all_tools().await.map_err(|error| error.to_string())?;
        self.list(listed);
        Ok(Up { service, changed, listed_at: Instant::now(), _group: group })
    }

    fn child(&self, command: &Path, arguments: &[String], environment: &Texts) -> std::io::Result<TokioChildProcess> {
        let mut program = tokio::process::Command::new(command);
        program.args(arguments).env_clear().process_group(0).kill_on_drop(true);
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                program.env(name, value);
            }
        }
        program.envs(&environment.values);
        // What it says beside the protocol is nobody's: it may hold secrets.
        let (transport, _) = TokioChildProcess::builder(program).stderr(Stdio::null()).spawn()?;
        Ok(transport)
    }

    /// Takes the tools that the definition wants and whose descriptions can be used.
    fn list(self: &Arc<Self>, listed: Vec<rmcp::model::Tool>) {
        let wanted = |name: &str| self.only.as_ref().is_none_or(|only| only.iter().any(|one| one == name));
        let taken = listed.into_iter().filter(|tool| wanted(&tool.name)).take(MAX_TOOLS);
        let tools: Vec<Arc<McpTool>> = taken.filter_map(|tool| self.tool(&tool)).collect();
        *self.listed.write() = tools;
    }

    fn tool(self: &Arc<Self>, tool: &rmcp::model::Tool) -> Option<Arc<McpTool>> {
        let name = listing::name(&self.name, &tool.name);
        let schema = listing::schema(tool.schema_as_json_value());
        let (Some(name), Some(input_schema)) = (name, schema) else {
            tracing::warn!(server = self.name, "a tool of an mcp server has no usable name or schema and is left out");
            return None;
        };
        let reads = tool.annotations.as_ref().and_then(|hints| hints.read_only_hint).unwrap_or(false);
        let effect = match self.effect {
            Some(effect) => effect,
            None if self.trust_read_only && reads => ToolEffect::None,
            None => ToolEffect::External,
        };
        let permissions = match &self.place {
            Place::Program { .. } => vec![Permission::Process, Permission::Network],
            Place::Address { .. } => vec![Permission::Network],
        };
        let manifest = ToolManifest {
            name,
            description: listing::description(tool.description.as_deref().unwrap_or_default()),
            input_schema,
            effect,
            source: ToolSource::Mcp,
            limits: self.limits,
            permissions,
            namespace: self.namespace.clone(),
        };
        Some(Arc::new(McpTool { manifest, remote: tool.name.to_string(), server: Arc::downgrade(self) }))
    }

    fn hide(&self, text: &str) -> String {
        let texts = match &self.place {
            Place::Program { environment, .. } => environment,
            Place::Address { headers, .. } => headers,
        };
        texts.hide(text).chars().take(MAX_ERROR_TEXT).collect()
    }

    fn hide_in(&self, value: Value) -> Value {
        match &self.place {
            Place::Program { environment, .. } => environment.hide_in(value),
            Place::Address { headers, .. } => headers.hide_in(value),
        }
    }
}

struct McpTool {
    manifest: ToolManifest,
    /// As the server calls it.
    remote: String,
    /// Whoever has the tool has the server as well; the server must end when nobody has it.
    server: Weak<McpServer>,
}

impl McpTool {
    async fn once(&self, server: &Arc<McpServer>, arguments: &Value) -> Result<CallToolResult, Failed> {
        let reach_time = file::reach_time(self.manifest.limits);
        let late = |_| Err(format!("mcp server {} is not there: it did not start within {reach_time:?}", server.name));
        let peer =
            tokio::time::timeout(reach_time, server.peer()).await.unwrap_or_else(late).map_err(Failed::NotThere)?;
        let mut params = CallToolRequestParams::new(self.remote.clone());
        if let Value::Object(arguments) = arguments {
            params = params.with_arguments(arguments.clone());
        }
        peer.call_tool(params).await.map_err(Failed::Call)
    }
}

enum Failed {
    /// Nothing was sent.
    NotThere(String),
    Call(ServiceError),
}

impl Failed {
    /// It lies with the connection, and a new one may do better.
    fn is_cut(&self) -> bool {
        matches!(self, Failed::Call(ServiceError::TransportClosed | ServiceError::TransportSend(_)))
    }

    /// Nothing was sent. Of a program's pipe nobody knows how much was read.
    fn reached_nobody(&self) -> bool {
        match self {
            Failed::NotThere(_) => true,
            Failed::Call(ServiceError::TransportSend(error)) => never_connected(error.error.as_ref()),
            Failed::Call(_) => false,
        }
    }

    /// The server may have done what was asked without having said so.
    fn leaves_outcome_unknown(&self) -> bool {
        match self {
            Failed::NotThere(_) => false,
            Failed::Call(ServiceError::TransportSend(error)) => !is_settled(error.error.as_ref()),
            Failed::Call(error) => matches!(error, ServiceError::TransportClosed),
        }
    }
}

/// Whether a request over HTTP was never sent.
fn never_connected(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => error.is_connect() || error.is_builder(),
        Some(_) | None => false,
    }
}

/// Whether a request over HTTP was never sent, or was answered, if only with a refusal. Of a program's pipe nobody knows how much
/// was read.
fn is_settled(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => error.is_connect() || error.is_builder() || error.is_status(),
        Some(error) => matches!(
            error,
            StreamableHttpError::HttpStatus(_)
                | StreamableHttpError::AuthRequired(_)
                | StreamableHttpError::InsufficientScope(_)
                | StreamableHttpError::SessionExpired
                | StreamableHttpError::ReinitializationFailed(_)
                | StreamableHttpError::ReservedHeaderConflict(_)
                | StreamableHttpError::ResponseBodyTooLarge { .. }
        ),
        None => false,
    }
}

#[async_trait]
impl Tool for McpTool {
    fn manifest(&self) -> ToolManifest {
        self.manifest.clone()
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let Some(server) = self.server.upgrade() else {
            return Err(ToolError::NotSent("the mcp server was stopped".to_owned()));
        };
        let mut outcome = self.once(&server, &arguments).await;
        if self.manifest.effect.repeatable() && outcome.as_ref().is_err_and(Failed::is_cut) {
            tokio::time::sleep(FIRST_PAUSE).await;
            outcome = self.once(&server, &arguments).await;
        }
        match outcome {
            Ok(result) => server.result(&result),
            Err(failed) => Err(server.failure(&failed)),
        }
    }
}

impl McpServer {
    /// What a call that gave no result tells.
    fn failure(&self, failed: &Failed) -> ToolError {
        let reason = match failed {
            Failed::NotThere(reason) => reason.clone(),
            Failed::Call(error) => format!("mcp server {}: {}", self.name, self.hide(&error.to_string())),
        };
        if failed.reached_nobody() {
            ToolError::NotSent(reason)
        } else if failed.leaves_outcome_unknown() {
            ToolError::Lost(reason)
        } else {
            ToolError::Failed(reason)
        }
    }

    fn result(&self, result: &CallToolResult) -> Result<Value, ToolError> {
        if result.is_error == Some(true) {
            return Err(ToolError::Failed(self.hide(&text_of(result))));
        }
        Ok(self.hide_in(value_of(result)))
    }
}

fn program(mcp: &Mcp, command: &Path, secrets: &SecretLookup) -> Result<Place, Fault> {
    if !command.is_absolute() {
        let shown = command.display();
        return fault(format!("command {shown} is no absolute path"), "write the whole path, such as /usr/bin/uvx");
    }
    if !command.is_file() {
        return fault(format!("command {} is not there", command.display()), "install it, or correct the path");
    }
    if !mcp.headers.is_empty() {
        return fault("a server with a command has no headers", "use env, or give a url instead of the command");
    }
    let environment = Texts::resolve(&mcp.env, secrets)?;
    Ok(Place::Program { command: command.to_owned(), arguments: mcp.args.clone(), environment })
}

fn address(mcp: &Mcp, url: &str, web: &GuardedClient, secrets: &SecretLookup) -> Result<Place, Fault> {
    if let Err(error) = web.policy().check_url(url) {
        return fault(error.to_string(), error.hint().unwrap_or_else(|| "use an https address".to_owned()));
    }
    if !mcp.args.is_empty() || !mcp.env.is_empty() {
        return fault(
            "a server with a url has no args and no env",
            "use headers, or give a command instead of the url",
        );
    }
    let headers = Texts::resolve(&mcp.headers, secrets)?;
    if let Err(reason) = http_config(url, &headers, 0) {
        return fault(reason, "use letters, digits and - in names, and plain text in values");
    }
    Ok(Place::Address { url: url.to_owned(), headers, web: web.clone() })
}

fn http_config(url: &str, headers: &Texts, result_bytes: usize) -> Result<StreamableHttpClientTransportConfig, String> {
    let mut custom = HashMap::new();
    for (name, value) in &headers.values {
        let wrong = || format!("header {name:?} can't be sent");
        let header: HeaderName = name.parse().map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        custom.insert(header, value);
    }
    // Room for the protocol around a result.
    let most = result_bytes.saturating_mul(2).saturating_add(64 << 10);
    Ok(StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(custom)
        .max_sse_event_size(most)
        .max_json_response_size(most))
}

#[cfg(test)]
#[path = "mcp_tests.rs"]
mod tests;
