//! Documents that arrive on a topic: each record becomes one request with one document.
//!
//! - `STREAM-1` ids follow from topic, partition, offset, collection and reading: a record that is read twice is one document once.
//! - `STREAM-2` an offset is committed when its document is in the blob store and its command is acknowledged, not before.
//! - `STREAM-3` a record that can't be taken is a dead letter with its bytes, or a failed document with its reason; the next
//!   one is not held up.
//! - `STREAM-4` before documents are taken it is asked whether the collection takes them ([`Gate`]). What it refuses is no fault of a
//!   record: reading ends in front of it, and the next time goes on there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use riverrun_knowledge::sources;
use riverrun_log::{
    BlobError, BlobStore, DeadLetter, GroupConfig, GroupConsumer, LogConfig, LogError, Outgoing, Producer, Record,
    Schemas, admin,
};
use riverrun_schemas::documents::{DocumentMessage, PublishDocument};
use riverrun_schemas::ingest::{IngestCommand, IngestEvent, IngestScanned, SubmitDocument, document_id};
use riverrun_schemas::{Collection, Decoded, IngestId, Topic, TopicSpec, now_ms};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use reading::{Places, Reading};
use session::{End, Session};

mod reading;
mod session;

const NAME: &str = "stream";

/// Header with the media type of a plain record.
pub const CONTENT_TYPE: &str = "content-type";

/// Largest document of a record, in bytes.
const MAX_DOCUMENT: usize = 20 << 20;

/// Longest key that names a document, in bytes.
const MAX_KEY: usize = 255;

/// Pause before something that may pass is tried again, and how often.
const PAUSE: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 30;

/// Newest requests that are remembered for whoever waits for them.
const MAX_REMEMBERED: usize = 10_000;

/// Partitions of a topic that is made because it is not there.
const NEW_PARTITIONS: i32 = 6;

/// Retention of such a topic.
const NEW_RETENTION_HOURS: i64 = 168;

/// Where the documents go.
#[derive(Debug, Clone)]
pub struct StreamTarget {
    /// The collection.
    pub collection: Collection,
    /// Its embedding model.
    pub embed_model: String,
    /// Most characters of a chunk.
    pub chunk_size: i64,
    /// Characters, or tokens, that neighbours share at most.
    pub chunk_overlap: i64,
    /// What both count; `None` means characters.
    pub chunk_unit: Option<String>,
    /// The type of every document; `None` goes by each record.
    pub source_type: Option<String>,
    /// Kept with each document; what a message has of its own comes on top.
    pub metadata: Option<Map<String, Value>>,
}

/// What a consumer reads, and until when.
#[derive(Debug, Clone)]
pub struct StreamConfig {
    /// How to reach the log.
    pub log: LogConfig,
    /// The topic.
    pub topic: String,
    /// Where the documents go.
    pub target: StreamTarget,
    /// Ends when everything that was there was read and no record came for so long; `None` goes on until it is stopped.
    pub idle: Option<Duration>,
    /// Makes the topic when it is not there; else that is an error.
    pub create_topic: bool,
    /// Begins with the first record that there is, wherever the group was.
    pub from_beginning: bool,
}

/// Whether a collection takes documents.
pub trait Gate {
    /// Why it does not, or why reading failed.
    type Refusal: From<StreamError>;

