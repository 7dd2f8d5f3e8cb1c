//! `riverrun tools`.

pub mod check;
pub mod ls;
