//! given a run's events, when the agent is asked, then it does this.

use riverrun_schemas::agent::{RunOutcome, RunRequest};
use serde_json::json;

use super::*;
use crate::decide::testkit::{Given, calls, leaves, request};

fn given() -> Given {
    Given::new(RunRequest { max_iters: Some(20), ..request("plan_execute") })
}

fn plan(steps: &[(&str, &str)]) -> String {
    let steps: Vec<_> = steps.iter().map(|(what, tool)| json!({ "description": what, "tool": tool })).collect();
    json!({ "steps": steps }).to_string()
}

fn planned() -> Given {
    given().replied(
        ModelMode::Plan,
        &plan(&[("find the price", "knowledge_search"), ("multiply it", "calculator"), ("say what follows", "none")]),
    )
}

fn passage() -> serde_json::Value {
    json!({ "query": "price", "passages": [{
        "chunk_id": riverrun_schemas::ChunkId::derive(&["c"]), "document_id": riverrun_schemas::DocumentId::derive(&["d"]),
        "source": "charges.md", "start": 0, "end": 9, "text": "A winch launch costs 12 euros.", "score": 1.0 }] })
}

#[test]
fn it_first_makes_a_plan_as_data_that_names_only_tools_that_there_are() {
    let call = given().call();
    assert_eq!(call.mode, ModelMode::Plan);
    let tools = &call.response_schema.unwrap()["properties"]["steps"]["items"]["properties"]["tool"]["enum"];
    assert_eq!(*tools, json!(["calculator", "pay", "knowledge_search", "none"]));
    let given = planned();
    assert_eq!(given.last().kind, StepKind::Plan);
    let written: serde_json::Value = serde_json::from_str(given.last().text.as_ref().unwrap()).unwrap();
    assert_eq!(written["plan"], 1);
    assert_eq!(written["steps"][1], json!({ "id": 2, "description": "multiply it", "tool": "calculator" }));
    assert_eq!(written["steps"][2]["tool"], json!(null));
}

#[test]
fn each_step_is_carried_out_with_the_tool_that_it_wants_and_then_the_answer_is_written() {
    let given = planned();
    assert_eq!(
        given.choices(),
        ["knowledge_search"],
        "the wanted tool first, and no way out before anything was found"
    );
    assert!(given.prompt().contains("Carry out step 1 now"));
    let given = given.replied(ModelMode::Act, &calls("knowledge_search", "price")).result(passage());
    assert_eq!(given.choices(), ["calculator", "done", "replan"]);
    assert!(
        given.prompt().contains("A winch launch costs 12 euros.") && given.prompt().contains("Carry out step 2 now")
    );
    let given = given.replied(ModelMode::Act, &calls("calculator", "12*3")).result(json!("36"));
    let given = given.replied(ModelMode::Work, "Three launches cost 36 euros.");
    assert_eq!(given.last().text.as_deref(), Some("[step 3 done]\nThree launches cost 36 euros."));
    let prompt = given.prompt();
    assert!(prompt.contains("36") && prompt.contains("result of: say what follows"), "{prompt}");
    let end = given.replied(ModelMode::Answer, "36 euros [1]").ending();
    assert_eq!(
        (end.status, end.stop_reason, end.answer.as_deref()),
        (RunOutcome::Succeeded, "answered", Some("36 euros [1]"))
    );
}

#[test]
fn after_a_failed_try_the_step_is_offered_every_tool() {
    let given = planned().replied(ModelMode::Act, &calls("knowledge_search", "price")).fails("no such collection");
    assert_eq!(given.choices(), ["calculator", "pay", "knowledge_search", "done", "replan"]);
    assert!(given.prompt().contains("no such collection"));
}

#[test]
fn a_step_that_comes_to_nothing_leads_to_another_plan_that_knows_why() {
    let mut given = planned();
    for query in ["price", "cost", "charges"] {
        given = given
            .replied(ModelMode::Act, &calls("knowledge_search", query))
            .result(json!({ "query": query, "passages": [] }));
    }
    assert_eq!(given.mode(), ModelMode::Plan);
    assert!(given.prompt().contains("step 1 failed: knowledge_search: no passage found"), "{}", given.prompt());
    let given = given.replied(ModelMode::Plan, &plan(&[("guess", "calculator")]));
    let written: serde_json::Value = serde_json::from_str(given.last().text.as_ref().unwrap()).unwrap();
    assert_eq!(
        (&written["plan"], &written["because"]),
        (&json!(2), &json!("step 1 failed: knowledge_search: no passage found"))
    );
    assert_eq!(given.choices(), ["calculator", "done", "replan"]);
}

