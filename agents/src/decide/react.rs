//! `react`: reason, act, observe, until there is enough to answer.
//!
//! After Yao et al., "ReAct: Synergizing Reasoning and Acting in Language Models", 2022
//! (<https://arxiv.org/abs/2210.03629>). Differences: the action is JSON that the runtime holds to a schema, so that a
//! small model emits a valid one; and the answer is a call of its own in plain text, which streams and which small
//! models write better than text inside JSON.

use riverrun_schemas::RunId;
use riverrun_schemas::agent::{StepKind, ToolEffect, ToolUse};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Action, AgentType, ModelCall, ModelMode, Reply, StepDraft};
use crate::manifest::Manifest;
use crate::prompt;
use crate::state::RunState;
use crate::tools::ToolManifest;

/// What the model names when it wants to answer instead of using a tool.
const ANSWER: &str = "answer";
const MAX_ACT_TOKENS: u32 = 512;
const MAX_ANSWER_TOKENS: u32 = 1_024;
/// A call that was made with the same arguments this often is not made again, and the run answers with what it has.
const MAX_SAME_CALLS: usize = 2;

static MANIFEST: Manifest = Manifest {
    name: "react",
    description: "Thinks, uses a tool, looks at the result, and repeats until it can answer.",
    capabilities: &["tool use", "question answering", "calculation", "knowledge search", "date and time"],
    tags: &["general", "tools", "citations"],
};

pub(super) struct React;

impl AgentType for React {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    fn decide(&self, state: &RunState, tools: &[ToolManifest]) -> Action {
        // A thought that no tool call follows is the choice to answer.
        let chose_answer = state.steps.last().is_some_and(|step| step.kind == StepKind::Thought);
        if chose_answer || tools.is_empty() || state.exhausted() {
            return Action::CallModel(answer_call(state));
        }
        Action::CallModel(ModelCall {
            mode: ModelMode::Act,
            messages: prompt::conversation(state, &instructions(tools)),
            response_schema: Some(action_schema(tools)),
            max_tokens: MAX_ACT_TOKENS,
        })
    }

    fn interpret(&self, state: &RunState, tools: &[ToolManifest], mode: ModelMode, reply: &Reply) -> Vec<StepDraft> {
        match mode {
            ModelMode::Answer => vec![StepDraft::text(StepKind::Answer, reply.text.trim(), Some(reply.usage))],
            ModelMode::Act => interpret_action(state, tools, reply),
        }
    }
}

fn instructions(tools: &[ToolManifest]) -> String {
    let mut text = String::from("You solve the user's task step by step with tools. Tools:\n");
    for tool in tools {
        text.push_str(&format!("- {}: {} Arguments: {}\n", tool.name, tool.description, brief(&tool.input_schema)));
    }
    text.push_str(&format!(
        "- {ANSWER}: Choose this when the observations hold what the task needs, or when no tool can help. Arguments: {{}}\n\
         At each step reply with one JSON object: {{\"thought\": \"why, in one sentence\", \"tool\": \"name\", \"arguments\": {{...}}}}.\n\
         Never make the same call twice. {}",
        prompt::DATA_RULE
    ));
    text
}

/// The properties of a schema in one line: what a small model needs of it.
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
fn action_schema(tools: &[ToolManifest]) -> Value {
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
    let mut branches: Vec<Value> = tools.iter().map(|tool| branch(&tool.name, tool.input_schema.clone())).collect();
    branches.push(branch(ANSWER, json!({ "type": "object", "properties": {}, "additionalProperties": false })));
    json!({ "anyOf": branches })
}

fn answer_call(state: &RunState) -> ModelCall {
    ModelCall {
        mode: ModelMode::Answer,
        messages: prompt::answering(state),
        response_schema: None,
        max_tokens: MAX_ANSWER_TOKENS,
    }
}

/// The first JSON object in a text, whatever stands around it.
fn first_object(text: &str) -> Option<Map<String, Value>> {
    text.match_indices('{').take(16).find_map(|(at, _)| {
        let value = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok()?;
        match value {
            Value::Object(map) if map.contains_key("tool") || map.contains_key("thought") => Some(map),
            _ => None,
        }
    })
}

fn interpret_action(state: &RunState, tools: &[ToolManifest], reply: &Reply) -> Vec<StepDraft> {
    let Some(action) = first_object(&reply.text) else {
        // No action: the agent answers without tools. Words are the answer; broken JSON is not, and is asked for anew.
        let words = reply.text.trim();
        return if words.is_empty() || words.starts_with('{') || reply.cut {
            vec![StepDraft::text(StepKind::Thought, "no usable action; answering", Some(reply.usage))]
        } else {
            vec![StepDraft::text(StepKind::Answer, words, Some(reply.usage))]
        };
    };
    let thought = action.get("thought").and_then(Value::as_str).unwrap_or_default();
    let thought = StepDraft::text(StepKind::Thought, thought, Some(reply.usage));
    let name = action.get("tool").and_then(Value::as_str).unwrap_or(ANSWER);
    if name == ANSWER {
        return vec![thought];
    }
    let arguments = action.get("arguments").cloned().unwrap_or_else(|| json!({}));
    let seq = state.last_seq() + 2;
    let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
        let names = tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ");
        let call = tool_use(state.run_id, seq, name, &arguments, ToolEffect::None);
        return refused(thought, call, format!("there is no tool {name:?}; the tools are {names}"));
    };
    let call = tool_use(state.run_id, seq, name, &arguments, tool.effect);
    if let Err(error) = jsonschema::validate(&tool.input_schema, &arguments) {
        return refused(thought, call, format!("bad arguments: {error}"));
    }
    match state.same_calls(name, &call.arguments_json) {
        0 => vec![thought, StepDraft::tool(StepKind::ToolCall, call)],
        n if n < MAX_SAME_CALLS => {
            refused(thought, call, "this very call was made before; its observation is above: use it".to_owned())
        }
        _ => vec![thought], // the state's stop reason says that a loop was detected
    }
}

/// An intent and, in the same event, why it is not carried out: the model sees it as an observation.
fn refused(thought: StepDraft, call: ToolUse, error: String) -> Vec<StepDraft> {
    let result = ToolUse { error: Some(error), duration_ms: Some(0), ..call.clone() };
    vec![thought, StepDraft::tool(StepKind::ToolCall, call), StepDraft::tool(StepKind::ToolResult, result)]
}

fn tool_use(run_id: RunId, seq: i64, name: &str, arguments: &Value, effect: ToolEffect) -> ToolUse {
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

#[cfg(test)]
#[path = "react_tests.rs"]
mod tests;
