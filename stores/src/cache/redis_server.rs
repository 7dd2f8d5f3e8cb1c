//! The cache that several processes share: a Redis server.

use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, RedisResult, TlsCertificates};
use tokio_rustls::rustls::crypto::aws_lc_rs;

use super::{Cache, CacheStatus, MAX_VALUE_BYTES};

/// How long the server may take, a new connection included.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same with a new connection by TLS: every authority of the system is read for it.
const TLS_PATIENCE: Duration = Duration::from_millis(250);
/// The same where somebody asks how it is.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);
/// How long it is left alone after it failed: then it costs one patience in this time, not one a request.
const REST: Duration = Duration::from_secs(1);
/// Before each key: a server may be shared with others.
const PREFIX: &str = "riverrun:";

/// A token bucket, by the server's own clock, in one step. Answers the milliseconds to wait, 0 when one was taken. A bucket that nobody
/// asks for is full after a minute, and so is one that is not there.
const TAKE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rate = tonumber(ARGV[1])
local kept = redis.call('HMGET', KEYS[1], 'left', 'at', 'rate')
local left, at = tonumber(kept[1] or ''), tonumber(kept[2] or '')
if not left or not at or tonumber(kept[3] or '') ~= rate then left, at = rate, now end
left = math.min(rate, left + math.max(0, now - at) * rate / 60000)
local wait = 0
if left >= 1 then left = left - 1 else wait = math.max(1, math.ceil((1 - left) * 60000 / rate)) end
redis.call('HSET', KEYS[1], 'left', string.format('%.6f', left), 'at', string.format('%.0f', now), 'rate', ARGV[1])
redis.call('PEXPIRE', KEYS[1], 61000)
return wait
";

/// Scheme of an address whose server is spoken to by TLS.
const TLS_SCHEME: &str = "rediss://";

/// Which Redis server.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Such as `redis://:password@host:6379/0`, or `rediss://` for TLS.
    pub url: String,
    /// The authorities that its certificate may come from, as PEM; `None` has those of the system.
    pub ca_pem: Option<Vec<u8>>,
}

/// Without the address, which may hold a password.
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig").field("tls", &self.is_tls()).finish_non_exhaustive()
    }
}

impl RedisConfig {
    fn is_tls(&self) -> bool {
        self.url.starts_with(TLS_SCHEME)
    }
}

/// What is none of a Redis server. The address is not shown: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRedis {
    /// The address is none.
    #[error("the address of the Redis server can't be read: {reason}")]
    Url {
        /// What kind of mistake it is.
        reason: String,
    },
    /// The certificates of authorities are none.
    #[error("the certificates of the authorities for the Redis server can't be read: {reason}")]
    Authorities {
        /// What is wrong with them.
        reason: String,
    },
    /// Authorities without TLS would go unused in silence.
    #[error("authorities for the Redis server are named, and its address does not begin with rediss://")]
    AuthoritiesWithoutTls,
}

/// A Redis server that is asked for at most 50 ms (250 ms with a new connection by TLS) and left alone for a second when it did not
/// answer.
pub struct RedisCache {
    client: Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Until then it is not asked.
    rests_until: Option<Instant>,
}

impl RedisCache {
    /// Connects when it is needed, and again when the connection is lost.
    ///
    /// # Errors
    /// When the address is none, such as `redis://:password@host:6379/0`, or the authorities are none.
    pub fn open(config: &RedisConfig) -> Result<Self, BadRedis> {
        let client =
            Client::open(config.url.as_str()).map_err(|error| BadRedis::Url { reason: error.category().to_owned() })?;
        if config.is_tls() {
            choose_cryptography();
        } else if config.ca_pem.is_some() {
            return Err(BadRedis::AuthoritiesWithoutTls);
        }
        let client = match &config.ca_pem {
            Some(pem) => trusting(&config.url, pem)?,
            None => client,
        };
        Ok(Self { client, state: Mutex::default() })
    }

