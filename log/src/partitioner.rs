//! Where Kafka's clients put a key, for those who want two keys in one partition.

/// The partition of `key` among `partitions`, as the Java client's default partitioner and librdkafka's `murmur2` say.
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    let positive = i64::from(murmur2(key) & 0x7fff_ffff);
    i32::try_from(positive % i64::from(partitions.max(1))).unwrap_or(0) // smaller than `partitions`
}

/// MurmurHash2 with the seed and constants of `org.apache.kafka.common.utils.Utils.murmur2`.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // The length is an `int` there; keys are far shorter.
    let mut hash = SEED ^ (data.len() as u32);
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_the_vectors_of_kafkas_own_test_when_they_are_hashed_then_the_hashes_are_the_same() {
        for (text, expected) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, expected, "{text}");
        }
    }

    #[test]
    fn given_any_number_of_partitions_then_the_partition_is_one_of_them() {
        for partitions in [-1, 0, 1, 2, 6, 1_000] {
            for key in 0..100u32 {
                assert!((0..partitions.max(1)).contains(&partition_of(&key.to_le_bytes(), partitions)));
            }
        }
    }
}
