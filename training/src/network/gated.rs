//! The gate of an MLP: `y = silu(gate) · up` (Shazeer, "GLU Variants Improve Transformer", 2020). As one operation it keeps its
//! output alone, and goes over the numbers once in each direction.

use candle_core::{CpuStorage, CustomOp2, Layout, Shape, Tensor};
use rayon::prelude::*;

use super::{PIECE, floats, with_floats};

struct Gated;

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

impl CustomOp2 for Gated {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (gate, up) = (floats(gate, gate_layout)?, floats(up, up_layout)?);
        let mut output = vec![0f32; gate.len()];
        output.par_chunks_mut(PIECE).zip(gate.par_chunks(PIECE)).zip(up.par_chunks(PIECE)).for_each(
            |((output, gate), up)| {
                for ((output, gate), up) in output.iter_mut().zip(gate).zip(up) {
                    *output = gate * sigmoid(*gate) * up;
                }
            },
        );
        Ok((CpuStorage::F32(output), gate_layout.shape().clone()))
    }

    fn bwd(
        &self,
        gate: &Tensor,
        up: &Tensor,
        _: &Tensor,
        upper: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>)> {
        let (shape, device) = (gate.shape().clone(), gate.device().clone());
        let upper = upper.contiguous()?;
        let (of_gate, of_up) =
            with_floats(gate, |gate| with_floats(up, |up| with_floats(&upper, |upper| slopes(gate, up, upper))))???;
        Ok((Some(Tensor::from_vec(of_gate, shape.clone(), &device)?), Some(Tensor::from_vec(of_up, shape, &device)?)))
    }
}

/// Gradients of the gate and of what it gates.
fn slopes(gate: &[f32], up: &[f32], upper: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let mut of_gate = vec![0f32; gate.len()];
    let mut of_up = vec![0f32; gate.len()];
    let given = gate.par_chunks(PIECE).zip(up.par_chunks(PIECE)).zip(upper.par_chunks(PIECE));
    of_gate.par_chunks_mut(PIECE).zip(of_up.par_chunks_mut(PIECE)).zip(given).for_each(
        |((of_gate, of_up), ((gate, up), upper))| {
            for (at, upper) in upper.iter().enumerate() {
                let open = sigmoid(gate[at]);
                of_up[at] = upper * gate[at] * open;
                of_gate[at] = upper * up[at] * open * (1.0 + gate[at] * (1.0 - open));
            }
        },
    );
    (of_gate, of_up)
}

/// `silu(gate) · up`, number by number.
pub(super) fn gated(gate: &Tensor, up: &Tensor) -> candle_core::Result<Tensor> {
    gate.contiguous()?.apply_op2(&up.contiguous()?, Gated)
}
