//! How far an import or an analysis is, told by events while it goes on: less and less often, and eighteen times at most.

use std::future::Future;
use std::time::Duration;

use riverrun_log::Outgoing;
use riverrun_projects::progress::Progress;
use riverrun_schemas::Envelope;
use riverrun_schemas::projects::ProjectCommand;

use super::NAME;
use super::answers::progressed;
use crate::runtime::Context;

/// Most events of one request besides its first and its last.
const MAX_EVENTS: u32 = 18;
/// How long work goes on before something is told. Each time it takes two fifths longer until the next: the last of them come
/// minutes apart.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// When something is told.
#[derive(Debug)]
struct Pace {
    pause: Duration,
    events: u32,
    told: u64,
}

impl Pace {
    fn new() -> Self {
        Self { pause: FIRST_PAUSE, events: 0, told: 0 }
    }

    /// Whether this is told: it is more than was told, and not too much was told. What is told counts.
    fn is_told(&mut self, done: u64) -> bool {
        if done <= self.told || self.events == MAX_EVENTS {
            return false;
        }
        self.told = done;
        self.events += 1;
        self.pause = self.pause * 7 / 5;
        true
    }
}

/// Tells of one command.
pub(super) struct Teller<'a> {
    pub(super) command: &'a ProjectCommand,
    pub(super) cause: &'a Envelope,
    pub(super) context: &'a Context,
}

impl Teller<'_> {
    /// Does the work to its end, and tells how far it is.
    pub(super) async fn watch<T>(&self, progress: &Progress, work: impl Future<Output = T> + Send) -> T {
        let mut work = std::pin::pin!(work);
        let mut pace = Pace::new();
        loop {
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = tokio::time::sleep(pace.pause) => {}
            }
            let seen = progress.seen();
            if pace.is_told(seen.0) {
                // A log that is slow to take it holds nothing up.
                tokio::select! {
                    biased;
                    result = &mut work => return result,
                    () = self.tell(seen) => {}
                }
            }
        }
    }

    /// The work is worth more than what is said about it: an event that can't be written is left out.
    async fn tell(&self, seen: (u64, u64)) {
        let Some(event) = progressed(self.command, seen) else { return };
        let told = match Outgoing::caused_by(&event, NAME, self.cause) {
            Ok(outgoing) => self.context.producer.send_one(outgoing).await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = told {
            tracing::debug!(%error, "progress of a project is not told");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_work_that_gets_on_for_ever_when_it_is_watched_then_little_is_told_and_less_and_less_often() {
        let mut pace = Pace::new();
        let mut pauses = Vec::new();
        for done in 1..1_000 {
            if pace.is_told(done) {
                pauses.push(pace.pause);
            }
            assert!(!pace.is_told(done), "{done} is told twice");
        }
        assert_eq!(pauses.len(), usize::try_from(MAX_EVENTS).unwrap());
        assert!(pauses.is_sorted() && pauses.iter().sum::<Duration>() > Duration::from_secs(300), "{pauses:?}");
    }

    #[test]
    fn given_work_that_stands_still_when_it_is_watched_then_nothing_is_told() {
        let mut pace = Pace::new();
        assert!(!pace.is_told(0));
        assert!(pace.is_told(3) && !pace.is_told(3) && !pace.is_told(2) && pace.is_told(4));
    }
}