#[test]
fn a_plan_that_proves_wrong_is_made_anew() {
    let given = planned().replied(ModelMode::Act, &calls("knowledge_search", "price")).result(passage());
    let given = given.replied(ModelMode::Act, &leaves("replan"));
    assert_eq!(given.last().text.as_deref(), Some("[step 2 failed]\nenough"));
    assert_eq!(given.mode(), ModelMode::Plan);
    let given = given.replied(ModelMode::Plan, &plan(&[("multiply", "calculator")]));
    assert!(given.prompt().contains("A winch launch costs 12 euros."), "what was found is kept");
}

#[test]
fn a_step_that_is_done_already_needs_no_call() {
    let given = planned().replied(ModelMode::Act, &calls("knowledge_search", "price")).result(passage());
    let given = given.replied(ModelMode::Act, &leaves("done"));
    assert_eq!(given.last().text.as_deref(), Some("[step 2 done]\nenough"));
    assert_eq!(given.mode(), ModelMode::Work);
}

#[test]
fn plans_are_bounded_and_the_agent_answers_with_what_it_has() {
    let mut given = given();
    for _ in 0..MAX_PLANS {
        given = given.replied(ModelMode::Plan, &plan(&[("pay", "calculator")]));
        for n in 0..MAX_TRIES {
            given = given.replied(ModelMode::Act, &calls("calculator", &n.to_string())).fails("broken");
        }
    }
    let end = given.replied(ModelMode::Answer, "It can't be done.").ending();
    assert_eq!((end.status, end.stop_reason), (RunOutcome::Succeeded, "max_iters"));
}

#[test]
fn out_of_iterations_the_agent_answers_with_what_it_has() {
    let given = Given::new(RunRequest { max_iters: Some(1), ..request("plan_execute") });
    let given = given.replied(ModelMode::Plan, &plan(&[("one", "calculator"), ("two", "calculator")]));
    let given = given.replied(ModelMode::Act, &calls("calculator", "1")).result(json!(1));
    let end = given.replied(ModelMode::Answer, "1").ending();
    assert_eq!(end.stop_reason, "max_iters");
}

#[test]
fn a_call_repeated_within_a_step_fails_the_step_and_the_last_plan_ends_with_loop_detected() {
    let again = calls("calculator", "1");
    let mut given = given();
    for n in 1..=MAX_PLANS {
        given = given.replied(ModelMode::Plan, &plan(&[("one", "calculator")]));
        given = given.replied(ModelMode::Act, &again).fails("broken").replied(ModelMode::Act, &again);
        assert!(given.last().tool.as_ref().unwrap().error.as_ref().unwrap().contains("made before"), "plan {n}");
    }
    assert_eq!(given.replied(ModelMode::Answer, "no").ending().stop_reason, "loop_detected");
}

#[test]
fn a_model_that_makes_no_plan_answers_without_one() {
    for reply in ["", "First I would look.", "{\"steps\": []}", "{\"steps\": [{\"tool\": \"calculator\"}]}", "{"] {
        let given = given().replied(ModelMode::Plan, reply);
        let end = given.replied(ModelMode::Answer, "42").ending();
        assert_eq!((end.status, end.stop_reason), (RunOutcome::Succeeded, "answered"), "{reply:?}");
    }
    let end = given().without_tools().replied(ModelMode::Answer, "42").ending();
    assert_eq!(end.stop_reason, "answered");
}

#[test]
fn a_tool_that_there_is_not_is_none_and_a_plan_has_at_most_five_steps() {
    let steps: Vec<(&str, &str)> = (0..9).map(|_| ("do it", "shell")).collect();
    let given = given().replied(ModelMode::Plan, &plan(&steps));
    let written: Plan = serde_json::from_str(given.last().text.as_ref().unwrap()).unwrap();
    assert_eq!((written.steps.len(), &written.steps[0].tool), (5, &None));
    assert_eq!(given.mode(), ModelMode::Work);
}

#[test]
fn words_instead_of_an_action_are_the_steps_result_and_nothing_is_a_try() {
    let given = planned();
    let words = given.clone().replied(ModelMode::Act, "The price is 12 euros.");
    assert_eq!(words.last().text.as_deref(), Some("[step 1 done]\nThe price is 12 euros."));
    let mut nothing = given;
    for _ in 0..MAX_TRIES {
        nothing = nothing.replied(ModelMode::Act, "{");
    }
    assert_eq!(nothing.mode(), ModelMode::Plan);
}

#[test]
fn a_plan_can_be_folded_from_the_middle_of_a_crash() {
    let given = planned().replied(ModelMode::Act, &calls("knowledge_search", "price"));
    let (before, after) = (given.next(), given.claimed(2).next());
    assert_eq!(before, after);
}
