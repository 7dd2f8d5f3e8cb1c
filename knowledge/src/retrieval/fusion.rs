//! Reciprocal rank fusion: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and Individual Rank
//! Learning Methods", SIGIR 2009.
//!
//! A document's score is the sum of `1 / (k + rank)` over the lists that have it; ranks count from 1 and a list that does not
//! have it gives nothing. Scores of the lists have no part in it, so that cosine and BM25 need no common scale.
//!
//! Equal sums are common: whatever stands once at rank 3 is equal to whatever else does. They are ordered by the better best
//! rank in a list, then by the larger sum of shares (each score as a share of its list's best), then by id. Ids come last
//! because they say nothing of the document: they follow the place that it was read from.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The constant of the paper: large enough that one list's first place does not outweigh two good places.
pub const K: f64 = 60.0;

/// What one search found, best first.
#[derive(Debug, Clone, Copy)]
pub struct Ranked<'a, Id> {
    /// Ids with the search's scores.
    pub hits: &'a [(Id, f32)],
    /// The least that such a score can be: shares are counted from it.
    pub least: f64,
}

/// What the lists say of an id.
#[derive(Debug)]
struct Evidence {
    score: f64,
    best_rank: u32,
    shares: f64,
}

/// Fuses ranked lists. Within a list only the first place of an id counts.
pub fn fuse<Id: Ord + Copy>(lists: &[Ranked<'_, Id>], k: f64) -> Vec<(Id, f64)> {
    let mut places: BTreeMap<Id, Vec<(u32, f64)>> = BTreeMap::new();
    for list in lists {
        for (id, place) in placed(list) {
            places.entry(id).or_default().push(place);
        }
    }
    let mut fused: Vec<(Id, Evidence)> = places.into_iter().map(|(id, places)| (id, Evidence::of(places, k))).collect();
    // Stable, so that what the map ordered by id stays so.
    fused.sort_by(|(_, a), (_, b)| a.before(b));
    fused.into_iter().map(|(id, evidence)| (id, evidence.score)).collect()
}

/// Each id of a list once, with its rank and its share of the list's best score.
fn placed<Id: Ord + Copy>(list: &Ranked<'_, Id>) -> Vec<(Id, (u32, f64))> {
    let above = |score: f32| if score.is_finite() { (f64::from(score) - list.least).max(0.0) } else { 0.0 };
    let most = list.hits.iter().map(|(_, score)| above(*score)).fold(0.0, f64::max);
    let share = |score: f32| if most > 0.0 { above(score) / most } else { 0.0 };
    let mut seen = BTreeSet::new();
    let ranked = list.hits.iter().filter(|(id, _)| seen.insert(*id)).zip(1u32..);
    ranked.map(|((id, score), rank)| (*id, (rank, share(*score)))).collect()
}

impl Evidence {
    /// Summed in an order of their own: the same places in other lists are the same sum, to the last bit.
    fn of(mut places: Vec<(u32, f64)>, k: f64) -> Self {
        places.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        Self {
            score: places.iter().map(|(rank, _)| 1.0 / (k + f64::from(*rank))).sum(),
            best_rank: places.first().map_or(u32::MAX, |(rank, _)| *rank),
            shares: places.iter().map(|(_, share)| share).sum(),
        }
    }

    /// The better one is less.
    fn before(&self, other: &Self) -> Ordering {
        other
            .score
            .total_cmp(&self.score)
            .then(self.best_rank.cmp(&other.best_rank))
            .then(other.shares.total_cmp(&self.shares))
    }
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

    type List<'a> = &'a [(char, f32)];

    /// Lists whose scores say nothing: ranks and ids alone decide.
    fn order(lists: &[&[char]], k: f64) -> String {
        let scored: Vec<Vec<(char, f32)>> =
            lists.iter().map(|list| list.iter().map(|id| (*id, 1.0)).collect()).collect();
        let lists: Vec<List<'_>> = scored.iter().map(Vec::as_slice).collect();
        ids(&fused(&lists, k))
    }

    fn fused(lists: &[List<'_>], k: f64) -> Vec<(char, f64)> {
        let lists: Vec<Ranked<'_, char>> = lists.iter().map(|hits| Ranked { hits, least: 0.0 }).collect();
        fuse(&lists, k)
    }

    fn ids(fused: &[(char, f64)]) -> String {
        fused.iter().map(|(id, _)| id).collect()
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
        let both: [List<'_>; 2] =
            [&[('Y', 4.0), ('p', 3.0), ('q', 2.0), ('X', 1.0)], &[('r', 4.0), ('s', 3.0), ('t', 2.0), ('X', 1.0)]];
        assert_eq!(fused(&both, K)[0], ('X', 2.0 / 64.0));
        assert_eq!(fused(&[&[('a', 2.0), ('a', 2.0), ('b', 1.0)]], K)[1], ('b', 1.0 / 62.0));
    }

    #[test]
    fn given_equal_ranks_when_fused_then_the_best_rank_then_the_better_scores_and_ids_last_decide() {
        let none: List<'_> = &[];
        let cases: &[(&str, &[List<'_>], &str)] = &[
            // Both are second of a list: z is nearer to its list's best than a to its own.
            ("one place each", &[&[('X', 1.0), ('a', 0.5)], &[('Y', 8.0), ('z', 6.0)]], "XYza"),
            // First and second, and the other way round: z is nearer to a's first place than a to z's.
            ("mirrored places", &[&[('a', 10.0), ('z', 9.0)], &[('z', 10.0), ('a', 1.0)]], "za"),
            ("equal shares", &[&[('z', 3.0)], &[('a', 7.0)]], "az"),
            ("equal scores in one list", &[&[('z', 3.0), ('a', 3.0)], none], "za"),
            ("no numbers", &[&[('z', f32::NAN)], &[('a', f32::INFINITY)]], "az"),
            ("nothing above the least", &[&[('z', 0.0)], &[('a', -1.0)]], "az"),
        ];
        for (what, lists, expected) in cases {
            assert_eq!(ids(&fused(lists, K)), *expected, "{what}");
        }
        // With k = 0: 1/2 + 1/4 + 1/4 is as much as 1/1, and one first place goes before three others.
        let fill = |at: usize| char::from(b'A' + u8::try_from(at).unwrap());
        let ranked = |first: usize, last: usize, id: char| {
            let before = (0..last - 1).map(|at| fill(first + at));
            before.chain([id]).map(|id| (id, 1.0)).collect::<Vec<(char, f32)>>()
        };
        let lists = [ranked(0, 2, 'a'), ranked(5, 4, 'a'), ranked(10, 4, 'a'), vec![('z', 1.0)]];
        let lists: Vec<List<'_>> = lists.iter().map(Vec::as_slice).collect();
        let fused = fused(&lists, 0.0);
        let (z, a) = (place(&fused, 'z'), place(&fused, 'a'));
        assert!(fused[z].1 == fused[a].1 && z < a, "{fused:?}");
    }

    fn place(fused: &[(char, f64)], id: char) -> usize {
        fused.iter().position(|(other, _)| *other == id).unwrap()
    }

    proptest! {
        #[test]
        fn the_order_of_the_lists_does_not_matter_and_scores_fall(
            lists in prop::collection::vec(prop::collection::vec((0..20u8, -1.0..9.0f32), 0..16), 0..5),
        ) {
            let of = |lists: &[Vec<(u8, f32)>]| {
                let ranked: Vec<Ranked<'_, u8>> = lists.iter().map(|hits| Ranked { hits, least: -1.0 }).collect();
                fuse(&ranked, K)
            };
            let fused = of(&lists);
            let reversed: Vec<Vec<(u8, f32)>> = lists.iter().rev().cloned().collect();
            prop_assert_eq!(&fused, &of(&reversed));
            prop_assert!(fused.windows(2).all(|pair| pair[0].1 >= pair[1].1));
            let all: BTreeSet<u8> = lists.iter().flatten().map(|(id, _)| *id).collect();
            prop_assert_eq!(fused.len(), all.len());
        }
    }
}
