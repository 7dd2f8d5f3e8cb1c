//! Fusion by scores: the convex combination with theoretical min-max normalization (TM2C2) of Bruch, Gai and Ingber, "An Analysis
//! of Fusion Functions for Hybrid Retrieval", ACM TOIS 2023.
//!
//! Ranks forget how far apart two hits are. Here a list's scores are shares of its best one, counted from the least that such a score
//! can be (-1 of a cosine, 0 of BM25) and not from the least that was found, so that a list of bad hits isn't stretched to a good one.

use std::collections::BTreeMap;

use super::fusion::best_first;

/// How much dense search counts, by the paper: keyword search counts for the rest.
pub const ALPHA: f64 = 0.8;

/// The least that a cosine can be.
pub(super) const LEAST_COSINE: f64 = -1.0;
/// The least that BM25 can be.
pub(super) const LEAST_BM25: f64 = 0.0;

/// What both searches found for one wording, in any order.
#[derive(Debug, Clone, Copy)]
pub struct Hits<'a, Id> {
    /// Ids with their cosines.
    pub dense: &'a [(Id, f32)],
    /// Ids with their BM25.
    pub sparse: &'a [(Id, f32)],
}

/// Fuses each wording's two lists and keeps of each id the best score over the wordings; best first, equal scores by id. A list that
/// does not have an id gives it nothing; a score that is no finite number is none, and of a double entry the better one counts.
pub fn fuse<Id: Ord + Copy>(wordings: &[Hits<'_, Id>], alpha: f64) -> Vec<(Id, f64)> {
    let mut best: BTreeMap<Id, f64> = BTreeMap::new();
    for hits in wordings {
        for (id, score) in combined(hits, alpha) {
            let kept = best.entry(id).or_default();
            *kept = kept.max(score);
        }
    }
    best_first(best)
}

fn combined<Id: Ord + Copy>(hits: &Hits<'_, Id>, alpha: f64) -> BTreeMap<Id, f64> {
    let mut scores: BTreeMap<Id, f64> = BTreeMap::new();
    for (list, least, weight) in [(hits.dense, LEAST_COSINE, alpha), (hits.sparse, LEAST_BM25, 1.0 - alpha)] {
        for (id, share) in shares(list, least) {
            *scores.entry(id).or_default() += weight * share;
        }
    }
    scores
}

/// Each score as a share of the list's best, from 0 to 1.
fn shares<Id: Ord + Copy>(list: &[(Id, f32)], least: f64) -> BTreeMap<Id, f64> {
    let mut shares: BTreeMap<Id, f64> = BTreeMap::new();
    for (id, score) in list.iter().filter(|(_, score)| score.is_finite()) {
        let kept = shares.entry(*id).or_default();
        *kept = kept.max(f64::from(*score) - least);
    }
    let most = shares.values().copied().fold(0.0, f64::max);
    // Where nothing is above the least, nothing is better than the rest: all keep their 0.
    if most > 0.0 {
        for share in shares.values_mut() {
            *share /= most;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    type List<'a> = &'a [(char, f32)];
    type Case<'a> = (&'a str, &'a [(List<'a>, List<'a>)], &'a [(char, f64)]);

    /// Half and half, so that the shares can be read.
    fn halves(wordings: &[(List<'_>, List<'_>)]) -> Vec<(char, f64)> {
        let wordings: Vec<Hits<'_, char>> = wordings.iter().map(|&(dense, sparse)| Hits { dense, sparse }).collect();
        fuse(&wordings, 0.5)
    }

    #[test]
    fn given_lists_when_fused_then_scores_are_shares_of_each_lists_best() {
        let none: List<'_> = &[];
        let (dense, sparse): (List<'_>, List<'_>) = (&[('a', 1.0), ('b', 0.0)], &[('b', 4.0), ('c', 2.0)]);
        let cases: &[Case<'_>] = &[
            ("both lists", &[(dense, sparse)], &[('b', 0.75), ('a', 0.5), ('c', 0.25)]),
            ("dense alone", &[(dense, none)], &[('a', 0.5), ('b', 0.25)]),
            ("sparse alone", &[(none, sparse)], &[('b', 0.5), ('c', 0.25)]),
            ("two empty lists", &[(none, none)], &[]),
            ("no wording", &[], &[]),
            ("equal scores", &[(&[('b', 0.5), ('a', 0.5)], none)], &[('a', 0.5), ('b', 0.5)]),
            ("a tie over both", &[(&[('b', 0.5)], &[('a', 3.0)])], &[('a', 0.5), ('b', 0.5)]),
            ("all zero", &[(none, &[('b', 0.0), ('a', 0.0)])], &[('a', 0.0), ('b', 0.0)]),
            ("all opposite", &[(&[('a', -1.0)], &[('b', 1.0)])], &[('b', 0.5), ('a', 0.0)]),
            ("negative cosines", &[(&[('a', -0.5), ('b', -0.75)], none)], &[('a', 0.5), ('b', 0.25)]),
            ("beneath the least", &[(&[('a', -1.5)], &[('a', 1.0), ('b', -2.0)])], &[('a', 0.5), ('b', 0.0)]),
            ("no number", &[(&[('a', f32::NAN), ('b', 0.0)], &[('c', f32::INFINITY)])], &[('b', 0.5)]),
            ("no number in one list", &[(&[('a', f32::NAN)], &[('a', 1.0)])], &[('a', 0.5)]),
            ("a double entry", &[(none, &[('a', 1.0), ('a', 4.0), ('b', 2.0)])], &[('a', 0.5), ('b', 0.25)]),
            (
                "two wordings",
                &[(dense, sparse), (&[('c', 0.1)], &[('c', 9.0)])],
                &[('c', 1.0), ('b', 0.75), ('a', 0.5)],
            ),
            ("the same wording twice", &[(dense, sparse), (dense, sparse)], &[('b', 0.75), ('a', 0.5), ('c', 0.25)]),
        ];
        for &(what, wordings, expected) in cases {
            assert_eq!(halves(wordings), expected, "{what}");
        }
    }

    #[test]
    fn given_the_papers_weight_when_fused_then_meaning_counts_four_times_as_much_as_words() {
        let fused = fuse(&[Hits { dense: &[('a', 0.5)], sparse: &[('b', 7.0)] }], ALPHA);
        assert_eq!(fused, [('a', 0.8), ('b', 1.0 - 0.8)]);
    }

    fn hits() -> impl Strategy<Value = Vec<(u8, f32)>> {
        vec((0..12u8, prop_oneof![8 => -1.5..30.0f32, 1 => Just(0.0f32), 1 => Just(f32::NAN)]), 0..16)
    }

    type Scored = Vec<(u8, f32)>;

    fn with_shuffled(hits: Vec<(u8, f32)>) -> impl Strategy<Value = (Scored, Scored)> {
        (Just(hits.clone()), Just(hits).prop_shuffle())
    }

    fn of(dense: &[(u8, f32)], sparse: &[(u8, f32)]) -> Vec<(u8, f64)> {
        fuse(&[Hits { dense, sparse }], ALPHA)
    }

    proptest! {
        #[test]
        fn scores_fall_and_the_order_of_hits_and_wordings_does_not_matter(
            (dense, shuffled_dense) in hits().prop_flat_map(with_shuffled),
            (sparse, shuffled_sparse) in hits().prop_flat_map(with_shuffled),
            other in hits(),
        ) {
            let more = Hits { dense: &other, sparse: &[] };
            let fused = fuse(&[Hits { dense: &dense, sparse: &sparse }, more], ALPHA);
            let shuffled = fuse(&[more, Hits { dense: &shuffled_dense, sparse: &shuffled_sparse }], ALPHA);
            prop_assert_eq!(&fused, &shuffled);
            prop_assert!(fused.iter().all(|(_, score)| (0.0..=1.0).contains(score)));
            for pair in fused.windows(2) {
                prop_assert!(pair[0].1 > pair[1].1 || (pair[0].1 == pair[1].1 && pair[0].0 < pair[1].0));
            }
        }

        #[test]
        fn a_better_score_lifts_its_own_id_and_no_other(
            dense in hits(),
            sparse in hits(),
            at in any::<prop::sample::Index>(),
            more in 0.0..9.0f32,
        ) {
            for in_dense in [true, false] {
                let (mut better_dense, mut better_sparse) = (dense.clone(), sparse.clone());
                let list = if in_dense { &mut better_dense } else { &mut better_sparse };
                if list.is_empty() {
                    continue;
                }
                let place = at.index(list.len());
                let hit = &mut list[place];
                hit.1 += more;
                let lifted = hit.0;
                let (before, after) = (of(&dense, &sparse), of(&better_dense, &better_sparse));
                prop_assert_eq!(before.len(), after.len());
                for (id, score) in &after {
                    let was = before.iter().find(|(other, _)| other == id).map(|(_, score)| *score);
                    let kept = was.is_some_and(|was| if *id == lifted { *score >= was } else { *score <= was });
                    prop_assert!(kept, "{id} went from {was:?} to {score}");
                }
            }
        }
    }
}
