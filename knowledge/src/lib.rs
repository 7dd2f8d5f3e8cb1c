//! Knowledge: documents become text, chunks and vectors; questions become chunks and cited answers.
//!
//! - [`sources`] reads a path into documents and takes their text out;
//! - [`chunking`] splits a text into spans of its bytes;
//! - [`tree`] puts summaries above chunks;
//! - [`retrieval`] finds chunks by meaning and by words, and fuses both;
//! - [`answer`] asks a model with numbered chunks and checks what it cites;
//! - [`room`] sees whether a prompt fits its model's context, before it is sent;
//! - [`web`] is the one guarded way to hosts outside.
//!
//! What a document, a chunk or an answer says is data: it never changes what may be read, called or shown.

pub mod answer;
pub mod chunking;
pub mod models;
pub mod retrieval;
pub mod room;
pub mod sources;
pub mod tree;
pub mod web;

mod text;

pub use answer::{Answerer, AskReply, AskRequest};
pub use models::{LanguageModels, charged_to};
pub use retrieval::{Retriever, SearchRequest, SearchResult};

#[cfg(test)]
#[path = "../../fuzz/harness.rs"]
mod fuzz;
