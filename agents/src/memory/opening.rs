//! A run that belongs to a conversation begins by reading it: a call of the memory tool and its result are its first steps, behind the
//! supervisor's choice where there is one, since what an agent may read depends on which it is.
//! What was recalled is on the log then, and every later decision, in this process or another, sees the same (`MEM-4`).

use riverrun_schemas::TurnId;
use riverrun_schemas::agent::{Step, StepKind, ToolEffect, ToolUse};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::MemoryContext;
use super::prompt::section;
use crate::decide::{Action, StepDraft};
use crate::state::RunState;
use crate::tools::{MEMORY_RECALL, NOTE, ToolManifest};

/// Most characters of the task that memories are compared with.
const MAX_QUERY: usize = 2_000;

/// What was recalled. Part of the event that records the tool's result: change it as a schema is changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recalled {
    /// What stands for the older turns.
    #[serde(default)]
    pub(crate) summary: Option<String>,
    /// The newest turns, oldest first.
    #[serde(default)]
    pub(crate) turns: Vec<RecalledTurn>,
    /// Episodes and notes that resemble the query, best first.
    #[serde(default)]
    pub(crate) episodes: Vec<RecalledItem>,
}

/// A turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecalledTurn {
    /// Which.
    #[serde(default)]
    pub(crate) turn_id: Option<TurnId>,
    /// Who spoke.
    pub(crate) role: String,
    /// The words.
    pub(crate) text: String,
}

/// An episode or a note.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecalledItem {
    /// Which.
    pub(crate) id: String,
    /// The words.
    pub(crate) text: String,
    /// The turns that it comes from.
    #[serde(default)]
    pub(crate) turn_ids: Vec<TurnId>,
}

impl From<&MemoryContext> for Recalled {
    fn from(context: &MemoryContext) -> Self {
        let turn = |turn: &riverrun_stores::read_models::TurnView| RecalledTurn {
            turn_id: Some(turn.turn_id),
            role: turn.role.clone(),
            text: turn.text.clone(),
        };
        let item = |item: &super::RecalledMemory| RecalledItem {
            id: item.id.clone(),
            text: item.text.clone(),
            turn_ids: item.turn_ids.clone(),
        };
        Self {
            summary: context.summary.as_ref().map(|summary| summary.text.clone()),
            turns: context.turns.iter().map(turn).collect(),
            episodes: context.episodes.iter().map(item).collect(),
        }
    }
}

impl Recalled {
    /// The same in at most so many bytes of JSON: the least near episodes go first, then the oldest turns.
    pub(crate) fn within(mut self, bytes: usize) -> Self {
        let size = |this: &Self| serde_json::to_string(this).map_or(0, |text| text.len());
        while size(&self) > bytes {
            if self.episodes.pop().is_none() {
                if self.turns.is_empty() {
                    break;
                }
                self.turns.remove(0);
            }
        }
        self
    }

    /// How many pieces it has.
    fn pieces(&self) -> usize {
        self.episodes.len() + self.turns.len() + usize::from(self.summary.is_some())
    }

    /// The same without so many pieces: the least near episodes go first, then the oldest turns, and the summary last.
    fn without(mut self, pieces: usize) -> Self {
        for _ in 0..pieces {
            if self.episodes.pop().is_some() {
                continue;
            }
            if self.turns.is_empty() {
                self.summary = None;
                break;
            }
            self.turns.remove(0);
        }
        self
    }
}

fn call_id(state: &RunState) -> String {
    let hash = Sha256::digest(format!("memory of {}", state.run_id));
    format!("call_{}", hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// By its place, since a fork has it under the id of the run that it was copied from: what a model wishes has a thought before it.
fn is_opening(state: &RunState, step: &Step) -> bool {
    let place = step.seq - i64::from(begins_with_choice(state));
    let begins = matches!((place, step.kind), (1, StepKind::ToolCall) | (2, StepKind::ToolResult));
    begins && step.tool.as_ref().is_some_and(|tool| tool.name == MEMORY_RECALL)
}

/// Older versions chose an agent behind the reading.
fn begins_with_choice(state: &RunState) -> bool {
    state.steps.first().is_some_and(|step| step.seq == 1 && step.kind == StepKind::Route)
}

/// Whether a call is the one that reads the conversation when a run begins.
pub(crate) fn is_opening_call(state: &RunState, call: &ToolUse) -> bool {
    call.name == MEMORY_RECALL && call.call_id == call_id(state)
}

/// The first action of a run that belongs to a conversation, once its agent is known: to read it.
pub(crate) fn opening(state: &RunState) -> Option<Action> {
    let has_begun = state.last_seq() > i64::from(begins_with_choice(state));
    if state.request.session.is_none() || state.agent().is_none() || has_begun {
        return None;
    }
    let query: String = state.request.task.chars().take(MAX_QUERY).collect();
    let call = ToolUse {
        call_id: call_id(state),
        name: MEMORY_RECALL.to_owned(),
        arguments_json: json!({ "query": query, "window": true }).to_string(),
        effect: ToolEffect::None,
        result_json: None,
        result_blob: None,
        error: None,
        duration_ms: None,
    };
    Some(Action::Append(vec![StepDraft::tool(StepKind::ToolCall, call)]))
}

/// The tools that an agent is offered: those of memory only in a conversation.
pub(crate) fn usable(state: &RunState, tools: &[ToolManifest]) -> Vec<ToolManifest> {
    let in_conversation = state.request.session.is_some();
    let of_memory = |tool: &ToolManifest| tool.name == MEMORY_RECALL || tool.name == NOTE;
    tools.iter().filter(|tool| in_conversation || !of_memory(tool)).cloned().collect()
}

/// The state as agent types see it: the reading of memory is not one of their steps. `None` when there was none.
pub(crate) fn without_opening(state: &RunState) -> Option<RunState> {
    state.steps.iter().any(|step| is_opening(state, step)).then(|| {
        let mut seen = state.clone();
        seen.steps.retain(|step| !is_opening(state, step));
        seen
    })
}

/// How many pieces were recalled when the run began.
pub(crate) fn remembered(state: &RunState) -> usize {
    recalled(state).map_or(0, |recalled| recalled.pieces())
}

/// Shows a model what was recalled when the run began, as far as it is not left out, before the first thing that it is told.
pub(crate) fn with_memory(state: &RunState, mut action: Action) -> Action {
    let shown = recalled(state).map(|recalled| recalled.without(state.compaction().memories()));
    if let (Action::CallModel(call), Some(section)) = (&mut action, shown.as_ref().and_then(section)) {
        let first = call.messages.iter_mut().find(|message| message.role == riverrun_models::Role::User);
        if let Some(message) = first {
            message.content = format!("{section}\n\n{}", message.content);
        }
    }
    action
}

fn recalled(state: &RunState) -> Option<Recalled> {
    let result = state.steps.iter().find(|step| step.kind == StepKind::ToolResult && is_opening(state, step))?;
    serde_json::from_str(result.tool.as_ref()?.result_json.as_deref()?).ok()
}

#[cfg(test)]
#[path = "opening_tests.rs"]
mod tests;
