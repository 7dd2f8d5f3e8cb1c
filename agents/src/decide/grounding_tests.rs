//! given a run that names collections, when words are to be written, then they were searched and the words are from there.

use riverrun_schemas::agent::{RunOutcome, RunRequest};
use riverrun_schemas::{ChunkId, DocumentId};
use serde_json::Value;

use super::*;
use crate::decide::testkit::{Given, calls, leaves, request};

const AGENTS: [&str; 4] = ["react", "plan_execute", "reflexion", "critic"];
const BACKED: &str = "A winch launch costs 12 euros.";
const INVENTED: &str = "A winch launch costs 1,000 dollars.";

fn about_documents(agent: &str) -> RunRequest {
    RunRequest { collections: Some(vec!["handbook".to_owned()]), ..request(agent) }
}

fn passages() -> Value {
    json!({ "query": "launch", "passages": [{
        "chunk_id": ChunkId::derive(&["c"]), "document_id": DocumentId::derive(&["d"]), "source": "charges.md",
        "start": 0, "end": 30, "text": BACKED, "score": 1.0 }] })
}

/// The model wants to write, in the way of this agent type.
fn wants_to_write(given: Given) -> Given {
    match given.mode() {
        ModelMode::Plan => given.replied(ModelMode::Plan, "no plan"),
        ModelMode::Act => given.replied(ModelMode::Act, &leaves("answer")),
        _ => given,
    }
}

/// The agent has searched for the task by itself, and found this.
fn searched(agent: &str) -> Given {
    wants_to_write(Given::new(about_documents(agent))).appended().result(passages())
}

fn writes(given: &Given) -> bool {
    matches!(given.mode(), ModelMode::Answer | ModelMode::Draft)
}

