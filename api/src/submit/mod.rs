//! From requests to commands on the log. Checking is pure; writing returns after the broker's acknowledgement. The
//! command line uses the same functions when it writes to the broker of a running server.

mod chain;
mod checks;
mod ingest;
mod place;
mod runs;

pub(crate) use chain::{Chained, chained};
pub use checks::Checks;
pub(crate) use checks::{after, collection, namespace, one_of, page};
pub(crate) use ingest::to_i64;
pub use ingest::{
    IngestDefaults, IngestTarget, SourceOptions, ingest_command, ingest_target, same_embed_model, submit_ingest,
};
pub use place::{existing, resolve_under};
pub use runs::{Known, KnownTool, cancel_run, run_id_for, run_request, same_request, submit_run};
pub(crate) use runs::{MAX_TASK, possible_run_ids};
