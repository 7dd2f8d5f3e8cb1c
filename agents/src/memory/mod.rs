//! Memory of conversations: what of it a model is shown, when older turns become a summary, and what is recalled.
//!
//! A conversation is in a namespace; every question names both ([`Session`]). What a model is shown is the running summary
//! and the newest turns, together within a window of tokens, and episodes and notes that resemble what is asked.
//! - `MEM-3` what is shown of a conversation comes from that conversation.
//! - `MEM-4` a run's memory is read once, at its beginning, and recorded as its first steps: decisions are taken from those.
//! - `MEM-5` memory is data: it stands between delimiters that it can't close, and no rule depends on it.
//!
//! A running summary beside a window of verbatim turns is what Packer et al., "MemGPT: Towards LLMs as Operating Systems", 2023
//! (<https://arxiv.org/abs/2310.08560>), call recursive summarization of a message queue.

mod fit;
mod fold;
mod models;
mod opening;
mod prompt;
mod reader;
mod summary;
mod window;

use async_trait::async_trait;
use riverrun_models::ModelError;
use riverrun_schemas::{NoteId, RunId, Session, TurnId};
use riverrun_stores::StoreError;
use riverrun_stores::read_models::{SummaryView, TurnView};
use serde::{Deserialize, Serialize};

pub use fit::{LeftOut, Shown, chat_request, fit};
pub use fold::{Basis, OpenTurn, SessionFold, Taken, episode_id};
pub use models::{MemoryModels, Written, account, charged_to};
pub(crate) use opening::{Recalled, is_opening_call, opening, remembered, usable, with_memory, without_opening};
pub use reader::StoredMemory;
pub use summary::{Summarize, clean, plan, request as summary_request, room_for_turns};
pub use window::Window;

/// Tokens of the window when nothing else is set.
pub const DEFAULT_WINDOW_TOKENS: usize = 2_048;
/// Most tokens that a window may have: what is in it has to fit into the event of a run's step.
pub const MAX_WINDOW_TOKENS: usize = 8_192;
/// Longest text of a turn, in bytes: 16 KiB. A longer one is refused; that of a run is cut, which it says.
pub const MAX_TURN_BYTES: usize = 16 << 10;
/// Most turns of a conversation; more are refused until some are forgotten.
pub const MAX_TURNS: i64 = 10_000;
/// Longest note, in characters.
pub const MAX_NOTE_CHARS: usize = 2_000;
/// Most notes of a conversation; more are refused until some are forgotten.
pub const MAX_NOTES: i64 = 1_000;
/// Most memories of one recall.
pub const MAX_RECALL: usize = 20;
/// Memories of a recall that names no number.
pub const DEFAULT_RECALL: usize = 5;
/// Most turns that are looked at for a window.
pub const MAX_WINDOW_TURNS: u32 = 500;

/// The conversation that a run belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryScope {
    /// The conversation.
    pub session: Session,
    /// The run.
    pub run_id: RunId,
    /// The last turn of the run before it in the conversation, where that is known to have ended: it may be on its way still.
    pub behind: Option<TurnId>,
}

/// What is wanted of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContextRequest {
    /// What recalled memories should resemble; nothing is recalled without it.
    pub query: Option<String>,
    /// Most memories to recall.
    pub k: usize,
    /// Tokens that are taken by what stands beside the memory.
    pub reserved_tokens: usize,
}

/// An episode or a note that resembles what was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecalledMemory {
    /// The episode or note.
    pub id: String,
    /// `episode` or `note`.
    pub kind: String,
    /// Its words.
    pub text: String,
    /// Cosine similarity to the query, -1 to 1.
    pub score: f32,
    /// The turns that it comes from.
    pub turn_ids: Vec<TurnId>,
    /// The run that it comes from.
    pub run_id: Option<RunId>,
}

/// What of a conversation a model is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryContext {
    /// The newest turns within the window, oldest first.
    pub turns: Vec<TurnView>,
    /// What stands for older ones.
    pub summary: Option<SummaryView>,
    /// What resembles the query, best first. Nothing that is among the turns.
    pub episodes: Vec<RecalledMemory>,
    /// Tokens of summary and turns.
    pub tokens: usize,
    /// Tokens that they may have.
    pub window_tokens: usize,
    /// Turns that are behind the summary and did not fit: they are summarized soon.
    pub turns_left_out: usize,
    /// What could not be done, in words.
    pub notes: Vec<String>,
}

/// A fact to put down.
#[derive(Debug, Clone, PartialEq)]
pub struct NewNote {
    /// Derived from the call: the same call is the same note.
    pub note_id: NoteId,
    /// The words.
    pub text: String,
    /// The turns that it comes from.
    pub turn_ids: Vec<TurnId>,
    /// The run that puts it down.
    pub run_id: Option<RunId>,
}

/// Memory could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The tables or vectors.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log.
    #[error(transparent)]
    Log(#[from] riverrun_log::LogError),
    /// A model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The conversation is full.
    #[error("conversation {session} has {count} {what}, which is the limit")]
    Full {
        /// The conversation.
        session: Session,
        /// `turns` or `notes`.
        what: &'static str,
        /// How many.
        count: i64,
    },
}

/// What runs and requests ask of memory. Nothing can be asked without naming a conversation.
#[async_trait]
pub trait Memory: Send + Sync {
    /// What of the conversation a model is shown.
    async fn context(&self, session: &Session, request: &ContextRequest) -> Result<MemoryContext, MemoryError>;

    /// Waits, for a bounded time, until a turn that is on its way can be read.
    async fn await_turn(&self, _session: &Session, _turn: TurnId) {}

    /// Puts a fact down; returns after it is on the log.
    async fn note(&self, session: &Session, note: NewNote) -> Result<(), MemoryError>;
}

/// The beginning of a text of at most `most` bytes; what is cut is said.
pub fn shorten_bytes(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mark = format!("\n… (the beginning of {} bytes)", text.len());
    let mut end = most.saturating_sub(mark.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{mark}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_long_text_when_it_is_shortened_then_it_fits_and_says_so() {
        let text = "ä".repeat(1_000);
        for most in [100, 101, 1_999, 2_000, 2_001] {
            let short = shorten_bytes(&text, most);
            assert!(short.len() <= most && (short == text) == (most >= 2_000), "{most}");
            assert!(short == text || short.ends_with("(the beginning of 2000 bytes)"));
        }
    }
}
