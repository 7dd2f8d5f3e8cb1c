//! Root mean square norm: `y = w · x / √(mean(x²) + ε)`.

use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor};

use super::floats;

struct RmsNorm {
    weight: Vec<f32>,
    epsilon: f32,
}

impl RmsNorm {
    fn scale(&self, row: &[f32]) -> f32 {
        let squares: f32 = row.iter().map(|x| x * x).sum();
        (squares / row.len() as f32 + self.epsilon).sqrt().recip()
    }
}

impl CustomOp1 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(&self, input: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let input = floats(input, layout)?;
        let mut output = Vec::with_capacity(input.len());
        for row in input.chunks_exact(self.weight.len()) {
            let scale = self.scale(row);
            output.extend(row.iter().zip(&self.weight).map(|(x, w)| x * scale * w));
        }
        Ok((CpuStorage::F32(output), layout.shape().clone()))
    }

    fn bwd(&self, input: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let width = self.weight.len();
        let (x, g) = (input.flatten_all()?.to_vec1::<f32>()?, gradient.flatten_all()?.to_vec1::<f32>()?);
        let mut out = Vec::with_capacity(x.len());
        for (x, g) in x.chunks_exact(width).zip(g.chunks_exact(width)) {
            let scale = self.scale(x);
            let weighted = || g.iter().zip(&self.weight).map(|(g, w)| g * w);
            let along: f32 = weighted().zip(x).map(|(g, x)| g * x).sum();
            let back = scale * scale * scale * along / width as f32;
            out.extend(weighted().zip(x).map(|(g, x)| scale * g - back * x));
        }
        Tensor::from_vec(out, input.shape().clone(), input.device()).map(Some)
    }
}

/// The norm of each row of `input`.
pub(super) fn rms_norm(input: &Tensor, weight: &Tensor, epsilon: f64) -> candle_core::Result<Tensor> {
    let weight = weight.to_vec1::<f32>()?;
    input.contiguous()?.apply_op1(RmsNorm { weight, epsilon: epsilon as f32 })
}
