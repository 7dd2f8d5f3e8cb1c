//! Every setting, read once from the environment and from `.env` in the working folder (the environment wins). Nothing
//! else in the program reads either.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use riverrun_agents::state::{DEFAULT_MAX_ITERS, MAX_ITERS};
use riverrun_api::ApiConfig;
use riverrun_api::access::token_file;
use riverrun_api::access::tokens::Tokens;
use riverrun_api::config::{DEFAULT_STREAMS, DEFAULT_WINDOW_TOKENS, MAX_STREAMS, MAX_WINDOW_TOKENS};
use riverrun_knowledge::SearchRequest;
use riverrun_knowledge::chunking::{ChunkConfig, ChunkError, ChunkUnit};
use riverrun_knowledge::retrieval::{Fusion, MAX_CONTEXT_BYTES};
use riverrun_knowledge::sources::{Limits, SECRET_PREFIX, SourceSecrets};
use riverrun_knowledge::web::WebPolicy;
use riverrun_log::broker::SecureListener;
use riverrun_log::{RegistryConfig, S3Config};
use riverrun_models::{ModelSettings, Secret};
use riverrun_stores::RedisConfig;
use riverrun_stores::vectors::qdrant::QdrantConfig;
use riverrun_stores::warehouse::RemoteConfig;
use riverrun_workers::tracer::TracingSettings;

use crate::error::{CliError, Exit};
use crate::secure_broker::secure_listener;

pub use servers::RemoteServer;

mod allowed;
mod files;
mod kafka;
mod misspelt;
mod projects;
mod registry;
mod servers;
#[cfg(test)]
mod tests;

const PREFIX: &str = "RIVERRUN_";
/// Raw librdkafka settings: `RIVERRUN_KAFKA_SECURITY_PROTOCOL` is `security.protocol`.
const KAFKA_PREFIX: &str = "RIVERRUN_KAFKA_";
/// What AWS's own programs read, for the models of Bedrock.
const AWS: [&str; 6] = [
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
];
const KAFKA_BROKERS: &str = "RIVERRUN_KAFKA_BROKERS";
/// What the client itself calls them. Handed through, they would win over ours, and a broker would be hosted that no client talks to.
const CLIENTS_BROKERS: [&str; 2] = ["RIVERRUN_KAFKA_BOOTSTRAP_SERVERS", "RIVERRUN_KAFKA_METADATA_BROKER_LIST"];

/// All settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Where the API listens.
    pub api_host: String,
    /// Its port; 0 takes a free one.
    pub api_port: u16,
    /// Port of the embedded broker; 0 takes a free one.
    pub broker_port: u16,
    /// Its listener for clients beyond this machine.
    pub broker_secure: Option<SecureListener>,
    /// An outside Kafka; `None` hosts a broker.
    pub kafka_brokers: Option<String>,
    /// Raw librdkafka settings.
    pub kafka_extra: BTreeMap<String, String>,
    /// A PostgreSQL server for the read models; `None` keeps them in the data folder.
    pub database_url: Option<String>,
    /// A Redis server that processes share as a cache; `None` has one in each.
    pub redis: Option<RedisConfig>,
    /// A MongoDB server for documents; `None` keeps them in the database of the read models.
    pub mongodb_url: Option<String>,
    /// A Qdrant server for the vectors; `None` keeps them in the data folder.
    pub qdrant: Option<QdrantConfig>,
    /// The process that has the tables, for those without workers.
    pub warehouse: Option<RemoteConfig>,
    /// A schema registry outside; `None` answers for our own schemas by the API alone.
    pub schema_registry: Option<RegistryConfig>,
    /// A bucket for the blobs; `None` keeps them in the data folder.
    pub s3: Option<S3Config>,
    /// A server elsewhere that commands speak to; `None` is that of the data folder.
    pub server: Option<RemoteServer>,
    /// The token that this command line presents to a server.
    pub api_token: Option<Secret>,
    /// The API's.
    pub api: ApiConfig,
    /// Runs driven at once.
    pub agent_max_runs: usize,
    /// How much one ingest may read.
    pub ingest_limits: Limits,
    /// The tools of users.
    pub tools_file: PathBuf,
    /// Whether that file was named: then it must be there.
    pub tools_file_named: bool,
    /// What may be done without asking; `None` is what requests say.
    pub policy_file: Option<PathBuf>,
    /// What `${RIVERRUN_SOURCE_…}` in an address of a database stands for.
    pub source_secrets: SourceSecrets,
    /// The models'.
    pub models: ModelSettings,
    /// Where runs are traced to.
    pub tracing: TracingSettings,
    /// Filter of the log output, as `tracing` reads it.
    pub log_filter: Option<String>,
    /// Log lines as JSON.
    pub log_json: bool,
    /// The settings that were given, as text, without those that may hold a secret.
    pub shown: BTreeMap<String, String>,
}

