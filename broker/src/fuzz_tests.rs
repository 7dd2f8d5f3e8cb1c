//! Changed requests, batches and segment files. `fuzz/README.md` says how to try more of them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use tempfile::TempDir;

use crate::fuzz::{Target, run};
use crate::handlers::{Context, begin};
use crate::pace::Pace;
use crate::security::authentication::Authentication;
use crate::storage::disk::{Disk, RealDisk};
use crate::storage::recovery::{Recovered, recover};
use crate::storage::segment::Segment;
use crate::versions::{ANNOUNCED, is_flexible};
use crate::wire::batch::{BatchHeader, Marker, build_batch, marker_batch, marker_of, records};
use crate::wire::compression::{recompressed, uncompressed};
use crate::wire::outline::outline;
use crate::wire::shape::{Field, Kind};
use crate::wire::shapes::shape_of;
use crate::{Broker, BrokerConfig};

/// How long an answer is waited for: some are held back on purpose, and their clients go.
const PATIENCE: Duration = Duration::from_millis(5);

/// A record without key or value.
const RECORD: [u8; 7] = [12, 0, 0, 0, 1, 1, 0];

fn batch(base_offset: i64, attributes: i16, count: i32) -> Vec<u8> {
    let (attributes, body) = recompressed(attributes, RECORD.repeat(count as usize));
    let header = BatchHeader {
        base_offset,
        size: 0,
        attributes,
        last_offset_delta: count - 1,
        base_timestamp: 1_000,
        max_timestamp: 1_000,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records: count,
    };
    build_batch(&header, &body)
}

/// Writes a request that has one of everything.
struct Writer {
    version: i16,
    flexible: bool,
    out: Vec<u8>,
}

impl Writer {
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

    fn length(&mut self, width: usize, length: usize) {
        if self.flexible {
            // All of them are short enough for one byte.
            self.out.push(length as u8 + 1);
        } else {
            self.out.extend_from_slice(&(length as u32).to_be_bytes()[4 - width..]);
        }
    }

    fn value(&mut self, kind: &Kind) {
        match kind {
            Kind::Fixed(size) => self.out.extend(std::iter::repeat_n(0, *size)),
            Kind::Text | Kind::NullableText => {
                self.length(2, 1);
                self.out.push(b't');
            }
            Kind::Blob | Kind::NullableBlob => {
                let batch = batch(0, 0, 1);
                self.length(4, batch.len());
                self.out.extend_from_slice(&batch);
            }
            Kind::Structs(fields) | Kind::NullableStructs(fields) => {
                self.length(4, 1);
                self.structure(fields);
            }
            Kind::Values(kind) | Kind::NullableValues(kind) => {
                self.length(4, 1);
                self.value(kind);
            }
        }
    }
}

fn frame(key: ApiKey, version: i16) -> Vec<u8> {
    let flexible = is_flexible(key, version);
    let mut out = Vec::new();
    out.extend_from_slice(&(key as i16).to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 1, 0, 1, b'f']);
    if flexible {
        out.push(0);
    }
    let mut writer = Writer { version, flexible, out };
    writer.structure(shape_of(key));
    writer.out
}

/// Every announced request in its oldest and newest version.
fn frames() -> Vec<Vec<u8>> {
    ANNOUNCED.iter().flat_map(|api| [frame(api.key, api.min), frame(api.key, api.max)]).collect()
}

#[test]
fn broker_frames_end_in_an_answer_or_a_refusal() {
    let folder = TempDir::new().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut config = BrokerConfig::new(folder.path()).listen(SocketAddr::from(([127, 0, 0, 1], 0)));
    // What changed names and counts make stays small.
    config.auto_create_topics = false;
    config.max_partitions = 64;
    let broker = runtime.block_on(Broker::start(config)).unwrap();
    let address = broker.local_addr();
    let context = Context {
        node: broker.node.clone(),
        client_id: String::new(),
        peer: address,
        local: address,
        advertised: None,
        pace: Pace::default(),
        attendance: Arc::default(),
    };
    let ask = |bytes: &[u8], patience: Duration| {
        let frame = Bytes::copy_from_slice(bytes);
        let mut authentication = Authentication::new(None, true);
        runtime.block_on(async {
            let Ok(answer) = begin(&context, &mut authentication, frame).await else { return None };
            tokio::time::timeout(patience, answer).await.ok()?.ok()?
        })
    };
    let corpus = frames();
    let target = Target { name: "broker_frames", corpus: &corpus, words: &["t", "range", "Stable"], inputs: 3_000 };
    run(&target, |bytes| {
        if let Some(answer) = ask(bytes, PATIENCE) {
            let length = u32::from_be_bytes(answer[..4].try_into().unwrap());
            assert_eq!(length as usize, answer.len() - 4, "the length in front of an answer");
        }
    });
    // The broker goes on.
    assert!(ask(&frame(ApiKey::ApiVersions, 0), Duration::from_secs(60)).is_some());
    drop(context);
    runtime.block_on(broker.shutdown());
}

#[test]
fn broker_records_are_read_or_refused() {
    let codecs = 0..=4;
    let mut corpus: Vec<Vec<u8>> = codecs.map(|codec| batch(7, codec, 60)).collect();
    corpus.push(marker_batch(Marker::Abort, 3, 1, 1_000));
    let target = Target { name: "broker_records", corpus: &corpus, words: &[], inputs: 5_000 };
    run(&target, |bytes| {
        let _ = BatchHeader::parse_checked(bytes);
        let Ok(header) = BatchHeader::parse(bytes) else { return };
        let _ = marker_of(&header, &Bytes::copy_from_slice(bytes));
        let _ = outline(&header, bytes, |_, _| {});
        if let Some((plain, body)) = uncompressed(&header, bytes) {
            let _ = records(&plain, &body).count();
        }
    });
}

fn recovered(folder: &Path) -> Recovered {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    recover(&disk, folder).unwrap()
}

#[test]
fn broker_segments_come_to_the_same_end_twice() {
    let batches: Vec<Vec<u8>> = (0..6).map(|at| batch(at * 5, 0, 5)).collect();
    let mut odd = batches.clone();
    odd.insert(3, marker_batch(Marker::Commit, 3, 1, 1_000));
    let corpus = [batches.concat(), odd.concat(), batches[..1].concat(), Vec::new()];
    let target = Target { name: "broker_segments", corpus: &corpus, words: &[], inputs: 500 };
    run(&target, |bytes| {
        let folder = TempDir::new().unwrap();
        std::fs::write(&Segment::new(folder.path(), 0, 0).path, bytes).unwrap();
        let first = recovered(folder.path());
        let again = recovered(folder.path());
        assert_eq!((first.end_offset, first.corrupt), (again.end_offset, again.corrupt));
    });
}
