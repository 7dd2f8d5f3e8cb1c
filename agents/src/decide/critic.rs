//! `critic`: draft, criticise the draft against criteria, revise, until nothing is left to criticise.
//!
//! After Madaan et al., "Self-Refine: Iterative Refinement with Self-Feedback", 2023 (<https://arxiv.org/abs/2303.17651>),
//! with tools before the first draft as in Gou et al., "CRITIC: Large Language Models Can Self-Correct with
//! Tool-Interactive Critiquing", 2023 (<https://arxiv.org/abs/2305.11738>). Differences: the criteria are fixed and named,
//! and the critique is JSON with one finding a criterion, so that whether to revise is read from data and not from prose.

use riverrun_schemas::agent::StepKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::acting;
use super::drafting::{self, Drafts, Gathering};
use super::{Action, AgentType, Entered, ModelMode, Reply, StepDraft, empty, grounding};
use crate::manifest::{Cue, Manifest};
use crate::prompt::{self, Writing};
use crate::state::RunState;
use crate::tools::ToolManifest;

/// Most drafts, the first one included.
const MAX_DRAFTS: usize = 3;
/// Characters of a finding.
const MAX_FINDING: usize = 240;

/// What a draft is judged by: name and question.
static CRITERIA: &[(&str, &str)] = &[
    ("complete", "does it answer every part of the task"),
    ("grounded", "does every fact in it come from the observations, where there are any"),
    ("correct", "are its numbers, names and reasoning right, without contradiction"),
    ("clear", "is it direct, and in the form and language that the task asks for"),
];

static MANIFEST: Manifest = Manifest {
    name: "critic",
    description: "Writes a draft, criticises it against criteria and revises it. For texts whose wording matters.",
    capabilities: &["writing", "drafting", "editing", "reviewing", "improving a text", "summarising"],
    tags: &["writing", "quality", "review"],
    best_for: &[
        "Write a friendly letter to the new members.",
        "Draft an announcement of the annual meeting.",
        "Improve this paragraph and make it shorter.",
        "Review this text and rewrite what is unclear.",
        "Summarise the safety rules for a notice board.",
    ],
    precedence: 3,
    cues: &[
        Cue::Words("write"),
        Cue::Words("draft"),
        Cue::Words("rewrite"),
        Cue::Words("rephrase"),
        Cue::Words("improve"),
        Cue::Words("review"),
        Cue::Words("polish"),
        Cue::Words("proofread"),
        Cue::Words("summarise"),
        Cue::Words("summarize"),
        Cue::Words("letter"),
        Cue::Words("email"),
        Cue::Words("essay"),
        Cue::Words("announcement"),
    ],
};

struct Critic;

inventory::submit!(Entered(&Critic));

/// What was found about one criterion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Finding {
    criterion: String,
    passed: bool,
    note: String,
}

/// A critique as its step records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Critique {
    draft: usize,
    passed: bool,
    findings: Vec<Finding>,
}

impl Critique {
    /// From findings; with none, the draft stands.
    fn of(draft: usize, findings: Vec<Finding>) -> Self {
        Self { draft, passed: findings.iter().all(|finding| finding.passed), findings }
    }

    /// From a model's reply. A reply that is no critique finds nothing: the draft stands.
    fn read(draft: usize, reply: &str) -> Self {
        let names: Vec<&str> = CRITERIA.iter().map(|(name, _)| *name).collect();
        let judged = acting::object_with(reply, &names).unwrap_or_default();
        let finding = |name: &&str| {
            let judgement = judged.get(*name)?;
            Some(Finding {
                criterion: (*name).to_owned(),
                passed: judgement["verdict"].as_str()? != "problem",
                note: acting::clip(judgement["note"].as_str().unwrap_or_default(), MAX_FINDING),
            })
        };
        Critique::of(draft, names.iter().filter_map(finding).collect())
    }

    fn problems(&self) -> String {
        let problems = self.findings.iter().filter(|finding| !finding.passed);
        problems.map(|finding| format!("- not {}: {}", finding.criterion, finding.note)).collect::<Vec<_>>().join("\n")
    }
}

/// The critique of the newest draft.
fn judged(drafts: &Drafts<'_>) -> Option<Critique> {
    // What another agent made of the draft, before a fork went over to this one, is no critique: it is judged again.
    serde_json::from_str(drafts.judged?).ok()
}

