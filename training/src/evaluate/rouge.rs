//! ROUGE (Lin, 2004), as the package `rouge-score` of Google Research computes it with its default of no stemming: words are runs of
//! `a-z0-9` of the lower-cased text; ROUGE-L is by the longest common subsequence of the whole texts.

use std::collections::HashMap;

/// Precision, recall and their harmonic mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Part of the answer that is in the reference.
    pub precision: f64,
    /// Part of the reference that is in the answer.
    pub recall: f64,
    /// The harmonic mean of both.
    pub fmeasure: f64,
}

impl Score {
    fn of(common: usize, prediction: usize, reference: usize) -> Self {
        let (precision, recall) = (common as f64 / prediction.max(1) as f64, common as f64 / reference.max(1) as f64);
        let sum = precision + recall;
        Self { precision, recall, fmeasure: if sum > 0.0 { 2.0 * precision * recall / sum } else { 0.0 } }
    }
}

/// The three measures of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rouge {
    /// Words.
    pub one: Score,
    /// Pairs of words.
    pub two: Score,
    /// The longest common subsequence.
    pub longest: Score,
}

/// Measures an answer; `None` when the reference has no words.
pub fn rouge(prediction: &str, reference: &str) -> Option<Rouge> {
    let (prediction, reference) = (prediction.to_lowercase(), reference.to_lowercase());
    let (prediction, reference) = (words(&prediction), words(&reference));
    if reference.is_empty() {
        return None;
    }
    let common = longest_common(&prediction, &reference);
    Some(Rouge {
        one: grams(&prediction, &reference, 1),
        two: grams(&prediction, &reference, 2),
        longest: Score::of(common, prediction.len(), reference.len()),
    })
}

fn words(text: &str) -> Vec<&str> {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.split(|c| !inside(c)).filter(|word| !word.is_empty()).collect()
}

fn grams(prediction: &[&str], reference: &[&str], n: usize) -> Score {
    let mut left: HashMap<&[&str], usize> = HashMap::new();
    reference.windows(n).for_each(|gram| *left.entry(gram).or_default() += 1);
    let mut common = 0;
    for gram in prediction.windows(n) {
        if let Some(count) = left.get_mut(gram).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    let count = |words: &[&str]| (words.len() + 1).saturating_sub(n);
    Score::of(common, count(prediction), count(reference))
}

fn longest_common(one: &[&str], other: &[&str]) -> usize {
    let mut row = vec![0usize; other.len() + 1];
    for word in one {
        let mut diagonal = 0;
        for (at, other) in other.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if word == other { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(score: Score, precision: f64, recall: f64, fmeasure: f64) {
        let all = [(score.precision, precision), (score.recall, recall), (score.fmeasure, fmeasure)];
        assert!(all.iter().all(|(found, wanted)| (found - wanted).abs() < 1e-4), "{score:?}");
    }

    #[test]
    fn given_the_example_of_the_reference_implementation_then_the_numbers_are_its_own() {
        // From the README of rouge-score: rouge1 and rougeL of these two texts.
        let found =
            rouge("The quick brown dog jumps on the log.", "The quick brown fox jumps over the lazy dog").unwrap();
        near(found.one, 0.75, 0.66666, 0.70588);
        near(found.longest, 0.625, 0.55555, 0.58823);
    }

    #[test]
    fn given_texts_then_case_and_marks_do_not_count_and_repeats_count_as_often_as_they_are_there() {
        near(rouge("Hello, WORLD!", "hello world").unwrap().two, 1.0, 1.0, 1.0);
        near(rouge("the the the", "the cat").unwrap().one, 0.33333, 0.5, 0.4);
        near(rouge("", "the cat").unwrap().longest, 0.0, 0.0, 0.0);
        near(rouge("cat", "cat").unwrap().two, 0.0, 0.0, 0.0);
        near(rouge("naïve café", "na ve caf").unwrap().one, 1.0, 1.0, 1.0);
        assert_eq!(rouge("a", " … "), None);
    }
}
