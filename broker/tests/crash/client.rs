//! A client of few words: the oldest announced forms of the requests that the crash tests need, and those of transaction
//! protocol 2. It gives up as soon as the broker's disk is dead, since some answers never come then.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverrun_broker::wire::batch::{BatchHeader, Marker, build_batch, marker_of, records};

use crate::sim_disk::SimDisk;

const PATIENCE: Duration = Duration::from_secs(90);
const TRANSACTIONAL: i16 = 0x10;

/// The batches, the end of the log, and the aborted transactions as (producer, first offset).
type Fetched = (Vec<u8>, i64, Vec<(i64, i64)>);

/// Offset, key and value.
pub(crate) type Seen = (i64, String, String);

/// What went wrong: Kafka's code, or no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Code(i16),
    NoAnswer,
}

/// A producer's identity.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// A member's place in its group.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    pub(crate) id: String,
    pub(crate) generation: i32,
}

pub(crate) struct Client {
    stream: TcpStream,
    disk: SimDisk,
    correlation: i32,
}

/// A frame being written.
struct Frame(Vec<u8>);

impl Frame {
    fn i8(mut self, value: i8) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn i16(mut self, value: i16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn text(self, text: &str) -> Self {
        let mut frame = self.i16(text.len() as i16);
        frame.0.extend(text.as_bytes());
        frame
    }
    fn bytes(self, bytes: &[u8]) -> Self {
        let mut frame = self.i32(bytes.len() as i32);
        frame.0.extend(bytes);
        frame
    }
    /// Bytes or text in the flexible form.
    fn compact(mut self, bytes: &[u8]) -> Self {
        let mut length = bytes.len() + 1;
        while length >= 0x80 {
            self.0.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.0.push(length as u8);
        self.0.extend(bytes);
        self
    }
}

/// An answer being read; the tests only meet well-formed ones.
struct Answer(Vec<u8>, usize);

impl Answer {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.0[self.1..self.1 + N].try_into().unwrap();
        self.1 += N;
        bytes
    }
    fn i8(&mut self) -> i8 {
        i8::from_be_bytes(self.take())
    }
    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take())
    }
    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take())
    }
    fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take())
    }
    fn text(&mut self) -> String {
        let length = self.i16().max(0) as usize;
        self.1 += length;
        String::from_utf8(self.0[self.1 - length..self.1].to_vec()).unwrap()
    }
    fn bytes(&mut self) -> Vec<u8> {
        let length = self.i32().max(0) as usize;
        self.1 += length;
        self.0[self.1 - length..self.1].to_vec()
    }
}

