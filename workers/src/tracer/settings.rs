//! `RIVERRUN_TRACING_*`: where traces go. A value that cannot be is no error of the program: runs work without tracing, so
//! it is told by `diagnose` and in the log instead.

use std::collections::BTreeMap;
use std::time::Duration;

use riverrun_models::Secret;
use url::Url;

/// Name of the project that traces are filed under when none is set.
pub const DEFAULT_PROJECT: &str = "riverrun";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_PATIENCE: Duration = Duration::from_secs(120);

/// Where Langfuse takes OTLP, and what every other service has for it.
const LANGFUSE_PATH: &str = "/api/public/otel/v1/traces";
const LANGFUSE_ROOT: &str = "/api/public/otel";
const TRACES_PATH: &str = "/v1/traces";

const ENDPOINT: &str = "RIVERRUN_TRACING_ENDPOINT";
const PUBLIC_KEY: &str = "RIVERRUN_TRACING_PUBLIC_KEY";
const SECRET_KEY: &str = "RIVERRUN_TRACING_SECRET_KEY";
const HEADERS: &str = "RIVERRUN_TRACING_HEADERS";
const PROJECT: &str = "RIVERRUN_TRACING_PROJECT";
const CONTENT: &str = "RIVERRUN_TRACING_CONTENT";
const TIMEOUT: &str = "RIVERRUN_TRACING_TIMEOUT_MS";
const PATIENCE: &str = "RIVERRUN_TRACING_PATIENCE_SECONDS";

/// Endings of the names of settings whose values are keys.
const SECRET_NAMES: [&str; 5] = ["_KEY", "_TOKEN", "_PASSWORD", "_SECRET", "_API_TOKENS"];

/// Beginning of the names of what stands for `${RIVERRUN_SOURCE_…}` in the addresses of sources.
const SOURCE_NAMES: &str = "RIVERRUN_SOURCE_";

/// A header's value or a password in an address of fewer bytes is a word, such as a team's name, and no key.
const LEAST_SECRET: usize = 8;

/// What the settings come to.
#[derive(Debug, Clone, Default)]
pub enum TracingSettings {
    /// No endpoint is set, nor what only has a meaning with one.
    #[default]
    Off,
    /// A value can't be.
    Misconfigured {
        /// What is wrong.
        reason: String,
        /// What to do.
        fix: String,
    },
    /// Traces are exported.
    On(Box<OtlpConfig>),
}

/// How to reach a service that speaks OTLP over HTTP.
#[derive(Debug, Clone)]
pub struct OtlpConfig {
    /// Where spans are posted to.
    pub endpoint: Url,
    /// Public and secret key, sent as basic authentication.
    pub keys: Option<(Secret, Secret)>,
    /// More headers of every request.
    pub headers: Vec<(String, Secret)>,
    /// What traces are filed under, where the service sorts by name.
    pub project: String,
    /// Whether tasks, answers, prompts' results, arguments and results of tools leave with the spans.
    pub content: bool,
    /// Longest time of a request.
    pub timeout: Duration,
    /// How long a service that is away is tried before spans are dropped.
    pub patience: Duration,
    /// Values that never leave, wherever they turn up.
    pub secrets: Vec<Secret>,
}

impl OtlpConfig {
    /// The usual limits, no keys, no content.
    pub fn new(endpoint: Url) -> Self {
        Self {
            endpoint,
            keys: None,
            headers: Vec::new(),
            project: DEFAULT_PROJECT.to_owned(),
            content: false,
            timeout: DEFAULT_TIMEOUT,
            patience: DEFAULT_PATIENCE,
            secrets: Vec::new(),
        }
    }

    /// Whether this is Langfuse's own path.
    pub(super) fn is_langfuse(&self) -> bool {
        self.endpoint.path().starts_with(LANGFUSE_ROOT)
    }
}

impl TracingSettings {
    /// The settings of tracing.
    pub const NAMES: [&'static str; 8] =
        [ENDPOINT, PUBLIC_KEY, SECRET_KEY, HEADERS, PROJECT, CONTENT, TIMEOUT, PATIENCE];

    /// From all `RIVERRUN_*` values: those of tracing, and the keys among the others, which are kept out of spans.
    pub fn from_values(values: &BTreeMap<String, String>) -> Self {
        let values = Values(values);
        let Some(endpoint) = values.text(ENDPOINT) else {
            // Who says what a service wants to see means one.
            return match [PUBLIC_KEY, SECRET_KEY, HEADERS].into_iter().find(|name| values.text(name).is_some()) {
                None => Self::Off,
                Some(name) => Self::Misconfigured {
                    reason: format!("{ENDPOINT} is not set, but {name} is"),
                    fix: format!("set {ENDPOINT}=https://… to the address of the service, or unset {name}"),
                },
            };
        };
        match values.otlp(&endpoint) {
            Ok(config) => Self::On(Box::new(config)),
            Err(Wrong { name, reason }) => {
                Self::Misconfigured { reason: format!("{name} {reason}"), fix: format!("correct or unset {name}") }
            }
        }
    }
}

/// A setting that can't be; values are not shown, since keys are among them.
struct Wrong {
    name: &'static str,
    reason: String,
}

fn wrong(name: &'static str, reason: impl Into<String>) -> Wrong {
    Wrong { name, reason: reason.into() }
}

struct Values<'v>(&'v BTreeMap<String, String>);

