//! The network, forward and backward: RMS norm, rotary positions, grouped-query attention, SwiGLU; frozen weights, and adapters
//! beside them.
//!
//! Sequences of a batch lie one behind the other without padding: everything but attention works on all tokens at once, and
//! attention on each sequence alone, so that no token sees another sequence and positions start at 0 in each.
//! (The fused operations of candle-nn have no backward and lose gradients without a word; those here bring their own.)

mod attention;
mod batch;
mod head;
mod layer;
mod linear;
mod norm;
mod passes;
mod rope;

pub(crate) use batch::Batch;
pub(crate) use linear::AdapterWeights;
pub(crate) use passes::{Memory, Network};

use candle_core::{CpuStorage, Layout};

/// The numbers of a tensor that lies in one piece.
fn floats<'s>(storage: &'s CpuStorage, layout: &Layout) -> candle_core::Result<&'s [f32]> {
    let all = storage.as_slice::<f32>()?;
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&all[start..end]),
        None => candle_core::bail!("a tensor does not lie in one piece"),
    }
}
