//! The fold of long runs, of forks, and of snapshots.

use riverrun_schemas::agent::*;

use super::*;

fn run_id() -> RunId {
    RunId::derive(&["long"])
}

fn accepted(forked_from: Option<ForkedFrom>) -> RunAccepted {
    let request = RunRequest {
        task: "count".into(),
        max_iters: Some(100),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    };
    RunAccepted { run_id: run_id(), request, forked_from, at: 0 }
}

fn claimed(epoch: i64) -> AgentEvent {
    RunClaimed { run_id: run_id(), epoch, worker: "w".into(), at: 0 }.into()
}

fn step(seq: i64, kind: StepKind, call: Option<&str>) -> Step {
    let tool = call.map(|arguments| ToolUse {
        call_id: format!("call-{arguments}-{}", seq - i64::from(kind == StepKind::ToolResult)),
        name: "look".into(),
        arguments_json: arguments.into(),
        effect: ToolEffect::None,
        result_json: (kind == StepKind::ToolResult).then(|| "1".into()),
        result_blob: None,
        error: None,
        duration_ms: None,
    });
    Step { seq, kind, agent: "react".into(), text: Some(format!("react: {seq}")), tool, usage: None, at: seq }
}

fn advanced(epoch: i64, steps: Vec<Step>) -> AgentEvent {
    RunAdvanced { run_id: run_id(), epoch, steps }.into()
}

/// Thought, call and result with arguments of their own.
fn round(epoch: i64, first: i64) -> AgentEvent {
    let arguments = first.to_string();
    advanced(
        epoch,
        vec![
            step(first, StepKind::Thought, None),
            step(first + 1, StepKind::ToolCall, Some(&arguments)),
            step(first + 2, StepKind::ToolResult, Some(&arguments)),
        ],
    )
}

fn long(rounds: i64) -> RunState {
    let mut state = RunState::accepted(&accepted(None));
    state.apply(&claimed(1));
    assert!(state.apply(&advanced(1, vec![step(1, StepKind::Route, None)])));
    for n in 0..rounds {
        assert!(state.apply(&round(1, 2 + 3 * n)), "round {n}");
    }
    state
}

#[test]
fn a_long_run_keeps_its_newest_steps_its_counts_and_the_choice_of_its_agent() {
    let state = long(5_000);
    assert_eq!((state.last_seq(), state.iterations(), state.agent()), (15_001, 5_000, Some("react")));
    assert!(state.steps.len() < 600, "{} steps are kept", state.steps.len());
    assert_eq!(state.steps[0].kind, StepKind::Route);
    assert_eq!(state.steps.last().unwrap().seq, 15_001);
    assert!(state.steps.is_sorted_by_key(|step| step.seq));
    assert!(!state.exhausted() || state.iterations() >= 100);
}

#[test]
fn plans_and_reflections_outlive_the_steps_around_them_up_to_a_number() {
    let mut state = long(1);
    for n in 0..1_000 {
        let first = state.last_seq() + 1;
        assert!(state.apply(&advanced(1, vec![step(first, StepKind::Reflection, None)])));
        assert!(state.apply(&round(1, first + 1)), "round {n}");
    }
    let old = state.steps.iter().take_while(|step| step.kind != StepKind::Thought).count();
    assert!((1..=100).contains(&old), "{old}");
    assert_eq!(state.steps[0].kind, StepKind::Route);
}

#[test]
fn a_snapshot_folds_on_as_the_state_that_it_was_made_of() {
    for rounds in [0, 1, 300] {
        let state = long(rounds);
        let snapshot = serde_json::to_vec(&state).unwrap();
        let mut restored: RunState = serde_json::from_slice(&snapshot).unwrap();
        assert_eq!(restored, state);
        let mut state = state;
        for event in [
            claimed(2),
            round(1, state.last_seq() + 1),
            round(2, state.last_seq() + 1),
            RunCancelRequested { run_id: run_id(), reason: None, at: 1 }.into(),
        ] {
            assert_eq!(restored.apply(&event), state.apply(&event));
            assert_eq!(restored, state);
        }
    }
}

