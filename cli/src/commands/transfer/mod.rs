//! `riverrun export` and `riverrun import`: everything that has to be carried from one place to another, as one folder. The
//! log, the blobs and a few files are carried; what is made from the log is made again.

pub mod export;
mod files;
pub mod import;
mod manifest;
mod place;

use std::path::PathBuf;

use clap::Args;
use riverrun_log::archive::ArchiveError;

use crate::error::{CliError, Exit};

/// Options of `export` and `import`.
#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// The folder of the archive
    pub folder: PathBuf,
}

/// Workers whose place in the log is carried. The others make something again from the log: they begin at its beginning.
/// `import` of an archive from before a worker was listed here lets it begin there, too.
const CARRIED: &[&str] = &[
    "agent",
    "ingester",
    "rebuilder",
    "tree-builder",
    "tuner",
    "embedder",
    "memory-runs",
    "memory-summary",
    "tracer",
    "trainer",
    "analyzer",
];

fn failed(error: ArchiveError) -> CliError {
    let (exit, hint) = match &error {
        ArchiveError::Log(error) => (Exit::ServiceDown, error.hint().unwrap_or("check RIVERRUN_KAFKA_BROKERS").to_owned()),
        ArchiveError::Blob(_) | ArchiveError::Io { .. } => (Exit::Failed, "check the disk; running it again goes on".to_owned()),
        ArchiveError::Damaged { .. } => (Exit::Failed, "copy the archive again from where it was made".to_owned()),
        ArchiveError::NotEmpty { .. } => (
            Exit::Refused,
            "import into an empty broker and data folder: records of two logs in one partition would contradict each other".to_owned(),
        ),
        ArchiveError::Moved { .. } | ArchiveError::Differs { .. } => {
            (Exit::Failed, "end every riverrun process on that broker, then run it again".to_owned())
        }
    };
    CliError::new(exit, error.to_string()).hint(hint)
}

#[cfg(test)]
mod tests {
    use riverrun_api::stack::COMMITTING;

    use super::*;

    /// Those that make something again from the log.
    const AGAIN: [&str; 3] = ["indexer", "memory-episodes", "reembedder"];

    #[test]
    fn given_a_worker_of_every_cluster_when_its_log_is_moved_then_it_is_known_whether_its_place_is_carried() {
        for (worker, _) in COMMITTING {
            assert!(CARRIED.contains(&worker) != AGAIN.contains(&worker), "{worker}: is it in one of the two lists?");
        }
    }
}
