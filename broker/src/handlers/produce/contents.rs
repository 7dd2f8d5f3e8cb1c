//! The records of a produced batch, which are looked at one by one as Apache Kafka does.

use bytes::Bytes;
use kafka_protocol::ResponseError;

use super::{Rejected, check_size};
use crate::clock::now_ms;
use crate::node::Refusal;
use crate::topic_config::TopicConfig;
use crate::wire::batch::{BatchHeader, set_max_timestamp};
use crate::wire::compression::with_codec;
use crate::wire::outline::outline;

/// Most records of a batch that are named as those to blame; whoever is not named was refused because of the others.
const MAX_BLAMED: usize = 1_000;

/// Whether looking at the records takes more than a walk over the bytes that have come.
pub(super) fn takes_long(config: &TopicConfig, header: &BatchHeader) -> bool {
    header.is_compressed() || config.codec.is_some()
}

/// The batch as it is stored, if its records may be.
pub(super) fn examined(
    config: &TopicConfig,
    header: BatchHeader,
    batch: Bytes,
) -> Result<(BatchHeader, Bytes), Rejected> {
    examined_at(config, header, batch, now_ms())
}

fn examined_at(
    config: &TopicConfig,
    header: BatchHeader,
    batch: Bytes,
    now_ms: i64,
) -> Result<(BatchHeader, Bytes), Rejected> {
    let newest = check_records(config, &header, &batch, now_ms)?;
    let (header, batch) = with_greatest_time(header, batch, newest);
    Ok(in_codec_of(config, header, batch)?)
}

/// Walks over the records. They must be those that the header counts, at its offsets; have a key where the topic is compacted,
/// since nothing could ever replace a record without one; and have times within the topic's bounds around `now_ms`, unless it
/// stamps them anew. Returns the greatest of their times.
fn check_records(config: &TopicConfig, header: &BatchHeader, batch: &[u8], now_ms: i64) -> Result<i64, Rejected> {
    if header.is_append_time() {
        let message = "the batch says that a broker has stamped its records, which producers do not: send CreateTime";
        return Err(Refusal::new(ResponseError::InvalidTimestamp, message).into());
    }
    let (before, after) = (config.timestamp_before_max_ms, config.timestamp_after_max_ms);
    let times = now_ms.saturating_sub(before)..=now_ms.saturating_add(after);
    let (wants_keys, bounds_times) = (config.compacts(), !config.log_append_time());
    let (mut keyless, mut untimely) = (Vec::new(), Vec::new());
    let mut newest = -1i64;
    let walked = outline(header, batch, |index, record| {
        newest = newest.max(record.timestamp);
        if wants_keys && !record.has_key && keyless.len() < MAX_BLAMED {
            keyless.push(index);
        }
        // A record may have no time, which is -1.
        let is_timely = record.timestamp == -1 || times.contains(&record.timestamp);
        if bounds_times && !is_timely && untimely.len() < MAX_BLAMED {
            untimely.push(index);
        }
    });
    let invalid = |message: String| Refusal::new(ResponseError::InvalidRecord, message);
    walked.map_err(|error| invalid(error.to_string()))?;
    if !untimely.is_empty() {
        let message = format!(
            "the record's time is more than {before} ms before or {after} ms after the broker's: set the clock, or \
             message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic"
        );
        return Err(Rejected { refusal: Refusal::new(ResponseError::InvalidTimestamp, message), records: untimely });
    }
    if !keyless.is_empty() {
        let refusal = invalid("a compacted topic takes no record without a key".into());
        return Err(Rejected { refusal, records: keyless });
    }
    Ok(newest)
}

/// The batch with the true greatest time in its header, by which records are found and kept.
fn with_greatest_time(header: BatchHeader, batch: Bytes, newest: i64) -> (BatchHeader, Bytes) {
    if header.max_timestamp == newest {
        return (header, batch);
    }
    let mut changed = batch.to_vec();
    set_max_timestamp(&mut changed, newest);
    (BatchHeader { max_timestamp: newest, ..header }, Bytes::from(changed))
}

