//! The API over a real embedded stack: broker, stores, workers, one for all tests. Only the model server is ours, because a
//! real model's words can't be foretold.

// Nothing of a test program is reached from outside.
#![allow(unreachable_pub)]

mod bad_input;
mod harness;
mod ingest;
mod model_server;
mod reads;
mod runs;
mod sockets;
mod sources;
