//! What travels beside a record: the CloudEvents Kafka binding, binary mode
//! (<https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/kafka-protocol-binding.md>), the W3C trace
//! context, and the cause. Nothing that a decision needs is only here.

use chrono::{DateTime, SecondsFormat, Utc};

use crate::codec::EventSet;
use crate::ids::EventId;

/// Headers of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Derived from the event's cause: the same for every copy of the event.
    pub id: String,
    /// Full record name.
    pub kind: String,
    /// Who wrote it, as a URI reference: `/riverrun/<component>`.
    pub source: String,
    /// When it was written, RFC 3339.
    pub time: String,
    /// The aggregate; equal to the record key.
    pub subject: String,
    /// W3C `traceparent`: that of the run or ingest, or one that an outside writer had.
    pub traceparent: Option<String>,
    /// Id of the event that led to this one.
    pub cause: Option<String>,
}

const ID: &str = "ce_id";
const TYPE: &str = "ce_type";
const SOURCE: &str = "ce_source";
const TIME: &str = "ce_time";
const SUBJECT: &str = "ce_subject";
const SPEC_VERSION: &str = "ce_specversion";
const CAUSE: &str = "ce_causationid";
const TRACEPARENT: &str = "traceparent";
const CONTENT_TYPE: &str = "content-type";

impl Envelope {
    /// The envelope of `event`, written now by `component`.
    pub fn of<E: EventSet>(event: &E, component: &str, cause: Option<EventId>) -> Self {
        Self {
            id: event.event_id().to_string(),
            kind: event.record_name().to_owned(),
            source: format!("/riverrun/{component}"),
            time: DateTime::<Utc>::from(std::time::SystemTime::now()).to_rfc3339_opts(SecondsFormat::Millis, true),
            subject: event.key(),
            traceparent: event.trace().map(|trace| trace.traceparent().to_string()),
            cause: cause.map(|id| id.to_string()),
        }
    }

    /// As Kafka headers.
    pub fn to_headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            (SPEC_VERSION, "1.0".to_owned()),
            (ID, self.id.clone()),
            (TYPE, self.kind.clone()),
            (SOURCE, self.source.clone()),
            (TIME, self.time.clone()),
            (SUBJECT, self.subject.clone()),
            (CONTENT_TYPE, "application/avro".to_owned()),
        ];
        headers.extend(self.traceparent.clone().map(|value| (TRACEPARENT, value)));
        headers.extend(self.cause.clone().map(|value| (CAUSE, value)));
        headers
    }

    /// From Kafka headers. Whoever writes to our topics without them is still read: what is missing stays empty.
    pub fn from_headers<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut envelope = Self {
            id: String::new(),
            kind: String::new(),
            source: String::new(),
            time: String::new(),
            subject: String::new(),
            traceparent: None,
            cause: None,
        };
        for (name, value) in headers {
            let value = String::from_utf8_lossy(value).into_owned();
            match name {
                ID => envelope.id = value,
                TYPE => envelope.kind = value,
                SOURCE => envelope.source = value,
                TIME => envelope.time = value,
                SUBJECT => envelope.subject = value,
                TRACEPARENT => envelope.traceparent = Some(value),
                CAUSE => envelope.cause = Some(value),
                _ => {}
            }
        }
        envelope
    }
}
