//! The network, forward and backward: RMS norm, rotary positions, grouped-query attention, SwiGLU; frozen weights, and adapters
//! beside them.
//!
//! Sequences of a batch lie one behind the other without padding: everything but attention works on all tokens at once, and
//! attention on each sequence alone, so that no token sees another sequence and positions start at 0 in each.
//! (The fused operations of candle-nn have no backward and lose gradients without a word; those here bring their own.)

mod attention;
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

pub(crate) use batch::Batch;
pub(crate) use linear::AdapterWeights;
pub(crate) use passes::{Memory, Network};
pub(crate) use sample::Start;

use candle_core::{CpuStorage, Layout, Tensor};

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
        candle_core::Storage::Cpu(storage) => Ok(read(floats(storage, layout)?)),
        _ => candle_core::bail!("a tensor is not on the CPU"),
    }
}
