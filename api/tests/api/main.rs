//! The API over a real embedded stack: broker, stores, workers, one for all tests. Only the model server is ours, because a
//! real model's words can't be foretold.

// Nothing of a test program is reached from outside.
#![allow(unreachable_pub)]

mod access;
mod bad_input;
mod blobs;
mod canvases;
mod chains;
mod datasets;
mod document_text;
mod harness;
mod idempotency;
mod ingest;
mod memory;
mod model_cards;
mod model_server;
mod namespaces;
mod openai;
mod projects;
mod reads;
mod refused_early;
mod room;
mod run_control;
mod runs;
mod sockets;
mod sources;
mod streams;
mod tools;
mod traces;
mod tunings;
mod usage;
mod warehouse;
