//! Linear maps: frozen weights with a gradient for their input only, and low-rank adapters beside them (Hu and others, "LoRA",
//! 2021): `y = W x + b + scale · B A dropout(x)`.

use std::collections::HashMap;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Shape, Storage, Tensor};

use crate::base::Projection;
use crate::lora::Target;
use crate::rng::Rng;

const PURPOSE: u64 = 3;

/// `x Wᵀ`. candle's own product would compute the gradient of the frozen matrix too, which costs as much as that of the input.
struct Frozen {
    weight: Tensor,
}

impl CustomOp1 for Frozen {
    fn name(&self) -> &'static str {
        "frozen-linear"
    }

    fn cpu_fwd(&self, input: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (rows, inner) = layout.shape().dims2()?;
        let (outer, _) = self.weight.dims2()?;
        let transposed = self.weight.t()?;
        let (storage, weight_layout) = transposed.storage_and_layout();
        let Storage::Cpu(weight) = &*storage else { candle_core::bail!("a frozen weight is not on the CPU") };
        let product = input.matmul(weight, (1, rows, outer, inner), layout, weight_layout)?;
        Ok((product, Shape::from((rows, outer))))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        gradient.contiguous()?.matmul(&self.weight).map(Some)
    }
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
) -> candle_core::Result<Tensor> {
    let mut output = input.contiguous()?.apply_op1(Frozen { weight: projection.weight.clone() })?;
    if let Some(bias) = &projection.bias {
        output = output.broadcast_add(bias)?;
    }
    let Some((a, b)) = adapter.pairs.get(&place) else { return Ok(output) };
    let seen = match adapter.dropout {
        Some((part, seed)) => (input * mask(input, part, seed, place)?)?,
        None => input.clone(),
    };
    let added = seen.matmul(&a.t()?)?.matmul(&b.t()?)?;
    output + (added * adapter.scale)?
}

/// 0 for what is dropped, and `1 / (1 - part)` for the rest. It follows from seed and place, so that a pass that is computed
/// twice drops the same.
fn mask(input: &Tensor, part: f32, seed: u64, (layer, target): (usize, Target)) -> candle_core::Result<Tensor> {
    let mut rng = Rng::of(seed, &[PURPOSE, layer as u64, target as u64]);
    let kept = 1.0 / (1.0 - part);
    let mask: Vec<f32> = (0..input.elem_count()).map(|_| if rng.unit() < part { 0.0 } else { kept }).collect();
    Tensor::from_vec(mask, input.dims2()?, &Device::Cpu)
}
