//! The workers: each one method from events to what follows from them, over one shared loop.

pub mod agent;
pub mod analyzer;
pub mod blobs;
pub mod documents;
pub mod embedder;
pub mod indexer;
pub mod ingester;
pub mod ledger;
pub mod memory;
pub mod projector;
pub mod rebuilder;
pub mod reembedder;
pub mod runtime;
pub mod stream;
pub mod tracer;
pub mod trainer;
pub mod tree_builder;
pub mod tuner;
pub mod turns;

mod about;
mod commits;
mod failures;
mod follower;
