//! Answers of the network, token by token, as likely as it says. Every token is a pass over all that stands before it: nothing is
//! kept between passes.

use candle_core::Tensor;

use super::batch::Batch;
use super::linear::AdapterWeights;
use super::passes::Network;
use crate::error::TrainingError;
use crate::rng::Rng;
use crate::text::Encoded;

/// What is gone on from.
pub(crate) struct Start {
    pub(crate) prompt: Vec<u32>,
    /// The token behind which an answer is over.
    pub(crate) end: u32,
    /// Tokens of an answer, at most; one at least is drawn.
    pub(crate) limit: usize,
    /// What is drawn from.
    pub(crate) rng: Rng,
}

impl Network {
    /// The normed hidden state of each sequence's last token.
    pub(crate) fn ends(&self, batch: &Batch, adapter: &AdapterWeights) -> Result<Vec<Vec<f32>>, TrainingError> {
        Ok(self.last(batch, adapter)?.to_vec2::<f32>()?)
    }

    /// An answer to each prompt, behind it; what was drawn is taught. `stop` is asked before every token.
    pub(crate) fn sample(
        &self,
        starts: Vec<Start>,
        adapter: &AdapterWeights,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<Encoded>, TrainingError> {
        let begun = |start: &Start| Encoded { taught: vec![false; start.prompt.len()], ids: start.prompt.clone() };
        let mut answers: Vec<Encoded> = starts.iter().map(begun).collect();
        let mut open: Vec<(usize, Start)> = starts.into_iter().enumerate().collect();
        while !open.is_empty() {
            if stop() {
                return Err(TrainingError::Cancelled);
            }
            let batch = Batch::of(open.iter().map(|(at, _)| &answers[*at]));
            let scores = self.next_scores(&batch, adapter)?;
            for ((at, start), scores) in open.iter_mut().zip(&scores) {
                let token = draw(scores, start.rng.unit());
                answers[*at].ids.push(token);
                answers[*at].taught.push(true);
            }
            open.retain(|(at, start)| !is_over(&answers[*at], start));
        }
        Ok(answers)
    }

    /// Scores of all tokens behind the last one of each sequence.
    fn next_scores(&self, batch: &Batch, adapter: &AdapterWeights) -> Result<Vec<Vec<f32>>, TrainingError> {
        Ok(self.last(batch, adapter)?.matmul(&self.base.head().t()?)?.to_vec2::<f32>()?)
    }

    fn last(&self, batch: &Batch, adapter: &AdapterWeights) -> candle_core::Result<Tensor> {
        self.normed(&self.hidden(batch, adapter)?, &batch.ends)
    }
}

fn is_over(answer: &Encoded, start: &Start) -> bool {
    answer.ids.last() == Some(&start.end) || answer.ids.len() >= start.prompt.len() + start.limit
}

/// The token that a number between 0 and 1 falls on, where each has room by its probability.
fn draw(scores: &[f32], unit: f32) -> u32 {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |score: &f32| f64::from(score - most).exp();
    let mut left = f64::from(unit) * scores.iter().map(weight).sum::<f64>();
    let place = scores.iter().position(|score| {
        left -= weight(score);
        left < 0.0
    });
    // Rounding may leave a trifle behind the last one.
    place.unwrap_or(scores.len().saturating_sub(1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Family;
    use crate::testing::base;

    #[test]
    fn given_scores_then_each_token_has_room_by_its_probability() {
        let scores = [0.0, 2f32.ln(), 1f32.ln()]; // a quarter, a half, a quarter
        for (unit, token) in [(0.0, 0), (0.24, 0), (0.26, 1), (0.74, 1), (0.76, 2), (0.999_999, 2)] {
            assert_eq!(draw(&scores, unit), token, "{unit}");
        }
        assert_eq!(draw(&[f32::NEG_INFINITY, 800.0, -800.0], 0.5), 1);
    }

    fn starts(limit: usize) -> Vec<Start> {
        let start = |at: u64| Start { prompt: vec![3, 4, at as u32], end: 7, limit, rng: Rng::of(5, &[at]) };
        (0..6).map(start).collect()
    }

    #[test]
    fn given_prompts_then_answers_are_drawn_until_their_end_or_limit_and_alike_whoever_is_beside_them() {
        let network = Network::new(base(Family::Llama));
        let adapter = AdapterWeights::default();
        let answers = network.sample(starts(9), &adapter, &|| false).unwrap();
        for (answer, start) in answers.iter().zip(starts(9)) {
            assert_eq!(answer.ids[..3], start.prompt[..]);
            assert_eq!(answer.taught_tokens(), answer.ids.len() - 3);
            let drawn = &answer.ids[3..];
            assert!(drawn.len() == 9 || drawn.last() == Some(&7), "{drawn:?}");
            assert!(!drawn.is_empty() && !drawn[..drawn.len() - 1].contains(&7), "{drawn:?}");
        }
        assert!(answers.windows(2).any(|pair| pair[0].ids[3..] != pair[1].ids[3..]));
        for (at, start) in starts(9).into_iter().enumerate() {
            assert_eq!(network.sample(vec![start], &adapter, &|| false).unwrap()[0], answers[at]);
        }
        assert!(matches!(network.sample(starts(9), &adapter, &|| true), Err(TrainingError::Cancelled)));
    }

    #[test]
    fn given_sequences_then_their_last_hidden_states_are_those_that_score_the_next_token() {
        let network = Network::new(base(Family::Qwen2));
        let adapter = AdapterWeights::default();
        let answers = network.sample(starts(1), &adapter, &|| false).unwrap();
        let ends = network.ends(&Batch::of(&answers), &adapter).unwrap();
        assert_eq!((ends.len(), ends[0].len()), (6, 8));
        for (answer, end) in answers.iter().zip(&ends) {
            let alone = network.ends(&Batch::of([answer]), &adapter).unwrap();
            assert!(alone[0].iter().zip(end).all(|(one, other)| (one - other).abs() < 1e-5));
        }
    }
}
