//! Getting at the API: a running server's, or that of a stack which this process hosts for as long as the command lasts.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use riverrun_agents::Policy;
use riverrun_agents::tools::sandbox::Sandbox;
use riverrun_agents::tools::{DefinedConfig, DefinedTools};
use riverrun_api::access;
use riverrun_api::access::scope::Scope;
use riverrun_api::access::tokens::Tokens;
use riverrun_api::stack::{BrokerChoice, Stack, StackConfig, StackError};
use riverrun_api::wire::SessionView;
use riverrun_api::{ApiConfig, Core, ToolParts, app, light_app};
use riverrun_knowledge::web::GuardedClient;
use riverrun_log::{LogConfig, Producer};
use riverrun_models::{ModelError, Models};
use riverrun_schemas::Namespace;
use riverrun_stores::RedisCache;
use riverrun_workers::tracer::TracingService;
use sha2::{Digest, Sha256};

use crate::client::Client;
use crate::error::{CliError, Exit, WANTS_TOKEN};
use crate::lock::{self, DataLock, Owner, Tried};
use crate::open_files;
use crate::output::tell;
use crate::settings::{Settings, tool_secret};

mod remote;

pub use remote::REMOTE;

/// What the owner of a data folder does that is a server.
pub const SERVE: &str = "serve";
/// How long the read models may take to show what commands before this one did.
const READ_PATIENCE: Duration = Duration::from_secs(10);

/// How long another command on the same data folder is waited for.
const OTHER_COMMAND: Duration = Duration::from_secs(120);
/// How long a server that starts is waited for by who waits for no other command.
const STARTING_SERVER: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// The API, and what has to be ended with the command.
pub struct Connection {
    /// Speaks to the API.
    pub client: Client,
    log: Option<LogConfig>,
    hosted: Option<Hosted>,
    /// Of a command that has no log: its model calls wait in the data folder for a process that has one.
    light: Option<Core>,
    /// The log is that of other processes too, whose workers may take what this one asks for.
    shares_log: bool,
    /// The address of a server elsewhere, whose log is out of reach.
    elsewhere: Option<String>,
}

/// A stack of our own and the lock that makes it ours.
pub struct Hosted {
    /// The stack.
    pub stack: Stack,
    /// The data folder is ours until this is dropped.
    pub lock: DataLock,
}

impl Connection {
    /// For commands that need neither log nor stores: a running server, so that its loaded models are used, or nothing.
    pub async fn light(settings: &Settings) -> Result<Self, CliError> {
        if let Some(server) = &settings.server {
            return remote::connect(settings, server).await;
        }
        if lock::is_owned(&settings.data_dir)?
            && let Some(owner) = lock::owner(&settings.data_dir).await?
            && owner.api_url.is_some()
        {
            return to_server(settings, &owner);
        }
        let core = core(settings)?;
        Ok(Self {
            client: Client::InProcess(light_app(core.clone())),
            log: None,
            hosted: None,
            light: Some(core),
            shares_log: false,
            elsewhere: None,
        })
    }

    /// For commands that need the log or the stores: a running server, or a stack of our own.
    pub async fn full(settings: &Settings, command: &str) -> Result<Self, CliError> {
        match reach(settings, command).await? {
            Reached::Connected(connection) => Ok(*connection),
            Reached::NotStarted(not) => Err(not.error),
        }
    }

    /// This process hosts the stack: what it has started stands still when the command ends.
    pub fn is_hosting(&self) -> bool {
        self.hosted.is_some()
    }

    /// Whoever reads a path that this command names is this process: the path means the same there, and its user is the same.
    pub fn reads_here(&self) -> bool {
        self.is_hosting() && !self.shares_log
    }

    /// The namespace in which this command may do what wants `scope`: the named one, or else that of its token. Asked before it writes to
    /// the broker itself, which asks nobody; the error is that of the API.
    pub async fn permitted(&self, scope: Scope, named: Option<&Namespace>) -> Result<Namespace, CliError> {
        let session: SessionView = self.client.get("/auth/session").await?;
        Ok(access::permitted(&session, scope, named)?)
    }