impl Settings {
    /// Reads them for a process that runs in `folder`.
    pub fn load(folder: &Path) -> Result<Self, CliError> {
        let mut values = read_dotenv(&folder.join(".env"))?;
        values.extend(environment(std::env::vars_os())?);
        let given = values.iter().filter(|(_, value)| !value.trim().is_empty());
        let names: Vec<String> = given.map(|(name, _)| name.clone()).collect();
        files::read(&mut values, folder)?;
        let values = Values::new(values);
        let mut settings = Self::from_values(&values, folder)?;
        settings.api.misspelt = misspelt::find(names.iter().map(String::as_str), &values.asked.borrow());
        Ok(settings)
    }

    fn from_values(values: &Values, folder: &Path) -> Result<Self, CliError> {
        let api_host = values.text("RIVERRUN_API_HOST").unwrap_or_else(|| "127.0.0.1".to_owned());
        let tokens = match values.text("RIVERRUN_API_TOKENS") {
            // The value is not shown: a token may have been put where its hash belongs.
            Some(text) => text.parse::<Tokens>().map_err(|error| {
                CliError::new(Exit::Usage, format!("setting RIVERRUN_API_TOKENS: {error}"))
                    .hint("printf %s TOKEN | sha256sum gives the hash of a token")
            })?,
            None => Tokens::default(),
        };
        let models = ModelSettings::from_env(&|name| values.get(name).cloned())
            .map_err(|error| CliError::new(Exit::Usage, error.to_string()).hint(fix(&error.name)))?;
        let (chunk_size, chunk_overlap, chunk_unit) = chunking(values)?;
        let mut allowed_hosts = allowed::hosts(values)?;
        if !is_wildcard(&api_host) {
            allowed_hosts.push(api_host.clone());
        }
        let data_dir = data_dir(values, folder)?;
        let projects = projects::settings(values, folder, &data_dir)?;
        let tools_file = values.text("RIVERRUN_TOOLS_FILE").map(|file| folder.join(file));
        let tokens_file = values.text("RIVERRUN_TOKENS_FILE").map(|file| folder.join(file));
        let tokens_file = tokens_file.unwrap_or_else(|| data_dir.join(token_file::FILE_NAME));
        Ok(Self {
            tools_file_named: tools_file.is_some(),
            tools_file: tools_file.unwrap_or_else(|| data_dir.join("tools.toml")),
            policy_file: values.text("RIVERRUN_POLICY_FILE").map(|file| folder.join(file)),
            data_dir,
            api_port: values.number("RIVERRUN_API_PORT", 8000, 0..=u16::MAX)?,
            broker_port: values.number("RIVERRUN_BROKER_PORT", 9092, 0..=u16::MAX)?,
            broker_secure: secure_listener(&|name| values.text(name), folder)?,
            kafka_brokers: values.text(KAFKA_BROKERS),
            kafka_extra: values.kafka_extra()?,
            database_url: servers::database_url(values)?,
            redis: servers::redis(values, folder)?,
            mongodb_url: servers::mongodb_url(values)?,
            qdrant: servers::qdrant(values)?,
            warehouse: servers::warehouse(values)?,
            s3: servers::s3(values)?,
            schema_registry: registry::schema_registry(values, folder)?,
            server: servers::remote(values, folder)?,
            api_token: values.text("RIVERRUN_API_TOKEN").as_deref().and_then(Secret::new),
            api: ApiConfig {
                allowed_hosts,
                allowed_origins: allowed::origins(values)?,
                tokens,
                tokens_file: Some(tokens_file),
                rate_per_token: values.number("RIVERRUN_RATE_PER_TOKEN", 0, 0..=1_000_000)?,
                rate_per_namespace: values.number("RIVERRUN_RATE_PER_NAMESPACE", 0, 0..=1_000_000)?,
                max_streams: values.number("RIVERRUN_API_MAX_STREAMS", DEFAULT_STREAMS, 1..=MAX_STREAMS)?,
                blob_sweep_hours: values.number("RIVERRUN_BLOB_SWEEP_HOURS", 24, 0..=8_760)?,
                ingest_roots: ingest_roots(values, folder)?,
                ingest_databases: values.list("RIVERRUN_INGEST_DATABASES"),
                projects,
                web: web_policy(values)?,
                chunk_size,
                chunk_overlap,
                chunk_unit,
                rag_top_k: values.number("RIVERRUN_RAG_TOP_K", SearchRequest::DEFAULT_K, 1..=SearchRequest::MAX_K)?,
                rag_fusion: fusion(values)?,
                rag_context_bytes: values.number("RIVERRUN_RAG_CONTEXT_BYTES", 0, 0..=MAX_CONTEXT_BYTES)?,
                agent_max_iters: values.number("RIVERRUN_AGENT_MAX_ITERS", DEFAULT_MAX_ITERS, 1..=MAX_ITERS)?,
                agent_temperature: values.number("RIVERRUN_AGENT_TEMPERATURE", 0.2, 0.0..=2.0)?,
                memory_window_tokens: values.number(
                    "RIVERRUN_MEMORY_WINDOW_TOKENS",
                    DEFAULT_WINDOW_TOKENS,
                    64..=MAX_WINDOW_TOKENS,
                )?,
                misspelt: Vec::new(), // known when all was asked for
            },
            agent_max_runs: values.number("RIVERRUN_AGENT_MAX_RUNS", 32, 1..=10_000)?,
            ingest_limits: Limits {
                max_file_bytes: values.number(
                    "RIVERRUN_INGEST_MAX_FILE_BYTES",
                    Limits::default().max_file_bytes,
                    1..=1 << 30,
                )?,
                max_files: values.number("RIVERRUN_INGEST_MAX_FILES", Limits::default().max_files, 1..=1_000_000)?,
            },
            source_secrets: SourceSecrets::new(
                values
                    .given
                    .iter()
                    .filter(|(name, _)| name.starts_with(SECRET_PREFIX))
                    .map(|(k, v)| (k.clone(), v.clone())),
            ),
            models,
            tracing: TracingSettings::from_values(values.with(&TracingSettings::NAMES)),
            log_filter: values.text("RIVERRUN_LOG"),
            log_json: match values.text("RIVERRUN_LOG_FORMAT").as_deref() {
                None | Some("text") => false,
                Some("json") => true,
                Some(other) => return Err(wrong("RIVERRUN_LOG_FORMAT", other, "text or json")),
            },
            api_host,
            shown: shown(&values.given),
        })
    }

