//! From hidden states to the probabilities of tokens, and back. The scores of all tokens of the vocabulary are never held for
//! all rows at a time: for a large vocabulary they would be most of the memory.

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use super::product;

/// Scores that are there at a time, 40 MiB of them. Every product goes over the whole matrix of the vocabulary, so that few large
/// ones are faster than many small ones.
const SCORES: usize = 10 << 20;
/// Rows that are scored together whatever the size of the vocabulary.
const FEWEST: usize = 16;

/// Rows that are scored together, at most.
pub(crate) fn rows_together(vocabulary: usize) -> usize {
    (SCORES / vocabulary.max(1)).max(FEWEST)
}

/// Rows of each product: all are about as large.
fn rows_of_each(rows: usize, vocabulary: usize) -> usize {
    rows.div_ceil(rows.div_ceil(rows_together(vocabulary)).max(1)).max(1)
}

/// Log probabilities of tokens, and their gradients.
pub(crate) struct Scores {
    /// Natural logarithms, one for each target.
    pub(crate) log_probabilities: Vec<f32>,
    /// Gradients of each log probability by its own hidden state, where they were wanted: `[rows, hidden]`. Whoever knows by how much
    /// a log probability counts multiplies its row, so that scores are computed once also where that depends on all of them.
    pub(crate) gradient: Option<Tensor>,
}

/// What is wanted of scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    LogProbabilities,
    Gradients,
}

/// Scores `targets` by the hidden states `[rows, hidden]`.
pub(super) fn score(head: &Tensor, hidden: &Tensor, targets: &[u32], wanted: Wanted) -> candle_core::Result<Scores> {
    let (vocabulary, _) = head.dims2()?;
    score_in(head, hidden, targets, wanted, rows_of_each(targets.len(), vocabulary))
}

/// The same, so many rows in each product.
fn score_in(
    head: &Tensor,
    hidden: &Tensor,
    targets: &[u32],
    wanted: Wanted,
    together: usize,
) -> candle_core::Result<Scores> {
    let (vocabulary, _) = head.dims2()?;
    let transposed = head.t()?;
    let mut log_probabilities = Vec::with_capacity(targets.len());
    let mut gradients = Vec::new();
    for (chunk, targets) in targets.chunks(together).enumerate() {
        let from = chunk * together;
        let rows = hidden.narrow(0, from, targets.len())?.contiguous()?;
        let mut logits = product(&rows, &transposed)?;
        let rows = logits.par_chunks_exact_mut(vocabulary).zip(targets);
        let found = rows.map(|(row, target)| of_row(row, *target as usize, wanted));
        log_probabilities.extend(found.collect::<candle_core::Result<Vec<f32>>>()?);
        if wanted == Wanted::Gradients {
            gradients.push(Tensor::from_vec(logits, (targets.len(), vocabulary), &Device::Cpu)?.matmul(head)?);
        }
    }
    let gradient = if gradients.is_empty() { None } else { Some(Tensor::cat(&gradients, 0)?) };
    Ok(Scores { log_probabilities, gradient })
}

/// The same of operations that every device has: scores stay where the hidden states are.
pub(super) fn composed_score(
    head: &Tensor,
    hidden: &Tensor,
    targets: &[u32],
    wanted: Wanted,
) -> candle_core::Result<Scores> {
    let (vocabulary, _) = head.dims2()?;
    // A GPU would read past the row without a word.
    if let Some(target) = targets.iter().find(|target| **target as usize >= vocabulary) {
        candle_core::bail!("token {target} is not in the vocabulary")
    }
    let (transposed, device) = (head.t()?, hidden.device());
    let mut log_probabilities = Vec::with_capacity(targets.len());
    let mut gradients = Vec::new();
    let together = rows_of_each(targets.len(), vocabulary);
    for (chunk, targets) in targets.chunks(together).enumerate() {
        let (from, count) = (chunk * together, targets.len());
        let logits = hidden.narrow(0, from, count)?.contiguous()?.matmul(&transposed)?;
        let most = logits.max_keepdim(1)?;
        let raised = logits.broadcast_sub(&most)?.exp()?;
        let sum = raised.sum_keepdim(1)?;
        let places = Tensor::from_slice(targets, (count, 1), device)?;
        let logs = ((logits.gather(&places, 1)? - most)? - sum.log()?)?;
        log_probabilities.extend(logs.flatten_all()?.to_vec1::<f32>()?);
        if wanted == Wanted::Gradients {
            let spread = raised.broadcast_div(&sum)?.neg()?;
            let ones = Tensor::ones((count, 1), spread.dtype(), device)?;
            gradients.push(spread.scatter_add(&places, &ones, 1)?.matmul(head)?);
        }
    }
    let gradient = if gradients.is_empty() { None } else { Some(Tensor::cat(&gradients, 0)?) };
    Ok(Scores { log_probabilities, gradient })
}

/// The log probability of `target` by a row of scores, which become its gradient where that is wanted.
fn of_row(row: &mut [f32], target: usize, wanted: Wanted) -> candle_core::Result<f32> {
    let Some(own) = row.get(target).copied() else { candle_core::bail!("token {target} is not in the vocabulary") };
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0f64;
    for score in row.iter_mut() {
        *score = (*score - most).exp();
        sum += f64::from(*score);
    }
    if wanted == Wanted::Gradients {
        let factor = -1.0 / sum as f32;
        row.iter_mut().for_each(|score| *score *= factor);
        row[target] += 1.0;
    }
    Ok((f64::from(own - most) - sum.ln()) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_any_number_of_rows_then_products_are_few_and_about_as_large() {
        let together = rows_together(49_152);
        assert_eq!((together, rows_together(151_936), rows_together(10_000_000)), (213, 69, FEWEST));
        for (rows, each) in [(0, 1), (1, 1), (80, 80), (213, 213), (214, 107), (500, 167)] {
            assert_eq!(rows_of_each(rows, 49_152), each, "{rows} rows");
        }
    }

    #[test]
    fn given_rows_that_are_scored_in_several_products_then_the_numbers_are_those_of_one() {
        const VOCABULARY: usize = 60;
        let numbers = |count: usize, step: usize| -> Vec<f32> {
            (0..count).map(|at| ((at * step) % 23) as f32 / 23.0 - 0.5).collect()
        };
        let head = Tensor::from_vec(numbers(2 * VOCABULARY, 7), (VOCABULARY, 2), &Device::Cpu).unwrap();
        let hidden = Tensor::from_vec(numbers(2 * 17, 5), (17, 2), &Device::Cpu).unwrap();
        let targets: Vec<u32> = (0..17).map(|at| at * 3).collect();
        let scored = |together| {
            let scores = score_in(&head, &hidden, &targets, Wanted::Gradients, together).unwrap();
            (scores.log_probabilities, scores.gradient.unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap())
        };
        let whole = scored(17);
        for together in [1, 4, 9, 16] {
            let parts = scored(together);
            for (parts, whole) in [(&parts.0, &whole.0), (&parts.1, &whole.1)] {
                assert_eq!(parts.len(), whole.len(), "{together} rows");
                assert!(parts.iter().zip(whole).all(|(part, whole)| (part - whole).abs() < 1e-6), "{together} rows");
            }
        }
    }
}
