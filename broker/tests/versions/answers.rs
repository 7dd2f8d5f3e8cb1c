//! What stock clients do not ask, or not in the newest versions, answered byte by byte.

use crate::common::wire::produce_unasked;

use super::*;

/// A setting as it is described.
struct Described {
    name: String,
    value: String,
    /// Name and source of each.
    synonyms: Vec<(String, i8)>,
    documentation: String,
}

/// `DescribeConfigs` 4 of these settings of a resource, none for all: Kafka's code and what it says.
fn describe(stream: &mut TcpStream, kind: i8, name: &str, keys: &[&str], documented: bool) -> (i16, Vec<Described>) {
    let asked = Asked::default().array(1).i8(kind).text(name).array(keys.len());
    let asked = keys.iter().fold(asked, |asked, key| asked.text(key)).end().i8(1).i8(i8::from(documented)).end();
    let mut answer = asked.ask(stream, ApiKey::DescribeConfigs, 4);
    answer.i32(); // throttle
    assert_eq!(answer.array(), 1);
    let error = answer.i16();
    answer.text(); // message
    assert_eq!((answer.i8(), answer.text().as_str()), (kind, name));
    let count = answer.array();
    let described = (0..count).map(|_| {
        let (name, value) = (answer.text(), answer.text());
        answer.i8(); // read only
        answer.i8(); // source
        answer.i8(); // sensitive
        let count = answer.array();
        let synonyms = (0..count).map(|_| {
            let (name, _, source) = (answer.text(), answer.text(), answer.i8());
            answer.tagged();
            (name, source)
        });
        let synonyms = synonyms.collect();
        answer.i8(); // type
        let documentation = answer.text();
        answer.tagged();
        Described { name, value, synonyms, documentation }
    });
    (error, described.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_settings_when_described_then_they_have_their_words_and_where_their_values_come_from() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    send(&producer(address), "t", 0, "k", "v").await;
    blocking(move || {
        let (topic, node) = (2, 4);
        let mut stream = connect(address);
        let (error, all) = describe(&mut stream, topic, "t", &[], true);
        assert!(error == 0 && all.len() > 20, "no names are all of them");
        assert!(all.iter().all(|one| one.documentation.ends_with('.')));
        let (_, some) = describe(&mut stream, topic, "t", &["segment.bytes", "retention.ms"], false);
        let known_as = |name: &str| some.iter().find(|one| one.name == name).unwrap().synonyms.clone();
        assert_eq!(
            (known_as("segment.bytes"), known_as("retention.ms")),
            (vec![("log.segment.bytes".into(), 5)], vec![])
        );
        assert!(some.len() == 2 && some.iter().all(|one| one.documentation.is_empty()), "nobody asked for words");
        let (_, own) = describe(&mut stream, node, "1", &["group.min.session.timeout.ms"], true);
        assert!(own.len() == 1 && own[0].value == "50" && own[0].documentation.ends_with('.'));
        assert_eq!(describe(&mut stream, node, "", &[], true).1.len(), 0, "nothing was changed for all nodes");
        let (invalid, _) = describe(&mut stream, topic, "a/b", &[], true);
        assert_eq!(invalid, ResponseError::InvalidTopicException.code());
    })
    .await;
    broker.shutdown().await;
}

/// `ListOffsets` of partition 0 in a version of flexible form: error, time, offset, leader epoch.
fn offset_at(stream: &mut TcpStream, version: i16, topic: &str, timestamp: i64) -> (i16, i64, i64, i32) {
    let one = Asked::default().i32(-1).i8(0).array(1).text(topic).array(1).i32(0).i32(-1).i64(timestamp).end().end();
    let body = if version >= 10 { one.i32(1_000) } else { one };
    let mut answer = body.end().ask(stream, ApiKey::ListOffsets, version);
    answer.i32(); // throttle
    assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, topic, 1, 0));
    (answer.i16(), answer.i64(), answer.i64(), answer.i32())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_tiers_of_storage_that_are_not_here_when_asked_for_then_all_is_local_and_nothing_tiered() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    send(&producer(address), "t", 0, "k", "v").await;
    blocking(move || {
        let mut stream = connect(address);
        let (earliest_local, latest_tiered) = (-4, -5);
        for version in 8..=10 {
            assert_eq!(offset_at(&mut stream, version, "t", earliest_local), (0, -1, 0, 0), "{version}");
        }
        for version in 9..=10 {
            assert_eq!(offset_at(&mut stream, version, "t", latest_tiered), (0, -1, -1, -1), "{version}");
        }
        let unsupported = (ResponseError::UnsupportedVersion.code(), -1, -1, -1);
        assert_eq!(offset_at(&mut stream, 8, "t", latest_tiered), unsupported);
        assert_eq!(offset_at(&mut stream, 10, "t", latest_tiered - 1), unsupported);
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_the_newest_metadata_when_asked_for_then_it_ends_with_an_error_of_the_whole() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut stream = connect(address);
        let mut answer = Asked::default().array(0).i8(0).i8(0).end().ask(&mut stream, ApiKey::Metadata, 13);
        answer.pass_cluster();
        assert_eq!(answer.array(), 0, "no topic was asked for");
        assert_eq!(answer.i16(), 0, "the error of the whole");
        answer.tagged();
        assert!(answer.is_at_end());
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_records_of_which_no_acknowledgement_is_wanted_when_refused_then_the_connection_ends_and_else_goes_on() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    send(&producer(address), "t", 0, "k", "v").await;
    blocking(move || {
        let mut stream = connect(address);
        produce_unasked(&mut stream, "t", 0);
        assert!(api_versions(&mut stream).is_some(), "what was taken is not answered");
        produce_unasked(&mut stream, "t", 5);
        assert!(read_frame(&mut stream).is_none(), "a partition that there is not");
    })
    .await;
    eventually("the one that was taken is there", || broker.topics()[0].partitions[0].end_offset == 2).await;
    broker.shutdown().await;
}

/// `DescribeCluster` 2 for endpoints of a type: the error, and whether there is a message with it.
fn describe_cluster(stream: &mut TcpStream, endpoint_type: i8) -> (i16, bool) {
    let asked = Asked::default().i8(0).i8(endpoint_type).i8(0).end();
    let mut answer = asked.ask(stream, ApiKey::DescribeCluster, 2);
    answer.i32(); // throttle
    (answer.i16(), answer.array() > 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_endpoints_of_every_type_when_the_cluster_is_described_then_only_brokers_are_here() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut stream = connect(address);
        assert_eq!(describe_cluster(&mut stream, 1), (0, false));
        assert_eq!(describe_cluster(&mut stream, 2), (ResponseError::MismatchedEndpointType.code(), true));
        assert_eq!(describe_cluster(&mut stream, 3), (ResponseError::UnsupportedEndpointType.code(), true));
    })
    .await;
    broker.shutdown().await;
}

