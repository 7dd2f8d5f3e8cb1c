//! What agents decide, the tools they use, and who is chosen for a task.
//!
//! An agent type is a pure function from a run's folded events to its next action ([`decide`]); the worker performs the
//! action and appends what came of it. Nothing in `decide` does I/O, reads a clock or draws a random number.

pub mod citations;
pub mod compaction;
pub mod decide;
pub mod manifest;
pub mod memory;
pub mod policy;
pub mod prompt;
pub mod state;
pub mod supervisor;
pub mod tools;

mod toml_file;

// The kit of the tests is one for those inside and outside.
#[cfg(test)]
extern crate self as riverrun_agents;

pub use decide::{Action, AgentType, Failed, ModelCall, ModelMode, agent, catalog};
pub use manifest::Manifest;
pub use policy::{Policy, Verdict};
pub use state::RunState;
pub use toml_file::FileError;
