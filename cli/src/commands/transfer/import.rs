//! `riverrun import`: an archive into an empty broker, blob store and data folder. Tried again, it goes on where it was.

use std::collections::BTreeMap;
use std::path::Path;

use riverrun_log::archive::{self, Committed, PartitionFile};
use riverrun_log::{BlobError, BlobStore, ObjectStoreBlobs, Producer};
use riverrun_schemas::topics::all_specs;
use riverrun_schemas::{BlobRef, Topic, counted};
use serde::Serialize;

use super::export::{archive_blobs, copy_blobs};
use super::manifest::{BlobSum, Manifest, log_file};
use super::place::{Place, carried, down};
use super::{ArchiveArgs, failed, files};
use crate::error::{CliError, Exit};
use crate::output::{Output, tell};
use crate::settings::Settings;

/// What is made from the log: with any of it there, the target is no empty one.
const MADE_FROM_THE_LOG: [&str; 4] = ["read.db", "vectors", "keywords", "memory"];

#[derive(Serialize)]
struct Imported {
    records: u64,
    written: u64,
    blobs: u64,
    files: usize,
    verified: bool,
}

/// Checks the archive, writes it, reads it back and compares, and tells the groups where they are.
pub async fn run(args: ArchiveArgs, settings: &Settings, output: Output) -> Result<(), CliError> {
    let manifest = Manifest::read(&args.folder)?;
    check_archive(&manifest, &args.folder, settings).await?;
    check_folder(&settings.data_dir)?;
    let place = Place::open(settings, "import").await?;
    let result = import(&place, &manifest, &args.folder, settings, output).await;
    place.close().await;
    let written = result?;
    let done = Imported {
        records: manifest.records(),
        written,
        blobs: manifest.blobs.count,
        files: manifest.files.len(),
        verified: true,
    };
    tell(&format!(
        "settings of where it comes from are in {}: take over what is needed",
        args.folder.join(files::SETTINGS).display()
    ));
    output.show(&done, |done| {
        format!(
            "{} ({} written now), {} and {}; counts and hashes are those of the archive",
            counted(done.records, "record"),
            done.written,
            counted(done.blobs, "blob"),
            counted(done.files, "file")
        )
    })
}

/// Nothing is written before all of it is known to be whole.
async fn check_archive(manifest: &Manifest, folder: &Path, settings: &Settings) -> Result<(), CliError> {
    for file in &manifest.log {
        if !carried().any(|spec| spec.name == file.topic && (0..spec.partitions).contains(&file.partition)) {
            return Err(CliError::new(
                Exit::Refused,
                format!("the archive has {}, which this version has not", file.place()),
            )
            .hint(
                "use the version that made the archive, or a later one, with the partitions of its deploy/topics.toml",
            ));
        }
        archive::check_file(&log_file(folder, &file.place()), file).map_err(failed)?;
    }
    let blobs = archive_blobs(folder)?.list().await.map_err(|error| failed(error.into()))?;
    if BlobSum::of(&blobs) != manifest.blobs {
        return Err(CliError::new(
            Exit::Failed,
            format!("the archive has {}; its manifest says others", counted(blobs.len(), "blob")),
        )
        .hint("copy the archive again from where it was made"));
    }
    read_each(&archive_blobs(folder)?, &blobs).await.map_err(|error| {
        CliError::new(Exit::Failed, format!("a blob of the archive can't be used: {error}"))
            .hint("copy the archive again from where it was made")
    })?;
    files::check(settings, folder, &manifest.files)
}

/// That a content is there says nothing of what it is: each is read, and with that compared with its hash.
async fn read_each(store: &ObjectStoreBlobs, blobs: &[BlobRef]) -> Result<(), BlobError> {
    for blob in blobs {
        store.get(blob).await?;
    }
    Ok(())
}

fn check_folder(data_dir: &Path) -> Result<(), CliError> {
    match MADE_FROM_THE_LOG.iter().find(|name| data_dir.join(name).exists()) {
        None => Ok(()),
        Some(name) => Err(CliError::new(
            Exit::Refused,
            format!("{} is not empty: {name} was made from another log", data_dir.display()),
        )
        .hint("set RIVERRUN_DATA_DIR to a new folder; what is made from the log is made again in it")),
    }
}

