//! The settings of the model adapter.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::remote::table::{PROVIDERS, Spec};
use crate::secret::Secret;

mod access;
pub(crate) mod aws;

pub use access::Access;
pub use aws::{Aws, AwsCredentials};

/// Address of an Ollama server when none is set.
pub const DEFAULT_OLLAMA_ADDRESS: &str = "http://127.0.0.1:11434";
/// Address of the OpenAI API when no other compatible server is set.
pub const DEFAULT_OPENAI_ADDRESS: &str = "https://api.openai.com/v1";
/// The hub that models are fetched from when they are not on this machine.
pub const DEFAULT_HUB_ADDRESS: &str = "https://huggingface.co";
/// Chat model when none is set.
pub const DEFAULT_CHAT_MODEL: &str = "qwen2.5-0.5b-instruct";
/// Embedding model when none is set (768 dimensions).
pub const DEFAULT_EMBED_MODEL: &str = "all-mpnet-base-v2";
/// Re-ranking model when none is set.
pub const DEFAULT_RERANK_MODEL: &str = "ms-marco-minilm-l6-v2";

/// Requests that one in-process chat model can compute at once, at most.
pub(crate) const MAX_PARALLEL: usize = 64;

/// Settings of the model adapter. Everything has a default; [`ModelSettings::from_env`] reads the `RIVERRUN_*` variables, and AWS's.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// Folder of models that is looked at first and never written.
    pub models_dir: Option<PathBuf>,
    /// Folder that fetched models are put into.
    pub cache_dir: PathBuf,
    /// Chat model of the default provider; unset means [`DEFAULT_CHAT_MODEL`] or its name at that provider.
    pub default_chat_model: Option<String>,
    /// Embedding model; `provider/model` names another provider than the local one.
    pub default_embed_model: String,
    /// Re-ranking model; `provider/model` names another provider than the local one. Unset means that of a hosted re-ranker whose key is
    /// set, else [`DEFAULT_RERANK_MODEL`].
    pub default_rerank_model: Option<String>,
    /// Address of an Ollama server. When set, that server is the default provider for chat.
    pub runtime_base_url: Option<String>,
    /// Addresses of the other providers by name, where they are not the services' own. An address for `openai` names any server that speaks
    /// its protocol.
    pub addresses: BTreeMap<String, String>,
    /// Keys of the providers by name.
    pub keys: BTreeMap<String, Secret>,
    /// What requests carry beside the key, by name of the provider.
    pub access: BTreeMap<String, Access>,
    /// Region and credentials of AWS.
    pub aws: Aws,
    /// Version of Azure's API: unset means its newer paths, which need none.
    pub azure_api_version: Option<String>,
    /// File of prices in front of the program's own.
    pub prices: Option<PathBuf>,
    /// Threads for in-process inference; unset means the number of cores.
    pub threads: Option<usize>,
    /// Tokens at the end of an answer of an in-process chat model that are the same over and over, from which on it is ended; 0 is never.
    pub repetition_tokens: usize,
    /// Context that in-process chat models and Ollama are run with, in tokens; never more than the model was trained for.
    pub context_tokens: usize,
    /// In-process chat models that stay loaded at once; the least recently used idle one makes room.
    pub max_loaded_models: usize,
    /// Bytes that all in-process models may take at once, chat models, encoders and re-rankers; unset means no bound but their numbers.
    pub memory_bytes: Option<u64>,
    /// Requests that one in-process chat model computes at once, 1 to 64. Each takes a key-value cache of the whole context.
    pub parallel: usize,
    /// Requests that wait for one in-process chat model; more are made to wait outside the queue until `idle_timeout`.
    pub queue_length: usize,
    /// Longest time for one whole request.
    pub timeout: Duration,
    /// Longest silence of a server within a request, and longest wait for a place in a queue.
    pub idle_timeout: Duration,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// The hub's address.
    pub hub_base_url: String,
    /// Token for the hub, for models that ask for one. It is sent to the hub's own host only.
    pub hub_token: Option<Secret>,
    /// The cache that other programs of the hub share; read only. `None` leaves it out.
    pub hub_cache_dir: Option<PathBuf>,
    /// Never ask the hub.
    pub offline: bool,
}

