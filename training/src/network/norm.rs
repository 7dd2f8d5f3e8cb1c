//! Root mean square norm: `y = w · x / √(mean(x²) + ε)`.

use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor};
use rayon::prelude::*;

use super::{PIECE, floats, with_floats};

struct RmsNorm {
    weight: Vec<f32>,
    epsilon: f32,
}

impl RmsNorm {
    fn scale(&self, row: &[f32]) -> f32 {
        let squares: f32 = row.iter().map(|x| x * x).sum();
        (squares / row.len() as f32 + self.epsilon).sqrt().recip()
    }

    /// The gradient of the input.
    fn slopes(&self, x: &[f32], g: &[f32]) -> Vec<f32> {
        let width = self.weight.len();
        let mut output = vec![0f32; x.len()];
        let rows = output.par_chunks_exact_mut(width).zip(x.par_chunks_exact(width).zip(g.par_chunks_exact(width)));
        rows.with_min_len(PIECE.div_ceil(width)).for_each(|(out, (x, g))| {
            let scale = self.scale(x);
            let weighted = || g.iter().zip(&self.weight).map(|(g, w)| g * w);
            let along: f32 = weighted().zip(x).map(|(g, x)| g * x).sum();
            let back = scale * scale * scale * along / width as f32;
            for (out, (g, x)) in out.iter_mut().zip(weighted().zip(x)) {
                *out = scale * g - back * x;
            }
        });
        output
    }
}

impl CustomOp1 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(&self, input: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let input = floats(input, layout)?;
        let width = self.weight.len();
        let mut output = vec![0f32; input.len()];
        let rows = output.par_chunks_exact_mut(width).zip(input.par_chunks_exact(width));
        rows.with_min_len(PIECE.div_ceil(width)).for_each(|(out, row)| {
            let scale = self.scale(row);
            for (out, (x, w)) in out.iter_mut().zip(row.iter().zip(&self.weight)) {
                *out = x * scale * w;
            }
        });
        Ok((CpuStorage::F32(output), layout.shape().clone()))
    }

    fn bwd(&self, input: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let slopes = with_floats(input, |x| with_floats(&gradient, |g| self.slopes(x, g)))??;
        Tensor::from_vec(slopes, input.shape().clone(), input.device()).map(Some)
    }
}

/// The norm of each row of `input`.
pub(super) fn rms_norm(input: &Tensor, weight: &Tensor, epsilon: f64) -> candle_core::Result<Tensor> {
    let weight = weight.to_vec1::<f32>()?;
    input.contiguous()?.apply_op1(RmsNorm { weight, epsilon: epsilon as f32 })
}

/// The gradient of `input`, where that of its norm is `upper`.
pub(super) fn slopes(input: &Tensor, weight: &Tensor, epsilon: f64, upper: &[f32]) -> candle_core::Result<Vec<f32>> {
    let norm = RmsNorm { weight: weight.to_vec1::<f32>()?, epsilon: epsilon as f32 };
    with_floats(input, |input| norm.slopes(input, upper))
}
