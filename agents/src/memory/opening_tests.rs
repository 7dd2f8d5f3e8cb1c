use riverrun_models::Message;
use riverrun_schemas::RunId;
use riverrun_schemas::agent::{
    AgentEvent, ApprovalPolicy, ForkedFrom, RunAccepted, RunAdvanced, RunClaimed, RunRequest, StepKind, ToolUse,
};

use super::*;
use crate::decide::{ModelCall, ModelMode, next, settle};
use crate::policy::Policy;

fn request(session: Option<&str>) -> RunRequest {
    RunRequest {
        task: "what is my dog called?".into(),
        agent: Some("react".into()),
        namespace: "team".parse().unwrap(),
        session: session.map(str::to_owned),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    }
}

fn run(session: Option<&str>) -> RunState {
    run_of(request(session))
}

fn run_of(request: RunRequest) -> RunState {
    let run_id = RunId::derive(&["r"]);
    let mut state = RunState::accepted(&RunAccepted { run_id, request, forked_from: None, at: 0 });
    state.apply(&AgentEvent::RunClaimed(RunClaimed { run_id, epoch: 1, worker: "w".into(), at: 0 }));
    state
}

fn append(state: &mut RunState, drafts: Vec<StepDraft>) {
    let first = state.last_seq() + 1;
    let steps = drafts.into_iter().zip(first..).map(|(draft, seq)| draft.number(seq, "react", 0)).collect();
    assert!(state.apply(&AgentEvent::RunAdvanced(RunAdvanced { run_id: state.run_id, epoch: 1, steps })));
}

fn called(state: &RunState) -> ToolUse {
    match next(state, &[], 0) {
        Action::CallTool(call) => call,
        other => panic!("{other:?}"),
    }
}

fn asked(state: &RunState) -> ModelCall {
    match next(state, &[], 0) {
        Action::CallModel(call) => call,
        other => panic!("{other:?}"),
    }
}

/// The run after its memory was read with that result.
fn opened(result: Option<&str>, error: Option<&str>) -> RunState {
    let mut state = run(Some("s"));
    read_memory(&mut state, result, error);
    state
}

fn read_memory(state: &mut RunState, result: Option<&str>, error: Option<&str>) {
    let Action::Append(drafts) = next(state, &[], 0) else { panic!("memory is not read first") };
    append(state, drafts);
    let result = ToolUse { result_json: result.map(str::to_owned), error: error.map(str::to_owned), ..called(state) };
    append(state, vec![StepDraft::tool(StepKind::ToolResult, result)]);
}

/// A run of a conversation whose agent the supervisor has chosen.
fn routed(agent: &str) -> RunState {
    let mut state = run_of(RunRequest { agent: None, ..request(Some("s")) });
    assert_eq!(next(&state, &[], 0), Action::Route, "the choice is the first step");
    append(&mut state, vec![StepDraft::text(StepKind::Route, format!("{agent}: it fits"), None)]);
    state
}

const REX: &str = r#"{"summary":"Ann has a dog.","turns":[{"role":"user","text":"he is called Rex"}],"episodes":[{"id":"epi_1","text":"user: a dog","turn_ids":[]}]}"#;

#[test]
fn given_a_run_of_a_conversation_when_it_begins_then_it_reads_its_memory_once_and_then_goes_its_way() {
    let state = opened(Some(REX), None);
    let call = asked(&state);
    assert_eq!(call.mode, ModelMode::Answer);
    let all: Vec<&str> = call.messages.iter().map(|message| message.content.as_str()).collect();
    let text = all.join("\n");
    for words in ["Ann has a dog.", "he is called Rex", "user: a dog", "what is my dog called?"] {
        assert_eq!(text.matches(words).count(), 1, "{words} in {text}");
    }
    assert!(!text.contains("<observation"), "memory is no observation: {text}");
    assert_eq!(asked(&state), call, "the same events give the same prompt");
}

