//! Which runs are driven at the same time: so many of all, and one of those that may be what ends the process.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The places of this worker.
pub(super) struct Places {
    all: Arc<Semaphore>,
    /// When a process ends, all that it drives has claimed in vain. Suspects are driven one after the other, so that
    /// one that ends its workers takes no other with it for long.
    suspects: Arc<Semaphore>,
}

/// A run that is driven holds one.
pub(super) struct Place {
    suspected: Option<OwnedSemaphorePermit>,
    _turn: OwnedSemaphorePermit,
}

/// A place among the runs that wait to be driven.
pub(super) type Turn = BoxFuture<'static, Result<Place, AcquireError>>;

impl Places {
    pub(super) fn new(runs: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(runs)), suspects: Arc::new(Semaphore::new(1)) }
    }

    /// The next place in the queue. It counts from now on, not from when it is first waited for: drivers are tasks, which
    /// begin in any order.
    pub(super) fn turn(&self, is_suspect: bool) -> Turn {
        let (all, suspects) = (self.all.clone(), self.suspects.clone());
        let mut turn: Turn = async move {
            let suspected = if is_suspect { Some(suspects.acquire_owned().await?) } else { None };
            Ok(Place { suspected, _turn: all.acquire_owned().await? })
        }
        .boxed();
        match (&mut turn).now_or_never() {
            Some(place) => std::future::ready(place).boxed(),
            None => turn,
        }
    }

    /// Nobody's turn comes any more. Drivers let go one after the other: the turn of one would go to another that waits,
    /// which would claim its run for a worker that is gone.
    pub(super) fn end(&self) {
        self.suspects.close();
        self.all.close();
    }
}

impl Place {
    /// The run has got on: it is not what ends the process.
    pub(super) fn clear(&mut self) {
        drop(self.suspected.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn given_suspects_when_one_is_driven_then_the_others_wait_until_it_got_on_and_nobody_else_waits_for_them() {
        let places = Places::new(3);
        let mut first = places.turn(true).now_or_never().unwrap().unwrap();
        let mut second = places.turn(true);
        assert!((&mut second).now_or_never().is_none(), "one suspect at a time");
        let other = places.turn(false).now_or_never().unwrap();
        assert!(other.is_ok(), "who is not suspected waits for none of them");
        first.clear();
        let second = second.now_or_never().unwrap().unwrap();
        assert!(places.turn(false).now_or_never().is_none(), "three have the three turns");
        drop((first, second));
        assert!(places.turn(true).now_or_never().is_some(), "one that ends clears itself");
    }

    #[tokio::test]
    async fn given_a_worker_that_stops_then_no_turn_comes_any_more() {
        let places = Places::new(1);
        let held = places.turn(true).now_or_never().unwrap().unwrap();
        let (suspect, other) = (places.turn(true), places.turn(false));
        places.end();
        drop(held);
        assert!(suspect.await.is_err() && other.await.is_err() && places.turn(false).await.is_err());
    }
}
