//! Compaction and what it says to readers, over a log in a folder.

use std::sync::Arc;

use bytes::BytesMut;
use tempfile::TempDir;

use super::compaction::Compactor;
use super::partition::Partition;
use super::producers::Aborted;
use super::read::{Read, ReadLimit};
use super::recovery::{Recovered, recover};
use super::test_log::{PRODUCER, append, disk, folder, open};
use crate::clock::now_ms;
use crate::wire::batch::{BatchHeader, Marker, marker_batch};

const COMMITTED: ReadLimit = ReadLimit { max_bytes: 1 << 20, at_least_one: true, committed_only: true };

/// A compacted partition of which every batch gets a segment of its own.
fn compacted(place: &TempDir, recovered: Recovered) -> Arc<Partition> {
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "100"),
        ("delete.retention.ms", "0"),
        ("min.cleanable.dirty.ratio", "0.01"),
    ];
    open(place, recovered, &settings)
}

fn end(partition: &Arc<Partition>, marker: Marker) {
    let bytes = marker_batch(marker, PRODUCER, 0, 1_000);
    let header = BatchHeader::parse_checked(&bytes).unwrap();
    partition.append_marker(header, marker, BytesMut::from(&bytes[..])).unwrap();
    partition.flush();
}

/// Every tombstone and marker is old enough to go.
fn compact(partition: &Partition) {
    Compactor::default().run(partition, now_ms() + 1_000);
}

/// What a reader of committed records is told from the beginning on, by the files.
fn told(partition: &Partition) -> Vec<Aborted> {
    partition.read_files(0, partition.bounds().last_stable, COMMITTED).unwrap().1
}

#[test]
fn given_an_aborted_transaction_when_its_records_and_its_marker_are_compacted_away_then_no_reader_is_told_of_it() {
    let place = TempDir::new().unwrap();
    let partition = compacted(&place, Recovered::default());
    append(&partition, b'a', Some(0));
    end(&partition, Marker::Abort);
    append(&partition, b'b', Some(1));
    end(&partition, Marker::Commit);
    append(&partition, b'c', None);
    let aborted = Aborted { producer_id: PRODUCER, first_offset: 0, last_offset: 1 };
    assert_eq!(told(&partition), [aborted]);
    let Read::Memory(_, _, of_memory) = partition.read(0, COMMITTED).unwrap() else { panic!("not in memory") };
    assert_eq!(of_memory, [aborted]);
    compact(&partition);
    assert!(told(&partition).is_empty(), "it would hide the committed record behind it");
    // The checkpoints of later segments were written when it was still there.
    let recovered = recover(&disk(), &folder(&place)).unwrap();
    assert_eq!((recovered.end_offset, recovered.corrupt.clone()), (5, None));
    assert!(told(&compacted(&place, recovered)).is_empty());
}

#[test]
fn given_many_aborted_transactions_when_compacted_then_only_those_with_records_are_remembered() {
    let place = TempDir::new().unwrap();
    let partition = compacted(&place, Recovered::default());
    for sequence in 0..50 {
        append(&partition, b'a', Some(sequence));
        end(&partition, Marker::Abort);
    }
    assert_eq!(told(&partition).len(), 50);
    compact(&partition);
    // The marker of the last one is in the open segment, which is not compacted.
    let last = Aborted { producer_id: PRODUCER, first_offset: 98, last_offset: 99 };
    assert_eq!(told(&partition), [last]);
    append(&partition, b'b', None);
    compact(&partition);
    assert!(told(&partition).is_empty());
    assert_eq!(partition.bounds().high_watermark, 101);
}

/// A compacted partition whose log is never new enough by its share alone, once it has been compacted.
fn rarely_compacted(place: &TempDir) -> Arc<Partition> {
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "100"),
        ("min.cleanable.dirty.ratio", "1"),
        ("max.compaction.lag.ms", "600000"),
    ];
    let partition = open(place, Recovered::default(), &settings);
    for key in *b"abcd" {
        append(&partition, key, None);
    }
    partition
}

#[test]
fn given_little_that_is_new_when_it_may_not_wait_any_longer_then_it_is_compacted_all_the_same() {
    let place = TempDir::new().unwrap();
    let partition = rarely_compacted(&place);
    let compactor = Compactor::default();
    compactor.run(&partition, now_ms());
    for key in *b"ae" {
        append(&partition, key, None);
    }
    let before = partition.stats().size_bytes;
    compactor.run(&partition, now_ms());
    assert_eq!(partition.stats().size_bytes, before, "there is time");
    compactor.run(&partition, now_ms() + 601_000);
    assert_eq!(partition.stats().size_bytes, before / 6 * 5, "the first record of the key that came again is gone");
}

