//! What agent types that use tools share: how a model is asked for an action, and what its reply means.
//!
//! An action is JSON that the runtime holds to a schema, so that a small model emits a valid one. A model that is not
//! held and emits none is no error: its words, or nothing, are what the agent goes on with.

use std::collections::HashMap;

use riverrun_schemas::RunId;
use riverrun_schemas::agent::{Step, StepKind, ToolEffect, ToolUse};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::marks::Mark;
use super::{ModelCall, ModelMode, Reply, StepDraft, grounding};
use crate::compaction::Shown;
use crate::prompt::{DATA_RULE, Talk};
use crate::state::{DEFAULT_MAX_ITERS, MAX_UNSENT, NOT_MADE_MS, RunState, canonical, never_sent, was_refused};
use crate::tools::{DOCUMENT_READ, ToolManifest};

const MAX_ACT_TOKENS: u32 = 512;
/// Tokens of an answer, a draft or the result of a step.
pub(super) const MAX_WORDS_TOKENS: u32 = 1_024;
/// Characters of a thought that is recorded.
const MAX_THOUGHT: usize = 2_000;
/// Characters of a tool's description and of its arguments that a prompt shows.
const MAX_TOOL_LINE: usize = 600;

/// A way to end a loop of actions; offered to the model like a tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exit {
    /// What the model names.
    pub(super) name: &'static str,
    /// When to choose it.
    pub(super) when: &'static str,
}

/// The way out of a loop that gathers what an answer needs.
pub(super) static ANSWER: Exit = Exit {
    name: "answer",
    when: "Choose this when the observations hold what the task needs, or when no tool can help.",
};

/// Said behind the last observation: small models else make the call again that they have just seen the result of.
pub(super) const REMINDER: &str =
    "If this holds what the task needs, reply with the tool \"answer\" now. Never repeat a call that is above.";

/// A tool's name, for models and for steps.
pub(super) fn name(tool: &ToolManifest) -> &str {
    &tool.name
}

/// The names of tools, for schemas and messages.
pub(super) fn names(tools: &[ToolManifest]) -> Vec<&str> {
    tools.iter().map(name).collect()
}

/// One line a tool: what a small model needs of it.
pub(super) fn tool_lines(tools: &[ToolManifest]) -> String {
    let line = |tool: &ToolManifest| {
        let line = format!("{} Arguments: {}", tool.description, brief(&tool.input_schema));
        format!("- {}: {}\n", name(tool), clip(&line, MAX_TOOL_LINE))
    };
    tools.iter().map(line).collect()
}

/// The system prompt of a loop of actions.
pub(super) fn instructions(state: &RunState, tools: &[ToolManifest], exits: &[&Exit]) -> String {
    let exits: String = exits.iter().map(|exit| format!("- {}: {} Arguments: {{}}\n", exit.name, exit.when)).collect();
    format!(
        "You solve the user's task step by step with tools. Tools:\n{}{exits}\
         At each step reply with one JSON object: {{\"thought\": \"why, in one sentence\", \"tool\": \"name\", \"arguments\": {{...}}}}.\n\
         Never make the same call twice.{} {DATA_RULE}",
        tool_lines(tools),
        grounding::rule(state, tools)
    )
}

/// Asks for the next action.
pub(super) fn call(state: &RunState, tools: &[ToolManifest], exits: &[&Exit], talk: Talk<'_>) -> ModelCall {
    let readable = tools.iter().any(|tool| tool.name == DOCUMENT_READ);
    ModelCall {
        mode: ModelMode::Act,
        messages: Talk { instructions: instructions(state, tools, exits), readable, ..talk }.messages(state),
        response_schema: Some(action_schema(tools, exits)),
        max_tokens: MAX_ACT_TOKENS,
    }
}

/// The properties of a schema in one line.
fn brief(schema: &Value) -> String {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, field)| {
            let optional = if required.contains(&json!(name)) { "" } else { " (optional)" };
            format!("\"{name}\"{optional}: {}", field["description"].as_str().unwrap_or("a value"))
        })
        .collect();
    format!("{{{}}}", fields.join(", "))
}