    /// Writes to the broker behind the API.
    pub fn producer(&self) -> Result<Producer, CliError> {
        Ok(Producer::new(self.log()?)?)
    }

    /// How to reach the broker behind the API.
    pub fn log(&self) -> Result<&LogConfig, CliError> {
        self.log.as_ref().ok_or_else(|| match &self.elsewhere {
            None => CliError::new(Exit::Failed, "this command has no broker"),
            Some(url) => CliError::new(
                Exit::Usage,
                format!("this command speaks to a broker, and RIVERRUN_SERVER is an API alone: {url}"),
            )
            .hint("run it on the machine of the server, or use a client of Kafka there"),
        })
    }

    /// A stack of our own has to go on until a re-ranker that a search of this command has begun to fetch is here: what is left of a download
    /// would be lost with the process. A server fetches it by itself.
    pub async fn finish_fetching(&self) {
        let Some(hosted) = &self.hosted else { return };
        let models = hosted.stack.state().core().models();
        if models.is_fetching_reranker() {
            tell("the re-ranker is being fetched for searches to come; ctrl-c leaves the rest to the next one");
        }
        if let Err(error) = models.reranker_fetched().await {
            tell(&format!(
                "the re-ranker could not be fetched: {error}; RIVERRUN_MODELS_OFFLINE=true goes without one"
            ));
        }
    }

    /// Keeps what a command without a log used of models, for a process that has one.
    pub fn keep_usage(&self, settings: &Settings) {
        let kept = self.light.as_ref().map_or(Ok(()), |core| core.ledger().keep(&settings.data_dir));
        if let Err(error) = kept {
            let folder = settings.data_dir.display();
            tracing::warn!(%error, %folder, "what this command used of models is not accounted");
        }
    }

    /// Ends what was started for the command.
    pub async fn close(self) {
        if let Some(hosted) = self.hosted {
            drop(self.client); // it holds the state
            hosted.stack.stop().await;
            drop(hosted.lock);
        }
    }
}

/// What came of trying to get at log and stores.
pub enum Reached {
    /// They are there.
    Connected(Box<Connection>),
    /// A stack of our own does not start.
    NotStarted(NotStarted),
}

/// A running server, or a stack of our own. Another command that has the data folder is waited for.
pub async fn reach(settings: &Settings, command: &str) -> Result<Reached, CliError> {
    if let Some(server) = &settings.server {
        return Ok(remote::reach(settings, server).await);
    }
    match own_or_find(settings, command).await? {
        Available::Server(owner) => to_server(settings, &owner).map(Box::new).map(Reached::Connected),
        Available::Ours(lock) => hosted(settings, command, lock).await,
    }
}

/// The same for who wants to know how it stands now: `Err` is the command that has the data folder.
pub async fn reach_at_once(settings: &Settings, command: &str) -> Result<Result<Reached, Owner>, CliError> {
    if let Some(server) = &settings.server {
        return Ok(Ok(remote::reach(settings, server).await));
    }
    let until = tokio::time::Instant::now() + STARTING_SERVER;
    loop {
        match find(settings).await? {
            Found::Server(owner) => return to_server(settings, &owner).map(Box::new).map(Reached::Connected).map(Ok),
            Found::Ours(lock) => return hosted(settings, command, lock).await.map(Ok),
            // Its API is there in a moment.
            Found::Command(owner) if owner.command == SERVE && tokio::time::Instant::now() < until => {
                tokio::time::sleep(POLL).await;
            }
            Found::Command(owner) => return Ok(Err(owner)),
        }
    }
}

/// A stack of our own in a folder that is ours.
async fn hosted(settings: &Settings, command: &str, lock: DataLock) -> Result<Reached, CliError> {
    Ok(match host(settings, core(settings)?, lock, Hosting { command, any_port: true, workers: true }).await {
        Err(not) => Reached::NotStarted(not),
        Ok(hosted) => {
            hosted.stack.caught_up(READ_PATIENCE).await;
            let client = Client::InProcess(app(hosted.stack.state().clone()));
            Reached::Connected(Box::new(Connection {
                client,
                log: Some(hosted.stack.log().clone()),
                hosted: Some(hosted),
                light: None,
                shares_log: settings.kafka_brokers.is_some(),
                elsewhere: None,
            }))
        }
    })
}

