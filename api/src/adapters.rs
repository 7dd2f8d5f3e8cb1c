//! The adapters of collections that are tuned, for searches.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use riverrun_knowledge::retrieval::{AdapterFailure, QueryAdapter, QueryAdapters};
use riverrun_log::BlobStore;
use riverrun_stores::read_models::tunings;
use riverrun_stores::{CollectionInfo, Sql};

/// Most bytes of adapters that are kept in memory; one is kept in any case.
const MAX_BYTES: usize = 64 << 20;

/// Adapters as the read models name them. What was read from the blobs is kept, by its hash.
pub(crate) struct StoredAdapters {
    sql: Sql,
    blobs: Arc<dyn BlobStore>,
    /// Last used last.
    kept: Mutex<VecDeque<(String, Arc<QueryAdapter>)>>,
}

impl StoredAdapters {
    pub(crate) fn new(sql: Sql, blobs: Arc<dyn BlobStore>) -> Self {
        Self { sql, blobs, kept: Mutex::default() }
    }

    fn find(&self, sha256: &str) -> Option<Arc<QueryAdapter>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(key, _)| key == sha256)?;
        let found = kept.remove(at)?;
        let adapter = found.1.clone();
        kept.push_back(found);
        Some(adapter)
    }

    fn keep(&self, sha256: String, adapter: Arc<QueryAdapter>) {
        let mut kept = self.kept.lock();
        kept.retain(|(key, _)| *key != sha256);
        kept.push_back((sha256, adapter));
        let mut bytes: usize = kept.iter().map(|(_, adapter)| adapter.size()).sum();
        while bytes > MAX_BYTES && kept.len() > 1 {
            bytes -= kept.pop_front().map_or(0, |(_, adapter)| adapter.size());
        }
    }
}

#[async_trait]
impl QueryAdapters for StoredAdapters {
    async fn of(&self, info: &CollectionInfo) -> Result<Option<Arc<QueryAdapter>>, AdapterFailure> {
        let failure = |error: &dyn std::fmt::Display| AdapterFailure(error.to_string());
        let known = tunings::adapter(&self.sql, &info.collection).await.map_err(|error| failure(&error))?;
        let Some(known) = known else { return Ok(None) };
        if known.embed_model != info.model {
            let (tuned, model) = (known.embed_model, &info.model);
            return Err(AdapterFailure(format!(
                "the collection was tuned with {tuned:?} and has {model:?} now; tune it again"
            )));
        }
        if let Some(adapter) = self.find(&known.matrix.sha256) {
            return Ok(Some(adapter));
        }
        let bytes = self.blobs.get(&known.matrix).await.map_err(|error| failure(&error))?;
        let Some(adapter) = QueryAdapter::from_bytes(info.dimensions, &bytes) else {
            return Err(AdapterFailure(format!(
                "blob {:?} is no adapter for {} dimensions",
                known.matrix.sha256, info.dimensions
            )));
        };
        let adapter = Arc::new(adapter);
        self.keep(known.matrix.sha256, adapter.clone());
        Ok(Some(adapter))
    }
}
