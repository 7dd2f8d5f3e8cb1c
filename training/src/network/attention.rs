//! Causal grouped-query attention of one sequence.

use candle_core::{CpuStorage, CustomOp1, D, Layout, Shape, Tensor};
use rayon::prelude::*;

use super::operations::Operations;
use super::{PIECE, floats, with_floats};

/// Softmax of scaled scores over what each query may see. Rows are queries of several heads, position after position; what lies
/// ahead is 0.
struct CausalSoftmax {
    scale: f32,
}

impl CustomOp1 for CausalSoftmax {
    fn name(&self) -> &'static str {
        "causal-softmax"
    }

    fn cpu_fwd(&self, scores: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (_, _, length) = layout.shape().dims3()?;
        let scores = floats(scores, layout)?;
        let mut output = vec![0f32; scores.len()];
        let rows = output.par_chunks_exact_mut(length).zip(scores.par_chunks_exact(length)).enumerate();
        rows.with_min_len(PIECE.div_ceil(length)).for_each(|(row, (out, scores))| {
            let seen = row % length + 1;
            let most = scores[..seen].iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0f32;
            for (out, score) in out[..seen].iter_mut().zip(scores) {
                *out = (self.scale * (score - most)).exp();
                sum += *out;
            }
            out[..seen].iter_mut().for_each(|out| *out /= sum);
        });
        Ok((CpuStorage::F32(output), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, weights: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let length = weights.dim(D::Minus1)?;
        let gradient = gradient.contiguous()?;
        let slopes = with_floats(weights, |weights| {
            with_floats(&gradient, |gradient| {
                let mut output = vec![0f32; weights.len()];
                let given = weights.par_chunks_exact(length).zip(gradient.par_chunks_exact(length));
                let rows = output.par_chunks_exact_mut(length).zip(given).enumerate();
                rows.with_min_len(PIECE.div_ceil(length)).for_each(|(row, (out, (weights, gradient)))| {
                    let seen = row % length + 1;
                    let along: f32 = weights[..seen].iter().zip(gradient).map(|(w, g)| w * g).sum();
                    for (out, (w, g)) in out[..seen].iter_mut().zip(weights.iter().zip(gradient)) {
                        *out = self.scale * w * (g - along);
                    }
                });
                output
            })
        })??;
        Tensor::from_vec(slopes, weights.shape().clone(), weights.device()).map(Some)
    }
}

/// Softmax of scaled scores `[any, queries, length]` over what each query may see.
pub(super) fn causal_softmax(scores: &Tensor, scale: f32) -> candle_core::Result<Tensor> {
    scores.apply_op1(CausalSoftmax { scale })
}

/// Heads of queries, of keys and values, and numbers of a head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) size: usize,
}

/// What each token takes from the tokens before it and itself: `[tokens, heads × size]` in and out.
pub(super) fn attend([q, k, v]: [&Tensor; 3], heads: Heads, operations: Operations) -> candle_core::Result<Tensor> {
    let (tokens, _) = q.dims2()?;
    let Heads { queries, keys, size } = heads;
    let group = queries / keys;
    // Queries that share keys lie behind each other, so that keys are not copied for each of them.
    let q = q.reshape((tokens, keys, group, size))?.permute((1, 2, 0, 3))?.contiguous()?;
    let q = q.reshape((keys, group * tokens, size))?;
    let k = k.reshape((tokens, keys, size))?.permute((1, 2, 0))?.contiguous()?;
    let v = v.reshape((tokens, keys, size))?.permute((1, 0, 2))?.contiguous()?;
    let scale = (size as f32).sqrt().recip();
    let weights = operations.causal_softmax(&q.matmul(&k)?, scale)?;
    let taken = weights.matmul(&v)?.reshape((keys, group, tokens, size))?;
    taken.permute((2, 0, 1, 3))?.contiguous()?.reshape((tokens, queries * size))
}
