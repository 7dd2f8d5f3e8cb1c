//! How operations are computed: each as one of its own on the CPU, or of candle's own operations, which every device has and which
//! bring their backward. Both give the same numbers, but for rounding.

use candle_core::{D, Device, Tensor};

use super::attention::{Attention, Heads};
use super::batch::{Batch, Span};
use super::rope::{Angles, Frequencies};
use super::{gated, head, norm};

/// How operations are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operations {
    /// Each as one, which keeps little and goes over its numbers once.
    Fused,
    /// Of candle's.
    Composed,
}

impl Operations {
    /// What a device can do.
    pub(super) fn of(device: &Device) -> Self {
        if device.is_cpu() { Operations::Fused } else { Operations::Composed }
    }

    /// The norm of each row of `input`.
    pub(super) fn rms_norm(self, input: &Tensor, weight: &Tensor, epsilon: f64) -> candle_core::Result<Tensor> {
        match self {
            Operations::Fused => norm::rms_norm(input, weight, epsilon),
            Operations::Composed => {
                let scale = (input.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?.recip()?;
                input.broadcast_mul(&scale)?.broadcast_mul(weight)
            }
        }
    }

    /// `silu(gate) · up`, number by number.
    pub(super) fn gated(self, gate: &Tensor, up: &Tensor) -> candle_core::Result<Tensor> {
        match self {
            Operations::Fused => gated::gated(gate, up),
            Operations::Composed => gate.silu()? * up,
        }
    }

    /// Scores `targets` by the hidden states, as [`head::score`] says.
    pub(super) fn score(
        self,
        head: &Tensor,
        hidden: &Tensor,
        targets: &[u32],
        wanted: head::Wanted,
    ) -> candle_core::Result<head::Scores> {
        match self {
            Operations::Fused => head::score(head, hidden, targets, wanted),
            Operations::Composed => head::composed_score(head, hidden, targets, wanted),
        }
    }

    /// How a batch's heads are turned.
    pub(super) fn rotation(
        self,
        frequencies: &Frequencies,
        batch: &Batch,
        device: &Device,
    ) -> candle_core::Result<Rotation> {
        let angles = frequencies.angles(batch.longest());
        match self {
            Operations::Fused => Ok(Rotation::Fused(angles)),
            Operations::Composed => {
                let (sin, cos) = angles.tables(&batch.positions, device)?;
                Ok(Rotation::Composed { sin, cos })
            }
        }
    }
}

/// The angles that the heads of a batch are turned by.
pub(super) enum Rotation {
    /// For the operation of its own, by position.
    Fused(Angles),
    /// For candle's, `[rows, 1, half a head]` each.
    Composed {
        /// Sines.
        sin: Tensor,
        /// Cosines.
        cos: Tensor,
    },
}

impl Rotation {
    /// What each token takes from the tokens before it and itself: `[tokens, heads × size]` in and out.
    pub(super) fn attend(&self, [q, k, v]: [&Tensor; 3], heads: Heads, spans: &[Span]) -> candle_core::Result<Tensor> {
        match self {
            Rotation::Fused(angles) => Attention { heads, spans, angles }.forward([q, k, v]),
            Rotation::Composed { sin, cos } => {
                let (q, k) = (composed_turn(q, sin, cos)?, composed_turn(k, sin, cos)?);
                let attend = |span: &Span| composed_attention([&q, &k, v], span, heads);
                Tensor::cat(&spans.iter().map(attend).collect::<candle_core::Result<Vec<Tensor>>>()?, 0)
            }
        }
    }

    /// Gradients of queries, keys and values, where that of what was taken is `upper`. candle records its own.
    pub(super) fn attend_back(
        &self,
        given: [&Tensor; 3],
        upper: &[f32],
        heads: Heads,
        spans: &[Span],
    ) -> candle_core::Result<[Tensor; 3]> {
        match self {
            Rotation::Fused(angles) => Attention { heads, spans, angles }.backward(given, upper),
            Rotation::Composed { .. } => {
                candle_core::bail!("attention of candle's operations has its way back recorded")
            }
        }
    }
}

fn composed_turn(input: &Tensor, sin: &Tensor, cos: &Tensor) -> candle_core::Result<Tensor> {
    let (rows, width) = input.dims2()?;
    let half = sin.dim(D::Minus1)?;
    let heads = input.reshape((rows, width / (2 * half), 2 * half))?;
    let (x, y) = (heads.narrow(2, 0, half)?, heads.narrow(2, half, half)?);
    let first = (x.broadcast_mul(cos)? - y.broadcast_mul(sin)?)?;
    let second = (y.broadcast_mul(cos)? + x.broadcast_mul(sin)?)?;
    Tensor::cat(&[first, second], 2)?.reshape((rows, width))
}

/// What the tokens of a span take.
fn composed_attention([q, k, v]: [&Tensor; 3], span: &Span, heads: Heads) -> candle_core::Result<Tensor> {
    let Heads { queries, keys, size } = heads;
    let (group, own, seen) = (queries / keys, span.length, span.seen());
    let places: Vec<u32> = span.places().map(|place| place as u32).collect();
    let places = Tensor::from_vec(places, seen, q.device())?;
    // Queries that share keys lie behind each other, so that keys are not copied for each of them.
    let q = q.narrow(0, span.start, own)?.reshape((own, keys, group, size))?.permute((1, 2, 0, 3))?.contiguous()?;
    let q = q.reshape((keys, group * own, size))?;
    let k = k.index_select(&places, 0)?.reshape((seen, keys, size))?.permute((1, 2, 0))?.contiguous()?;
    let v = v.index_select(&places, 0)?.reshape((seen, keys, size))?.permute((1, 0, 2))?.contiguous()?;
    let weights = composed_softmax(&q.matmul(&k)?, span, f64::from((size as f32).sqrt().recip()))?;
    let taken = weights.matmul(&v)?.reshape((keys, group, own, size))?;
    taken.permute((2, 0, 1, 3))?.contiguous()?.reshape((own, queries * size))
}

/// Softmax of scaled scores `[any, queries, seen]` over what each query may see; queries lie position after position.
fn composed_softmax(scores: &Tensor, span: &Span, scale: f64) -> candle_core::Result<Tensor> {
    let (heads, queries, seen) = scores.dims3()?;
    let ahead = |at: usize| if at % seen > span.before.len() + at / seen { f32::NEG_INFINITY } else { 0.0 };
    let mask: Vec<f32> = (0..span.length * seen).map(ahead).collect();
    let mask = Tensor::from_vec(mask, (span.length, seen), scores.device())?;
    let scores = scores.reshape((heads, queries / span.length, span.length, seen))?;
    let scores = (scores * scale)?.broadcast_add(&mask)?;
    let raised = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?.exp()?;
    raised.broadcast_div(&raised.sum_keepdim(D::Minus1)?)?.reshape((heads, queries, seen))
}
