//! The plan as data, and how far it is carried out: both read from a run's steps and nothing else.

use riverrun_schemas::agent::{Step, StepKind, ToolUse};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::decide::acting;
use crate::decide::marks::Mark;
use crate::state::hits;
use crate::tools::{KNOWLEDGE_SEARCH, ToolManifest};

/// Most plans, the first one included.
pub(super) const MAX_PLANS: usize = 3;
/// Most steps of a plan.
const MAX_STEPS: usize = 5;
/// Most iterations for one step of a plan; then it has failed.
pub(super) const MAX_TRIES: usize = 3;
/// Characters of a step's description.
const MAX_DESCRIPTION: usize = 200;
/// What a plan says instead of a tool.
const NO_TOOL: &str = "none";

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanStep {
    /// Its number in the plan, from 1.
    pub(super) id: usize,
    /// What is to be found out or worked out.
    pub(super) description: String,
    /// The tool that it wants; `None` is thought through in words.
    #[serde(default)]
    pub(super) tool: Option<String>,
}

/// A plan, as the text of its step records it in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Which plan of the run it is, from 1.
    pub(super) plan: usize,
    /// Why the plan before it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) because: Option<String>,
    /// Its steps, in order.
    pub(super) steps: Vec<PlanStep>,
}

impl Plan {
    /// From a model's reply; `None` when there is no step in it. A tool that the run does not have is none.
    pub(super) fn read(reply: &str, tools: &[ToolManifest], progress: &Progress<'_>) -> Option<Self> {
        let object = acting::object_with(reply, &["steps"])?;
        let steps: Vec<PlanStep> = object["steps"]
            .as_array()?
            .iter()
            .filter_map(|step| Some((step["description"].as_str()?.trim(), step["tool"].as_str())))
            .filter(|(description, _)| !description.is_empty())
            .take(MAX_STEPS)
            .zip(1..)
            .map(|((description, tool), id)| PlanStep {
                id,
                description: acting::clip(description, MAX_DESCRIPTION),
                tool: tool.filter(|tool| tools.iter().any(|known| acting::name(known) == *tool)).map(str::to_owned),
            })
            .collect();
        let because = progress.plan.as_ref().map(|_| progress.why_failed());
        (!steps.is_empty()).then_some(Plan { plan: progress.plans + 1, because, steps })
    }

    /// The text of its step.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What a reply with a plan must satisfy.
    pub(super) fn schema(tools: &[ToolManifest]) -> Value {
        let names: Vec<&str> = acting::names(tools).into_iter().chain([NO_TOOL]).collect();
        json!({
            "type": "object",
            "properties": {
                "steps": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_STEPS,
                    "items": {
                        "type": "object",
                        "properties": {
                            "description": { "type": "string", "maxLength": MAX_DESCRIPTION },
                            "tool": { "type": "string", "enum": names },
                        },
                        "required": ["description", "tool"],
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["steps"],
            "additionalProperties": false,
        })
    }
}

/// How far the newest plan is carried out.
#[derive(Debug, Default)]
pub(super) struct Progress<'a> {
    /// The newest plan.
    pub(super) plan: Option<Plan>,
    /// How many plans there were.
    pub(super) plans: usize,
    /// No plan could be made.
    pub(super) no_plan: bool,
    /// Index of the plan's step that is being carried out; behind the last one when all are done.
    pub(super) at: usize,
    /// Index of the first run step that belongs to it.
    pub(super) begins: usize,
    /// Iterations spent on it.
    pub(super) tries: usize,
    /// Why it failed, where the agent said so.
    pub(super) failure: Option<&'a str>,
    /// What steps without a tool came to, over all plans: the step's description and the words.
    pub(super) words: Vec<(String, &'a str)>,
    /// The last error or empty result of a tool within the step.
    trouble: Option<String>,
}

impl<'a> Progress<'a> {
    /// Folds the steps.
    pub(super) fn of(steps: &'a [Step]) -> Self {
        let mut progress = Progress::default();
        for (index, step) in steps.iter().enumerate() {
            progress.take_in(index, step);
        }
        progress
    }

    fn take_in(&mut self, index: usize, step: &'a Step) {
        let text = step.text.as_deref().unwrap_or_default();
        match step.kind {
            StepKind::Plan => {
                self.plan = serde_json::from_str(text).ok();
                self.no_plan = self.plan.is_none();
                self.plans += 1;
                self.begin(0, index + 1);
            }
            StepKind::Thought => match Mark::read(text) {
                Some((Mark::NoPlan, _)) => self.no_plan = true,
                Some((Mark::Done(_), words)) => {
                    let description = self.current().map(|current| current.description.clone());
                    self.words.extend(description.map(|description| (description, words)));
                    self.begin(self.at + 1, index + 1);
                }
                Some((Mark::Failed(_), why)) => {
                    self.tries += 1;
                    self.failure = Some(why);
                }
                Some((Mark::Draft(_) | Mark::Unbacked | Mark::Empty, _)) | None => self.tries += 1,
            },
            StepKind::ToolResult => {
                if let Some(tool) = &step.tool {
                    self.take_in_result(index, tool);
                }
            }
            StepKind::Route
            | StepKind::ToolCall
            | StepKind::Approval
            | StepKind::Reflection
            | StepKind::Critique
            | StepKind::Answer
            | StepKind::Compaction
            | StepKind::Unknown => {}
        }
    }

    /// A step is done when the tool that it wants has returned something.
    fn take_in_result(&mut self, index: usize, tool: &ToolUse) {
        self.trouble = nothing_in(tool);
        let wanted = self.current().and_then(|step| step.tool.as_deref()) == Some(tool.name.as_str());
        if wanted && self.trouble.is_none() {
            self.begin(self.at + 1, index + 1);
        }
    }

    fn begin(&mut self, at: usize, begins: usize) {
        self.at = at;
        self.begins = begins;
        self.tries = 0;
        self.failure = None;
        self.trouble = None;
    }

    /// The plan's step that is being carried out.
    pub(super) fn current(&self) -> Option<&PlanStep> {
        self.plan.as_ref()?.steps.get(self.at)
    }

    /// Why the plan is given up, for the plan after it.
    pub(super) fn why_failed(&self) -> String {
        let step = self.at + 1;
        let said = self.failure.filter(|why| !why.is_empty());
        let why = said.or(self.trouble.as_deref()).unwrap_or("it came to no result");
        format!("step {step} failed: {}", acting::clip(why, MAX_DESCRIPTION))
    }
}

/// What is wrong with a tool's result; `None` when there is something in it.
fn nothing_in(tool: &ToolUse) -> Option<String> {
    if let Some(error) = &tool.error {
        return Some(format!("{}: {error}", tool.name));
    }
    let nothing_found =
        tool.name == KNOWLEDGE_SEARCH && tool.result_json.as_deref().is_some_and(|result| hits(result).is_empty());
    nothing_found.then(|| format!("{}: no passage found", tool.name))
}
