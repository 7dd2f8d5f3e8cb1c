//! `riverrun stream`: documents on topics.

use clap::Subcommand;

pub mod consume;
pub mod produce;

/// What to do with documents on topics.
#[derive(Debug, Subcommand)]
pub enum StreamCommand {
    /// Publish a document on a topic
    Produce(produce::ProduceArgs),
    /// Take the documents of a topic into a collection, from where it was the last time
    Consume(consume::ConsumeArgs),
}