impl Default for ModelSettings {
    fn default() -> Self {
        ModelSettings {
            models_dir: None,
            cache_dir: std::env::temp_dir().join("riverrun-models"),
            default_chat_model: None,
            default_embed_model: DEFAULT_EMBED_MODEL.to_owned(),
            default_rerank_model: None,
            runtime_base_url: None,
            addresses: BTreeMap::new(),
            keys: BTreeMap::new(),
            access: BTreeMap::new(),
            aws: Aws::default(),
            azure_api_version: None,
            prices: None,
            threads: None,
            repetition_tokens: 1024,
            context_tokens: 8192,
            max_loaded_models: 2,
            memory_bytes: None,
            parallel: 2,
            queue_length: 16,
            timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(5),
            hub_base_url: DEFAULT_HUB_ADDRESS.to_owned(),
            hub_token: None,
            hub_cache_dir: None,
            offline: false,
        }
    }
}

/// A setting that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("setting {name} is {value:?}, which is not {expected}")]
pub struct SettingError {
    /// The variable's name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What it should be.
    pub expected: Cow<'static, str>,
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl ModelSettings {
    /// Reads the settings through `get`, which answers the value of a variable. Empty values count as unset.
    pub fn from_env(get: Lookup<'_>) -> Result<Self, SettingError> {
        let defaults = ModelSettings::default();
        let keys = keys(get);
        Ok(ModelSettings {
            models_dir: text(get, "RIVERRUN_MODELS_DIR").map(PathBuf::from),
            cache_dir: cache_dir(get),
            default_chat_model: text(get, "RIVERRUN_DEFAULT_CHAT_MODEL"),
            default_embed_model: text(get, "RIVERRUN_DEFAULT_EMBED_MODEL").unwrap_or(defaults.default_embed_model),
            default_rerank_model: text(get, "RIVERRUN_DEFAULT_RERANK_MODEL"),
            runtime_base_url: address(get, "RIVERRUN_MODEL_RUNTIME_BASE_URL")?,
            addresses: addresses(get)?,
            access: access::read(get, &keys)?,
            keys,
            aws: aws::read(get)?,
            azure_api_version: text(get, "RIVERRUN_AZURE_API_VERSION"),
            prices: text(get, "RIVERRUN_MODEL_PRICES").map(PathBuf::from),
            threads: number(get, "RIVERRUN_MODEL_THREADS", 1..=1024)?,
            repetition_tokens: number(get, "RIVERRUN_MODEL_REPETITION_TOKENS", 0..=1 << 20)?
                .unwrap_or(defaults.repetition_tokens),
            context_tokens: number(get, "RIVERRUN_MODEL_CONTEXT_TOKENS", 256..=4 << 20)?
                .unwrap_or(defaults.context_tokens),
            max_loaded_models: number(get, "RIVERRUN_MODEL_MAX_LOADED", 1..=64)?.unwrap_or(defaults.max_loaded_models),
            memory_bytes: number(get, "RIVERRUN_MODEL_MEMORY_MB", 1..=1 << 30)?.map(|mb| mb as u64 * 1_000_000),
            parallel: number(get, "RIVERRUN_MODEL_PARALLEL", 1..=MAX_PARALLEL)?.unwrap_or(defaults.parallel),
            queue_length: number(get, "RIVERRUN_MODEL_QUEUE", 1..=10_000)?.unwrap_or(defaults.queue_length),
            timeout: millis(get, "RIVERRUN_MODEL_TIMEOUT_MS")?.unwrap_or(defaults.timeout),
            idle_timeout: millis(get, "RIVERRUN_MODEL_IDLE_TIMEOUT_MS")?.unwrap_or(defaults.idle_timeout),
            connect_timeout: millis(get, "RIVERRUN_MODEL_CONNECT_TIMEOUT_MS")?.unwrap_or(defaults.connect_timeout),
            hub_base_url: address(get, "RIVERRUN_HUB_BASE_URL")?.unwrap_or(defaults.hub_base_url),
            hub_token: hub_token(get),
            hub_cache_dir: hub_cache_dir(get),
            offline: flag(get, "RIVERRUN_MODELS_OFFLINE")?.unwrap_or(false),
        })
    }

    /// The provider that answers chats when none is named: a model server when its address is set, else this process.
    pub fn default_provider(&self) -> &'static str {
        if self.runtime_base_url.is_some() { "ollama" } else { "local" }
    }

