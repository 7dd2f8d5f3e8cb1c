//! Answers: numbered chunks go to a model, and what it cites is checked before anybody sees it as a citation.
//!
//! - `CITE-1`: numbers are given to chunks before generation, and only numbers that were given stay in the answer;
//! - `CITE-2`: a citation's `quote` is `stored_text[span.start..span.end]`;
//! - `CITE-3`: a citation says whether it is supported, by a measure that anybody can repeat ([`support`]);
//! - `CITE-4`: a chunk that did not fit in the model's context is reported, never dropped in silence, and what was to stand
//!   around chunks goes before any of them;
//! - `CITE-5`: when nothing was found no model is asked, and the answer says so.

mod answerer;
mod citations;
mod inert;
mod markers;
mod prompt;
mod reading;
pub mod support;
mod types;

pub use answerer::{AnswerConfig, Answerer};
pub use citations::{Checked, Cited, check};
pub use inert::inert;
pub use markers::MarkerFilter;
pub use types::{
    AnswerSentence, AskError, AskReply, AskRequest, AskTimes, AskUsage, Attribution, Citation, DroppedChunk,
};
