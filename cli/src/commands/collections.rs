//! `riverrun collections`.

use clap::{Args, Subcommand};
use riverrun_api::wire::{CollectionView, DeletionView, Items};

use super::docs::rm;
use super::{rebuild, reembed, tune};
use crate::client::{encode, with_query};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

mod check;

/// Options of `collections`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CollectionsArgs {
    /// The namespace; every one when left out
    #[arg(short, long)]
    pub namespace: Option<String>,
    #[command(subcommand)]
    pub command: Option<CollectionsCommand>,
}

/// What to do with collections.
#[derive(Debug, Subcommand)]
pub enum CollectionsCommand {
    /// List collections, with how much is in them
    Ls {
        /// The namespace; every one when left out
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Remove a collection with all of its documents, and say what went
    Rm {
        /// The collection
        name: String,
        /// Its namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Embed a collection with another model, beside the searches, and go over to it when all is there
    Reembed(reembed::ReembedArgs),
    /// Learn from judgements where questions to a collection should look; `--off` searches as without
    Tune(tune::TuneArgs),
    /// Make keywords and vectors of a collection again from the log, where they are lost, damaged or behind
    Rebuild(rebuild::RebuildArgs),
    /// Compare vectors, keywords and read model of a collection, chunk by chunk
    Check {
        /// The collection
        name: String,
        /// Its namespace
        #[arg(short, long)]
        namespace: Option<String>,
        /// Where they differ, make it whole from the log, as `collections rebuild` does, and compare again
        #[arg(long)]
        repair: bool,
    },
}

pub async fn run(connection: &Connection, args: CollectionsArgs, output: Output) -> Result<(), CliError> {
    match args.command {
        None => ls(connection, args.namespace, output).await,
        Some(CollectionsCommand::Ls { namespace }) => ls(connection, namespace, output).await,
        Some(CollectionsCommand::Rm { name, namespace }) => {
            let path = with_query(&format!("/collections/{}", encode(&name)), &[("namespace", namespace)]);
            let receipt: DeletionView = connection.client.delete(&path).await?;
            rm::show(&receipt, output)
        }
        Some(CollectionsCommand::Reembed(args)) => reembed::run(connection, args, output).await,
        Some(CollectionsCommand::Tune(args)) => tune::run(connection, args, output).await,
        Some(CollectionsCommand::Rebuild(args)) => rebuild::run(connection, args, output).await,
        Some(CollectionsCommand::Check { name, namespace, repair }) => {
            check::run(connection, check::Check { name, namespace, repair }, output).await
        }
    }
}

async fn ls(connection: &Connection, namespace: Option<String>, output: Output) -> Result<(), CliError> {
    let found: Items<CollectionView> =
        connection.client.get(&with_query("/collections", &[("namespace", namespace)])).await?;
    output.show(&found, |found| {
        let row = |c: &CollectionView| {
            let embedding = format!("{} ({})", c.embedding.model, c.embedding.dimensions);
            [
                c.name.to_string(),
                c.namespace.to_string(),
                c.documents.to_string(),
                c.chunks.to_string(),
                embedding,
                c.updated_at.to_string(),
            ]
        };
        let empty = "there are no collections; make one: riverrun ingest <source> -c <collection>";
        table(
            ["collection", "namespace", "documents", "chunks", "embedding", "updated"],
            found.items.iter().map(row).collect(),
            empty,
        )
    })
}
