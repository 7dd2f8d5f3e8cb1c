//! When graphs are built: in the background, one at a time, for collections that have grown and that nobody writes to.
//!
//! A graph takes some tenths of a millisecond of a core for each point, and whoever writes to the collection waits until it is
//! done. Built while documents come in, it would be most of what a document costs, and be built again for those that come later.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riverrun_schemas::Collection;
use tokio::sync::Notify;

/// A graph is built for this many times the points that are left without one at rest, also while somebody writes.
const AT_ONCE: usize = 4;

/// What points without a graph call for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// They are soon compared one by one.
    Nothing,
    /// A graph, when nobody writes.
    AtRest,
    /// A graph, whoever has to wait for it.
    AtOnce,
}

impl Wanted {
    /// What so many points without a graph call for, where that many numbers in their vectors may do without one.
    pub(super) fn of(points: usize, dimensions: usize, index_after_numbers: usize) -> Self {
        let numbers = points.saturating_mul(dimensions);
        if numbers > index_after_numbers.saturating_mul(AT_ONCE) {
            Self::AtOnce
        } else if numbers > index_after_numbers {
            Self::AtRest
        } else {
            Self::Nothing
        }
    }
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Build(Collection),
    Wait(Instant),
    /// Nothing is left: whoever asked ends, and the next collection starts another.
    End,
}

#[derive(Default)]
struct Due {
    at: HashMap<Collection, Instant>,
    /// Somebody builds or waits.
    attended: bool,
}

/// The collections that want a graph, and when.
#[derive(Default)]
pub(super) struct Queue {
    due: Mutex<Due>,
    changed: Notify,
}

impl Queue {
    /// Notes what a collection wants that was just written to or opened; true when somebody has to begin to attend to the queue.
    #[must_use]
    pub(super) fn note(&self, collection: &Collection, wanted: Wanted, now: Instant, rest: Duration) -> bool {
        let mut due = self.due.lock();
        match wanted {
            Wanted::Nothing => {
                due.at.remove(collection);
                return false;
            }
            Wanted::AtRest => due.at.insert(collection.clone(), now + rest),
            Wanted::AtOnce => due.at.insert(collection.clone(), now),
        };
        self.changed.notify_one();
        !std::mem::replace(&mut due.attended, true)
    }

    /// The collection whose time has come, or when that of the next one comes.
    pub(super) fn next(&self, now: Instant) -> Next {
        let mut due = self.due.lock();
        let first = due.at.iter().min_by_key(|(_, at)| **at).map(|(collection, at)| (collection.clone(), *at));
        match first {
            None => {
                due.attended = false;
                Next::End
            }
            Some((_, at)) if at > now => Next::Wait(at),
            Some((collection, _)) => {
                due.at.remove(&collection);
                Next::Build(collection)
            }
        }
    }

    /// Until that time, or until something was noted.
    pub(super) async fn wait(&self, until: Instant) {
        let _ = tokio::time::timeout_at(until.into(), self.changed.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_secs(10);

    fn collection(name: &str) -> Collection {
        Collection::new("default".parse().unwrap(), name.parse().unwrap())
    }

    #[test]
    fn given_points_without_a_graph_then_their_numbers_decide_whatever_their_length() {
        for dimensions in [4, 384, 1_600] {
            let least = 9_600 / dimensions;
            assert_eq!(Wanted::of(least, dimensions, 9_600), Wanted::Nothing);
            assert_eq!(Wanted::of(least + 1, dimensions, 9_600), Wanted::AtRest);
            assert_eq!(Wanted::of(4 * least, dimensions, 9_600), Wanted::AtRest);
            assert_eq!(Wanted::of(4 * least + 1, dimensions, 9_600), Wanted::AtOnce);
        }
        assert_eq!(Wanted::of(usize::MAX, 2, 1), Wanted::AtOnce);
    }

    #[test]
    fn given_a_collection_that_is_written_to_then_its_graph_waits_for_the_rest_after_the_last_write() {
        let (queue, notes, start) = (Queue::default(), collection("notes"), Instant::now());
        assert!(queue.note(&notes, Wanted::AtRest, start, REST), "nobody attends yet");
        let later = start + Duration::from_secs(8);
        assert!(!queue.note(&notes, Wanted::AtRest, later, REST), "somebody attends");
        assert_eq!(queue.next(start + REST), Next::Wait(later + REST));
        assert_eq!(queue.next(later + REST), Next::Build(notes.clone()));
        assert_eq!(queue.next(later + REST), Next::End);
        assert!(queue.note(&notes, Wanted::AtRest, later + REST, REST), "whoever attended has ended");
    }

    #[test]
    fn given_one_that_outgrew_its_limit_and_one_at_rest_then_the_first_comes_first_and_a_shrunk_one_never() {
        let (queue, now) = (Queue::default(), Instant::now());
        let [resting, large, shrunk] = ["resting", "large", "shrunk"].map(collection);
        assert!(queue.note(&resting, Wanted::AtRest, now, REST));
        assert!(!queue.note(&large, Wanted::AtOnce, now, REST));
        assert!(!queue.note(&shrunk, Wanted::AtOnce, now, REST));
        assert!(!queue.note(&shrunk, Wanted::Nothing, now, REST));
        assert_eq!(queue.next(now), Next::Build(large));
        assert_eq!(queue.next(now), Next::Wait(now + REST));
        assert_eq!(queue.next(now + REST), Next::Build(resting));
        assert_eq!(queue.next(now + REST), Next::End);
    }

    #[tokio::test]
    async fn given_somebody_who_waits_when_a_graph_is_wanted_at_once_then_the_wait_ends() {
        let queue = std::sync::Arc::new(Queue::default());
        let now = Instant::now();
        let (waiting, far) = (queue.clone(), now + Duration::from_secs(3_600));
        let waiting = tokio::spawn(async move { waiting.wait(far).await });
        let _ = queue.note(&collection("notes"), Wanted::AtOnce, now, REST);
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    }
}
