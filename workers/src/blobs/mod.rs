//! What is in the blob store and named by nothing that lives any more goes: marked from the log, swept in two steps.
//!
//! - `BLOB-1` what something that lives names is never missing: a sweep takes only what nothing names and what is older than a time of
//!   grace, first out of its place, where whoever asks for it finds it and brings it back, and for good only when it is not missed for as
//!   long again. So content that is handed in again meanwhile, a second sweep beside the first and a crash in any place do no harm.
//! - `BLOB-2` where it can't be known what is named, nothing goes: a record that is not understood keeps what it names, and a log that was
//!   cut, a second log with the same store, or a list of further blobs that is damaged ends the sweep.
//!
//! The log says what is named, not a read model: that may be behind or be made again just now.

mod documents;
mod hash;
mod marks;
mod plan;
mod scan;
mod tunings;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use riverrun_log::admin::Admin;
use riverrun_log::blobs::KeptBlob;
use riverrun_log::{BlobError, BlobStore, LogConfig, LogError, TopicPartition};
use riverrun_schemas::now_ms;

use hash::Hash;
use plan::{Fate, Known};

/// Names of a report, at most.
const MAX_NAMES: usize = 100;

/// Why nothing, or no more, was swept.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The blob store can't be read or written, or a blob that names others is damaged.
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// The brokers do not say which log this is.
    #[error("the brokers do not tell their cluster's id, so it is not known which log names these blobs")]
    NoClusterId,
    /// What another log names is not known.
    #[error("other logs name blobs of this store: {logs}", logs = logs.join(", "))]
    Shared {
        /// Their clusters' ids.
        logs: Vec<String>,
    },
    /// What the first records have named is not known.
    #[error("{partition} begins at offset {low}: what its first records name is not known, so no blob is removed")]
    LogCut {
        /// Where.
        partition: TopicPartition,
        /// Its first offset.
        low: i64,
    },
}

/// So many blobs, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub blobs: u64,
    /// Their size.
    pub bytes: u64,
}

/// What a sweep found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Records that were read.
    pub records: u64,
    /// Named by something that lives.
    pub living: Sum,
    /// Named by nothing, for too short a time.
    pub waiting: Sum,
    /// Taken out of their place.
    pub set_aside: Sum,
    /// Put into their place again.
    pub brought_back: Sum,
    /// Gone for good.
    pub removed: Sum,
    /// The first hundred that were set aside or removed.
    pub names: Vec<String>,
}

impl SweepReport {
    fn count(&mut self, kept: &KeptBlob, fate: Fate) {
        let sum = match fate {
            Fate::Stays => &mut self.living,
            Fate::Waits => &mut self.waiting,
            Fate::GoesAside => &mut self.set_aside,
            Fate::ComesBack => &mut self.brought_back,
            Fate::Goes => &mut self.removed,
        };
        sum.blobs += 1;
        sum.bytes += kept.size_bytes;
        if matches!(fate, Fate::GoesAside | Fate::Goes) && self.names.len() < MAX_NAMES {
            self.names.push(kept.sha256.clone());
        }
    }
}

/// Tells the store that this log names blobs of it. Every process that opens both does so before anything is swept.
///
/// # Errors
/// When log or store fail, or another log names blobs of it, too.
pub async fn claim(admin: &Admin, blobs: &dyn BlobStore) -> Result<(), SweepError> {
    let log = admin.cluster_id().await?.ok_or(SweepError::NoClusterId)?;
    let logs = blobs.claim(&log).await?;
    if logs.is_empty() { Ok(()) } else { Err(SweepError::Shared { logs }) }
}

/// Sweeps once. With `dry_run` it only says what it would do. `grace` is how long a blob is left alone after it was written, and again
/// after it was set aside: longer than anything takes from putting a blob to the event that names it. Memory: about 100 bytes for each
/// document, project and name of a blob on the log.
///
/// # Errors
/// When log or store fail, and where it can't be known what is named. Then some may have been set aside, which the next sweep goes on with.
pub async fn sweep(
    log: &LogConfig,
    admin: &Admin,
    blobs: &dyn BlobStore,
    grace: Duration,
    dry_run: bool,
) -> Result<SweepReport, SweepError> {
    let now = now_ms();
    claim(admin, blobs).await?;
    // Before the log is read: what is put while it is read is not looked at.
    let mut kept = blobs.kept().await?;
    kept.sort_by(|a, b| a.sha256.cmp(&b.sha256).then(a.since_ms.cmp(&b.since_ms)));
    let (marks, records) = scan::read(log, admin).await?;
    let living = followed(blobs, marks.living()).await?;
    let known = Known::new(&kept, living, now.saturating_sub(i64::try_from(grace.as_millis()).unwrap_or(i64::MAX)));
    let mut report = SweepReport { records, ..SweepReport::default() };
    for kept in &kept {
        let fate = known.fate(kept);
        if dry_run || done(blobs, kept, fate).await? {
            report.count(kept, fate);
        }
    }
    Ok(report)
}

/// What is named, and what is named by that: lists of files, results of steps and the like are blobs that name others.
async fn followed(blobs: &dyn BlobStore, mut living: HashSet<Hash>) -> Result<HashSet<Hash>, BlobError> {
    let names = blobs.kept().await?.into_iter().filter_map(|kept| Some((hash::parse(&kept.sha256)?, kept.sha256)));
    let there: HashMap<Hash, String> = names.collect();
    let mut to_read: Vec<Hash> = there.keys().filter(|hash| living.contains(*hash)).copied().collect();
    while let Some(next) = to_read.pop() {
        let Some(name) = there.get(&next) else { continue };
        let Some(content) = blobs.json(name).await? else { continue };
        for named in hash::named_in(&content) {
            if living.insert(named) && there.contains_key(&named) {
                to_read.push(named);
            }
        }
    }
    Ok(living)
}

/// Whether it was done: another sweep may have been faster.
async fn done(blobs: &dyn BlobStore, kept: &KeptBlob, fate: Fate) -> Result<bool, BlobError> {
    match fate {
        Fate::Stays | Fate::Waits => Ok(true),
        Fate::GoesAside => blobs.set_aside(&kept.sha256, now_ms()).await,
        Fate::ComesBack => blobs.bring_back(&kept.sha256).await,
        Fate::Goes => blobs.forget(kept).await.map(|()| true),
    }
}

#[cfg(test)]
mod tests;