    /// Refuses to be reachable by others without tokens.
    pub fn check_bind(&self) -> Result<(), CliError> {
        if riverrun_api::guard::is_loopback(&self.api_host) || self.wants_tokens() {
            return Ok(());
        }
        Err(CliError::new(
            Exit::Usage,
            format!(
                "RIVERRUN_API_HOST is {}, which others can reach, and there are no tokens",
                self.api_host
            ),
        )
        .hint("make one by `riverrun tokens create NAME --scope admin`, set RIVERRUN_API_TOKENS to name:sha256 pairs (printf %s TOKEN | sha256sum), or bind to 127.0.0.1"))
    }

    /// Whether a server with these settings asks for tokens from the start.
    pub fn wants_tokens(&self) -> bool {
        !self.api.tokens.is_empty() || self.api.tokens_file.as_ref().is_some_and(|file| file.is_file())
    }
}

/// Words in names of settings that may hold a secret.
const SECRET_WORDS: [&str; 8] = ["KEY", "TOKEN", "PASSWORD", "SECRET", "HEADERS", "SASL", "SSL", "SOURCE"];

/// Settings with such a word that hold none.
const NO_SECRETS: [&str; 4] = [
    "RIVERRUN_MEMORY_WINDOW_TOKENS",
    "RIVERRUN_MODEL_CONTEXT_TOKENS",
    "RIVERRUN_QDRANT_KEYWORDS",
    "RIVERRUN_RATE_PER_TOKEN",
];

