//! `riverrun export`: log, blobs and files into a folder.

use std::collections::BTreeMap;
use std::path::Path;

use riverrun_log::archive::{self, Asked, Committed, GroupPlace, PartitionFile};
use riverrun_log::{BlobStore, ObjectStoreBlobs, TopicPartition};
use riverrun_schemas::{BlobRef, Topic, counted, now_ms};
use riverrun_workers::runtime::group_of;
use serde::Serialize;

use super::manifest::{BlobSum, FORMAT, Manifest, log_file};
use super::place::{Place, down};
use super::{ArchiveArgs, CARRIED, failed, files};
use crate::error::{CliError, Exit};
use crate::output::Output;
use crate::progress;
use crate::settings::Settings;

#[derive(Serialize)]
struct Exported {
    folder: String,
    records: u64,
    blobs: u64,
    blob_bytes: i64,
    files: usize,
}

/// Reads the broker and the blob store of the settings; nobody may be at work on them. Running it again brings the archive
/// up to date: blobs that are in it are not copied again.
pub async fn run(args: ArchiveArgs, settings: &Settings, output: Output) -> Result<(), CliError> {
    std::fs::create_dir_all(&args.folder).map_err(|error| {
        CliError::new(Exit::Failed, format!("making {} failed: {error}", args.folder.display())).hint("check the disk")
    })?;
    let place = Place::open(settings, "export").await?;
    let result = export(&place, &args.folder, settings, output).await;
    place.close().await;
    let manifest = result?;
    let done = Exported {
        folder: args.folder.display().to_string(),
        records: manifest.records(),
        blobs: manifest.blobs.count,
        blob_bytes: manifest.blobs.bytes,
        files: manifest.files.len(),
    };
    output.show(&done, |done| {
        let (records, blobs) = (counted(done.records, "record"), counted(done.blobs, "blob"));
        format!("{records}, {blobs} and {} in {}", counted(done.files, "file"), done.folder)
    })
}

async fn export(place: &Place, folder: &Path, settings: &Settings, output: Output) -> Result<Manifest, CliError> {
    let partitions = place.partitions().await?;
    let (ends, groups) = (place.ends(&partitions).await?, groups(place, &partitions).await?);
    let mut asked = asked(&groups);
    let mut log: Vec<PartitionFile> = Vec::with_capacity(partitions.len());
    for partition in &partitions {
        let path = log_file(folder, partition);
        let of = asked.entry(partition.clone()).or_default();
        log.push(archive::save(&place.log, partition, of, &path).await.map_err(failed)?);
    }
    let blobs = copy_blobs(&place.blobs, &archive_blobs(folder)?, output).await?;
    if place.ends(&partitions).await? != ends || self::groups(place, &partitions).await? != groups {
        return Err(CliError::new(Exit::Failed, "the log went on while it was exported")
            .hint("end every riverrun process on that broker, then run it again"));
    }
    let manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_at_ms: now_ms(),
        log,
        groups: groups.iter().map(|(group, place)| position(group, place, &asked)).collect(),
        blobs: BlobSum::of(&blobs),
        files: files::save(settings, folder)?,
    };
    manifest.write(folder)?;
    Ok(manifest)
}

/// Where the workers are whose place is carried.
async fn groups(place: &Place, partitions: &[TopicPartition]) -> Result<Vec<(String, GroupPlace)>, CliError> {
    let mut found = Vec::new();
    for worker in CARRIED {
        let group = group_of(worker);
        let places = archive::committed(&place.log, &group, partitions.to_vec()).await.map_err(down)?;
        found.extend(places.into_iter().map(|place| (group.clone(), place)));
    }
    Ok(found)
}

/// What the note beside an offset is an offset of: the worker of runs notes where to fold events from.
fn noted(place: &GroupPlace) -> TopicPartition {
    if &*place.partition.topic == Topic::AgentCommands.name() {
        return TopicPartition::new(Topic::AgentEvents.name(), place.partition.partition);
    }
    place.partition.clone()
}

type AskedOffsets = BTreeMap<TopicPartition, Asked>;

fn asked(groups: &[(String, GroupPlace)]) -> AskedOffsets {
    let mut asked = AskedOffsets::new();
    for (_, place) in groups {
        asked.entry(place.partition.clone()).or_default().insert(place.offset, 0);
        if let Some(note) = place.note {
            asked.entry(noted(place)).or_default().insert(note, 0);
        }
    }
    asked
}

/// The same place in records of the archive.
fn position(group: &str, place: &GroupPlace, asked: &AskedOffsets) -> Committed {
    let record = |partition: &TopicPartition, offset: i64| {
        asked.get(partition).and_then(|offsets| offsets.get(&offset)).copied().unwrap_or(0)
    };
    Committed {
        group: group.to_owned(),
        topic: place.partition.topic.to_string(),
        partition: place.partition.partition,
        next: record(&place.partition, place.offset),
        note: place.note.map(|note| record(&noted(place), note)),
    }
}

/// The blobs of an archive lie in it like in any other store.
pub(super) fn archive_blobs(folder: &Path) -> Result<ObjectStoreBlobs, CliError> {
    ObjectStoreBlobs::local(&folder.join("blobs")).map_err(|error| failed(error.into()))
}

/// Copies what the other store does not have; each content is checked against its hash. Gives all that were there.
pub(super) async fn copy_blobs(
    from: &ObjectStoreBlobs,
    to: &ObjectStoreBlobs,
    output: Output,
) -> Result<Vec<BlobRef>, CliError> {
    let blobs = from.list().await.map_err(|error| failed(error.into()))?;
    let bar = progress::bar(output, Some(blobs.len() as u64), "blobs");
    bar.set_message("copied");
    for blob in &blobs {
        if !to.exists(blob).await.map_err(|error| failed(error.into()))? {
            let content = from.get(blob).await.map_err(|error| failed(error.into()))?;
            to.put_bytes(content, &blob.media_type).await.map_err(|error| failed(error.into()))?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(blobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(topic: &str, offset: i64, note: Option<i64>) -> GroupPlace {
        GroupPlace { partition: TopicPartition::new(topic, 1), offset, note }
    }

    #[test]
    fn given_places_of_groups_when_they_are_brought_into_records_then_a_note_of_commands_counts_events() {
        let groups = vec![
            ("riverrun.agent".to_owned(), place(Topic::AgentCommands.name(), 10, Some(70))),
            ("riverrun.tracer".to_owned(), place(Topic::AgentEvents.name(), 90, Some(80))),
        ];
        let mut offsets = asked(&groups);
        for asked in offsets.values_mut() {
            asked.iter_mut().for_each(|(offset, record)| *record = u64::try_from(*offset / 10).unwrap());
        }
        let found: Vec<_> = groups.iter().map(|(group, place)| position(group, place, &offsets)).collect();
        assert_eq!((found[0].next, found[0].note), (1, Some(7)));
        assert_eq!((found[1].next, found[1].note), (9, Some(8)));
        assert!(offsets[&TopicPartition::new(Topic::AgentEvents.name(), 1)].contains_key(&70));
    }
}
