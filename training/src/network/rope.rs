//! Rotary positions (Su and others, "RoFormer", 2021), with the halves of a head as pairs.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Shape, Tensor};

use super::floats;

/// Frequencies of a head's pairs.
#[derive(Debug, Clone)]
pub(super) struct Frequencies(Arc<Vec<f32>>);

impl Frequencies {
    pub(super) fn new(head_dim: usize, theta: f64, factors: Option<&[f32]>) -> Self {
        let frequency = |pair: usize| {
            let plain = theta.powf(-2.0 * pair as f64 / head_dim as f64);
            let factor = factors.and_then(|factors| factors.get(pair)).map_or(1.0, |factor| f64::from(*factor));
            (plain / factor) as f32
        };
        Self(Arc::new((0..head_dim / 2).map(frequency).collect()))
    }

    /// Sines and cosines of the positions up to the longest sequence.
    pub(super) fn angles(&self, positions: usize) -> Angles {
        let all = (0..positions).flat_map(|position| self.0.iter().map(move |f| (position as f32 * f).sin_cos()));
        Angles { table: Arc::new(all.collect()), half: self.0.len() }
    }
}

/// Sines and cosines, position by position.
#[derive(Debug, Clone)]
pub(super) struct Angles {
    table: Arc<Vec<(f32, f32)>>,
    half: usize,
}

impl Angles {
    /// Sines and cosines of each of those positions, `[positions, 1, half a head]`.
    pub(super) fn tables(&self, positions: &[u32], device: &Device) -> candle_core::Result<(Tensor, Tensor)> {
        let of = |position: &u32| &self.table[*position as usize * self.half..][..self.half];
        let (sin, cos): (Vec<f32>, Vec<f32>) = positions.iter().flat_map(of).copied().unzip();
        let shape = (positions.len(), 1, self.half);
        Ok((Tensor::from_vec(sin, shape, device)?, Tensor::from_vec(cos, shape, device)?))
    }
}

struct Rope {
    angles: Angles,
    positions: Arc<Vec<u32>>,
    /// 1 to turn, -1 to turn back.
    direction: f32,
}

impl CustomOp1 for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(&self, input: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        let input = floats(input, layout)?;
        let half = self.angles.half;
        let mut output = vec![0f32; input.len()];
        for ((row, out), position) in
            input.chunks_exact(width).zip(output.chunks_exact_mut(width)).zip(self.positions.iter())
        {
            let from = *position as usize * half;
            let angles = &self.angles.table[from..from + half];
            for (head, out) in row.chunks_exact(2 * half).zip(out.chunks_exact_mut(2 * half)) {
                for (pair, (sin, cos)) in angles.iter().enumerate() {
                    let (x, y, sin) = (head[pair], head[pair + half], sin * self.direction);
                    out[pair] = x * cos - y * sin;
                    out[pair + half] = y * cos + x * sin;
                }
            }
        }
        Ok((CpuStorage::F32(output), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        turn(gradient, &self.angles, &self.positions, -self.direction).map(Some)
    }
}

/// Turns every head of every row by the angles of its position; `direction` -1 turns back.
pub(super) fn turn(
    input: &Tensor,
    angles: &Angles,
    positions: &Arc<Vec<u32>>,
    direction: f32,
) -> candle_core::Result<Tensor> {
    let rope = Rope { angles: angles.clone(), positions: positions.clone(), direction };
    input.contiguous()?.apply_op1(rope)
}
