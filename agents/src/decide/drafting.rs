//! What agent types that judge their own drafts share: gather with tools, write a draft, judge it, accept it.
//!
//! A draft is a thought under a mark, not an answer: an answer ends the run. Its judgement is a critique behind it.

use riverrun_models::Message;
use riverrun_schemas::agent::{Step, StepKind};
use serde::Serialize;
use serde_json::Value;

use super::acting::{self, ANSWER, Acted, MAX_WORDS_TOKENS};
use super::marks::Mark;
use super::{Action, ModelCall, ModelMode, Reply, StepDraft};
use crate::prompt::{self, Talk, Writing};
use crate::state::RunState;
use crate::tools::ToolManifest;

/// Characters of observations that a judgement is shown.
const MAX_EVIDENCE: usize = 8_000;
const MAX_JUDGE_TOKENS: u32 = 512;

/// The drafts among a run's steps.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Drafts<'a> {
    /// How many there are.
    pub(super) count: usize,
    /// The newest one that has words.
    pub(super) best: Option<&'a str>,
    /// The newest one has none.
    pub(super) empty: bool,
    /// The text of the critique behind the newest one.
    pub(super) judged: Option<&'a str>,
}

impl<'a> Drafts<'a> {
    /// Folds the steps.
    pub(super) fn of(steps: &'a [Step]) -> Self {
        let mut drafts = Drafts::default();
        for step in steps {
            let text = step.text.as_deref().unwrap_or_default();
            if step.kind == StepKind::Critique {
                drafts.judged = Some(text);
            } else if let (StepKind::Thought, Some((Mark::Draft(_), words))) = (step.kind, Mark::read(text)) {
                drafts.count += 1;
                drafts.empty = words.trim().is_empty();
                drafts.judged = None;
                drafts.best = Some(words).filter(|_| !drafts.empty).or(drafts.best);
            }
        }
        drafts
    }
}

/// A loop of actions that ends with a draft.
pub(super) struct Gathering<'a> {
    /// The steps of the loop so far.
    pub(super) episode: &'a [Step],
    /// Most actions in it.
    pub(super) most: usize,
    /// Said behind the task.
    pub(super) preface: Option<String>,
    /// What the draft is written from besides the observations.
    pub(super) writing: Writing,
}

impl Gathering<'_> {
    /// The next action, or the draft.
    pub(super) fn next(self, state: &RunState, tools: &[ToolManifest]) -> Action {
        if self.over(state, tools) {
            return Action::CallModel(draft_call(state, &self.writing));
        }
        Action::CallModel(acting::call(
            state,
            tools,
            &[&ANSWER],
            Talk {
                preface: self.preface,
                steps: self.episode,
                reminder: acting::observed(self.episode).then(|| acting::REMINDER.to_owned()),
                ..Talk::default()
            },
        ))
    }

    fn over(&self, state: &RunState, tools: &[ToolManifest]) -> bool {
        let actions = self.episode.iter().filter(|step| step.kind == StepKind::Thought).count();
        // A thought that no tool call follows is the choice to write.
        let chosen = self.episode.last().is_some_and(|step| step.kind == StepKind::Thought);
        chosen
            || tools.is_empty()
            || actions >= self.most
            || acting::iterations_left(state) == 0
            || acting::loops(self.episode)
    }
}

/// Asks for a draft.
pub(super) fn draft_call(state: &RunState, writing: &Writing) -> ModelCall {
    ModelCall {
        mode: ModelMode::Draft,
        messages: prompt::answering(state, writing),
        response_schema: None,
        max_tokens: MAX_WORDS_TOKENS,
    }
}

/// Asks for a judgement of a draft, held to a schema.
pub(super) fn judge_call(state: &RunState, instructions: String, draft: &str, schema: Value) -> ModelCall {
    let found = prompt::evidence(state, &state.steps, MAX_EVIDENCE);
    let case = prompt::case(state, &found, &[prompt::noted("the draft", draft)]);
    ModelCall {
        mode: ModelMode::Judge,
        messages: vec![Message::system(format!("{instructions} {}", prompt::DATA_RULE)), Message::user(case)],
        response_schema: Some(schema),
        max_tokens: MAX_JUDGE_TOKENS,
    }
}

/// What a reply of a gathering loop means; words instead of an action are the draft.
pub(super) fn gathered(
    state: &RunState,
    tools: &[ToolManifest],
    episode: &[Step],
    draft: usize,
    reply: &Reply,
) -> Vec<StepDraft> {
    let thought = |text: &str| vec![StepDraft::text(StepKind::Thought, text, Some(reply.usage))];
    match acting::interpret(state, tools, &[&ANSWER], episode, reply) {
        Acted::Used(steps) => steps,
        Acted::Left { thought: why, .. } => thought(&why),
        Acted::Words(words) => drafted(draft, &words, reply),
        Acted::Nothing => thought("no usable action; writing without one"),
    }
}

/// What was made of a draft, as a step that can be read again.
pub(super) fn critique(made: &impl Serialize, reply: Option<&Reply>) -> StepDraft {
    let text = serde_json::to_string(made).unwrap_or_default();
    StepDraft::text(StepKind::Critique, text, reply.map(|reply| reply.usage))
}

/// The step that holds a draft.
pub(super) fn drafted(draft: usize, words: &str, reply: &Reply) -> Vec<StepDraft> {
    vec![StepDraft::text(StepKind::Thought, Mark::Draft(draft).write(Mark::strip(words)), Some(reply.usage))]
}

/// Ends with the best draft; without one, with an answer written straight away.
pub(super) fn answer_with(state: &RunState, best: Option<&str>) -> Action {
    match best {
        Some(words) => Action::Append(vec![StepDraft::text(StepKind::Answer, words.trim(), None)]),
        None => Action::CallModel(ModelCall {
            mode: ModelMode::Answer,
            messages: prompt::answering(state, &Writing::answer()),
            response_schema: None,
            max_tokens: MAX_WORDS_TOKENS,
        }),
    }
}

/// Why the run ended: the work was accepted, or a limit cut it short.
pub(super) fn stop_reason(accepted: bool, looped: bool) -> &'static str {
    match (accepted, looped) {
        (true, _) => "answered",
        (false, true) => "loop_detected",
        (false, false) => "max_iters",
    }
}