    /// The newest removal of everything in the collection, if documents of the target may go there now; `None` when there was none. Asked
    /// before each batch. Waits for what may pass by itself.
    fn ask(&self) -> impl Future<Output = Result<Option<IngestId>, Self::Refusal>>;
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consumed {
    /// Records that were read.
    pub records: usize,
    /// Documents that were handed in.
    pub documents: usize,
    /// Records that became dead letters.
    pub dead_letters: usize,
    /// Whether the topic was read from its beginning although the group was further on: that was asked for, or the collection had been
    /// removed.
    pub began_again: bool,
    /// The requests, the newest of them.
    pub ingests: Vec<IngestId>,
}

/// A consumer can't go on.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Topics of riverrun's own say other things than documents.
    #[error("topic {0:?} has no documents: it is one of riverrun's own, or no name of a topic")]
    WrongTopic(String),
    /// The topic is not there, and is not to be made.
    #[error("there is no topic {0:?}")]
    NoTopic(String),
    /// The log is gone.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Documents can't be stored.
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

/// Whether documents may be published to and read from a topic of that name: riverrun's own topics say other things.
pub fn is_open_topic(topic: &str) -> bool {
    const LONGEST: usize = 249;
    let named = !topic.is_empty()
        && topic.len() <= LONGEST
        && !matches!(topic, "." | "..")
        && topic.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    named
        && (topic == Topic::Documents.name()
            || !(topic.starts_with("riverrun.") || topic.starts_with("__") || topic.ends_with(".dlq")))
}

/// Makes a topic with its dead letters where they are not there.
pub async fn ensure_topic(log: &LogConfig, topic: &str) -> Result<(), StreamError> {
    if !is_open_topic(topic) {
        return Err(StreamError::WrongTopic(topic.to_owned()));
    }
    let spec = |name: String, partitions| TopicSpec { name, partitions, retention_hours: NEW_RETENTION_HOURS };
    admin::ensure_topics(log, &[spec(topic.to_owned(), NEW_PARTITIONS), spec(format!("{topic}.dlq"), 1)]).await?;
    Ok(())
}

/// The consumer group of a collection: each collection reads a topic from its beginning, once.
pub fn group_of(topic: &str, collection: &Collection) -> String {
    format!("riverrun.{NAME}.{}.{}.{topic}", collection.namespace, collection.name)
}

/// Reads a topic until nothing came for a while, until it is stopped, or until the collection takes nothing more. Goes on where the group
/// was; a collection that was removed since is given the topic from its beginning.
pub async fn consume<G: Gate>(
    config: StreamConfig,
    producer: &Producer,
    blobs: &Arc<dyn BlobStore>,
    gate: &G,
    stop: CancellationToken,
    mut progress: impl FnMut(&Consumed),
) -> Result<Consumed, G::Refusal> {
    if !config.create_topic {
        find_topic(&config.log, &config.topic).await?;
    }
    ensure_topic(&config.log, &config.topic).await?;
    let group = group_of(&config.topic, &config.target.collection);
    let membership = GroupConfig { tell_end: true, ..GroupConfig::new(group.clone(), vec![config.topic.clone()]) };
    let intake = Intake { target: config.target, group, schemas: config.log.schemas.clone(), producer, blobs };
    let anew = config.from_beginning.then(IngestId::new);
    let session = Session { intake, gate, idle: config.idle, stop };
    let mut consumed = Consumed::default();
    loop {
        let Some(removal) = session.ask().await? else { return Ok(consumed) };
        let mut member = GroupConsumer::join(&config.log, &membership).map_err(StreamError::from)?;
        let mut places = Places::new(removal, anew);
        let result = session.read(&mut member, &mut places, &mut consumed, &mut progress).await;
        member.close().await;
        match result? {
            End::Over => return Ok(consumed),
            End::Removed => tracing::info!(topic = config.topic, "the collection was removed: the topic is read again"),
        }
    }
}

/// Refuses a topic that is not there: a name with a slip in it has no documents and never will.
async fn find_topic(log: &LogConfig, topic: &str) -> Result<(), StreamError> {
    if !is_open_topic(topic) {
        return Err(StreamError::WrongTopic(topic.to_owned()));
    }
    let topics = admin::Admin::new(log)?.topics().await?;
    let is_there = topics.iter().any(|known| known.name == topic);
    if is_there { Ok(()) } else { Err(StreamError::NoTopic(topic.to_owned())) }
}

/// From records to what is written for them.
struct Intake<'i> {
    target: StreamTarget,
    group: String,
    schemas: Schemas,
    producer: &'i Producer,
    blobs: &'i Arc<dyn BlobStore>,
}

/// A document as a record has it.
#[derive(Debug, PartialEq)]
struct Arrived {
    source: String,
    source_type: String,
    bytes: Vec<u8>,
    metadata_json: Option<String>,
}

/// Why a record is no document.
#[derive(Debug, PartialEq)]
struct Unreadable {
    code: &'static str,
    reason: String,
}

