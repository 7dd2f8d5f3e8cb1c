//! Text as models write it: `riverrun.tokens`. Short-lived, never a source of truth.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::codec::event_set;
use crate::ids::{EventId, RunId};

/// A piece of text that a model just wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenDelta {
    /// The run.
    pub run_id: RunId,
    /// The step that will hold the text.
    pub seq: i64,
    /// The piece.
    pub text: String,
}

event_set! {
    /// Pieces of text.
    TokenEvent on Tokens;
    /// A piece of text that a model just wrote.
    TokenDelta = "riverrun.TokenDelta", key |e| e.run_id.to_string(), id |_| EventId::new();
}

/// Which try at a text a piece belongs to. A later one writes the text from its beginning: the model was asked again, by the
/// same worker or by the one that took its run over. It travels in a header, since nothing is decided by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// The writer's claim.
    pub epoch: i64,
    /// Counts the texts that were begun under this claim.
    pub text: u32,
}

impl Attempt {
    /// Name of the header: an extension attribute of CloudEvents.
    pub const HEADER: &'static str = "ce_attempt";

    /// From the value of the header; `None` where it is none.
    pub fn from_header(value: &[u8]) -> Option<Self> {
        let (epoch, text) = std::str::from_utf8(value).ok()?.split_once('.')?;
        Some(Self { epoch: epoch.parse().ok()?, text: text.parse().ok()? })
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_attempts_when_they_are_written_and_read_then_they_are_the_same_and_in_order() {
        let attempts = [(1, 1), (1, 2), (1, 10), (2, 1), (10, 1)].map(|(epoch, text)| Attempt { epoch, text });
        assert!(attempts.is_sorted());
        for attempt in attempts {
            assert_eq!(Attempt::from_header(attempt.to_string().as_bytes()), Some(attempt));
        }
        for other in ["", "1", ".", "1.", ".1", "a.b", "1.-1", "1.2.3"] {
            assert_eq!(Attempt::from_header(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Attempt::from_header(&[0xff, b'.', b'1']), None);
    }
}
