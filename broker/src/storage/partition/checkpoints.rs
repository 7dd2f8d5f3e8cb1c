//! When the active segment of a partition is described on the disk.

use std::time::Duration;

use super::Partition;
use crate::clock::now_ms;

impl Partition {
    /// Writes the checkpoint of the active segment, so that the next start need not scan it. Blocks.
    pub(crate) fn checkpoint(&self) {
        let _writer = self.writer.lock();
        let Some((path, checkpoint)) = self.state.lock().checkpoint() else { return };
        let written = checkpoint.write(&**self.shared.files.disk(), &path);
        let mut state = self.state.lock();
        match written {
            Ok(()) => {
                // The writer lock has kept the segment as it was described.
                state.uncheckpointed_since_ms = None;
                if let Some(active) = state.segments.last_mut() {
                    active.checkpointed = checkpoint.size;
                }
            }
            Err(error) => {
                // Another interval passes before it is tried again.
                state.uncheckpointed_since_ms = state.uncheckpointed_since_ms.map(|_| now_ms());
                tracing::warn!(partition = %self.name, error = %error, "checkpoint not written, a start scans the segment");
            }
        }
    }

    /// The same once much has come since the last one, or anything has been there without one for `interval`, so that a start
    /// after a crash reads little of each partition, and nothing of those at rest.
    pub(crate) fn checkpoint_if_due(&self, now: i64, interval: Duration) {
        let interval_ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
        // Nobody who writes waits for this look.
        if self.state.lock().is_checkpoint_due(now, interval_ms) {
            self.checkpoint();
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::storage::recovery::{Recovered, recover};
    use crate::storage::segment::Checkpoint;
    use crate::storage::test_log::{append, disk, folder, open};

    const MINUTE: Duration = Duration::from_secs(60);

    /// How far the only segment is described, and takes the description away.
    fn take_checkpoint(place: &TempDir) -> Option<i64> {
        let path = folder(place).join("00000000000000000000-0.idx");
        let found = Checkpoint::read(&*disk(), &path).map(|checkpoint| checkpoint.end_offset);
        let _ = std::fs::remove_file(path);
        found
    }

    #[test]
    fn given_few_small_records_when_a_minute_passes_then_they_are_checkpointed_once() {
        let place = TempDir::new().unwrap();
        let partition = open(&place, Recovered::default(), &[]);
        let later = || now_ms() + 60_000;
        partition.checkpoint_if_due(later(), MINUTE);
        assert_eq!(take_checkpoint(&place), None, "nothing is there");
        append(&partition, b'a', None);
        partition.checkpoint_if_due(now_ms(), MINUTE);
        assert_eq!(take_checkpoint(&place), None, "the minute is not over");
        partition.checkpoint_if_due(later(), MINUTE);
        assert_eq!(take_checkpoint(&place), Some(1));
        partition.checkpoint_if_due(later(), MINUTE);
        assert_eq!(take_checkpoint(&place), None, "nothing has come since");
        append(&partition, b'b', None);
        partition.checkpoint_if_due(later(), MINUTE);
        assert_eq!(take_checkpoint(&place), Some(2));
        drop(partition);
        // As after a crash: what a start has scanned is to be described, too.
        let recovered = recover(&disk(), &folder(&place)).unwrap();
        let partition = open(&place, recovered, &[]);
        partition.checkpoint_if_due(later(), MINUTE);
        assert_eq!(take_checkpoint(&place), Some(2));
    }
}
