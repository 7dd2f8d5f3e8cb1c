//! Who does a task when no agent is named.
//!
//! Two judges look at the task: the rules (signs in its words, [`crate::manifest::Cue`]) and the similarity of its embedding
//! to each agent's capabilities and example tasks. Where they agree, the choice is made. Where they disagree, the chat model
//! is asked, at temperature 0 and held to the candidates. Everything here is pure: a worker measures and asks, and the
//! choice with its scores and its reason is the run's first step. The same task, model and manifests give the same choice.
//!
//! | rules | similarity | choice |
//! |---|---|---|
//! | one agent | not measured | the rules' agent |
//! | several with equally many signs | not measured | the first of them in the catalog |
//! | no sign | not measured | the first agent of the catalog, the general one |
//! | one or several | its best is among them | that one |
//! | one or several | another agent | the model's, among the rules' and the similarity's; the rules' first when it can't be asked |
//! | no sign | its best is ahead of the general agent by 0.1 or more | that one, else the general agent |

mod rules;

use riverrun_models::Message;
use riverrun_schemas::Usage;
use riverrun_schemas::agent::StepKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::decide::{ModelCall, ModelMode, StepDraft};
use crate::manifest::Manifest;
use crate::prompt;
use rules::Task;

/// How far ahead of the general agent another one must be, in cosine similarity, to be chosen by similarity alone.
const AHEAD: f64 = 0.1;
const MAX_CHOICE_TOKENS: u32 = 160;
/// Characters of a task that the model is shown for its choice.
const MAX_TASK: usize = 4_000;
/// As many are left of it where the model's context is too small.
const SHORTER: [usize; 4] = [2_000, 1_000, 500, 200];

/// What an embedding says about a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Similarity {
    /// One value per manifest, in their order: the highest cosine similarity of the task to one of its [`texts`].
    Measured(Vec<f64>),
    /// It could not be measured; why.
    Missing(String),
}

/// What is known about one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The agent.
    pub agent: String,
    /// The task's similarity to it, from -1 to 1, rounded to three digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f64>,
    /// The signs in the task that speak for it.
    #[serde(default)]
    pub cues: Vec<String>,
}

/// Who had the last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judge {
    /// Rules and similarity agree.
    Both,
    /// The rules alone.
    Rules,
    /// The similarity alone.
    Similarity,
    /// The model, since they disagreed.
    Model,
    /// Nobody: the general agent.
    Default,
}

/// A choice with everything that it was made from, as the run's first step records it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Name of the chosen agent type.
    pub agent: String,
    /// Who chose.
    pub by: Judge,
    /// Why, in a sentence.
    pub reason: String,
    /// What was known about every agent, in the order of the catalog.
    pub scores: Vec<Score>,
    /// Characters of the task that the model chose by, where it was not shown all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_characters: Option<usize>,
}

impl Choice {
    /// The step that records it: a line to read, `agent: reason`, and behind it the same with the scores in JSON.
    pub fn step(&self, usage: Option<Usage>) -> StepDraft {
        let record = serde_json::to_string(self).unwrap_or_default();
        StepDraft::text(StepKind::Route, format!("{}: {}\n{record}", self.agent, self.reason), usage)
    }

    /// The choice in a step's text; `None` for text of a version that recorded no scores.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text.lines().nth(1)?).ok()
    }
}

/// The agent that a route step's text names, in this version's form or in the older `agent: reason`.
pub fn chosen_agent(text: &str) -> Option<&str> {
    let name = text.lines().next()?.split(':').next()?.trim();
    (!name.is_empty()).then_some(name)
}

/// What rules and similarity lead to.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// The choice is made.
    Made(Choice),
    /// They disagree: the model is to choose.
    Ask(Question),
}

/// What the model is asked, and what its reply is settled with.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The call to make.
    pub call: ModelCall,
    candidates: Vec<&'static Manifest>,
    scores: Vec<Score>,
    disagreement: String,
    task: String,
    /// Characters of the task in the call.
    shown: usize,
}

