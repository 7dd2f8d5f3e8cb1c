//! BERTScore (Zhang et al., "BERTScore: Evaluating Text Generation with BERT", ICLR 2020, arXiv 1904.09675), as the package `bert-score`
//! computes it: every token is matched with the most similar one of the other text, by the cosine of their vectors. What the encoder puts
//! around a text may be matched but counts nothing itself. One thing differs: a reference without words is unscored, not 0.

use std::collections::{HashMap, HashSet};

use super::Score;

/// The tokens of a text, as a layer of an encoder sees them; the lists have the same length.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenText {
    /// Numbers in the vocabulary.
    pub ids: Vec<u32>,
    /// Which the encoder has put around the text.
    pub added: Vec<bool>,
    /// Their vectors, of any length.
    pub vectors: Vec<Vec<f32>>,
}

impl TokenText {
    fn has_no_words(&self) -> bool {
        self.added.iter().all(|added| *added)
    }

    fn unit_vectors(&self) -> Vec<Vec<f32>> {
        let unit = |vector: &Vec<f32>| {
            let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
            vector.iter().map(|x| x / length).collect::<Vec<f32>>()
        };
        self.vectors.iter().map(unit).collect()
    }
}

/// How rare tokens are among the references: `ln((texts + 1) / (texts with the token + 1))`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rarity {
    texts: usize,
    with_token: HashMap<u32, usize>,
}

impl Rarity {
    /// Counts a reference's tokens, those that the encoder has put around it too: they are in all, and weigh nothing.
    pub fn add(&mut self, reference: &[u32]) {
        self.texts += 1;
        for id in reference.iter().collect::<HashSet<_>>() {
            *self.with_token.entry(*id).or_default() += 1;
        }
    }

    fn weight(&self, id: u32) -> f64 {
        let with_token = self.with_token.get(&id).copied().unwrap_or(0);
        ((self.texts + 1) as f64 / (with_token + 1) as f64).ln()
    }
}

/// Measures an answer, all tokens alike or by their rarity. The error says why there is no number.
pub fn bert_score(prediction: &TokenText, reference: &TokenText, rarity: Option<&Rarity>) -> Result<Score, String> {
    if reference.has_no_words() {
        return Err("the reference has no words".to_owned());
    }
    if prediction.has_no_words() {
        return Ok(Score { precision: 0.0, recall: 0.0, fmeasure: 0.0 });
    }
    let (ours, theirs) = (prediction.unit_vectors(), reference.unit_vectors());
    let mut best_of_ours = vec![f32::NEG_INFINITY; ours.len()];
    let mut best_of_theirs = vec![f32::NEG_INFINITY; theirs.len()];
    for (one, best_of_one) in ours.iter().zip(&mut best_of_ours) {
        for (other, best_of_other) in theirs.iter().zip(&mut best_of_theirs) {
            let cosine: f32 = one.iter().zip(other).map(|(x, y)| x * y).sum();
            *best_of_one = best_of_one.max(cosine);
            *best_of_other = best_of_other.max(cosine);
        }
    }
    let unweighted = |what: &str| format!("no token of the {what} has a weight");
    let precision = mean(&best_of_ours, &weights(prediction, rarity)).ok_or_else(|| unweighted("prediction"))?;
    let recall = mean(&best_of_theirs, &weights(reference, rarity)).ok_or_else(|| unweighted("reference"))?;
    let sum = precision + recall;
    let fmeasure = if sum == 0.0 { 0.0 } else { 2.0 * precision * recall / sum };
    Ok(Score { precision, recall, fmeasure })
}

/// A token that stands around the text weighs nothing, nor does the same one where a text spells it out.
fn weights(text: &TokenText, rarity: Option<&Rarity>) -> Vec<f64> {
    let around: HashSet<u32> =
        text.ids.iter().zip(&text.added).filter(|(_, added)| **added).map(|(id, _)| *id).collect();
    let weight = |id: &u32| match rarity {
        _ if around.contains(id) => 0.0,
        Some(rarity) => rarity.weight(*id),
        None => 1.0,
    };
    text.ids.iter().map(weight).collect()
}

fn mean(values: &[f32], weights: &[f64]) -> Option<f64> {
    let all: f64 = weights.iter().sum();
    let sum: f64 = values.iter().zip(weights).map(|(value, weight)| f64::from(*value) * weight).sum();
    (all > 0.0).then_some(sum / all)
}

/// What unrelated texts come to at a layer; scores are stretched so that this is 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Baseline(Score);

