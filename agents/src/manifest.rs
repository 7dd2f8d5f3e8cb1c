//! What an agent type says of itself.

use serde::Serialize;

/// Name, purpose and abilities of an agent type: an entry of the agent catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// The name that a run request gives.
    pub name: &'static str,
    /// One or two sentences for people and for the supervisor.
    pub description: &'static str,
    /// What it can do, in words that tasks are compared with.
    pub capabilities: &'static [&'static str],
    /// For filters and for people.
    pub tags: &'static [&'static str],
    /// Tasks that it is the right one for; the supervisor compares a task with each.
    pub best_for: &'static [&'static str],
    /// Where it stands in lists, and which of several is chosen that a task's signs speak for equally: the lowest, and of equal ones
    /// the first by name. 0 is the general agent, for tasks without a sign.
    #[serde(skip)]
    pub precedence: u8,
    /// Signs in a task that speak for it.
    #[serde(skip)]
    pub cues: &'static [Cue],
}

/// A sign in the words of a task. What each means stands in [`crate::supervisor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cue {
    /// These words in succession, in any case and with or without a plural s.
    Words(&'static str),
    /// Numbers with an operator between them, or a percentage.
    Arithmetic,
    /// Several things to do one after the other: "then", "after that", "finally", or a numbered list.
    Sequence,
}