impl Values<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn otlp(&self, endpoint: &str) -> Result<OtlpConfig, Wrong> {
        let keys = self.keys()?;
        Ok(OtlpConfig {
            endpoint: traces_url(endpoint, keys.is_some())?,
            headers: self.headers()?,
            project: self.text(PROJECT).unwrap_or_else(|| DEFAULT_PROJECT.to_owned()),
            content: self.flag(CONTENT)?,
            timeout: Duration::from_millis(self.number(TIMEOUT, DEFAULT_TIMEOUT.as_millis() as u64, 100, 60_000)?),
            patience: Duration::from_secs(self.number(PATIENCE, DEFAULT_PATIENCE.as_secs(), 0, 240)?),
            secrets: self.secrets(),
            keys,
        })
    }

    fn keys(&self) -> Result<Option<(Secret, Secret)>, Wrong> {
        let key = |name| self.text(name).as_deref().and_then(Secret::new);
        match (key(PUBLIC_KEY), key(SECRET_KEY)) {
            (Some(public), Some(secret)) => Ok(Some((public, secret))),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(wrong(PUBLIC_KEY, format!("is not set, but {SECRET_KEY} is"))),
            (Some(_), None) => Err(wrong(SECRET_KEY, format!("is not set, but {PUBLIC_KEY} is"))),
        }
    }

    /// `name=value` pairs joined by commas, values percent-encoded: the form of `OTEL_EXPORTER_OTLP_HEADERS`.
    fn headers(&self) -> Result<Vec<(String, Secret)>, Wrong> {
        let text = self.text(HEADERS).unwrap_or_default();
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| {
                let (name, value) = pair.split_once('=').ok_or_else(|| wrong(HEADERS, "is no list of name=value"))?;
                let value = Secret::new(&percent_decoded(value))
                    .ok_or_else(|| wrong(HEADERS, format!("has no value for {}", name.trim())))?;
                Ok((name.trim().to_owned(), value))
            })
            .collect()
    }

    fn flag(&self, name: &'static str) -> Result<bool, Wrong> {
        match self.text(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(wrong(name, format!("is {other:?}, which is not true or false"))),
        }
    }

    fn number(&self, name: &'static str, default: u64, least: u64, most: u64) -> Result<u64, Wrong> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| wrong(name, format!("is {text:?}, which is not a number from {least} to {most}")))
    }

    fn secrets(&self) -> Vec<Secret> {
        let is_key =
            |name: &str| name.starts_with(SOURCE_NAMES) || SECRET_NAMES.iter().any(|ending| name.ends_with(ending));
        let keys = self.0.iter().filter(|(name, _)| is_key(name));
        let addresses = self.0.iter().filter(|(name, _)| name.ends_with("_URL"));
        let passwords = addresses.flat_map(|(_, value)| passwords_of(value));
        let passwords = passwords.filter(|word| word.len() >= LEAST_SECRET).filter_map(|word| Secret::new(&word));
        let headers = self.0.iter().filter(|(name, _)| name.ends_with("_HEADERS"));
        let pairs = headers.flat_map(|(_, value)| value.split(',')).filter_map(|pair| pair.split_once('='));
        let decoded = pairs.map(|(_, value)| percent_decoded(value));
        let sent = decoded.filter(|value| value.len() >= LEAST_SECRET).filter_map(|value| Secret::new(&value));
        keys.filter_map(|(_, value)| Secret::new(value)).chain(sent).chain(passwords).collect()
    }
}

