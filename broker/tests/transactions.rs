//! Transaction protocol 2 (KIP-890), which librdkafka does not speak: what the newest versions say of transactions, byte by byte.

mod common;

use std::net::{SocketAddr, TcpStream};

use common::wire::Asked;
use common::*;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;
use riverrun_broker::Broker;
use riverrun_broker::wire::batch::{BatchHeader, build_batch};
use tempfile::TempDir;

const TRANSACTIONAL: i16 = 0x10;
const TIMEOUT_MS: i32 = 60_000;
/// The last version of protocol 1 and the first of protocol 2.
const PRODUCE: [i16; 2] = [11, 12];
const END: [i16; 2] = [4, 5];

/// Kafka's code; 0 is good.
fn code(error: ResponseError) -> i16 {
    error.code()
}

/// Producer id and epoch.
type Producer = (i64, i16);

/// A connection that says what a producer with the transactional id `x` says.
struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        Self(connect(address))
    }

    /// `InitProducerId` 5.
    fn init(&mut self, timeout_ms: i32) -> Producer {
        let asked = Asked::default().text("x").i32(timeout_ms).i64(-1).i16(-1).end();
        let mut answer = asked.ask(&mut self.0, ApiKey::InitProducerId, 5);
        answer.i32(); // throttle
        assert_eq!(answer.i16(), 0);
        (answer.i64(), answer.i16())
    }

    /// `Produce` of one record to a partition of a topic by name: error and offset.
    fn produce(&mut self, version: i16, producer: Producer, topic: &str, sequence: i32, value: &str) -> (i16, i64) {
        let batch = batch(producer, sequence, value);
        let asked = Asked::default().text("x").i16(-1).i32(10_000).array(1).text(topic).array(1).i32(0).bytes(&batch);
        let mut answer = asked.end().end().end().ask(&mut self.0, ApiKey::Produce, version);
        assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
        (answer.i16(), answer.i64())
    }

    /// `Produce` 13 of one record outside of transactions, to a topic by id: error and whether the answer is about this topic.
    fn produce_by_id(&mut self, id: [u8; 16]) -> (i16, bool) {
        let batch = batch((-1, -1), -1, "by id");
        let asked = Asked::default().null().i16(-1).i32(10_000).array(1).uuid(id).array(1).i32(0).bytes(&batch);
        let mut answer = asked.end().end().end().ask(&mut self.0, ApiKey::Produce, 13);
        assert_eq!(answer.array(), 1);
        let same = answer.uuid() == id;
        assert_eq!((answer.array(), answer.i32()), (1, 0));
        (answer.i16(), same)
    }

    /// `EndTxn`: error, and the identity for the next transaction where the version has one.
    fn end(&mut self, version: i16, producer: Producer, commit: bool) -> (i16, Producer) {
        let asked = Asked::default().text("x").i64(producer.0).i16(producer.1).i8(i8::from(commit)).end();
        let mut answer = asked.ask(&mut self.0, ApiKey::EndTxn, version);
        answer.i32(); // throttle
        let error = answer.i16();
        (error, if version >= 5 { (answer.i64(), answer.i16()) } else { (-1, -1) })
    }

    /// `AddPartitionsToTxn` 3 of partition 0.
    fn add(&mut self, producer: Producer, topic: &str) -> i16 {
        let asked = Asked::default().text("x").i64(producer.0).i16(producer.1).array(1).text(topic).array(1).i32(0);
        let mut answer = asked.end().end().ask(&mut self.0, ApiKey::AddPartitionsToTxn, 3);
        answer.i32(); // throttle
        assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
        answer.i16()
    }

    /// `AddPartitionsToTxn` of partition 0 as brokers ask among themselves.
    fn add_or_verify(&mut self, version: i16, producer: Producer, topic: &str, verify_only: bool) -> i16 {
        let asked = Asked::default().array(1).text("x").i64(producer.0).i16(producer.1).i8(i8::from(verify_only));
        let asked = asked.array(1).text(topic).array(1).i32(0).end().end().end();
        let mut answer = asked.ask(&mut self.0, ApiKey::AddPartitionsToTxn, version);
        answer.i32(); // throttle
        assert_eq!((answer.i16(), answer.array(), answer.text().as_str()), (0, 1, "x"));
        assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
        answer.i16()
    }

    /// `TxnOffsetCommit` of partition 0 for the group `g`.
    fn commit_offset(&mut self, version: i16, producer: Producer, topic: &str, offset: i64) -> i16 {
        let asked = Asked::default().text("x").text("g").i64(producer.0).i16(producer.1).i32(-1).text("").null();
        let asked = asked.array(1).text(topic).array(1).i32(0).i64(offset).i32(-1).null().end().end().end();
        let mut answer = asked.ask(&mut self.0, ApiKey::TxnOffsetCommit, version);
        answer.i32(); // throttle
        assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
        answer.i16()
    }

    /// `DescribeTransactions` 0: the state of `x`.
    fn state(&mut self) -> String {
        let mut answer = Asked::default().array(1).text("x").end().ask(&mut self.0, ApiKey::DescribeTransactions, 0);
        answer.i32(); // throttle
        assert_eq!((answer.array(), answer.i16(), answer.text().as_str()), (1, 0, "x"));
        answer.text()
    }

    /// The epoch of a producer in partition 0.
    fn epoch_in(&mut self, topic: &str, producer_id: i64) -> Option<i32> {
        self.producer_in(topic, producer_id).map(|found| found.epoch)
    }

    /// `DescribeProducers` 0: what is known of a producer in partition 0.
    fn producer_in(&mut self, topic: &str, producer_id: i64) -> Option<Known> {
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
struct Known {
    epoch: i32,
    last_timestamp: i64,
    coordinator_epoch: i32,
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

/// A broker with the topics `a` and `b`, which hold one record each.
async fn with_topics(folder: &TempDir) -> Broker {
    let broker = start(folder).await;
    let plain = producer(broker.local_addr());
    for topic in ["a", "b"] {
        send(&plain, topic, 0, "k", "first").await;
    }
    broker
}

/// What readers of committed records see of `a` and `b`.
async fn committed(broker: &Broker) -> [Vec<String>; 2] {
    let address = broker.local_addr();
    let [a, b] = ["a", "b"].map(|topic| read_all(address, topic, 1, "read_committed"));
    [values(&a.await), values(&b.await)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_records_that_nobody_has_announced_when_their_transaction_ends_then_it_is_whole_and_its_epoch_is_over() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut client = Client::connect(address);
        let begun = client.init(TIMEOUT_MS);
        let mut producer = begun;
        for (turn, commit) in [true, false, true].into_iter().enumerate() {
            let value = format!("{turn}");
            for topic in ["a", "b"] {
                assert_eq!(client.produce(12, producer, topic, 0, &value).0, 0, "{topic} in turn {turn}");
            }
            assert_eq!(client.state(), "Ongoing");
            let next = (producer.0, producer.1 + 1);
            assert_eq!(client.end(5, producer, commit), (0, next), "turn {turn}");
            assert_eq!(client.end(5, producer, commit), (0, next), "repeated in turn {turn}");
            let (other, _) = client.end(5, producer, !commit);
            assert_eq!(other, code(ResponseError::InvalidTxnState), "the other outcome in turn {turn}");
            // The markers have the new epoch, so nothing of the old one comes behind them.
            assert_eq!(client.epoch_in("a", producer.0), Some(i32::from(next.1)));
            let (late, _) = client.produce(12, producer, "a", 1, "late");
            assert_eq!(late, code(ResponseError::InvalidProducerEpoch), "turn {turn}");
            producer = next;
        }
    })
    .await;
    let expected = ["first", "0", "2"].map(String::from).to_vec();
    assert_eq!(committed(&broker).await, [expected.clone(), expected]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_producer_when_described_then_its_time_is_that_of_its_records_until_a_marker_comes() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut client = Client::connect(address);
        let producer = client.init(TIMEOUT_MS);
        assert_eq!(client.produce(12, producer, "a", 0, "open").0, 0);
        let known = client.producer_in("a", producer.0).unwrap();
        assert_eq!((known.last_timestamp, known.coordinator_epoch), (1_000, -1));
        assert_eq!(client.end(5, producer, true).0, 0);
        let known = client.producer_in("a", producer.0).unwrap();
        assert!(known.last_timestamp > 1_000 && known.coordinator_epoch == 0, "those of the marker");
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_transaction_without_anything_when_ended_then_protocol_2_may_abort_it() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut client = Client::connect(address);
        let producer = client.init(TIMEOUT_MS);
        let invalid = (code(ResponseError::InvalidTxnState), (-1, -1));
        assert_eq!(client.end(5, producer, true), invalid, "there is nothing to commit");
        assert_eq!(client.end(4, producer, false), invalid, "protocol 1");
        let second = (producer.0, producer.1 + 1);
        assert_eq!(client.end(5, producer, false), (0, second));
        let third = (producer.0, producer.1 + 2);
        assert_eq!(client.end(5, second, false), (0, third), "and again");
        assert_eq!(client.produce(12, third, "a", 0, "after").0, 0);
        assert_eq!(client.end(5, third, true).0, 0);
    })
    .await;
    assert_eq!(committed(&broker).await[0], ["first", "after"]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_transaction_that_took_too_long_when_its_producer_aborts_it_then_it_goes_on_with_the_next_epoch() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    let producer = blocking(move || {
        let mut client = Client::connect(address);
        // Long enough for the next transaction, which is not to take too long.
        let producer = client.init(2_000);
        assert_eq!(client.produce(12, producer, "a", 0, "too long").0, 0);
        producer
    })
    .await;
    eventually("the abort", || Client::connect(address).state() == "CompleteAbort").await;
    blocking(move || {
        let mut client = Client::connect(address);
        let (late, _) = client.produce(12, producer, "a", 1, "late");
        assert_eq!(late, code(ResponseError::InvalidProducerEpoch));
        assert_eq!(client.end(5, producer, true).0, code(ResponseError::InvalidTxnState), "it is aborted");
        let next = (producer.0, producer.1 + 1);
        assert_eq!(client.end(5, producer, false), (0, next));
        assert_eq!(client.produce(12, next, "b", 0, "after").0, 0);
        assert_eq!(client.end(5, next, true).0, 0);
    })
    .await;
    assert_eq!(committed(&broker).await, [vec!["first".to_owned()], vec!["first".to_owned(), "after".to_owned()]]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_successor_when_the_one_before_goes_on_then_it_is_fenced_and_its_transaction_aborted() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let (mut first, mut second) = (Client::connect(address), Client::connect(address));
        let old = first.init(TIMEOUT_MS);
        assert_eq!(first.produce(12, old, "a", 0, "of the first").0, 0);
        let new = second.init(TIMEOUT_MS);
        assert!(new.0 == old.0 && new.1 > old.1, "{old:?} {new:?}");
        for topic in ["a", "b"] {
            let (refused, _) = first.produce(12, old, topic, 1, "of the first");
            assert_eq!(refused, code(ResponseError::InvalidProducerEpoch), "{topic}");
        }
        for commit in [true, false] {
            assert_eq!(first.end(5, old, commit).0, code(ResponseError::ProducerFenced), "commit: {commit}");
        }
        assert_eq!(first.commit_offset(5, old, "a", 1), code(ResponseError::InvalidProducerEpoch));
        assert_eq!(second.produce(12, new, "a", 0, "of the second").0, 0);
        assert_eq!(second.end(5, new, true).0, 0);
    })
    .await;
    assert_eq!(committed(&broker).await[0], ["first", "of the second"]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_clients_of_both_protocols_under_one_id_when_they_take_turns_then_every_commit_counts() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        for turn in 0..4 {
            let protocol = turn % 2;
            let mut client = Client::connect(address);
            let mut producer = client.init(TIMEOUT_MS);
            let mut sequence = 0;
            for (part, commit) in [true, false, true].into_iter().enumerate() {
                let value = format!("{turn} {part}");
                if protocol == 0 {
                    let (unannounced, _) = client.produce(PRODUCE[0], producer, "a", sequence, &value);
                    assert_eq!(unannounced, code(ResponseError::TransactionAbortable), "version 11");
                    let (unannounced, _) = client.produce(10, producer, "a", sequence, &value);
                    assert_eq!(unannounced, code(ResponseError::InvalidTxnState), "version 10");
                    assert_eq!(client.add(producer, "a"), 0);
                }
                assert_eq!(client.produce(PRODUCE[protocol], producer, "a", sequence, &value).0, 0, "{value}");
                let (error, next) = client.end(END[protocol], producer, commit);
                assert_eq!(error, 0, "{value}");
                (producer, sequence) = if protocol == 0 { (producer, sequence + 1) } else { (next, 0) };
            }
        }
    })
    .await;
    let expected: Vec<String> = (0..4).flat_map(|turn| [format!("{turn} 0"), format!("{turn} 2")]).collect();
    assert_eq!(committed(&broker).await[0][1..], expected);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_batch_that_overtakes_the_first_when_it_comes_then_it_is_refused() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut client = Client::connect(address);
        let mut producer = client.init(TIMEOUT_MS);
        for turn in 0..2 {
            let (early, _) = client.produce(12, producer, "a", 1, "second");
            assert_eq!(early, code(ResponseError::OutOfOrderSequenceNumber), "turn {turn}");
            let first = client.produce(12, producer, "a", 0, "first");
            assert_eq!(first.0, 0);
            assert_eq!(client.produce(12, producer, "a", 1, "second"), (0, first.1 + 1));
            assert_eq!(client.produce(12, producer, "a", 0, "first"), first, "a repetition");
            producer = client.end(5, producer, true).1;
        }
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_offsets_when_committed_by_protocol_2_then_they_add_their_group_and_count_with_the_commit() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    let producer = blocking(move || {
        let mut client = Client::connect(address);
        let producer = client.init(TIMEOUT_MS);
        assert_eq!(client.commit_offset(3, producer, "a", 1), code(ResponseError::InvalidTxnState));
        assert_eq!(client.commit_offset(4, producer, "a", 1), code(ResponseError::TransactionAbortable));
        assert_eq!(client.commit_offset(5, producer, "a", 1), 0);
        assert_eq!(client.state(), "Ongoing");
        let next = client.end(5, producer, false).1;
        assert_eq!(client.commit_offset(5, next, "a", 1), 0);
        next
    })
    .await;
    let offsets = |broker: &Broker| broker.groups().into_iter().flat_map(|group| group.offsets).collect::<Vec<_>>();
    assert!(offsets(&broker).is_empty(), "one is aborted, the other open");
    let ended = blocking(move || Client::connect(address).end(5, producer, true)).await;
    assert_eq!(ended, (0, (producer.0, producer.1 + 1)));
    assert_eq!(offsets(&broker), vec![("a".to_owned(), 0, 1, 0)]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_transactions_asked_for_by_another_broker_when_verified_then_only_what_is_part_passes() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut client = Client::connect(address);
        let producer = client.init(TIMEOUT_MS);
        for (version, refused) in [(4, ResponseError::InvalidTxnState), (5, ResponseError::TransactionAbortable)] {
            assert_eq!(client.add_or_verify(version, producer, "b", true), code(refused), "version {version}");
        }
        let unknown = code(ResponseError::UnknownTopicOrPartition);
        assert_eq!(client.add_or_verify(5, producer, "absent", false), unknown);
        assert_eq!(client.state(), "Empty", "nothing has been added");
        assert_eq!(client.add_or_verify(5, producer, "b", false), 0);
        assert_eq!(client.add_or_verify(5, producer, "b", true), 0);
        let stranger = client.add_or_verify(5, (producer.0 + 1, 0), "b", true);
        assert_eq!(stranger, code(ResponseError::InvalidProducerIdMapping));
        let fenced = client.add_or_verify(5, (producer.0, producer.1 + 1), "b", true);
        assert_eq!(fenced, code(ResponseError::ProducerFenced));
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_transaction_begun_by_its_records_when_the_broker_starts_again_then_it_is_open_until_its_time_is_up() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    let begun = blocking(move || {
        let mut client = Client::connect(address);
        let producer = client.init(TIMEOUT_MS);
        assert_eq!(client.produce(12, producer, "a", 0, "kept").0, 0);
        producer
    })
    .await;
    broker.shutdown().await;
    let broker = start(&folder).await;
    let address = broker.local_addr();
    let next = blocking(move || {
        let mut client = Client::connect(address);
        assert_eq!(client.state(), "Ongoing");
        assert_eq!(client.produce(12, begun, "a", 1, "also kept").0, 0);
        let (error, next) = client.end(5, begun, true);
        assert_eq!(error, 0);
        // Another one, with little time.
        let short = client.init(300);
        assert_eq!(client.produce(12, short, "a", 0, "lost").0, 0);
        (next, short)
    })
    .await;
    assert_eq!(next.1, (next.0.0, next.0.1 + 1), "a successor of the same id");
    broker.shutdown().await;
    let broker = start(&folder).await;
    let address = broker.local_addr();
    eventually("the abort", || Client::connect(address).state() == "CompleteAbort").await;
    assert_eq!(committed(&broker).await[0], ["first", "kept", "also kept"]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_topic_ids_when_produced_to_then_known_ones_take_records() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut client = Client::connect(address);
        let asked = Asked::default().array(1).uuid([0; 16]).text("a").end().i8(0).i8(0).end();
        let mut answer = asked.ask(&mut client.0, ApiKey::Metadata, 13);
        answer.pass_cluster();
        assert_eq!((answer.array(), answer.i16(), answer.text().as_str()), (1, 0, "a"));
        let id = answer.uuid();
        assert_eq!(client.produce_by_id(id), (0, true));
        let mut unknown = id;
        unknown[15] ^= 1;
        assert_eq!(client.produce_by_id(unknown), (code(ResponseError::UnknownTopicId), true));
    })
    .await;
    assert_eq!(committed(&broker).await[0], ["first", "by id"]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_versions_when_asked_for_then_the_feature_says_which_protocol_is_spoken() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut client = Client::connect(address);
        for version in 3..=4 {
            let asked = Asked::default().text("test").text("1").end();
            let mut answer = asked.ask(&mut client.0, ApiKey::ApiVersions, version);
            assert_eq!(answer.i16(), 0);
            for _ in 0..answer.array() {
                answer.i16();
                answer.i16();
                answer.i16();
                answer.tagged();
            }
            answer.i32(); // throttle
            let mut tagged = answer.tagged();
            let numbers: Vec<usize> = tagged.iter().map(|(number, _)| *number).collect();
            let (supported, epoch, finalized) = (0, 1, 2);
            // Older clients cannot read that the lowest level is 0.
            let expected = if version >= 4 { vec![supported, epoch, finalized] } else { vec![epoch, finalized] };
            assert_eq!(numbers, expected, "version {version}");
            for (number, field) in &mut tagged {
                if *number == epoch {
                    assert!(field.i64() >= 0);
                    continue;
                }
                assert_eq!((field.array(), field.text().as_str()), (1, "transaction.version"));
                // Finalized features have the higher level first.
                let levels = (field.i16(), field.i16());
                assert_eq!(levels, if *number == supported { (0, 2) } else { (2, 2) });
            }
        }
    })
    .await;
    broker.shutdown().await;
}
