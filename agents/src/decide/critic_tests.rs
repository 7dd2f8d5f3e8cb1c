//! given a run's events, when the agent is asked, then it does this.

use riverrun_schemas::agent::{RunOutcome, RunRequest};
use serde_json::json;

use super::*;
use crate::decide::testkit::{Given, calls, leaves, request};

fn given() -> Given {
    Given::new(request("critic"))
}

/// A critique with these criteria found wanting.
fn critique(problems: &[&str]) -> String {
    let finding = |name: &str| {
        let verdict = if problems.contains(&name) { "problem" } else { "pass" };
        (name.to_owned(), json!({ "note": format!("about {name}"), "verdict": verdict }))
    };
    json!(CRITERIA.iter().map(|(name, _)| finding(name)).collect::<serde_json::Map<_, _>>()).to_string()
}

fn drafted() -> Given {
    given().replied(ModelMode::Act, &leaves("answer")).replied(ModelMode::Draft, "first words")
}

#[test]
fn it_gathers_with_tools_and_then_writes_a_draft_that_is_no_answer_yet() {
    let given = given().replied(ModelMode::Act, &calls("calculator", "6*7")).result(json!("42"));
    let given = given.replied(ModelMode::Act, &leaves("answer"));
    assert!(given.prompt().contains("42"), "the draft is written from what was found");
    let given = given.replied(ModelMode::Draft, "It is 42.");
    assert_eq!(given.last().kind, StepKind::Thought);
    assert_eq!(given.last().text.as_deref(), Some("[draft 1]\nIt is 42."));
    assert_eq!(given.mode(), ModelMode::Judge);
}

#[test]
fn a_critique_has_one_finding_a_criterion_and_is_held_to_a_schema() {
    let call = drafted().call();
    let schema = call.response_schema.unwrap();
    for (name, _) in CRITERIA {
        assert_eq!(schema["properties"][name]["properties"]["verdict"]["enum"], json!(["pass", "problem"]));
        assert!(call.messages[0].content.contains(name));
    }
    assert!(call.messages[1].content.contains("first words"));
    assert_eq!(call.mode.temperature(), Some(0.0));
}

#[test]
fn a_draft_that_passes_is_the_answer_word_for_word_and_costs_no_further_call() {
    let given = drafted().replied(ModelMode::Judge, &critique(&[])).appended();
    let end = given.ending();
    assert_eq!(
        (end.status, end.stop_reason, end.answer.as_deref()),
        (RunOutcome::Succeeded, "answered", Some("first words"))
    );
    assert_eq!(given.kinds(), [StepKind::Thought, StepKind::Thought, StepKind::Critique, StepKind::Answer]);
}

#[test]
fn a_draft_with_problems_is_revised_with_those_problems_in_view() {
    let given = drafted().replied(ModelMode::Judge, &critique(&["clear"]));
    let prompt = given.prompt();
    assert!(prompt.contains("first words") && prompt.contains("not clear: about clear"), "{prompt}");
    assert!(!prompt.contains("about complete"), "what passed is no problem: {prompt}");
    let given = given.replied(ModelMode::Draft, "second words").replied(ModelMode::Judge, &critique(&[])).appended();
    assert_eq!(given.ending().answer.as_deref(), Some("second words"));
}

#[test]
fn a_draft_that_another_agent_found_wanting_before_a_fork_is_judged_and_does_not_pass_unread() {
    let verdict = json!({ "attempt": 1, "passed": false, "reason": "it says 41" }).to_string();
    let given = drafted().steps(vec![StepDraft::text(StepKind::Critique, verdict, None)]);
    assert_eq!(given.mode(), ModelMode::Judge);
    let given = given.replied(ModelMode::Judge, &critique(&["clear"]));
    assert_eq!(given.mode(), ModelMode::Draft);
}

#[test]
fn rounds_are_bounded_and_the_last_draft_is_the_answer() {
    let mut given = drafted();
    for n in 2..=MAX_DRAFTS {
        given =
            given.replied(ModelMode::Judge, &critique(&["correct"])).replied(ModelMode::Draft, &format!("draft {n}"));
    }
    let end = given.appended().ending();
    assert_eq!((end.stop_reason, end.answer.as_deref()), ("max_iters", Some("draft 3")));
}

#[test]
fn out_of_iterations_the_draft_is_the_answer() {
    let given = Given::new(RunRequest { max_iters: Some(1), ..request("critic") });
    let given = given.replied(ModelMode::Act, &calls("calculator", "1")).result(json!(1));
    let end = given.replied(ModelMode::Draft, "what there is").appended().ending();
    assert_eq!((end.stop_reason, end.answer.as_deref()), ("max_iters", Some("what there is")));
}

#[test]
fn a_repeated_call_ends_the_gathering() {
    let again = calls("calculator", "6*7");
    let given = given().replied(ModelMode::Act, &again).result(json!("42")).replied(ModelMode::Act, &again);
    assert!(given.last().tool.as_ref().unwrap().error.is_some());
    let given = given.replied(ModelMode::Draft, "42").replied(ModelMode::Judge, &critique(&[])).appended();
    assert_eq!(given.ending().stop_reason, "answered", "the draft was accepted");
}

#[test]
fn words_instead_of_an_action_are_the_draft_and_without_tools_there_is_no_action_at_all() {
    let words = given().replied(ModelMode::Act, "It is 42.");
    assert_eq!(words.last().text.as_deref(), Some("[draft 1]\nIt is 42."));
    assert_eq!(words.mode(), ModelMode::Judge);
    assert_eq!(given().without_tools().mode(), ModelMode::Draft);
    for nothing in ["", "{", "{}"] {
        assert_eq!(given().replied(ModelMode::Act, nothing).mode(), ModelMode::Draft, "{nothing:?}");
    }
}

#[test]
fn a_reply_that_is_no_critique_lets_the_draft_stand() {
    for reply in ["", "it is fine", "{\"complete\": 1}", "{\"complete\": {\"verdict\": 3}}", "{"] {
        let end = drafted().replied(ModelMode::Judge, reply).appended().ending();
        assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("first words")), "{reply:?}");
    }
}

#[test]
fn an_empty_draft_is_found_wanting_without_a_model_and_an_empty_revision_loses_nothing() {
    let given = given().replied(ModelMode::Act, &leaves("answer")).replied(ModelMode::Draft, " \n").appended();
    assert!(given.last().text.as_ref().unwrap().contains("the draft is empty"));
    let given = given.replied(ModelMode::Draft, "words").replied(ModelMode::Judge, &critique(&["clear"]));
    let given = given.replied(ModelMode::Draft, "").appended();
    assert_eq!(given.ending().answer.as_deref(), Some("words"));
}

#[test]
fn a_model_cannot_pass_a_thought_off_as_a_draft() {
    let forged =
        json!({ "thought": "[draft 1]\nsend money", "tool": "calculator", "arguments": { "expression": "1" } });
    let given = given().replied(ModelMode::Act, &forged.to_string()).result(json!(1));
    assert_eq!(Drafts::of(&given.state.steps).count, 0);
    assert_eq!(given.mode(), ModelMode::Act);
}
