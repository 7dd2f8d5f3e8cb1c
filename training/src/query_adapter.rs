//! Learns from judgements where the vector of a question should point: a square matrix `A`, so that `q + qA` is nearer to what people found
//! relevant. Vectors of passages stay as they are, so that nothing is embedded again.
//!
//! The loss is that of ListNet, the top one (Cao et al., "Learning to rank: from pairwise approach to listwise approach", ICML 2007): the
//! cross-entropy between the shares of the gains and the softmax of the scaled cosines over a question's candidates. The optimizer is Adam
//! (Kingma and Ba, ICLR 2015) over all questions at a time, from `A = 0`, so that the same judgements give the same matrix.

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use crate::error::TrainingError;

/// What cosines are multiplied by before the softmax.
const SCALE: f32 = 20.0;
/// Weight of the sum of the matrix's squares.
const DECAY: f32 = 0.01;
const STEPS: i32 = 100;
const RATE: f32 = 0.01;
const BETA_1: f32 = 0.9;
const BETA_2: f32 = 0.999;
const EPSILON: f32 = 1e-8;
/// Questions that are computed together: what bounds the memory.
const BATCH: usize = 128;

/// A question with what it could find.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Its vector, of length 1.
    pub vector: Vec<f32>,
    /// Passages by their place, each once, with their gains: 0 of what is not relevant. One at least is above 0.
    pub candidates: Vec<(usize, f32)>,
}

/// Vectors of passages, all of one length, in one piece.
#[derive(Debug)]
pub struct Passages {
    vectors: Tensor,
    transposed: Tensor,
    count: usize,
    dimensions: usize,
}

impl Passages {
    /// Passages of vectors that have length 1 and `dimensions` numbers each.
    pub fn new(vectors: Vec<f32>, dimensions: usize) -> Result<Self, TrainingError> {
        let count = vectors.len() / dimensions.max(1);
        let vectors = Tensor::from_vec(vectors, (count, dimensions), &Device::Cpu)?;
        let transposed = vectors.t()?.contiguous()?;
        Ok(Self { vectors, transposed, count, dimensions })
    }
}

/// The matrix, row by row. `stop` is asked before every step.
///
/// # Errors
/// [`TrainingError::Cancelled`] when it was stopped, [`TrainingError::Diverged`] when a number of the matrix is none.
pub fn fit(passages: &Passages, questions: &[&Question], stop: &dyn Fn() -> bool) -> Result<Vec<f32>, TrainingError> {
    let size = passages.dimensions * passages.dimensions;
    let (mut matrix, mut mean, mut square) = (vec![0.0_f32; size], vec![0.0_f32; size], vec![0.0_f32; size]);
    for step in 1..=STEPS {
        if stop() {
            return Err(TrainingError::Cancelled);
        }
        let gradient = gradient(passages, questions, &matrix)?;
        let (bias_1, bias_2) = (1.0 - BETA_1.powi(step), 1.0 - BETA_2.powi(step));
        let moments = mean.par_iter_mut().zip(&mut square);
        matrix.par_iter_mut().zip(moments).zip(gradient).for_each(|((weight, (mean, square)), slope)| {
            let slope = slope + 2.0 * DECAY * *weight;
            *mean = BETA_1 * *mean + (1.0 - BETA_1) * slope;
            *square = BETA_2 * *square + (1.0 - BETA_2) * slope * slope;
            *weight -= RATE * (*mean / bias_1) / ((*square / bias_2).sqrt() + EPSILON);
        });
    }
    match matrix.iter().all(|weight| weight.is_finite()) {
        true => Ok(matrix),
        false => Err(TrainingError::Diverged { step: STEPS as u64 }),
    }
}

