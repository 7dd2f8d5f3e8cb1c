//! What crosses the socket: frames, the shapes of requests, and record batches.

pub mod batch;
mod blocks;
pub(crate) mod compression;
pub(crate) mod outline;
pub mod shape;
pub mod shapes;