impl Intake<'_> {
    /// Waits until the schemas of a batch are there or known to be nowhere; `false` when it is stopped before.
    async fn settle(&self, batch: &[Record], stop: &CancellationToken) -> bool {
        for record in batch {
            tokio::select! {
                () = self.schemas.settle(record) => {}
                () = stop.cancelled() => return false,
            }
        }
        true
    }

    /// Stores and hands in a batch. What may pass is tried again; what is handed in twice is the same.
    async fn take(
        &self,
        batch: Vec<Record>,
        places: &Places,
        consumed: &mut Consumed,
        stop: &CancellationToken,
    ) -> Result<(), StreamError> {
        let mut tries = 0;
        let (out, documents, letters) = loop {
            let failed: StreamError = match self.records(&batch, places).await {
                Ok(taken) => match self.producer.send_many(taken.0.clone()).await {
                    Ok(_) => break taken,
                    Err(error) if error.retryable() => error.into(),
                    Err(error) => return Err(error.into()),
                },
                Err(error) if error.retryable() => error.into(),
                Err(error) => return Err(error.into()),
            };
            tries += 1;
            if tries >= ATTEMPTS || stop.is_cancelled() {
                return Err(failed);
            }
            tracing::warn!(error = %failed, "documents can't be handed in for now");
            tokio::time::sleep(PAUSE).await;
        };
        tracing::debug!(records = batch.len(), written = out.len(), "documents handed in");
        consumed.records += batch.len();
        consumed.documents += documents.len();
        consumed.dead_letters += letters;
        consumed.ingests.extend(documents);
        let over = consumed.ingests.len().saturating_sub(MAX_REMEMBERED);
        consumed.ingests.drain(..over);
        Ok(())
    }

    async fn records(
        &self,
        batch: &[Record],
        places: &Places,
    ) -> Result<(Vec<Outgoing>, Vec<IngestId>, usize), BlobError> {
        let mut out = Vec::new();
        let mut ingests = Vec::new();
        let mut letters = 0;
        for taken in join_all(batch.iter().map(|record| self.one(record, places.reading(record.partition)))).await {
            match taken? {
                Ok((ingest, records)) => {
                    ingests.push(ingest);
                    out.extend(records);
                }
                Err(letter) => {
                    letters += 1;
                    out.push(letter);
                }
            }
        }
        Ok((out, ingests, letters))
    }

    /// The command and the event of a record's document, or its dead letter.
    async fn one(
        &self,
        record: &Record,
        reading: Reading,
    ) -> Result<Result<(IngestId, Vec<Outgoing>), Outgoing>, BlobError> {
        let letter = |code: &str, reason: &str| DeadLetter::of(record, &self.group, code, reason, 1);
        let arrived = match read(record, &self.schemas, &self.target) {
            Ok(arrived) => arrived,
            Err(Unreadable { code, reason }) => return Ok(Err(letter(code, &reason))),
        };
        let media_type =
            sources::by_name(&arrived.source_type).map_or("application/octet-stream", |kind| kind.media_type());
        let content = self.blobs.put_bytes(arrived.bytes.into(), media_type).await?;
        let target = &self.target;
        let ingest_id = ingest_id(record, &target.collection, reading);
        let (namespace, collection) = (target.collection.namespace.clone(), target.collection.name.clone());
        let scanned = IngestScanned {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            source: arrived.source.clone(),
            documents: 1,
            skipped: 0,
            left_out: Vec::new(),
            at: now_ms(),
        };
        let submit = SubmitDocument {
            document_id: document_id(&target.collection, &arrived.source),
            ingest_id,
            namespace,
            collection,
            source: arrived.source,
            source_type: Some(arrived.source_type),
            content,
            embed_model: target.embed_model.clone(),
            chunk_size: target.chunk_size,
            chunk_overlap: target.chunk_overlap,
            metadata_json: arrived.metadata_json,
            table: None,
            strategy: None,
            chunk_unit: target.chunk_unit.clone(),
            again: false,
            at: now_ms(),
        };
        let cause = record.envelope();
        let written = Outgoing::caused_by(&IngestCommand::from(submit), NAME, &cause)
            .and_then(|submit| Ok(vec![submit, Outgoing::caused_by(&IngestEvent::from(scanned), NAME, &cause)?]));
        Ok(match written {
            Ok(records) => Ok((ingest_id, records)),
            Err(error) => Err(letter(error.code(), &error.to_string())),
        })
    }
}

