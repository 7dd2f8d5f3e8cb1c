//! The network, forward and backward: RMS norm, rotary positions, grouped-query attention, SwiGLU; frozen weights, and adapters
//! beside them.
//!
//! Sequences of a batch lie one behind the other without padding: everything but attention works on all tokens at once, and
//! attention on each sequence alone, so that no token sees another sequence and positions start at 0 in each. What several of them
//! begin with is there once.
//! (The fused operations of candle-nn have no backward and lose gradients without a word; those here bring their own.)
//!
//! On the CPU the way back through a layer is written out: candle's keeps what every operation gave, adds every gradient to zeros
//! first, and does both on one core. On other devices, and as what the other is tested against, candle's is used.

mod attention;
mod backward;
mod batch;
mod gated;
mod head;
mod layer;
mod linear;
mod norm;
mod operations;
mod passes;
mod rope;
mod sample;

pub(crate) use attention::TOGETHER;
pub(crate) use batch::Batch;
pub(crate) use head::rows_together;
pub(crate) use linear::AdapterWeights;
pub(crate) use passes::{Memory, Network};
pub(crate) use sample::Start;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, Layout, Storage, Tensor};
use rayon::prelude::*;

/// Numbers that one thread takes at a time: enough to be worth handing over, few enough to stay in its cache.
const PIECE: usize = 8192;

/// The numbers of a tensor that lies in one piece.
fn floats<'s>(storage: &'s CpuStorage, layout: &Layout) -> candle_core::Result<&'s [f32]> {
    let all = storage.as_slice::<f32>()?;
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&all[start..end]),
        None => candle_core::bail!("a tensor does not lie in one piece"),
    }
}

/// Hands the numbers of a tensor that lies in one piece to `read`.
fn with_floats<T>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> T) -> candle_core::Result<T> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => Ok(read(floats(storage, layout)?)),
        _ => candle_core::bail!("a tensor is not on the CPU"),
    }
}

/// The same for three tensors.
fn with_three<T>([a, b, c]: [&Tensor; 3], read: impl FnOnce([&[f32]; 3]) -> T) -> candle_core::Result<T> {
    with_floats(a, |a| with_floats(b, |b| with_floats(c, |c| read([a, b, c]))))??
}

/// The numbers of `left · right`, which may be added to before they become a tensor.
fn product(left: &Tensor, right: &Tensor) -> candle_core::Result<Vec<f32>> {
    let ((rows, inner), (depth, columns)) = (left.dims2()?, right.dims2()?);
    if inner != depth {
        candle_core::bail!("{rows} × {inner} numbers can't be multiplied by {depth} × {columns}")
    }
    let (left, left_layout) = left.storage_and_layout();
    let (right, right_layout) = right.storage_and_layout();
    let (Storage::Cpu(left), Storage::Cpu(right)) = (&*left, &*right) else {
        candle_core::bail!("a tensor is not on the CPU")
    };
    let product = left.matmul(right, (1, rows, columns, inner), left_layout, right_layout)?;
    let CpuStorage::F32(numbers) = product else { candle_core::bail!("a product is not of 32-bit floats") };
    Ok(numbers)
}

/// `sum += scale · more`, number by number.
fn add_scaled(sum: &mut [f32], scale: f32, more: &[f32]) {
    sum.par_chunks_mut(PIECE).zip(more.par_chunks(PIECE)).for_each(|(sum, more)| {
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += scale * more);
    });
}