fn checked<T>(code: i16, value: T) -> Result<T, Failure> {
    if code == 0 { Ok(value) } else { Err(Failure::Code(code)) }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, disk: SimDisk) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, disk, correlation: 0 }
    }

    fn call(&mut self, key: i16, version: i16, body: Frame) -> Result<Answer, Failure> {
        self.send(key, version, body)?;
        self.receive()
    }

    fn send(&mut self, key: i16, version: i16, body: Frame) -> Result<(), Failure> {
        self.correlation += 1;
        let head = Frame(Vec::new()).i16(key).i16(version).i32(self.correlation).text("crash");
        self.write([head.0, body.0].concat())
    }

    /// The same as `call` for versions of the flexible form.
    fn call_flexible(&mut self, key: i16, version: i16, body: Frame) -> Result<Answer, Failure> {
        self.correlation += 1;
        let head = Frame(Vec::new()).i16(key).i16(version).i32(self.correlation).text("crash").i8(0);
        self.write([head.0, body.0].concat())?;
        let mut answer = self.receive()?;
        answer.i8(); // no tagged fields
        Ok(answer)
    }

    fn write(&mut self, frame: Vec<u8>) -> Result<(), Failure> {
        let sent = self.stream.write_all(&Frame(Vec::new()).bytes(&frame).0);
        sent.map_err(|_| Failure::NoAnswer)
    }

    fn receive(&mut self) -> Result<Answer, Failure> {
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.fill(&mut answer)?;
        // Behind the correlation id.
        Ok(Answer(answer, 4))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        let since = Instant::now();
        let mut done = 0;
        while done < buffer.len() {
            match self.stream.read(&mut buffer[done..]) {
                Ok(0) => return Err(Failure::NoAnswer),
                Ok(count) => done += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    assert!(since.elapsed() < PATIENCE, "no answer although the disk is alive");
                    if self.disk.is_dead() {
                        return Err(Failure::NoAnswer);
                    }
                }
                Err(_) => return Err(Failure::NoAnswer),
            }
        }
        Ok(())
    }

    /// `CreateTopics` 2 with one partition.
    pub(crate) fn create(&mut self, topic: &str, settings: &[(&str, &str)]) -> Result<(), Failure> {
        let body = Frame(Vec::new()).i32(1).text(topic).i32(1).i16(1).i32(0).i32(settings.len() as i32);
        let body = settings.iter().fold(body, |body, (name, value)| body.text(name).text(value));
        let mut answer = self.call(19, 2, body.i32(10_000).i8(0))?;
        answer.i32(); // throttle
        answer.i32(); // one topic
        answer.text();
        let code = answer.i16();
        // A creation that was interrupted may have taken place.
        checked(if code == 36 { 0 } else { code }, ())
    }

    /// `Produce` 3 of one record; the offset that it got.
    pub(crate) fn produce(
        &mut self,
        topic: &str,
        key: &str,
        value: &str,
        transaction: Option<(&str, &Identity, i32)>,
    ) -> Result<i64, Failure> {
        self.begin_produce(topic, key, value, transaction)?;
        self.produced()
    }

    /// Asks for the same and does not wait for the answer, which is [`produced`](Self::produced).
    pub(crate) fn begin_produce(
        &mut self,
        topic: &str,
        key: &str,
        value: &str,
        transaction: Option<(&str, &Identity, i32)>,
    ) -> Result<(), Failure> {
        let batch = batch(key, value, transaction.map(|(_, identity, sequence)| (identity, sequence)));
        let body = match transaction {
            Some((id, _, _)) => Frame(Vec::new()).text(id),
            None => Frame(Vec::new()).i16(-1),
        };
        let body = body.i16(-1).i32(10_000).i32(1).text(topic).i32(1).i32(0).bytes(&batch);
        self.send(0, 3, body)
    }

    /// The answer to a record that is on its way.
    pub(crate) fn produced(&mut self) -> Result<i64, Failure> {
        let mut answer = self.receive()?;
        answer.i32(); // one topic
        answer.text();
        answer.i32(); // one partition
        answer.i32(); // index
        let code = answer.i16();
        let offset = answer.i64();
        checked(code, offset)
    }

    /// `InitProducerId` 0.
    pub(crate) fn init(&mut self, transactional_id: &str) -> Result<Identity, Failure> {
        let mut answer = self.call(22, 0, Frame(Vec::new()).text(transactional_id).i32(60_000))?;
        answer.i32(); // throttle
        let code = answer.i16();
        let (id, epoch) = (answer.i64(), answer.i16());
        checked(code, Identity { id, epoch })
    }

    /// `AddPartitionsToTxn` 0: partition 0 of each topic.
    pub(crate) fn add(&mut self, id: &str, producer: &Identity, topics: &[&str]) -> Result<(), Failure> {
        let body = Frame(Vec::new()).text(id).i64(producer.id).i16(producer.epoch).i32(topics.len() as i32);
        let body = topics.iter().fold(body, |body, topic| body.text(topic).i32(1).i32(0));
        let mut answer = self.call(24, 0, body)?;
        answer.i32(); // throttle
        for _ in 0..answer.i32() {
            answer.text();
            answer.i32(); // one partition
            answer.i32(); // index
            let code = answer.i16();
            checked(code, ())?;
        }
        Ok(())
    }

    /// `EndTxn` 0.
    pub(crate) fn end(&mut self, id: &str, producer: &Identity, commit: bool) -> Result<(), Failure> {
        let body = Frame(Vec::new()).text(id).i64(producer.id).i16(producer.epoch).i8(i8::from(commit));
        let mut answer = self.call(26, 0, body)?;
        answer.i32(); // throttle
        let code = answer.i16();
        checked(code, ())
    }

    /// `Produce` 12 of one record, which adds its partition to the transaction itself.
    pub(crate) fn produce_joining(
        &mut self,
        topic: &str,
        value: &str,
        id: &str,
        producer: &Identity,
        sequence: i32,
    ) -> Result<(), Failure> {
        // An array of one is a length of 2; structures end without tagged fields.
        let body = Frame(Vec::new()).compact(id.as_bytes()).i16(-1).i32(10_000).i8(2).compact(topic.as_bytes());
        let body = body.i8(2).i32(0).compact(&batch(value, value, Some((producer, sequence)))).i8(0).i8(0).i8(0);
        let mut answer = self.call_flexible(0, 12, body)?;
        answer.i8(); // one topic
        let name = answer.i8();
        answer.1 += name as usize - 1;
        answer.i8(); // one partition
        answer.i32(); // index
        let code = answer.i16();
        checked(code, ())
    }

    /// `EndTxn` 5: the identity for the next transaction.
    pub(crate) fn end_epoch(&mut self, id: &str, producer: &Identity, commit: bool) -> Result<Identity, Failure> {
        let body = Frame(Vec::new()).compact(id.as_bytes()).i64(producer.id).i16(producer.epoch);
        let mut answer = self.call_flexible(26, 5, body.i8(i8::from(commit)).i8(0))?;
        answer.i32(); // throttle
        let code = answer.i16();
        let (id, epoch) = (answer.i64(), answer.i16());
        checked(code, Identity { id, epoch })
    }

    /// `JoinGroup` 5 and `SyncGroup` 3 as the only member, a static one: its id and generation.
    pub(crate) fn join(&mut self, group: &str, instance: &str, topic: &str) -> Result<Membership, Failure> {
        let subscription = Frame(Vec::new()).i16(0).i32(1).text(topic).i32(-1).0;
        let body = Frame(Vec::new()).text(group).i32(60_000).i32(60_000).text("").text(instance).text("consumer");
        let mut answer = self.call(11, 5, body.i32(1).text("range").bytes(&subscription))?;
        answer.i32(); // throttle
        let (code, generation) = (answer.i16(), answer.i32());
        answer.text(); // protocol
        let leader = answer.text();
        let membership = checked(code, Membership { id: answer.text(), generation })?;
        let body = Frame(Vec::new()).text(group).i32(generation).text(&membership.id).text(instance);
        let body = if leader == membership.id { body.i32(1).text(&leader).bytes(b"all") } else { body.i32(0) };
        let mut answer = self.call(14, 3, body)?;
        answer.i32(); // throttle
        let code = answer.i16();
        assert!(code != 0 || answer.bytes() == b"all", "the member has its assignment");
        checked(code, membership)
    }

    /// `OffsetCommit` 2, by a member or from outside a group.
    pub(crate) fn commit(
        &mut self,
        group: &str,
        member: Option<&Membership>,
        topic: &str,
        offset: i64,
    ) -> Result<(), Failure> {
        let (id, generation) = member.map_or(("", -1), |member| (member.id.as_str(), member.generation));
        let body = Frame(Vec::new()).text(group).i32(generation).text(id).i64(-1);
        let body = body.i32(1).text(topic).i32(1).i32(0).i64(offset);
        let mut answer = self.call(8, 2, body.i16(-1))?;
        answer.i32(); // one topic
        answer.text();
        answer.i32(); // one partition
        answer.i32(); // index
        let code = answer.i16();
        checked(code, ())
    }

    /// `OffsetFetch` 1; -1 for none.
    pub(crate) fn committed(&mut self, group: &str, topic: &str) -> Result<i64, Failure> {
        let mut answer = self.call(9, 1, Frame(Vec::new()).text(group).i32(1).text(topic).i32(1).i32(0))?;
        answer.i32(); // one topic
        answer.text();
        answer.i32(); // one partition
        answer.i32(); // index
        Ok(answer.i64())
    }

    /// `Fetch` 4 from `offset`.
    fn fetch(&mut self, topic: &str, offset: i64, committed: bool) -> Result<Fetched, Failure> {
        let body = Frame(Vec::new()).i32(-1).i32(0).i32(0).i32(1 << 20).i8(i8::from(committed));
        let body = body.i32(1).text(topic).i32(1).i32(0).i64(offset).i32(1 << 20);
        let mut answer = self.call(1, 4, body)?;
        answer.i32(); // throttle
        answer.i32(); // one topic
        answer.text();
        answer.i32(); // one partition
        answer.i32(); // index
        let code = answer.i16();
        let high_watermark = answer.i64();
        let last_stable = answer.i64();
        let aborted = (0..answer.i32().max(0)).map(|_| (answer.i64(), answer.i64())).collect();
        let batches = answer.bytes();
        checked(code, (batches, if committed { last_stable } else { high_watermark }, aborted))
    }

    /// Every record that a reader of committed records sees: offset, key and value. What the broker says of aborted
    /// transactions must agree with the markers in the log.
    pub(crate) fn read_committed(&mut self, topic: &str) -> Result<Vec<Seen>, Failure> {
        let start = self.log_start(topic)?;
        let mut offset = start;
        let mut seen = Vec::new();
        let mut by_markers = Vec::new();
        let mut open: Vec<(i64, Vec<Seen>)> = Vec::new();
        let mut aborting: Vec<i64> = Vec::new();
        loop {
            let (batches, end, mut aborted) = self.fetch(topic, offset, true)?;
            let mut rest = &batches[..];
            while let Ok(header) = BatchHeader::parse_checked(rest) {
                let whole = Bytes::copy_from_slice(&rest[..header.size]);
                rest = &rest[header.size..];
                if header.last_offset() < offset {
                    continue;
                }
                offset = header.last_offset() + 1;
                let found: Vec<Seen> = records(&header, &whole)
                    .map(|record| {
                        let record = record.unwrap();
                        let text =
                            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
                        (record.offset, text(record.key), text(record.value))
                    })
                    .collect();
                // The rule of Apache Kafka's consumer.
                aborting.extend(aborted.extract_if(.., |(_, first)| *first <= header.last_offset()).map(|(id, _)| id));
                if header.is_control() {
                    aborting.retain(|id| *id != header.producer_id);
                    let at = open.iter().position(|(id, _)| *id == header.producer_id);
                    let ended = at.map(|at| open.remove(at).1).unwrap_or_default();
                    if marker_of(&header, &whole) == Some(Marker::Commit) {
                        by_markers.extend(ended);
                    }
                    continue;
                }
                if !header.is_transactional() {
                    by_markers.extend(found.clone());
                } else if let Some((_, records)) = open.iter_mut().find(|(id, _)| *id == header.producer_id) {
                    records.extend(found.clone());
                } else {
                    open.push((header.producer_id, found.clone()));
                }
                if !(header.is_transactional() && aborting.contains(&header.producer_id)) {
                    seen.extend(found);
                }
            }
            if offset >= end || batches.is_empty() {
                break;
            }
        }
        by_markers.sort();
        assert_eq!(seen, by_markers, "{topic}: the list of aborted transactions and the markers disagree");
        Ok(seen)
    }

    /// `ListOffsets` 1: the first offset.
    fn log_start(&mut self, topic: &str) -> Result<i64, Failure> {
        let mut answer = self.call(2, 1, Frame(Vec::new()).i32(-1).i32(1).text(topic).i32(1).i32(0).i64(-2))?;
        answer.i32(); // one topic
        answer.text();
        answer.i32(); // one partition
        answer.i32(); // index
        let code = answer.i16();
        answer.i64(); // timestamp
        checked(code, answer.i64())
    }
}

fn batch(key: &str, value: &str, producer: Option<(&Identity, i32)>) -> Vec<u8> {
    let (id, epoch, sequence) = producer.map_or((-1, -1, -1), |(identity, at)| (identity.id, identity.epoch, at));
    let attributes = if producer.is_some() { TRANSACTIONAL } else { 0 };
    let mut record = vec![0, 0, 0];
    for part in [key, value] {
        varint(&mut record, part.len());
        record.extend_from_slice(part.as_bytes());
    }
    record.push(0);
    let mut body = Vec::new();
    varint(&mut body, record.len());
    body.extend_from_slice(&record);
    let header = BatchHeader {
        base_offset: 0,
        size: 0,
        attributes,
        last_offset_delta: 0,
        base_timestamp: 1_000,
        max_timestamp: 1_000,
        producer_id: id,
        producer_epoch: epoch,
        base_sequence: sequence,
        records: 1,
    };
    build_batch(&header, &body)
}

/// A length in the zigzag form that records use.
fn varint(out: &mut Vec<u8>, length: usize) {
    let mut value = length << 1;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