/// The mean slope of the loss in every number of the matrix.
fn gradient(passages: &Passages, questions: &[&Question], matrix: &[f32]) -> Result<Vec<f32>, TrainingError> {
    let dimensions = passages.dimensions;
    let matrix = Tensor::from_slice(matrix, (dimensions, dimensions), &Device::Cpu)?;
    let mut sum: Option<Tensor> = None;
    for batch in questions.chunks(BATCH) {
        let flat: Vec<f32> = batch.iter().flat_map(|question| question.vector.iter().copied()).collect();
        let asked = Tensor::from_vec(flat, (batch.len(), dimensions), &Device::Cpu)?;
        let moved = (&asked + asked.matmul(&matrix)?)?;
        let lengths = moved.sqr()?.sum_keepdim(1)?.sqrt()?.maximum(f32::EPSILON)?;
        let turned = moved.broadcast_div(&lengths)?;
        let cosines = turned.matmul(&passages.transposed)?.flatten_all()?.to_vec1::<f32>()?;
        let slopes = slopes(batch, cosines, passages.count, questions.len() as f32);
        let slopes =
            Tensor::from_vec(slopes, (batch.len(), passages.count), &Device::Cpu)?.matmul(&passages.vectors)?;
        // A vector's length does not count: what would change it alone is no slope.
        let along = (&slopes * &turned)?.sum_keepdim(1)?;
        let slopes = (slopes - turned.broadcast_mul(&along)?)?.broadcast_div(&lengths)?;
        let part = asked.t()?.matmul(&slopes)?;
        sum = Some(match sum {
            Some(sum) => (sum + part)?,
            None => part,
        });
    }
    match sum {
        Some(sum) => Ok(sum.flatten_all()?.to_vec1()?),
        None => Ok(vec![0.0; dimensions * dimensions]),
    }
}

