//! Offsets that a transaction commits, and what others do to them before it ends.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::client::Producer;
use crate::common::faulty_disk::{FaultyDisk, Switches};
use crate::common::offsets::{commit_offset, delete_group, delete_topic, forget_offset, offset_of};

use super::*;

/// Topic, partition, offset and lag of all that the group `g` has committed.
fn committed_by_g(broker: &Broker) -> Vec<(String, i32, i64, i64)> {
    broker.groups().into_iter().filter(|group| group.id == "g").flat_map(|group| group.offsets).collect()
}

/// Commits as soon as the broker takes changes again.
#[expect(clippy::disallowed_methods, reason = "the client blocks a thread of its own, on which no runtime works")]
fn end_when_mended(client: &mut Client, producer: Producer) -> Producer {
    let since = Instant::now();
    loop {
        let (error, next) = client.end(5, producer, true);
        if error == 0 {
            return next;
        }
        assert_eq!(error, code(ResponseError::CoordinatorNotAvailable));
        assert!(since.elapsed() < PATIENCE, "the journal takes no changes");
        std::thread::sleep(Duration::from_millis(10));
    }
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
async fn given_offsets_of_a_transaction_that_were_refused_when_it_commits_then_only_those_that_were_taken_count() {
    let folder = TempDir::new().unwrap();
    let switches = Arc::new(Switches::default());
    let mut config = config(&folder).with_disk(Arc::new(FaultyDisk(switches.clone())));
    config.housekeeping_interval = PATIENCE;
    let broker = Broker::start(config).await.unwrap();
    let address = broker.local_addr();
    send(&producer(address), "a", 0, "k", "first").await;
    blocking(move || {
        let mut client = Client::connect(address);
        let mut producer = client.init(TIMEOUT_MS);
        let unstable = code(ResponseError::UnstableOffsetCommit);
        for (taken, held, committed) in [(None, (0, -1), -1), (Some(1), (unstable, -1), 1)] {
            if let Some(offset) = taken {
                assert_eq!(client.commit_offset(5, producer, "a", offset), 0);
            }
            switches.full.store(true, Ordering::SeqCst);
            let refused = client.commit_offset(5, producer, "a", 2);
            assert_eq!(refused, code(ResponseError::CoordinatorNotAvailable), "{taken:?}");
            assert_eq!(offset_of(&mut client.0, "g", "a"), held, "{taken:?}");
            switches.full.store(false, Ordering::SeqCst);
            producer = end_when_mended(&mut client, producer);
            assert_eq!(offset_of(&mut client.0, "g", "a"), (0, committed), "{taken:?}");
        }
    })
    .await;
    broker.shutdown().await;
}

/// A deletion, and Kafka's code that answers it.
type Deletion = fn(&mut TcpStream) -> i16;

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_offsets_of_a_transaction_when_they_or_their_group_or_topic_are_deleted_then_its_commit_brings_none() {
    let cases: [(&str, Deletion, [i64; 2]); 3] = [
        ("offset", |stream| forget_offset(stream, "g", "a", 0).1.unwrap(), [-1, 1]),
        ("group", |stream| delete_group(stream, "g"), [-1, -1]),
        ("topic", |stream| delete_topic(stream, "a"), [-1, 1]),
    ];
    for (what, delete, left) in cases {
        let folder = TempDir::new().unwrap();
        let broker = with_topics(&folder).await;
        let address = broker.local_addr();
        let begun = blocking(move || {
            let mut client = Client::connect(address);
            let begun = client.init(TIMEOUT_MS);
            for topic in ["a", "b"] {
                assert_eq!(client.commit_offset(5, begun, topic, 1), 0);
            }
            let unstable = (code(ResponseError::UnstableOffsetCommit), -1);
            assert_eq!(offset_of(&mut client.0, "g", "a"), unstable);
            assert_eq!(delete(&mut client.0), 0, "{what}");
            assert_eq!(offset_of(&mut client.0, "g", "a"), (0, -1), "{what}");
            begun
        })
        .await;
        // A topic that was deleted comes into being again.
        send(&producer(address), "a", 0, "k", "next").await;
        assert_eq!(blocking(move || Client::connect(address).end(5, begun, true)).await.0, 0, "{what}");
        let all = |address| ["a", "b"].map(|topic| offset_of(&mut connect(address), "g", topic));
        let expected = left.map(|offset| (0_i16, offset));
        assert_eq!(blocking(move || all(address)).await, expected, "{what}");
        broker.shutdown().await;
        let broker = start(&folder).await;
        let address = broker.local_addr();
        assert_eq!(blocking(move || all(address)).await, expected, "{what}, after a start");
        broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_group_of_which_there_is_what_a_transaction_holds_when_asked_for_then_it_is_there_until_the_abort() {
    let folder = TempDir::new().unwrap();
    let broker = with_topics(&folder).await;
    let address = broker.local_addr();
    let is_listed = |broker: &Broker| broker.groups().iter().any(|group| group.id == "g");
    let begun = blocking(move || {
        let mut client = Client::connect(address);
        let begun = client.init(TIMEOUT_MS);
        let absent = code(ResponseError::GroupIdNotFound);
        assert_eq!(forget_offset(&mut client.0, "g", "a", 0), (absent, None));
        assert_eq!(client.commit_offset(5, begun, "a", 1), 0);
        assert_eq!(forget_offset(&mut client.0, "g", "b", 0), (0, Some(0)), "there is none, but a group");
        begun
    })
    .await;
    assert!(is_listed(&broker));
    blocking(move || {
        let mut client = Client::connect(address);
        assert_eq!(client.end(5, begun, false).0, 0);
        assert_eq!(delete_group(&mut client.0, "g"), code(ResponseError::GroupIdNotFound));
    })
    .await;
    assert!(!is_listed(&broker));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_an_offset_that_has_had_its_time_when_a_transaction_is_to_replace_it_then_it_stays_until_that_has_ended()
{
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    config.offsets_retention = Duration::ZERO;
    config.housekeeping_interval = Duration::from_millis(10);
    let broker = Broker::start(config).await.unwrap();
    let address = broker.local_addr();
    send(&producer(address), "a", 0, "k", "first").await;
    let begun = blocking(move || {
        let mut client = Client::connect(address);
        let begun = client.init(TIMEOUT_MS);
        assert_eq!(client.commit_offset(5, begun, "a", 2), 0);
        for group in ["g", "later"] {
            assert_eq!(commit_offset(&mut client.0, group, "a", 1), 0);
        }
        begun
    })
    .await;
    eventually("the later one goes", || offset_of(&mut connect(address), "later", "a") == (0, -1)).await;
    assert_eq!(committed_by_g(&broker), [("a".to_owned(), 0, 1, 0)]);
    assert_eq!(blocking(move || Client::connect(address).end(5, begun, false)).await.0, 0);
    eventually("the other one goes, too", || committed_by_g(&broker).is_empty()).await;
    broker.shutdown().await;
}
