use std::sync::Arc;

use riverrun_agents::Policy;
use riverrun_agents::tools::Toolbox;
use riverrun_log::{BlobStore, Producer};
use riverrun_models::Models;
use riverrun_stores::Cache;

use super::places::Places;
use super::routing::AgentVectors;
use super::snapshots::Shelves;

/// What every run of this worker uses.
pub(super) struct AgentContext {
    /// Unique to this life of this process: the name in claims.
    pub(super) worker: String,
    pub(super) producer: Producer,
    pub(super) models: Models,
    pub(super) toolbox: Toolbox,
    pub(super) policy: Arc<Policy>,
    pub(super) blobs: Arc<dyn BlobStore>,
    pub(super) cache: Arc<dyn Cache>,
    /// What routing compares tasks with.
    pub(super) agent_vectors: AgentVectors,
    /// Who is driven at the same time.
    pub(super) places: Places,
}

impl AgentContext {
    /// Where folds of long runs are kept.
    pub(super) fn shelves(&self) -> Shelves<'_> {
        Shelves::new(self.blobs.as_ref(), self.cache.as_ref())
    }
}
