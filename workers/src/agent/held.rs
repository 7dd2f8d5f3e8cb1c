//! Commands of a newer version whose schema only an outside registry has: while it is asked for, or away, they and what is behind
//! them in their partitions wait. Other partitions and runs go on.

use riverrun_log::{GroupConsumer, LogError, Record, TopicPartition};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::Coordinator;

impl Coordinator {
    /// What of a batch can be accepted now. The partitions of the rest are paused, so no more than a batch is held.
    pub(super) fn hold_back(&mut self, group: &GroupConsumer, batch: Vec<Record>) -> Vec<Record> {
        let mut ready = Vec::with_capacity(batch.len());
        for record in batch {
            // What is not ours any more is left out by whoever accepts.
            let is_ours = self.partitions.contains_key(&record.partition);
            if let Some(held) = self.held.get_mut(&record.partition) {
                held.push(record);
            } else if !is_ours || self.config.schemas.is_settled(&record) {
                ready.push(record);
            } else {
                if let Err(error) = group.pause(&[record.topic_partition()]) {
                    tracing::debug!(position = %record.position(), error = %error, "a partition goes on being read");
                }
                let (schemas, asked) = (self.config.schemas.clone(), record.clone());
                self.asking.spawn(async move {
                    schemas.settle(&asked).await;
                    asked.topic_partition()
                });
                self.held.insert(record.partition, vec![record]);
            }
        }
        ready
    }

    /// A schema is there, or known to be nowhere: the commands that waited for it are accepted.
    pub(super) async fn on_schema(
        &mut self,
        group: &GroupConsumer,
        asked: Result<TopicPartition, JoinError>,
        stop: &CancellationToken,
    ) -> Result<(), LogError> {
        let partition = match asked {
            Ok(partition) => partition,
            Err(error) => return Err(LogError::Stopped(format!("the question for a schema ({error})"))),
        };
        // Not held any more: the partition went to another process.
        let Some(held) = self.held.remove(&partition.partition) else { return Ok(()) };
        let ready = self.hold_back(group, held);
        if !self.held.contains_key(&partition.partition)
            && let Err(error) = group.resume(std::slice::from_ref(&partition))
        {
            tracing::warn!(%partition, error = %error, "a partition is not read on");
        }
        self.on_commands(group, ready, stop).await?;
        // Whatever was told of the partition is accepted now, unless some of it waits again.
        if let Some(next) = group.position(&partition) {
            self.pass(&partition, next);
        }
        Ok(())
    }

    /// Before `next` there are no commands that were not told. While some are held, they are not accepted yet.
    pub(super) fn pass(&mut self, partition: &TopicPartition, next: i64) {
        if self.held.contains_key(&partition.partition) {
            return;
        }
        if let Some(state) = self.partitions.get_mut(&partition.partition)
            && next > state.next_command
        {
            state.next_command = next;
            state.note_due = true;
            self.progress.position(partition, next);
        }
    }
}
