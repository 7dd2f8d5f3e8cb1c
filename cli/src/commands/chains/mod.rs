//! `riverrun chains`.

mod cancel;
mod show;
mod watch;

use clap::{Args, Subcommand};

use crate::client::{encode, with_query};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;

/// One chain.
#[derive(Debug, Args)]
pub struct OneChain {
    /// The chain
    chain_id: String,
    /// Where it must be: a chain of another namespace is unknown
    #[arg(short, long)]
    namespace: Option<String>,
}

impl OneChain {
    fn path(&self, rest: &str) -> String {
        with_query(&format!("/chains/{}{rest}", encode(&self.chain_id)), &[("namespace", self.namespace.clone())])
    }
}

/// What to do with chains. Their runs are listed by `runs ls --chain`.
#[derive(Debug, Subcommand)]
pub enum ChainsCommand {
    /// Show a chain: where each of its runs is, and what they have used
    Show(OneChain),
    /// Follow a chain to its end
    Watch(OneChain),
    /// Ask every run of a chain to stop, those that still wait for others too
    Cancel {
        #[command(flatten)]
        chain: OneChain,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn run(connection: &Connection, command: ChainsCommand, output: Output) -> Result<(), CliError> {
    match command {
        ChainsCommand::Show(chain) => show::run(connection, &chain, output).await,
        ChainsCommand::Watch(chain) => watch::run(connection, &chain, output).await,
        ChainsCommand::Cancel { chain, reason } => cancel::run(connection, &chain, reason, output).await,
    }
}