async fn import(
    place: &Place,
    manifest: &Manifest,
    folder: &Path,
    settings: &Settings,
    output: Output,
) -> Result<u64, CliError> {
    place.admin.ensure_topics(all_specs()).await.map_err(down)?;
    check_partitions(place).await?;
    // Contents before what refers to them, what happened before what was asked for.
    let from = archive_blobs(folder)?;
    let blobs = copy_blobs(&from, &place.blobs, output).await?;
    let producer = Producer::new(&place.log).map_err(down)?;
    let mut written = 0;
    for file in in_order(&manifest.log) {
        let path = log_file(folder, &file.place());
        written += archive::restore(&place.log, &producer, file, &path).await.map_err(failed)?.written;
    }
    for file in &manifest.log {
        archive::verify(&place.log, file).await.map_err(failed)?;
    }
    read_each(&place.blobs, &blobs).await.map_err(|error| {
        CliError::new(Exit::Failed, format!("a blob did not arrive whole: {error}"))
            .hint("remove that blob from the target's blob store, then run it again")
    })?;
    for (group, places) in by_group(&manifest.groups) {
        archive::commit(&place.log, &group, &places).await.map_err(down)?;
    }
    files::restore(settings, folder, &manifest.files)?;
    Ok(written)
}

/// A key has to be where readers look for it.
async fn check_partitions(place: &Place) -> Result<(), CliError> {
    let there = place.admin.topics().await.map_err(down)?;
    for spec in carried() {
        let found = there.iter().find(|topic| topic.name == spec.name).map(|topic| topic.partitions);
        if found != Some(spec.partitions) {
            return Err(CliError::new(
                Exit::Refused,
                format!(
                    "topic {} has {} partitions, and {} are needed",
                    spec.name,
                    found.unwrap_or(0),
                    spec.partitions
                ),
            )
            .hint("delete the topic, which is then made with the right number"));
        }
    }
    Ok(())
}

/// Commands last: whoever reads one finds what became of it.
fn in_order(files: &[PartitionFile]) -> Vec<&PartitionFile> {
    let is_command = |file: &&PartitionFile| {
        [Topic::AgentCommands.name(), Topic::IngestCommands.name(), Topic::IngestChunks.name()]
            .contains(&file.topic.as_str())
    };
    let (commands, rest): (Vec<_>, Vec<_>) = files.iter().partition(is_command);
    rest.into_iter().chain(commands).collect()
}

fn by_group(places: &[Committed]) -> BTreeMap<String, Vec<Committed>> {
    let mut groups: BTreeMap<String, Vec<Committed>> = BTreeMap::new();
    for place in places {
        groups.entry(place.group.clone()).or_default().push(place.clone());
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_files_of_partitions_when_they_are_put_in_order_then_commands_come_last() {
        let file = |topic: Topic| PartitionFile {
            topic: topic.name().to_owned(),
            partition: 0,
            records: 0,
            sha256: String::new(),
        };
        let files = [
            file(Topic::AgentCommands),
            file(Topic::AgentEvents),
            file(Topic::IngestChunks),
            file(Topic::MemoryEvents),
        ];
        let order: Vec<&str> = in_order(&files).iter().map(|file| file.topic.as_str()).collect();
        assert_eq!(
            order,
            [
                Topic::AgentEvents.name(),
                Topic::MemoryEvents.name(),
                Topic::AgentCommands.name(),
                Topic::IngestChunks.name()
            ]
        );
    }

    #[test]
    fn given_a_folder_with_read_models_when_it_is_checked_then_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        check_folder(folder.path()).unwrap();
        std::fs::write(folder.path().join("read.db"), "").unwrap();
        assert_eq!(check_folder(folder.path()).unwrap_err().exit, Exit::Refused);
    }

    #[tokio::test]
    async fn given_a_blob_that_is_there_under_its_name_with_another_content_when_blobs_are_compared_then_it_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let store = archive_blobs(folder.path()).unwrap();
        let mut kept = Vec::new();
        for text in ["first", "other"] {
            kept.push(store.put_bytes(text.into(), "text/plain").await.unwrap());
        }
        read_each(&store, &kept).await.unwrap();
        let sha256 = &kept[1].sha256;
        std::fs::write(folder.path().join("blobs").join(&sha256[..2]).join(&sha256[2..]), "Other").unwrap();
        assert!(store.exists(&kept[1]).await.unwrap(), "it is there, and as long");
        assert_eq!(read_each(&store, &kept).await.unwrap_err().code(), "blob_damaged");
    }
}
