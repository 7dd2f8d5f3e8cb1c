//! `riverrun docs`.

use clap::Subcommand;

use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;
use crate::paging::PageArgs;

mod ls;
pub(super) mod rm;
mod show;

/// What to do with documents.
#[derive(Debug, Subcommand)]
pub enum DocsCommand {
    /// List the documents of a collection
    Ls {
        /// The collection
        #[arg(short, long, default_value = "default")]
        collection: String,
        /// Its namespace
        #[arg(short, long)]
        namespace: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a document with its versions
    Show {
        /// An id of `riverrun docs ls`
        id: String,
        /// Its namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Remove a document from every index, and say what went
    Rm {
        /// An id of `riverrun docs ls`
        id: String,
        /// Its namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
}

pub async fn run(connection: &Connection, command: DocsCommand, output: Output) -> Result<(), CliError> {
    match command {
        DocsCommand::Ls { collection, namespace, page } => {
            ls::run(connection, collection, namespace, page, output).await
        }
        DocsCommand::Show { id, namespace } => show::run(connection, &id, namespace, output).await,
        DocsCommand::Rm { id, namespace } => rm::run(connection, &id, namespace, output).await,
    }
}
