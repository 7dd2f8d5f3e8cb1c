//! `riverrun dlq`.

pub mod drop;
pub mod ls;
pub mod redrive;
pub mod show;