/// One branch a tool, so that the arguments always fit the tool.
fn action_schema(tools: &[ToolManifest], exits: &[&Exit]) -> Value {
    let branch = |name: &str, arguments: Value| {
        json!({
            "type": "object",
            "properties": {
                "thought": { "type": "string", "maxLength": 300 },
                "tool": { "type": "string", "enum": [name] },
                "arguments": arguments,
            },
            "required": ["thought", "tool", "arguments"],
            "additionalProperties": false,
        })
    };
    let nothing = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let tools = tools.iter().map(|tool| branch(name(tool), tool.input_schema.clone()));
    let branches: Vec<Value> = tools.chain(exits.iter().map(|exit| branch(exit.name, nothing.clone()))).collect();
    json!({ "anyOf": branches })
}

/// What the reply to [`call`] means.
#[derive(Debug, PartialEq)]
pub(super) enum Acted {
    /// A tool was chosen: thought, intent and, where it is refused, why.
    Used(Vec<StepDraft>),
    /// A way out was chosen.
    Left {
        /// Its name.
        exit: &'static str,
        /// Why.
        thought: String,
    },
    /// No action but words.
    Words(String),
    /// Neither.
    Nothing,
}

/// Reads a reply. `episode` are the steps within which no call is made twice.
pub(super) fn interpret(
    state: &RunState,
    tools: &[ToolManifest],
    exits: &[&'static Exit],
    episode: &[Step],
    reply: &Reply,
) -> Acted {
    let Some(action) = object_with(&reply.text, &["tool", "thought"]) else {
        // Words are the answer; broken JSON is not.
        let words = reply.text.trim();
        return if words.is_empty() || words.starts_with('{') || reply.cut {
            Acted::Nothing
        } else {
            Acted::Words(words.to_owned())
        };
    };
    let thought = Mark::strip(action.get("thought").and_then(Value::as_str).unwrap_or_default());
    let thought = clip(thought, MAX_THOUGHT);
    let Some(chosen) = action.get("tool").and_then(Value::as_str) else {
        return exits.first().map_or(Acted::Nothing, |exit| Acted::Left { exit: exit.name, thought });
    };
    if let Some(exit) = exits.iter().find(|exit| exit.name == chosen) {
        return Acted::Left { exit: exit.name, thought };
    }
    let arguments = action.get("arguments").cloned().unwrap_or_else(|| json!({}));
    let thought = StepDraft::text(StepKind::Thought, thought, Some(reply.usage));
    Acted::Used(used(state, tools, episode, thought, chosen, &arguments))
}

fn used(
    state: &RunState,
    tools: &[ToolManifest],
    episode: &[Step],
    thought: StepDraft,
    chosen: &str,
    arguments: &Value,
) -> Vec<StepDraft> {
    let seq = state.last_seq() + 2;
    let Some(tool) = tools.iter().find(|tool| name(tool) == chosen) else {
        let call = tool_use(state.run_id, seq, &clip(chosen, 80), arguments, ToolEffect::None);
        let known = names(tools).join(", ");
        return refused(thought, call, format!("there is no tool {:?}; the tools are {known}", clip(chosen, 80)));
    };
    let call = tool_use(state.run_id, seq, chosen, arguments, tool.effect);
    if let Err(error) = jsonschema::validate(&tool.input_schema, arguments) {
        return refused(thought, call, format!("bad arguments: {error}"));
    }
    match refusal(state, episode, &call) {
        Some(why) => refused(thought, call, why.to_owned()),
        None => vec![thought, StepDraft::tool(StepKind::ToolCall, call)],
    }
}

/// Why a call that fits is not made: it was asked for in this episode, or it changes something outside and was made at all. One that
/// reached nobody may be tried again.
fn refusal(state: &RunState, episode: &[Step], call: &ToolUse) -> Option<&'static str> {
    let arguments = canonical(&call.arguments_json);
    let same = |tool: &ToolUse| tool.name == call.name && canonical(&tool.arguments_json) == arguments;
    let earlier = tries(episode, &same);
    // What was left out for want of room may be looked up again.
    let shown = |step: &Step| state.compaction().shows(step.seq) != Shown::Not;
    let before = |what: Became| earlier.iter().any(|(step, became)| *became == what && shown(step));
    let unsent = earlier.iter().filter(|(_, became)| *became == Became::Unsent).count();
    if before(Became::Made) {
        Some("this very call was made before; its observation is above: use it")
    } else if before(Became::Refused) {
        Some("this very call was refused before; why is above: go on without it")
    } else if unsent > MAX_UNSENT as usize {
        Some("this very call reached nobody, however often it was tried: go on without it")
    } else if !call.effect.repeatable() && state.same_calls(&call.name, &call.arguments_json) > 0 {
        Some(
            "this very call was made earlier in this run, or a person refused it: it is not made twice, since it changes something",
        )
    } else {
        None
    }
}