#[test]
fn given_collections_that_were_not_searched_when_words_are_to_be_written_then_the_task_is_searched_for_first() {
    for agent in AGENTS {
        let given = wants_to_write(Given::new(about_documents(agent))).appended();
        let step = given.last();
        let tool = step.tool.as_ref().unwrap();
        assert_eq!((step.kind, step.text.as_deref()), (StepKind::ToolCall, Some(UNASKED)), "{agent}");
        assert_eq!(
            (tool.name.as_str(), tool.arguments_json.as_str()),
            ("knowledge_search", r#"{"query":"what is 6 times 7?"}"#)
        );
        let given = wants_to_write(given.result(passages()));
        assert!(writes(&given), "{agent}: {:?}", given.mode());
        assert!(given.prompt().contains("[1] A winch launch costs 12 euros."), "{agent}: {}", given.prompt());
    }
}

#[test]
fn given_a_search_that_fails_when_it_was_the_agents_own_then_it_is_not_made_again_and_the_run_ends() {
    for agent in AGENTS {
        let given = wants_to_write(Given::new(about_documents(agent))).appended().fails("no index");
        let given = wants_to_write(given);
        assert!(writes(&given), "{agent}: {:?}", given.mode());
    }
}

#[test]
fn given_a_search_of_the_models_own_when_it_found_something_or_nothing_then_no_other_is_made() {
    for found in [passages(), json!({ "query": "launch", "passages": [] })] {
        let given = Given::new(about_documents("react"))
            .replied(ModelMode::Act, &calls("knowledge_search", "launch"))
            .result(found)
            .replied(ModelMode::Act, &leaves("answer"));
        assert_eq!(given.mode(), ModelMode::Answer);
    }
    let failed = Given::new(about_documents("react"))
        .replied(ModelMode::Act, &calls("knowledge_search", "launch"))
        .fails("no index")
        .replied(ModelMode::Act, &leaves("answer"));
    assert!(matches!(failed.next(), Action::Append(_)), "what failed was no search");
}

#[test]
fn given_a_run_that_names_no_collections_or_may_not_search_when_it_writes_then_it_just_writes() {
    for collections in [None, Some(Vec::new())] {
        let given = Given::new(RunRequest { collections, ..request("react") });
        assert!(!given.prompt().contains(RULE));
        assert_eq!(wants_to_write(given).mode(), ModelMode::Answer);
    }
    for agent in AGENTS {
        let given = Given::new(about_documents(agent)).without_tools();
        assert!(writes(&given) && !given.prompt().contains(RULE), "{agent}");
    }
}

#[test]
fn given_collections_when_an_action_or_a_plan_is_chosen_then_the_model_is_told_where_to_look() {
    for agent in AGENTS {
        assert!(Given::new(about_documents(agent)).prompt().contains(RULE), "{agent}");
    }
}

#[test]
fn given_a_long_task_when_it_is_searched_for_then_the_query_is_one_that_the_tool_takes() {
    let request = RunRequest { task: "what does\n it cost? ".repeat(100), ..about_documents("react") };
    let given = wants_to_write(Given::new(request)).appended();
    let arguments: Value = serde_json::from_str(&given.last().tool.as_ref().unwrap().arguments_json).unwrap();
    let query = arguments["query"].as_str().unwrap();
    assert!(query.chars().count() == MAX_QUERY && query.starts_with("what does it cost? what"), "{query}");
}

#[test]
fn given_an_answer_that_no_passage_holds_when_it_was_the_first_then_it_is_written_anew_and_the_second_stands() {
    for agent in ["react", "plan_execute"] {
        let given = wants_to_write(searched(agent)).replied(ModelMode::Answer, INVENTED);
        let step = given.last();
        assert_eq!(
            (step.kind, step.text.as_deref()),
            (StepKind::Thought, Some("[not in the passages]\nA winch launch costs 1,000 dollars."))
        );
        assert!(
            given.prompt().contains("made of its words") && !given.prompt().contains("1,000"),
            "{}",
            given.prompt()
        );
        for second in [BACKED, INVENTED] {
            let end = given.clone().replied(ModelMode::Answer, second).ending();
            assert_eq!(
                (end.status, end.stop_reason, end.answer.as_deref()),
                (RunOutcome::Succeeded, "answered", Some(second)),
                "{agent}"
            );
        }
        let end = wants_to_write(searched(agent)).replied(ModelMode::Answer, BACKED).ending();
        assert_eq!(end.answer.as_deref(), Some(BACKED), "{agent}");
    }
}

#[test]
fn given_a_first_draft_that_no_passage_holds_when_it_is_judged_then_it_fails_without_a_model() {
    for (agent, next, key) in [("reflexion", ModelMode::Reflect, "reason"), ("critic", ModelMode::Draft, "findings")] {
        let given = wants_to_write(searched(agent)).replied(ModelMode::Draft, INVENTED).appended();
        let step = given.last();
        let verdict: Value = serde_json::from_str(step.text.as_ref().unwrap()).unwrap();
        assert_eq!((step.kind, &verdict["passed"]), (StepKind::Critique, &json!(false)), "{agent}");
        assert!(verdict[key].to_string().contains(UNBACKED), "{agent}: {verdict}");
        assert_eq!(given.mode(), next, "{agent}");
        let given = wants_to_write(searched(agent)).replied(ModelMode::Draft, BACKED);
        assert_eq!(given.mode(), ModelMode::Judge, "{agent}");
    }
    let revised = wants_to_write(searched("critic")).replied(ModelMode::Draft, INVENTED).appended();
    assert_eq!(
        revised.replied(ModelMode::Draft, INVENTED).mode(),
        ModelMode::Judge,
        "the second one is the model's to judge"
    );
}

#[test]
fn given_words_from_elsewhere_when_they_are_looked_for_in_the_passages_then_nothing_is_held_against_them() {
    let calculated = searched("react").replied(ModelMode::Act, &calls("calculator", "12*3")).result(json!("36"));
    assert!(!is_unbacked(&calculated.state, "It is 36."));
    let unnamed =
        Given::new(request("react")).replied(ModelMode::Act, &calls("knowledge_search", "launch")).result(passages());
    assert!(!is_unbacked(&unnamed.state, INVENTED));
    let mut talk = searched("react").state;
    assert!(is_unbacked(&talk, INVENTED) && !is_unbacked(&talk, BACKED) && !is_unbacked(&talk, " "));
    talk.request.session = Some("s".to_owned());
    assert!(!is_unbacked(&talk, INVENTED));
}
