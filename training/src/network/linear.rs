//! Linear maps: frozen weights with a gradient for their input only, and low-rank adapters beside them (Hu and others, "LoRA",
//! 2021): `y = W x + b + scale · B A dropout(x)`.

use std::collections::HashMap;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, CustomOp3, Device, Layout, Shape, Storage, Tensor};
use rayon::prelude::*;

use super::PIECE;
use super::operations::Operations;
use crate::base::{Projection, Weight};
use crate::lora::Target;
use crate::rng::Rng;

const PURPOSE: u64 = 3;

/// `x Wᵀ`. candle's own product would compute the gradient of the frozen matrix too, which costs as much as that of the input; and
/// it would keep the floats of a matrix that is held in four bits, which are here for one product in each direction.
struct Frozen {
    weight: Weight,
}

impl CustomOp1 for Frozen {
    fn name(&self) -> &'static str {
        "frozen-linear"
    }

    fn cpu_fwd(&self, input: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let matrix = self.weight.floats()?;
        let (storage, matrix_layout) = matrix.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else { candle_core::bail!("a frozen weight is not on the CPU") };
        times_transposed((input, layout), (storage, matrix_layout))
    }

    fn cuda_fwd(&self, input: &CudaStorage, layout: &Layout) -> candle_core::Result<(CudaStorage, Shape)> {
        let matrix = self.weight.floats()?;
        let (storage, matrix_layout) = matrix.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else { candle_core::bail!("a frozen weight is not on the GPU") };
        times_transposed((input, layout), (storage, matrix_layout))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        gradient.contiguous()?.matmul(&self.weight.floats()?).map(Some)
    }
}

/// `x Wᵀ + scale · (x' Aᵀ) Bᵀ`, where `x'` is `x` without what is dropped. As one operation it keeps nothing but its output;
/// what the way back needs of the adapter's narrow middle is computed again.
struct Adapted {
    frozen: Frozen,
    scale: f64,
    dropped: Option<Dropped>,
}

impl CustomOp3 for Adapted {
    fn name(&self) -> &'static str {
        "adapted-linear"
    }

    fn cpu_fwd(
        &self,
        input: &CpuStorage,
        layout: &Layout,
        a: &CpuStorage,
        a_layout: &Layout,
        b: &CpuStorage,
        b_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (mut output, shape) = self.frozen.cpu_fwd(input, layout)?;
        let seen = match &self.dropped {
            Some(dropped) => Some(CpuStorage::F32(dropped.from(super::floats(input, layout)?))),
            None => None,
        };
        let seen_layout = Layout::contiguous(layout.shape());
        let seen = seen.as_ref().map_or((input, layout), |seen| (seen, &seen_layout));
        let (narrow, narrow_shape) = times_transposed(seen, (a, a_layout))?;
        let (added, _) = times_transposed((&narrow, &Layout::contiguous(narrow_shape)), (b, b_layout))?;
        let (CpuStorage::F32(output), CpuStorage::F32(added)) = (&mut output, &added) else {
            candle_core::bail!("a linear map is not of 32-bit floats")
        };
        let scale = self.scale as f32;
        output.par_chunks_mut(PIECE).zip(added.par_chunks(PIECE)).for_each(|(output, added)| {
            output.iter_mut().zip(added).for_each(|(output, added)| *output += scale * added);
        });
        Ok((CpuStorage::F32(std::mem::take(output)), shape))
    }

    fn bwd(
        &self,
        input: &Tensor,
        a: &Tensor,
        b: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (input, a, b) = (input.detach(), a.detach(), b.detach());
        let gradient = gradient.contiguous()?;
        let mask = self.dropped.as_ref().map(|dropped| dropped.mask(input.dims2()?)).transpose()?;
        let seen = match &mask {
            Some(mask) => (&input * mask)?,
            None => input,
        };
        let narrow = (seen.matmul(&a.t()?)? * self.scale)?;
        let upper = (gradient.matmul(&b)? * self.scale)?;
        let mut through = upper.matmul(&a)?;
        if let Some(mask) = mask {
            through = (through * mask)?;
        }
        let of_input = (gradient.matmul(&self.frozen.weight.floats()?)? + through)?;
        Ok((Some(of_input), Some(upper.t()?.matmul(&seen)?), Some(gradient.t()?.matmul(&narrow)?)))
    }
}