/// The batch as the topic's `compression.type` wants it.
fn in_codec_of(config: &TopicConfig, header: BatchHeader, batch: Bytes) -> Result<(BatchHeader, Bytes), Refusal> {
    let Some(changed) = config.codec.and_then(|codec| with_codec(&header, &batch, codec)) else {
        return Ok((header, batch));
    };
    let header = BatchHeader::parse(&changed).map_err(|_| ResponseError::UnknownServerError)?;
    check_size(&header, config.max_message_bytes)?;
    Ok((header, Bytes::from(changed)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::wire::batch::{HEADER_LEN, build_batch};

    const NOW_MS: i64 = 1_700_000_000_000;

    fn config(settings: &[(&str, &str)]) -> TopicConfig {
        let set: BTreeMap<String, String> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        TopicConfig::new(&set, 1 << 20)
    }

    /// Records with a time relative to now and, or not, a key of one byte; the value is one byte too.
    fn batch(records: &[(i8, bool)]) -> (BatchHeader, Bytes) {
        let mut body = Vec::new();
        for (number, (late, has_key)) in records.iter().enumerate() {
            // Numbers are zigzag varints of one byte: attributes, time, offset, key, value, headers.
            let zigzag = |value: i8| ((value << 1) ^ (value >> 7)) as u8;
            let key: &[u8] = if *has_key { &[2, b'k'] } else { &[1] };
            let record = [&[0, zigzag(*late), zigzag(number as i8)][..], key, &[2, b'v', 0]].concat();
            body.push(zigzag(record.len() as i8));
            body.extend_from_slice(&record);
        }
        let header = BatchHeader {
            base_offset: 0,
            size: 0,
            attributes: 0,
            last_offset_delta: records.len() as i32 - 1,
            base_timestamp: NOW_MS,
            max_timestamp: NOW_MS,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records: records.len() as i32,
        };
        let batch = Bytes::from(build_batch(&header, &body));
        (BatchHeader::parse_checked(&batch).unwrap(), batch)
    }

    fn blamed(settings: &[(&str, &str)], records: &[(i8, bool)]) -> Option<(ResponseError, Vec<i32>)> {
        let (header, batch) = batch(records);
        refused(settings, &header, &batch)
    }

    fn refused(settings: &[(&str, &str)], header: &BatchHeader, batch: &[u8]) -> Option<(ResponseError, Vec<i32>)> {
        let looked_at = check_records(&config(settings), header, batch, NOW_MS);
        looked_at.err().map(|rejected| (rejected.refusal.error, rejected.records))
    }

    /// The batch with other fields in its header.
    fn changed(batch: &[u8], change: impl FnOnce(BatchHeader) -> BatchHeader) -> (BatchHeader, Bytes) {
        let header = change(BatchHeader::parse_checked(batch).unwrap());
        let bytes = Bytes::from(build_batch(&header, &batch[HEADER_LEN..]));
        (BatchHeader::parse_checked(&bytes).unwrap(), bytes)
    }

    #[test]
    fn given_a_compacted_topic_when_records_have_no_key_then_they_alone_are_to_blame() {
        let compact = [("cleanup.policy", "compact")];
        assert_eq!(blamed(&compact, &[(0, true), (0, true)]), None);
        assert_eq!(
            blamed(&compact, &[(0, true), (0, false), (0, true), (0, false)]),
            Some((ResponseError::InvalidRecord, vec![1, 3]))
        );
        assert_eq!(blamed(&[], &[(0, false)]), None);
    }

    #[test]
    fn given_bounds_of_time_when_records_lie_outside_then_they_are_to_blame() {
        let records = [(-20, true), (0, true), (20, true)];
        let before = ("message.timestamp.before.max.ms", "10");
        let after = ("message.timestamp.after.max.ms", "10");
        assert_eq!(blamed(&[before], &records), Some((ResponseError::InvalidTimestamp, vec![0])));
        assert_eq!(blamed(&[after], &records), Some((ResponseError::InvalidTimestamp, vec![2])));
        assert_eq!(blamed(&[before, after], &records), Some((ResponseError::InvalidTimestamp, vec![0, 2])));
        assert_eq!(blamed(&[before, after, ("message.timestamp.type", "LogAppendTime")], &records), None);
        assert_eq!(blamed(&[], &records), None);
    }

    #[test]
    fn given_a_topic_without_settings_when_a_time_lies_more_than_an_hour_ahead_then_its_record_is_to_blame() {
        let (header, plain) = batch(&[(0, true), (0, true)]);
        let at = |base_timestamp| {
            let (header, bytes) = changed(&plain, |header| BatchHeader { base_timestamp, ..header });
            refused(&[], &header, &bytes)
        };
        let both = Some((ResponseError::InvalidTimestamp, vec![0, 1]));
        assert_eq!((at(NOW_MS + 3_600_000), at(0), at(-1)), (None, None, None), "no time is none to blame");
        assert_eq!((at(NOW_MS + 3_600_001), at(i64::MAX)), (both.clone(), both));
        let unlimited = [("message.timestamp.after.max.ms", "9223372036854775807")];
        assert_eq!(refused(&unlimited, &BatchHeader { base_timestamp: i64::MAX, ..header }, &plain), None);
    }

    #[test]
    fn given_very_many_records_without_a_key_when_looked_at_then_no_more_are_named_than_fit() {
        let record = |number: i32| {
            let delta = (number as u32) << 1;
            let delta = [delta as u8 | 0x80, (delta >> 7) as u8 | 0x80, (delta >> 14) as u8];
            [&[9u8 << 1, 0, 0][..], &delta, &[1, 2, b'v', 0]].concat()
        };
        let count = 10_000;
        let body: Vec<u8> = (0..count).flat_map(record).collect();
        let (header, _) = batch(&[(0, true)]);
        let header = BatchHeader { records: count, last_offset_delta: count - 1, ..header };
        let bytes = build_batch(&header, &body);
        let header = BatchHeader::parse(&bytes).unwrap();
        let first: Vec<i32> = (0..MAX_BLAMED as i32).collect();
        let blamed = refused(&[("cleanup.policy", "compact")], &header, &bytes);
        assert_eq!(blamed, Some((ResponseError::InvalidRecord, first)));
    }

    #[test]
    fn given_a_batch_that_is_not_what_its_header_says_when_looked_at_then_it_is_refused_whatever_the_topic() {
        let (header, plain) = batch(&[(0, true), (0, true), (0, true)]);
        let invalid = Some((ResponseError::InvalidRecord, Vec::new()));
        let topics: [&[(&str, &str)]; 3] =
            [&[], &[("message.timestamp.type", "LogAppendTime")], &[("cleanup.policy", "compact")]];
        for settings in topics {
            for records in [2, 4] {
                let stated = BatchHeader { records, ..header };
                assert_eq!(refused(settings, &stated, &plain), invalid, "{records} for 3");
            }
            let mut swapped = plain.to_vec();
            // The offset of the first record, behind its length, attributes and time.
            swapped[HEADER_LEN + 3] = 2;
            assert_eq!(refused(settings, &header, &swapped), invalid);
            let stated = BatchHeader { attributes: 4, ..header };
            assert_eq!(refused(settings, &stated, &plain), invalid, "no zstd");
            let (stamped, bytes) = changed(&plain, |header| BatchHeader { attributes: 8, ..header });
            let error = refused(settings, &stamped, &bytes).map(|(error, _)| error);
            assert_eq!(error, Some(ResponseError::InvalidTimestamp), "brokers alone say when a record came");
        }
    }

    #[test]
    fn given_a_header_with_another_greatest_time_when_taken_then_it_gets_that_of_the_records() {
        let (_, plain) = batch(&[(5, true), (20, true), (-3, true)]);
        for (wrong, codec) in [(NOW_MS - 1_000, "producer"), (i64::MAX, "producer"), (-1, "gzip")] {
            let (header, bytes) = changed(&plain, |header| BatchHeader { max_timestamp: wrong, ..header });
            let settings = config(&[("compression.type", codec)]);
            let (header, taken) = examined_at(&settings, header, bytes, NOW_MS).unwrap_or_else(|_| panic!("{codec}"));
            assert_eq!(header.max_timestamp, NOW_MS + 20);
            assert_eq!(BatchHeader::parse_checked(&taken), Ok(header), "{codec}: sealed again");
        }
        // One that is right is kept as it was sent.
        let (header, bytes) = changed(&plain, |header| BatchHeader { max_timestamp: NOW_MS + 20, ..header });
        let (_, taken) = examined_at(&config(&[]), header, bytes.clone(), NOW_MS).unwrap_or_else(|_| panic!("taken"));
        assert_eq!(taken.as_ptr(), bytes.as_ptr());
    }

    #[test]
    fn given_a_codec_of_the_topic_when_a_batch_grows_beyond_the_largest_size_then_it_is_refused() {
        let (header, plain) = batch(&[(0, true); 60]);
        let (small_header, small) =
            in_codec_of(&config(&[("compression.type", "gzip")]), header, plain.clone()).unwrap();
        assert!(small.len() < plain.len() && small_header.size == small.len());
        let settings = [("compression.type", "uncompressed"), ("max.message.bytes", "200")];
        let refused = in_codec_of(&config(&settings), small_header, small.clone()).unwrap_err();
        assert_eq!(refused.error, ResponseError::MessageTooLarge);
        assert_eq!(in_codec_of(&config(&[]), small_header, small.clone()).unwrap().1, small);
    }
}
