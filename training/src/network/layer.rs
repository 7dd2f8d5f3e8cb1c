//! One layer: attention, then the gated MLP, each behind a norm and beside what came in.

use candle_core::Tensor;

use super::attention::Heads;
use super::batch::Span;
use super::linear::{AdapterWeights, project};
use super::operations::{Operations, Rotation};
use crate::base::{Config, LayerWeights};
use crate::lora::Target;

/// What all layers of a pass share.
pub(super) struct Pass<'p> {
    pub(super) config: &'p Config,
    pub(super) spans: &'p [Span],
    pub(super) rotation: Rotation,
    pub(super) operations: Operations,
}

impl Pass<'_> {
    pub(super) fn heads(&self) -> Heads {
        let Config { heads, kv_heads, head_dim, .. } = *self.config;
        Heads { queries: heads, keys: kv_heads, size: head_dim }
    }
}

/// A layer in a pass.
#[derive(Clone, Copy)]
pub(super) struct Layer<'l> {
    pub(super) number: usize,
    pub(super) weights: &'l LayerWeights,
    pub(super) adapter: &'l AdapterWeights,
    pub(super) pass: &'l Pass<'l>,
}

/// What the way back reads of the way forward. Norms, attention's weights and what the gate lets through are computed again: that
/// costs little beside the projections, and saves more than half of the memory.
pub(super) struct Kept {
    pub(super) input: Tensor,
    pub(super) q: Tensor,
    pub(super) k: Tensor,
    pub(super) v: Tensor,
    /// What attention gives on.
    pub(super) taken: Tensor,
    /// The input, and what attention adds to it.
    pub(super) attended: Tensor,
    pub(super) gate: Tensor,
    pub(super) up: Tensor,
}

impl Layer<'_> {
    pub(super) fn forward(self, input: Tensor) -> candle_core::Result<Tensor> {
        self.output(&self.keep(input)?)
    }

    /// All but the last projection.
    pub(super) fn keep(self, input: Tensor) -> candle_core::Result<Kept> {
        let Pass { config, spans, rotation, operations } = self.pass;
        let normed = operations.rms_norm(&input, &self.weights.attention_norm, config.norm_eps)?;
        let q = self.project(&normed, Target::Q)?;
        let k = self.project(&normed, Target::K)?;
        let v = self.project(&normed, Target::V)?;
        let taken = rotation.attend([&q, &k, &v], self.pass.heads(), spans)?;
        let attended = (&input + self.project(&taken, Target::O)?)?;
        let normed = operations.rms_norm(&attended, &self.weights.mlp_norm, config.norm_eps)?;
        let gate = self.project(&normed, Target::Gate)?;
        let up = self.project(&normed, Target::Up)?;
        Ok(Kept { input, q, k, v, taken, attended, gate, up })
    }

    /// What a layer gives on.
    pub(super) fn output(self, kept: &Kept) -> candle_core::Result<Tensor> {
        let mixed = self.pass.operations.gated(&kept.gate, &kept.up)?;
        &kept.attended + self.project(&mixed, Target::Down)?
    }

    fn project(self, input: &Tensor, target: Target) -> candle_core::Result<Tensor> {
        let projection = self.weights.projection(target);
        project(input, projection, (self.number, target), self.adapter, self.pass.operations)
    }
}
