//! `riverrun blobs`: what lies in the blob store, and what may go.

use clap::Subcommand;
use riverrun_api::wire::{BlobEntry, BlobList, BlobSum, BlobSweep, BlobSweepBody};
use riverrun_schemas::counted;

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table, tell};

/// What to do with the blob store.
#[derive(Debug, Subcommand)]
pub enum BlobsCommand {
    /// List the largest blobs
    Ls {
        /// Most blobs, 1 to 1,000; 50 when left out
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Tell what a sweep would set aside and remove; changes nothing
    Check {
        /// Hours that a blob is left alone after it was written, and again after it was set aside; 24 when left out
        #[arg(long, value_name = "HOURS")]
        grace: Option<u64>,
    },
    /// Set aside what nothing names any more, and remove what was set aside before and is not missed
    Sweep {
        /// Hours that a blob is left alone after it was written, and again after it was set aside; 24 when left out
        #[arg(long, value_name = "HOURS")]
        grace: Option<u64>,
    },
}

pub(crate) async fn run(connection: &Connection, command: BlobsCommand, output: Output) -> Result<(), CliError> {
    let client = &connection.client;
    match command {
        BlobsCommand::Ls { limit } => {
            let path = with_query("/blobs", &[("limit", limit.map(|limit| limit.to_string()))]);
            let found: BlobList = client.get(&path).await?;
            output.show(&found, listed)?;
            if !output.json {
                tell(&format!("{} in their place, {} set aside", sum(found.kept), sum(found.aside)));
            }
            Ok(())
        }
        BlobsCommand::Check { grace } => {
            let path = with_query("/blobs/check", &[("grace_hours", grace.map(|hours| hours.to_string()))]);
            let found: BlobSweep = client.get(&path).await?;
            output.show(&found, told)
        }
        BlobsCommand::Sweep { grace } => {
            let done: BlobSweep = client.post("/blobs/sweep", &BlobSweepBody { grace_hours: grace }).await?;
            output.show(&done, told)
        }
    }
}

fn listed(found: &BlobList) -> String {
    let row = |blob: &BlobEntry| {
        let place = if blob.aside { "set aside" } else { "" };
        [blob.sha256.clone(), blob.size_bytes.to_string(), blob.since.to_string(), place.to_owned()]
    };
    table(["blob", "bytes", "since", "place"], found.items.iter().map(row).collect(), "there are no blobs")
}

fn told(swept: &BlobSweep) -> String {
    let (aside, back, gone) = if swept.dry_run {
        ("would be set aside", "would be brought back", "would be removed")
    } else {
        ("set aside", "brought back", "removed")
    };
    let line = |what: &str, of: BlobSum| [what.to_owned(), of.blobs.to_string(), of.bytes.to_string()];
    let rows = vec![
        line("named", swept.named),
        line(&format!("named by nothing for less than {} h", swept.grace_hours), swept.waiting),
        line(aside, swept.set_aside),
        line(back, swept.brought_back),
        line(gone, swept.removed),
    ];
    table(["what", "blobs", "bytes"], rows, "")
}

fn sum(of: BlobSum) -> String {
    format!("{} of {}", counted(of.blobs, "blob"), counted(of.bytes, "byte"))
}
