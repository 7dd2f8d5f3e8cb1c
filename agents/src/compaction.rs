//! What a run leaves out of its prompts when they outgrow the model's context.
//!
//! Prompts are made anew from the run's steps for every call. When one does not fit, a worker looks for the first of ever
//! smaller forms ([`forms`]) that does, and appends a step that says so ([`Compacted`]) before the call is made. The step is
//! what counts from then on: the fold takes it in, so every process makes the same prompts, and watchers see what the model
//! no longer does. Everything here is pure; the worker counts.
//!
//! Invariants: `COMPACT-1` the instructions, the task, the tools, the newest observation and the newest one without an error
//! are in every form. `COMPACT-2` a call and its result are left out together. `COMPACT-3` a form shows no more than the one
//! before it.

use std::collections::{BTreeMap, BTreeSet};

use riverrun_knowledge::room::LEAST_ANSWER;
use riverrun_schemas::Failure;
use riverrun_schemas::agent::{Step, StepKind};
use serde::{Deserialize, Serialize};

use crate::decide::{self, Action, ModelCall, StepDraft};
use crate::memory;
use crate::state::RunState;
use crate::tools::ToolManifest;

/// Most characters of an observation that is shortened.
pub(crate) const SHORT_OBSERVATION: usize = 400;

/// What a run leaves out of its prompts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// `seq` of calls and results that are not shown.
    dropped: BTreeSet<i64>,
    /// `seq` of other results, of which only the beginning is shown.
    shortened: BTreeSet<i64>,
    /// Pieces of the conversation's memory that are not shown.
    memories: usize,
}

/// How a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Whole,
    Short,
    Not,
}

impl Compaction {
    /// How the result with this `seq` is shown.
    pub(crate) fn shows(&self, result: i64) -> Shown {
        match (self.dropped.contains(&result), self.shortened.contains(&result)) {
            (true, _) => Shown::Not,
            (false, true) => Shown::Short,
            (false, false) => Shown::Whole,
        }
    }

    /// Pieces of the conversation's memory that are not shown.
    pub(crate) fn memories(&self) -> usize {
        self.memories
    }

    /// Takes in what a step says.
    pub(crate) fn take_in(&mut self, compacted: &Compacted) {
        self.dropped.extend(&compacted.dropped_steps);
        self.shortened.extend(&compacted.shortened_steps);
        self.shortened.retain(|seq| !self.dropped.contains(seq));
        self.memories = self.memories.saturating_add(compacted.dropped_memories);
    }

    /// Forgets steps that are not kept any more, so that it stays as small as they are few.
    pub(crate) fn forget_all_but(&mut self, steps: &[Step]) {
        let kept: BTreeSet<i64> = steps.iter().map(|step| step.seq).collect();
        self.dropped.retain(|seq| kept.contains(seq));
        self.shortened.retain(|seq| kept.contains(seq));
    }
}

/// Tokens of a prompt before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Tokens of the prompt that was too large.
    pub before: usize,
    /// Tokens of the prompt that is made instead.
    pub after: usize,
    /// Whether they were estimated from the length of the text, since the provider shows no tokenizer.
    pub estimated: bool,
}

/// A compaction as its step records it: a line for people, then this as JSON. Part of the event: change it as a schema is
/// changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compacted {
    /// The line for people.
    #[serde(skip)]
    pub reason: String,
    /// Tokens of the prompt that was too large.
    pub tokens_before: usize,
    /// Tokens of the prompt that is made instead.
    pub tokens_after: usize,
    /// Tokens of the model's context; 0 where nobody tells, and the model's server refused the prompt.
    pub context_tokens: usize,
    /// Tokens of it that are kept for the answer.
    pub reserved_tokens: usize,
    /// Whether tokens were estimated from the length of the text.
    pub estimated: bool,
    /// `seq` of calls and results that are not shown any more.
    pub dropped_steps: Vec<i64>,
    /// `seq` of results of which only the beginning is shown from now on.
    pub shortened_steps: Vec<i64>,
    /// Pieces of the conversation's memory that are not shown any more.
    pub dropped_memories: usize,
}

