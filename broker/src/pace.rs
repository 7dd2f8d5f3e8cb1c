//! How long the fetches of a connection are held when there is nothing to read.
//!
//! Answers of a connection go out in order, so whatever is asked behind a fetch that waits would wait with it: such a fetch ends
//! at once instead, with what there is. And a reader that asks to be held for long is, once its connection has been quiet. Before
//! that it is held for [`BUSY_HOLD`] at most: a client leaves partitions out of a fetch while it has enough of them, or has been
//! told to pause, and takes them in again only with its next one.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// Longest wait of a fetch on a connection that is in use.
const BUSY_HOLD: Duration = Duration::from_millis(500);
/// A connection on which nothing but empty fetches was answered for so long is quiet. No shorter than what our own readers ask
/// for: one that reads again when it has worked off half of what it holds, and took so long for the first half, has work for
/// the time that a fetch without its partition may still be held.
const QUIET_AFTER: Duration = Duration::from_secs(3);

/// What a connection is used for, as its requests see it. Clones are of the same connection.
#[derive(Clone)]
pub(crate) struct Pace {
    connection: Arc<Connection>,
    /// Told of requests that came behind the one that has this clone.
    behind: watch::Receiver<()>,
}

struct Connection {
    arrivals: watch::Sender<()>,
    used: Mutex<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        let (arrivals, behind) = watch::channel(());
        Self { connection: Arc::new(Connection { arrivals, used: Mutex::new(Instant::now()) }), behind }
    }
}

impl Pace {
    /// Takes note of a request, and listens from now on for those that come behind it. Fetches behind a fetch hurry nobody: two
    /// readers that share a connection would drive each other.
    pub(crate) fn arrived(&mut self, key: ApiKey, now: Instant) {
        if key != ApiKey::Fetch {
            self.in_use(now);
            self.connection.arrivals.send_replace(());
        }
        self.behind = self.connection.arrivals.subscribe();
    }

    /// The connection carries more than empty fetches.
    pub(crate) fn in_use(&self, now: Instant) {
        *self.connection.used.lock() = now;
    }

    /// How long a fetch is held that asks for `wait` and for `min_bytes`. Who gathers more than anything at all is taken at its
    /// word.
    pub(crate) fn hold(&self, wait: Duration, min_bytes: i32, now: Instant) -> Duration {
        let quiet = now.saturating_duration_since(*self.connection.used.lock()) >= QUIET_AFTER;
        if quiet || min_bytes > 1 { wait } else { wait.min(BUSY_HOLD) }
    }

    /// Returns when another request waits behind this one; never, if none comes. Cancel-safe.
    pub(crate) async fn pressed(&mut self) {
        if self.behind.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(5);

    #[test]
    fn given_a_connection_when_it_has_been_quiet_then_a_fetch_is_held_as_long_as_it_asks() {
        let (pace, now) = (Pace::default(), Instant::now());
        pace.in_use(now);
        assert_eq!(pace.hold(LONG, 1, now), BUSY_HOLD);
        assert_eq!(pace.hold(BUSY_HOLD / 5, 1, now), BUSY_HOLD / 5);
        assert_eq!(pace.hold(LONG, 1_000, now), LONG, "a client that gathers");
        let later = now + QUIET_AFTER;
        assert_eq!(pace.hold(LONG, 1, later), LONG);
        pace.clone().in_use(later);
        assert_eq!(pace.hold(LONG, 1, later), BUSY_HOLD);
    }

    #[test]
    fn given_a_fetch_that_waits_when_something_else_is_asked_behind_it_then_it_is_hurried() {
        let (connection, now) = (Pace::default(), Instant::now());
        let request = |key, at| {
            let mut request = connection.clone();
            request.arrived(key, at);
            request
        };
        request(ApiKey::Metadata, now);
        let mut first = request(ApiKey::Fetch, now);
        assert!(first.pressed().now_or_never().is_none(), "what came before does not count");
        let later = now + QUIET_AFTER;
        let mut last = request(ApiKey::Fetch, later);
        assert!(first.pressed().now_or_never().is_none(), "another fetch waits its turn");
        assert_eq!(connection.hold(LONG, 1, later), LONG, "empty fetches are no use");
        request(ApiKey::ListOffsets, later);
        assert!(first.pressed().now_or_never().is_some());
        assert!(last.pressed().now_or_never().is_some());
        assert_eq!(connection.hold(LONG, 1, later), BUSY_HOLD, "a question is use");
    }
}