#[test]
fn a_forks_copied_steps_are_history_and_use_up_nothing() {
    let from = ForkedFrom { run_id: RunId::derive(&["source"]), at_seq: 6 };
    let mut state = RunState::accepted(&accepted(Some(from)));
    assert!(state.history_missing());
    assert!(state.apply(&round(0, 1)));
    assert!(state.history_missing());
    assert!(state.apply(&round(0, 4)));
    assert!(!state.history_missing());
    assert!(state.apply(&claimed(1)));
    assert_eq!((state.last_seq(), state.iterations(), state.open_calls().len()), (6, 0, 0));
    assert!(state.apply(&round(1, 7)));
    assert_eq!(state.iterations(), 1);
}

fn left_out(seq: i64, steps: &[i64]) -> Step {
    let compacted = Compacted { dropped_steps: steps.to_vec(), ..Compacted::default() };
    let step = step(seq, StepKind::Compaction, None);
    Step { text: compacted.step().text, ..step }
}

#[test]
fn what_a_run_has_left_out_stays_out_until_its_steps_are_forgotten_and_a_fork_looks_for_itself() {
    let mut state = long(2);
    assert!(state.apply(&advanced(1, vec![left_out(8, &[3, 4])])));
    assert!(state.apply(&advanced(1, vec![left_out(9, &[6, 7])])));
    let mut both = Compaction::default();
    both.take_in(&Compacted { dropped_steps: vec![3, 4, 6, 7], ..Compacted::default() });
    assert_eq!((state.compaction(), state.last_seq(), state.steps.len()), (&both, 9, 7));
    for n in 0..300 {
        assert!(state.apply(&round(1, 10 + 3 * n)));
    }
    assert_eq!(state.compaction(), &Compaction::default());

    let from = ForkedFrom { run_id: RunId::derive(&["source"]), at_seq: 4 };
    let mut fork = RunState::accepted(&accepted(Some(from)));
    assert!(fork.apply(&round(0, 1)));
    assert!(fork.apply(&advanced(0, vec![left_out(4, &[2, 3])])));
    assert!(!fork.history_missing());
    assert_eq!(fork.compaction(), &Compaction::default());
}

#[test]
fn the_same_call_twice_is_a_loop_however_far_apart_within_reason() {
    let mut state = long(400);
    let arguments = "2".to_owned();
    assert_eq!(state.same_calls("look", &arguments), 1);
    let first = state.last_seq() + 1;
    state.apply(&advanced(1, vec![step(first, StepKind::ToolCall, Some(&arguments))]));
    assert_eq!(state.same_calls("look", &arguments), 2);
    assert_eq!(state.stop_reason(), "loop_detected");
}

#[test]
fn given_a_call_that_changes_something_when_thousands_of_others_follow_then_it_is_known_that_it_was_made() {
    let mut state = long(1);
    let pay = Step {
        tool: step(5, StepKind::ToolCall, Some("pay"))
            .tool
            .map(|tool| ToolUse { effect: ToolEffect::External, ..tool }),
        ..step(5, StepKind::ToolCall, None)
    };
    assert!(state.apply(&advanced(1, vec![pay, step(6, StepKind::ToolResult, Some("pay"))])));
    for n in 0..3_000 {
        assert!(state.apply(&round(1, 7 + 3 * n)));
    }
    assert_eq!(state.same_calls("look", "pay"), 1, "it is not made twice, however long ago it was");
    assert_eq!(state.same_calls("look", "7"), 0, "one that only looks is forgotten");
}

fn pay(seq: i64, kind: StepKind) -> Step {
    let step = step(seq, kind, Some("pay"));
    let tool = step.tool.map(|tool| ToolUse { call_id: "c".into(), effect: ToolEffect::External, ..tool });
    Step { tool, ..step }
}

/// A result of [`pay`] that is an error.
fn unpaid(seq: i64, result_json: Option<&str>, duration_ms: Option<i64>) -> Step {
    let step = pay(seq, StepKind::ToolResult);
    let result_json = result_json.map(str::to_owned);
    let tool = step.tool.map(|tool| ToolUse { result_json, error: Some("no".into()), duration_ms, ..tool });
    Step { tool, ..step }
}

#[test]
fn given_calls_that_failed_when_they_are_counted_then_those_that_never_left_were_not_made_and_all_others_may_have_been()
{
    for (what, result, made) in [
        ("it reached nobody", unpaid(6, Some(NOT_SENT), Some(1)), 0),
        ("it was refused", unpaid(6, None, Some(NOT_MADE_MS)), 0),
        ("the tool failed", unpaid(6, None, Some(1)), 1),
        ("an older version wrote no time", unpaid(6, None, None), 1),
        ("it was made", pay(6, StepKind::ToolResult), 1),
    ] {
        let mut state = long(1);
        assert!(state.apply(&advanced(1, vec![pay(5, StepKind::ToolCall), result])));
        assert_eq!(state.same_calls("look", "pay"), made, "{what}");
        assert!(state.asked_for("look", "pay") || made == 0, "{what}");
    }
}