impl Compacted {
    /// What `form` leaves out that `state` shows.
    pub fn new(state: &RunState, form: &Compaction, room: Room, figures: Figures) -> Self {
        let now = state.compaction();
        let new = |form: &BTreeSet<i64>, now: &BTreeSet<i64>| form.difference(now).copied().collect::<Vec<i64>>();
        let dropped_steps = new(&form.dropped, &now.dropped);
        let shortened_steps = new(&form.shortened, &now.shortened);
        let dropped_memories = form.memories.saturating_sub(now.memories);
        let mut what = Vec::new();
        if !dropped_steps.is_empty() {
            what.push(format!("earlier steps left out: {}", dropped_steps.len()));
        }
        if !shortened_steps.is_empty() {
            what.push(format!("earlier results shortened: {}", shortened_steps.len()));
        }
        if dropped_memories > 0 {
            what.push(format!("memories left out: {dropped_memories}"));
        }
        let about = if figures.estimated { "about " } else { "" };
        let reason = format!(
            "the prompt of {about}{} tokens does not fit the model's context; {}: {about}{} tokens now",
            figures.before,
            what.join(", "),
            figures.after
        );
        Self {
            reason,
            tokens_before: figures.before,
            tokens_after: figures.after,
            context_tokens: room.context.unwrap_or(0),
            reserved_tokens: room.reserved(),
            estimated: figures.estimated,
            dropped_steps,
            shortened_steps,
            dropped_memories,
        }
    }

    /// From the text of a step; `None` when it is of an unknown shape.
    pub fn read(text: &str) -> Option<Self> {
        let (reason, record) = text.rsplit_once('\n').unwrap_or(("", text));
        let compacted: Self = serde_json::from_str(record).ok()?;
        Some(Self { reason: reason.to_owned(), ..compacted })
    }

    /// The step.
    pub fn step(&self) -> StepDraft {
        let record = serde_json::to_string(self).unwrap_or_default();
        StepDraft::text(StepKind::Compaction, format!("{}\n{record}", self.reason), None)
    }
}

/// The room that a call has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Tokens of prompt and answer together; `None` where nobody tells.
    context: Option<usize>,
    /// Most tokens of the answer.
    answer: usize,
}

impl Room {
    /// Of a call whose answer has at most `max_tokens` tokens.
    pub fn new(context: Option<usize>, max_tokens: u32) -> Self {
        Self { context, answer: usize::try_from(max_tokens).unwrap_or(usize::MAX) }
    }

    /// Tokens that are kept for the answer: as many as it may have, within a quarter of the context.
    pub fn reserved(self) -> usize {
        self.context.map_or(0, |context| self.answer.min(context / 4))
    }

    /// Whether a prompt fits beside its answer.
    pub fn fits(self, tokens: usize) -> bool {
        self.context.is_none_or(|context| tokens <= context - self.reserved())
    }

    /// Whether a prompt may be sent when nothing more can be left out: the answer is then a short one.
    pub fn is_possible(self, tokens: usize) -> bool {
        self.context.is_none_or(|context| tokens.saturating_add(self.answer.min(LEAST_ANSWER)) <= context)
    }

    /// Sizes that a smaller prompt should have, the best one first. What is left out first makes room for several more steps,
    /// so that the words before stay the same for as long and a runtime keeps what it has read of them.
    fn goals(self, tokens: usize, refused: bool) -> Vec<usize> {
        let mut goals = Vec::new();
        if let Some(context) = self.context {
            let room = context - self.reserved();
            goals.extend([room / 4 * 3, room]);
            if !self.is_possible(tokens) {
                goals.push(context.saturating_sub(self.answer.min(LEAST_ANSWER)));
            }
        }
        if refused || goals.is_empty() {
            // Whatever was counted, it was too much.
            goals.iter_mut().for_each(|goal| *goal = (*goal).min(tokens / 4 * 3));
            goals.extend([tokens / 4 * 3, tokens.saturating_sub(1)]);
        }
        goals
    }
}

/// A prompt that does not fit in any form.
pub fn too_large(tokens: usize, context: usize) -> Failure {
    let message = format!(
        "the prompt has {tokens} tokens when everything is left out that may be, and does not fit the model's context of \
         {context} tokens"
    );
    Failure::new("context_overflow", message).with_hint(
        "shorten the task, name fewer tools, take a model with a larger context, or raise RIVERRUN_MODEL_CONTEXT_TOKENS up to \
         what the model was trained for",
    )
}

/// A call and its result.
struct Pair {
    call: Option<i64>,
    result: i64,
    long: bool,
}