fn shown(values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_secret = |name: &str, value: &str| {
        let named = SECRET_WORDS.iter().any(|word| name.contains(word)) && !NO_SECRETS.contains(&name);
        named || (value.contains("://") && value.contains('@'))
    };
    values
        .iter()
        .filter(|(name, value)| name.starts_with(PREFIX) && !is_secret(name, value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What of the environment is for us. Variables of others may hold any bytes: a shell sets PWD to wherever it is.
fn environment(given: impl Iterator<Item = (OsString, OsString)>) -> Result<BTreeMap<String, String>, CliError> {
    let mut ours = BTreeMap::new();
    for (name, value) in given {
        let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
        match value.into_string() {
            Ok(value) => {
                ours.insert(name.to_owned(), value);
            }
            // It is not shown: it may be a key.
            Err(_) if name.starts_with(PREFIX) => {
                return Err(CliError::new(Exit::Usage, format!("setting {name} is not valid UTF-8")).hint(fix(name)));
            }
            // A folder of the user's without a name in UTF-8 is as good as none: settings of ours name another.
            Err(_) => {}
        }
    }
    Ok(ours)
}

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
        || matches!(name, "HOME" | "HF_HOME" | "HF_TOKEN" | "XDG_DATA_HOME" | "XDG_CACHE_HOME")
        || AWS.contains(&name)
}

fn is_wildcard(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}

/// What of the file is for us. Lines of others are theirs, also those that can't be read here: each program reads such a file in its own way.
pub(crate) fn read_dotenv(path: &Path) -> Result<BTreeMap<String, String>, CliError> {
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let unreadable = |what: String| {
        CliError::new(Exit::Usage, format!("{} is not a list of NAME=value lines: {what}", path.display()))
            .hint("quote values that hold spaces or #")
    };
    let bytes = std::fs::read(path).map_err(|error| {
        CliError::new(Exit::Usage, format!("{} can't be read: {error}", path.display()))
            .hint("make it a text that you may read, or work in another folder")
    })?;
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        // No line of ours would be found in it.
        let what = format!("{} can't be read: it is UTF-16", path.display());
        return Err(CliError::new(Exit::Usage, what).hint("save it as UTF-8"));
    }
    // What others write in another encoding is theirs, too.
    let read = String::from_utf8_lossy(&bytes);
    let is_utf8 = matches!(read, Cow::Borrowed(_));
    let mut text = read.into_owned();
    text.push('\n'); // a last line with blanks behind it would not be read without
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut ours = BTreeMap::new();
    for line in dotenvy::from_read_iter(text.as_bytes()) {
        match line {
            // It is not shown: it may be a key.
            Ok((name, value))
                if name.starts_with(PREFIX) && !is_utf8 && value.contains(char::REPLACEMENT_CHARACTER) =>
            {
                let what = format!("setting {name} is not valid UTF-8, in {}", path.display());
                return Err(CliError::new(Exit::Usage, what).hint(fix(&name)));
            }
            Ok((name, value)) if name.starts_with(PREFIX) => {
                ours.insert(name, value);
            }
            Ok(_) => {}
            Err(dotenvy::Error::LineParse(part, _)) if !is_of_ours(&part, text) => {}
            // The line may hold a key: its place is enough.
            Err(dotenvy::Error::LineParse(_, at)) => {
                return Err(unreadable(format!("a line can't be read at character {at}")));
            }
            Err(other) => return Err(unreadable(other.to_string())),
        }
    }
    Ok(ours)
}

/// Whether a part that can't be read is of a line of ours: the line, its value alone, or what a quote that somebody left open takes along.
fn is_of_ours(part: &str, text: &str) -> bool {
    let first = part.lines().next().unwrap_or_default().trim();
    let mut ours = text.lines().map(str::trim).filter(|line| {
        let assigned = line.strip_prefix("export ").unwrap_or(line);
        assigned.trim_start().starts_with(PREFIX)
    });
    ours.any(|line| part.contains(line) || line.split_once('=').is_some_and(|(_, value)| value.trim() == first))
}

/// What was given, and which settings there are: those that are asked for. Whoever reads a setting asks for it whatever else is set, so
/// that the names of all are known after every start, and stand in no list beside.
struct Values {
    given: BTreeMap<String, String>,
    asked: RefCell<BTreeSet<String>>,
}

impl Values {
    fn new(given: BTreeMap<String, String>) -> Self {
        Self { given, asked: RefCell::default() }
    }

    fn get(&self, name: &str) -> Option<&String> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.given.get(name)
    }

    /// All that was given, for a reader of these settings.
    fn with(&self, names: &[&str]) -> &BTreeMap<String, String> {
        self.asked.borrow_mut().extend(names.iter().map(|name| (*name).to_owned()));
        &self.given
    }

    /// Empty counts as unset.
    fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn list(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    fn number<T: FromStr + PartialOrd + Display>(
        &self,
        name: &str,
        default: T,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<T, CliError> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let expected = || format!("a number from {} to {}", range.start(), range.end());
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| wrong(name, &text, &expected()))
    }
}

