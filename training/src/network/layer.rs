//! One layer: attention, then the gated MLP, each behind a norm and beside what came in.

use candle_core::Tensor;

use super::attention::{Heads, attend};
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

pub(super) fn forward(
    input: &Tensor,
    (number, weights): (usize, &LayerWeights),
    pass: &Pass<'_>,
    adapter: &AdapterWeights,
) -> candle_core::Result<Tensor> {
    let operations = pass.operations;
    let attended = (input + attention(input, (number, weights), pass, adapter)?)?;
    let normed = operations.rms_norm(&attended, &weights.mlp_norm, pass.config.norm_eps)?;
    let gate = project(&normed, &weights.gate, (number, Target::Gate), adapter, operations)?;
    let up = project(&normed, &weights.up, (number, Target::Up), adapter, operations)?;
    let down = project(&operations.gated(&gate, &up)?, &weights.down, (number, Target::Down), adapter, operations)?;
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
    let operations = pass.operations;
    let normed = operations.rms_norm(input, &weights.attention_norm, norm_eps)?;
    let q = project(&normed, &weights.q, (number, Target::Q), adapter, operations)?;
    let k = project(&normed, &weights.k, (number, Target::K), adapter, operations)?;
    let v = project(&normed, &weights.v, (number, Target::V), adapter, operations)?;
    let q = pass.rotation.turn(&q)?;
    let k = pass.rotation.turn(&k)?;
    let of = |tensor: &Tensor, span: &Span| tensor.narrow(0, span.start, span.length);
    let taken: Vec<Tensor> = pass
        .spans
        .iter()
        .map(|span| attend([&of(&q, span)?, &of(&k, span)?, &of(&v, span)?], heads, operations))
        .collect::<candle_core::Result<_>>()?;
    let taken = if let [only] = taken.as_slice() { only.clone() } else { Tensor::cat(&taken, 0)? };
    project(&taken, &weights.o, (number, Target::O), adapter, operations)
}