/// Whether agents, tools and providers that a command names are those of this machine's settings: nobody has the data folder whose own
/// would count. Who finds a server, or waits for another command, has its request checked by the API.
pub fn settings_count(settings: &Settings) -> Result<bool, CliError> {
    Ok(settings.server.is_none() && !lock::is_owned(&settings.data_dir)?)
}

/// Settings and models, nothing loaded. A command asks its own router, which nobody else reaches: tokens are for servers.
pub fn core(settings: &Settings) -> Result<Core, CliError> {
    let config = ApiConfig {
        tokens: Tokens::default(),
        tokens_file: None,
        rate_per_token: 0,
        rate_per_namespace: 0,
        ..settings.api.clone()
    };
    make_core(settings, config)
}

/// The same for a server.
pub fn server_core(settings: &Settings) -> Result<Core, CliError> {
    make_core(settings, settings.api.clone())
}

fn make_core(settings: &Settings, config: ApiConfig) -> Result<Core, CliError> {
    let models = Models::new(settings.models.clone()).map_err(|error| {
        let exit = if matches!(error, ModelError::BadPrices { .. }) { Exit::Usage } else { Exit::Failed };
        CliError::new(exit, error.to_string()).maybe_hint(error.hint())
    })?;
    let tools = tools(settings, &settings.tools_file, settings.tools_file_named)?;
    let core = Core::with_tools(config, models, tools).with_tracing(TracingService::new(settings.tracing.clone()));
    let Some(redis) = &settings.redis else { return Ok(core) };
    let cache = RedisCache::open(redis).map_err(|error| {
        CliError::new(Exit::Usage, format!("setting RIVERRUN_REDIS_URL: {error}"))
            .hint("correct RIVERRUN_REDIS_URL (redis://user:password@host:6379/0, or rediss:// for TLS) and RIVERRUN_REDIS_CA_FILE")
    })?;
    Ok(core.with_cache(Arc::new(cache)))
}

/// The tools of a file, the way out, and the policy. A broken definition is left out and told; a broken policy is not
/// gone on without.
pub fn tools(settings: &Settings, file: &Path, must_exist: bool) -> Result<ToolParts, CliError> {
    let policy = match &settings.policy_file {
        None => Policy::default(),
        Some(path) => Policy::load(path).map_err(|error| {
            CliError::new(Exit::Usage, error.to_string())
                .hint(format!("correct {}, or unset RIVERRUN_POLICY_FILE", path.display()))
        })?,
    };
    let web = GuardedClient::new(settings.api.web.clone());
    let defined = DefinedTools::load(&DefinedConfig {
        file: Some(file.to_owned()),
        must_exist,
        web: web.clone(),
        sandbox: std::env::current_exe().ok().map(Sandbox::new),
        secrets: Arc::new(tool_secret),
    });
    for problem in defined.problems() {
        tracing::warn!(%problem, fix = problem.fix, "a tool definition is left out");
    }
    Ok(ToolParts { defined, web: Some(web), sandbox: std::env::current_exe().ok().map(Sandbox::new), policy })
}

fn to_server(settings: &Settings, owner: &Owner) -> Result<Connection, CliError> {
    let Some(url) = &owner.api_url else {
        return Err(CliError::new(Exit::Failed, format!("riverrun {} has no API", owner.command)));
    };
    if owner.needs_token && settings.api_token.is_none() {
        return Err(CliError::new(Exit::Usage, format!("the server at {url} wants a token")).hint(WANTS_TOKEN));
    }
    let client = Client::server(url, settings.api_token.clone())?;
    let mut log = LogConfig::new(owner.brokers.clone(), "riverrun-cli");
    log.extra = settings.kafka_extra.clone();
    Ok(Connection { client, log: Some(log), hosted: None, light: None, shares_log: true, elsewhere: None })
}

enum Found {
    Server(Owner),
    Ours(DataLock),
    /// It has no API, or none yet.
    Command(Owner),
}

