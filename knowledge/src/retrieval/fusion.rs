//! Reciprocal rank fusion: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and Individual Rank
//! Learning Methods", SIGIR 2009.
//!
//! A document's score is the sum of `1 / (k + rank)` over the lists that have it; ranks count from 1 and a list that does not
//! have it gives nothing. Scores of the lists are not looked at, so that cosine and BM25 need no common scale.

use std::collections::{BTreeMap, BTreeSet};

/// The constant of the paper: large enough that one list's first place does not outweigh two good places.
pub const K: f64 = 60.0;

/// Fuses ranked lists, best first. Equal scores are ordered by id. Within a list only the first place of an id counts.
pub fn fuse<Id: Ord + Copy>(lists: &[&[Id]], k: f64) -> Vec<(Id, f64)> {
    let mut scores: BTreeMap<Id, f64> = BTreeMap::new();
    for list in lists {
        let mut seen = BTreeSet::new();
        let ranked = list.iter().filter(|id| seen.insert(**id)).zip(1u32..);
        for (id, rank) in ranked {
            *scores.entry(*id).or_default() += 1.0 / (k + f64::from(rank));
        }
    }
    best_first(scores)
}

/// Ids by falling score, equal scores by id.
pub(super) fn best_first<Id>(scores: BTreeMap<Id, f64>) -> Vec<(Id, f64)> {
    let mut fused: Vec<(Id, f64)> = scores.into_iter().collect();
    // Stable, so that what the map ordered by id stays so.
    fused.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    fused
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(lists: &[&[char]], k: f64) -> String {
        fuse(lists, k).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn given_lists_when_fused_then_the_order_is_that_of_the_paper() {
        for (lists, k, expected) in [
            // In both lists: first, although nobody's first. The rest by rank, ties by id.
            (&[&['X', 'a', 'Y'][..], &['b', 'c', 'Y'][..]][..], K, "YXbac"),
            // Twice fourth beats once first with k = 60, and does not with k = 1.
            (&[&['Y', 'p', 'q', 'X'][..], &['r', 's', 't', 'X'][..]][..], K, "XYrpsqt"),
            (&[&['Y', 'p', 'q', 'X'][..], &['r', 's', 't', 'X'][..]][..], 1.0, "YrXpsqt"),
            (&[&[][..], &['a', 'b'][..]][..], K, "ab"),
            (&[&[][..], &[][..]][..], K, ""),
            // A double entry is one entry.
            (&[&['a', 'a', 'b'][..]][..], K, "ab"),
        ] {
            assert_eq!(order(lists, k), expected, "{lists:?} with k = {k}");
        }
        let fused = fuse(&[&['Y', 'p', 'q', 'X'], &['r', 's', 't', 'X']], K);
        assert_eq!(fused[0], ('X', 2.0 / 64.0));
        assert_eq!(fuse(&[&['a', 'a', 'b']], K)[1], ('b', 1.0 / 62.0));
    }

    proptest! {
        #[test]
        fn the_order_of_the_lists_does_not_matter_and_scores_fall(a: Vec<u8>, b: Vec<u8>) {
            let fused = fuse(&[&a, &b], K);
            prop_assert_eq!(&fused, &fuse(&[&b, &a], K));
            for pair in fused.windows(2) {
                prop_assert!(pair[0].1 > pair[1].1 || (pair[0].1 == pair[1].1 && pair[0].0 < pair[1].0));
            }
            let all: BTreeSet<u8> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(fused.len(), all.len());
        }
    }
}