    /// The answer to a command; `None` when the server rests or fails.
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        if self.state.lock().rests_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        self.ask_now(command, self.patience()).await.ok()
    }

    fn patience(&self) -> Duration {
        let is_connected = self.state.lock().connection.is_some();
        if is_connected || !self.is_tls() { PATIENCE } else { TLS_PATIENCE }
    }

    /// The same also of one that rests, with the reason.
    async fn ask_now<T: FromRedisValue>(&self, command: &Cmd, patience: Duration) -> Result<T, String> {
        let answered = async {
            let mut connection = self.connection().await?;
            command.query_async::<T>(&mut connection).await
        };
        let trouble = match tokio::time::timeout(patience, answered).await {
            Ok(Ok(answer)) => {
                self.came_back();
                return Ok(answer);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} ms", patience.as_millis()),
        };
        self.rest(&trouble);
        Err(trouble)
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let kept = self.state.lock().connection.clone();
        if let Some(connection) = kept {
            return Ok(connection);
        }
        // Its own times are longer than ours, which ends both.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(STATUS_PATIENCE))
            .set_response_timeout(Some(STATUS_PATIENCE));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        self.state.lock().connection = Some(connection.clone());
        Ok(connection)
    }

    fn came_back(&self) {
        let mut state = self.state.lock();
        if state.rests_until.take().is_some() {
            tracing::info!("the Redis server answers again");
        }
    }

    fn rest(&self, trouble: &str) {
        let mut state = self.state.lock();
        state.connection = None;
        if state.rests_until.replace(Instant::now() + REST).is_none() {
            tracing::warn!(trouble, "the Redis server does not answer; going on without it");
        }
    }

    fn address(&self) -> String {
        let scheme = if self.is_tls() { TLS_SCHEME } else { "redis://" };
        format!("{scheme}{}", self.client.get_connection_info().addr())
    }

    fn is_tls(&self) -> bool {
        matches!(self.client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
    }
}

/// A client that trusts these authorities and no others.
fn trusting(url: &str, ca_pem: &[u8]) -> Result<Client, BadRedis> {
    let certificates = TlsCertificates { client_tls: None, root_cert: Some(ca_pem.to_vec()) };
    Client::build_with_tls(url, certificates).map_err(|error| BadRedis::Authorities { reason: error.to_string() })
}

/// Two kinds of cryptography are built in, and the client of Redis leaves the choice to the process.
fn choose_cryptography() {
    if aws_lc_rs::default_provider().install_default().is_err() {
        tracing::debug!("the process has its cryptography for TLS already");
    }
}

#[async_trait]
impl Cache for RedisCache {
    async fn get(&self, key: &str) -> Option<Vec<u8>> {
        let mut command = redis::cmd("GET");
        command.arg(format!("{PREFIX}{key}"));
        self.ask::<Option<Vec<u8>>>(&command).await.flatten()
    }

    async fn put(&self, key: &str, value: Vec<u8>, keep: Duration) {
        if value.len() > MAX_VALUE_BYTES {
            return;
        }
        let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut command = redis::cmd("SET");
        command.arg(format!("{PREFIX}{key}")).arg(value.as_slice()).arg("PX").arg(keep_ms);
        let _kept: Option<()> = self.ask(&command).await;
    }

    async fn take(&self, bucket: &str, per_minute: u32) -> Option<Result<(), Duration>> {
        let mut command = redis::cmd("EVAL");
        command.arg(TAKE).arg(1).arg(format!("{PREFIX}rate:{bucket}")).arg(per_minute);
        let wait_ms: u64 = self.ask(&command).await?;
        Some(if wait_ms == 0 { Ok(()) } else { Err(Duration::from_millis(wait_ms)) })
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn status(&self) -> CacheStatus {
        let mut command = redis::cmd("INFO");
        command.arg("server");
        let told = self.ask_now::<String>(&command, STATUS_PATIENCE).await;
        let version = |text: &String| {
            text.lines().find_map(|line| line.strip_prefix("redis_version:")).map(|version| version.trim().to_owned())
        };
        CacheStatus {
            kind: "redis",
            address: Some(self.address()),
            version: told.as_ref().ok().and_then(version),
            trouble: told.err(),
        }
    }
}