/// The address that spans are posted to. An address without a path gets the one that fits: Langfuse's with keys, else that
/// of the OTLP standard; a base path gets `/v1/traces` behind it, as the standard's own setting does.
fn traces_url(text: &str, has_keys: bool) -> Result<Url, Wrong> {
    let mut url = Url::parse(text).map_err(|error| wrong(ENDPOINT, format!("is no address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong(ENDPOINT, "is no http:// or https:// address"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(ENDPOINT, format!("has a name or password in it; use {PUBLIC_KEY} and {SECRET_KEY}")));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    let path = match path.as_str() {
        "" if has_keys => LANGFUSE_PATH.to_owned(),
        path if path.ends_with(TRACES_PATH) => path.to_owned(),
        path => format!("{path}{TRACES_PATH}"),
    };
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
}

/// The password in an address of a database, as it is written there and as it is meant.
fn passwords_of(address: &str) -> Vec<String> {
    let written = Url::parse(address).ok().and_then(|url| url.password().map(str::to_owned));
    let meant = written.as_deref().map(percent_decoded);
    written.into_iter().chain(meant).collect()
}

fn percent_decoded(text: &str) -> String {
    url::form_urlencoded::parse(format!("v={}", text.trim().replace('+', "%2B").replace('&', "%26")).as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> TracingSettings {
        TracingSettings::from_values(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    fn on(pairs: &[(&str, &str)]) -> OtlpConfig {
        match read(pairs) {
            TracingSettings::On(config) => *config,
            other => panic!("{pairs:?} gave {other:?}"),
        }
    }

    #[test]
    fn given_no_endpoint_when_settings_are_read_then_tracing_is_off() {
        assert!(matches!(read(&[(PROJECT, "mine"), (CONTENT, "true"), (ENDPOINT, "  ")]), TracingSettings::Off));
        assert!(matches!(read(&[(SECRET_KEY, "  "), (HEADERS, "")]), TracingSettings::Off));
    }

    #[test]
    fn given_an_endpoint_when_it_is_read_then_its_path_is_the_one_that_fits() {
        let keys = [(PUBLIC_KEY, "pk-1"), (SECRET_KEY, "sk-1")];
        for (endpoint, with_keys, url) in [
            ("http://127.0.0.1:6006", false, "http://127.0.0.1:6006/v1/traces"),
            ("http://127.0.0.1:6006/", false, "http://127.0.0.1:6006/v1/traces"),
            ("http://127.0.0.1:6006/v1/traces", true, "http://127.0.0.1:6006/v1/traces"),
            ("https://cloud.langfuse.com", true, "https://cloud.langfuse.com/api/public/otel/v1/traces"),
            (
                "https://cloud.langfuse.com/api/public/otel",
                true,
                "https://cloud.langfuse.com/api/public/otel/v1/traces",
            ),
            ("https://otel.example/base/", false, "https://otel.example/base/v1/traces"),
        ] {
            let mut pairs = vec![(ENDPOINT, endpoint)];
            pairs.extend(with_keys.then_some(keys).into_iter().flatten());
            let config = on(&pairs);
            assert_eq!(config.endpoint.as_str(), url);
            assert_eq!(config.is_langfuse(), url.contains("/api/public/otel"));
        }
    }

    #[test]
    fn given_headers_when_they_are_read_then_values_are_percent_decoded_and_secret() {
        let config = on(&[(ENDPOINT, "http://a"), (HEADERS, "x-key=a%20b+c, authorization=Bearer%20abc=")]);
        let shown: Vec<_> = config.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(shown, [("x-key", "a b+c"), ("authorization", "Bearer abc=")]);
        assert!(!format!("{config:?}").contains("abc"));
    }

    #[test]
    fn given_values_that_can_not_be_when_they_are_read_then_tracing_says_which_and_shows_no_key() {
        for (name, pairs) in [
            (ENDPOINT, vec![(ENDPOINT, "localhost:6006")]),
            (ENDPOINT, vec![(ENDPOINT, "ftp://a/b")]),
            (ENDPOINT, vec![(ENDPOINT, "http://ann:canary@a/")]),
            (ENDPOINT, vec![(PUBLIC_KEY, "canary"), (SECRET_KEY, "canary")]),
            (ENDPOINT, vec![(ENDPOINT, "  "), (SECRET_KEY, "canary")]),
            (ENDPOINT, vec![(HEADERS, "x-key=canary")]),
            (PUBLIC_KEY, vec![(ENDPOINT, "http://a"), (SECRET_KEY, "canary")]),
            (SECRET_KEY, vec![(ENDPOINT, "http://a"), (PUBLIC_KEY, "canary")]),
            (HEADERS, vec![(ENDPOINT, "http://a"), (HEADERS, "canary")]),
            (CONTENT, vec![(ENDPOINT, "http://a"), (CONTENT, "yes")]),
            (TIMEOUT, vec![(ENDPOINT, "http://a"), (TIMEOUT, "1")]),
            (PATIENCE, vec![(ENDPOINT, "http://a"), (PATIENCE, "for ever")]),
        ] {
            let TracingSettings::Misconfigured { reason, fix } = read(&pairs) else { panic!("{pairs:?} was taken") };
            assert!(reason.contains(name) && fix.contains(name), "{pairs:?}: {reason}; {fix}");
            assert!(!format!("{reason}{fix}").contains("canary"), "{reason}");
        }
    }

    #[test]
    fn given_keys_of_other_parts_when_settings_are_read_then_they_are_known_as_secrets() {
        let config = on(&[
            (ENDPOINT, "http://a"),
            ("RIVERRUN_OPENAI_API_KEY", "one"),
            ("RIVERRUN_HUB_TOKEN", "two"),
            ("RIVERRUN_KAFKA_SASL_PASSWORD", "three"),
            ("RIVERRUN_VLLM_HEADERS", "x-gate=long%20enough,x-team=blue"),
            ("RIVERRUN_API_PORT", "8000"),
            ("RIVERRUN_DATABASE_URL", "postgres://ann:four%2Ffour@db.example/riverrun"),
            ("RIVERRUN_QDRANT_URL", "http://127.0.0.1:6333"),
            ("RIVERRUN_SOURCE_SHOP", "six"),
        ]);
        let mut secrets: Vec<_> = config.secrets.iter().map(Secret::expose).collect();
        secrets.sort_unstable();
        assert_eq!(secrets, ["four%2Ffour", "four/four", "long enough", "one", "six", "three", "two"]);
    }
}
