//! A producer with a transactional id, and what it says.

use std::net::{SocketAddr, TcpStream};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;
use riverrun_broker::wire::batch::{BatchHeader, build_batch};

use crate::common::connect;
use crate::common::wire::Asked;

const TRANSACTIONAL: i16 = 0x10;
pub(crate) const TIMEOUT_MS: i32 = 60_000;
/// The last version of protocol 1 and the first of protocol 2.
pub(crate) const PRODUCE: [i16; 2] = [11, 12];
pub(crate) const END: [i16; 2] = [4, 5];

/// Kafka's code; 0 is good.
pub(crate) fn code(error: ResponseError) -> i16 {
    error.code()
}

/// Producer id and epoch.
pub(crate) type Producer = (i64, i16);

/// A connection that says what a producer with the transactional id `x` says.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self(connect(address))
    }

    /// `InitProducerId` 5.
    pub(crate) fn init(&mut self, timeout_ms: i32) -> Producer {
        let asked = Asked::default().text("x").i32(timeout_ms).i64(-1).i16(-1).end();
        let mut answer = asked.ask(&mut self.0, ApiKey::InitProducerId, 5);
        answer.i32(); // throttle
        assert_eq!(answer.i16(), 0);
        (answer.i64(), answer.i16())
    }

    /// `Produce` of one record to a partition of a topic by name: error and offset.
    pub(crate) fn produce(
        &mut self,
        version: i16,
        producer: Producer,
        topic: &str,
        sequence: i32,
        value: &str,
    ) -> (i16, i64) {
        let batch = batch(producer, sequence, value);
        let asked = Asked::default().text("x").i16(-1).i32(10_000).array(1).text(topic).array(1).i32(0).bytes(&batch);
        let mut answer = asked.end().end().end().ask(&mut self.0, ApiKey::Produce, version);
        assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
        (answer.i16(), answer.i64())
    }

    /// `Produce` 13 of one record outside of transactions, to a topic by id: error and whether the answer is about this topic.
    pub(crate) fn produce_by_id(&mut self, id: [u8; 16]) -> (i16, bool) {
        let batch = batch((-1, -1), -1, "by id");
        let asked = Asked::default().null().i16(-1).i32(10_000).array(1).uuid(id).array(1).i32(0).bytes(&batch);
        let mut answer = asked.end().end().end().ask(&mut self.0, ApiKey::Produce, 13);
        assert_eq!(answer.array(), 1);
        let same = answer.uuid() == id;
        assert_eq!((answer.array(), answer.i32()), (1, 0));
        (answer.i16(), same)
    }

    /// `EndTxn`: error, and the identity for the next transaction where the version has one.
    pub(crate) fn end(&mut self, version: i16, producer: Producer, commit: bool) -> (i16, Producer) {
        let asked = Asked::default().text("x").i64(producer.0).i16(producer.1).i8(i8::from(commit)).end();
        let mut answer = asked.ask(&mut self.0, ApiKey::EndTxn, version);
        answer.i32(); // throttle
        let error = answer.i16();
        (error, if version >= 5 { (answer.i64(), answer.i16()) } else { (-1, -1) })
    }

    /// `AddPartitionsToTxn` 3 of partition 0.
    pub(crate) fn add(&mut self, producer: Producer, topic: &str) -> i16 {
        let asked = Asked::default().text("x").i64(producer.0).i16(producer.1).array(1).text(topic).array(1).i32(0);
        let mut answer = asked.end().end().ask(&mut self.0, ApiKey::AddPartitionsToTxn, 3);
        answer.i32(); // throttle
        assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
        answer.i16()
    }

    /// `AddPartitionsToTxn` of partition 0 as brokers ask among themselves.
    pub(crate) fn add_or_verify(&mut self, version: i16, producer: Producer, topic: &str, verify_only: bool) -> i16 {
        let asked = Asked::default().array(1).text("x").i64(producer.0).i16(producer.1).i8(i8::from(verify_only));
        let asked = asked.array(1).text(topic).array(1).i32(0).end().end().end();
        let mut answer = asked.ask(&mut self.0, ApiKey::AddPartitionsToTxn, version);
        answer.i32(); // throttle
        assert_eq!((answer.i16(), answer.array(), answer.text().as_str()), (0, 1, "x"));
        assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
        answer.i16()
    }

    /// `TxnOffsetCommit` of partition 0 for the group `g`.
    pub(crate) fn commit_offset(&mut self, version: i16, producer: Producer, topic: &str, offset: i64) -> i16 {
        let asked = Asked::default().text("x").text("g").i64(producer.0).i16(producer.1).i32(-1).text("").null();
        let asked = asked.array(1).text(topic).array(1).i32(0).i64(offset).i32(-1).null().end().end().end();
        let mut answer = asked.ask(&mut self.0, ApiKey::TxnOffsetCommit, version);
        answer.i32(); // throttle
        assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
        answer.i16()
    }

    /// `DescribeTransactions` 0: the state of `x`.
    pub(crate) fn state(&mut self) -> String {
        let mut answer = Asked::default().array(1).text("x").end().ask(&mut self.0, ApiKey::DescribeTransactions, 0);
        answer.i32(); // throttle
        assert_eq!((answer.array(), answer.i16(), answer.text().as_str()), (1, 0, "x"));
        answer.text()
    }

    /// The epoch of a producer in partition 0.
    pub(crate) fn epoch_in(&mut self, topic: &str, producer_id: i64) -> Option<i32> {
        self.producer_in(topic, producer_id).map(|found| found.epoch)
    }

    /// `DescribeProducers` 0: what is known of a producer in partition 0.
    pub(crate) fn producer_in(&mut self, topic: &str, producer_id: i64) -> Option<Known> {
        let asked = Asked::default().array(1).text(topic).array(1).i32(0).end().end();
        let mut answer = asked.ask(&mut self.0, ApiKey::DescribeProducers, 0);
        answer.i32(); // throttle
        assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
        assert_eq!((answer.i16(), answer.text().as_str()), (0, ""));
        let count = answer.array();
        let mut found = (0..count).map(|_| {
            let (id, epoch) = (answer.i64(), answer.i32());
            answer.i32(); // last sequence
            let (last_timestamp, coordinator_epoch) = (answer.i64(), answer.i32());
            answer.i64(); // start of its transaction
            answer.tagged();
            (id, Known { epoch, last_timestamp, coordinator_epoch })
        });
        found.find(|(id, _)| *id == producer_id).map(|(_, known)| known)
    }
}

/// What a partition knows of a producer.
pub(crate) struct Known {
    pub(crate) epoch: i32,
    pub(crate) last_timestamp: i64,
    pub(crate) coordinator_epoch: i32,
}

/// A batch of one record without a key, in a transaction unless its producer has no id.
fn batch(producer: Producer, sequence: i32, value: &str) -> Vec<u8> {
    let zigzag = |length: usize| u8::try_from(length * 2).unwrap();
    let record = [&[0, 0, 0, 1, zigzag(value.len())][..], value.as_bytes(), &[0]].concat();
    let body = [&[zigzag(record.len())][..], &record].concat();
    let header = BatchHeader {
        base_offset: 0,
        size: 0,
        attributes: if producer.0 < 0 { 0 } else { TRANSACTIONAL },
        last_offset_delta: 0,
        base_timestamp: 1_000,
        max_timestamp: 1_000,
        producer_id: producer.0,
        producer_epoch: producer.1,
        base_sequence: sequence,
        records: 1,
    };
    build_batch(&header, &body)
}