#[test]
fn given_a_run_without_a_conversation_when_it_begins_then_nothing_is_read() {
    assert_eq!(opening(&run(None)), None);
    assert!(without_opening(&run(None)).is_none());
    asked(&run(None));
}

#[test]
fn given_a_memory_that_is_empty_or_could_not_be_read_when_the_run_goes_on_then_its_prompt_is_that_of_any_run() {
    let plain: Vec<Message> = asked(&run(None)).messages;
    for (result, error) in [
        (Some("{}"), None),
        (Some(r#"{"summary":null,"turns":[],"episodes":[]}"#), None),
        (Some("garbage"), None),
        (None, Some("there is no tool \"memory_recall\"")),
        (None, None),
    ] {
        assert_eq!(asked(&opened(result, error)).messages, plain, "{result:?} {error:?}");
    }
}

#[test]
fn given_a_crash_behind_the_intent_when_another_worker_goes_on_then_it_reads_memory_again() {
    let mut state = run(Some("s"));
    let Action::Append(drafts) = next(&state, &[], 0) else { panic!("memory is not read first") };
    append(&mut state, drafts);
    let run_id = state.run_id;
    state.apply(&AgentEvent::RunClaimed(RunClaimed { run_id, epoch: 2, worker: "v".into(), at: 0 }));
    assert_eq!(called(&state).name, MEMORY_RECALL);
}

#[test]
fn given_a_call_of_the_models_own_when_memory_is_hidden_then_that_one_stays() {
    let mut state = opened(Some(REX), None);
    let own = ToolUse { call_id: "call-of-the-model".into(), ..state.steps[0].tool.clone().unwrap() };
    append(&mut state, vec![StepDraft::tool(StepKind::ToolCall, own)]);
    let seen = without_opening(&state).unwrap();
    assert_eq!(seen.steps.iter().map(|step| step.seq).collect::<Vec<_>>(), [3]);
}

#[test]
fn given_a_fork_that_has_copied_the_reading_of_memory_when_it_goes_on_then_its_model_is_asked_as_its_sources_is() {
    let source = opened(Some(REX), None);
    let run_id = RunId::derive(&["fork"]);
    let forked_from = Some(ForkedFrom { run_id: source.run_id, at_seq: 2 });
    let mut fork = RunState::accepted(&RunAccepted { run_id, request: request(Some("s")), forked_from, at: 0 });
    assert!(fork.apply(&AgentEvent::RunAdvanced(RunAdvanced { run_id, epoch: 0, steps: source.steps.clone() })));
    fork.apply(&AgentEvent::RunClaimed(RunClaimed { run_id, epoch: 1, worker: "w".into(), at: 0 }));
    assert_eq!(asked(&fork), asked(&source));
    assert_eq!(remembered(&fork), 3);
}

#[test]
fn given_a_rule_about_recall_when_a_run_of_a_conversation_begins_then_a_denial_counts_and_a_question_holds_nothing_up()
{
    for (decision, denied) in [("deny", true), ("ask", false), ("allow", false)] {
        let policy = Policy::parse(&format!("[[rule]]\ndecision = \"{decision}\"\ntool = \"memory_*\"\n")).unwrap();
        let mut state = run(Some("s"));
        let Action::Append(drafts) = next(&state, &[], 0) else { panic!("memory is not read first") };
        let drafts = settle(&state, &[], &policy, drafts);
        append(&mut state, drafts);
        if denied {
            let result = state.steps[1].tool.clone().unwrap();
            assert!(result.error.unwrap().contains("not allowed"));
            assert_eq!(asked(&state).messages, asked(&run(None)).messages);
        } else {
            assert_eq!(called(&state).name, MEMORY_RECALL);
        }
    }
}

#[test]
fn given_a_rule_for_an_agent_when_the_supervisor_chose_one_then_the_rule_holds_for_what_it_remembers() {
    let rule = "[[rule]]\ndecision = \"deny\"\ntool = \"memory_recall\"\nagent = \"critic\"\n";
    let policy = Policy::parse(rule).unwrap();
    for (agent, denied) in [("critic", true), ("react", false)] {
        let mut state = routed(agent);
        let Action::Append(drafts) = next(&state, &[], 0) else { panic!("memory is not read behind the choice") };
        let drafts = settle(&state, &[], &policy, drafts);
        append(&mut state, drafts);
        let last = state.steps.last().unwrap().tool.clone().unwrap();
        assert_eq!(last.error.is_some_and(|error| error.contains("not allowed")), denied, "{agent}");
        if !denied {
            assert_eq!(called(&state).name, MEMORY_RECALL);
        }
    }
}

#[test]
fn given_a_run_whose_agent_was_chosen_when_its_memory_is_read_then_its_model_is_asked_as_that_of_a_run_that_named_it() {
    let named = asked(&opened(Some(REX), None));
    let mut chosen = routed("react");
    read_memory(&mut chosen, Some(REX), None);
    assert_eq!((asked(&chosen), remembered(&chosen)), (named.clone(), 3));
    assert_eq!(without_opening(&chosen).unwrap().steps.len(), 1, "the choice stays");
    // As older versions wrote it: the choice behind the reading.
    let mut older = run_of(RunRequest { agent: None, ..request(Some("s")) });
    let steps = opened(Some(REX), None).steps;
    assert!(older.apply(&AgentEvent::RunAdvanced(RunAdvanced { run_id: older.run_id, epoch: 1, steps })));
    append(&mut older, vec![StepDraft::text(StepKind::Route, "react: it fits", None)]);
    assert_eq!(asked(&older), named);
}

#[test]
fn given_much_that_was_recalled_when_it_is_fitted_then_distant_episodes_go_first_and_old_turns_next() {
    let recalled = Recalled {
        summary: Some("s".into()),
        turns: (0..3)
            .map(|n| RecalledTurn { turn_id: None, role: "user".into(), text: format!("{n}{}", "x".repeat(100)) })
            .collect(),
        episodes: (0..3)
            .map(|n| RecalledItem { id: format!("epi_{n}"), text: "y".repeat(100), turn_ids: vec![] })
            .collect(),
    };
    let fit = recalled.clone().within(750);
    assert_eq!((fit.turns.len(), fit.episodes.len()), (3, 2));
    let fit = recalled.clone().within(400);
    assert_eq!((fit.turns.len(), fit.episodes.len()), (2, 0));
    assert!(fit.turns[0].text.starts_with('1'));
    assert_eq!(recalled.within(1).summary.as_deref(), Some("s"));
}

#[test]
fn given_a_prompt_that_does_not_fit_when_memory_is_left_out_then_it_goes_piece_by_piece_and_the_task_stays() {
    let mut state = opened(Some(REX), None);
    let pieces = ["user: a dog", "he is called Rex", "Ann has a dog."];
    let forms = crate::compaction::forms(&state);
    assert_eq!((remembered(&state), forms.len()), (3, 3));
    for (form, gone) in forms.iter().zip(1..) {
        let call = crate::compaction::due(&state, &[], form).unwrap();
        let text = call.messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n");
        for (n, piece) in pieces.iter().enumerate() {
            assert_eq!(text.contains(piece), n >= gone, "{gone} are left out: {piece} in {text}");
        }
        assert!(text.contains("what is my dog called?"));
    }
    let room = crate::compaction::Room::new(Some(100), 10);
    let figures = crate::compaction::Figures { before: 200, after: 90, estimated: true };
    let compacted = crate::compaction::Compacted::new(&state, &forms[1], room, figures);
    assert_eq!((compacted.dropped_memories, compacted.dropped_steps.len()), (2, 0));
    append(&mut state, vec![compacted.step()]);
    assert_eq!(state.compaction(), &forms[1]);
    assert_eq!(crate::compaction::forms(&state), forms[2..]);
}
