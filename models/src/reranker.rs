//! The re-ranker of searches that do not ask for one: they use it where they can, and have it fetched where they can't.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::error::ModelError;
use crate::local::{NAME, Presence};
use crate::models::Models;

/// How long the hub is left alone after a failure, before a search has the re-ranker fetched again.
const PAUSE: Duration = Duration::from_secs(300);

/// Whether the default re-ranker can be used at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reranker {
    /// It can.
    Ready,
    /// It is being fetched from the hub.
    Fetching {
        /// Its name.
        model: String,
    },
    /// It can't: the hub did not give it, or may not be asked for one that the settings name.
    Missing {
        /// Its name.
        model: String,
        /// What to do.
        fix: String,
    },
    /// The settings name none, and the hub is switched off.
    Off,
}

/// How fetching it in the background stands.
#[derive(Debug, Clone, Default)]
enum Fetch {
    #[default]
    NotBegun,
    Running,
    Failed {
        at: Instant,
        error: ModelError,
    },
}

impl Fetch {
    fn is_due(&self, now: Instant) -> bool {
        match self {
            Self::NotBegun => true,
            Self::Running => false,
            Self::Failed { at, .. } => now.duration_since(*at) >= PAUSE,
        }
    }
}

/// Fetches one model at a time in the background.
#[derive(Debug)]
pub(crate) struct BackgroundFetch(watch::Sender<Fetch>);

impl Default for BackgroundFetch {
    fn default() -> Self {
        Self(watch::Sender::new(Fetch::default()))
    }
}

impl BackgroundFetch {
    /// Whether the caller is to begin now; for everybody else it has begun then.
    fn begin(&self) -> bool {
        self.0.send_if_modified(|fetch| {
            let due = fetch.is_due(Instant::now());
            if due {
                *fetch = Fetch::Running;
            }
            due
        })
    }

    fn end(&self, outcome: Result<(), ModelError>) {
        self.0.send_replace(match outcome {
            Ok(()) => Fetch::NotBegun,
            Err(error) => Fetch::Failed { at: Instant::now(), error },
        });
    }

    fn is_running(&self) -> bool {
        matches!(*self.0.borrow(), Fetch::Running)
    }

    fn failure(&self) -> Option<ModelError> {
        match &*self.0.borrow() {
            Fetch::Failed { error, .. } => Some(error.clone()),
            Fetch::NotBegun | Fetch::Running => None,
        }
    }
}

impl Models {
    /// Whether the default re-ranker can be used at once. Where it is not here and the hub may be asked, it begins to be fetched in the
    /// background: once however many ask, and after a failure not again for five minutes. To be called within a runtime.
    pub fn reranker(&self) -> Reranker {
        let model = self.settings().rerank_model();
        let fix = match self.presence(&model) {
            Ok(Presence::Present { .. }) => return Reranker::Ready,
            Ok(Presence::Missing { fix }) => fix,
            Err(error) => return Reranker::Missing { model, fix: fix_of(&error) },
        };
        let (provider, name) = self.split(&model);
        if provider.name() != NAME || self.settings().offline {
            return match self.settings().default_rerank_model {
                Some(_) => Reranker::Missing { model, fix },
                None => Reranker::Off,
            };
        }
        let fetch = self.background_fetch();
        if fetch.begin() {
            tokio::spawn(fetch_in_background(self.clone(), name.to_owned()));
        }
        match fetch.failure() {
            Some(error) => Reranker::Missing { model, fix: fix_of(&error) },
            None => Reranker::Fetching { model },
        }
    }

    /// Whether the re-ranker is being fetched in the background.
    pub fn is_fetching_reranker(&self) -> bool {
        self.background_fetch().is_running()
    }

    /// Waits until the re-ranker is not being fetched in the background; an error is why the last try failed.
    pub async fn reranker_fetched(&self) -> Result<(), ModelError> {
        let fetch = self.background_fetch();
        // The sender is ours: it can't be gone.
        let _ = fetch.0.subscribe().wait_for(|fetch| !matches!(fetch, Fetch::Running)).await;
        fetch.failure().map_or(Ok(()), Err)
    }
}

async fn fetch_in_background(models: Models, name: String) {
    tracing::info!(model = name, "the re-ranker is being fetched from the hub");
    let outcome = models.local().fetch(&name).await;
    if let Err(error) = &outcome {
        tracing::warn!(model = name, error = %error, "the re-ranker could not be fetched; searches go without it");
    }
    models.background_fetch().end(outcome);
}

fn fix_of(error: &ModelError) -> String {
    error.hint().unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_fetch_that_runs_or_has_just_failed_then_none_is_due() {
        let now = Instant::now();
        let failed = Fetch::Failed { at: now, error: ModelError::Cancelled };
        assert!(Fetch::NotBegun.is_due(now) && !Fetch::Running.is_due(now));
        assert!(!failed.is_due(now) && !failed.is_due(now + PAUSE - Duration::from_secs(1)));
        assert!(failed.is_due(now + PAUSE));
    }

    #[test]
    fn given_many_who_want_it_when_it_is_fetched_then_one_begins() {
        let fetch = BackgroundFetch::default();
        let begun: Vec<bool> = (0..3).map(|_| fetch.begin()).collect();
        assert_eq!((begun, fetch.is_running()), (vec![true, false, false], true));
        fetch.end(Err(ModelError::Cancelled));
        assert_eq!((fetch.begin(), fetch.failure()), (false, Some(ModelError::Cancelled)));
        let fetch = BackgroundFetch::default();
        fetch.begin();
        fetch.end(Ok(()));
        assert!(!fetch.is_running() && fetch.begin(), "a model that was removed is fetched again");
    }
}
