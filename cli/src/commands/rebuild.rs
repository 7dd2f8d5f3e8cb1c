//! `riverrun collections rebuild`.

use clap::Args;
use riverrun_api::wire::{RebuildBody, RebuildView};
use riverrun_schemas::counted;

use crate::awaited;
use crate::client::encode;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, tell};

/// Options of `collections rebuild`.
#[derive(Debug, Args)]
pub struct RebuildArgs {
    /// The collection
    pub name: String,
    /// Set aside what is there and make everything again, instead of completing it
    #[arg(long)]
    pub afresh: bool,
    /// Its namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
}

pub async fn run(connection: &Connection, args: RebuildArgs, output: Output) -> Result<(), CliError> {
    let view = ended(connection, args, output).await?;
    output.show(&view, summary)?;
    complete(&view)
}

/// The same where somebody else says what came of it: a person is told, JSON is left to the caller.
pub async fn make_whole(connection: &Connection, args: RebuildArgs, output: Output) -> Result<(), CliError> {
    let view = ended(connection, args, output).await?;
    if !output.json {
        tell(&summary(&view));
    }
    complete(&view)
}

/// Asks for it, and waits for its end.
async fn ended(connection: &Connection, args: RebuildArgs, output: Output) -> Result<RebuildView, CliError> {
    let path = format!("/collections/{}/rebuild", encode(&args.name));
    let body = RebuildBody { afresh: args.afresh.then_some(true), namespace: args.namespace };
    let meanwhile = |_: &RebuildView| {
        "making keywords and vectors again from the log; searches tell until then that chunks may be lacking".to_owned()
    };
    awaited::ended(connection, &path, &body, meanwhile, output).await
}

fn summary(view: &RebuildView) -> String {
    let done = view.result.clone().unwrap_or_default();
    format!(
        "{}/{}: {} of {}; written again: {} ({} of them embedded anew) and {}; {} removed",
        view.namespace,
        view.collection,
        counted(done.chunks, "chunk"),
        counted(done.documents, "document"),
        counted(done.vectors, "vector"),
        done.embedded,
        counted(done.keywords, "keyword"),
        counted(done.removed, "document")
    )
}

/// What could not be made again is an error.
fn complete(view: &RebuildView) -> Result<(), CliError> {
    let missing = view.result.as_ref().map_or(0, |result| result.missing);
    if missing == 0 {
        return Ok(());
    }
    let of = counted(missing, "document");
    let lost = format!("the chunks of {of} are not on the log any more and could not be made again");
    Err(CliError::new(Exit::Failed, lost).hint(
        "remove these documents (riverrun docs rm), ingest their sources again, and rebuild; riverrun collections check names them",
    ))
}
