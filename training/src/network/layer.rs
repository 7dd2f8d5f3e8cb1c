//! One layer: attention, then the gated MLP, each behind a norm and beside what came in.

use std::sync::Arc;

use candle_core::Tensor;

use super::attention::{Heads, attend};
use super::batch::Span;
use super::gated::gated;
use super::linear::{AdapterWeights, project};
use super::norm::rms_norm;
use super::rope::{Angles, turn};
use crate::base::{Config, LayerWeights};
use crate::lora::Target;

/// What all layers of a pass share.
pub(super) struct Pass<'p> {
    pub(super) config: &'p Config,
    pub(super) spans: &'p [Span],
    pub(super) positions: Arc<Vec<u32>>,
    pub(super) angles: Angles,
}

pub(super) fn forward(
    input: &Tensor,
    (number, weights): (usize, &LayerWeights),
    pass: &Pass<'_>,
    adapter: &AdapterWeights,
) -> candle_core::Result<Tensor> {
    let attended = (input + attention(input, (number, weights), pass, adapter)?)?;
    let normed = rms_norm(&attended, &weights.mlp_norm, pass.config.norm_eps)?;
    let gate = project(&normed, &weights.gate, (number, Target::Gate), adapter)?;
    let up = project(&normed, &weights.up, (number, Target::Up), adapter)?;
    let down = project(&gated(&gate, &up)?, &weights.down, (number, Target::Down), adapter)?;
    attended + down
}

fn attention(
    input: &Tensor,
    (number, weights): (usize, &LayerWeights),
    pass: &Pass<'_>,
    adapter: &AdapterWeights,
) -> candle_core::Result<Tensor> {
    let Config { heads, kv_heads, head_dim, norm_eps, .. } = *pass.config;
    let heads = Heads { queries: heads, keys: kv_heads, size: head_dim };
    let normed = rms_norm(input, &weights.attention_norm, norm_eps)?;
    let q = project(&normed, &weights.q, (number, Target::Q), adapter)?;
    let k = project(&normed, &weights.k, (number, Target::K), adapter)?;
    let v = project(&normed, &weights.v, (number, Target::V), adapter)?;
    let q = turn(&q, &pass.angles, &pass.positions, 1.0)?;
    let k = turn(&k, &pass.angles, &pass.positions, 1.0)?;
    let of = |tensor: &Tensor, span: &Span| tensor.narrow(0, span.start, span.length);
    let taken: Vec<Tensor> = pass
        .spans
        .iter()
        .map(|span| attend(&of(&q, span)?, &of(&k, span)?, &of(&v, span)?, heads))
        .collect::<candle_core::Result<_>>()?;
    let taken = if let [only] = taken.as_slice() { only.clone() } else { Tensor::cat(&taken, 0)? };
    project(&taken, &weights.o, (number, Target::O), adapter)
}
