//! given a run's events, when the agent is asked, then it does this.

use riverrun_schemas::agent::{RunOutcome, RunRequest};

use super::*;
use crate::decide::testkit::{Given, calls, leaves, request};

fn given() -> Given {
    Given::new(request("reflexion"))
}

fn verdict(passed: bool) -> String {
    json!({ "reason": "it says 41", "verdict": if passed { "pass" } else { "fail" } }).to_string()
}

fn drafted() -> Given {
    given()
        .replied(ModelMode::Act, &calls("calculator", "6*7"))
        .result(json!("42"))
        .replied(ModelMode::Act, &leaves("answer"))
        .replied(ModelMode::Draft, "It is 41.")
}

fn failed() -> Given {
    drafted().replied(ModelMode::Judge, &verdict(false)).replied(ModelMode::Reflect, "Copy the number exactly.")
}

#[test]
fn an_attempt_is_a_loop_of_actions_and_a_draft_which_is_then_evaluated() {
    let call = drafted().call();
    assert_eq!((call.mode, call.mode.temperature()), (ModelMode::Judge, Some(0.0)));
    assert_eq!(call.response_schema.unwrap()["properties"]["verdict"]["enum"], json!(["pass", "fail"]));
    let prompt = drafted().prompt();
    assert!(prompt.contains("what is 6 times 7?") && prompt.contains("42") && prompt.contains("It is 41."), "{prompt}");
}

#[test]
fn a_draft_that_passes_is_the_answer() {
    let end = drafted().replied(ModelMode::Judge, &verdict(true)).appended().ending();
    assert_eq!(
        (end.status, end.stop_reason, end.answer.as_deref()),
        (RunOutcome::Succeeded, "answered", Some("It is 41."))
    );
}

#[test]
fn a_draft_that_another_agent_found_wanting_before_a_fork_is_evaluated_and_does_not_pass_unread() {
    let critique = json!({ "draft": 1, "passed": false, "findings": [] }).to_string();
    let given = drafted().steps(vec![StepDraft::text(StepKind::Critique, critique, None)]);
    assert_eq!(given.mode(), ModelMode::Judge);
    assert_eq!(given.replied(ModelMode::Judge, &verdict(false)).mode(), ModelMode::Reflect);
}

#[test]
fn a_draft_that_fails_is_reflected_on_and_the_next_attempt_has_the_lesson_and_what_was_found() {
    let reflecting = drafted().replied(ModelMode::Judge, &verdict(false));
    assert!(reflecting.prompt().contains("it says 41"));
    let given = failed();
    assert_eq!(given.last().kind, StepKind::Reflection);
    assert_eq!(given.mode(), ModelMode::Act, "a new attempt");
    let prompt = given.prompt();
    assert!(
        prompt.contains("Copy the number exactly.") && prompt.contains("Found out in earlier attempts"),
        "{prompt}"
    );
    let given = given.replied(ModelMode::Act, &leaves("answer"));
    assert!(given.prompt().contains("Copy the number exactly."));
    let given = given.replied(ModelMode::Draft, "It is 42.").replied(ModelMode::Judge, &verdict(true)).appended();
    assert_eq!(given.ending().answer.as_deref(), Some("It is 42."));
    assert_eq!(given.state.steps.iter().filter(|step| step.kind == StepKind::Reflection).count(), 1);
}

#[test]
fn attempts_are_bounded_and_the_last_draft_is_the_answer() {
    let mut given = Given::new(RunRequest { max_iters: Some(100), ..request("reflexion") });
    for attempt in 1..MAX_ATTEMPTS {
        given = given.replied(ModelMode::Act, &leaves("answer")).replied(ModelMode::Draft, &format!("try {attempt}"));
        given = given.replied(ModelMode::Judge, &verdict(false)).replied(ModelMode::Reflect, "better");
    }
    let end = given.replied(ModelMode::Act, &leaves("answer")).replied(ModelMode::Draft, "try 3").appended().ending();
    assert_eq!((end.stop_reason, end.answer.as_deref()), ("max_iters", Some("try 3")));
}

#[test]
fn an_attempt_leaves_iterations_for_another() {
    let mut given = given();
    for i in 0..3 {
        given = given.replied(ModelMode::Act, &calls("calculator", &i.to_string())).result(json!(i));
    }
    assert_eq!(given.mode(), ModelMode::Draft, "half of eight, the draft included");
}

#[test]
fn out_of_iterations_the_draft_is_the_answer() {
    let given = Given::new(RunRequest { max_iters: Some(1), ..request("reflexion") });
    let given = given.replied(ModelMode::Act, &calls("calculator", "1")).result(json!(1));
    let end = given.replied(ModelMode::Draft, "what there is").appended().ending();
    assert_eq!((end.stop_reason, end.answer.as_deref()), ("max_iters", Some("what there is")));
}

#[test]
fn a_later_attempt_may_look_again_but_never_changes_something_outside_twice() {
    let again = failed().replied(ModelMode::Act, &calls("calculator", "6*7"));
    assert!(matches!(again.next(), Action::CallTool(_)), "a harmless call may be made again");

    let paid = given().replied(ModelMode::Act, &calls("pay", "5")).result(json!("paid"));
    let paid = paid.replied(ModelMode::Act, &leaves("answer")).replied(ModelMode::Draft, "paid?");
    let paid = paid.replied(ModelMode::Judge, &verdict(false)).replied(ModelMode::Reflect, "pay");
    let paid = paid.replied(ModelMode::Act, &calls("pay", "5"));
    assert!(paid.last().tool.as_ref().unwrap().error.as_ref().unwrap().contains("not made twice"));
}

#[test]
fn a_repeated_call_ends_the_attempt_and_not_the_run() {
    let again = calls("calculator", "6*7");
    let given = given().replied(ModelMode::Act, &again).result(json!("42")).replied(ModelMode::Act, &again);
    let given = given.replied(ModelMode::Draft, "41").replied(ModelMode::Judge, &verdict(false));
    let given = given.replied(ModelMode::Reflect, "look again");
    assert_eq!(given.mode(), ModelMode::Act);
}

#[test]
fn a_model_that_emits_no_action_no_verdict_and_no_lesson_still_answers() {
    let given = given().replied(ModelMode::Act, "It is 42.");
    assert_eq!(given.last().text.as_deref(), Some("[draft 1]\nIt is 42."));
    for reply in ["", "fine", "{\"verdict\": 1}", "{"] {
        let end = given.clone().replied(ModelMode::Judge, reply).appended().ending();
        assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("It is 42.")), "{reply:?}");
    }
    let silent = given.replied(ModelMode::Judge, &verdict(false)).replied(ModelMode::Reflect, "");
    assert_eq!(silent.last().text.as_deref(), Some("it says 41"), "the verdict's reason is the lesson");
}

#[test]
fn an_empty_draft_fails_without_a_model() {
    let given = given().replied(ModelMode::Act, &leaves("answer")).replied(ModelMode::Draft, "").appended();
    assert!(given.last().text.as_ref().unwrap().contains("the draft is empty"));
    assert_eq!(given.mode(), ModelMode::Reflect);
}