impl Adapted {
    /// The same of operations that every device has. `A` and `B` may lie on another one: their gradients find back.
    fn composed(self, input: &Tensor, a: &Tensor, b: &Tensor) -> candle_core::Result<Tensor> {
        let device = input.device();
        let (a, b) = (a.to_device(device)?, b.to_device(device)?);
        let seen = match &self.dropped {
            Some(dropped) => (input * dropped.mask(input.dims2()?)?.to_device(device)?)?,
            None => input.clone(),
        };
        let added = (seen.matmul(&a.t()?)?.matmul(&b.t()?)? * self.scale)?;
        input.apply_op1(self.frozen)? + added
    }
}

/// `x Mᵀ` for rows `x` and the rows of a matrix `M`.
fn times_transposed<S: BackendStorage>(
    (input, layout): (&S, &Layout),
    (matrix, matrix_layout): (&S, &Layout),
) -> candle_core::Result<(S, Shape)> {
    let (rows, inner) = layout.shape().dims2()?;
    let (outer, _) = matrix_layout.shape().dims2()?;
    let product = input.matmul(matrix, (1, rows, outer, inner), layout, &matrix_layout.transpose(0, 1)?)?;
    Ok((product, Shape::from((rows, outer))))
}

/// The matrices of adapters for one pass. Whether gradients reach them depends on what they were made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdapterWeights {
    /// `A` and `B` of a layer's projection.
    pub(crate) pairs: HashMap<(usize, Target), (Tensor, Tensor)>,
    pub(crate) scale: f64,
    /// Part of the input that adapters do not see, and the seed that says which.
    pub(crate) dropout: Option<(f32, u64)>,
}

/// A projection of a layer with its adapter, where it has one.
pub(super) fn project(
    input: &Tensor,
    projection: &Projection,
    place: (usize, Target),
    adapter: &AdapterWeights,
    operations: Operations,
) -> candle_core::Result<Tensor> {
    let input = input.contiguous()?;
    let frozen = Frozen { weight: projection.weight.clone() };
    let output = match adapter.pairs.get(&place) {
        Some((a, b)) => {
            let dropped = adapter.dropout.map(|(part, seed)| Dropped { part, seed, place });
            let adapted = Adapted { frozen, scale: adapter.scale, dropped };
            match operations {
                Operations::Fused => input.apply_op3(a, b, adapted)?,
                Operations::Composed => adapted.composed(&input, a, b)?,
            }
        }
        None => input.apply_op1(frozen)?,
    };
    match &projection.bias {
        Some(bias) => output.broadcast_add(bias),
        None => Ok(output),
    }
}

/// What an adapter does not see of its input. It follows from seed and place, so that a pass that is computed twice drops the
/// same.
struct Dropped {
    part: f32,
    seed: u64,
    place: (usize, Target),
}

impl Dropped {
    /// 0 for what is dropped, and `1 / (1 - part)` for the rest.
    fn factors(&self) -> impl Iterator<Item = f32> {
        let (layer, target) = self.place;
        let mut rng = Rng::of(self.seed, &[PURPOSE, layer as u64, target as u64]);
        let (part, kept) = (self.part, 1.0 / (1.0 - self.part));
        std::iter::repeat_with(move || if rng.unit() < part { 0.0 } else { kept })
    }

    fn mask(&self, shape: (usize, usize)) -> candle_core::Result<Tensor> {
        Tensor::from_vec(self.factors().take(shape.0 * shape.1).collect(), shape, &Device::Cpu)
    }

    fn from(&self, input: &[f32]) -> Vec<f32> {
        input.iter().zip(self.factors()).map(|(x, factor)| x * factor).collect()
    }
}
