//! Text as models write it: `riverrun.tokens`. Short-lived, never a source of truth.

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
