//! What of the key-value cache can stay for the next prompt.

/// How many tokens at the start of `prompt` are in `cached` already. The last prompt token is always computed anew, because its logits are
/// what the answer starts from.
pub(super) fn reusable<T: PartialEq>(cached: &[T], prompt: &[T]) -> usize {
    let same = cached.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    same.min(prompt.len().saturating_sub(1))
}

/// The positions still to be computed, in batches of at most `batch`.
pub(super) fn batches(from: usize, to: usize, batch: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let batch = batch.max(1);
    (from..to).step_by(batch).map(move |start| start..(start + batch).min(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_cache_when_a_prompt_comes_then_the_common_beginning_stays_but_never_the_last_token() {
        assert_eq!(reusable::<u8>(&[], &[]), 0);
        assert_eq!(reusable(&[], &[1, 2]), 0);
        assert_eq!(reusable(&[1, 2, 3], &[1, 2, 4]), 2);
        assert_eq!(reusable(&[1, 2, 3], &[1, 2, 3]), 2);
        assert_eq!(reusable(&[1, 2, 3, 4], &[1, 2, 3]), 2);
        assert_eq!(reusable(&[1, 2], &[1, 2, 3, 4]), 2);
        assert_eq!(reusable(&[9], &[1]), 0);
    }

    #[test]
    fn given_positions_when_they_are_batched_then_each_is_computed_once_in_order() {
        for (from, to, batch) in [(0, 0, 4), (0, 1, 4), (3, 11, 4), (0, 8, 4), (5, 6, 0)] {
            let all: Vec<usize> = batches(from, to, batch).flatten().collect();
            assert_eq!(all, (from..to).collect::<Vec<_>>());
            assert!(batches(from, to, batch).all(|range| range.len() <= batch.max(1)));
        }
    }
}
