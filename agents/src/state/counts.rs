//! What is counted of a run instead of being kept, so that a long run costs per step what a short one does.

use std::collections::{HashMap, VecDeque};

use riverrun_schemas::agent::{Step, StepKind, ToolUse};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::canonical::canonical;

/// Different calls whose repetitions are counted; the oldest are forgotten first. Those that change something at every call
/// are kept beside them however many they are: a run makes no more of them than it has iterations.
const MAX_CALLS: usize = 1_024;

/// How often each call was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CallCounts {
    counts: HashMap<String, u32>,
    order: VecDeque<String>,
    /// How often each was taken back.
    #[serde(default)]
    taken_back: HashMap<String, u32>,
}

impl CallCounts {
    pub(super) fn of(&self, name: &str, arguments_json: &str) -> usize {
        self.counts.get(&self.key(name, arguments_json)).map_or(0, |count| *count as usize)
    }

    /// Under what a call is counted. A snapshot of an earlier version may have it as it was written.
    fn key(&self, name: &str, arguments_json: &str) -> String {
        let written = key(name, arguments_json);
        if self.counts.contains_key(&written) { written } else { key(name, &canonical(arguments_json)) }
    }

    /// Counts a call; tells how often it was made now.
    pub(super) fn count(&mut self, tool: &ToolUse) -> usize {
        let key = self.key(&tool.name, &tool.arguments_json);
        let is_new = !self.counts.contains_key(&key);
        let count = self.counts.entry(key.clone()).or_insert(0);
        *count = count.saturating_add(1);
        let now = *count as usize;
        if is_new && tool.effect.repeatable() {
            self.order.push_back(key);
            if self.order.len() > MAX_CALLS
                && let Some(oldest) = self.order.pop_front()
            {
                self.counts.remove(&oldest);
                self.taken_back.remove(&oldest);
            }
        }
        now
    }

    /// Takes a call back that was counted and not made, at most so often.
    pub(super) fn take_back(&mut self, tool: &ToolUse, most: u32) {
        let key = self.key(&tool.name, &tool.arguments_json);
        let Some(count) = self.counts.get_mut(&key) else { return };
        let taken_back = self.taken_back.entry(key).or_insert(0);
        if *taken_back < most {
            *taken_back += 1;
            *count = count.saturating_sub(1);
        }
    }
}

/// Sixteen hex characters that stand for a call.
fn key(name: &str, arguments_json: &str) -> String {
    let mut hash = Sha256::new();
    hash.update((name.len() as u64).to_be_bytes());
    hash.update(name.as_bytes());
    hash.update(arguments_json.as_bytes());
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Steps that are kept when the others have been dropped: the newest of them.
pub(super) const KEPT: usize = 256;
/// Steps from before those that are kept whatever comes behind them: plans, choices, reflections, judgements.
const MAX_PINNED: usize = 32;

/// Drops old steps once there are twice as many as are kept, so that dropping costs nothing a step. Whether it did.
pub(super) fn shorten(steps: &mut Vec<Step>) -> bool {
    if steps.len() < 2 * KEPT + MAX_PINNED {
        return false;
    }
    let recent = steps.split_off(steps.len() - KEPT);
    steps.retain(pinned);
    let surplus = steps.len().saturating_sub(MAX_PINNED);
    // The choice of the agent is the first of them and stays.
    let first = usize::from(steps.first().is_some_and(|step| step.kind == StepKind::Route));
    steps.drain(first..(first + surplus).min(steps.len()));
    steps.extend(recent);
    true
}

fn pinned(step: &Step) -> bool {
    match step.kind {
        StepKind::Route | StepKind::Plan | StepKind::Reflection | StepKind::Critique => true,
        StepKind::Thought
        | StepKind::ToolCall
        | StepKind::ToolResult
        | StepKind::Approval
        | StepKind::Answer
        | StepKind::Compaction
        | StepKind::Unknown => false,
    }
}
