//! `riverrun agent`.

pub mod run;
