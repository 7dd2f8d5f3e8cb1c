//! `riverrun models`.

pub mod ls;
pub mod probe;
pub mod pull;
pub mod rm;
pub mod show;
