//! What happens to tool calls, whatever the agent type: asking a person before them and where their outcome is not known,
//! refusing, making them.

use riverrun_schemas::agent::{StepKind, ToolUse};

use super::{Action, StepDraft};
use crate::memory;
use crate::policy::{Policy, Verdict};
use crate::state::{Answer, CallNeeds, NOT_MADE_MS, Question, RunState};
use crate::tools::{ToolError, ToolManifest};

/// What an open call asks for; `None` when there is none. Calls that wait for a person hold up only themselves.
pub(super) fn next(state: &RunState) -> Option<Action> {
    let mut waits = false;
    for call in state.open_calls() {
        match call.needs(state.epoch()) {
            CallNeeds::Call => return Some(Action::CallTool(call.tool.clone())),
            CallNeeds::AskOutcome => return Some(Action::Append(vec![ask_outcome(&call.tool)])),
            CallNeeds::Refuse(question, answer) => {
                return Some(Action::Append(vec![refused_by_person(&call.tool, question, answer)]));
            }
            CallNeeds::Person | CallNeeds::Claim => waits = true,
        }
    }
    waits.then_some(Action::Wait)
}

fn ask_outcome(tool: &ToolUse) -> StepDraft {
    ask_after(tool, &format!("{} was called before a crash", tool.name))
}

/// The question about a call that failed so that its outcome is not known; `None` where the model may be told of the error,
/// since the call changes nothing, can be made again, or did not get that far.
pub fn outcome_unknown(tool: &ToolUse, error: &ToolError) -> Option<StepDraft> {
    let is_open = !tool.effect.repeatable() && error.leaves_outcome_unknown();
    is_open.then(|| ask_after(tool, &format!("{} was called ({error})", tool.name)))
}

fn ask_after(tool: &ToolUse, what_happened: &str) -> StepDraft {
    let unknown = format!("{what_happened} and may have taken effect; its outcome is not known");
    let reason = format!("{unknown}: approve to call it again, deny to go on without");
    let tool = ToolUse { error: Some(unknown), ..tool.clone() };
    StepDraft { text: Some(reason), ..StepDraft::tool(StepKind::Approval, tool) }
}

fn refused_by_person(tool: &ToolUse, question: &Question, answer: &Answer) -> StepDraft {
    let why = answer.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
    let error = if question.outcome_unknown {
        format!("the outcome of this call is not known: it may have taken effect, and was not made again{why}")
    } else {
        format!("a person refused this call{why}; do not make it again")
    };
    result_without_call(tool, error)
}

fn denied(tool: &ToolUse, reason: &str) -> StepDraft {
    result_without_call(tool, format!("not allowed: {reason}"))
}

fn result_without_call(tool: &ToolUse, error: String) -> StepDraft {
    StepDraft::tool(
        StepKind::ToolResult,
        ToolUse { error: Some(error), duration_ms: Some(NOT_MADE_MS), ..tool.clone() },
    )
}

/// Completes what an agent type wants to append: each intent without a result is judged, and what the policy says of it
/// goes into the same event. So a call that is on the log without a question beside it was allowed, for every process
/// that reads it, whatever the policy becomes later.
pub fn settle(state: &RunState, tools: &[ToolManifest], policy: &Policy, mut drafts: Vec<StepDraft>) -> Vec<StepDraft> {
    let mut more = Vec::new();
    for draft in &drafts {
        let Some(call) = draft.tool.as_ref().filter(|_| draft.kind == StepKind::ToolCall) else { continue };
        if memory::is_opening_call(state, call) {
            // Not the model's wish, and there whatever tools the request allows; what the policy denies is denied all the same.
            let denial = policy.denial(state.agent(), &state.request, &call.name);
            more.extend(denial.map(|reason| denied(call, &reason)));
            continue;
        }
        let has_result = |draft: &StepDraft| {
            draft.kind == StepKind::ToolResult && draft.tool.as_ref().is_some_and(|tool| tool.call_id == call.call_id)
        };
        if drafts.iter().any(has_result) {
            continue;
        }
        let Some(manifest) = tools.iter().find(|tool| tool.name == call.name.as_str()) else {
            more.push(result_without_call(call, format!("there is no tool {:?} for this run", call.name)));
            continue;
        };
        match policy.judge_as(state.agent(), &state.request, manifest, state.reading()) {
            Verdict::Allow => {}
            Verdict::Ask { reason } => {
                more.push(StepDraft { text: Some(reason), ..StepDraft::tool(StepKind::Approval, call.clone()) })
            }
            Verdict::Deny { reason } => {
                more.push(denied(call, &reason));
            }
        }
    }
    drafts.append(&mut more);
    drafts
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