/// What became of a call that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Became {
    /// It was made, or is under way.
    Made,
    /// It was refused, by the rules or by a person.
    Refused,
    /// It reached nobody.
    Unsent,
}

/// The steps that asked for such a call, and what became of each.
fn tries<'s>(episode: &'s [Step], such: &impl Fn(&ToolUse) -> bool) -> Vec<(&'s Step, Became)> {
    let result = |call_id: &str| {
        let results = episode.iter().filter(|step| step.kind == StepKind::ToolResult);
        results.filter_map(|step| step.tool.as_ref()).find(|result| result.call_id == call_id)
    };
    let calls = episode.iter().filter(|step| step.kind == StepKind::ToolCall);
    calls
        .filter_map(|step| Some((step, step.tool.as_ref().filter(|tool| such(tool))?)))
        .map(|(step, call)| match result(&call.call_id) {
            Some(result) if never_sent(result) => (step, Became::Unsent),
            Some(result) if was_refused(result) => (step, Became::Refused),
            Some(_) | None => (step, Became::Made),
        })
        .collect()
}

/// An intent and, in the same event, why it is not carried out: the model sees it as an observation.
fn refused(thought: StepDraft, call: ToolUse, error: String) -> Vec<StepDraft> {
    let result = ToolUse { error: Some(error), duration_ms: Some(NOT_MADE_MS), ..call.clone() };
    vec![thought, StepDraft::tool(StepKind::ToolCall, call), StepDraft::tool(StepKind::ToolResult, result)]
}

/// The intent of a call that is step `seq`; its id is the key under which its effect happens at most once.
pub(super) fn tool_use(run_id: RunId, seq: i64, name: &str, arguments: &Value, effect: ToolEffect) -> ToolUse {
    let arguments_json = arguments.to_string();
    let mut hash = Sha256::new();
    for part in [&run_id.to_string(), &seq.to_string(), name, &arguments_json] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let call_id = format!("call_{}", hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect::<String>());
    ToolUse {
        call_id,
        name: name.to_owned(),
        arguments_json,
        effect,
        result_json: None,
        result_blob: None,
        error: None,
        duration_ms: None,
    }
}

/// A call was asked for twice in these steps. Tries that reached nobody do not count, up to a number.
pub(super) fn loops(episode: &[Step]) -> bool {
    let mut counts: HashMap<(&str, String), (u32, u32)> = HashMap::new();
    let uses = episode.iter().filter_map(|step| Some((step.kind, step.tool.as_ref()?)));
    for (kind, tool) in uses {
        let (asked, unsent) = counts.entry((tool.name.as_str(), canonical(&tool.arguments_json))).or_default();
        if kind == StepKind::ToolCall {
            *asked += 1;
        } else if kind == StepKind::ToolResult && never_sent(tool) {
            *unsent += 1;
        }
        if *asked > 1 + (*unsent).min(MAX_UNSENT) {
            return true;
        }
    }
    false
}

/// Iterations that the run may have in all.
pub(super) fn max_iterations(state: &RunState) -> usize {
    usize::try_from(state.request.max_iters.unwrap_or(DEFAULT_MAX_ITERS)).unwrap_or(0)
}

/// Iterations that are left.
pub(super) fn iterations_left(state: &RunState) -> usize {
    max_iterations(state).saturating_sub(state.iterations())
}

/// An observation is among the steps that an answer can be made from.
pub(super) fn observed(steps: &[Step]) -> bool {
    steps.iter().any(|step| step.kind == StepKind::ToolResult)
}

/// The first JSON object in a text that has one of these keys, whatever stands around it.
pub(super) fn object_with(text: &str, keys: &[&str]) -> Option<Map<String, Value>> {
    text.match_indices('{').take(16).find_map(|(at, _)| {
        let value = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok()?;
        match value {
            Value::Object(map) if keys.iter().any(|key| map.contains_key(*key)) => Some(map),
            _ => None,
        }
    })
}

/// At most `most` characters of a text.
pub(super) fn clip(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
