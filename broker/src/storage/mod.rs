//! Everything that touches a disk.
//!
//! A partition is a folder of segment files that hold record batches verbatim. Producers' records are queued in memory,
//! written and synced by a pool of flusher threads (group commit), and only then acknowledged and visible
//! (`DURABLE-1`: whatever was acknowledged is there after a crash; `DURABLE-2`: nothing is served that is not durable).

pub(crate) mod compaction;
#[cfg(test)]
mod compaction_tests;
pub(crate) mod disk;
pub(crate) mod files;
pub(crate) mod flusher;
pub(crate) mod journal;
pub(crate) mod partition;
pub(crate) mod producers;
pub(crate) mod read;
pub(crate) mod recovery;
pub(crate) mod segment;
#[cfg(test)]
pub(crate) mod test_log;
pub(crate) mod trouble;
