//! Whatever models and tools reply, in whatever order, a run of any type ends within its bounds, with an answer unless its model writes
//! nothing.

mod common;

use common::{Run, reply, request};
use proptest::prelude::*;
use riverrun_agents::decide::Ending;
use riverrun_agents::{Action, catalog};
use riverrun_schemas::agent::{RunOutcome, Step, StepKind};
use serde_json::{Value, json};

fn action() -> impl Strategy<Value = String> {
    let tool = prop::sample::select(vec!["calculator", "pay", "knowledge_search", "shell", "answer", "done", "replan"]);
    let argument = prop::sample::select(vec!["expression", "query", "wrong"]);
    (tool, argument, 0..4u8).prop_map(|(tool, argument, n)| {
        json!({ "thought": format!("[draft {n}]\nt"), "tool": tool, "arguments": { argument: n.to_string() } })
            .to_string()
    })
}

fn plan() -> impl Strategy<Value = String> {
    let step = prop::sample::select(vec!["calculator", "pay", "knowledge_search", "shell", "none"])
        .prop_map(|tool| json!({ "description": "do it", "tool": tool }));
    prop::collection::vec(step, 0..7).prop_map(|steps| json!({ "steps": steps }).to_string())
}

fn verdict() -> impl Strategy<Value = String> {
    (any::<bool>(), any::<bool>()).prop_map(|(passed, complete)| {
        let finding = |passed: bool| json!({ "note": "n", "verdict": if passed { "pass" } else { "problem" } });
        json!({ "reason": "r", "verdict": if passed { "pass" } else { "fail" }, "complete": finding(complete), "clear": finding(passed) })
            .to_string()
    })
}

/// Any reply, whatever was asked for.
fn any_reply() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => action(),
        2 => plan(),
        2 => verdict(),
        1 => "\\PC{0,30}",
        1 => prop::sample::select(vec!["", " ", "{", "{}", "null", "[]", "{\"tool\": 3}", "{\"steps\": 3}", "{\"thought\": null}"])
            .prop_map(str::to_owned),
    ]
}

/// One word after the other until the run ends; the words begin again when they are used up.
fn drive(agent: &str, max_iters: i32, replies: &[(String, bool)]) -> (Run, Ending, usize) {
    let mut run = Run::new(request(agent, "a task", max_iters));
    let mut turns = 0;
    loop {
        turns += 1;
        assert!(turns < 1_000, "the run does not end");
        let (text, good) = &replies[turns % replies.len()];
        let drafts = match run.next() {
            Action::CallModel(call) => run.interpret(call.mode, &reply(text)),
            Action::CallTool(call) if *good => Run::returned(call, Ok(json!({ "passages": [] }))),
            Action::CallTool(call) => Run::returned(call, Err("broken".into())),
            Action::Append(drafts) => drafts,
            Action::Finish(ending) => return (run, ending, turns),
            Action::Route => unreachable!("an agent is named"),
            Action::Wait => unreachable!("no call asks a person"),
        };
        run.append(drafts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_run_ends_with_an_answer_within_its_bounds(
        max_iters in 0..12i32,
        replies in prop::collection::vec((any_reply(), any::<bool>()), 1..40),
    ) {
        for manifest in catalog() {
            let (run, ending, turns) = drive(manifest.name, max_iters, &replies);
            // Only a model that writes nothing when it is asked for the answer, twice, leaves a run without one.
            let silent = ending.error.as_ref().is_some_and(|failure| failure.code == "empty_answer");
            let (status, words) = (ending.status, ending.answer.clone().unwrap_or_default());
            let wanted = if silent { RunOutcome::Failed } else { RunOutcome::Succeeded };
            prop_assert_eq!(status, wanted, "{}: {:?}", manifest.name, ending);
            prop_assert_eq!(words.trim().is_empty(), silent, "{}: {:?}", manifest.name, ending);
            let reasons: &[&str] = if silent { &["error"] } else { &["answered", "max_iters", "loop_detected"] };
            prop_assert!(reasons.contains(&ending.stop_reason), "{}: {:?}", manifest.name, ending);
            // A draft may stand behind the last iteration. Plans, critiques, reflections and answers are no iterations
            // but bounded each; a call costs a second turn.
            let thoughts = run.state.steps.iter().filter(|step| step.kind == StepKind::Thought).count();
            let empty = |step: &&Step| step.text.as_deref().is_some_and(|text| text.starts_with("[empty answer]"));
            let unwritten = run.state.steps.iter().filter(empty).count();
            prop_assert!(unwritten <= 2, "{}: {unwritten} empty answers", manifest.name);
            prop_assert!(thoughts - unwritten <= max_iters as usize + 2, "{}: {thoughts} thoughts", manifest.name);
            prop_assert!(turns <= 2 * thoughts + 12, "{}: {turns} turns", manifest.name);
            // An external effect is never asked for twice with the same arguments.
            let mut made: Vec<&str> = run.state.steps.iter()
                .filter(|step| step.kind == StepKind::ToolResult)
                .filter_map(|step| step.tool.as_ref())
                .filter(|tool| tool.name == "pay" && tool.duration_ms != Some(0))
                .map(|tool| tool.arguments_json.as_str())
                .collect();
            let all = made.len();
            made.sort_unstable();
            made.dedup();
            prop_assert_eq!(made.len(), all);
        }
    }
}

#[test]
fn a_run_whose_steps_are_of_a_newer_version_still_ends() {
    for manifest in catalog() {
        let mut run = Run::new(request(manifest.name, "a task", 4));
        let unknown = |kind| riverrun_agents::decide::StepDraft::text(kind, "{\"of\": \"a newer version\"}", None);
        run.append([StepKind::Plan, StepKind::Critique, StepKind::Reflection, StepKind::Unknown].map(unknown).to_vec());
        let mut ended = false;
        for _ in 0..60 {
            let drafts = match run.next() {
                Action::CallModel(call) => run.interpret(call.mode, &reply("words")),
                Action::CallTool(call) => Run::returned(call, Ok(Value::Null)),
                Action::Append(drafts) => drafts,
                Action::Finish(_) => {
                    ended = true;
                    break;
                }
                Action::Route => unreachable!("an agent is named"),
                Action::Wait => unreachable!("no call asks a person"),
            };
            run.append(drafts);
        }
        assert!(ended, "{}", manifest.name);
    }
}
