use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use riverrun_agents::Policy;
use riverrun_agents::tools::Toolbox;
use riverrun_log::{BlobStore, Producer};
use riverrun_models::Models;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::routing::AgentVectors;

/// What every run of this worker uses.
pub(super) struct AgentContext {
    /// Unique to this life of this process: the name in claims.
    pub(super) worker: String,
    pub(super) producer: Producer,
    pub(super) models: Models,
    pub(super) toolbox: Toolbox,
    pub(super) policy: Arc<Policy>,
    pub(super) blobs: Arc<dyn BlobStore>,
    /// What routing compares tasks with.
    pub(super) agent_vectors: AgentVectors,
    /// A permit a run that is driven.
    pub(super) turns: Arc<Semaphore>,
}

/// A place among the runs that wait to be driven.
pub(super) type Turn = BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>;

impl AgentContext {
    /// The next place in the queue. It counts from now on, not from when it is first waited for: drivers are tasks, which
    /// begin in any order.
    pub(super) fn turn(&self) -> Turn {
        let mut turn = self.turns.clone().acquire_owned().boxed();
        match (&mut turn).now_or_never() {
            Some(permit) => std::future::ready(permit).boxed(),
            None => turn,
        }
    }

    /// Nobody's turn comes any more. Drivers let go one after the other: the turn of one would go to another that waits,
    /// which would claim its run for a worker that is gone.
    pub(super) fn end_turns(&self) {
        self.turns.close();
    }
}
