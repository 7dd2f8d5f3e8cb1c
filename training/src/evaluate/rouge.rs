//! ROUGE (Lin, 2004), as the package `rouge-score` of Google Research computes it: words are runs of `a-z0-9` of the lower-cased text, and
//! with stemming those of more than three letters count by their stems; ROUGE-L is by the longest common subsequence of the whole texts,
//! ROUGE-Lsum by those of their lines.

use std::collections::{BTreeSet, HashMap};

use super::porter;

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

/// The four measures of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rouge {
    /// Words.
    pub one: Score,
    /// Pairs of words.
    pub two: Score,
    /// The longest common subsequence.
    pub longest: Score,
    /// For each line of the reference, what it has in common with any line of the answer.
    pub lines: Score,
}

/// Comparisons of words that a sample may need: what they come to is kept, in a quarter of a gigabyte.
const MAX_COMPARISONS: usize = 1 << 26;

/// Measures an answer by words or, with `stemming`, by their stems; or says why it can't be: the reference has no words, or the two
/// are too long to be compared.
pub fn rouge(prediction: &str, reference: &str, stemming: bool) -> Result<Rouge, String> {
    let lines = |text: &str| text.split('\n').map(|line| words(line, stemming)).collect::<Vec<_>>();
    let (prediction_lines, reference_lines) = (lines(prediction), lines(reference));
    let (prediction, reference) = (words(prediction, stemming), words(reference, stemming));
    if reference.is_empty() {
        return Err("the reference has no words".to_owned());
    }
    if prediction.len().saturating_mul(reference.len()) > MAX_COMPARISONS {
        let (ours, theirs) = (prediction.len(), reference.len());
        return Err(format!(
            "{ours} words can't be compared with {theirs}: at most {MAX_COMPARISONS} comparisons are made"
        ));
    }
    let common = table(&reference, &prediction)[reference.len()][prediction.len()];
    Ok(Rouge {
        one: grams(&prediction, &reference, 1),
        two: grams(&prediction, &reference, 2),
        longest: Score::of(common as usize, prediction.len(), reference.len()),
        lines: Score::of(common_of_lines(&prediction_lines, &reference_lines), prediction.len(), reference.len()),
    })
}

fn words(text: &str, stemming: bool) -> Vec<String> {
    let text = text.to_lowercase();
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let found = text.split(|c| !inside(c)).filter(|word| !word.is_empty());
    found.map(|word| if stemming && word.len() > 3 { porter::stem(word) } else { word.to_owned() }).collect()
}