/// The pairs that may be left out, oldest first.
fn older(state: &RunState) -> Vec<Pair> {
    let mut calls: BTreeMap<&str, i64> = BTreeMap::new();
    let mut pairs = Vec::new();
    let (mut newest, mut newest_good) = (None, None);
    for step in &state.steps {
        let Some(tool) = step.tool.as_ref().filter(|tool| !memory::is_opening_call(state, tool)) else { continue };
        if step.kind == StepKind::ToolCall {
            calls.insert(&tool.call_id, step.seq);
        }
        if step.kind == StepKind::ToolResult {
            let words = tool.error.as_deref().or(tool.result_json.as_deref()).unwrap_or_default();
            let long = words.len() > 2 * SHORT_OBSERVATION;
            pairs.push(Pair { call: calls.get(tool.call_id.as_str()).copied(), result: step.seq, long });
            newest = Some(step.seq);
            if tool.error.is_none() {
                newest_good = newest;
            }
        }
    }
    pairs.retain(|pair| Some(pair.result) != newest && Some(pair.result) != newest_good);
    pairs
}

/// Ever smaller forms of the run's prompts, each smaller than what is shown now. Older observations are shortened, the oldest
/// first, then left out, the oldest first; then what was remembered of the conversation is left out, piece by piece.
pub fn forms(state: &RunState) -> Vec<Compaction> {
    let older = older(state);
    let mut form = state.compaction().clone();
    let mut forms = Vec::new();
    for pair in older.iter().filter(|pair| pair.long) {
        if !form.dropped.contains(&pair.result) && form.shortened.insert(pair.result) {
            forms.push(form.clone());
        }
    }
    for pair in &older {
        if form.dropped.insert(pair.result) {
            form.dropped.extend(pair.call);
            form.shortened.remove(&pair.result);
            forms.push(form.clone());
        }
    }
    for _ in form.memories..memory::remembered(state) {
        form.memories += 1;
        forms.push(form.clone());
    }
    forms
}

/// The model call that is due when the run leaves that out; `None` when none is due.
pub fn due(state: &RunState, tools: &[ToolManifest], form: &Compaction) -> Option<ModelCall> {
    let state = state.in_form(form.clone());
    // What is due does not hang on the time, but on whether it is over.
    match decide::next(&state, tools, state.accepted_at) {
        Action::CallModel(call) => Some(call),
        Action::Append(_) | Action::Route | Action::CallTool(_) | Action::Wait | Action::Finish(_) => None,
    }
}

/// Looks for the first form of a prompt that is small enough, with as few measurements as a binary search needs.
#[derive(Debug)]
pub struct Search<F = Compaction> {
    forms: Vec<F>,
    goals: Vec<usize>,
    goal: usize,
    low: usize,
    high: usize,
    sizes: BTreeMap<usize, usize>,
}

impl<F: Clone> Search<F> {
    /// Among smaller forms than that with `tokens`. `refused`: the model's server found it too large, whatever was counted.
    pub fn new(forms: Vec<F>, room: Room, tokens: usize, refused: bool) -> Self {
        let high = forms.len();
        Self { forms, goals: room.goals(tokens, refused), goal: 0, low: 0, high, sizes: BTreeMap::new() }
    }

    /// The form whose tokens are wanted next; `None` at the end.
    pub fn wanted(&mut self) -> Option<F> {
        while let Some(goal) = self.goals.get(self.goal) {
            if self.low < self.high {
                let middle = self.low.midpoint(self.high);
                match self.sizes.get(&middle) {
                    None => return Some(self.forms[middle].clone()),
                    Some(size) if size <= goal => self.high = middle,
                    Some(_) => self.low = middle + 1,
                }
            } else if self.low < self.forms.len() {
                return None; // found
            } else {
                (self.goal, self.low, self.high) = (self.goal + 1, 0, self.forms.len());
                if self.forms.is_empty() {
                    return None;
                }
            }
        }
        None
    }

    /// Tells the tokens of the form that was wanted.
    pub fn measured(&mut self, tokens: usize) {
        self.sizes.insert(self.low.midpoint(self.high), tokens);
    }

    /// The first form that is small enough, with its tokens.
    pub fn found(&self) -> Option<(&F, usize)> {
        self.goals.get(self.goal)?;
        Some((self.forms.get(self.low)?, *self.sizes.get(&self.low)?))
    }

    /// The smallest form, where it was measured.
    pub fn smallest(&self) -> Option<(&F, usize)> {
        let last = self.forms.len().checked_sub(1)?;
        Some((self.forms.get(last)?, *self.sizes.get(&last)?))
    }
}
