//! `plan_execute`: make a plan, carry out its steps, plan anew when one fails, answer.
//!
//! After Wang et al., "Plan-and-Solve Prompting", 2023 (<https://arxiv.org/abs/2305.04091>), with planner and executor apart
//! and a plan that is made anew as in Sun et al., "AdaPlanner: Adaptive Planning from Feedback with Language Models", 2023
//! (<https://arxiv.org/abs/2305.16653>). The plan is data ([`Plan`]): a step names the tool it wants, and is done when that
//! tool has returned something. A step that needs no tool is thought through in words.

mod plan;
mod prompts;

use riverrun_schemas::agent::StepKind;

use self::plan::{MAX_PLANS, MAX_TRIES, Plan, Progress};
use super::acting::{self, Acted, Exit};
use super::marks::Mark;
use super::{Action, AgentType, Entered, ModelMode, Reply, StepDraft, grounding};
use crate::manifest::{Cue, Manifest};
use crate::state::RunState;
use crate::tools::ToolManifest;

/// Characters of a step's result in words.
const MAX_RESULT: usize = 4_000;

static DONE: Exit =
    Exit { name: "done", when: "Choose this when the observations above already hold what this step asks for." };
static REPLAN: Exit = Exit {
    name: "replan",
    when: "Choose this when the plan is wrong or this step can't work; say why in the thought.",
};

static MANIFEST: Manifest = Manifest {
    name: "plan_execute",
    description: "Makes a plan of several steps, carries them out with tools, and plans anew when one fails. For tasks that \
                  need several things found out or worked out first.",
    capabilities: &["planning", "several steps", "comparing", "combining facts", "multi-step calculation", "research"],
    tags: &["planning", "tools", "citations"],
    best_for: &[
        "Compare the price of a winch launch with that of an aerotow and say how much is saved in ten flights.",
        "Find the membership fee, then calculate what three members under 21 pay together.",
        "Plan a flying day: when it begins, who does what, and when the last launch is.",
        "Step by step, work out the cost of a flight of two hours with its launch.",
        "Collect all the limits for wind and make a table of them.",
    ],
    precedence: 1,
    cues: &[
        Cue::Sequence,
        Cue::Words("step by step"),
        Cue::Words("plan"),
        Cue::Words("compare"),
        Cue::Words("comparison"),
        Cue::Words("difference between"),
        Cue::Words("for each"),
        Cue::Words("both"),
        Cue::Words("all together"),
        Cue::Words("collect"),
    ],
};

struct PlanExecute;

inventory::submit!(Entered(&PlanExecute));

impl AgentType for PlanExecute {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    fn decide(&self, state: &RunState, tools: &[ToolManifest]) -> Action {
        let progress = Progress::of(&state.steps);
        Action::CallModel(match what_next(state, tools, &progress) {
            Next::Plan => prompts::plan(state, tools, &progress),
            Next::Act(step) => prompts::act(state, &offered(tools, step, &progress), &exits(state), &progress),
            Next::Work => prompts::work(state, &progress),
            Next::Answer => prompts::answer(state, &progress),
        })
    }

    fn interpret(&self, state: &RunState, tools: &[ToolManifest], mode: ModelMode, reply: &Reply) -> Vec<StepDraft> {
        let progress = Progress::of(&state.steps);
        match mode {
            ModelMode::Plan => planned(tools, &progress, reply),
            ModelMode::Act => acted(state, tools, &progress, reply),
            ModelMode::Work => worked(&progress, reply),
            ModelMode::Answer | ModelMode::Draft | ModelMode::Judge | ModelMode::Reflect | ModelMode::Route => {
                grounding::answered(state, reply)
            }
        }
    }