fn may_revise(state: &RunState, drafts: &Drafts<'_>) -> bool {
    drafts.count < MAX_DRAFTS && acting::iterations_left(state) > 0
}

impl AgentType for Critic {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    fn decide(&self, state: &RunState, tools: &[ToolManifest]) -> Action {
        let drafts = Drafts::of(&state.steps);
        match judged(&drafts) {
            _ if drafts.count == 0 => gathering(state).next(state, tools),
            Some(critique) if critique.passed => drafting::answer_with(state, drafts.best),
            Some(critique) if may_revise(state, &drafts) => {
                Action::CallModel(drafting::draft_call(state, &revision(&drafts, &critique)))
            }
            None if may_revise(state, &drafts) => judge(state, &drafts),
            Some(_) | None => drafting::answer_with(state, drafts.best),
        }
    }

    fn interpret(&self, state: &RunState, tools: &[ToolManifest], mode: ModelMode, reply: &Reply) -> Vec<StepDraft> {
        let draft = Drafts::of(&state.steps).count;
        match mode {
            ModelMode::Act => drafting::gathered(state, tools, &state.steps, draft + 1, reply),
            ModelMode::Draft => drafting::drafted(draft + 1, &reply.text, reply),
            ModelMode::Judge => vec![drafting::critique(&Critique::read(draft, &reply.text), Some(reply))],
            ModelMode::Answer | ModelMode::Plan | ModelMode::Work | ModelMode::Reflect | ModelMode::Route => {
                empty::answer(reply)
            }
        }
    }

    fn bound_to_task(&self) -> &'static [StepKind] {
        &[StepKind::Critique]
    }

    fn stop_reason(&self, state: &RunState) -> &'static str {
        let accepted = judged(&Drafts::of(&state.steps)).is_some_and(|critique| critique.passed);
        drafting::stop_reason(accepted, acting::loops(&state.steps))
    }
}

/// Iterations are kept back for the drafts.
fn gathering(state: &RunState) -> Gathering<'_> {
    Gathering {
        episode: &state.steps,
        most: acting::max_iterations(state).saturating_sub(MAX_DRAFTS).max(1),
        preface: None,
        writing: Writing { notes: Vec::new(), ask: "Write the whole answer to the task in plain text." },
    }
}

fn revision(drafts: &Drafts<'_>, critique: &Critique) -> Writing {
    let draft = drafts.best.map(|draft| prompt::noted("the draft", draft));
    let problems = prompt::noted("problems of the draft", &critique.problems());
    Writing {
        notes: draft.into_iter().chain([problems]).collect(),
        ask: "Write the draft anew, as the whole answer to the task, with these problems solved. Write only the answer.",
    }
}

/// An empty draft needs no model to be found wanting, nor does a first one that has nothing from the passages.
fn judge(state: &RunState, drafts: &Drafts<'_>) -> Action {
    let found = |criterion: &str, note: &str| {
        let finding = Finding { criterion: criterion.to_owned(), passed: false, note: note.to_owned() };
        Action::Append(vec![drafting::critique(&Critique::of(drafts.count, vec![finding]), None)])
    };
    let Some(draft) = drafts.best.filter(|_| !drafts.empty) else {
        return found("complete", "the draft is empty");
    };
    if drafts.count == 1 && grounding::is_unbacked(state, draft) {
        return found("grounded", grounding::UNBACKED);
    }
    let questions: Vec<String> = CRITERIA.iter().map(|(name, question)| format!("- {name}: {question}?")).collect();
    let instructions = format!(
        "You judge the draft of an answer to a task by these criteria:\n{}\nFor each, write a short note on what you checked, \
         then the verdict \"pass\" or \"problem\". Say \"problem\" only where you can name it. Reply with JSON.",
        questions.join("\n")
    );
    Action::CallModel(drafting::judge_call(state, instructions, draft, schema()))
}

fn schema() -> Value {
    let finding = json!({
        "type": "object",
        "properties": {
            "note": { "type": "string", "maxLength": MAX_FINDING },
            "verdict": { "type": "string", "enum": ["pass", "problem"] },
        },
        "required": ["note", "verdict"],
        "additionalProperties": false,
    });
    let names: Vec<&str> = CRITERIA.iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), finding.clone())).collect();
    json!({ "type": "object", "properties": properties, "required": names, "additionalProperties": false })
}

#[cfg(test)]
#[path = "critic_tests.rs"]
mod tests;
