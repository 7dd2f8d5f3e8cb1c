//! Members of groups outlive a clock that is set back.
//!
//! librdkafka waits until a time of day. Where the clock is set back meanwhile it waits for so much longer, an hour for an hour, unless
//! something comes: it sends no heartbeat, and the group takes the member for lost. Whoever is asked something waits anew, by the new time.

use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// How often the clocks are compared: well within the time after which a group misses a member.
const LOOK: Duration = Duration::from_secs(1);
/// By how much the clock may go back unnoticed: a wait is no longer for it.
const SLACK: Duration = Duration::from_secs(1);

/// A client that can be asked something, whatever it is.
pub(crate) trait Asked: Send + Sync {
    fn ask_anything(&self);
}

type Clients = Mutex<Vec<Weak<dyn Asked>>>;

/// Of the process: all members look at the same clocks.
static CLIENTS: OnceLock<&'static Clients> = OnceLock::new();

/// Asks this client something whenever the clock was set back, as long as it is there.
pub(crate) fn keep_awake(client: &Arc<impl Asked + 'static>) {
    let client: Weak<dyn Asked> = Arc::downgrade(client) as Weak<dyn Asked>;
    let clients = CLIENTS.get_or_init(start);
    let mut clients = clients.lock();
    clients.retain(|client| client.strong_count() > 0);
    clients.push(client);
}

#[expect(clippy::disallowed_methods, reason = "it waits on a thread of its own, on which no runtime works")]
fn start() -> &'static Clients {
    let clients: &'static Clients = Box::leak(Box::default());
    let watch = move || {
        let began = Instant::now();
        let mut ahead = ahead_of(began);
        loop {
            thread::sleep(LOOK);
            let now = ahead_of(began);
            if let Some(back) = set_back(ahead, now) {
                tracing::warn!(seconds = back.as_secs(), "the system's clock was set back");
                // Asked without the lock: an answer may take a while.
                let asked = clients.lock().clone();
                asked.iter().filter_map(Weak::upgrade).for_each(|client| client.ask_anything());
            }
            ahead = now;
        }
    };
    if let Err(error) = thread::Builder::new().name("clock".to_owned()).spawn(watch) {
        tracing::warn!(%error, "nobody looks whether the clock is set back");
    }
    clients
}

/// By how many milliseconds the time of day is ahead of what has passed since then.
fn ahead_of(began: Instant) -> i128 {
    let milliseconds = |time: Duration| i128::try_from(time.as_millis()).unwrap_or(i128::MAX);
    let day = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => milliseconds(since),
        Err(before) => -milliseconds(before.duration()),
    };
    day - milliseconds(began.elapsed())
}

fn set_back(before: i128, now: i128) -> Option<Duration> {
    let back = Duration::from_millis(u64::try_from(before - now).ok()?);
    (back > SLACK).then_some(back)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_clocks_when_they_are_compared_then_only_one_that_went_back_is_noticed() {
        for (before, now, back) in [
            (0, 0, None),
            (0, 3_600_000, None),
            (1_000, 0, None),
            (0, -1_001, Some(1_001)),
            (3_600_000, 0, Some(3_600_000)),
            (-5_000, -9_000, Some(4_000)),
        ] {
            assert_eq!(set_back(before, now), back.map(Duration::from_millis), "{before} {now}");
        }
    }
}
