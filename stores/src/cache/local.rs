//! The cache of one process.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use moka::sync::Cache as Moka;

use super::{Cache, CacheStatus, MAX_VALUE_BYTES};

/// Most bytes of keys and values; what was used least goes first.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Clone)]
struct Held {
    value: Vec<u8>,
    until: Instant,
}

/// Keeps values in the memory of this process, 64 MiB at most.
pub struct LocalCache {
    values: Moka<String, Held>,
}

impl Default for LocalCache {
    fn default() -> Self {
        let weight = |key: &String, held: &Held| u32::try_from(key.len() + held.value.len()).unwrap_or(u32::MAX);
        Self { values: Moka::builder().max_capacity(MAX_BYTES).weigher(weight).build() }
    }
}

#[async_trait]
impl Cache for LocalCache {
    async fn get(&self, key: &str) -> Option<Vec<u8>> {
        let held = self.values.get(key)?;
        if held.until <= Instant::now() {
            self.values.invalidate(key);
            return None;
        }
        Some(held.value)
    }

    async fn put(&self, key: &str, value: Vec<u8>, keep: Duration) {
        if value.len() <= MAX_VALUE_BYTES
            && let Some(until) = Instant::now().checked_add(keep)
        {
            self.values.insert(key.to_owned(), Held { value, until });
        }
    }

    async fn take(&self, _bucket: &str, _per_minute: u32) -> Option<Result<(), Duration>> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn status(&self) -> CacheStatus {
        CacheStatus { kind: "embedded", address: None, version: None, trouble: None }
    }
}
