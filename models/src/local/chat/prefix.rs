//! What of the key-value cache can stay for the next prompt.

/// How many tokens at the start of `prompt` are in `cached` already. The last prompt token is always computed anew, because its logits are
/// what the answer starts from.
pub(super) fn reusable<T: PartialEq>(cached: &[T], prompt: &[T]) -> usize {
    let same = cached.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    same.min(prompt.len().saturating_sub(1))
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
}
