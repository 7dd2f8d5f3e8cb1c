//! The built binary, run as people run it: without a server, with one, and with what can't be.

// Nothing of a test program is reached from outside.
#![allow(unreachable_pub)]

mod alone;
mod bad_input;
mod harness;
mod isolation;
mod server;
