//! Speaking with a registry: one question, one answer, with limits.
//! <https://docs.confluent.io/platform/current/schema-registry/develop/api.html>

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Certificate, Client, Method, Response, redirect};
use riverrun_schemas::codec::WriterSchema;
use riverrun_schemas::registry;
use serde_json::Value;

use super::{RegistryError, SchemaSource, Schemas, enrol};

const CONNECT: Duration = Duration::from_secs(2);
/// For a whole answer.
const ANSWER: Duration = Duration::from_secs(5);
/// No answer is larger; a schema is a few kilobytes.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Of what a registry says in an error.
const MAX_REASON_CHARS: usize = 500;
const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";

/// Who asks a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Anybody may.
    None,
    /// A name and its password, which is what Confluent's keys are too.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Bearer(String),
}

/// Which registry, and the key to it.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryConfig {
    /// What stands in front of `/subjects`: `http://host:8081`, or `http://host:8081/contexts/.riverrun` for a context of it.
    pub url: String,
    /// Who asks.
    pub credentials: Credentials,
    /// Authorities that its certificate may come from besides those of the system, as PEM.
    pub ca_pem: Option<Vec<u8>>,
}

/// Without the key.
impl fmt::Debug for RegistryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryConfig").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A registry outside. Clones share one connection.
#[derive(Clone)]
pub struct SchemaRegistry {
    inner: Arc<Inner>,
}

struct Inner {
    http: Client,
    address: String,
    credentials: Credentials,
}

/// How a registry is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryStatus {
    /// Its version, where it tells.
    pub version: Option<String>,
    /// What is wrong.
    pub trouble: Option<RegistryError>,
}

/// What a registry said, whatever the status. Those that mean "not now" and "not you" are errors before it comes to this.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The registry's own number of an error; 0 without one.
    pub(super) fn code(&self) -> u64 {
        self.body["error_code"].as_u64().unwrap_or(0)
    }

    /// What it says of an error.
    pub(super) fn reason(&self) -> String {
        let said = self.body["message"].as_str().unwrap_or("no reason given");
        let said: String = said.chars().take(MAX_REASON_CHARS).collect();
        match self.code() {
            0 => format!("status {}: {said}", self.status),
            code => format!("{code}: {said}"),
        }
    }

    /// Nothing is there under that name. A 404 without the registry's number comes from something else on the way.
    pub(super) fn is_absent(&self) -> bool {
        self.status == 404 && (40401..=40499).contains(&self.code())
    }

    pub(super) fn refused(&self, doing: impl Into<String>) -> RegistryError {
        RegistryError::Refused { doing: doing.into(), reason: self.reason() }
    }
}

impl SchemaRegistry {
    /// A client; connects when it is first used.
    pub fn open(config: &RegistryConfig) -> Result<Self, RegistryError> {
        Self::open_with(config, ANSWER)
    }

