//! `reflexion`: attempt, evaluate the attempt, write down what to do better, and try again with that in mind.
//!
//! After Shinn et al., "Reflexion: Language Agents with Verbal Reinforcement Learning", 2023
//! (<https://arxiv.org/abs/2303.11366>). The actor is a loop of actions that ends with a draft; the evaluator is a model call
//! held to a verdict; the reflections are steps, so the paper's memory is the run's own log. Differences: there is no
//! outside reward, and a later attempt also sees what the tools of earlier ones returned, so that it need not ask again.

use riverrun_models::Message;
use riverrun_schemas::agent::StepKind;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::acting;
use super::drafting::{self, Drafts, Gathering};
use super::marks::Mark;
use super::{Action, AgentType, Entered, ModelCall, ModelMode, Reply, StepDraft, empty, grounding};
use crate::manifest::{Cue, Manifest};
use crate::prompt::{self, Writing};
use crate::state::RunState;
use crate::tools::ToolManifest;

/// Most attempts.
const MAX_ATTEMPTS: usize = 3;
/// Characters of a verdict's reason and of a reflection.
const MAX_REASON: usize = 300;
const MAX_LESSON: usize = 1_000;
const MAX_REFLECT_TOKENS: u32 = 256;
/// Characters of earlier observations that a later attempt sees while it chooses actions.
const MAX_EARLIER: usize = 4_000;

static MANIFEST: Manifest = Manifest {
    name: "reflexion",
    description: "Tries, checks its own result, learns from the mistake and tries again. For puzzles and questions that are \
                  easily got wrong.",
    capabilities: &["hard questions", "puzzles", "logic", "checking a result", "trying again", "finding a mistake"],
    tags: &["reasoning", "verification", "retries"],
    best_for: &[
        "Solve this riddle and make sure that the result is right.",
        "Three people sit in a row; who sits in the middle? Check your reasoning.",
        "Find the mistake in this calculation.",
        "Why does this give the wrong result? Verify your explanation.",
        "Double-check whether both conditions hold.",
    ],
    precedence: 2,
    cues: &[
        Cue::Words("puzzle"),
        Cue::Words("riddle"),
        Cue::Words("verify"),
        Cue::Words("double check"),
        Cue::Words("make sure"),
        Cue::Words("be careful"),
        Cue::Words("check your"),
        Cue::Words("prove"),
        Cue::Words("mistake"),
        Cue::Words("tricky"),
        Cue::Words("try again"),
    ],
};

struct Reflexion;

inventory::submit!(Entered(&Reflexion));

/// A verdict as its step records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Verdict {
    attempt: usize,
    passed: bool,
    reason: String,
}

impl Verdict {
    /// From a model's reply. A reply that is no verdict finds nothing wrong: the draft stands.
    fn read(attempt: usize, reply: &str) -> Self {
        let judged = acting::object_with(reply, &["verdict"]).unwrap_or_default();
        let text = |key: &str| judged.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        Self { attempt, passed: text("verdict") != "fail", reason: acting::clip(text("reason"), MAX_REASON) }
    }
}

/// Where a run stands.
struct View<'a> {
    drafts: Drafts<'a>,
    /// First step of the present attempt.
    begins: usize,
    /// The present attempt has its draft.
    drafted: bool,
    /// The verdict on it.
    verdict: Option<Verdict>,
    lessons: Vec<&'a str>,
}

impl<'a> View<'a> {
    fn of(state: &'a RunState) -> Self {
        let drafts = Drafts::of(&state.steps);
        let reflections = state.steps.iter().enumerate().filter(|(_, step)| step.kind == StepKind::Reflection);
        let mut begins = 0;
        let mut lessons = Vec::new();
        for (at, step) in reflections {
            begins = at + 1;
            lessons.extend(step.text.as_deref());
        }
        let present = Drafts::of(&state.steps[begins..]);
        // What another agent made of the draft, before a fork went over to this one, is no verdict: it is evaluated again.
        let verdict = present.judged.and_then(|text| serde_json::from_str(text).ok());
        View { drafted: present.count > 0, drafts, begins, verdict, lessons }
    }

    fn may_retry(&self, state: &RunState) -> bool {
        self.lessons.len() + 1 < MAX_ATTEMPTS && acting::iterations_left(state) > 0
    }
}

impl AgentType for Reflexion {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    fn decide(&self, state: &RunState, tools: &[ToolManifest]) -> Action {
        let view = View::of(state);
        match &view.verdict {
            _ if !view.drafted => attempt(state, &view).next(state, tools),
            None if view.may_retry(state) => evaluate(state, &view),
            Some(verdict) if !verdict.passed && view.may_retry(state) => {
                Action::CallModel(reflect_call(state, &view, verdict))
            }
            Some(_) | None => drafting::answer_with(state, view.drafts.best),
        }
    }

