//! Every announced request in every announced version: generated from its shape, decoded, answered, encoded; and what
//! happens when the bytes are wrong.

mod common;

use std::net::TcpStream;

use common::wire::{Asked, produce_unasked};
use common::*;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;
use riverrun_broker::versions::{ANNOUNCED, is_flexible};
use riverrun_broker::wire::batch::{BatchHeader, build_batch};
use riverrun_broker::wire::shape::{Field, Kind, check};
use riverrun_broker::wire::shapes::shape_of;
use tempfile::TempDir;

/// A small pseudo-random generator (Knuth's MMIX multiplier), so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

struct Writer<'a> {
    dice: &'a mut Dice,
    version: i16,
    flexible: bool,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn structure(&mut self, fields: &[Field]) {
        for field in fields {
            if (field.min..=field.max).contains(&self.version) {
                self.value(&field.kind);
            }
        }
        if self.flexible {
            self.out.push(0);
        }
    }

    fn length(&mut self, width: usize, length: Option<usize>) {
        match (self.flexible, length) {
            (true, length) => {
                let mut value = length.map_or(0, |length| length + 1);
                while value >= 0x80 {
                    self.out.push(value as u8 | 0x80);
                    value >>= 7;
                }
                self.out.push(value as u8);
            }
            (false, None) => self.out.extend_from_slice(&[0xff; 4][..width]),
            (false, Some(length)) => self.out.extend_from_slice(&(length as u32).to_be_bytes()[4 - width..]),
        }
    }

    fn value(&mut self, kind: &Kind) {
        match kind {
            Kind::Fixed(1) => self.out.push(self.dice.pick(&[0, 1])),
            // Not 0, which is "no answer" in a produce request.
            Kind::Fixed(2) => {
                let value: i16 = self.dice.pick(&[-1, 1]);
                self.out.extend_from_slice(&value.to_be_bytes());
            }
            Kind::Fixed(4) => {
                let value: i32 = self.dice.pick(&[-1, 0, 1, 2, 100]);
                self.out.extend_from_slice(&value.to_be_bytes());
            }
            Kind::Fixed(8) => {
                let value: i64 = self.dice.pick(&[-5, -4, -3, -2, -1, 0, 1, 1000]);
                self.out.extend_from_slice(&value.to_be_bytes());
            }
            Kind::Fixed(size) => self.out.extend(std::iter::repeat_n(0, *size)),
            Kind::Text => self.text(false),
            Kind::NullableText => self.text(true),
            Kind::Blob => self.blob(false),
            Kind::NullableBlob => self.blob(true),
            Kind::Structs(fields) => self.array(false, |writer| writer.structure(fields)),
            Kind::NullableStructs(fields) => self.array(true, |writer| writer.structure(fields)),
            Kind::Values(kind) => self.array(false, |writer| writer.value(kind)),
            Kind::NullableValues(kind) => self.array(true, |writer| writer.value(kind)),
        }
    }

    fn text(&mut self, nullable: bool) {
        if nullable && self.dice.roll(3) == 0 {
            return self.length(2, None);
        }
        let text = match self.dice.roll(6) {
            0 => String::new(),
            1 => "t".into(),
            2 => "range".into(),
            3 => "retention.ms".into(),
            4 => "Stable".into(),
            _ => format!("n{}", self.dice.roll(500)),
        };
        self.length(2, Some(text.len()));
        self.out.extend_from_slice(text.as_bytes());
    }

    fn blob(&mut self, nullable: bool) {
        if nullable && self.dice.roll(5) == 0 {
            return self.length(4, None);
        }
        let blob = if self.dice.roll(3) == 0 { vec![7; self.dice.roll(90)] } else { batch() };
        self.length(4, Some(blob.len()));
        self.out.extend_from_slice(&blob);
    }

    fn array(&mut self, nullable: bool, mut element: impl FnMut(&mut Self)) {
        if nullable && self.dice.roll(4) == 0 {
            return self.length(4, None);
        }
        let count = self.dice.roll(3);
        self.length(4, Some(count));
        (0..count).for_each(|_| element(self));
    }
}

/// A batch of one record without key or value.
fn batch() -> Vec<u8> {
    let header = BatchHeader {
        base_offset: 0,
        size: 0,
        attributes: 0,
        last_offset_delta: 0,
        base_timestamp: 1_000,
        max_timestamp: 1_000,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records: 1,
    };
    build_batch(&header, &[12, 0, 0, 0, 1, 1, 0])
}

fn body(key: ApiKey, version: i16, dice: &mut Dice) -> Vec<u8> {
    let mut writer = Writer { dice, version, flexible: is_flexible(key, version), out: Vec::new() };
    writer.structure(shape_of(key));
    writer.out
}

