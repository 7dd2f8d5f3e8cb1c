//! What an agent type says of itself.

use serde::Serialize;

/// Name, purpose and abilities of an agent type: an entry of the agent catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// The name that a run request gives.
    pub name: &'static str,
    /// One sentence for people and for the supervisor.
    pub description: &'static str,
    /// What it can do, in words that tasks are matched with.
    pub capabilities: &'static [&'static str],
    /// For filters and for people.
    pub tags: &'static [&'static str],
}
