//! `riverrun rag`; `rag search` is `search`.

pub mod ask;
pub mod eval;
