//! The gate of an MLP: `y = silu(gate) · up` (Shazeer, "GLU Variants Improve Transformer", 2020), gone over once in each direction.

use candle_core::Tensor;
use rayon::prelude::*;

use super::{PIECE, with_floats};

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `silu(gate) · up`, number by number.
pub(super) fn gated(gate: &Tensor, up: &Tensor) -> candle_core::Result<Tensor> {
    let output = with_floats(gate, |gate| {
        with_floats(up, |up| {
            let mut output = vec![0f32; gate.len()];
            let given = gate.par_chunks(PIECE).zip(up.par_chunks(PIECE));
            output.par_chunks_mut(PIECE).zip(given).for_each(|(output, (gate, up))| {
                for ((output, gate), up) in output.iter_mut().zip(gate).zip(up) {
                    *output = gate * sigmoid(*gate) * up;
                }
            });
            output
        })
    })??;
    Tensor::from_vec(output, gate.shape().clone(), gate.device())
}

/// Gradients of the gate and of what it gates, where that of their product is `upper`.
pub(super) fn slopes(gate: &Tensor, up: &Tensor, upper: &[f32]) -> candle_core::Result<[Tensor; 2]> {
    let (shape, device) = (gate.shape(), gate.device());
    let (of_gate, of_up) = with_floats(gate, |gate| with_floats(up, |up| slopes_of(gate, up, upper)))??;
    Ok([Tensor::from_vec(of_gate, shape.clone(), device)?, Tensor::from_vec(of_up, shape.clone(), device)?])
}

fn slopes_of(gate: &[f32], up: &[f32], upper: &[f32]) -> (Vec<f32>, Vec<f32>) {
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

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn given_a_gate_then_its_gradients_are_the_slopes_of_what_it_lets_through() {
        let tensor = |numbers: &[f32]| Tensor::from_slice(numbers, numbers.len(), &Device::Cpu).unwrap();
        let (gate, up, upper) = ([-2.0f32, -0.3, 0.4, 3.0], [0.7f32, -1.1, 2.0, 0.5], [1.0f32, -0.5, 2.0, 0.3]);
        let sum = |gate: &[f32], up: &[f32]| -> f64 {
            let output = gated(&tensor(gate), &tensor(up)).unwrap().to_vec1::<f32>().unwrap();
            output.iter().zip(&upper).map(|(one, other)| f64::from(one * other)).sum()
        };
        let [of_gate, of_up] = slopes(&tensor(&gate), &tensor(&up), &upper).unwrap();
        let (of_gate, of_up) = (of_gate.to_vec1::<f32>().unwrap(), of_up.to_vec1::<f32>().unwrap());
        for at in 0..gate.len() {
            let moved = |numbers: &[f32; 4], by: f32| {
                let mut moved = *numbers;
                moved[at] += by;
                moved
            };
            let slope_of_gate = (sum(&moved(&gate, 1e-2), &up) - sum(&moved(&gate, -1e-2), &up)) / 2e-2;
            let slope_of_up = (sum(&gate, &moved(&up, 1e-2)) - sum(&gate, &moved(&up, -1e-2))) / 2e-2;
            assert!((slope_of_gate - f64::from(of_gate[at])).abs() < 1e-3, "{slope_of_gate} {of_gate:?}");
            assert!((slope_of_up - f64::from(of_up[at])).abs() < 1e-3, "{slope_of_up} {of_up:?}");
        }
    }
}
