//! A record as a line of JSON. The same record always gives the same bytes: hashes of files stand for what is in them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::record::{Outgoing, Record, TopicPartition};

/// A header's name and value.
type Header = (String, String);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at_ms: i64,
    key: Option<String>,
    value: Option<String>,
    headers: Vec<Header>,
}

/// The line of a record, with its end. A record without a time gets the first one there is: for Kafka's client 0 means now.
pub(super) fn write(record: &Record) -> String {
    let text = |bytes: &Bytes| STANDARD.encode(bytes);
    let line = Line {
        at_ms: record.timestamp_ms.max(1),
        key: record.key.as_ref().map(text),
        value: record.payload.as_ref().map(text),
        headers: record.headers.iter().map(|(name, value)| (name.clone(), STANDARD.encode(value))).collect(),
    };
    let mut line = serde_json::to_string(&line).unwrap_or_default(); // strings and a number: can't fail
    line.push('\n');
    line
}

/// The record of a line, for the partition that it came from, and its time.
pub(super) fn read(line: &str, place: &TopicPartition) -> Result<(Outgoing, i64), String> {
    let line: Line = serde_json::from_str(line).map_err(|error| format!("column {}", error.column()))?;
    let bytes = |text: &str| STANDARD.decode(text).map_err(|error| error.to_string());
    let optional = |text: &Option<String>| text.as_deref().map(bytes).transpose().map(|found| found.map(Bytes::from));
    let mut headers = Vec::with_capacity(line.headers.len());
    for (name, value) in &line.headers {
        headers.push((name.clone(), bytes(value)?));
    }
    let record = Outgoing {
        topic: place.topic.clone(),
        partition: Some(place.partition),
        key: optional(&line.key)?,
        payload: optional(&line.value)?,
        headers,
    };
    Ok((record, line.at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_records_of_any_shape_when_they_are_written_and_read_then_they_are_the_same() {
        let place = TopicPartition::new("t", 3);
        for (key, payload, headers, at_ms) in [
            (None, None, vec![], 0),
            (
                Some(Bytes::from_static(b"k")),
                Some(Bytes::from_static(b"\0\xff\n")),
                vec![("a".to_owned(), vec![10, 0])],
                7,
            ),
            (
                Some(Bytes::new()),
                Some(Bytes::new()),
                vec![("a".to_owned(), vec![]), ("a".to_owned(), vec![1])],
                i64::MAX,
            ),
        ] {
            let record = Record {
                topic: "t".into(),
                partition: 3,
                offset: 9,
                key: key.clone(),
                payload: payload.clone(),
                headers: headers.clone(),
                timestamp_ms: at_ms,
            };
            let line = write(&record);
            assert_eq!(line.matches('\n').count(), 1);
            let (again, again_ms) = read(line.trim_end(), &place).unwrap();
            assert_eq!((again.key, again.payload, again.headers, again_ms), (key, payload, headers, at_ms.max(1)));
            assert_eq!((&*again.topic, again.partition), ("t", Some(3)));
        }
        for bad in ["", "{}", "x", r#"{"at_ms":1,"key":"*","value":null,"headers":[]}"#] {
            assert!(read(bad, &place).is_err(), "{bad:?}");
        }
    }
}
