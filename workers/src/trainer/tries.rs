//! Which failures of a training are tried again, and how often.

use std::collections::HashMap;

use parking_lot::Mutex;
use riverrun_schemas::{Failure, FinetuneId};
use riverrun_training::TrainingError;

use super::failure;

/// Tries of a training that fails for something that may pass: with up to a minute between them, about three quarters of an hour.
pub(super) const MAX_TRIES: u32 = 60;

/// What follows from a failure.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// It goes on from its last checkpoint after a pause.
    Again,
    /// It has failed.
    Failed(Failure),
}

/// Tries of the trainings that have failed and may yet succeed.
#[derive(Debug, Default)]
pub(super) struct Tries(Mutex<HashMap<FinetuneId, u32>>);

impl Tries {
    /// Counts a failure. `begun` says whether there is a checkpoint to go on from: without one, another try would be the whole
    /// training again.
    pub(super) fn verdict(&self, job_id: FinetuneId, error: &TrainingError, begun: bool) -> Verdict {
        if !begun || !may_pass(error) {
            return Verdict::Failed(failure(error));
        }
        let mut all = self.0.lock();
        let failures = all.entry(job_id).or_default();
        *failures += 1;
        if *failures < MAX_TRIES { Verdict::Again } else { Verdict::Failed(given_up(error)) }
    }

    /// The training has ended.
    pub(super) fn forget(&self, job_id: FinetuneId) {
        self.0.lock().remove(&job_id);
    }
}

/// Whether making room, on the disk or in memory, is all that it needs.
fn may_pass(error: &TrainingError) -> bool {
    error.retryable() || matches!(error, TrainingError::DoesNotFit { .. })
}

/// Nothing goes on from the checkpoints of a training that has failed: the next one has an id of its own, and its steps are told
/// from the first. So they go, and that is said.
fn given_up(error: &TrainingError) -> Failure {
    let fix = error.hint().unwrap_or_else(|| "see the log of the worker".to_owned());
    Failure::new(error.code(), format!("{error}, in {MAX_TRIES} tries"))
        .with_hint(format!("{fix}, and ask for the training again: it begins at its first step"))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;

    fn full_disk() -> TrainingError {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        TrainingError::Io { what: "writing", path: PathBuf::from("model.gguf"), source }
    }

    #[test]
    fn given_a_training_with_a_checkpoint_when_the_disk_is_full_then_it_is_tried_again_and_not_for_ever() {
        let (tries, job_id, other) = (Tries::default(), FinetuneId::derive(&["a"]), FinetuneId::derive(&["b"]));
        for _ in 1..MAX_TRIES {
            assert_eq!(tries.verdict(job_id, &full_disk(), true), Verdict::Again);
        }
        let Verdict::Failed(failure) = tries.verdict(job_id, &full_disk(), true) else { panic!("tried for ever") };
        assert!(failure.message.contains("model.gguf"), "{failure:?}");
        assert!(failure.hint.is_some_and(|hint| hint.contains("first step")));
        assert_eq!(tries.verdict(other, &full_disk(), true), Verdict::Again);
        tries.forget(job_id);
        assert_eq!(tries.verdict(job_id, &full_disk(), true), Verdict::Again);
    }

    #[test]
    fn given_little_memory_then_a_training_that_has_begun_waits_for_it_and_one_that_has_not_fails() {
        let tries = Tries::default();
        let (job_id, error) = (FinetuneId::derive(&["a"]), TrainingError::DoesNotFit { needed: 2, available: 1 });
        assert!(
            matches!(tries.verdict(job_id, &error, false), Verdict::Failed(failure) if failure.code == "does_not_fit")
        );
        assert_eq!(tries.verdict(job_id, &error, true), Verdict::Again);
    }

    #[test]
    fn given_what_room_does_not_mend_then_it_fails_at_once() {
        let error = TrainingError::Diverged { step: 3 };
        let verdict = Tries::default().verdict(FinetuneId::derive(&["a"]), &error, true);
        assert!(matches!(verdict, Verdict::Failed(failure) if failure.code == "training_diverged"));
    }
}
