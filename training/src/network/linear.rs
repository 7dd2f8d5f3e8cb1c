//! Linear maps: frozen weights with a gradient for their input only, and low-rank adapters beside them (Hu and others, "LoRA",
//! 2021): `y = W x + b + scale · B A dropout(x)`.

use std::collections::HashMap;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Device, Layout, Shape, Storage, Tensor};

use super::operations::Operations;
use super::{add_scaled, product, with_floats};
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

/// `x Wᵀ + scale · (x' Aᵀ) Bᵀ`, where `x'` is `x` without what is dropped.
fn adapted(
    input: &Tensor,
    weight: &Weight,
    (a, b): (&Tensor, &Tensor),
    (scale, dropped): (f64, Option<&Dropped>),
) -> candle_core::Result<Tensor> {
    let mut output = product(input, &weight.floats()?.t()?)?;
    let narrow = seen(input, dropped)?.matmul(&a.t()?)?;
    let added = product(&narrow, &b.t()?)?;
    add_scaled(&mut output, scale as f32, &added);
    Tensor::from_vec(output, (input.dim(0)?, b.dim(0)?), &Device::Cpu)
}

/// What an adapter sees of its input.
fn seen(input: &Tensor, dropped: Option<&Dropped>) -> candle_core::Result<Tensor> {
    match dropped {
        Some(dropped) => {
            let seen = with_floats(input, |input| dropped.from(input))?;
            Tensor::from_vec(seen, input.shape().clone(), &Device::Cpu)
        }
        None => Ok(input.clone()),
    }
}

/// The same of operations that every device has. `A` and `B` may lie on another one: their gradients find back.
fn composed(
    input: &Tensor,
    frozen: Frozen,
    (a, b): (&Tensor, &Tensor),
    (scale, dropped): (f64, Option<&Dropped>),
) -> candle_core::Result<Tensor> {
    let device = input.device();
    let (a, b) = (a.to_device(device)?, b.to_device(device)?);
    let seen = match dropped {
        Some(dropped) => (input * dropped.mask(input.dims2()?)?.to_device(device)?)?,
        None => input.clone(),
    };
    let added = (seen.matmul(&a.t()?)?.matmul(&b.t()?)? * scale)?;
    input.apply_op1(frozen)? + added
}

/// What goes back through an adapter to the input of its projection.
pub(super) struct Beside {
    /// The gradient of the adapter's narrow middle.
    middle: Tensor,
    a: Tensor,
    dropped: Option<Dropped>,
}

impl Beside {
    /// The adapter's part of the input's gradient.
    pub(super) fn input(&self) -> candle_core::Result<Vec<f32>> {
        let through = product(&self.middle, &self.a)?;
        Ok(match &self.dropped {
            Some(dropped) => dropped.from(&through),
            None => through,
        })
    }
}

/// Gradients of a projection's adapter, where it has one: of `A` and `B`, and what goes on to its input. `upper` is the gradient of
/// what the projection gave.
pub(super) fn adapter_back(
    input: &Tensor,
    upper: &Tensor,
    place: (usize, Target),
    adapter: &AdapterWeights,
) -> candle_core::Result<Option<([Tensor; 2], Beside)>> {
    let Some((a, b)) = adapter.pairs.get(&place) else { return Ok(None) };
    let dropped = adapter.dropped(place);
    let seen = seen(input, dropped.as_ref())?;
    let narrow = (seen.matmul(&a.t()?)? * adapter.scale)?;
    let middle = (upper.matmul(b)? * adapter.scale)?;
    let matrices = [middle.t()?.matmul(&seen)?, upper.t()?.matmul(&narrow)?];
    Ok(Some((matrices, Beside { middle, a: a.clone(), dropped })))
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

impl AdapterWeights {
    fn dropped(&self, place: (usize, Target)) -> Option<Dropped> {
        self.dropout.map(|(part, seed)| Dropped { part, seed, place })
    }
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
    let frozen = || Frozen { weight: projection.weight.clone() };
    let output = match adapter.pairs.get(&place) {
        Some((a, b)) => {
            let dropped = adapter.dropped(place);
            let how = (adapter.scale, dropped.as_ref());
            match operations {
                Operations::Fused => adapted(&input, &projection.weight, (a, b), how)?,
                Operations::Composed => composed(&input, frozen(), (a, b), how)?,
            }
        }
        None => input.apply_op1(frozen())?,
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