#[test]
fn given_damage_that_compaction_meets_when_it_has_passed_then_it_is_told_and_tried_again_a_minute_later() {
    let place = TempDir::new().unwrap();
    let partition = rarely_compacted(&place);
    append(&partition, b'a', None);
    append(&partition, b'e', None);
    let before = partition.stats().size_bytes;
    let file = folder(&place).join("00000000000000000001-0.log");
    let sound = std::fs::read(&file).unwrap();
    let mut damaged = sound.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let (compactor, now) = (Compactor::default(), now_ms());
    compactor.run(&partition, now);
    let told = partition.error().expect("it is told");
    assert!(told.contains("offset 1") && told.contains("00000000000000000001-0.log"), "{told}");
    std::fs::write(&file, sound).unwrap();
    compactor.run(&partition, now + 59_000);
    assert_eq!(partition.stats().size_bytes, before, "it is left alone for a minute");
    compactor.run(&partition, now + 61_000);
    assert_eq!(partition.stats().size_bytes, before / 6 * 5);
    compactor.keep_only(&std::collections::HashSet::new());
}

/// The offsets of the batches of each segment by the name of its file, all of them with good checksums.
fn batches(place: &TempDir) -> Vec<(String, Vec<i64>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder(place)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(!name.ends_with("log.tmp"), "{name} is left");
        if name.ends_with(".log") {
            let bytes = std::fs::read(&path).unwrap();
            let (mut at, mut offsets) = (0, Vec::new());
            while at < bytes.len() {
                let header = BatchHeader::parse_checked(&bytes[at..]).unwrap();
                offsets.push(header.base_offset);
                at += header.size;
            }
            found.push((name, offsets));
        }
    }
    found.sort();
    found
}

/// A compacted partition with segments of this size and a record of each of these keys.
fn written(place: &TempDir, segment_bytes: &str, keys: &[u8]) -> Arc<Partition> {
    let settings =
        [("cleanup.policy", "compact"), ("segment.bytes", segment_bytes), ("min.cleanable.dirty.ratio", "0.01")];
    let partition = open(place, Recovered::default(), &settings);
    keys.iter().for_each(|key| append(&partition, *key, None));
    partition
}

#[test]
fn given_more_keys_than_a_pass_remembers_when_compacted_again_then_each_pass_goes_on_where_the_last_one_ended() {
    let place = TempDir::new().unwrap();
    let partition = written(&place, "100", b"abcdabcdx");
    let compactor = Compactor::remembering(2);
    let left = || batches(&place).into_iter().flat_map(|(_, offsets)| offsets).collect::<Vec<_>>();
    for expected in
        [&[0, 1, 2, 3, 4, 5, 6, 7, 8][..], &[0, 1, 2, 3, 4, 5, 6, 7, 8], &[2, 3, 4, 5, 6, 7, 8], &[4, 5, 6, 7, 8]]
    {
        compactor.run(&partition, now_ms());
        assert_eq!(left(), expected);
    }
}

#[test]
fn given_a_segment_with_more_keys_than_a_pass_remembers_when_compacted_again_then_it_is_gone_through_in_parts() {
    let place = TempDir::new().unwrap();
    let partition = written(&place, "300", b"ababc");
    let compactor = Compactor::remembering(1);
    for expected in [&[0, 1, 2, 3][..], &[0, 1, 2, 3], &[1, 2, 3], &[2, 3]] {
        compactor.run(&partition, now_ms());
        assert_eq!(batches(&place)[0].1, expected);
    }
}

#[test]
fn given_a_segment_that_does_not_fit_behind_its_neighbour_when_compacted_then_what_stays_whole_is_not_written() {
    let place = TempDir::new().unwrap();
    let partition = written(&place, "300", b"abcdaefghi");
    compact(&partition);
    let first = ("00000000000000000000-1.log".to_owned(), vec![1, 2, 3]);
    let second = ("00000000000000000004-0.log".to_owned(), vec![4, 5, 6, 7]);
    let newest = ("00000000000000000008-0.log".to_owned(), vec![8, 9]);
    assert_eq!(batches(&place), [first, second, newest]);
    let recovered = recover(&disk(), &folder(&place)).unwrap();
    assert_eq!((recovered.end_offset, recovered.corrupt), (10, None));
    b"efbcgzk".iter().for_each(|key| append(&partition, *key, None));
    compact(&partition);
    let merged = ("00000000000000000000-2.log".to_owned(), vec![3, 4]);
    assert_eq!(batches(&place)[0], merged, "of both little is left");
}
