//! Offsets of groups as clients outside of them commit, ask for and delete them.

use std::net::TcpStream;

use kafka_protocol::messages::ApiKey;

use super::call;
use super::wire::{Asked, frame};

/// `OffsetCommit` 8 of partition 0: Kafka's code.
pub(crate) fn commit_offset(stream: &mut TcpStream, group: &str, topic: &str, offset: i64) -> i16 {
    let asked = Asked::default().text(group).i32(-1).text("").null().array(1).text(topic).array(1);
    let asked = asked.i32(0).i64(offset).i32(-1).null().end().end().end();
    let mut answer = asked.ask(stream, ApiKey::OffsetCommit, 8);
    answer.i32(); // throttle
    assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
    answer.i16()
}

/// `OffsetFetch` 8 of partition 0 by one who waits for transactions to end: Kafka's code and the offset, -1 for none.
pub(crate) fn offset_of(stream: &mut TcpStream, group: &str, topic: &str) -> (i16, i64) {
    let asked = Asked::default().array(1).text(group).array(1).text(topic).array(1).i32(0).end().end().i8(1).end();
    let mut answer = asked.ask(stream, ApiKey::OffsetFetch, 8);
    answer.i32(); // throttle
    assert_eq!((answer.array(), answer.text().as_str()), (1, group));
    assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
    let offset = answer.i64();
    answer.i32(); // leader epoch
    answer.text(); // metadata
    (answer.i16(), offset)
}

/// `OffsetDelete` 0 of one partition: the error of the whole, and that of the partition if there is an answer for it.
pub(crate) fn forget_offset(stream: &mut TcpStream, group: &str, topic: &str, partition: i32) -> (i16, Option<i16>) {
    let one = 1i32.to_be_bytes();
    let body = [&text(group)[..], &one, &text(topic), &one, &partition.to_be_bytes()].concat();
    let answer = call(stream, &frame(ApiKey::OffsetDelete as i16, 0, false, 1, &body)).unwrap();
    let error = i16::from_be_bytes([answer[4], answer[5]]);
    // Correlation id, error, throttle time and the number of topics are 14 bytes.
    let of_partition = answer.get(14..).and_then(|rest| rest.last_chunk::<2>()).map(|code| i16::from_be_bytes(*code));
    (error, of_partition)
}

/// `DeleteGroups` 2 of one group: Kafka's code.
pub(crate) fn delete_group(stream: &mut TcpStream, group: &str) -> i16 {
    let mut answer = Asked::default().array(1).text(group).end().ask(stream, ApiKey::DeleteGroups, 2);
    answer.i32(); // throttle
    assert_eq!((answer.array(), answer.text().as_str()), (1, group));
    answer.i16()
}

/// `DeleteTopics` 4 of one topic: Kafka's code.
pub(crate) fn delete_topic(stream: &mut TcpStream, topic: &str) -> i16 {
    let mut answer = Asked::default().array(1).text(topic).i32(10_000).end().ask(stream, ApiKey::DeleteTopics, 4);
    answer.i32(); // throttle
    assert_eq!((answer.array(), answer.text().as_str()), (1, topic));
    answer.i16()
}

/// A text of the older form.
pub(crate) fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u16).to_be_bytes()[..], value.as_bytes()].concat()
}
