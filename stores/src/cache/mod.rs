//! What was computed once and may be needed again: in this process, or shared by several.
//!
//! - `CACHE-1` a cache is never truth: whatever it says can be computed again, and it may forget everything at any time.
//! - `CACHE-2` a cache never fails and never holds up: one that is away or slow knows nothing.

use std::time::Duration;

use async_trait::async_trait;

mod local;
mod redis_server;

pub use local::LocalCache;
pub use redis_server::{BadRedis, RedisCache, RedisConfig};

/// Largest value that is kept, in bytes; a larger one is computed again each time.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// How a cache is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStatus {
    /// `embedded` or `redis`.
    pub kind: &'static str,
    /// Where it is when that is a server, without a password.
    pub address: Option<String>,
    /// The server's version, when it told.
    pub version: Option<String>,
    /// Why it can't be used now; `None` when it can.
    pub trouble: Option<String>,
}

/// Values by key, and counted requests.
#[async_trait]
pub trait Cache: Send + Sync + 'static {
    /// What was kept; `None` when there is nothing, or when that can't be told now.
    async fn get(&self, key: &str) -> Option<Vec<u8>>;

    /// Keeps a value for at most so long. One that is too large, or that can't be kept now, is not kept.
    async fn put(&self, key: &str, value: Vec<u8>, keep: Duration);

    /// Takes one from a bucket that holds `per_minute` and is filled up again over a minute; where none is left, how long until
    /// there is one. `None` where buckets are not shared, or not now: then every process counts for itself. `per_minute` is not 0.
    async fn take(&self, bucket: &str, per_minute: u32) -> Option<Result<(), Duration>>;

    /// Whether other processes see what is kept.
    fn is_shared(&self) -> bool;

    /// Asks it, for `diagnose`.
    async fn status(&self) -> CacheStatus;
}
