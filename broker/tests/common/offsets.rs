//! Offsets of groups as clients outside of them commit, ask for and delete them.

use std::net::TcpStream;

use kafka_protocol::messages::ApiKey;

use super::call;
use super::wire::frame;

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

/// A text of the older form.
pub(crate) fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u16).to_be_bytes()[..], value.as_bytes()].concat()
}
