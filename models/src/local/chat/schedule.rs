//! Who computes what next, when several requests share one context.

use super::prefix::reusable;

/// Shares out the tokens of one computation: to each sequence the tokens that it has to compute, or as many as go round. Those that want
/// little get all of it, the rest an equal part (max-min fairness), so that a long prompt never holds up answers under way.
pub(super) fn shares(needs: &[usize], room: usize) -> Vec<usize> {
    let mut shares = vec![0; needs.len()];
    let mut order: Vec<usize> = (0..needs.len()).filter(|index| needs[*index] > 0).collect();
    order.sort_by_key(|index| needs[*index]);
    let (mut room, mut left) = (room, order.len());
    for index in order {
        shares[index] = needs[index].min(room.div_ceil(left));
        room -= shares[index];
        left -= 1;
    }
    shares
}

/// A sequence that could take a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Free<'a, T> {
    /// Its number.
    pub(super) id: usize,
    /// The tokens that it holds.
    pub(super) cached: &'a [T],
    /// Grows with use.
    pub(super) last_used: u64,
}

/// The sequence for a prompt: the one that holds most of its beginning, if little else is in it; else the least recently used one, so
/// that conversations that only begin alike keep what they have.
pub(super) fn choose<T: PartialEq>(free: &[Free<'_, T>], prompt: &[T]) -> Option<usize> {
    let kept = |one: &Free<'_, T>| {
        let reused = reusable(one.cached, prompt);
        if reused * 2 >= one.cached.len() { reused } else { 0 }
    };
    let best = free.iter().max_by_key(|one| (kept(one), std::cmp::Reverse(one.last_used)));
    best.map(|one| one.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_needs_when_room_is_shared_then_small_ones_get_all_and_large_ones_equal_parts() {
        for (needs, room, expected) in [
            (vec![], 8, vec![]),
            (vec![0, 0], 8, vec![0, 0]),
            (vec![1000], 128, vec![128]),
            (vec![1, 1000, 1], 128, vec![1, 126, 1]),
            (vec![1000, 1000], 128, vec![64, 64]),
            (vec![1000, 5, 1000, 1], 128, vec![61, 5, 61, 1]),
            (vec![3, 0, 4], 128, vec![3, 0, 4]),
            (vec![1, 1, 1], 2, vec![1, 1, 0]),
        ] {
            assert_eq!(shares(&needs, room), expected, "{needs:?} in {room}");
        }
    }

    #[test]
    fn given_any_needs_when_room_is_shared_then_none_is_wasted_or_exceeded() {
        for seed in 0..200_usize {
            let needs: Vec<usize> = (0..seed % 9).map(|index| (seed * 7919 + index * 104_729) % 300).collect();
            let shares = shares(&needs, 128);
            assert!(shares.iter().zip(&needs).all(|(share, need)| share <= need));
            assert_eq!(shares.iter().sum::<usize>(), needs.iter().sum::<usize>().min(128), "{needs:?}");
        }
    }

    #[test]
    fn given_free_sequences_when_one_is_chosen_then_a_conversation_goes_on_in_its_own_and_others_in_the_oldest() {
        let (first, second): (&[u8], &[u8]) = (&[1, 2, 3, 4], &[1, 9, 9, 9, 9]);
        let free = [
            Free { id: 0, cached: first, last_used: 7 },
            Free { id: 1, cached: second, last_used: 5 },
            Free { id: 2, cached: &[], last_used: 0 },
        ];
        assert_eq!(choose(&free, &[1, 2, 3, 4, 5]), Some(0));
        assert_eq!(choose(&free, &[1, 9, 9, 9, 9, 9]), Some(1));
        assert_eq!(choose(&free, &[1, 8, 8]), Some(2), "one common token is no conversation");
        assert_eq!(choose(&free[..2], &[1, 8, 8]), Some(1));
        assert_eq!(choose::<u8>(&[], &[1]), None);
    }
}