impl Baseline {
    /// Reads the row of `layer` from a file as `bert-score` has them: comma separated, the columns `LAYER,P,R,F`.
    pub fn read(text: &str, layer: usize) -> Result<Self, String> {
        for (number, line) in (2..).zip(text.lines().skip(1).filter(|line| !line.trim().is_empty())) {
            let cells: Vec<f64> = line
                .split(',')
                .map(|cell| cell.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number < 1e6))
                .collect::<Option<_>>()
                .unwrap_or_default();
            let [of, precision, recall, fmeasure] = cells[..] else {
                return Err(format!("row {number} is not LAYER,P,R,F: {line:?}"));
            };
            if of != layer as f64 {
                continue;
            }
            if [precision, recall, fmeasure].iter().any(|number| *number >= 1.0) {
                return Err(format!("row {number} has a baseline of 1 or more"));
            }
            return Ok(Self(Score { precision, recall, fmeasure }));
        }
        Err(format!("it has no row of layer {layer}"))
    }

    /// Stretches a score.
    pub fn rescaled(&self, score: Score) -> Score {
        let stretched = |value: f64, base: f64| (value - base) / (1.0 - base);
        Score {
            precision: stretched(score.precision, self.0.precision),
            recall: stretched(score.recall, self.0.recall),
            fmeasure: stretched(score.fmeasure, self.0.fmeasure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words between two tokens of the encoder's, 1 and 2, which lie far from everything.
    fn text(words: &[(u32, [f32; 3])]) -> TokenText {
        let mut all = vec![(1, [0.0, 0.0, -1.0])];
        all.extend_from_slice(words);
        all.push((2, [0.0, 0.0, -2.0]));
        let last = all.len() - 1;
        TokenText {
            ids: all.iter().map(|(id, _)| *id).collect(),
            added: (0..all.len()).map(|at| at == 0 || at == last).collect(),
            vectors: all.iter().map(|(_, vector)| vector.to_vec()).collect(),
        }
    }

    fn near(score: Score, precision: f64, recall: f64) {
        let fmeasure = 2.0 * precision * recall / (precision + recall);
        let all = [(score.precision, precision), (score.recall, recall), (score.fmeasure, fmeasure)];
        assert!(all.iter().all(|(found, wanted)| (found - wanted).abs() < 1e-6), "{score:?}");
    }

    const EAST: (u32, [f32; 3]) = (10, [2.0, 0.0, 0.0]);
    const NORTH: (u32, [f32; 3]) = (11, [0.0, 5.0, 0.0]);
    const NORTH_EAST: (u32, [f32; 3]) = (12, [0.6, 0.8, 0.0]);

    #[test]
    fn given_two_texts_then_each_token_counts_by_its_best_match_whatever_the_length_of_vectors() {
        near(bert_score(&text(&[EAST, NORTH]), &text(&[NORTH, EAST]), None).unwrap(), 1.0, 1.0);
        near(bert_score(&text(&[EAST]), &text(&[EAST, NORTH_EAST]), None).unwrap(), 1.0, 0.8);
        near(bert_score(&text(&[EAST, NORTH]), &text(&[NORTH_EAST]), None).unwrap(), 0.7, 0.8);
    }

    #[test]
    fn given_rarities_then_common_tokens_count_less_and_those_in_all_texts_nothing() {
        let mut rarity = Rarity::default();
        rarity.add(&[1, 10, 10, 2]);
        rarity.add(&[1, 10, 12, 2]);
        let (two, one) = (3.0_f64.ln(), (3.0_f64 / 2.0).ln());
        assert_eq!((rarity.weight(1), rarity.weight(10)), (0.0, 0.0));
        // 11 is in no text and weighs `two`, 12 is in one.
        let score = bert_score(&text(&[NORTH, NORTH_EAST]), &text(&[NORTH_EAST]), Some(&rarity)).unwrap();
        near(score, (0.8 * two + one) / (two + one), 1.0);
        assert!(bert_score(&text(&[EAST]), &text(&[NORTH_EAST]), Some(&rarity)).unwrap_err().contains("prediction"));
    }

    #[test]
    fn given_texts_without_words_then_an_answer_is_0_and_a_reference_is_unscored() {
        assert_eq!(bert_score(&text(&[]), &text(&[EAST]), None).unwrap().fmeasure, 0.0);
        assert!(bert_score(&text(&[EAST]), &text(&[]), None).is_err());
    }

    #[test]
    fn given_a_baseline_file_then_its_row_is_found_and_broken_ones_are_told() {
        let file = "LAYER,P,R,F\n0,0.25,0.5,0.4\r\n1,0.5,0.5,0.5\n";
        let baseline = Baseline::read(file, 0).unwrap();
        let score = baseline.rescaled(Score { precision: 1.0, recall: 0.5, fmeasure: 0.7 });
        assert!(score.precision == 1.0 && score.recall == 0.0 && (score.fmeasure - 0.5).abs() < 1e-9);
        for (file, layer) in
            [(file, 2), ("", 0), ("LAYER,P,R,F\n0,a,0,0\n", 0), ("LAYER,P,R,F\n0,0.1\n", 0), ("x\n0,1,0,0", 0)]
        {
            assert!(Baseline::read(file, layer).is_err(), "{file:?}");
        }
    }
}
