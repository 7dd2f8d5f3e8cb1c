//! Causal grouped-query attention of one sequence.

use candle_core::{CpuStorage, CustomOp1, D, Layout, Shape, Tensor};

use super::floats;

/// Softmax over what each query may see. Rows are queries of several heads, position after position; what lies ahead is 0.
struct CausalSoftmax;

impl CustomOp1 for CausalSoftmax {
    fn name(&self) -> &'static str {
        "causal-softmax"
    }

    fn cpu_fwd(&self, scores: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (_, _, length) = layout.shape().dims3()?;
        let scores = floats(scores, layout)?;
        let mut output = vec![0f32; scores.len()];
        for (row, (scores, out)) in scores.chunks_exact(length).zip(output.chunks_exact_mut(length)).enumerate() {
            let seen = row % length + 1;
            let most = scores[..seen].iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0f32;
            for (out, score) in out[..seen].iter_mut().zip(scores) {
                *out = (score - most).exp();
                sum += *out;
            }
            out[..seen].iter_mut().for_each(|out| *out /= sum);
        }
        Ok((CpuStorage::F32(output), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, weights: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let weights = weights.detach();
        let weighted = (gradient * &weights)?;
        let sums = weighted.sum_keepdim(D::Minus1)?;
        (weighted - weights.broadcast_mul(&sums)?).map(Some)
    }
}

/// Heads of queries, of keys and values, and numbers of a head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) size: usize,
}

/// What each token takes from the tokens before it and itself: `[tokens, heads × size]` in and out.
pub(super) fn attend(q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads) -> candle_core::Result<Tensor> {
    let (tokens, _) = q.dims2()?;
    let Heads { queries, keys, size } = heads;
    let group = queries / keys;
    // Queries that share keys lie behind each other, so that keys are not copied for each of them.
    let q = q.reshape((tokens, keys, group, size))?.permute((1, 2, 0, 3))?.contiguous()?;
    let q = q.reshape((keys, group * tokens, size))?;
    let k = k.reshape((tokens, keys, size))?.permute((1, 2, 0))?.contiguous()?;
    let v = v.reshape((tokens, keys, size))?.permute((1, 0, 2))?.contiguous()?;
    let scores = (q.matmul(&k)? * (1.0 / (size as f64).sqrt()))?;
    let weights = scores.apply_op1(CausalSoftmax)?;
    let taken = weights.matmul(&v)?.reshape((keys, group, tokens, size))?;
    taken.permute((2, 0, 1, 3))?.contiguous()?.reshape((tokens, queries * size))
}
