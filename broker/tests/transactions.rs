//! Transaction protocol 2 (KIP-890), which librdkafka does not speak: what the newest versions say of transactions, byte by byte.

#[path = "transactions/client.rs"]
mod client;
mod common;
#[path = "transactions/newest.rs"]
mod newest;
#[path = "transactions/offsets.rs"]
mod offsets;

use client::{Client, END, PRODUCE, TIMEOUT_MS, code};
use common::*;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;
use riverrun_broker::Broker;
use tempfile::TempDir;

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
