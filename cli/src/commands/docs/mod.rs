//! `riverrun docs`.

pub mod ls;
