use super::*;
use crate::wire::batch::{Marker, build_batch, marker_batch, records};
use crate::wire::compression::recompressed;

/// A number of one or two bytes as records have it.
fn zigzag(value: i64) -> Vec<u8> {
    let value = ((value << 1) ^ (value >> 63)) as u64;
    if value < 0x80 { vec![value as u8] } else { vec![value as u8 | 0x80, (value >> 7) as u8] }
}

/// A record without a value, with one header: its offset, its time after that of the batch, its key.
fn record(offset: i64, later: i64, key: Option<&[u8]>) -> Vec<u8> {
    let key = key.map_or_else(|| zigzag(-1), |key| [zigzag(key.len() as i64), key.to_vec()].concat());
    let body = [vec![0], zigzag(later), zigzag(offset), key, zigzag(-1), vec![2, 2, b'h', 1]].concat();
    [zigzag(body.len() as i64), body].concat()
}

fn batch(codec: i16, count: i32, body: Vec<u8>) -> (BatchHeader, Vec<u8>) {
    let (attributes, body) = recompressed(codec, body);
    let header = BatchHeader {
        base_offset: 0,
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
    let bytes = build_batch(&header, &body);
    (BatchHeader::parse_checked(&bytes).unwrap(), bytes)
}

fn outlined((header, bytes): &(BatchHeader, Vec<u8>)) -> Result<Vec<Outline>, OutlineError> {
    let mut found = Vec::new();
    outline(header, bytes, |index, record| {
        assert_eq!(index as usize, found.len());
        found.push(record);
    })?;
    Ok(found)
}

#[test]
fn given_records_in_any_compression_when_walked_over_then_each_is_seen_with_its_time_and_key() {
    let body: Vec<u8> = (0..60).flat_map(|at| record(at, at - 5, (at % 2 == 0).then_some(&b"a key"[..]))).collect();
    for codec in 0..=4 {
        let batch = batch(codec, 60, body.clone());
        assert_eq!(batch.0.is_compressed(), codec > 0);
        let expected = (0..60).map(|at| Outline { timestamp: 995 + at, has_key: at % 2 == 0 });
        assert_eq!(outlined(&batch), Ok(expected.collect()), "codec {codec}");
    }
}

#[test]
fn given_a_marker_when_walked_over_then_it_is_a_record() {
    let bytes = marker_batch(Marker::Commit, 7, 3, 5);
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!(outlined(&(header, bytes)), Ok(vec![Outline { timestamp: 5, has_key: true }]));
}

#[test]
fn given_records_that_are_not_what_the_header_says_when_walked_over_then_the_reason_is_told() {
    let (first, second) = (record(0, 0, None), record(1, 0, None));
    let both = [&first[..], &second].concat();
    for codec in [0, 2] {
        // Something that repeats, so that compression is a gain.
        let long = |body: &[u8]| [body, &record(2, 0, Some(&[b'k'; 63]))[..]].concat();
        let told = |count, body: &[u8]| outlined(&batch(codec, count, long(body))).unwrap_err();
        assert_eq!(told(2, &both), OutlineError::Surplus);
        assert_eq!(told(4, &both), OutlineError::Ends(3));
        assert_eq!(told(3, &[&second[..], &first].concat()), OutlineError::Offset(0));
        assert_eq!(told(3, &[&first[..], &first].concat()), OutlineError::Offset(1));
    }
    let (header, bytes) = batch(0, 2, both.clone());
    assert_eq!(outlined(&(BatchHeader { size: 9_999, ..header }, bytes.clone())), Err(OutlineError::Ends(0)));
    // Codecs that do not exist, and bytes that are none of one that does.
    for codec in 1..=7 {
        let stated = BatchHeader { attributes: codec, ..header };
        assert_eq!(outlined(&(stated, bytes.clone())), Err(OutlineError::Unreadable), "codec {codec}");
    }
}

#[test]
fn given_lengths_beyond_what_they_lie_in_when_walked_over_then_the_record_is_refused() {
    let told = |body: &[u8]| outlined(&batch(0, 1, body.to_vec())).unwrap_err();
    // The record is longer than the batch.
    assert_eq!(told(&[100, 0, 0, 0, 1, 1, 0]), OutlineError::TooLong(0));
    // A record ends before its parts do, or has bytes behind them.
    assert_eq!(told(&[10, 0, 0, 0, 1, 1, 0]), OutlineError::Malformed(0));
    assert_eq!(told(&[14, 0, 0, 0, 1, 1, 0, 0]), OutlineError::Malformed(0));
    // A key, a value, headers and the key of one that are longer than the record; lengths below null.
    for (at, value) in [(4, 20), (5, 20), (6, 20), (4, 3), (5, 3), (6, 1)] {
        let mut body = vec![12, 0, 0, 0, 1, 1, 0];
        body[at] = value;
        assert_eq!(told(&body), OutlineError::Malformed(0), "{body:?}");
    }
    // A header without a key.
    assert_eq!(told(&[16, 0, 0, 0, 1, 1, 2, 1, 1]), OutlineError::Malformed(0));
    // A number that does not end.
    assert_eq!(told(&[0xff; 12]), OutlineError::Malformed(0));
}

#[test]
fn given_a_small_batch_of_very_many_bytes_when_walked_over_then_it_ends_at_the_bound() {
    // One record with a value of zeros.
    let value = MAX_PLAIN as u64;
    let number = |value: u64| {
        let (mut out, mut value) = (Vec::new(), value << 1);
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    };
    let parts = [&[0u8, 0, 0, 1][..], &number(value)].concat();
    let head = [number(parts.len() as u64 + value + 1), parts].concat();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let mut bytes = std::io::Read::chain(&head[..], std::io::Read::take(std::io::repeat(0), value + 1));
    std::io::copy(&mut bytes, &mut encoder).unwrap();
    let body = encoder.finish().unwrap();
    let (header, _) = batch(0, 1, record(0, 0, None));
    let bytes = build_batch(&BatchHeader { attributes: 4, ..header }, &body);
    let header = BatchHeader::parse(&bytes).unwrap();
    assert!(bytes.len() < 1 << 20);
    assert_eq!(outlined(&(header, bytes)), Err(OutlineError::TooLong(0)));
}

proptest::proptest! {
    #[test]
    fn given_any_bytes_when_walked_over_then_nothing_panics_and_what_passes_reads_the_same(
        codec in 0i16..8,
        count in 0i32..20,
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
    ) {
        let (header, plain) = batch(0, count.max(1), bytes);
        let _ = outlined(&(BatchHeader { attributes: codec, ..header }, plain.clone()));
        if let Ok(found) = outlined(&(header, plain.clone())) {
            let read: Vec<i64> = records(&header, &plain).map(|record| record.unwrap().timestamp).collect();
            proptest::prop_assert_eq!(found.iter().map(|record| record.timestamp).collect::<Vec<_>>(), read);
        }
    }
}
