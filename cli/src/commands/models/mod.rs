//! `riverrun models`.

pub mod ls;
pub mod pull;
