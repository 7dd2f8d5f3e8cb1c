//! Which texts of a batch which thread computes.
//!
//! Threads that compute one product together wait for each other at its end, some twenty times a batch of a small model. Texts share nothing, so
//! that each thread can take some of them through all layers by itself, if there are shares that are alike.

use std::ops::Range;

use super::hidden::Hidden;

/// Tokens of a share at least: a thread reads all weights for it.
const MIN_TOKENS: usize = 64;
/// The largest share may be longer than the mean by this part of it: so much of the time others would have nothing to do.
const MAX_EXCESS: f64 = 0.06;

/// The texts of one thread: their places in the batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Share {
    texts: Vec<usize>,
    tokens: usize,
}

/// One share for each thread; none where it is better that all threads compute everything together. The longest text first, each to who has least
/// (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969).
pub(super) fn of(lengths: &[usize], threads: usize) -> Option<Vec<Share>> {
    let total: usize = lengths.iter().sum();
    if threads < 2 || total < threads * MIN_TOKENS {
        return None;
    }
    let mut longest_first: Vec<usize> = (0..lengths.len()).collect();
    longest_first.sort_by_key(|text| std::cmp::Reverse(lengths[*text]));
    let mut shares = vec![Share::default(); threads];
    for text in longest_first {
        let least = shares.iter_mut().min_by_key(|share| share.tokens)?;
        least.texts.push(text);
        least.tokens += lengths[text];
    }
    let most = shares.iter().map(|share| share.tokens).max()?;
    (most as f64 <= total as f64 / threads as f64 * (1.0 + MAX_EXCESS)).then_some(shares)
}

impl Share {
    /// What of a number for each token of a batch belongs to its texts, one behind the other.
    pub(super) fn gather(&self, numbers: &[u32], lengths: &[usize]) -> Vec<u32> {
        let places = places(lengths);
        self.texts.iter().flat_map(|text| &numbers[places[*text].clone()]).copied().collect()
    }

    /// Those of its texts.
    pub(super) fn lengths(&self, lengths: &[usize]) -> Vec<usize> {
        self.texts.iter().map(|text| lengths[*text]).collect()
    }
}

/// The rows of all texts in the order of the batch; `rows` are how many each has.
pub(super) fn joined(shares: &[Share], parts: &[Hidden], rows: &[usize]) -> Hidden {
    let width = parts.first().map_or(0, |part| part.width);
    let places = places(rows);
    let mut numbers = vec![0.0; rows.iter().sum::<usize>() * width];
    for (share, part) in shares.iter().zip(parts) {
        let mut from = part.numbers.as_slice();
        for text in &share.texts {
            let place = &places[*text];
            let (own, behind) = from.split_at(place.len() * width);
            numbers[place.start * width..place.end * width].copy_from_slice(own);
            from = behind;
        }
    }
    Hidden { width, numbers }
}

/// Where each text lies among those of a batch.
fn places(counts: &[usize]) -> Vec<Range<usize>> {
    let ends = counts.iter().scan(0_usize, |end, count| {
        *end += count;
        Some(*end)
    });
    ends.zip(counts).map(|(end, count)| end - count..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_texts_when_they_are_shared_out_then_each_is_in_one_share_and_no_share_is_much_longer() {
        let lengths: Vec<usize> = (0..40).map(|n| n * 37 % 90 + 10).collect();
        for threads in [2, 3, 8] {
            let shares = of(&lengths, threads).unwrap();
            let mut all: Vec<usize> = shares.iter().flat_map(|share| share.texts.clone()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
            let most = shares.iter().map(|share| share.lengths(&lengths).iter().sum::<usize>()).max().unwrap();
            let mean = lengths.iter().sum::<usize>() as f64 / threads as f64;
            assert!(most as f64 <= mean * (1.0 + MAX_EXCESS), "{threads}: {most}");
        }
    }

    #[test]
    fn given_texts_that_make_no_shares_alike_when_they_are_shared_out_then_all_compute_together() {
        for (lengths, threads) in [
            (vec![], 2),
            (vec![500], 2),
            (vec![500, 500, 500], 2),
            (vec![30, 30], 2),
            (vec![100; 8], 1),
            (vec![100, 100, 100], 4),
        ] {
            assert_eq!(of(&lengths, threads), None, "{lengths:?} {threads}");
        }
        assert!(of(&[500, 500], 2).is_some());
    }

    #[test]
    fn given_shares_when_they_were_computed_then_their_rows_come_back_in_the_order_of_the_batch() {
        let lengths = [80, 30, 90, 40];
        let ids: Vec<u32> = (0..240).collect();
        let shares = of(&lengths, 2).unwrap();
        assert_ne!(shares[0].texts, [0, 1], "{shares:?}");
        // Each token's vector is its id and its negative.
        let part = |share: &Share| {
            let ids = share.gather(&ids, &lengths);
            Hidden { width: 2, numbers: ids.iter().flat_map(|id| [*id as f32, -(*id as f32)]).collect() }
        };
        let parts: Vec<Hidden> = shares.iter().map(part).collect();
        let expected = ids.iter().flat_map(|id| [*id as f32, -(*id as f32)]).collect();
        assert_eq!(joined(&shares, &parts, &lengths), Hidden { width: 2, numbers: expected });
    }
}