    /// The address that the settings give a provider.
    pub(crate) fn address_of(&self, spec: &Spec) -> Option<&str> {
        let own = self.addresses.get(spec.name).map(String::as_str);
        own.or_else(|| self.runtime_base_url.as_deref().filter(|_| spec.name == "ollama"))
    }

    /// The key that the settings give a provider.
    pub(crate) fn key_of(&self, spec: &Spec) -> Option<&Secret> {
        self.keys.get(spec.name)
    }

    /// What the settings have requests to a provider carry beside the key.
    pub(crate) fn access_of(&self, spec: &Spec) -> Option<&Access> {
        self.access.get(spec.name)
    }

    /// The model that re-ranks when none is named: the one that is set, else that of a hosted re-ranker whose key is set, else the local one.
    pub fn rerank_model(&self) -> String {
        let hosted = || {
            let mut rows = PROVIDERS.iter().filter(|spec| self.keys.contains_key(spec.name));
            rows.find_map(|spec| Some(format!("{}/{}", spec.name, spec.reranker?)))
        };
        self.default_rerank_model.clone().or_else(hosted).unwrap_or_else(|| DEFAULT_RERANK_MODEL.to_owned())
    }

    /// Threads for in-process inference, at least 1.
    pub fn effective_threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
    }
}

/// `RIVERRUN_<PROVIDER>_BASE_URL`; that of Ollama is the model runtime's.
fn addresses(get: Lookup<'_>) -> Result<BTreeMap<String, String>, SettingError> {
    let mut addresses = BTreeMap::new();
    for spec in PROVIDERS.iter().filter(|spec| spec.name != "ollama") {
        if let Some(given) = address(get, &spec.address_setting())? {
            addresses.insert(spec.name.to_owned(), given);
        }
    }
    Ok(addresses)
}

/// `RIVERRUN_<PROVIDER>_API_KEY`, else what the maker's own programs read.
fn keys(get: Lookup<'_>) -> BTreeMap<String, Secret> {
    let held_by = |setting: &str| Secret::new(&get(setting)?);
    let key = |spec: &Spec| {
        let key = held_by(&spec.key_setting()).or_else(|| held_by(spec.makers_key_setting()?))?;
        Some((spec.name.to_owned(), key))
    };
    PROVIDERS.iter().filter_map(key).collect()
}

/// `RIVERRUN_MODELS_CACHE_DIR`, else the user's cache folder by the XDG rules.
fn cache_dir(get: Lookup<'_>) -> PathBuf {
    if let Some(dir) = text(get, "RIVERRUN_MODELS_CACHE_DIR") {
        return PathBuf::from(dir);
    }
    let base = text(get, "XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| text(get, "HOME").map(|home| Path::new(&home).join(".cache")))
        .unwrap_or_else(std::env::temp_dir);
    base.join("riverrun").join("models")
}

/// `RIVERRUN_HUB_TOKEN`, else what the hub's own programs read.
fn hub_token(get: Lookup<'_>) -> Option<Secret> {
    let held_by = |setting: &str| Secret::new(&get(setting)?);
    held_by("RIVERRUN_HUB_TOKEN").or_else(|| held_by("HF_TOKEN"))
}

/// `HF_HOME`, else the folder that the hub's own programs use.
fn hub_cache_dir(get: Lookup<'_>) -> Option<PathBuf> {
    let home = text(get, "HF_HOME").map(PathBuf::from);
    let home = home.or_else(|| text(get, "HOME").map(|home| Path::new(&home).join(".cache").join("huggingface")));
    home.map(|home| home.join("hub"))
}

fn text(get: Lookup<'_>, name: &str) -> Option<String> {
    get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn address(get: Lookup<'_>, name: &str) -> Result<Option<String>, SettingError> {
    let Some(value) = text(get, name) else { return Ok(None) };
    match reqwest::Url::parse(&value) {
        Ok(url) if has_more_than_a_place(&url) => Err(SettingError {
            name: name.to_owned(),
            value: without_keys(&value),
            expected: "an address without a name, a password, a query or a fragment: addresses are shown, and keys have settings of their own, RIVERRUN_<PROVIDER>_API_KEY, or _USER and _PASSWORD, or _HEADERS".into(),
        }),
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
            Ok(Some(value.trim_end_matches('/').to_owned()))
        }
        _ => Err(SettingError {
            name: name.to_owned(),
            value: without_keys(&value),
            expected: "an http or https address like http://127.0.0.1:11434".into(),
        }),
    }
}

/// Paths are put behind an address, and it is shown in listings, errors and logs: what else people write into one can't be there.
fn has_more_than_a_place(url: &reqwest::Url) -> bool {
    let named = !url.username().is_empty() || url.password().is_some();
    named || url.query().is_some() || url.fragment().is_some()
}

/// What was meant for an address, without the places where people put keys.
fn without_keys(value: &str) -> String {
    let (place, query) = match value.find(['?', '#']) {
        Some(at) => (&value[..at], "?***"),
        None => (value, ""),
    };
    match place.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}{query}"),
        None => format!("{place}{query}"),
    }
}