    fn bound_to_task(&self) -> &'static [StepKind] {
        &[StepKind::Plan]
    }

    fn stop_reason(&self, state: &RunState) -> &'static str {
        let progress = Progress::of(&state.steps);
        let through = progress.no_plan || progress.plan.as_ref().is_none_or(|plan| progress.at >= plan.steps.len());
        match (through, acting::loops(&state.steps[progress.begins..])) {
            (true, _) => "answered",
            (false, true) => "loop_detected",
            (false, false) => "max_iters",
        }
    }
}

/// What comes next, before it is put into words.
enum Next<'a> {
    Plan,
    Act(&'a plan::PlanStep),
    Work,
    Answer,
}

fn what_next<'a>(state: &RunState, tools: &[ToolManifest], progress: &'a Progress<'_>) -> Next<'a> {
    if progress.no_plan || tools.is_empty() || acting::iterations_left(state) == 0 {
        return Next::Answer;
    }
    let Some(plan) = &progress.plan else { return Next::Plan };
    let Some(step) = plan.steps.get(progress.at) else { return Next::Answer };
    let stuck = progress.tries >= MAX_TRIES || acting::loops(&state.steps[progress.begins..]);
    match (progress.failure.is_some() || stuck, &step.tool) {
        (true, _) if progress.plans < MAX_PLANS => Next::Plan,
        (true, _) => Next::Answer,
        (false, Some(_)) => Next::Act(step),
        (false, None) => Next::Work,
    }
}

/// The tools for a step: at first only the one that the plan wants, so that a small model can't go astray.
fn offered(tools: &[ToolManifest], step: &plan::PlanStep, progress: &Progress<'_>) -> Vec<ToolManifest> {
    let wanted: Vec<ToolManifest> =
        tools.iter().filter(|tool| Some(acting::name(tool)) == step.tool.as_deref()).cloned().collect();
    if progress.tries == 0 && !wanted.is_empty() { wanted } else { tools.to_vec() }
}

/// The ways out of a step; none before anything was found out, since a small model would take one at once.
fn exits(state: &RunState) -> Vec<&'static Exit> {
    if acting::observed(&state.steps) { vec![&DONE, &REPLAN] } else { Vec::new() }
}

fn planned(tools: &[ToolManifest], progress: &Progress<'_>, reply: &Reply) -> Vec<StepDraft> {
    match Plan::read(&reply.text, tools, progress) {
        Some(plan) => vec![StepDraft::text(StepKind::Plan, plan.to_text(), Some(reply.usage))],
        None => vec![StepDraft::text(
            StepKind::Thought,
            Mark::NoPlan.write("no usable plan; answering without one"),
            Some(reply.usage),
        )],
    }
}

fn acted(state: &RunState, tools: &[ToolManifest], progress: &Progress<'_>, reply: &Reply) -> Vec<StepDraft> {
    let thought = |text: String| vec![StepDraft::text(StepKind::Thought, text, Some(reply.usage))];
    let id = progress.at + 1;
    // Whatever was offered, a step may use every tool of the run and leave by every way out.
    match acting::interpret(state, tools, &[&DONE, &REPLAN], &state.steps[progress.begins..], reply) {
        Acted::Used(steps) => steps,
        Acted::Left { exit, thought: why } if exit == REPLAN.name => thought(Mark::Failed(id).write(&why)),
        Acted::Left { thought: why, .. } => thought(Mark::Done(id).write(&why)),
        Acted::Words(words) => thought(Mark::Done(id).write(&acting::clip(Mark::strip(&words), MAX_RESULT))),
        Acted::Nothing => thought("no usable action".to_owned()),
    }
}

fn worked(progress: &Progress<'_>, reply: &Reply) -> Vec<StepDraft> {
    let words = acting::clip(Mark::strip(&reply.text), MAX_RESULT);
    let mark = if words.is_empty() { Mark::Failed(progress.at + 1) } else { Mark::Done(progress.at + 1) };
    let words = if words.is_empty() { "nothing was written" } else { &words };
    vec![StepDraft::text(StepKind::Thought, mark.write(words), Some(reply.usage))]
}

#[cfg(test)]
#[path = "plan_execute_tests.rs"]
mod tests;