fn grams(prediction: &[String], reference: &[String], n: usize) -> Score {
    let mut left: HashMap<&[String], usize> = HashMap::new();
    reference.windows(n).for_each(|gram| *left.entry(gram).or_default() += 1);
    let mut common = 0;
    for gram in prediction.windows(n) {
        if let Some(count) = left.get_mut(gram).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    let count = |words: &[String]| (words.len() + 1).saturating_sub(n);
    Score::of(common, count(prediction), count(reference))
}

/// Lengths of the longest common subsequences of all beginnings.
fn table(reference: &[String], prediction: &[String]) -> Vec<Vec<u32>> {
    let mut rows = vec![vec![0_u32; prediction.len() + 1]; reference.len() + 1];
    for (i, word) in reference.iter().enumerate() {
        for (j, other) in prediction.iter().enumerate() {
            rows[i + 1][j + 1] = if word == other { rows[i][j] + 1 } else { rows[i][j + 1].max(rows[i + 1][j]) };
        }
    }
    rows
}

/// Places in the reference of one of the longest common subsequences: the one that the original goes back along.
fn places(reference: &[String], prediction: &[String]) -> Vec<usize> {
    let rows = table(reference, prediction);
    let (mut i, mut j) = (reference.len(), prediction.len());
    let mut found = Vec::new();
    while i > 0 && j > 0 {
        if reference[i - 1] == prediction[j - 1] {
            found.push(i - 1);
            i -= 1;
            j -= 1;
        } else if rows[i][j - 1] > rows[i - 1][j] {
            j -= 1;
        } else {
            i -= 1;
        }
    }
    found
}

/// Words of the reference's lines that are in common with some line of the answer, each at most as often as both texts have it.
fn common_of_lines(prediction: &[Vec<String>], reference: &[Vec<String>]) -> usize {
    let mut ours = counts(prediction);
    let mut theirs = counts(reference);
    let mut common = 0;
    for line in reference {
        let union: BTreeSet<usize> = prediction.iter().flat_map(|other| places(line, other)).collect();
        for word in union.into_iter().map(|at| line[at].as_str()) {
            let (Some(our), Some(their)) = (ours.get_mut(word), theirs.get_mut(word)) else { continue };
            if *our > 0 && *their > 0 {
                *our -= 1;
                *their -= 1;
                common += 1;
            }
        }
    }
    common
}

fn counts(lines: &[Vec<String>]) -> HashMap<&str, usize> {
    let mut found = HashMap::new();
    lines.iter().flatten().for_each(|word| *found.entry(word.as_str()).or_default() += 1);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(score: Score, precision: f64, recall: f64, fmeasure: f64) {
        let all = [(score.precision, precision), (score.recall, recall), (score.fmeasure, fmeasure)];
        assert!(all.iter().all(|(found, wanted)| (found - wanted).abs() < 1e-4), "{score:?}");
    }

    /// A hundred samples each, and what `rouge-score` says of them; made by `scripts/bench/finetune_reference.py --write`. The first
    /// are sentences in which words were changed, the others whatever texts may be.
    const SAMPLES: [(&str, &str); 2] = [
        (include_str!("../../tests/data/answers.jsonl"), include_str!("../../tests/data/rouge.jsonl")),
        (include_str!("../../tests/data/texts.jsonl"), include_str!("../../tests/data/rouge_texts.jsonl")),
    ];

    /// Ours; a reference without words is unscored here, and 0 in the package.
    fn ours(prediction: &str, reference: &str, stemming: bool) -> [Score; 4] {
        let nothing = Score { precision: 0.0, recall: 0.0, fmeasure: 0.0 };
        match rouge(prediction, reference, stemming) {
            Ok(found) => [found.one, found.two, found.longest, found.lines],
            Err(reason) => {
                assert_eq!(reason, "the reference has no words", "{reference:?}");
                [nothing; 4]
            }
        }
    }

    #[test]
    fn given_samples_of_any_text_then_the_numbers_are_those_of_rouge_score() {
        for (samples, scores) in SAMPLES {
            let samples = crate::evaluate::samples(samples.as_bytes()).unwrap();
            let scores: Vec<serde_json::Value> =
                scores.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!((samples.len(), scores.len()), (100, 100));
            for (sample, wanted) in samples.iter().zip(&scores) {
                for (kind, stemming) in [("plain", false), ("stemmed", true)] {
                    let all = ours(&sample.prediction, &sample.reference, stemming);
                    for (score, name) in all.into_iter().zip(["rouge1", "rouge2", "rougeL", "rougeLsum"]) {
                        let numbers = [score.precision, score.recall, score.fmeasure];
                        for (at, number) in numbers.into_iter().enumerate() {
                            let wanted = wanted[kind][name][at].as_f64().unwrap();
                            assert!((number - wanted).abs() < 1e-4, "line {} {kind} {name}: {score:?}", sample.line);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn given_the_example_of_the_reference_implementation_then_the_numbers_are_its_own() {
        // From the README of rouge-score: rouge1 and rougeL of these two texts.
        let found =
            rouge("The quick brown dog jumps on the log.", "The quick brown fox jumps over the lazy dog", false)
                .unwrap();
        near(found.one, 0.75, 0.66666, 0.70588);
        near(found.longest, 0.625, 0.55555, 0.58823);
    }

    #[test]
    fn given_texts_then_case_and_marks_do_not_count_and_repeats_count_as_often_as_they_are_there() {
        near(rouge("Hello, WORLD!", "hello world", false).unwrap().two, 1.0, 1.0, 1.0);
        near(rouge("the the the", "the cat", false).unwrap().one, 0.33333, 0.5, 0.4);
        near(rouge("", "the cat", false).unwrap().longest, 0.0, 0.0, 0.0);
        near(rouge("cat", "cat", false).unwrap().two, 0.0, 0.0, 0.0);
        near(rouge("naïve café", "na ve caf", false).unwrap().one, 1.0, 1.0, 1.0);
        assert_eq!(rouge("a", " … ", false).unwrap_err(), "the reference has no words");
        let long = "a ".repeat(10_000);
        assert!(rouge(&long, &long, false).unwrap_err().contains("10000 words"));
    }
}