/// STREAM-1.
fn ingest_id(record: &Record, collection: &Collection, reading: Reading) -> IngestId {
    let (partition, offset, reading) = (record.partition.to_string(), record.offset.to_string(), reading.parts());
    let (namespace, name) = (collection.namespace.as_str(), collection.name.as_str());
    let mut parts = vec![NAME, &record.topic, &partition, &offset, namespace, name];
    parts.extend(reading.iter().map(String::as_str));
    IngestId::derive(&parts)
}

/// The document in a record: framed Avro, or plain bytes of which a header says the type.
fn read(record: &Record, schemas: &Schemas, target: &StreamTarget) -> Result<Arrived, Unreadable> {
    let Some(payload) = &record.payload else {
        return Err(Unreadable {
            code: "tombstone",
            reason: "a record without a value takes nothing away; riverrun docs rm does".to_owned(),
        });
    };
    if payload.len() > MAX_DOCUMENT {
        return Err(Unreadable {
            code: "too_large",
            reason: format!("the document has more than {MAX_DOCUMENT} bytes"),
        });
    }
    let header = record.header(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value).into_owned());
    let framed = payload.first() == Some(&0);
    let (name, bytes, content_type, own) = if framed {
        let PublishDocument { name, text, content_type, metadata_json, .. } = decode(record, schemas)?;
        (name, text.into_bytes(), content_type, metadata_json)
    } else {
        let key = record.key.as_deref().and_then(|key| std::str::from_utf8(key).ok()).unwrap_or_default();
        (key.to_owned(), payload.to_vec(), header, None)
    };
    let named = !name.trim().is_empty() && name.len() <= MAX_KEY && !name.chars().any(char::is_control);
    let topic = &record.topic;
    let source = if named {
        format!("kafka://{topic}/{name}")
    } else {
        format!("kafka://{topic}/{}/{}", record.partition, record.offset)
    };
    let source_type = kind(target, content_type.as_deref(), Some(name).filter(|_| named).as_deref(), &bytes);
    Ok(Arrived { source, source_type, bytes, metadata_json: metadata(target, own.as_deref())? })
}

fn decode(record: &Record, schemas: &Schemas) -> Result<PublishDocument, Unreadable> {
    match schemas.decode::<DocumentMessage>(record) {
        Ok(Decoded::Event(DocumentMessage::PublishDocument(document))) => Ok(document),
        Ok(Decoded::UnknownType { record }) => {
            Err(Unreadable { code: "unknown_type", reason: format!("{record} is no document") })
        }
        Err(error) => Err(Unreadable { code: error.code(), reason: error.to_string() }),
    }
}

/// What takes the text out: as forced, as the record says, as the name ends, as the bytes look; else text, whose reader says what
/// is wrong with them.
fn kind(target: &StreamTarget, content_type: Option<&str>, name: Option<&str>, bytes: &[u8]) -> String {
    if let Some(forced) = &target.source_type {
        return forced.clone();
    }
    let by_header =
        content_type.filter(|given| !given.to_lowercase().starts_with("avro/")).and_then(sources::by_media_type);
    let by_name = || name.and_then(|name| sources::detect(Path::new(name), bytes, None).ok());
    let by_content = || sources::detect(Path::new("document"), bytes, None).ok();
    by_header.or_else(by_name).or_else(by_content).map_or("text", |kind| kind.name()).to_owned()
}

/// The target's object with that of the message on top.
fn metadata(target: &StreamTarget, own: Option<&str>) -> Result<Option<String>, Unreadable> {
    let Some(own) = own else { return Ok(target.metadata.clone().map(|object| Value::Object(object).to_string())) };
    let own: Map<String, Value> = serde_json::from_str(own).map_err(|error| Unreadable {
        code: "bad_metadata",
        reason: format!("the metadata is no JSON object: {error}"),
    })?;
    let mut object = target.metadata.clone().unwrap_or_default();
    object.extend(own);
    Ok(Some(Value::Object(object).to_string()))
}

#[cfg(test)]
mod tests;
