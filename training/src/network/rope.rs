//! Rotary positions (Su and others, "RoFormer", 2021), with the halves of a head as pairs.

use std::sync::Arc;

use candle_core::{Device, Tensor};

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

    /// Turns heads of so many positions behind the first one, one head behind the other, by the angles of their positions;
    /// `direction` -1 turns back.
    pub(super) fn turn(&self, heads: &mut [f32], (first, count): (usize, usize), direction: f32) {
        for (at, head) in heads.chunks_exact_mut(2 * self.half).enumerate() {
            let angles = &self.table[(first + at % count) * self.half..][..self.half];
            let (lower, upper) = head.split_at_mut(self.half);
            for ((x, y), (sin, cos)) in lower.iter_mut().zip(upper).zip(angles) {
                let sin = sin * direction;
                (*x, *y) = (*x * cos - *y * sin, *y * cos + *x * sin);
            }
        }
    }
}
