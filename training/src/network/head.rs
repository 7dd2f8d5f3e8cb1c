//! From hidden states to the probabilities of tokens, and back. The scores of all tokens of the vocabulary are never held for
//! more than a few rows at a time: for a large vocabulary they would be most of the memory.

use candle_core::{Device, Tensor};

/// Rows that are scored together: large enough that the product is fast, small enough that it stays in tens of megabytes.
const ROWS: usize = 64;

/// Log probabilities of tokens, and the gradient of their weighted sum.
pub(crate) struct Scores {
    /// Natural logarithms, one for each target.
    pub(crate) log_probabilities: Vec<f32>,
    /// Of the hidden states, where coefficients were given.
    pub(crate) gradient: Option<Tensor>,
}

/// Scores `targets` by the hidden states `[rows, hidden]`. With `coefficients`, one a row, the gradient of
/// `Σ coefficient · log probability` comes too.
pub(super) fn score(
    head: &Tensor,
    hidden: &Tensor,
    targets: &[u32],
    coefficients: Option<&[f32]>,
) -> candle_core::Result<Scores> {
    let (vocabulary, _) = head.dims2()?;
    let transposed = head.t()?;
    let mut log_probabilities = Vec::with_capacity(targets.len());
    let mut gradients = Vec::new();
    for (chunk, targets) in targets.chunks(ROWS).enumerate() {
        let from = chunk * ROWS;
        let rows = hidden.narrow(0, from, targets.len())?.contiguous()?;
        let mut logits = rows.matmul(&transposed)?.flatten_all()?.to_vec1::<f32>()?;
        for (at, (row, target)) in logits.chunks_exact_mut(vocabulary).zip(targets).enumerate() {
            let target = *target as usize;
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = row.iter().map(|score| f64::from((score - most).exp())).sum();
            let Some(own) = row.get(target) else { candle_core::bail!("token {target} is not in the vocabulary") };
            log_probabilities.push((f64::from(own - most) - sum.ln()) as f32);
            if let Some(coefficients) = coefficients {
                let coefficient = coefficients[from + at];
                let factor = -coefficient / sum as f32;
                row.iter_mut().for_each(|score| *score = factor * (*score - most).exp());
                row[target] += coefficient;
            }
        }
        if coefficients.is_some() {
            gradients.push(Tensor::from_vec(logits, (targets.len(), vocabulary), &Device::Cpu)?.matmul(head)?);
        }
    }
    let gradient = if gradients.is_empty() { None } else { Some(Tensor::cat(&gradients, 0)?) };
    Ok(Scores { log_probabilities, gradient })
}