    fn interpret(&self, state: &RunState, tools: &[ToolManifest], mode: ModelMode, reply: &Reply) -> Vec<StepDraft> {
        let view = View::of(state);
        let attempt = view.lessons.len() + 1;
        match mode {
            ModelMode::Act => drafting::gathered(state, tools, &state.steps[view.begins..], attempt, reply),
            ModelMode::Draft => drafting::drafted(attempt, &reply.text, reply),
            ModelMode::Judge => vec![drafting::critique(&Verdict::read(attempt, &reply.text), Some(reply))],
            ModelMode::Reflect => vec![StepDraft::text(StepKind::Reflection, lesson(&view, reply), Some(reply.usage))],
            ModelMode::Answer | ModelMode::Plan | ModelMode::Work | ModelMode::Route => empty::answer(reply),
        }
    }

    fn bound_to_task(&self) -> &'static [StepKind] {
        &[StepKind::Critique, StepKind::Reflection]
    }

    fn stop_reason(&self, state: &RunState) -> &'static str {
        let view = View::of(state);
        let accepted = view.verdict.as_ref().is_some_and(|verdict| verdict.passed);
        drafting::stop_reason(accepted, acting::loops(&state.steps[view.begins..]))
    }
}

/// An attempt takes at most half of the run's iterations, its draft included, so that there is a second one.
fn attempt<'a>(state: &'a RunState, view: &View<'a>) -> Gathering<'a> {
    let lessons =
        (!view.lessons.is_empty()).then(|| prompt::noted("lessons from earlier attempts", &list(&view.lessons)));
    let earlier = prompt::evidence(state, &state.steps[..view.begins], MAX_EARLIER).text;
    let earlier = (!earlier.is_empty()).then(|| format!("Found out in earlier attempts:\n{earlier}"));
    let preface: Vec<String> = earlier.into_iter().chain(lessons.clone()).collect();
    Gathering {
        episode: &state.steps[view.begins..],
        most: (acting::max_iterations(state) / 2).saturating_sub(1).max(1),
        preface: (!preface.is_empty()).then(|| preface.join("\n\n")),
        writing: Writing {
            notes: lessons.into_iter().collect(),
            ask: "Answer the task in plain text, as briefly as it allows.",
        },
    }
}

fn list(lessons: &[&str]) -> String {
    lessons.iter().map(|lesson| format!("- {lesson}")).collect::<Vec<_>>().join("\n")
}

/// An empty draft needs no model to be found wanting, nor does a first one that has nothing from the passages.
fn evaluate(state: &RunState, view: &View<'_>) -> Action {
    let attempt = view.lessons.len() + 1;
    let failed = |reason: &str| {
        Action::Append(vec![drafting::critique(&Verdict { attempt, passed: false, reason: reason.to_owned() }, None)])
    };
    let Some(draft) = view.drafts.best.filter(|_| !view.drafts.empty) else {
        return failed("the draft is empty");
    };
    if attempt == 1 && grounding::is_unbacked(state, draft) {
        return failed(grounding::UNBACKED);
    }
    let instructions = "You check whether a draft solves a task. Compare it with the task and the observations. Give the \
                        reason first, in one sentence; then the verdict: \"pass\" when the draft answers what was asked and \
                        nothing speaks against it, else \"fail\". Reply with JSON.";
    let schema = json!({
        "type": "object",
        "properties": {
            "reason": { "type": "string", "maxLength": MAX_REASON },
            "verdict": { "type": "string", "enum": ["pass", "fail"] },
        },
        "required": ["reason", "verdict"],
        "additionalProperties": false,
    });
    Action::CallModel(drafting::judge_call(state, instructions.to_owned(), draft, schema))
}

fn reflect_call(state: &RunState, view: &View<'_>, verdict: &Verdict) -> ModelCall {
    let found = prompt::evidence(state, &state.steps, MAX_EARLIER);
    let draft = view.drafts.best.unwrap_or_default();
    let notes = [prompt::noted("the draft", draft), prompt::noted("why it failed", &verdict.reason)];
    let instructions = format!(
        "An attempt at a task failed. Write a lesson for the next attempt in one or two sentences: what went wrong, and what \
         to do differently. Do not write the answer itself. {}",
        prompt::DATA_RULE
    );
    ModelCall {
        mode: ModelMode::Reflect,
        messages: vec![Message::system(instructions), Message::user(prompt::case(state, &found, &notes))],
        response_schema: None,
        max_tokens: MAX_REFLECT_TOKENS,
    }
}

/// The model's words, or the verdict's reason when it had none.
fn lesson(view: &View<'_>, reply: &Reply) -> String {
    let words = acting::clip(Mark::strip(&reply.text), MAX_LESSON);
    match (&view.verdict, words.is_empty()) {
        (Some(verdict), true) => verdict.reason.clone(),
        _ => words,
    }
}

#[cfg(test)]
#[path = "reflexion_tests.rs"]
mod tests;
