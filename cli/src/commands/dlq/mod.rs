//! `riverrun dlq`.

pub mod drop;
pub mod ls;
pub mod redrive;
pub mod show;

use std::path::PathBuf;

use clap::Subcommand;

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, oldest first
    Ls {
        /// Only those of this topic
        #[arg(long)]
        topic: Option<String>,
        /// Most dead letters of each topic, the newest ones, 1 to 500; 50 when left out
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Show one with its bytes
    Show {
        /// An id of `riverrun dlq ls`
        id: String,
        /// Also write its original bytes to this file
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Mark one as needing nothing
    Drop {
        /// An id of `riverrun dlq ls`
        id: String,
    },
    /// Send its original bytes to its topic again
    Redrive {
        /// An id of `riverrun dlq ls`
        id: String,
        /// Also when it was handled before
        #[arg(long)]
        again: bool,
    },
}
