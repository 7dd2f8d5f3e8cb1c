//! Hashes in bytes: whatever names a blob has its SHA-256 in lower-case hex, as an Avro string or a JSON one. So a record or a blob
//! need not be understood to know what it names, and one of a newer build keeps what it names.

/// Hex digits of a SHA-256.
const DIGITS: usize = 64;

/// A SHA-256, in half the memory of its text.
pub(super) type Hash = [u8; 32];

/// Reads 64 lower-case hex digits.
pub(super) fn parse(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    if digits.len() != DIGITS {
        return None;
    }
    let mut hash = Hash::default();
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (value(pair[0])? << 4) | value(pair[1])?;
    }
    Some(hash)
}

/// Every hash that bytes name: the first 64 of each run of hex digits. What stands before a string is never a digit (its length as
/// Avro writes it ends with the byte 1, JSON has a quotation mark); what stands behind it may be, such as the size of a blob.
pub(super) fn named_in(bytes: &[u8]) -> impl Iterator<Item = Hash> {
    bytes
        .split(|byte| value(*byte).is_none())
        .filter_map(|run| run.get(..DIGITS))
        .filter_map(|digits| parse(std::str::from_utf8(digits).ok()?))
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use riverrun_schemas::agent::{AgentEvent, RunSnapshotted};
    use riverrun_schemas::{BlobRef, EventSet, RunId};

    use super::*;

    fn text(hash: Hash) -> String {
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    proptest! {
        #[test]
        fn given_any_hash_when_it_is_in_an_event_or_in_json_then_it_is_found_and_read(
            hash in any::<Hash>(), size in 0..i64::MAX, epoch in any::<i64>(), media_type in "[a-f0-9/]{0,90}"
        ) {
            let state = BlobRef { sha256: text(hash), size_bytes: size, media_type };
            prop_assert_eq!(parse(&state.sha256), Some(hash));
            let json = serde_json::to_vec(&state).unwrap();
            prop_assert!(named_in(&json).any(|named| named == hash));
            let at = RunSnapshotted {
                run_id: RunId::new(), epoch, seq: size, accepted_offset: epoch, next_offset: size, state, at: epoch,
            };
            let event = AgentEvent::from(at).encode().unwrap();
            prop_assert!(named_in(&event).any(|named| named == hash));
        }

        #[test]
        fn given_any_bytes_when_they_are_looked_through_then_nothing_breaks(bytes in any::<Vec<u8>>()) {
            prop_assert!(named_in(&bytes).count() <= bytes.len() / DIGITS);
        }
    }

    #[test]
    fn given_what_is_no_hash_when_it_is_read_then_it_is_none() {
        for bad in ["", &"a".repeat(63), &"a".repeat(65), &"A".repeat(64), &"g".repeat(64), &"ä".repeat(32)] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