/// `OffsetForLeaderEpoch` 4 of a consumer for one partition: error, epoch, end.
fn epoch_end(stream: &mut TcpStream, topic: &str, current: i32, epoch: i32) -> (i16, i32, i64) {
    let one = Asked::default().i32(-1).array(1).text(topic).array(1).i32(0).i32(current).i32(epoch).end().end();
    let mut answer = one.end().ask(stream, ApiKey::OffsetForLeaderEpoch, 4);
    answer.i32(); // throttle
    assert_eq!((answer.array(), answer.text().as_str(), answer.array()), (1, topic, 1));
    let error = answer.i16();
    assert_eq!(answer.i32(), 0, "the partition");
    (error, answer.i32(), answer.i64())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_log_of_one_epoch_when_its_end_is_asked_for_then_only_that_epoch_has_one() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    for value in ["one", "two"] {
        send(&producer(address), "t", 0, "k", value).await;
    }
    blocking(move || {
        let mut stream = connect(address);
        let nothing = |error: ResponseError| (error.code(), -1, -1);
        for current in [-1, 0] {
            assert_eq!(epoch_end(&mut stream, "t", current, 0), (0, 0, 2), "{current}");
            assert_eq!(epoch_end(&mut stream, "t", current, 1), (0, -1, -1), "{current}");
        }
        assert_eq!(epoch_end(&mut stream, "t", 1, 0), nothing(ResponseError::UnknownLeaderEpoch));
        assert_eq!(epoch_end(&mut stream, "absent", -1, 0), nothing(ResponseError::UnknownTopicOrPartition));
    })
    .await;
    broker.shutdown().await;
}
