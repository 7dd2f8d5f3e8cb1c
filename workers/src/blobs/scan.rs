//! Reads everything on the log that names blobs.

use riverrun_log::admin::Admin;
use riverrun_log::{LogConfig, LogError, Record, Schemas, StartAt, Tail, TopicPartition};
use riverrun_schemas::{Decoded, EventSet, Topic};

use super::SweepError;
use super::hash::{self, Hash};
use super::marks::Marks;

/// The topics whose records name blobs: commands before the events that tell of their work.
const NAMING: [Topic; 9] = [
    Topic::IngestCommands,
    Topic::IngestChunks,
    Topic::IngestEvents,
    Topic::ProjectsCommands,
    Topic::ProjectsEvents,
    Topic::FinetuneCommands,
    Topic::FinetuneEvents,
    Topic::AgentCommands,
    Topic::AgentEvents,
];

/// What the log names up to the ends that it has now, and how many records were read.
pub(super) async fn read(log: &LogConfig, admin: &Admin) -> Result<(Marks, u64), SweepError> {
    let (mut marks, mut records) = (Marks::default(), 0);
    for topic in NAMING {
        for partition in 0..admin.partitions(topic.name()).await? {
            let place = TopicPartition::new(topic.name(), partition);
            let kept_for_ever = topic.spec().retention_hours < 0;
            records +=
                read_partition(log, place, kept_for_ever, |record| take(&log.schemas, topic, record, &mut marks))
                    .await?;
        }
    }
    // What failed may be sent again as it was.
    for topic in NAMING {
        let letters = topic.dead_letters();
        for partition in 0..admin.partitions(&letters).await? {
            let place = TopicPartition::new(letters.as_str(), partition);
            records += read_partition(log, place, false, |record| marks.record(names(record))).await?;
        }
    }
    Ok((marks, records))
}

/// A partition that is kept for ever is read from offset 0: where it begins later, nobody knows what it has named.
async fn read_partition(
    log: &LogConfig,
    place: TopicPartition,
    kept_for_ever: bool,
    mut take: impl FnMut(&Record) + Send,
) -> Result<u64, SweepError> {
    let start = if kept_for_ever { StartAt::Offset(0) } else { StartAt::Beginning };
    let mut range = Tail::read_range(log, place, start).await?;
    let mut records = 0;
    loop {
        match range.next().await {
            Ok(Some(record)) => {
                records += 1;
                take(&record);
            }
            Ok(None) => return Ok(records),
            Err(LogError::OutOfRange { partition, low, .. }) if kept_for_ever => {
                return Err(SweepError::LogCut { partition, low });
            }
            // Its time was over while it was read.
            Err(LogError::OutOfRange { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn names(record: &Record) -> Vec<Hash> {
    hash::named_in(record.payload.as_deref().unwrap_or_default()).collect()
}

fn take(schemas: &Schemas, topic: Topic, record: &Record, marks: &mut Marks) {
    let names = names(record);
    match topic {
        Topic::IngestCommands => known(schemas, record, names, marks, Marks::ingest_command),
        Topic::IngestChunks => known(schemas, record, names, marks, Marks::chunks),
        Topic::IngestEvents => known(schemas, record, names, marks, Marks::ingest_event),
        Topic::ProjectsCommands => known(schemas, record, names, marks, Marks::project_command),
        Topic::ProjectsEvents => known(schemas, record, names, marks, Marks::project_event),
        Topic::FinetuneCommands => known(schemas, record, names, marks, Marks::finetune_command),
        Topic::FinetuneEvents => known(schemas, record, names, marks, Marks::finetune_event),
        Topic::AgentEvents => known(schemas, record, names, marks, Marks::agent_event),
        Topic::AgentCommands
        | Topic::IngestEmbeddings
        | Topic::MemoryEvents
        | Topic::Tokens
        | Topic::ToolsCalls
        | Topic::ToolsResults
        | Topic::Documents
        | Topic::Canvases => marks.record(names),
    }
}

/// Marks by what is known of an event; one that is not understood marks as it is.
fn known<E: EventSet>(
    schemas: &Schemas,
    record: &Record,
    names: Vec<Hash>,
    marks: &mut Marks,
    mark: impl FnOnce(&mut Marks, &E, Vec<Hash>),
) {
    match schemas.decode::<E>(record) {
        Ok(Decoded::Event(event)) => mark(marks, &event, names),
        Ok(Decoded::UnknownType { .. }) | Err(_) => marks.record(names),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn given_the_schemas_when_they_are_looked_through_then_every_topic_whose_records_name_blobs_is_read() {
        let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/avro");
        for topic in Topic::ALL {
            let folder = schemas.join(topic.name().trim_start_matches("riverrun."));
            let names_blobs = std::fs::read_dir(&folder)
                .unwrap()
                .any(|file| std::fs::read_to_string(file.unwrap().path()).unwrap().contains("\"BlobRef\""));
            assert!(!names_blobs || NAMING.contains(&topic), "{} names blobs and is not read", topic.name());
        }
    }

    /// Which of `marks` takes it decides when what it names may go. Whoever lets another event name a blob adds it there first.
    #[test]
    fn given_the_schemas_when_they_are_looked_through_then_only_these_records_name_blobs() {
        let mut naming: BTreeSet<String> = BTreeSet::new();
        for topic in NAMING {
            let folder = topic.name().trim_start_matches("riverrun.");
            let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/avro").join(folder);
            for file in std::fs::read_dir(&schemas).unwrap() {
                let file = file.unwrap();
                if std::fs::read_to_string(file.path()).unwrap().contains("\"BlobRef\"") {
                    let name = file.file_name().into_string().unwrap();
                    naming.insert(name.split('.').next().unwrap().to_owned());
                }
            }
        }
        let known = [
            "BuildTree",
            "ChunksReady",
            "CollectionTuned",
            "DatasetRegistered",
            "DocumentChunked",
            "DocumentQueued",
            "FileChanged",
            "FinetuneAccepted",
            "ForkRun",
            "ImportProject",
            "ModelRegistered",
            "ProjectAnalyzed",
            "ProjectImported",
            "ProposalMade",
            "RunAdvanced",
            "RunSnapshotted",
            "StartFinetune",
            "StartIngest",
            "SubmitDocument",
            "TuneCollection",
        ];
        assert_eq!(naming, BTreeSet::from(known.map(str::to_owned)));
    }

    #[test]
    fn given_the_topics_when_they_are_read_then_commands_come_before_the_events_that_tell_of_their_work() {
        let place = |wanted: Topic| NAMING.iter().position(|topic| *topic == wanted).unwrap();
        for (before, behind) in [
            (Topic::IngestCommands, Topic::IngestEvents),
            (Topic::IngestChunks, Topic::IngestEvents),
            (Topic::ProjectsCommands, Topic::ProjectsEvents),
            (Topic::FinetuneCommands, Topic::FinetuneEvents),
        ] {
            assert!(place(before) < place(behind));
        }
    }
}
