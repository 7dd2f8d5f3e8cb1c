//! Idempotency keys of requests that are on their way: two requests with one key that arrive together are one.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Keys that are remembered; behind them, the log itself knows what was started.
const MAX_REMEMBERED: usize = 10_000;

/// What was asked under which key, lately, by requests to this process.
#[derive(Default)]
pub struct Reservations {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bodies: HashMap<String, [u8; 32]>,
    order: VecDeque<String>,
}

/// What became of an attempt to use a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// Nobody used it lately.
    New,
    /// It was used for the same body.
    Same,
    /// It was used for another body.
    Other,
}

impl Reservations {
    /// Uses a key for a body. `id` is what follows from the key.
    pub fn reserve(&self, id: &str, body: &[u8]) -> Reserved {
        let hash: [u8; 32] = Sha256::digest(body).into();
        let mut state = self.state.lock();
        match state.bodies.get(id) {
            Some(known) if *known == hash => Reserved::Same,
            Some(_) => Reserved::Other,
            None => {
                state.bodies.insert(id.to_owned(), hash);
                state.order.push_back(id.to_owned());
                if state.order.len() > MAX_REMEMBERED
                    && let Some(oldest) = state.order.pop_front()
                {
                    state.bodies.remove(&oldest);
                }
                Reserved::New
            }
        }
    }

    /// Gives a key back: nothing was started under it.
    pub fn release(&self, id: &str) {
        let mut state = self.state.lock();
        state.bodies.remove(id);
        state.order.retain(|known| known != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_key_when_it_is_used_again_then_the_body_decides() {
        let reservations = Reservations::default();
        assert_eq!(reservations.reserve("run_a", b"1"), Reserved::New);
        assert_eq!(reservations.reserve("run_a", b"1"), Reserved::Same);
        assert_eq!(reservations.reserve("run_a", b"2"), Reserved::Other);
        assert_eq!(reservations.reserve("run_b", b"2"), Reserved::New);
        reservations.release("run_a");
        assert_eq!(reservations.reserve("run_a", b"2"), Reserved::New);
        for n in 0..MAX_REMEMBERED {
            reservations.reserve(&n.to_string(), b"x");
        }
        assert_eq!(reservations.state.lock().bodies.len(), MAX_REMEMBERED);
    }
}
