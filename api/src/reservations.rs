//! Idempotency keys of requests that are on their way: two requests with one key that arrive together are one.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Keys that are remembered; behind them, the log itself knows what was started.
const MAX_REMEMBERED: usize = 10_000;

/// What was asked under which key, lately, by requests to this process.
#[derive(Debug, Default)]
pub struct Reservations {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    uses: HashMap<String, Use>,
    order: VecDeque<String>,
}

/// What a key is used for.
#[derive(Debug)]
struct Use {
    body: [u8; 32],
    /// Whether what it stands for is on the log.
    is_begun: bool,
}

/// A key in the hands of a request. The first one gives it back when it fails, and when it is dropped in the middle since its
/// client has gone: whether anything was started is then not known, and a repeat starts it.
#[derive(Debug)]
#[must_use = "the key is given back at once"]
pub struct Held<'r> {
    reservations: &'r Reservations,
    /// What is given back; `None` for a repeat, and for what is kept.
    id: Option<String>,
    is_begun: bool,
}

impl Held<'_> {
    /// Whether nobody used the key lately: a repeat has the same body.
    pub fn is_first(&self) -> bool {
        self.id.is_some()
    }

    /// Whether it is a repeat of one that was kept. That of one which is on its way is not: nobody knows whether it gets there.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// What it stands for is on the log.
    pub fn keep(mut self) {
        if let Some(id) = self.id.take()
            && let Some(used) = self.reservations.state.lock().uses.get_mut(&id)
        {
            used.is_begun = true;
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.reservations.release(id);
        }
    }
}

impl Reservations {
    /// Uses a key for a body; `None` when it was used for another one. `id` is what follows from the key.
    pub fn reserve(&self, id: &str, body: &[u8]) -> Option<Held<'_>> {
        let hash: [u8; 32] = Sha256::digest(body).into();
        let mut state = self.state.lock();
        match state.uses.get(id) {
            Some(known) => {
                (known.body == hash).then_some(Held { reservations: self, id: None, is_begun: known.is_begun })
            }
            None => {
                state.uses.insert(id.to_owned(), Use { body: hash, is_begun: false });
                state.order.push_back(id.to_owned());
                if state.order.len() > MAX_REMEMBERED
                    && let Some(oldest) = state.order.pop_front()
                {
                    state.uses.remove(&oldest);
                }
                Some(Held { reservations: self, id: Some(id.to_owned()), is_begun: false })
            }
        }
    }

    /// Gives a key back: nothing was started under it.
    fn release(&self, id: &str) {
        let mut state = self.state.lock();
        state.uses.remove(id);
        state.order.retain(|known| known != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses a key and keeps it; whether that was the first use, where it was for the same body.
    fn kept(reservations: &Reservations, id: &str, body: &[u8]) -> Option<bool> {
        reservations.reserve(id, body).map(|held| {
            let is_first = held.is_first();
            held.keep();
            is_first
        })
    }

    #[test]
    fn given_a_key_when_it_is_used_again_then_the_body_decides() {
        let reservations = Reservations::default();
        for (id, body, expected) in [
            ("run_a", b"1", Some(true)),
            ("run_a", b"1", Some(false)),
            ("run_a", b"2", None),
            ("run_b", b"2", Some(true)),
        ] {
            assert_eq!(kept(&reservations, id, body), expected, "{id} {body:?}");
        }
        for n in 0..MAX_REMEMBERED {
            kept(&reservations, &n.to_string(), b"x");
        }
        assert_eq!(reservations.state.lock().uses.len(), MAX_REMEMBERED);
    }

    #[tokio::test]
    async fn given_a_request_that_fails_or_is_dropped_when_its_key_comes_again_then_nobody_has_used_it() {
        let reservations = Reservations::default();
        drop(reservations.reserve("run_a", b"1"));
        let dropped = async {
            let _held = reservations.reserve("run_a", b"2");
            std::future::pending::<()>().await;
        };
        assert!(tokio::time::timeout(std::time::Duration::ZERO, dropped).await.is_err());
        assert_eq!(kept(&reservations, "run_a", b"3"), Some(true));
        drop(reservations.reserve("run_a", b"3"));
        assert_eq!(kept(&reservations, "run_a", b"3"), Some(false), "a repeat that is dropped gives nothing back");
        assert_eq!(reservations.state.lock().order.len(), 1);
    }
}
