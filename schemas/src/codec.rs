//! From typed events to framed bytes and back.
//!
//! A topic carries several record types; [`EventSet`] is the enum of those that this build knows on one topic. A record
//! type that it does not know decodes to [`Decoded::UnknownType`], so that an old reader skips what a newer writer says.

use std::sync::{Arc, LazyLock};

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::writer::datum::GenericDatumWriter;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::framing::{self, FrameError};
use crate::ids::EventId;
use crate::registry::{self, RegisteredSchema};
use crate::topics::Topic;
use crate::trace::TraceId;

/// No field of a record may ask for more memory than this, whatever its length prefix says: 64 MiB.
const MAX_ALLOCATION_BYTES: usize = 64 << 20;

static LIMITS: LazyLock<()> = LazyLock::new(|| {
    apache_avro::util::max_allocation_bytes(MAX_ALLOCATION_BYTES);
});

/// The schema that a record was written with, wherever it came from.
#[derive(Debug, Clone)]
pub struct WriterSchema {
    /// The parsed schema.
    pub schema: Arc<Schema>,
}

impl WriterSchema {
    /// Reads the text of an Avro schema; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        Schema::parse_str(text).map(|schema| Self { schema: Arc::new(schema) }).map_err(|error| error.to_string())
    }

    /// Full name of the record; empty for what is no record.
    pub fn record(&self) -> String {
        self.schema.name().map(|name| name.fullname(None)).unwrap_or_default()
    }
}

/// Finds schemas that are not in the committed list, such as those of a newer build in an outside registry.
pub type SchemaLookup<'a> = &'a dyn Fn(u32) -> Option<WriterSchema>;

/// A lookup for those who have only the committed list.
pub fn no_other_schemas(_: u32) -> Option<WriterSchema> {
    None
}

/// Why a record's bytes make no event. Each is a dead letter, never a stop.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not the Confluent wire format.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Nobody knows this schema id.
    #[error("schema id {0} is in no registry that this process knows")]
    UnknownSchema(u32),
    /// The id belongs to another topic's record.
    #[error("schema id {id} is {record}, which does not belong on {topic}")]
    WrongTopic {
        /// The id in the frame.
        id: u32,
        /// The record it stands for.
        record: String,
        /// The topic it was found on.
        topic: &'static str,
    },
    /// The body is not what its schema says.
    #[error("body is not a valid {record}: {reason}")]
    Body {
        /// Full record name.
        record: String,
        /// What the Avro reader said.
        reason: String,
    },
}

impl DecodeError {
    /// Stable code for headers and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            DecodeError::Frame(_) => "bad_frame",
            DecodeError::UnknownSchema(_) => "unknown_schema_id",
            DecodeError::WrongTopic { .. } => "wrong_topic",
            DecodeError::Body { .. } => "bad_body",
        }
    }
}

/// An event could not be written: a defect in the event's type, held off by the golden tests.
#[derive(Debug, thiserror::Error)]
#[error("{record} can't be written: {reason}")]
pub struct EncodeError {
    record: String,
    reason: String,
}

/// What a record's bytes turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded<T> {
    /// An event that this build knows.
    Event(T),
    /// A well-formed record of a type that this build does not know.
    UnknownType {
        /// Full record name.
        record: String,
    },
}

impl<T> Decoded<T> {
    /// The same of something made of the event.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Decoded<U> {
        match self {
            Self::Event(event) => Decoded::Event(make(event)),
            Self::UnknownType { record } => Decoded::UnknownType { record },
        }
    }
}

/// The record types of one topic.
pub trait EventSet: Sized + Send + Sync + Clone + std::fmt::Debug + 'static {
    /// The topic that carries them.
    const TOPIC: Topic;

    /// Full name of this event's record.
    fn record_name(&self) -> &'static str;

    /// The aggregate that the event belongs to: the record key, which orders it.
    fn key(&self) -> String;

    /// The event's id, derived from its cause, so that writing it twice is writing it once.
    fn event_id(&self) -> EventId;

    /// The trace that the event belongs to: that of its run or ingest.
    fn trace(&self) -> Option<TraceId>;

    /// Framed bytes in the newest version of the event's schema.
    fn encode(&self) -> Result<Vec<u8>, EncodeError>;

    /// Reads framed bytes; `lookup` is asked for ids outside the committed list.
    fn decode_with(bytes: &[u8], lookup: SchemaLookup<'_>) -> Result<Decoded<Self>, DecodeError>;

    /// Reads framed bytes whose schema is in the committed list.
    fn decode(bytes: &[u8]) -> Result<Decoded<Self>, DecodeError> {
        Self::decode_with(bytes, &no_other_schemas)
    }
}

/// Reader and writer of one record type, made once.
pub(crate) struct Codec {
    registered: &'static RegisteredSchema,
    writer: GenericDatumWriter<'static>,
    reader: GenericDatumReader<'static>,
}

impl Codec {
    pub(crate) fn new(topic: Topic, record: &str) -> Self {
        LazyLock::force(&LIMITS);
        let proven = "the golden test writes and reads every record";
        let registered = registry::newest(topic, record)
            .unwrap_or_else(|| unreachable!("{proven}: {record} is not in registry.toml"));
        Self {
            registered,
            writer: GenericDatumWriter::builder(&registered.schema)
                .human_readable(true)
                .build()
                .unwrap_or_else(|e| unreachable!("{proven}: {e}")),
            reader: GenericDatumReader::builder(&registered.schema)
                .human_readable(true)
                .build()
                .unwrap_or_else(|e| unreachable!("{proven}: {e}")),
        }
    }

