//! From a broker to a file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use riverrun_schemas::agent::AgentEvent;
use riverrun_schemas::{Decoded, Topic};
use sha2::{Digest, Sha256};

use super::{ArchiveError, PartitionFile, line};
use crate::config::LogConfig;
use crate::dead_letters::{self, marked_offset, re_mark};
use crate::error::LogError;
use crate::record::{Record, StartAt, TopicPartition};
use crate::registry::Schemas;
use crate::tail::Tail;

/// Offsets of a partition, and the record of the archive that each became: the first one at or behind it.
pub type Asked = BTreeMap<i64, u64>;

/// Writes what a partition holds now to `path`, in one piece, and fills in what `asked` offsets became.
///
/// # Errors
/// When the broker or the disk fails, or records fall off the log meanwhile.
pub async fn save(
    config: &LogConfig,
    place: &TopicPartition,
    asked: &mut Asked,
    path: &Path,
) -> Result<PartitionFile, ArchiveError> {
    let draft = path.with_extension("part");
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(ArchiveError::io("making", folder))?;
    }
    let mut out = BufWriter::new(File::create(&draft).map_err(ArchiveError::io("writing", &draft))?);
    let (mut hash, mut form) = (Sha256::new(), Form::new(place, &config.schemas));
    let mut range = Tail::read_range(config, place.clone(), StartAt::Beginning).await?;
    loop {
        let record = match range.next().await {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(LogError::OutOfRange { partition, .. }) => return Err(ArchiveError::Moved { partition }),
            Err(error) => return Err(error.into()),
        };
        form.reached(record.offset, asked);
        if let Some(record) = form.take(record) {
            let line = line::write(&record);
            hash.update(line.as_bytes());
            out.write_all(line.as_bytes()).map_err(ArchiveError::io("writing", &draft))?;
        }
    }
    form.reached(i64::MAX, asked);
    let file = out.into_inner().map_err(|error| ArchiveError::io("writing", &draft)(error.into_error()))?;
    file.sync_all().and_then(|()| fs::rename(&draft, path)).map_err(ArchiveError::io("writing", path))?;
    Ok(PartitionFile {
        topic: place.topic.to_string(),
        partition: place.partition,
        records: form.records,
        sha256: format!("{:x}", hash.finalize()),
    })
}

/// Brings the records of a partition into the form of archives.
struct Form {
    records: u64,
    /// Offsets of the letters and marks so far; only of a dead-letter topic.
    kept: Option<Vec<i64>>,
    has_snapshots: bool,
    schemas: Schemas,
    /// The asked offsets that are not known yet begin here.
    asked_from: i64,
}

impl Form {
    fn new(place: &TopicPartition, schemas: &Schemas) -> Self {
        Self {
            records: 0,
            kept: place.topic.ends_with(dead_letters::SUFFIX).then(Vec::new),
            has_snapshots: &*place.topic == Topic::AgentEvents.name(),
            schemas: schemas.clone(),
            asked_from: i64::MIN,
        }
    }

    /// Every asked offset up to this one became the record that comes next.
    fn reached(&mut self, offset: i64, asked: &mut Asked) {
        if self.asked_from > offset {
            return;
        }
        for (_, record) in asked.range_mut(self.asked_from..=offset) {
            *record = self.records;
        }
        self.asked_from = offset.saturating_add(1);
    }

    fn take(&mut self, mut record: Record) -> Option<Record> {
        if self.has_snapshots && is_snapshot(&self.schemas, &record) {
            return None;
        }
        if let Some(kept) = &mut self.kept {
            if let Some(marked) = marked_offset(&record) {
                let place = kept.binary_search(&marked).unwrap_or_else(|behind| behind);
                re_mark(&mut record, i64::try_from(place).unwrap_or(i64::MAX));
            }
            kept.push(record.offset);
        }
        self.records += 1;
        Some(record)
    }
}

fn is_snapshot(schemas: &Schemas, record: &Record) -> bool {
    matches!(schemas.decode::<AgentEvent>(record), Ok(Decoded::Event(AgentEvent::RunSnapshotted(_))))
}
