use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Headers, OwnedHeaders};
use riverrun_schemas::codec::SchemaLookup;
use riverrun_schemas::{DecodeError, Decoded, Envelope, EventId, EventSet};
use serde::{Deserialize, Serialize};

use crate::error::LogError;
use crate::producer::MAX_EVENT_BYTES;

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Counts from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Joins the two.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }

    /// A place in it.
    pub fn at(&self, offset: i64) -> Position {
        Position { topic: self.topic.clone(), partition: self.partition, offset }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// Where a record lies on the log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Counts from 0.
    pub partition: i32,
    /// Counts from 0 within the partition.
    pub offset: i64,
}

impl Position {
    /// The partition it is in.
    pub fn topic_partition(&self) -> TopicPartition {
        TopicPartition { topic: self.topic.clone(), partition: self.partition }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.topic, self.partition, self.offset)
    }
}

/// Where reading of a partition starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// At the first record there is.
    Beginning,
    /// Behind the last record there is now.
    End,
    /// At this offset.
    Offset(i64),
}

/// A record as it lies on the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Counts from 0.
    pub partition: i32,
    /// Counts from 0 within the partition.
    pub offset: i64,
    /// What orders it: records of one key are in one partition.
    pub key: Option<Bytes>,
    /// The framed event.
    pub payload: Option<Bytes>,
    /// Names may repeat.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Milliseconds since the epoch; 0 when the writer set none.
    pub timestamp_ms: i64,
}

impl Record {
    pub(crate) fn copy_of(message: &BorrowedMessage<'_>, topic: Arc<str>) -> Self {
        let headers = message
            .headers()
            .map(|headers| headers.iter().map(|h| (h.key.to_owned(), h.value.unwrap_or_default().to_vec())).collect())
            .unwrap_or_default();
        Self {
            topic,
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(Bytes::copy_from_slice),
            payload: message.payload().map(Bytes::copy_from_slice),
            headers,
            timestamp_ms: message.timestamp().to_millis().unwrap_or(0),
        }
    }

    /// Where it lies.
    pub fn position(&self) -> Position {
        Position { topic: self.topic.clone(), partition: self.partition, offset: self.offset }
    }

    /// The partition it is in.
    pub fn topic_partition(&self) -> TopicPartition {
        TopicPartition { topic: self.topic.clone(), partition: self.partition }
    }

    /// The event in it. A record without a payload reads as one that is too short.
    pub fn decode<E: EventSet>(&self, lookup: SchemaLookup<'_>) -> Result<Decoded<E>, DecodeError> {
        E::decode_with(self.payload.as_deref().unwrap_or_default(), lookup)
    }

    /// Its headers, understood.
    pub fn envelope(&self) -> Envelope {
        Envelope::from_headers(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())))
    }

    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
    }

    /// Bytes that it holds in memory, about.
    pub fn size_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.key.as_ref().map_or(0, Bytes::len) + self.payload.as_ref().map_or(0, Bytes::len) + headers
    }
}

/// A record to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The topic's name.
    pub topic: Arc<str>,
    /// `None` lets the key's hash choose.
    pub partition: Option<i32>,
    /// What orders it.
    pub key: Option<Bytes>,
    /// `None` is a tombstone.
    pub payload: Option<Bytes>,
    /// Names may repeat.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Outgoing {
    /// `event`, written now by `component` because of `cause`. Refuses what is larger than events may be.
    pub fn event<E: EventSet>(event: &E, component: &str, cause: Option<EventId>) -> Result<Self, LogError> {
        Self::enveloped(event, Envelope::of(event, component, cause))
    }

    /// `event`, written now by `component` because of the record with the envelope `cause`, whose trace it goes on with.
    pub fn caused_by<E: EventSet>(event: &E, component: &str, cause: &Envelope) -> Result<Self, LogError> {
        let mut envelope = Envelope::of(event, component, None);
        envelope.cause = (!cause.id.is_empty()).then(|| cause.id.clone());
        envelope.traceparent = cause.traceparent.clone().or(envelope.traceparent);
        Self::enveloped(event, envelope)
    }

    fn enveloped<E: EventSet>(event: &E, envelope: Envelope) -> Result<Self, LogError> {
        let payload = event.encode()?;
        if payload.len() > MAX_EVENT_BYTES {
            return Err(LogError::TooLarge {
                topic: E::TOPIC.name().to_owned(),
                bytes: payload.len(),
                limit: MAX_EVENT_BYTES,
            });
        }
        Ok(Self {
            topic: E::TOPIC.name().into(),
            partition: None,
            key: Some(event.key().into_bytes().into()),
            payload: Some(payload.into()),
            headers: envelope
                .to_headers()
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into_bytes()))
                .collect(),
        })
    }

    /// The same record for one partition, whatever its key says.
    pub fn to_partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The id of the event in it; empty for a record that carries none.
    pub fn event_id(&self) -> String {
        Envelope::from_headers(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))).id
    }

    pub(crate) fn owned_headers(&self) -> OwnedHeaders {
        self.headers.iter().fold(OwnedHeaders::new_with_capacity(self.headers.len()), |headers, (name, value)| {
            headers.insert(rdkafka::message::Header { key: name, value: Some(value) })
        })
    }
}
