//! How good a ranking is, by judgements of people (qrels).
//!
//! nDCG: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002, with the discount
//! `log2(rank + 1)` and the gain `2^grade - 1` of Burges et al., "Learning to rank using gradient descent", ICML 2005, so
//! that one excellent document outweighs a few fair ones. (trec_eval takes the grade itself.) MRR is the mean of `1 / rank` of the first relevant one.

use std::collections::HashMap;

/// Judgements of one query: grade by document, higher is better; above 0 is relevant.
pub type Judged = HashMap<String, f64>;

/// What the rankings of all queries came to, each figure between 0 and 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quality {
    /// Queries with a relevant document; others say nothing about a ranking.
    pub queries: usize,
    /// Mean nDCG over the first ten.
    pub ndcg_at_10: f64,
    /// Mean share of the relevant documents among the first ten.
    pub recall_at_10: f64,
    /// The same among the first hundred.
    pub recall_at_100: f64,
    /// Mean reciprocal rank of the first relevant document.
    pub mrr: f64,
}

/// nDCG over the first `k` of a ranking; 0 when nothing is relevant.
pub fn ndcg(ranking: &[String], judged: &Judged, k: usize) -> f64 {
    let mut ideal: Vec<f64> = judged.values().map(|grade| gain(*grade)).collect();
    ideal.sort_by(|a, b| b.total_cmp(a));
    let best = discounted(ideal.into_iter().take(k));
    if best == 0.0 {
        return 0.0;
    }
    let of = |document: &String| gain(judged.get(document).copied().unwrap_or(0.0));
    discounted(ranking.iter().take(k).map(of)) / best
}

/// What a grade is worth: twice and one more than the grade below; nothing from 0 down.
pub fn gain(grade: f64) -> f64 {
    grade.max(0.0).exp2() - 1.0
}

fn discounted(gains: impl Iterator<Item = f64>) -> f64 {
    gains.zip(2u32..).map(|(gain, rank)| gain / f64::from(rank).log2()).sum()
}

/// Share of the relevant documents among the first `k`; 0 when nothing is relevant.
pub fn recall(ranking: &[String], judged: &Judged, k: usize) -> f64 {
    let relevant = judged.values().filter(|gain| **gain > 0.0).count();
    if relevant == 0 {
        return 0.0;
    }
    let found = ranking.iter().take(k).filter(|document| judged.get(*document).is_some_and(|gain| *gain > 0.0)).count();
    found as f64 / relevant as f64
}

/// `1 / rank` of the first relevant document; 0 when none is in the ranking.
pub fn reciprocal_rank(ranking: &[String], judged: &Judged) -> f64 {
    let first = ranking.iter().position(|document| judged.get(document).is_some_and(|gain| *gain > 0.0));
    first.map_or(0.0, |at| 1.0 / (at + 1) as f64)
}

/// Means over queries, each with its ranking of different documents.
pub fn quality<'q>(queries: impl IntoIterator<Item = (&'q [String], &'q Judged)>) -> Quality {
    let mut sums = Quality::default();
    for (ranking, judged) in queries {
        if !judged.values().any(|gain| *gain > 0.0) {
            continue;
        }
        sums.queries += 1;
        sums.ndcg_at_10 += ndcg(ranking, judged, 10);
        sums.recall_at_10 += recall(ranking, judged, 10);
        sums.recall_at_100 += recall(ranking, judged, 100);
        sums.mrr += reciprocal_rank(ranking, judged);
    }
    let mean = |sum: f64| if sums.queries == 0 { 0.0 } else { sum / sums.queries as f64 };
    Quality {
        queries: sums.queries,
        ndcg_at_10: mean(sums.ndcg_at_10),
        recall_at_10: mean(sums.recall_at_10),
        recall_at_100: mean(sums.recall_at_100),
        mrr: mean(sums.mrr),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(pairs: &[(&str, f64)]) -> Judged {
        pairs.iter().map(|(document, gain)| ((*document).to_owned(), *gain)).collect()
    }

    fn ranking(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn given_rankings_when_measured_then_the_figures_are_those_of_the_definitions() {
        let relevant = judged(&[("a", 3.0), ("b", 2.0), ("c", 0.0)]);
        assert!((ndcg(&ranking("a b"), &relevant, 10) - 1.0).abs() < 1e-12);
        let ideal = 7.0 + 3.0 / 3f64.log2();
        assert!((ndcg(&ranking("b a"), &relevant, 10) - (3.0 + 7.0 / 3f64.log2()) / ideal).abs() < 1e-12);
        assert!((ndcg(&ranking("x a"), &relevant, 10) - (7.0 / 3f64.log2()) / ideal).abs() < 1e-12);
        assert_eq!(ndcg(&ranking("x a"), &relevant, 1), 0.0);
        assert_eq!(recall(&ranking("x c a"), &relevant, 3), 0.5);
        assert_eq!(reciprocal_rank(&ranking("x c a"), &relevant), 1.0 / 3.0);
        assert_eq!(
            (ndcg(&[], &relevant, 10), recall(&[], &relevant, 10), reciprocal_rank(&[], &relevant)),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn given_queries_without_relevant_documents_then_they_do_not_count() {
        let (good, none) = (judged(&[("a", 1.0)]), judged(&[("a", 0.0)]));
        let (first, second) = (ranking("a"), ranking("a"));
        let found = quality([(first.as_slice(), &good), (second.as_slice(), &none)]);
        assert_eq!((found.queries, found.ndcg_at_10, found.mrr), (1, 1.0, 1.0));
        assert_eq!(quality([]), Quality::default());
    }
}
