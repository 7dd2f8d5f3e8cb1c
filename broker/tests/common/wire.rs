//! Requests and answers of few words in the flexible (compact, tagged) form, for what stock clients do not ask.

use std::net::TcpStream;

use kafka_protocol::messages::ApiKey;
use riverrun_broker::versions::is_flexible;
use riverrun_broker::wire::batch::{BatchHeader, build_batch};

use super::{call, write_frame};

/// `Produce` 11 of one record without key and value, outside of transactions, to partition 0; -1 is no time. Gives Kafka's code
/// and the offset.
pub(crate) fn produce(stream: &mut TcpStream, topic: &str, timestamp: i64) -> (i16, i64) {
    let mut answer = records(topic, 0, -1, timestamp).ask(stream, ApiKey::Produce, 11);
    assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
    (answer.i16(), answer.i64())
}

/// The same without a wish for an answer.
pub(crate) fn produce_unasked(stream: &mut TcpStream, topic: &str, partition: i32) {
    write_frame(stream, &records(topic, partition, 0, 1_000).frame(ApiKey::Produce, 11)).unwrap();
}

fn records(topic: &str, partition: i32, acks: i16, timestamp: i64) -> Asked {
    let header = BatchHeader {
        base_offset: 0,
        size: 0,
        attributes: 0,
        last_offset_delta: 0,
        base_timestamp: timestamp,
        max_timestamp: timestamp,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records: 1,
    };
    let batch = build_batch(&header, &[12, 0, 0, 0, 1, 1, 0]);
    let asked = Asked::default().null().i16(acks).i32(10_000).array(1).text(topic).array(1).i32(partition);
    asked.bytes(&batch).end().end().end()
}

/// A request in the form that its version has.
pub(crate) fn frame(key: i16, version: i16, flexible: bool, correlation: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&correlation.to_be_bytes());
    frame.extend_from_slice(&[0, 4]);
    frame.extend_from_slice(b"test");
    if flexible {
        frame.push(0);
    }
    frame.extend_from_slice(body);
    frame
}

/// `JoinGroup` 9 of a static consumer.
pub(crate) fn join(group: &str, instance: &str) -> Asked {
    let member = Asked::default().text(group).i32(60_000).i32(60_000).text("").text(instance).text("consumer");
    member.array(1).text("range").bytes(b"").end().null().end()
}

/// A request being written.
#[derive(Default)]
pub(crate) struct Asked(Vec<u8>);

impl Asked {
    pub(crate) fn i8(mut self, value: i8) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    pub(crate) fn i16(mut self, value: i16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    pub(crate) fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    pub(crate) fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    pub(crate) fn uuid(mut self, value: [u8; 16]) -> Self {
        self.0.extend(value);
        self
    }
    /// The length of an array that follows.
    pub(crate) fn array(mut self, length: usize) -> Self {
        let mut value = length + 1;
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let mut asked = self.array(bytes.len());
        asked.0.extend(bytes);
        asked
    }
    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }
    pub(crate) fn null(self) -> Self {
        self.i8(0)
    }
    /// The end of a structure, without tagged fields.
    pub(crate) fn end(self) -> Self {
        self.i8(0)
    }

    /// The request with its header.
    pub(crate) fn frame(self, key: ApiKey, version: i16) -> Vec<u8> {
        assert!(is_flexible(key, version), "{key:?} {version} has the older form");
        let mut frame = Vec::new();
        frame.extend_from_slice(&(key as i16).to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        // Correlation id 7, a client id of one letter, no tagged fields.
        frame.extend_from_slice(&[0, 0, 0, 7, 0, 1, b'w', 0]);
        frame.extend_from_slice(&self.0);
        frame
    }

    /// Sends it, whose last structure is ended, and gives what stands behind the header of the answer.
    pub(crate) fn ask(self, stream: &mut TcpStream, key: ApiKey, version: i16) -> Answer {
        let answer =
            call(stream, &self.frame(key, version)).unwrap_or_else(|| panic!("{key:?} {version} is not answered"));
        assert_eq!(answer[..4], [0, 0, 0, 7], "{key:?} {version}");
        // Only this answer has the older header, so that everyone can read it.
        let header = if key == ApiKey::ApiVersions { 4 } else { 5 };
        Answer { bytes: answer, at: header }
    }
}

/// An answer being read; the tests only meet well-formed ones.
pub(crate) struct Answer {
    bytes: Vec<u8>,
    at: usize,
}

impl Answer {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.bytes[self.at..self.at + N].try_into().unwrap();
        self.at += N;
        bytes
    }
    pub(crate) fn i8(&mut self) -> i8 {
        i8::from_be_bytes(self.take())
    }
    pub(crate) fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take())
    }
    pub(crate) fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take())
    }
    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take())
    }
    pub(crate) fn uuid(&mut self) -> [u8; 16] {
        self.take()
    }
    fn varint(&mut self) -> usize {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let [byte] = self.take();
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    /// How many elements follow; null counts as none.
    pub(crate) fn array(&mut self) -> usize {
        self.varint().saturating_sub(1)
    }
    pub(crate) fn text(&mut self) -> String {
        let length = self.array();
        self.at += length;
        String::from_utf8(self.bytes[self.at - length..self.at].to_vec()).unwrap()
    }
    /// The tagged fields at the end of a structure: number and what is in it.
    pub(crate) fn tagged(&mut self) -> Vec<(usize, Answer)> {
        let count = self.varint();
        let fields = (0..count).map(|_| {
            let (tag, size) = (self.varint(), self.varint());
            self.at += size;
            (tag, Answer { bytes: self.bytes[self.at - size..self.at].to_vec(), at: 0 })
        });
        fields.collect()
    }
    /// Passes what `Metadata` says of the cluster, up to its topics: there is one node.
    pub(crate) fn pass_cluster(&mut self) {
        self.i32(); // throttle
        assert_eq!(self.array(), 1);
        self.i32(); // node
        self.text(); // host
        self.i32(); // port
        self.text(); // rack
        self.tagged();
        self.text(); // cluster
        self.i32(); // controller
    }
    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}
