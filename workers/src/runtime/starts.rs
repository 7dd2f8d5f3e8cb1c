//! Where a worker begins on partitions that it was given.

use std::sync::Arc;

use riverrun_log::{AssignedPartition, StartAt, TopicPartition};

use super::{Context, RuntimeConfig, RuntimeError, WorkError, Worker, backoff};

/// Partitions with where to begin on each.
pub(super) type Starts = Vec<(TopicPartition, StartAt)>;

/// Asks the worker where to start; what may pass is tried until it does.
pub(super) async fn starts<W: Worker>(
    worker: Arc<W>,
    context: Arc<Context>,
    config: Arc<RuntimeConfig>,
    partitions: Vec<AssignedPartition>,
) -> Result<Starts, RuntimeError> {
    let mut failures = 0;
    loop {
        match worker.assigned(&partitions, &context).await {
            Ok(starts) => return Ok(starts),
            Err(WorkError::Retry { code, reason }) => {
                failures += 1;
                tracing::warn!(
                    group = context.group,
                    code,
                    reason,
                    failures,
                    "worker can't take its partitions; trying again"
                );
                tokio::time::sleep(backoff::draw(config.backoff_base, config.backoff_max, failures)).await;
            }
            Err(WorkError::Poison { code, reason } | WorkError::Fatal { code, reason }) => {
                return Err(RuntimeError::Fatal { worker: worker.name().to_owned(), code, reason });
            }
        }
    }
}