fn frame(key: i16, version: i16, flexible: bool, correlation: i32, body: &[u8]) -> Vec<u8> {
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

fn api_versions(stream: &mut TcpStream) -> Option<Vec<u8>> {
    call(stream, &frame(ApiKey::ApiVersions as i16, 0, false, 77, &[]))
}

async fn broker(folder: &TempDir) -> riverrun_broker::Broker {
    let mut config = config(folder);
    config.min_session_timeout = std::time::Duration::from_millis(50);
    riverrun_broker::Broker::start(config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_every_announced_version_when_called_then_it_is_answered() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut dice = Dice(7);
        let mut stream = connect(address);
        let mut correlation = 0;
        for api in ANNOUNCED {
            for version in api.min..=api.max {
                for _ in 0..12 {
                    correlation += 1;
                    let body = body(api.key, version, &mut dice);
                    assert_eq!(check(api.key, version, &body), Ok(body.len()), "{:?} {version}", api.key);
                    let frame = frame(api.key as i16, version, is_flexible(api.key, version), correlation, &body);
                    let answer = call(&mut stream, &frame);
                    let answer = answer
                        .unwrap_or_else(|| panic!("{:?} version {version} is not answered: {body:02x?}", api.key));
                    assert_eq!(answer[..4], correlation.to_be_bytes(), "{:?} {version}", api.key);
                }
            }
        }
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_newer_client_when_it_asks_for_versions_then_it_is_told_ours_in_version_0() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut stream = connect(address);
        let answer = call(&mut stream, &frame(ApiKey::ApiVersions as i16, 99, false, 5, &[0, 0])).unwrap();
        assert_eq!(answer[..6], [0, 0, 0, 5, 0, 35]);
        let count = u32::from_be_bytes(answer[6..10].try_into().unwrap());
        assert_eq!(count as usize, ANNOUNCED.len());
        assert!(api_versions(&mut stream).is_some(), "the connection goes on");
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_wrong_bytes_when_sent_then_that_connection_ends_and_no_other() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    blocking(move || {
        let mut dice = Dice(11);
        let mut bystander = connect(address);
        let mut wrong: Vec<Vec<u8>> = vec![
            // Lengths of frames that cannot be.
            i32::MAX.to_be_bytes().to_vec(),
            (-1i32).to_be_bytes().to_vec(),
            // No header, an unknown request, an unannounced version.
            [&[0, 0, 0, 3][..], b"abc"].concat(),
            framed(frame(999, 0, false, 1, &[])),
            framed(frame(ApiKey::Fetch as i16, 99, true, 1, &[])),
            framed(frame(ApiKey::Vote as i16, 0, true, 1, &[])),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        ];
        for api in ANNOUNCED {
            // Arrays and texts that claim more than there is, and requests cut short.
            let flexible = is_flexible(api.key, api.max);
            let lie = if flexible { vec![0xff, 0xff, 0xff, 0xff, 0x07] } else { vec![0x7f; 64] };
            wrong.push(framed(frame(api.key as i16, api.max, flexible, 1, &lie)));
            let whole = body(api.key, api.max, &mut dice);
            let cut = framed(frame(api.key as i16, api.max, flexible, 1, &whole[..whole.len().saturating_sub(1)]));
            wrong.push(cut);
        }
        for bytes in wrong {
            let mut stream = connect(address);
            std::io::Write::write_all(&mut stream, &bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Answered or closed, but not left open.
            while read_frame(&mut stream).is_some() {}
            assert!(api_versions(&mut bystander).is_some(), "after {bytes:02x?}");
        }
        // Random damage to good requests.
        for _ in 0..2_000 {
            let api = ANNOUNCED[dice.roll(ANNOUNCED.len())];
            let version = api.min + dice.roll((api.max - api.min + 1) as usize) as i16;
            let mut bytes = body(api.key, version, &mut dice);
            for _ in 0..=dice.roll(3) {
                if !bytes.is_empty() {
                    let at = dice.roll(bytes.len());
                    bytes[at] ^= 1 << dice.roll(8);
                }
            }
            let _ = check(api.key, version, &bytes);
        }
        assert!(api_versions(&mut bystander).is_some());
    })
    .await;
    broker.shutdown().await;
}

fn framed(frame: Vec<u8>) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_too_many_connections_when_one_more_comes_then_it_is_closed_and_a_place_is_free_later() {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    config.max_connections = 3;
    let broker = riverrun_broker::Broker::start(config).await.unwrap();
    let address = broker.local_addr();
    blocking(move || {
        let mut held: Vec<TcpStream> = (0..3).map(|_| connect(address)).collect();
        held.iter_mut().for_each(|stream| assert!(api_versions(stream).is_some()));
        assert!(api_versions(&mut connect(address)).is_none());
        held.pop();
        let since = std::time::Instant::now();
        while api_versions(&mut connect(address)).is_none() {
            assert!(since.elapsed() < PATIENCE, "the place is free again");
        }
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_a_stalled_request_when_time_is_up_then_the_connection_is_closed() {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    config.stall_timeout = std::time::Duration::from_millis(100);
    let broker = riverrun_broker::Broker::start(config).await.unwrap();
    let address = broker.local_addr();
    blocking(move || {
        let mut stream = connect(address);
        std::io::Write::write_all(&mut stream, &[0, 0, 0, 50, 1]).unwrap();
        assert!(read_frame(&mut stream).is_none(), "closed without an answer");
    })
    .await;
    broker.shutdown().await;
}

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u16).to_be_bytes()[..], value.as_bytes()].concat()
}

/// `OffsetCommit` 2 of partition 0 from outside a group.
fn commit_offset(stream: &mut TcpStream, group: &str, topic: &str) {
    let one = 1i32.to_be_bytes();
    let head = [&text(group)[..], &(-1i32).to_be_bytes(), &text(""), &(-1i64).to_be_bytes()].concat();
    let item = [&0i32.to_be_bytes()[..], &7i64.to_be_bytes(), &(-1i16).to_be_bytes()].concat();
    let body = [&head[..], &one, &text(topic), &one, &item].concat();
    let answer = call(stream, &frame(ApiKey::OffsetCommit as i16, 2, false, 1, &body)).unwrap();
    assert_eq!(answer[answer.len() - 2..], [0, 0], "the offset is committed");
}

/// `OffsetDelete` 0 of one partition: the error of the whole, and that of the partition if there is an answer for it.
fn forget_offset(stream: &mut TcpStream, group: &str, topic: &str, partition: i32) -> (i16, Option<i16>) {
    let one = 1i32.to_be_bytes();
    let body = [&text(group)[..], &one, &text(topic), &one, &partition.to_be_bytes()].concat();
    let answer = call(stream, &frame(ApiKey::OffsetDelete as i16, 0, false, 1, &body)).unwrap();
    let error = i16::from_be_bytes([answer[4], answer[5]]);
    // Correlation id, error, throttle time and the number of topics are 14 bytes.
    let of_partition = answer.get(14..).and_then(|rest| rest.last_chunk::<2>()).map(|code| i16::from_be_bytes(*code));
    (error, of_partition)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_offsets_when_deleted_then_the_group_is_looked_at_before_the_partitions() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    send(&producer(address), "t", 0, "k", "v").await;
    blocking(move || {
        let mut stream = connect(address);
        for topic in ["t", "absent"] {
            let unknown = (ResponseError::GroupIdNotFound.code(), None);
            assert_eq!(forget_offset(&mut stream, "nobody", topic, 0), unknown, "{topic}");
            let nameless = (ResponseError::InvalidGroupId.code(), None);
            assert_eq!(forget_offset(&mut stream, "", topic, 0), nameless, "{topic}");
        }
        commit_offset(&mut stream, "g", "t");
        let absent = (0, Some(ResponseError::UnknownTopicOrPartition.code()));
        assert_eq!(forget_offset(&mut stream, "g", "absent", 0), absent);
        assert_eq!(forget_offset(&mut stream, "g", "t", 5), absent, "a partition that there is not");
        assert_eq!(forget_offset(&mut stream, "g", "t", 0), (0, Some(0)));
    })
    .await;
    broker.shutdown().await;
}

/// `OffsetCommit` of partition 0 in a version of flexible form, by a member: Kafka's code.
fn commit_as(stream: &mut TcpStream, version: i16, group: &str, member: &str, generation: i32) -> i16 {
    let asked = Asked::default().text(group).i32(generation).text(member).null().array(1).text("t").array(1);
    let asked = asked.i32(0).i64(7).i32(-1).null().end().end().end();
    let mut answer = asked.ask(stream, ApiKey::OffsetCommit, version);
    answer.i32(); // throttle
    assert_eq!((answer.array(), answer.text().as_str(), answer.array(), answer.i32()), (1, "t", 1, 0));
    answer.i16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn given_members_of_groups_that_are_not_known_when_they_ask_then_they_are_told_so_and_make_none() {
    let folder = TempDir::new().unwrap();
    let broker = broker(&folder).await;
    let address = broker.local_addr();
    send(&producer(address), "t", 0, "k", "v").await;
    blocking(move || {
        let mut stream = connect(address);
        let (unknown, absent) = (ResponseError::UnknownMemberId.code(), ResponseError::GroupIdNotFound.code());
        assert_eq!(commit_as(&mut stream, 8, "absent", "m", 1), ResponseError::IllegalGeneration.code());
        assert_eq!(commit_as(&mut stream, 9, "absent", "m", 1), absent);
        assert_eq!(commit_as(&mut stream, 9, "g", "m", -1), 0, "of no generation");
        assert_eq!(commit_as(&mut stream, 9, "g", "m", 1), unknown, "its offsets are known");
        let join = Asked::default().text("absent").i32(60_000).i32(60_000).text("m").null().text("consumer");
        let join = join.array(1).text("range").bytes(b"").end().null().end();
        let mut answer = join.ask(&mut stream, ApiKey::JoinGroup, 9);
        answer.i32(); // throttle
        assert_eq!(answer.i16(), unknown);
        let beat = Asked::default().text("").i32(1).text("m").null().end();
        let mut answer = beat.ask(&mut stream, ApiKey::Heartbeat, 4);
        answer.i32(); // throttle
        assert_eq!(answer.i16(), ResponseError::InvalidGroupId.code());
    })
    .await;
    assert!(broker.groups().iter().all(|group| group.id != "absent"), "who is no newcomer makes no group");
    broker.shutdown().await;
}

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