    pub(crate) fn encode<T: Serialize>(&self, event: &T) -> Result<Vec<u8>, EncodeError> {
        let body = self
            .writer
            .write_ser_to_vec(event)
            .map_err(|error| EncodeError { record: self.registered.record.clone(), reason: error.to_string() })?;
        Ok(framing::frame(self.registered.id, &body))
    }

    /// Reads a body that was written with `writer`, by the rules of Avro schema resolution where it is another version.
    pub(crate) fn decode<T: DeserializeOwned>(&self, writer: &Writer, mut body: &[u8]) -> Result<T, DecodeError> {
        let failed = |reason: String| DecodeError::Body { record: self.registered.record.clone(), reason };
        let event = match writer {
            Writer::Listed(schema) if schema.id == self.registered.id => {
                self.reader.read_deser(&mut body).map_err(|error| failed(error.to_string()))?
            }
            Writer::Listed(schema) => self.resolve(&schema.schema, &mut body).map_err(failed)?,
            Writer::Foreign(schema) => self.resolve(&schema.schema, &mut body).map_err(failed)?,
        };
        if body.is_empty() { Ok(event) } else { Err(failed(format!("{} bytes are left over", body.len()))) }
    }

    fn resolve<T: DeserializeOwned>(&self, writer: &Schema, body: &mut &[u8]) -> Result<T, String> {
        let value = GenericDatumReader::builder(writer)
            .reader_schema(&self.registered.schema)
            .build()
            .and_then(|reader| reader.read_value(body))
            .map_err(|error| error.to_string())?;
        apache_avro::from_value(&value).map_err(|error| error.to_string())
    }
}

/// Where a record's schema was found.
pub(crate) enum Writer {
    Listed(&'static RegisteredSchema),
    Foreign(WriterSchema),
}

impl Writer {
    fn record(&self) -> String {
        match self {
            Writer::Listed(schema) => schema.record.clone(),
            Writer::Foreign(schema) => schema.record(),
        }
    }
}

/// Takes the frame off and finds the schema; the first half of every `decode_with`.
pub(crate) fn open<'b>(
    topic: Topic,
    bytes: &'b [u8],
    lookup: SchemaLookup<'_>,
) -> Result<(Writer, String, &'b [u8]), DecodeError> {
    let (id, body) = framing::unframe(bytes)?;
    let writer = match registry::by_id(id) {
        Some(schema) if schema.topic == topic => Writer::Listed(schema),
        Some(schema) => return Err(DecodeError::WrongTopic { id, record: schema.record.clone(), topic: topic.name() }),
        None => Writer::Foreign(lookup(id).ok_or(DecodeError::UnknownSchema(id))?),
    };
    let record = writer.record();
    Ok((writer, record, body))
}

/// Declares the event set of a topic: one line a record type. `trace` is for those whose key is no run or ingest.
macro_rules! event_set {
    (
        $(#[$doc:meta])* $set:ident on $topic:ident;
        $($(#[$vdoc:meta])* $event:ident = $record:literal, key $key:expr, id $id:expr $(, trace $trace:expr)?;)+
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $set {
            $($(#[$vdoc])* $event($event),)+
        }

        const _: () = {
            $(impl From<$event> for $set {
                fn from(event: $event) -> Self {
                    $set::$event(event)
                }
            })+

            #[allow(non_upper_case_globals)]
            mod codecs {
                use std::sync::LazyLock;
                use $crate::codec::Codec;
                use $crate::topics::Topic;
                $(pub(super) static $event: LazyLock<Codec> = LazyLock::new(|| Codec::new(Topic::$topic, $record));)+
            }

            impl $crate::codec::EventSet for $set {
                const TOPIC: $crate::topics::Topic = $crate::topics::Topic::$topic;

                fn record_name(&self) -> &'static str {
                    match self { $($set::$event(_) => $record,)+ }
                }

                fn key(&self) -> String {
                    match self { $($set::$event(event) => { let key: fn(&$event) -> String = $key; key(event) })+ }
                }

                fn event_id(&self) -> $crate::ids::EventId {
                    match self { $($set::$event(event) => { let id: fn(&$event) -> $crate::ids::EventId = $id; id(event) })+ }
                }

                fn trace(&self) -> Option<$crate::trace::TraceId> {
                    let named: Option<$crate::trace::TraceId> = match self {
                        $($set::$event(_event) => None $(.or_else(|| { let trace: fn(&$event) -> $crate::trace::TraceId = $trace; Some(trace(_event)) }))?,)+
                    };
                    named.or_else(|| $crate::trace::TraceId::of_key(&self.key()))
                }

                fn encode(&self) -> Result<Vec<u8>, $crate::codec::EncodeError> {
                    match self { $($set::$event(event) => codecs::$event.encode(event),)+ }
                }

                fn decode_with(bytes: &[u8], lookup: $crate::codec::SchemaLookup<'_>) -> Result<$crate::codec::Decoded<Self>, $crate::codec::DecodeError> {
                    let (writer, record, body) = $crate::codec::open(Self::TOPIC, bytes, lookup)?;
                    match record.as_str() {
                        $($record => codecs::$event.decode::<$event>(&writer, body).map(|event| $crate::codec::Decoded::Event(event.into())),)+
                        _ => Ok($crate::codec::Decoded::UnknownType { record }),
                    }
                }
            }
        };
    };
}
pub(crate) use event_set;