    pub(super) fn open_with(config: &RegistryConfig, patience: Duration) -> Result<Self, RegistryError> {
        let address = config.url.trim_end_matches('/').to_owned();
        let failed =
            |error: reqwest::Error| RegistryError::Client { address: address.clone(), reason: reason_of(&error) };
        let mut builder = Client::builder()
            .user_agent(concat!("riverrun/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .timeout(patience)
            // Credentials go to this address and no other.
            .redirect(redirect::Policy::none());
        if let Some(pem) = &config.ca_pem {
            builder = builder.tls_certs_merge(Certificate::from_pem_bundle(pem).map_err(failed)?);
        }
        let http = builder.build().map_err(failed)?;
        Ok(Self { inner: Arc::new(Inner { http, address, credentials: config.credentials.clone() }) })
    }

    /// Sees to it that the registry knows every schema of this build under its id, and reads with it from now on. Waits some
    /// seconds for a registry that is just starting; doing it again changes nothing.
    pub async fn join(config: &RegistryConfig) -> Result<Schemas, RegistryError> {
        let registry = Self::open(config)?;
        enrol::patiently(&registry).await?;
        Ok(Schemas::with_registry(registry))
    }

    /// Where it is, without credentials.
    pub fn address(&self) -> &str {
        &self.inner.address
    }

    /// Asks for the newest schema of this build, and for the version of the server.
    pub async fn status(&self) -> RegistryStatus {
        let trouble = match registry::all().last() {
            Some(newest) => enrol::check_id(self, newest).await.err(),
            None => None,
        };
        let version = match &trouble {
            Some(RegistryError::Away { .. }) => None,
            _ => self.version().await,
        };
        RegistryStatus { version, trouble }
    }

    /// Confluent's tells it.
    async fn version(&self) -> Option<String> {
        let answer = self.get("/v1/metadata/version").await.ok()?;
        answer.body["version"].as_str().filter(|_| answer.is_ok()).map(str::to_owned)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Answer, RegistryError> {
        self.request(Method::GET, path, None).await
    }

    pub(super) async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, RegistryError> {
        let inner = &*self.inner;
        let mut request = inner.http.request(method, format!("{}{path}", inner.address)).header("accept", CONTENT_TYPE);
        request = match &inner.credentials {
            Credentials::None => request,
            Credentials::Basic { user, password } => request.basic_auth(user, Some(password)),
            Credentials::Bearer(token) => request.bearer_auth(token),
        };
        if let Some(body) = body {
            request = request.header("content-type", CONTENT_TYPE).body(body.to_string());
        }
        let response = request.send().await.map_err(|error| self.away(reason_of(&error)))?;
        self.understand(response).await
    }

    async fn understand(&self, response: Response) -> Result<Answer, RegistryError> {
        let address = self.inner.address.clone();
        let status = response.status().as_u16();
        match status {
            401 | 403 => return Err(RegistryError::Unauthorized { address, status }),
            408 | 429 | 500.. => return Err(self.away(format!("status {status}"))),
            _ => {}
        }
        let bytes = self.read(response).await?;
        // Errors of what stands in front of a registry are no JSON: their status says enough.
        match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(Answer { status, body }),
            Err(_) if status >= 300 || bytes.is_empty() => Ok(Answer { status, body: Value::Null }),
            Err(error) => Err(RegistryError::NotARegistry { address, reason: format!("no JSON: {error}") }),
        }
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, RegistryError> {
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.away(reason_of(&error)))? {
            if bytes.len() + piece.len() > MAX_ANSWER_BYTES {
                let reason = format!("an answer of more than {MAX_ANSWER_BYTES} bytes");
                return Err(RegistryError::NotARegistry { address: self.inner.address.clone(), reason });
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    fn away(&self, reason: String) -> RegistryError {
        RegistryError::Away { address: self.inner.address.clone(), reason }
    }
}

impl fmt::Debug for SchemaRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaRegistry").field("address", &self.inner.address).finish_non_exhaustive()
    }
}

#[async_trait]
impl SchemaSource for SchemaRegistry {
    async fn schema(&self, id: u32) -> Result<Option<WriterSchema>, RegistryError> {
        let answer = self.get(&format!("/schemas/ids/{id}")).await?;
        if answer.is_absent() {
            return Ok(None);
        }
        match answer.body["schema"].as_str().filter(|_| answer.is_ok()) {
            Some(text) => Ok(read_schema(id, text)),
            None if answer.is_ok() => Err(RegistryError::NotARegistry {
                address: self.inner.address.clone(),
                reason: format!("schema id {id} has no text"),
            }),
            None => Err(answer.refused(format!("give schema id {id}"))),
        }
    }
}

/// What is no Avro schema of itself is nobody's schema here: no build of riverrun writes such.
fn read_schema(id: u32, text: &str) -> Option<WriterSchema> {
    match WriterSchema::parse(text) {
        Ok(schema) => Some(schema),
        Err(error) => {
            tracing::warn!(id, error, "a schema of the registry is no Avro schema");
            None
        }
    }
}

/// The last cause says most; the address is told beside it, and never with what it may hold.
fn reason_of(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
