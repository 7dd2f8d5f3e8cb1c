//! How a training is told to stop: because somebody wants it to, or because its worker ends.

use std::convert::Infallible;
use std::time::Duration;

use riverrun_log::Tail;
use riverrun_schemas::FinetuneId;
use riverrun_schemas::finetune::FinetuneEvent;
use tokio_util::sync::CancellationToken;

use super::history;
use super::work::Ended;
use crate::runtime::{Context, WorkError};

const PAUSE: Duration = Duration::from_millis(500);

/// Of one training, from the fetching of its base to its version.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    token: CancellationToken,
    wished: CancellationToken,
}

impl Stop {
    /// Set when the worker's own is.
    pub(super) fn under(worker: &CancellationToken) -> Self {
        Self { token: worker.child_token(), wished: CancellationToken::new() }
    }

    /// For whoever can be cancelled and need not know why.
    pub(super) fn token(&self) -> &CancellationToken {
        &self.token
    }

    pub(super) fn is_set(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Somebody wants it to stop.
    pub(super) fn wish(&self) {
        self.wished.cancel();
        self.token.cancel();
    }

    /// How a training that was stopped ends: for good where somebody wanted it to, else until the next start.
    pub(super) fn ended(&self) -> Result<Ended, WorkError> {
        if self.wished.is_cancelled() {
            return Ok(Ended::cancelled());
        }
        Err(WorkError::retry("interrupted", "the training was interrupted"))
    }

    /// Hears wishes for as long as it is polled.
    pub(super) async fn listen(&self, job_id: FinetuneId, context: &Context, mut tail: Tail) -> Infallible {
        while !self.wished.is_cancelled() {
            match tail.next().await {
                Ok(record) => {
                    let wish = history::event(&record, context);
                    if matches!(&wish, Some(FinetuneEvent::FinetuneCancelRequested(e)) if e.job_id == job_id) {
                        self.wish();
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %error, "reading wishes to stop");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::finetune::FinetuneOutcome;

    use super::*;

    #[test]
    fn given_a_wish_then_the_training_ends_for_good_and_with_its_worker_only_until_the_next_start() {
        let worker = CancellationToken::new();
        let (wished, other) = (Stop::under(&worker), Stop::under(&worker));
        wished.wish();
        assert!(wished.is_set() && !other.is_set());
        worker.cancel();
        assert!(other.is_set());
        assert!(matches!(wished.ended(), Ok(Ended { status: FinetuneOutcome::Cancelled, .. })));
        assert!(matches!(other.ended(), Err(WorkError::Retry { .. })));
    }
}
