//! Stored runs: given the same events, every version takes the same decisions and reads the same replies the same way.
//!
//! A file of `golden/` is a run's request and its turns: what was decided, what came back, and the steps that were written.
//! `UPDATE_GOLDEN=1 cargo test -p riverrun-agents --test golden` writes them anew from the scripts below; a difference in
//! version control is then a change of behaviour, to be meant or mended.

mod common;

use std::path::PathBuf;

use common::{Run, reply, request};
use riverrun_agents::{Action, ModelMode};
use riverrun_schemas::agent::{RunRequest, Step};
use riverrun_schemas::{ChunkId, DocumentId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Golden {
    request: RunRequest,
    turns: Vec<Turn>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Turn {
    decision: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    steps: Vec<Step>,
}

/// What is decided, in words that do not change when a prompt is reworded.
fn summary(action: &Action) -> String {
    match action {
        Action::CallModel(call) => {
            let branches = call.response_schema.as_ref().map(|schema| schema["anyOf"].clone()).unwrap_or_default();
            let names: Vec<&str> = branches
                .as_array()
                .map(|all| all.iter().filter_map(|b| b["properties"]["tool"]["enum"][0].as_str()).collect())
                .unwrap_or_default();
            format!("model {:?} {}", call.mode, names.join(" ")).trim_end().to_owned()
        }
        Action::CallTool(call) => format!("tool {} {} {}", call.name, call.arguments_json, call.call_id),
        Action::Append(drafts) => format!("append {:?}", drafts.iter().map(|draft| draft.kind).collect::<Vec<_>>()),
        Action::Finish(ending) => {
            format!(
                "finish {:?} {}: {}",
                ending.status,
                ending.stop_reason,
                ending.answer.as_deref().unwrap_or_default()
            )
        }
        Action::Route => "route".to_owned(),
        Action::Wait => "wait".to_owned(),
    }
}

/// A model that follows a script.
struct Script {
    file: &'static str,
    request: RunRequest,
    replies: Vec<String>,
}

fn act(tool: &str, key: &str, value: &str) -> String {
    json!({ "thought": format!("use {tool}"), "tool": tool, "arguments": { key: value } }).to_string()
}

fn leave(exit: &str) -> String {
    json!({ "thought": "enough", "tool": exit, "arguments": {} }).to_string()
}

const TASK: &str = "What do three winch launches cost?";

fn scripts() -> Vec<Script> {
    let search = || act("knowledge_search", "query", "winch launch price");
    let sum = || act("calculator", "expression", "3 * 12");
    let script =
        |file, agent, replies: &[String]| Script { file, request: request(agent, TASK, 12), replies: replies.to_vec() };
    let text = |words: &str| words.to_owned();
    let critique = |verdict: &str| {
        let finding = |verdict: &str| json!({ "note": "checked", "verdict": verdict });
        let pass = || finding("pass");
        json!({ "complete": pass(), "grounded": pass(), "correct": pass(), "clear": finding(verdict) }).to_string()
    };
    let verdict = |verdict: &str| json!({ "reason": "the price of one launch", "verdict": verdict }).to_string();
    let plan = |steps: &[(&str, &str)]| {
        let steps: Vec<Value> = steps.iter().map(|(what, tool)| json!({ "description": what, "tool": tool })).collect();
        json!({ "steps": steps }).to_string()
    };
    vec![
        script("react", "react", &[search(), sum(), leave("answer"), text("36 euros [1].")]),
        script("react_repeats", "react", &[sum(), sum(), text("36 euros.")]),
        script("react_without_action", "react", &[text("36 euros.")]),
        script(
            "plan_execute",
            "plan_execute",
            &[
                plan(&[
                    ("find the price", "knowledge_search"),
                    ("multiply by three", "calculator"),
                    ("put it in words", "none"),
                ]),
                search(),
                sum(),
                text("Three launches cost 36 euros."),
                text("36 euros [1]."),
            ],
        ),
        script(
            "plan_execute_replans",
            "plan_execute",
            &[
                plan(&[("pay for it", "pay"), ("multiply", "calculator")]),
                act("pay", "wrong", "x"),
                leave("replan"),
                plan(&[("find the price", "knowledge_search")]),
                search(),
                text("12 euros each [1]."),
            ],
        ),
        script(
            "reflexion",
            "reflexion",
            &[
                search(),
                leave("answer"),
                text("12 euros [1]."),
                verdict("fail"),
                text("Multiply by three."),
                sum(),
                leave("answer"),
                text("36 euros [1]."),
                verdict("pass"),
            ],
        ),
        script(
            "critic",
            "critic",
            &[
                search(),
                leave("answer"),
                text("Twelve."),
                critique("problem"),
                text("Three launches cost 36 euros [1]."),
                critique("pass"),
            ],
        ),
    ]
}

fn outcome(tool: &str) -> Value {
    match tool {
        "knowledge_search" => json!({ "query": "winch launch price", "passages": [{
            "chunk_id": ChunkId::derive(&["c"]), "document_id": DocumentId::derive(&["d"]), "source": "charges.md",
            "start": 0, "end": 30, "text": "A winch launch costs 12 euros.", "score": 1.0 }] }),
        _ => json!({ "value": "36" }),
    }
}

/// Plays a script to its end.
fn play(script: &Script) -> Golden {
    let mut run = Run::new(script.request.clone());
    let mut replies = script.replies.iter();
    let mut turns = Vec::new();
    loop {
        let action = run.next();
        let decision = summary(&action);
        let (said, result, drafts) = match action {
            Action::CallModel(call) => {
                let text = replies.next().unwrap_or_else(|| panic!("{}: no reply to {decision}", script.file));
                (Some(text.clone()), None, run.interpret(call.mode, &reply(text)))
            }
            Action::CallTool(call) => {
                let value = outcome(&call.name);
                (None, Some(value.clone()), Run::returned(call, Ok(value)))
            }
            Action::Append(drafts) => (None, None, drafts),
            Action::Finish(_) | Action::Route | Action::Wait => {
                turns.push(Turn { decision, reply: None, result: None, steps: Vec::new() });
                assert_eq!(replies.next(), None, "{}: the run ended before the script did", script.file);
                return Golden { request: script.request.clone(), turns };
            }
        };
        turns.push(Turn { decision, reply: said, result, steps: run.append(drafts) });
    }
}

/// Replays a stored run from nothing but the file.
fn replay(name: &str, golden: &Golden) {
    let mut run = Run::new(golden.request.clone());
    for (n, turn) in golden.turns.iter().enumerate() {
        let action = run.next();
        assert_eq!(summary(&action), turn.decision, "{name}, turn {n}");
        let mode = |action: &Action| match action {
            Action::CallModel(call) => call.mode,
            _ => ModelMode::Answer,
        };
        let drafts = match (&turn.reply, &turn.result, action) {
            (Some(text), _, action) => run.interpret(mode(&action), &reply(text)),
            (None, Some(value), Action::CallTool(call)) => Run::returned(call, Ok(value.clone())),
            (None, None, Action::Append(drafts)) => drafts,
            (None, None, Action::Finish(_)) => continue,
            (_, _, action) => panic!("{name}, turn {n}: {action:?}"),
        };
        assert_eq!(run.append(drafts), turn.steps, "{name}, turn {n}");
    }
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{file}.json"))
}

#[test]
fn stored_runs_are_decided_as_they_were() {
    for script in scripts() {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let text = serde_json::to_string_pretty(&play(&script)).unwrap();
            std::fs::create_dir_all(path(script.file).parent().unwrap()).unwrap();
            std::fs::write(path(script.file), text + "\n").unwrap();
        }
        let text = std::fs::read_to_string(path(script.file)).unwrap();
        replay(script.file, &serde_json::from_str(&text).unwrap());
    }
}

#[test]
fn every_stored_run_is_of_a_script_and_every_agent_has_one() {
    let known: Vec<&str> = scripts().iter().map(|script| script.file).collect();
    for entry in std::fs::read_dir(path("x").parent().unwrap()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name.trim_end_matches(".json")), "{name}");
    }
    for manifest in riverrun_agents::catalog() {
        assert!(known.iter().any(|file| file.starts_with(manifest.name)), "{}", manifest.name);
    }
}
