//! What leaves a partition: old segments, records below a new start, the whole of it.

use kafka_protocol::ResponseError;

use super::Partition;
use super::state::Health;
use crate::storage::segment::Segment;

/// After this time without appends the batches kept for readers at the tail are dropped.
const TAIL_IDLE_MS: i64 = 10_000;

impl Partition {
    /// Nothing is taken or served any more; everyone who waits is told.
    pub(crate) fn mark_deleted(&self) {
        let mut state = self.state.lock();
        state.health = Health::Deleted;
        state.pending.clear();
        state.refuse_waiters(ResponseError::UnknownTopicOrPartition);
        state.tail.clear();
        state.wake_fetchers();
        for segment in &state.segments {
            self.shared.files.forget(segment.id);
        }
    }

    /// Returns when no write is in progress. Blocks.
    pub(crate) fn wait_for_writer(&self) {
        drop(self.writer.lock());
    }

    /// Moves the start of the log forward and returns it; -1 means the high watermark. Files are removed by retention.
    pub(crate) fn delete_before(&self, offset: i64) -> Result<i64, ResponseError> {
        let mut state = self.state.lock();
        let offset = if offset == -1 { state.high_watermark } else { offset };
        if offset < 0 || offset > state.high_watermark {
            return Err(ResponseError::OffsetOutOfRange);
        }
        state.log_start = state.log_start.max(offset);
        Ok(state.log_start)
    }

    /// Rolls the active segment when its time has come, and removes old segments. Blocks.
    pub(crate) fn enforce_retention(&self, now: i64, producers_idle_before_ms: i64) {
        let _writer = self.writer.lock();
        let config = self.config();
        if self.state.lock().must_roll_by_time(now, &config)
            && let Err(error) = self.roll()
        {
            tracing::warn!(partition = %self.name, error = %error, "segment not rolled");
        }
        let removed = {
            let mut state = self.state.lock();
            if now - state.last_append_ms > TAIL_IDLE_MS {
                state.forget_tail_before(i64::MAX);
            }
            state.remove_expired(now, &config, producers_idle_before_ms)
        };
        let left = self.remove_in_order(removed);
        // They lie before the start of the log, so the next pass tries them again, and before any later segment.
        self.state.lock().segments.splice(0..0, left);
    }

    /// Removes segments one after the other and no further after a failure, or a crash could leave a gap between two of them,
    /// which looks like damage. Returns those that are left.
    fn remove_in_order(&self, mut segments: Vec<Segment>) -> Vec<Segment> {
        let mut gone = 0;
        for segment in &segments {
            if !self.remove_files(segment) {
                break;
            }
            gone += 1;
            if let Err(error) = self.shared.files.disk().sync_dir(&self.folder) {
                tracing::warn!(partition = %self.name, error = %error, "removal of a segment not synced");
                break;
            }
        }
        segments.split_off(gone)
    }

    /// Removes a segment that is not part of the log any more; whether it is gone.
    pub(in crate::storage) fn remove_files(&self, segment: &Segment) -> bool {
        self.shared.files.forget(segment.id);
        let removed = segment.remove(&**self.shared.files.disk());
        match &removed {
            Ok(()) => tracing::debug!(partition = %self.name, file = %segment.path.display(), "segment removed"),
            Err(error) => {
                tracing::warn!(partition = %self.name, file = %segment.path.display(), error = %error, "segment not removed");
            }
        }
        removed.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use crate::storage::recovery::Recovered;
    use crate::storage::test_log::{append, open};

    #[test]
    fn given_an_open_transaction_when_its_beginning_is_deleted_then_no_end_of_the_log_lies_before_its_start() {
        let place = TempDir::new().unwrap();
        let partition = open(&place, Recovered::default(), &[]);
        append(&partition, b'a', None);
        append(&partition, b'b', Some(0));
        append(&partition, b'c', None);
        assert_eq!(partition.bounds().last_stable, 1);
        assert_eq!(partition.delete_before(2), Ok(2));
        let bounds = partition.bounds();
        assert_eq!((bounds.log_start, bounds.last_stable, bounds.high_watermark), (2, 2, 3));
    }
}