fn fix(name: &str) -> String {
    format!("correct or unset {name} (environment or .env)")
}

fn wrong(name: &str, value: &str, expected: &str) -> CliError {
    CliError::new(Exit::Usage, format!("setting {name} is {value:?}, which is not {expected}")).hint(fix(name))
}

/// The address without a password in it.
fn redact_url(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 < at => format!("{}***{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}

/// A variable of the environment that a tool definition names as a secret of its own.
pub fn tool_secret(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn chunking(values: &Values) -> Result<(usize, usize, ChunkUnit), CliError> {
    let refused = |error: ChunkError| CliError::new(Exit::Usage, error.to_string()).hint(error.hint());
    let unit = ChunkUnit::named(values.text("RIVERRUN_CHUNK_UNIT").as_deref()).map_err(refused)?;
    let read = |name: &str, default: usize| -> Result<i64, CliError> {
        let default = i64::try_from(default).unwrap_or(i64::MAX);
        values
            .number(name, default, i64::MIN..=i64::MAX)
            .map_err(|_| wrong(name, &values.text(name).unwrap_or_default(), "a whole number"))
    };
    let usual = unit.defaults();
    let (size, overlap) = (read("RIVERRUN_CHUNK_SIZE", usual.0)?, read("RIVERRUN_CHUNK_OVERLAP", usual.1)?);
    let checked = ChunkConfig::in_unit(size, overlap, unit).map_err(refused)?;
    Ok((checked.size(), checked.overlap(), unit))
}

fn fusion(values: &Values) -> Result<Fusion, CliError> {
    let name = "RIVERRUN_RAG_FUSION";
    match values.text(name).as_deref() {
        None | Some("rrf") => Ok(Fusion::Rrf),
        Some("scores") => Ok(Fusion::Scores),
        Some(other) => Err(wrong(name, other, "rrf or scores")),
    }
}

/// `RIVERRUN_DATA_DIR`, else the user's data folder by the XDG rules.
fn data_dir(values: &Values, folder: &Path) -> Result<PathBuf, CliError> {
    if let Some(dir) = values.text("RIVERRUN_DATA_DIR") {
        let path = folder.join(&dir);
        // Of what is not there yet, that in which it is to be made.
        let there = path.ancestors().find(|place| place.exists());
        if there.is_some_and(|place| !place.is_dir()) {
            return Err(wrong("RIVERRUN_DATA_DIR", &dir, "a folder, or the name of one that can be made"));
        }
        return Ok(path);
    }
    let xdg = values.text("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = xdg.or_else(|| values.text("HOME").map(|home| Path::new(&home).join(".local/share")));
    base.map(|base| base.join("riverrun")).ok_or_else(|| {
        CliError::new(Exit::Usage, "neither RIVERRUN_DATA_DIR nor HOME names a folder")
            .hint("set RIVERRUN_DATA_DIR to a folder")
    })
}

/// Hosts beyond the public internet that may be asked, by tools as by what reads pages and repositories.
fn web_policy(values: &Values) -> Result<WebPolicy, CliError> {
    let name = "RIVERRUN_WEB_ALLOW";
    values.text(name).unwrap_or_default().parse().map_err(|error| {
        CliError::new(Exit::Usage, format!("setting {name}: {error}")).hint("RIVERRUN_WEB_ALLOW=wiki.corp,10.1.0.0/16")
    })
}

/// `RIVERRUN_INGEST_ROOTS`, separated by colons; else the working folder, unless that is the root of everything.
fn ingest_roots(values: &Values, folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let name = "RIVERRUN_INGEST_ROOTS";
    let Some(text) = values.text(name) else {
        let own = folder.canonicalize().ok().filter(|own| own.parent().is_some());
        return Ok(own.into_iter().collect());
    };
    text.split(':')
        .filter(|root| !root.trim().is_empty())
        .map(|root| {
            folder
                .join(root.trim())
                .canonicalize()
                .map_err(|error| wrong(name, root, &format!("a folder that can be read: {error}")))
        })
        .collect()
}