/// The texts that stand for an agent: its capabilities, and each of its example tasks.
pub fn texts(manifest: &Manifest) -> Vec<String> {
    let abilities = format!("{} {}", manifest.description, manifest.capabilities.join(", "));
    std::iter::once(abilities).chain(manifest.best_for.iter().map(|task| (*task).to_owned())).collect()
}

/// The highest cosine similarity of a task to one of an agent's texts, by their embeddings; -1 when there is none.
pub fn similarity(task: &[f32], texts: &[Vec<f32>]) -> f64 {
    texts.iter().map(|text| cosine(task, text)).fold(-1.0, f64::max)
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let norms = dot(a, a).sqrt() * dot(b, b).sqrt();
    if norms > 0.0 { dot(a, b) / norms } else { -1.0 }
}

/// Judges a task. `None` when there are no agents. The first manifest is the general agent.
pub fn judge(task: &str, manifests: &[&'static Manifest], similarity: &Similarity) -> Option<Judgement> {
    let scores = scores(task, manifests, similarity);
    let general = scores.first()?;
    let ruled = ruled(&scores);
    let nearest = nearest(&scores);
    let made = |agent: &str, by: Judge, reason: String| {
        let (agent, reason) = (agent.to_owned(), one_line(&reason));
        Some(Judgement::Made(Choice { agent, by, reason, scores: scores.clone(), shown_characters: None }))
    };
    match (&ruled[..], nearest, similarity) {
        ([], Some(near), _) if near.similarity >= general.similarity.map(|value| value + AHEAD) => {
            let reason = format!(
                "no sign speaks for an agent, and the task is most like what {} does{}",
                near.agent,
                value(near)
            );
            made(&near.agent, Judge::Similarity, reason)
        }
        ([], Some(_), _) => made(&general.agent, Judge::Default, "nothing speaks for another agent".to_owned()),
        ([], None, missing) => {
            made(&general.agent, Judge::Default, format!("no sign speaks for an agent{}", unmeasured(missing)))
        }
        ([first, ..], None, missing) => {
            made(&first.agent, Judge::Rules, format!("signs in the task: {}{}", signs(first), unmeasured(missing)))
        }
        (ruled, Some(near), _) if ruled.iter().any(|score| score.agent == near.agent) => made(
            &near.agent,
            Judge::Both,
            format!("signs in the task: {}; similarity agrees{}", signs(near), value(near)),
        ),
        (ruled, Some(near), _) => Some(Judgement::Ask(question(task, manifests, ruled, near, &scores))),
    }
}

fn scores(task: &str, manifests: &[&'static Manifest], similarity: &Similarity) -> Vec<Score> {
    let task = Task::new(task);
    let value = |index: usize| match similarity {
        Similarity::Measured(values) => values.get(index).map(|value| (value * 1_000.0).round() / 1_000.0),
        Similarity::Missing(_) => None,
    };
    let score = |(index, manifest): (usize, &&'static Manifest)| Score {
        agent: manifest.name.to_owned(),
        similarity: value(index),
        cues: task.cues(manifest),
    };
    manifests.iter().enumerate().map(score).collect()
}

/// Those with the most signs; none when there is no sign.
fn ruled(scores: &[Score]) -> Vec<&Score> {
    let most = scores.iter().map(|score| score.cues.len()).max().unwrap_or(0);
    scores.iter().filter(|score| most > 0 && score.cues.len() == most).collect()
}

/// The one with the highest similarity; the first wins a tie.
fn nearest(scores: &[Score]) -> Option<&Score> {
    scores
        .iter()
        .filter(|score| score.similarity.is_some())
        .reduce(|best, score| if score.similarity > best.similarity { score } else { best })
}

fn signs(score: &Score) -> String {
    score.cues.join(", ")
}

fn value(score: &Score) -> String {
    score.similarity.map(|value| format!(" ({value:.3})")).unwrap_or_default()
}

fn unmeasured(similarity: &Similarity) -> String {
    match similarity {
        Similarity::Measured(_) => String::new(),
        Similarity::Missing(why) => format!("; rules alone, since {why}"),
    }
}

fn question(task: &str, manifests: &[&'static Manifest], ruled: &[&Score], near: &Score, scores: &[Score]) -> Question {
    // The rules' agents come first: they are what stands when the model can't be asked.
    let names = ruled.iter().chain(std::iter::once(&near)).map(|score| score.agent.as_str());
    let candidates: Vec<&'static Manifest> =
        names.filter_map(|name| manifests.iter().copied().find(|manifest| manifest.name == name)).collect();
    let shown = task.chars().count().min(MAX_TASK);
    let call = call(&candidates, task, shown);
    let by_rule =
        ruled.iter().map(|score| format!("{} ({})", score.agent, signs(score))).collect::<Vec<_>>().join(", ");
    let disagreement = format!("signs speak for {by_rule}, similarity for {}{}", near.agent, value(near));
    Question { call, candidates, scores: scores.to_vec(), disagreement, task: task.to_owned(), shown }
}

/// The call that shows so many characters of the task.
fn call(candidates: &[&'static Manifest], task: &str, shown: usize) -> ModelCall {
    let lines: String = candidates
        .iter()
        .map(|agent| format!("- {}: {} For example: {}\n", agent.name, agent.description, agent.best_for.join(" ")))
        .collect();
    let task: String = task.chars().take(shown).collect();
    ModelCall {
        mode: ModelMode::Route,
        messages: vec![
            Message::system(format!(
                "You choose the agent that does a task. You do not do the task. Agents:\n{lines}\
                 Reply with one JSON object: {{\"reason\": \"why, in one sentence\", \"agent\": \"name\"}}."
            )),
            Message::user(format!("Task: {}", prompt::escape(&task))),
        ],
        response_schema: Some(schema(candidates)),
        max_tokens: MAX_CHOICE_TOKENS,
    }
}

fn schema(candidates: &[&'static Manifest]) -> Value {
    let names: Vec<&str> = candidates.iter().map(|manifest| manifest.name).collect();
    json!({
        "type": "object",
        "properties": {
            "reason": { "type": "string", "maxLength": 160 },
            "agent": { "type": "string", "enum": names },
        },
        "required": ["reason", "agent"],
        "additionalProperties": false,
    })
}

impl Question {
    /// The same with less and less of the task, for a model with a small context.
    pub fn forms(&self) -> Vec<Self> {
        let shorter = SHORTER.iter().filter(|shown| **shown < self.shown);
        let form =
            |shown: &usize| Self { call: call(&self.candidates, &self.task, *shown), shown: *shown, ..self.clone() };
        shorter.map(form).collect()
    }

    /// Characters that the model is shown of how many, where that is not all of the task.
    fn cut(&self) -> Option<(usize, usize)> {
        let all = self.task.chars().count();
        (self.shown < all).then_some((self.shown, all))
    }

    /// The choice that the model's reply makes. Without a usable reply (or with an error instead) the rules' choice stands.
    pub fn settle(self, reply: Result<&str, &str>) -> Choice {
        let chosen = reply.ok().and_then(|text| self.chosen(text));
        let cut = self.cut().filter(|_| reply.is_ok());
        let first = self.candidates.first().map_or("", |manifest| manifest.name);
        let (agent, by, why) = match (chosen, reply) {
            (Some(agent), _) => (agent, Judge::Model, format!("the model chose {agent}")),
            (None, Ok(_)) => (first, Judge::Rules, "the model named none of them, so the signs decide".to_owned()),
            (None, Err(error)) => {
                (first, Judge::Rules, format!("the model can't be asked ({error}), so the signs decide"))
            }
        };
        let seen = cut.map_or_else(String::new, |(shown, all)| format!(", by the first {shown} of {all} characters"));
        let reason = one_line(&format!("{}; {why}{seen}", self.disagreement));
        Choice {
            agent: agent.to_owned(),
            by,
            reason,
            scores: self.scores,
            shown_characters: cut.map(|(shown, _)| shown),
        }
    }

    fn chosen(&self, text: &str) -> Option<&'static str> {
        let start = text.find('{')?;
        let reply: Value = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>().next()?.ok()?;
        let named = reply["agent"].as_str()?;
        self.candidates.iter().map(|manifest| manifest.name).find(|name| *name == named)
    }
}

/// The record stands on the second line of its step: the first must be one.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(400).collect()
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
