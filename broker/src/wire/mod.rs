//! What crosses the socket: frames, the shapes of requests, and record batches.

pub mod batch;
pub(crate) mod compression;
pub mod shape;
pub mod shapes;
