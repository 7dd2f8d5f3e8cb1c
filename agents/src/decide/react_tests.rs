//! given a run's events, when the agent is asked, then it does this.

use riverrun_schemas::agent::{
    AgentEvent, ApprovalPolicy, RunAccepted, RunAdvanced, RunCancelRequested, RunClaimed, RunOutcome, RunRequest,
};
use riverrun_schemas::{RunId, Usage};
use serde_json::json;

use super::*;
use crate::decide::{Ending, next};

fn request() -> RunRequest {
    RunRequest {
        task: "what is 6 times 7?".into(),
        agent: Some("react".into()),
        namespace: Default::default(),
        session: None,
        provider: None,
        model: None,
        temperature: None,
        max_iters: Some(3),
        tools: None,
        collections: None,
        budget_tokens: None,
        budget_seconds: None,
        approval: ApprovalPolicy::Never,
        metadata_json: None,
    }
}

fn tools() -> Vec<ToolManifest> {
    let schema =
        json!({ "type": "object", "properties": { "expression": { "type": "string" } }, "required": ["expression"] });
    let tool = |name, effect| ToolManifest::builtin(name, "does it", schema.clone(), effect);
    vec![tool("calculator", ToolEffect::None), tool("pay", ToolEffect::External)]
}

/// A run that is told what happened, as a worker would write it.
struct Given(RunState);

impl Given {
    fn run(request: RunRequest) -> Self {
        let run_id = RunId::derive(&["test"]);
        Given(RunState::accepted(&RunAccepted { run_id, request, at: 1_000 })).claimed(1)
    }

    fn claimed(mut self, epoch: i64) -> Self {
        let run_id = self.0.run_id;
        assert!(self.0.apply(&AgentEvent::RunClaimed(RunClaimed {
            run_id,
            epoch,
            worker: format!("w{epoch}"),
            at: 0
        })));
        self
    }

    fn steps(mut self, drafts: Vec<StepDraft>) -> Self {
        let first = self.0.last_seq() + 1;
        let steps = drafts.into_iter().zip(first..).map(|(draft, seq)| draft.number(seq, "react", 0)).collect();
        let event = RunAdvanced { run_id: self.0.run_id, epoch: self.0.epoch(), steps };
        assert!(self.0.apply(&AgentEvent::RunAdvanced(event)), "the event is void");
        self
    }

    fn replied(self, mode: ModelMode, text: &str) -> Self {
        let drafts = React.interpret(&self.0, &tools(), mode, &reply(text));
        self.steps(drafts)
    }

    fn result(self, value: serde_json::Value) -> Self {
        let call = self.0.steps.last().unwrap().tool.clone().unwrap();
        self.steps(vec![StepDraft::tool(
            StepKind::ToolResult,
            ToolUse { result_json: Some(value.to_string()), ..call },
        )])
    }

    fn next(&self) -> Action {
        next(&self.0, &tools(), 2_000)
    }
}

fn reply(text: &str) -> Reply {
    Reply { text: text.into(), usage: Usage { prompt_tokens: 10, completion_tokens: 5, cost_usd: None }, cut: false }
}

fn calls(tool: &str, expression: &str) -> String {
    json!({ "thought": "calculate", "tool": tool, "arguments": { "expression": expression } }).to_string()
}

fn mode(action: Action) -> ModelMode {
    match action {
        Action::CallModel(call) => call.mode,
        other => panic!("no model call: {other:?}"),
    }
}

fn ending(action: Action) -> Ending {
    match action {
        Action::Finish(ending) => ending,
        other => panic!("no end: {other:?}"),
    }
}

