//! `riverrun collections`.

use clap::{Args, Subcommand};
use riverrun_api::wire::{CollectionCheck, CollectionView, DeletionView, Items};

use super::docs::rm;
use super::{rebuild, reembed};
use crate::client::{encode, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, print_line, table, tell};

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
    /// Make keywords and vectors of a collection again from the log, where they are lost, damaged or behind
    Rebuild(rebuild::RebuildArgs),
    /// Compare vectors, keywords and read model of a collection, document by document
    Check {
        /// The collection
        name: String,
        /// Its namespace
        #[arg(short, long)]
        namespace: Option<String>,
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
        Some(CollectionsCommand::Rebuild(args)) => rebuild::run(connection, args, output).await,
        Some(CollectionsCommand::Check { name, namespace }) => check(connection, &name, namespace, output).await,
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

async fn check(connection: &Connection, name: &str, namespace: Option<String>, output: Output) -> Result<(), CliError> {
    let path = with_query(&format!("/collections/{}/check", encode(name)), &[("namespace", namespace)]);
    let found: CollectionCheck = connection.client.get(&path).await?;
    output.show(&found, |found| {
        format!(
            "{}/{}: {} chunks · {} vectors · {} keywords · {} orphans · {} missing · {} too many",
            found.namespace,
            found.collection,
            found.chunks,
            found.vectors,
            found.keywords,
            found.orphans.len(),
            found.missing,
            found.surplus
        )
    })?;
    if found.is_whole() {
        return Ok(());
    }
    if !output.json {
        for orphan in &found.orphans {
            print_line(&format!(
                "{}  {} chunks · {} vectors · {} keywords",
                orphan.document_id, orphan.chunks, orphan.vectors, orphan.keywords
            ))?;
        }
        for problem in &found.problems {
            tell(&format!("{}: {}", problem.code, problem.message));
        }
        tell("documents that are on their way differ for a moment; check again when nothing is ingested");
    }
    let what = match found.problems.first() {
        Some(problem) => format!("collection {name:?} is not whole: {}", problem.message),
        None => format!("{} documents are not everywhere alike", found.orphans.len()),
    };
    let known = found.problems.first().and_then(|problem| problem.hint.clone());
    let fix = format!("riverrun collections rebuild {} -n {}", found.collection, found.namespace);
    Err(CliError::new(Exit::Failed, what).hint(known.unwrap_or(fix)))
}
