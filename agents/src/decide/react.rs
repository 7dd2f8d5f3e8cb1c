//! `react`: reason, act, observe, until there is enough to answer.
//!
//! After Yao et al., "ReAct: Synergizing Reasoning and Acting in Language Models", 2022
//! (<https://arxiv.org/abs/2210.03629>). Differences: the action is JSON that the runtime holds to a schema, so that a
//! small model emits a valid one; and the answer is a call of its own in plain text, which streams and which small
//! models write better than text inside JSON.

use riverrun_schemas::agent::StepKind;

use super::acting::{self, ANSWER, Acted};
use super::{Action, AgentType, Entered, ModelCall, ModelMode, Reply, StepDraft, grounding};
use crate::manifest::{Cue, Manifest};
use crate::prompt::{self, Talk};
use crate::state::RunState;
use crate::tools::ToolManifest;

static MANIFEST: Manifest = Manifest {
    name: "react",
    description: "Thinks, uses a tool, looks at the result, and repeats until it can answer. Quickest for one question.",
    capabilities: &["tool use", "question answering", "calculation", "knowledge search", "date and time"],
    tags: &["general", "tools", "citations"],
    best_for: &[
        "What is 17% of 230?",
        "What does a winch launch cost?",
        "Which day of the week is it today?",
        "Who is the safety officer and how do I reach her?",
        "Look up the opening hours in the documents.",
    ],
    precedence: 0,
    cues: &[
        Cue::Arithmetic,
        Cue::Words("calculate"),
        Cue::Words("how much"),
        Cue::Words("how many"),
        Cue::Words("look up"),
        Cue::Words("find out"),
        Cue::Words("search"),
        Cue::Words("what time"),
        Cue::Words("what day"),
        Cue::Words("who is"),
        Cue::Words("when is"),
        Cue::Words("where is"),
    ],
};

struct React;

inventory::submit!(Entered(&React));

impl AgentType for React {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    fn decide(&self, state: &RunState, tools: &[ToolManifest]) -> Action {
        // A thought that no tool call follows is the choice to answer.
        let chose_answer = state.steps.last().is_some_and(|step| step.kind == StepKind::Thought);
        if chose_answer || tools.is_empty() || state.exhausted() {
            return Action::CallModel(ModelCall {
                mode: ModelMode::Answer,
                messages: prompt::answering(state, &grounding::writing(state)),
                response_schema: None,
                max_tokens: acting::MAX_WORDS_TOKENS,
            });
        }
        Action::CallModel(acting::call(
            state,
            tools,
            &[&ANSWER],
            Talk {
                steps: &state.steps,
                reminder: acting::observed(&state.steps).then(|| acting::REMINDER.to_owned()),
                ..Talk::default()
            },
        ))
    }

    fn interpret(&self, state: &RunState, tools: &[ToolManifest], mode: ModelMode, reply: &Reply) -> Vec<StepDraft> {
        let thought = |text: String| vec![StepDraft::text(StepKind::Thought, text, Some(reply.usage))];
        let answer = |text: &str| vec![StepDraft::text(StepKind::Answer, text.trim(), Some(reply.usage))];
        if mode != ModelMode::Act {
            return grounding::answered(state, reply);
        }
        match acting::interpret(state, tools, &[&ANSWER], &state.steps, reply) {
            Acted::Used(steps) => steps,
            Acted::Left { thought: why, .. } => thought(why),
            Acted::Words(words) => answer(&words),
            Acted::Nothing => thought("no usable action; answering".to_owned()),
        }
    }
}

#[cfg(test)]
#[path = "react_tests.rs"]
mod tests;