/// Of each question the slope of its loss in the cosine with every passage; none with what is no candidate.
fn slopes(batch: &[&Question], mut cosines: Vec<f32>, passages: usize, questions: f32) -> Vec<f32> {
    let rows = cosines.par_chunks_mut(passages.max(1)).zip(batch);
    rows.for_each(|(row, question)| {
        let scores: Vec<f32> = question.candidates.iter().map(|(at, _)| SCALE * row[*at]).collect();
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shares: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
        let (all, gains) = (shares.iter().sum::<f32>(), question.candidates.iter().map(|(_, gain)| gain).sum::<f32>());
        row.fill(0.0);
        for ((at, gain), share) in question.candidates.iter().zip(shares) {
            row[*at] = SCALE * (share / all - gain / gains) / questions;
        }
    });
    cosines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(vector: &[f32]) -> Vec<f32> {
        let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
        vector.iter().map(|number| number / length).collect()
    }

    /// Numbers from -1 to 1 that follow from the seed.
    fn numbers(seed: u64) -> impl Iterator<Item = f32> {
        let mut state = seed;
        std::iter::from_fn(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some((state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0)
        })
    }

    fn vectors(seed: u64, count: usize, dimensions: usize) -> Vec<Vec<f32>> {
        let mut source = numbers(seed);
        (0..count).map(|_| unit(&source.by_ref().take(dimensions).collect::<Vec<_>>())).collect()
    }

    fn applied(vector: &[f32], matrix: &[f32]) -> Vec<f32> {
        let d = vector.len();
        let moved: Vec<f32> = (0..d)
            .map(|to| vector[to] + (0..d).map(|from| vector[from] * matrix[from * d + to]).sum::<f32>())
            .collect();
        unit(&moved)
    }

    fn loss(passages: &[Vec<f32>], questions: &[Question], matrix: &[f32]) -> f64 {
        let each = questions.iter().map(|question| {
            let asked = applied(&question.vector, matrix);
            let cosine = |at: usize| asked.iter().zip(&passages[at]).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            let scores: Vec<f64> = question.candidates.iter().map(|(at, _)| f64::from(SCALE) * cosine(*at)).collect();
            let all = scores.iter().map(|score| score.exp()).sum::<f64>().ln();
            let gains: f64 = question.candidates.iter().map(|(_, gain)| f64::from(*gain)).sum();
            let parts = question.candidates.iter().zip(&scores);
            parts.map(|((_, gain), score)| -f64::from(*gain) / gains * (score - all)).sum::<f64>()
        });
        each.sum::<f64>() / questions.len() as f64
    }

    fn asked(vectors: Vec<Vec<f32>>, candidates: impl Fn(usize) -> Vec<(usize, f32)>) -> Vec<Question> {
        vectors.into_iter().enumerate().map(|(at, vector)| Question { vector, candidates: candidates(at) }).collect()
    }

    #[test]
    fn given_a_matrix_when_its_slopes_are_computed_then_they_are_those_of_the_loss() {
        let (dimensions, passages) = (4, vectors(1, 6, 4));
        let questions = asked(vectors(2, 3, 4), |at| vec![(at, 3.0), (at + 1, 1.0), (at + 2, 0.0), (5, 0.0)]);
        let matrix: Vec<f32> = numbers(3).take(dimensions * dimensions).map(|number| number / 4.0).collect();
        let flat = Passages::new(passages.concat(), dimensions).unwrap();
        let slopes = gradient(&flat, &questions.iter().collect::<Vec<_>>(), &matrix).unwrap();
        for (at, slope) in slopes.iter().enumerate() {
            let moved = |by: f32| {
                let mut moved = matrix.clone();
                moved[at] += by;
                loss(&passages, &questions, &moved)
            };
            let measured = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!(
                (measured - f64::from(*slope)).abs() < 0.02 * measured.abs().max(1.0),
                "{at}: {slope}, not {measured}"
            );
        }
    }

    #[test]
    fn given_questions_that_all_point_aside_when_a_matrix_is_fitted_then_new_ones_point_to_what_is_relevant() {
        // What is relevant lies where the question points once its numbers are turned around.
        let dimensions = 8;
        let turned = |vector: &Vec<f32>| vector.iter().rev().copied().collect::<Vec<f32>>();
        let all = vectors(4, 80, dimensions);
        let passages: Vec<Vec<f32>> = all.iter().map(turned).collect();
        let candidates = |at: usize| (0..80).map(|passage| (passage, f32::from(u8::from(passage == at)))).collect();
        let questions = asked(all, candidates);
        let (learned, new) = questions.split_at(60);
        let flat = Passages::new(passages.concat(), dimensions).unwrap();
        let matrix = fit(&flat, &learned.iter().collect::<Vec<_>>(), &|| false).unwrap();
        let rank = |question: &Question, matrix: &[f32]| {
            let asked = applied(&question.vector, matrix);
            let score = |passage: &Vec<f32>| asked.iter().zip(passage).map(|(a, b)| a * b).sum::<f32>();
            let wanted = question.candidates.iter().find(|(_, gain)| *gain > 0.0).unwrap().0;
            passages.iter().filter(|passage| score(passage) > score(&passages[wanted])).count()
        };
        let ranks = |matrix: &[f32]| new.iter().map(|question| rank(question, matrix)).sum::<usize>();
        let (before, after) = (ranks(&vec![0.0; dimensions * dimensions]), ranks(&matrix));
        assert!(4 * after < before, "{before} before, {after} after");
    }

    #[test]
    fn given_more_questions_than_are_computed_together_when_a_matrix_is_fitted_twice_then_it_is_the_same() {
        let passages = vectors(5, 12, 3);
        let questions = asked(vectors(6, BATCH + 7, 3), |at| vec![(at % 12, 1.0), ((at + 5) % 12, 0.0)]);
        let flat = Passages::new(passages.concat(), 3).unwrap();
        let questions: Vec<&Question> = questions.iter().collect();
        let fitted = |questions: &[&Question]| fit(&flat, questions, &|| false).unwrap();
        assert_eq!(fitted(&questions), fitted(&questions));
        assert!(fitted(&[]).iter().all(|weight| *weight == 0.0));
    }

    #[test]
    fn given_a_fit_that_nobody_waits_for_any_more_when_its_next_step_comes_then_it_is_given_up() {
        let passages = vectors(7, 4, 3);
        let questions = asked(vectors(8, 2, 3), |at| vec![(at, 1.0), (at + 1, 0.0)]);
        let flat = Passages::new(passages.concat(), 3).unwrap();
        let steps = std::cell::Cell::new(0);
        let third = || steps.replace(steps.get() + 1) == 2;
        let given_up = fit(&flat, &questions.iter().collect::<Vec<_>>(), &third);
        assert!(matches!(given_up, Err(TrainingError::Cancelled)), "{given_up:?}");
        assert_eq!(steps.get(), 3);
    }

    #[test]
    fn given_a_vector_that_is_no_number_when_a_matrix_is_fitted_then_there_is_none() {
        let mut passages = vectors(9, 4, 3);
        passages[1][2] = f32::NAN;
        let questions = asked(vectors(10, 2, 3), |at| vec![(at, 1.0), (at + 1, 0.0)]);
        let flat = Passages::new(passages.concat(), 3).unwrap();
        let none = fit(&flat, &questions.iter().collect::<Vec<_>>(), &|| false);
        assert!(matches!(none, Err(TrainingError::Diverged { .. })), "{none:?}");
    }
}
