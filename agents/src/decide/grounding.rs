//! A run whose request names collections is about what stands in them. Three things follow, for every agent type:
//!
//! - the model is told so when it chooses an action or makes a plan;
//! - `GROUND-1` an answer or a draft is not asked for before they were searched: where the model did not do it, the agent
//!   searches for the task itself, once;
//! - `GROUND-2` an answer of which no sentence is in the passages that were found is written anew, once. Whether one is, is
//!   measured as for citations ([`crate::citations`]); nothing is cited that does not pass that measure.
//!
//! Small models need it: asked for the price of a thing they name one, and look nowhere.

use riverrun_schemas::agent::{Step, StepKind};
use serde_json::json;

use super::marks::Mark;
use super::{Action, ModelMode, Reply, StepDraft, acting, empty};
use crate::citations;
use crate::prompt::Writing;
use crate::state::RunState;
use crate::tools::{DOCUMENT_READ, KNOWLEDGE_SEARCH, ToolManifest};

/// Characters of the task that are searched for; what the tool takes.
const MAX_QUERY: usize = 200;
/// Why the agent searches although the model did not ask for it.
const UNASKED: &str = "the request names collections, and they were not searched yet";
/// Said of a draft that has no sentence from the passages.
pub(super) const UNBACKED: &str =
    "no sentence of it is in the passages that were found; say what they say, in their words";
/// Said where actions are chosen.
const RULE: &str = " The user has chosen documents for this task: look there for its facts with knowledge_search, and do not guess them.";

/// The run is about documents that it can search.
fn wanted(state: &RunState, tools: &[ToolManifest]) -> bool {
    names_collections(state) && tools.iter().any(|tool| tool.name == KNOWLEDGE_SEARCH)
}

fn names_collections(state: &RunState) -> bool {
    state.request.collections.as_ref().is_some_and(|names| !names.is_empty())
}

/// What instructions say about it; nothing for a run that names no collections.
pub(super) fn rule(state: &RunState, tools: &[ToolManifest]) -> &'static str {
    if wanted(state, tools) { RULE } else { "" }
}

/// The action, or the search that has to come before it.
pub(super) fn search_first(state: &RunState, tools: &[ToolManifest], action: Action) -> Action {
    let writes = match &action {
        Action::CallModel(call) => matches!(call.mode, ModelMode::Answer | ModelMode::Draft),
        Action::Append(_) | Action::Route | Action::CallTool(_) | Action::Wait | Action::Finish(_) => false,
    };
    if !writes || !wanted(state, tools) || searched(state) {
        return action;
    }
    match search(state, tools) {
        Some(draft) => Action::Append(vec![draft]),
        None => action,
    }
}

fn searched(state: &RunState) -> bool {
    state.has_sources() || found_out(&state.steps).any(|name| name == KNOWLEDGE_SEARCH)
}

/// The names of the tools that returned something.
fn found_out(steps: &[Step]) -> impl Iterator<Item = &str> {
    let results = steps.iter().filter(|step| step.kind == StepKind::ToolResult);
    results.filter_map(|step| step.tool.as_ref()).filter(|tool| tool.error.is_none()).map(|tool| tool.name.as_str())
}

/// The intent to search for the task; `None` when there was one before, made or refused.
fn search(state: &RunState, tools: &[ToolManifest]) -> Option<StepDraft> {
    let tool = tools.iter().find(|tool| tool.name == KNOWLEDGE_SEARCH)?;
    let task = state.task_with_inputs();
    let query = acting::clip(&task.split_whitespace().collect::<Vec<_>>().join(" "), MAX_QUERY);
    let arguments = json!({ "query": query });
    if state.asked_for(KNOWLEDGE_SEARCH, &arguments.to_string()) {
        return None;
    }
    let call = acting::tool_use(state.run_id, state.last_seq() + 1, KNOWLEDGE_SEARCH, &arguments, tool.effect);
    Some(StepDraft { text: Some(UNASKED.to_owned()), ..StepDraft::tool(StepKind::ToolCall, call) })
}

/// Whether words that are to be the answer have nothing from the passages although those are all that was found out. What
/// other tools, a conversation, other runs or a plan's own steps have said cannot be looked for there: then nothing is held
/// against the words.
pub(super) fn is_unbacked(state: &RunState, words: &str) -> bool {
    let only_passages = found_out(&state.steps).all(|name| name == KNOWLEDGE_SEARCH || name == DOCUMENT_READ);
    let judged = names_collections(state) && state.has_sources() && only_passages;
    let from_elsewhere = state.request.session.is_some()
        || !state.inputs().is_empty()
        || marked(state, |mark| matches!(mark, Mark::Done(_)));
    if !judged || from_elsewhere || words.trim().is_empty() {
        return false;
    }
    let (_, cited) = citations::check(state, Some(words.to_owned()));
    !cited.iter().any(|citation| citation.supported)
}

/// The step that a written answer becomes: the answer, or a thought that says that it has to be written anew, for want of passages
/// once a run.
pub(super) fn answered(state: &RunState, reply: &Reply) -> Vec<StepDraft> {
    let words = reply.text.trim();
    let again = !state.exhausted() && !written_anew(state) && is_unbacked(state, words);
    if again {
        let text = Mark::Unbacked.write(Mark::strip(words));
        return vec![StepDraft::text(StepKind::Thought, text, Some(reply.usage))];
    }
    empty::answer(reply)
}

fn written_anew(state: &RunState) -> bool {
    marked(state, |mark| mark == Mark::Unbacked)
}

/// A thought of the run has such a mark.
fn marked(state: &RunState, such: impl Fn(Mark) -> bool) -> bool {
    let thoughts = state.steps.iter().filter(|step| step.kind == StepKind::Thought);
    thoughts.filter_map(|step| Mark::read(step.text.as_deref()?)).any(|(mark, _)| such(mark))
}

/// How an answer is asked for.
pub(super) fn writing(state: &RunState) -> Writing {
    let usual = Writing::answer();
    if !written_anew(state) {
        return usual;
    }
    Writing {
        ask: "Find the passage that answers the task. Answer in one sentence made of its words, with its number in brackets \
              behind it. If no passage answers the task, say that the documents do not tell.",
        ..usual
    }
}

#[cfg(test)]
#[path = "grounding_tests.rs"]
mod tests;