fn number(
    get: Lookup<'_>,
    name: &'static str,
    range: std::ops::RangeInclusive<usize>,
) -> Result<Option<usize>, SettingError> {
    let Some(value) = text(get, name) else { return Ok(None) };
    match usize::from_str(&value) {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => {
            let expected = format!("a whole number from {} to {}", range.start(), range.end()).into();
            Err(SettingError { name: name.to_owned(), value, expected })
        }
    }
}

fn millis(get: Lookup<'_>, name: &'static str) -> Result<Option<Duration>, SettingError> {
    let Some(value) = text(get, name) else { return Ok(None) };
    match u64::from_str(&value) {
        Ok(millis) if millis > 0 => Ok(Some(Duration::from_millis(millis))),
        _ => Err(SettingError { name: name.to_owned(), value, expected: "a positive number of milliseconds".into() }),
    }
}

fn flag(get: Lookup<'_>, name: &'static str) -> Result<Option<bool>, SettingError> {
    let Some(value) = text(get, name) else { return Ok(None) };
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(Some(true)),
        "0" | "false" | "no" | "off" => Ok(Some(false)),
        _ => Err(SettingError { name: name.to_owned(), value, expected: "true or false".into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<ModelSettings, SettingError> {
        let map: HashMap<String, String> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ModelSettings::from_env(&|name| map.get(name).cloned())
    }

    #[test]
    fn given_nothing_when_settings_are_read_then_everything_is_local() {
        let settings = read(&[("HOME", "/home/ann")]).unwrap();
        assert_eq!(settings.default_provider(), "local");
        assert_eq!(settings.default_embed_model, DEFAULT_EMBED_MODEL);
        assert_eq!(settings.cache_dir, Path::new("/home/ann/.cache/riverrun/models"));
        assert!(settings.effective_threads() >= 1);
    }

    #[test]
    fn given_a_runtime_address_when_settings_are_read_then_it_is_the_default_provider() {
        let settings = read(&[("RIVERRUN_MODEL_RUNTIME_BASE_URL", "http://127.0.0.1:11434/")]).unwrap();
        assert_eq!(settings.default_provider(), "ollama");
        assert_eq!(settings.runtime_base_url.as_deref(), Some("http://127.0.0.1:11434"));
    }

    #[test]
    fn given_a_number_out_of_its_range_when_settings_are_read_then_the_error_says_the_range() {
        for (name, value, range) in [
            ("RIVERRUN_MODEL_PARALLEL", "65", "from 1 to 64"),
            ("RIVERRUN_MODEL_CONTEXT_TOKENS", "255", "from 256 to 4194304"),
            ("RIVERRUN_MODEL_QUEUE", "many", "from 1 to 10000"),
            ("RIVERRUN_MODEL_REPETITION_TOKENS", "never", "from 0 to 1048576"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value) && error.contains(range), "{error}");
        }
    }

    #[test]
    fn given_unreadable_values_when_settings_are_read_then_the_error_names_the_setting() {
        for (name, value) in [
            ("RIVERRUN_MODEL_THREADS", "many"),
            ("RIVERRUN_MODEL_THREADS", "0"),
            ("RIVERRUN_MODEL_PARALLEL", "0"),
            ("RIVERRUN_MODEL_PARALLEL", "65"),
            ("RIVERRUN_MODEL_CONTEXT_TOKENS", "-1"),
            ("RIVERRUN_MODEL_TIMEOUT_MS", "0"),
            ("RIVERRUN_MODEL_RUNTIME_BASE_URL", "localhost:11434"),
            ("RIVERRUN_OPENAI_BASE_URL", "ftp://x"),
            ("RIVERRUN_MODELS_OFFLINE", "maybe"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert_eq!((error.name.as_str(), error.value.as_str()), (name, value));
            assert!(error.to_string().contains(name));
        }
    }

    #[test]
    fn given_an_address_with_a_key_in_it_when_it_is_read_then_it_is_refused_and_the_key_does_not_show() {
        for (name, value) in [
            ("RIVERRUN_MODEL_RUNTIME_BASE_URL", "http://ann:canary@models.example:11434"),
            ("RIVERRUN_OPENAI_BASE_URL", "https://canary@models.example/v1"),
            ("RIVERRUN_VLLM_BASE_URL", "http://models.example/v1?key=canary"),
            ("RIVERRUN_HUB_BASE_URL", "https://models.example/#canary"),
            ("RIVERRUN_GROQ_BASE_URL", "ftp://ann:canary@models.example"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(name) && shown.contains("models.example") && !shown.contains("canary"), "{shown}");
        }
    }

    #[test]
    fn given_keys_when_settings_are_printed_then_they_do_not_show() {
        for spec in PROVIDERS {
            let settings = read(&[(&spec.key_setting(), "sk-canary")]).unwrap();
            assert!(!format!("{settings:?}").contains("canary"));
            assert!(settings.key_of(spec).is_some(), "{}", spec.name);
        }
    }

    #[test]
    fn given_the_key_of_the_makers_programs_when_settings_are_read_then_it_counts_where_ours_is_not_set() {
        let makers = ("AWS_BEARER_TOKEN_BEDROCK", "theirs");
        let keys = |pairs: &[(&str, &str)]| read(pairs).unwrap().keys;
        assert_eq!(keys(&[makers])["bedrock"].expose(), "theirs");
        assert_eq!(keys(&[makers, ("RIVERRUN_BEDROCK_API_KEY", "ours")])["bedrock"].expose(), "ours");
        assert_eq!(keys(&[makers, ("RIVERRUN_BEDROCK_API_KEY", " ")])["bedrock"].expose(), "theirs");
        assert_eq!(keys(&[makers]).len(), 1);
    }

    #[test]
    fn given_a_token_of_the_hubs_programs_when_settings_are_read_then_it_counts_where_ours_is_not_set_and_never_shows()
    {
        let theirs = ("HF_TOKEN", " hf_canary \n");
        let token = |pairs: &[(&str, &str)]| {
            let settings = read(pairs).unwrap();
            assert!(!format!("{settings:?}").contains("canary"));
            settings.hub_token.map(|token| token.expose().to_owned())
        };
        assert_eq!(token(&[]), None);
        assert_eq!(token(&[theirs]).as_deref(), Some("hf_canary"));
        assert_eq!(token(&[theirs, ("RIVERRUN_HUB_TOKEN", "canary")]).as_deref(), Some("canary"));
        assert_eq!(token(&[theirs, ("RIVERRUN_HUB_TOKEN", " ")]).as_deref(), Some("hf_canary"));
    }

    #[test]
    fn given_the_key_of_a_hosted_reranker_when_none_is_named_then_it_reranks() {
        assert_eq!(read(&[]).unwrap().rerank_model(), DEFAULT_RERANK_MODEL);
        assert_eq!(read(&[("RIVERRUN_OPENAI_API_KEY", "k")]).unwrap().rerank_model(), DEFAULT_RERANK_MODEL);
        let cohere = ("RIVERRUN_COHERE_API_KEY", "k");
        assert_eq!(read(&[cohere]).unwrap().rerank_model(), "cohere/rerank-v3.5");
        assert_eq!(read(&[cohere, ("RIVERRUN_DEFAULT_RERANK_MODEL", "mine")]).unwrap().rerank_model(), "mine");
    }
}
