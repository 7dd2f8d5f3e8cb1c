//! How operations are computed: each as one of its own on the CPU, or of candle's own operations, which every device has and which
//! bring their backward. Both give the same numbers, but for rounding.

use std::sync::Arc;

use candle_core::{D, Device, Tensor};

use super::batch::Batch;
use super::rope::{Angles, Frequencies, turn};
use super::{attention, gated, head, norm};

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

    /// Softmax of scaled scores `[any, queries, length]` over what each query may see; queries lie position after position.
    pub(super) fn causal_softmax(self, scores: &Tensor, scale: f32) -> candle_core::Result<Tensor> {
        match self {
            Operations::Fused => attention::causal_softmax(scores, scale),
            Operations::Composed => composed_softmax(scores, f64::from(scale)),
        }
    }

    /// Scores `targets` by the hidden states, as [`head::score`] says.
    pub(super) fn score(
        self,
        head: &Tensor,
        hidden: &Tensor,
        targets: &[u32],
        coefficients: Option<&[f32]>,
    ) -> candle_core::Result<head::Scores> {
        match self {
            Operations::Fused => head::score(head, hidden, targets, coefficients),
            Operations::Composed => head::composed_score(head, hidden, targets, coefficients),
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
            Operations::Fused => Ok(Rotation::Fused { angles, positions: Arc::new(batch.positions.clone()) }),
            Operations::Composed => {
                let (sin, cos) = angles.tables(&batch.positions, device)?;
                Ok(Rotation::Composed { sin, cos })
            }
        }
    }
}

fn composed_softmax(scores: &Tensor, scale: f64) -> candle_core::Result<Tensor> {
    let (heads, queries, length) = scores.dims3()?;
    let ahead = |at: usize| if at % length > at / length { f32::NEG_INFINITY } else { 0.0 };
    let mask = Tensor::from_vec((0..length * length).map(ahead).collect(), (length, length), scores.device())?;
    let scores = scores.reshape((heads, queries / length, length, length))?;
    let seen = (scores * scale)?.broadcast_add(&mask)?;
    let raised = seen.broadcast_sub(&seen.max_keepdim(D::Minus1)?.detach())?.exp()?;
    raised.broadcast_div(&raised.sum_keepdim(D::Minus1)?)?.reshape((heads, queries, length))
}

/// The angles that the heads of a batch are turned by.
pub(super) enum Rotation {
    /// For the operation of its own.
    Fused {
        /// By position.
        angles: Angles,
        /// Of each row.
        positions: Arc<Vec<u32>>,
    },
    /// For candle's, `[rows, 1, half a head]` each.
    Composed {
        /// Sines.
        sin: Tensor,
        /// Cosines.
        cos: Tensor,
    },
}

impl Rotation {
    /// Turns every head of every row by the angles of its position.
    pub(super) fn turn(&self, input: &Tensor) -> candle_core::Result<Tensor> {
        match self {
            Rotation::Fused { angles, positions } => turn(input, angles, positions, 1.0),
            Rotation::Composed { sin, cos } => {
                let (rows, width) = input.dims2()?;
                let half = sin.dim(D::Minus1)?;
                let heads = input.reshape((rows, width / (2 * half), 2 * half))?;
                let (x, y) = (heads.narrow(2, 0, half)?, heads.narrow(2, half, half)?);
                let first = (x.broadcast_mul(cos)? - y.broadcast_mul(sin)?)?;
                let second = (y.broadcast_mul(cos)? + x.broadcast_mul(sin)?)?;
                Tensor::cat(&[first, second], 2)?.reshape((rows, width))
            }
        }
    }
}