#[test]
fn given_a_question_about_a_call_when_its_next_try_never_left_then_it_counts_where_its_outcome_was_not_known() {
    for (outcome_unknown, refused, made) in [(false, false, 0), (true, false, 1), (false, true, 1), (true, true, 1)] {
        let mut state = long(1);
        let question = pay(6, StepKind::Approval);
        let error = outcome_unknown.then(|| "its outcome is not known".to_owned());
        let question =
            Step { tool: question.tool.map(|tool| ToolUse { error, result_json: None, ..tool }), ..question };
        assert!(state.apply(&advanced(1, vec![pay(5, StepKind::ToolCall), question])));
        let decision = if refused { Decision::Deny } else { Decision::Approve };
        assert!(state.apply(&RunApprovalDecided { run_id: run_id(), step: 6, decision, note: None, at: 0 }.into()));
        assert!(state.apply(&claimed(2)));
        let result = if refused { unpaid(7, None, Some(NOT_MADE_MS)) } else { unpaid(7, Some(NOT_SENT), Some(1)) };
        assert!(state.apply(&advanced(2, vec![result])));
        assert_eq!(state.same_calls("look", "pay"), made, "unknown: {outcome_unknown}, refused: {refused}");
    }
}

#[test]
fn given_a_call_that_is_refused_again_and_again_when_it_is_counted_then_it_is_a_loop_though_it_was_never_made() {
    let mut state = long(1);
    for seq in [5, 7] {
        assert_eq!(state.stop_reason(), "answered");
        let refused = unpaid(seq + 1, None, Some(NOT_MADE_MS));
        assert!(state.apply(&advanced(1, vec![pay(seq, StepKind::ToolCall), refused])));
    }
    assert_eq!((state.same_calls("look", "pay"), state.stop_reason()), (0, "loop_detected"));
}

#[test]
fn given_a_run_of_50_000_steps_when_it_goes_on_then_what_decisions_are_taken_from_has_not_grown() {
    let snapshot = |state: &RunState| serde_json::to_vec(state).unwrap().len();
    let (shorter, longest) = (long(2_000), long(16_667));
    assert_eq!(longest.last_seq(), 50_002);
    assert_eq!(longest.same_calls("look", "2"), 0, "old calls are forgotten");
    assert!(longest.steps.len() < 600, "{} steps are kept", longest.steps.len());
    let (before, after) = (snapshot(&shorter), snapshot(&longest));
    // Longer numbers, and not a step more or less than between two times that old ones are dropped.
    assert!(after < 2 * before, "{before} bytes became {after}");
    let mut restored: RunState = serde_json::from_slice(&serde_json::to_vec(&longest).unwrap()).unwrap();
    let mut longest = longest;
    let next = round(1, 50_003);
    assert!(restored.apply(&next) && longest.apply(&next));
    assert_eq!(restored, longest, "and a snapshot of it folds on as the run itself");
}

/// `cargo test -p riverrun-agents --lib -- --ignored a_step_of_a_long_run --nocapture` prints the figures.
#[test]
#[ignore = "measures"]
#[expect(clippy::print_stdout, reason = "the figures are what this is for")]
fn a_step_of_a_long_run_costs_what_one_of_a_short_run_does() {
    let cost = |rounds: i64| {
        let mut state = long(rounds);
        let first = state.last_seq() + 1;
        let events: Vec<_> = (0..300).map(|n| round(1, first + 3 * n)).collect();
        let started = std::time::Instant::now();
        for event in &events {
            state.apply(event);
            std::hint::black_box(crate::decide::next(&state, &[], 0));
        }
        (started.elapsed() / 900, serde_json::to_vec(&state).unwrap().len())
    };
    for rounds in [3, 30, 300, 3_000, 16_667] {
        let (each, snapshot) = cost(rounds);
        println!("{:>6} steps before: {each:?} a step, snapshot {snapshot} bytes", rounds * 3 + 1);
    }
}