#[test]
fn a_fresh_run_asks_the_model_for_an_action_held_to_the_tools_schemas() {
    let Action::CallModel(call) = Given::run(request()).next() else { panic!() };
    assert_eq!(call.mode, ModelMode::Act);
    let schema = call.response_schema.unwrap();
    let named: Vec<_> = schema["anyOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["properties"]["tool"]["enum"][0].as_str().unwrap())
        .collect();
    assert_eq!(named, ["calculator", "pay", "answer"]);
}

#[test]
fn a_run_without_an_agent_is_routed_first() {
    let given = Given::run(RunRequest { agent: None, ..request() });
    let Action::Append(steps) = given.next() else { panic!() };
    assert_eq!(steps[0].kind, StepKind::Route);
    assert_eq!(mode(given.steps(steps).next()), ModelMode::Act);
}

#[test]
fn an_action_becomes_intent_call_observation_answer_end() {
    let given = Given::run(request()).replied(ModelMode::Act, &calls("calculator", "6*7"));
    let Action::CallTool(call) = given.next() else { panic!() };
    assert_eq!((call.name.as_str(), call.arguments_json.as_str()), ("calculator", r#"{"expression":"6*7"}"#));
    let given = given.result(json!("42"));
    assert_eq!(mode(given.next()), ModelMode::Act);
    let given = given.replied(ModelMode::Act, r#"{"thought":"done","tool":"answer","arguments":{}}"#);
    assert_eq!(mode(given.next()), ModelMode::Answer);
    let end = ending(given.replied(ModelMode::Answer, " 42 \n").next());
    assert_eq!((end.status, end.stop_reason, end.answer.as_deref()), (RunOutcome::Succeeded, "answered", Some("42")));
}

#[test]
fn a_model_that_emits_no_action_answers_without_tools() {
    let end = ending(Given::run(request()).replied(ModelMode::Act, "It is 42.").next());
    assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("It is 42.")));
}

#[test]
fn broken_json_is_no_answer_but_leads_to_one() {
    for broken in ["", "{\"thought\": \"x", "{}", "{\"a\":1}"] {
        assert_eq!(mode(Given::run(request()).replied(ModelMode::Act, broken).next()), ModelMode::Answer, "{broken:?}");
    }
}

#[test]
fn an_unknown_tool_is_an_observation_that_names_the_known_ones() {
    let given = Given::run(request()).replied(ModelMode::Act, &calls("shell", "ls"));
    let last = given.0.steps.last().unwrap();
    assert_eq!(last.kind, StepKind::ToolResult);
    assert!(last.tool.as_ref().unwrap().error.as_ref().unwrap().contains("calculator, pay"));
    assert_eq!(mode(given.next()), ModelMode::Act);
}

#[test]
fn arguments_that_break_the_tools_schema_are_refused_before_the_call() {
    let wrong = json!({ "thought": "calculate", "tool": "calculator", "arguments": { "expression": 42 } }).to_string();
    let given = Given::run(request()).replied(ModelMode::Act, &wrong);
    let result = given.0.steps.last().unwrap();
    assert!(result.tool.as_ref().unwrap().error.as_ref().unwrap().starts_with("bad arguments: "), "{result:?}");
    assert_eq!(mode(given.next()), ModelMode::Act);
}

#[test]
fn a_repeated_call_is_not_made_and_a_third_one_ends_the_loop() {
    let again = calls("calculator", "6*7");
    let given =
        Given::run(RunRequest { max_iters: Some(8), ..request() }).replied(ModelMode::Act, &again).result(json!("42"));
    let given = given.replied(ModelMode::Act, &again);
    assert!(given.0.steps.last().unwrap().tool.as_ref().unwrap().error.is_some());
    assert_eq!(mode(given.next()), ModelMode::Answer);
    assert_eq!(ending(given.replied(ModelMode::Answer, "42").next()).stop_reason, "loop_detected");
}

#[test]
fn out_of_iterations_the_agent_answers_with_what_it_has() {
    let mut given = Given::run(request());
    for i in 0..3 {
        assert_eq!(mode(given.next()), ModelMode::Act);
        given = given.replied(ModelMode::Act, &calls("calculator", &i.to_string())).result(json!(i));
    }
    assert_eq!(mode(given.next()), ModelMode::Answer);
    let end = ending(given.replied(ModelMode::Answer, "some").next());
    assert_eq!((end.status, end.stop_reason), (RunOutcome::Succeeded, "max_iters"));
}

#[test]
fn budgets_end_the_run_with_their_name() {
    let spent = Given::run(RunRequest { budget_tokens: Some(15), ..request() })
        .replied(ModelMode::Act, &calls("calculator", "1"));
    assert_eq!(ending(spent.next()).stop_reason, "budget_tokens");
    let late = Given::run(RunRequest { budget_seconds: Some(1), ..request() });
    let end = ending(late.next());
    assert_eq!((end.status, end.stop_reason), (RunOutcome::Failed, "budget_seconds"));
}

#[test]
fn a_cancelled_run_ends_cancelled_whatever_else_waits() {
    let mut given = Given::run(request()).replied(ModelMode::Act, &calls("calculator", "6*7"));
    let run_id = given.0.run_id;
    given.0.apply(&AgentEvent::RunCancelRequested(RunCancelRequested { run_id, reason: Some("enough".into()), at: 0 }));
    let end = ending(given.next());
    assert_eq!((end.status, end.stop_reason), (RunOutcome::Cancelled, "cancelled"));
}

#[test]
fn after_a_crash_a_repeatable_call_is_made_again_and_another_is_not_guessed_at() {
    let harmless = Given::run(request()).replied(ModelMode::Act, &calls("calculator", "6*7"));
    let Action::CallTool(before) = harmless.next() else { panic!() };
    let Action::CallTool(after) = harmless.claimed(2).next() else { panic!() };
    assert_eq!(before.call_id, after.call_id, "the idempotency key is the same");

    let payment = Given::run(request()).replied(ModelMode::Act, &calls("pay", "5"));
    assert!(matches!(payment.next(), Action::CallTool(_)));
    assert_eq!(ending(payment.claimed(2).next()).error.unwrap().code, "tool_outcome_unknown");
}

#[test]
fn the_same_state_gives_the_same_action() {
    let given = Given::run(request()).replied(ModelMode::Act, &calls("calculator", "6*7")).result(json!("42"));
    assert_eq!(given.next(), given.next());
}
