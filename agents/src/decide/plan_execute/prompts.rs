//! How plans, their steps and the answer are asked for.

use riverrun_models::Message;

use super::plan::{Plan, Progress};
use crate::decide::acting::{self, Exit, MAX_WORDS_TOKENS};
use crate::decide::{ModelCall, ModelMode, grounding};
use crate::prompt::{self, DATA_RULE, Talk, Writing};
use crate::state::RunState;
use crate::tools::ToolManifest;

const MAX_PLAN_TOKENS: u32 = 768;
/// Characters of observations that a plan or a step is made from.
const MAX_EVIDENCE: usize = 8_000;

/// Asks for a plan, or for another one.
pub(super) fn plan(state: &RunState, tools: &[ToolManifest], progress: &Progress<'_>) -> ModelCall {
    let instructions = format!(
        "You plan how to solve the user's task. Tools:\n{}- none: Choose this for a step that only needs thought.\n\
         Reply with one JSON object: {{\"steps\": [{{\"description\": \"what to find out or work out, in one sentence\", \"tool\": \"name\"}}]}}. \
         One tool call a step, as few steps as the task needs, in the order in which they are done. Do not solve the task yet.{} {DATA_RULE}",
        acting::tool_lines(tools),
        grounding::rule(state, tools)
    );
    let mut notes = results(progress);
    if let Some(failed) = &progress.plan {
        let why = format!("{}\n{}", lines(failed, progress), progress.why_failed());
        notes.push(prompt::noted("the plan before, which failed", &why));
        notes.push("Make another plan for what is still missing. Do not repeat what failed.".to_owned());
    }
    let found = prompt::evidence(state, &state.steps, MAX_EVIDENCE);
    ModelCall {
        mode: ModelMode::Plan,
        messages: vec![Message::system(instructions), Message::user(prompt::case(state, &found, &notes))],
        response_schema: Some(Plan::schema(tools)),
        max_tokens: MAX_PLAN_TOKENS,
    }
}

/// Asks for the next action of the step at hand.
pub(super) fn act(state: &RunState, tools: &[ToolManifest], exits: &[&Exit], progress: &Progress<'_>) -> ModelCall {
    let episode = &state.steps[progress.begins..];
    let reminder = acting::observed(episode).then(|| {
        "This did not finish the step. Try another call, or choose \"done\" or \"replan\". Never repeat a call."
            .to_owned()
    });
    acting::call(
        state,
        tools,
        exits,
        Talk { preface: Some(step(state, progress)), steps: episode, reminder, ..Talk::default() },
    )
}

/// Asks for the result of a step that needs no tool.
pub(super) fn work(state: &RunState, progress: &Progress<'_>) -> ModelCall {
    let instructions = format!(
        "You carry out one step of a plan in plain text, briefly, from what is given. Write only the step's result. {DATA_RULE}"
    );
    let talk = Talk { instructions, preface: Some(step(state, progress)), ..Talk::default() };
    words(ModelMode::Work, talk.messages(state))
}

/// Asks for the answer, from what the steps came to.
pub(super) fn answer(state: &RunState, progress: &Progress<'_>) -> ModelCall {
    words(
        ModelMode::Answer,
        prompt::answering(state, &Writing { notes: results(progress), ..grounding::writing(state) }),
    )
}

fn words(mode: ModelMode, messages: Vec<Message>) -> ModelCall {
    ModelCall { mode, messages, response_schema: None, max_tokens: MAX_WORDS_TOKENS }
}

/// What is known, the plan, and which step is to be carried out.
fn step(state: &RunState, progress: &Progress<'_>) -> String {
    let found = prompt::evidence(state, &state.steps[..progress.begins], MAX_EVIDENCE).text;
    let mut parts: Vec<String> = Vec::new();
    if !found.is_empty() {
        parts.push(format!("Found out so far:\n{found}"));
    }
    parts.extend(results(progress));
    if let (Some(plan), Some(current)) = (&progress.plan, progress.current()) {
        parts.push(prompt::noted("the plan", &lines(plan, progress)));
        parts.push(format!(
            "Carry out step {} now, and only this step: {}",
            current.id,
            prompt::escape(&current.description)
        ));
    }
    parts.join("\n\n")
}

fn lines(plan: &Plan, progress: &Progress<'_>) -> String {
    let line = |(index, step): (usize, &super::plan::PlanStep)| {
        let state = match index.cmp(&progress.at) {
            std::cmp::Ordering::Less => "done",
            std::cmp::Ordering::Equal => "now",
            std::cmp::Ordering::Greater => "later",
        };
        format!("{}. ({state}) {} [{}]", step.id, step.description, step.tool.as_deref().unwrap_or("no tool"))
    };
    plan.steps.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// What steps came to in words.
fn results(progress: &Progress<'_>) -> Vec<String> {
    let newest = progress.words.len().saturating_sub(5);
    progress
        .words
        .iter()
        .skip(newest)
        .map(|(step, words)| prompt::noted(&format!("result of: {step}"), words))
        .collect()
}
