//! `riverrun chains`.

mod cancel;
mod show;
mod watch;

use clap::Subcommand;

use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;

/// What to do with chains. Their runs are listed by `runs ls --chain`.
#[derive(Debug, Subcommand)]
pub enum ChainsCommand {
    /// Show a chain: where each of its runs is, and what they have used
    Show {
        /// The chain
        chain_id: String,
    },
    /// Follow a chain to its end
    Watch {
        /// The chain
        chain_id: String,
    },
    /// Ask every run of a chain to stop, those that still wait for others too
    Cancel {
        /// The chain
        chain_id: String,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn run(connection: &Connection, command: ChainsCommand, output: Output) -> Result<(), CliError> {
    match command {
        ChainsCommand::Show { chain_id } => show::run(connection, &chain_id, output).await,
        ChainsCommand::Watch { chain_id } => watch::run(connection, &chain_id, output).await,
        ChainsCommand::Cancel { chain_id, reason } => cancel::run(connection, &chain_id, reason, output).await,
    }
}