enum Available {
    Server(Owner),
    Ours(DataLock),
}

/// Who has the data folder: we, if it was free.
async fn find(settings: &Settings) -> Result<Found, CliError> {
    let folder = &settings.data_dir;
    loop {
        if let Tried::Ours(lock) = DataLock::try_take(folder)? {
            return Ok(Found::Ours(lock));
        }
        let Some(owner) = lock::owner(folder).await? else { continue };
        return Ok(if owner.api_url.is_some() { Found::Server(owner) } else { Found::Command(owner) });
    }
}

/// The data folder for us, or the server that has it. Another command that has it is waited for.
async fn own_or_find(settings: &Settings, command: &str) -> Result<Available, CliError> {
    let folder = &settings.data_dir;
    let until = tokio::time::Instant::now() + OTHER_COMMAND;
    let mut told = false;
    loop {
        let owner = match find(settings).await? {
            Found::Server(owner) => return Ok(Available::Server(owner)),
            Found::Ours(lock) => return Ok(Available::Ours(lock)),
            Found::Command(owner) => owner,
        };
        if tokio::time::Instant::now() > until {
            return Err(CliError::new(
                Exit::Failed,
                format!(
                    "riverrun {} (process {}) has {} for more than {} s",
                    owner.command,
                    owner.pid,
                    folder.display(),
                    OTHER_COMMAND.as_secs()
                ),
            )
            .hint(format!(
                "wait for it, or end it: kill {}; `riverrun serve` lets commands run side by side",
                owner.pid
            )));
        }
        if !std::mem::replace(&mut told, true) {
            tell(&format!(
                "riverrun {command} waits for riverrun {} (process {}) on the same data folder",
                owner.command, owner.pid
            ));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The lock for a server: nothing is waited for.
pub async fn own_for_server(settings: &Settings) -> Result<DataLock, CliError> {
    own_now(settings, |owner| {
        let pid = owner.pid;
        format!(
            "end it with `kill {pid}`, or set RIVERRUN_DATA_DIR, RIVERRUN_API_PORT and RIVERRUN_BROKER_PORT for a second one"
        )
    })
    .await
}

/// The same for a command that carries all that is in the folder, for which another folder is no way out.
pub async fn own_for_move(settings: &Settings, command: &str) -> Result<DataLock, CliError> {
    own_now(settings, |owner| move_hint(owner, command)).await
}

fn move_hint(owner: &Owner, command: &str) -> String {
    let pid = owner.pid;
    if owner.command == SERVE {
        format!("end the server with `kill {pid}`, run riverrun {command} again, then start the server again")
    } else {
        format!("wait for it, or end it with `kill {pid}`; then run riverrun {command} again")
    }
}

async fn own_now(settings: &Settings, fix: impl Fn(&Owner) -> String) -> Result<DataLock, CliError> {
    loop {
        if let Tried::Ours(lock) = DataLock::try_take(&settings.data_dir)? {
            return Ok(lock);
        }
        let Some(owner) = lock::owner(&settings.data_dir).await? else { continue };
        let folder = settings.data_dir.display();
        let what = match &owner.api_url {
            Some(url) => format!("a server has the data folder {folder} (process {}, {url})", owner.pid),
            None => format!("riverrun {} (process {}) has the data folder {folder}", owner.command, owner.pid),
        };
        return Err(CliError::new(Exit::Failed, what).hint(fix(&owner)));
    }
}

/// A stack that does not start: the service that is to blame, and the failure.
pub struct NotStarted {
    /// As `diagnose` names it.
    pub service: &'static str,
    /// What a command fails with.
    pub error: CliError,
}

/// Who hosts a stack, and which.
#[derive(Debug, Clone, Copy)]
pub struct Hosting<'a> {
    /// What others are told that the owner of the folder does.
    pub command: &'a str,
    /// A broker port that is taken is no failure.
    pub any_port: bool,
    /// Workers run in it.
    pub workers: bool,
}

/// Starts a stack in a folder that is ours.
pub async fn host(settings: &Settings, core: Core, lock: DataLock, hosting: Hosting<'_>) -> Result<Hosted, NotStarted> {
    let Hosting { command, any_port, workers } = hosting;
    let not_started = |service| move |error| NotStarted { service, error };
    open_files::require("a process with log, stores and workers", open_files::HOST)
        .map_err(not_started("open files"))?;
    let broker = broker_choice(settings, any_port).map_err(not_started("broker"))?;
    let config = stack_config(settings, core, broker, workers);
    // Who comes meanwhile learns who has the folder; a server tells again when its API listens.
    let owner = |brokers: &str| Owner {
        pid: std::process::id(),
        command: command.to_owned(),
        api_url: None,
        brokers: brokers.to_owned(),
        needs_token: false,
    };
    lock.tell(&owner("")).map_err(not_started("data folder"))?;
    let port = match config.broker {
        BrokerChoice::Embedded { port, .. } if any_port => port,
        BrokerChoice::Embedded { .. } | BrokerChoice::External(_) => 0,
    };
    let started = match Stack::start(config.clone()).await {
        // It was free when it was looked at: commands that start together find the same one.
        Err(StackError::Broker(_)) if port != 0 => {
            let broker = BrokerChoice::Embedded { port: 0, secure: None, extra: settings.kafka_extra.clone() };
            Stack::start(StackConfig { broker, ..config }).await
        }
        started => started,
    };
    let stack = started.map_err(|error| NotStarted { service: error.service(), error: failed(&error) })?;
    lock.tell(&owner(&stack.log().brokers)).map_err(not_started("data folder"))?;
    Ok(Hosted { stack, lock })
}

/// What a stack of these settings is made of.
pub fn stack_config(settings: &Settings, core: Core, broker: BrokerChoice, workers: bool) -> StackConfig {
    StackConfig {
        broker,
        database_url: settings.database_url.clone(),
        mongodb_url: settings.mongodb_url.clone(),
        s3: settings.s3.clone(),
        warehouse: settings.warehouse.clone(),
        schema_registry: settings.schema_registry.clone(),
        qdrant: settings.qdrant.clone(),
        instance: instance(&settings.data_dir),
        max_runs: settings.agent_max_runs,
        limits: settings.ingest_limits,
        secrets: settings.source_secrets.clone(),
        workers,
        ..StackConfig::new(&settings.data_dir, core)
    }
}

fn broker_choice(settings: &Settings, any_port: bool) -> Result<BrokerChoice, CliError> {
    match &settings.kafka_brokers {
        Some(brokers) => {
            let mut log = LogConfig::new(brokers.clone(), "riverrun");
            log.extra = settings.kafka_extra.clone();
            Ok(BrokerChoice::External(log))
        }
        None => {
            let port = broker_port(settings.broker_port, any_port)?;
            // A command that hosts a broker for a moment leaves the outside port to a server.
            let secure = settings.broker_secure.clone().filter(|_| !any_port);
            Ok(BrokerChoice::Embedded { port, secure, extra: settings.kafka_extra.clone() })
        }
    }
}

/// A part that does not start, as a command fails with it.
pub fn failed(error: &StackError) -> CliError {
    CliError::new(Exit::ServiceDown, error.to_string()).hint(error.hint())
}

/// The wanted port, or a free one where that will do.
fn broker_port(wanted: u16, any: bool) -> Result<u16, CliError> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, wanted)) {
        Ok(_) => Ok(wanted),
        Err(_) if any => Ok(0),
        Err(error) => Err(CliError::new(Exit::Failed, format!("the broker can't listen on 127.0.0.1:{wanted} (RIVERRUN_BROKER_PORT): {error}"))
            .hint(format!("end what listens there (ss -ltnp 'sport = :{wanted}'), set RIVERRUN_BROKER_PORT to another port, or RIVERRUN_KAFKA_BROKERS to use that broker"))),
    }
}

/// The same for the same data folder on the same machine, different for every other.
fn instance(data_dir: &Path) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let place = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    let hash = Sha256::digest(format!("{}\n{}", host.trim(), place.display()));
    let name: String = host.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(32).collect();
    format!("riverrun-{name}-{}", hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>())
}
