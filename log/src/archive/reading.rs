//! From a file to a broker, and the proof that what is there is what was in the file.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;

use riverrun_schemas::counted;
use sha2::{Digest, Sha256};

use super::{ArchiveError, PartitionFile, line};
use crate::config::LogConfig;
use crate::error::LogError;
use crate::producer::Producer;
use crate::record::{Outgoing, StartAt, TopicPartition};
use crate::tail::Tail;

/// Records that are written before an acknowledgement is waited for.
const CHUNK_RECORDS: usize = 500;
/// The same, in bytes.
const CHUNK_BYTES: usize = 4 << 20;

/// What came of bringing a partition back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// Records that were there already, from a try before.
    pub found: u64,
    /// Records that were written.
    pub written: u64,
}

/// Checks that a file is what the manifest says, before anything is written.
///
/// # Errors
/// When it is not.
pub fn check_file(path: &Path, expected: &PartitionFile) -> Result<(), ArchiveError> {
    let damaged = |reason: String| ArchiveError::Damaged { path: path.to_owned(), reason };
    let place = expected.place();
    let (mut hash, mut records) = (Sha256::new(), 0u64);
    for text in lines(path)? {
        let text = text.map_err(ArchiveError::io("reading", path))?;
        records += 1;
        line::read(&text, &place).map_err(|reason| damaged(format!("line {records}: {reason}")))?;
        hash.update(text.as_bytes());
        hash.update(b"\n");
    }
    let found = format!("{:x}", hash.finalize());
    if records != expected.records || found != expected.sha256 {
        return Err(damaged(format!(
            "it has {} and the hash {found}; the manifest says {} and {}",
            counted(records, "record"),
            expected.records,
            expected.sha256
        )));
    }
    Ok(())
}

/// Writes a file's records to a partition that is empty, or goes on where a try before ended.
///
/// # Errors
/// When the partition holds something else, or the broker fails; running it again goes on.
pub async fn restore(
    config: &LogConfig,
    producer: &Producer,
    expected: &PartitionFile,
    path: &Path,
) -> Result<Restored, ArchiveError> {
    let place = expected.place();
    let mut wanted = lines(path)?;
    let found = skip_what_is_there(config, &place, &mut wanted, path).await?;
    let (mut chunk, mut bytes, mut written) = (Vec::new(), 0usize, 0u64);
    for text in wanted {
        let text = text.map_err(ArchiveError::io("reading", path))?;
        let record =
            line::read(&text, &place).map_err(|reason| ArchiveError::Damaged { path: path.to_owned(), reason })?;
        bytes += text.len();
        chunk.push(record);
        if chunk.len() >= CHUNK_RECORDS || bytes >= CHUNK_BYTES {
            written += send(producer, &mut chunk).await?;
            bytes = 0;
        }
    }
    written += send(producer, &mut chunk).await?;
    Ok(Restored { found, written })
}

async fn send(producer: &Producer, chunk: &mut Vec<(Outgoing, i64)>) -> Result<u64, ArchiveError> {
    let sent = producer.send_again(chunk).await?.len();
    chunk.clear();
    Ok(u64::try_from(sent).unwrap_or(u64::MAX))
}

/// Compares what a partition holds with the file's first lines; gives how many there were.
async fn skip_what_is_there(
    config: &LogConfig,
    place: &TopicPartition,
    wanted: &mut Lines<BufReader<File>>,
    path: &Path,
) -> Result<u64, ArchiveError> {
    let not_empty = |reason: String| ArchiveError::NotEmpty { partition: place.clone(), reason };
    let mut range = Tail::read_range(config, place.clone(), StartAt::Beginning).await?;
    let mut found = 0u64;
    while let Some(record) = range.next().await? {
        if u64::try_from(record.offset) != Ok(found) {
            return Err(not_empty(format!("record {found} has the offset {}", record.offset)));
        }
        let line = wanted.next().transpose().map_err(ArchiveError::io("reading", path))?;
        if line.is_none_or(|line| line != super::line::write(&record).trim_end_matches('\n')) {
            return Err(not_empty(format!("its record {found} is another one")));
        }
        found += 1;
    }
    if u64::try_from(range.end()) != Ok(found) {
        let records = counted(found, "record");
        return Err(not_empty(format!("it has {records} and ends at offset {}", range.end())));
    }
    Ok(found)
}

/// Reads a partition back: its records and their hash are those of the file.
///
/// # Errors
/// When they are not.
pub async fn verify(config: &LogConfig, expected: &PartitionFile) -> Result<(), ArchiveError> {
    let place = expected.place();
    let (mut hash, mut records) = (Sha256::new(), 0u64);
    let mut range = Tail::read_range(config, place.clone(), StartAt::Beginning).await?;
    loop {
        match range.next().await {
            Ok(Some(record)) => {
                hash.update(line::write(&record).as_bytes());
                records += 1;
            }
            Ok(None) => break,
            Err(LogError::OutOfRange { partition, .. }) => return Err(ArchiveError::Moved { partition }),
            Err(error) => return Err(error.into()),
        }
    }
    let found = format!("{:x}", hash.finalize());
    if records == expected.records && found == expected.sha256 {
        return Ok(());
    }
    Err(ArchiveError::Differs {
        partition: place,
        found: format!("{} with the hash {found}", counted(records, "record")),
        expected: format!("{} with {}", expected.records, expected.sha256),
    })
}

fn lines(path: &Path) -> Result<Lines<BufReader<File>>, ArchiveError> {
    Ok(BufReader::new(File::open(path).map_err(ArchiveError::io("reading", path))?).lines())
}
