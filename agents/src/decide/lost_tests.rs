//! given claims and what lies between them, when a worker asks whether the run is to be given up, then this is the answer.

use riverrun_schemas::RunId;
use riverrun_schemas::agent::{
    AgentEvent, ApprovalPolicy, RunAccepted, RunAdvanced, RunCancelRequested, RunClaimed, RunRequest, RunResumed,
    ToolEffect, ToolUse,
};

use super::*;
use crate::decide::StepDraft;

/// What happens to a run, in order.
#[derive(Debug, Clone, Copy)]
enum Happens {
    /// So many workers claim it, one after the other.
    Claims(u32),
    /// A claim that was made before is read again.
    OldClaim,
    /// A step of this kind is written.
    Step(StepKind),
    /// Somebody asks it to look again.
    Resumed,
    /// Somebody asks it to stop.
    Cancelled,
}
use Happens::{Cancelled, Claims, OldClaim, Resumed, Step};

fn run_id() -> RunId {
    RunId::derive(&["lost"])
}

fn claim(epoch: i64) -> AgentEvent {
    RunClaimed { run_id: run_id(), epoch, worker: format!("w{epoch}"), at: 0 }.into()
}

fn advanced(state: &RunState, kind: StepKind) -> AgentEvent {
    let tool = ToolUse {
        call_id: "c1".into(),
        name: "look".into(),
        arguments_json: "{}".into(),
        effect: ToolEffect::None,
        result_json: None,
        result_blob: None,
        error: None,
        duration_ms: None,
    };
    let is_call = kind == StepKind::ToolCall;
    let draft = if is_call { StepDraft::tool(kind, tool) } else { StepDraft::text(kind, "words", None) };
    let steps = vec![draft.number(state.last_seq() + 1, "react", 0)];
    RunAdvanced { run_id: run_id(), epoch: state.epoch(), steps }.into()
}

fn happens(state: &mut RunState, what: Happens) {
    match what {
        Claims(count) => {
            for _ in 0..count {
                assert!(state.apply(&claim(state.epoch() + 1)));
            }
        }
        OldClaim => assert!(!state.apply(&claim(state.epoch()))),
        Step(kind) => assert!(state.apply(&advanced(state, kind))),
        Resumed => assert!(state.apply(&RunResumed { run_id: run_id(), at: 0 }.into())),
        Cancelled => assert!(state.apply(&RunCancelRequested { run_id: run_id(), reason: None, at: 0 }.into())),
    }
}

fn after(provider: Option<&str>, history: &[Happens]) -> RunState {
    let request = RunRequest {
        task: "x".into(),
        agent: Some("react".into()),
        provider: provider.map(str::to_owned),
        model: Some("small".into()),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    };
    let mut state = RunState::accepted(&RunAccepted { run_id: run_id(), request, forked_from: None, at: 0 });
    history.iter().for_each(|what| happens(&mut state, *what));
    state
}

#[test]
fn given_claims_when_a_worker_asks_then_only_ten_in_a_row_before_its_own_end_the_run() {
    for (history, suspect, lost) in [
        (&[] as &[Happens], false, false),
        (&[Claims(1)], false, false),
        (&[Claims(2)], false, false),
        (&[Claims(3)], true, false),
        (&[Claims(10)], true, false),
        (&[Claims(10), OldClaim], true, false),
        (&[Claims(11)], true, true),
        (&[Claims(500)], true, true),
        // Whatever is written between them is progress.
        (&[Claims(10), Step(StepKind::Thought), Claims(1)], false, false),
        (&[Claims(10), Step(StepKind::Thought), Claims(10)], true, false),
        (&[Claims(10), Step(StepKind::ToolCall), Claims(11)], true, true),
        (&[Claims(10), Resumed, Claims(10)], true, false),
        (&[Claims(10), Resumed, Claims(11)], true, true),
        // What only has to be ended is ended as it would have been.
        (&[Claims(11), Cancelled], false, false),
        (&[Claims(1), Cancelled, Claims(20)], true, false),
        (&[Claims(1), Step(StepKind::Answer), Claims(20)], true, false),
    ] {
        let state = after(None, history);
        assert_eq!((is_suspect(&state), worker_lost(&state).is_some()), (suspect, lost), "{history:?}");
    }
}

#[test]
fn given_a_run_that_is_given_up_then_its_end_says_at_what_step_and_at_what_work() {
    for (provider, history, words) in [
        (None, &[Claims(11)][..], "10 workers in a row ended while they worked on step 1 (a model call of small)"),
        (
            Some("local"),
            &[Claims(13)],
            "12 workers in a row ended while they worked on step 1 (a model call of local/small)",
        ),
        (
            None,
            &[Claims(1), Step(StepKind::Thought), Step(StepKind::ToolCall), Claims(11)],
            "10 workers in a row ended while they worked on step 3 (a call of look)",
        ),
    ] {
        let end = worker_lost(&after(provider, history)).unwrap();
        let error = end.error.unwrap();
        assert_eq!(
            (end.status, end.stop_reason, error.code.as_str()),
            (RunOutcome::Failed, "worker_lost", "worker_lost")
        );
        assert_eq!(error.message, words);
        assert!(error.hint.unwrap().contains(&format!("riverrun runs fork {}", run_id())));
    }
}

#[test]
fn given_a_snapshot_when_it_is_restored_then_claims_are_counted_on_and_one_without_the_count_has_none() {
    let state = after(None, &[Claims(10)]);
    let mut json = serde_json::to_value(&state).unwrap();
    let mut restored: RunState = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(restored, state);
    happens(&mut restored, Claims(1));
    assert!(worker_lost(&restored).is_some());

    assert!(json.as_object_mut().unwrap().remove("claims_without_progress").is_some());
    let older: RunState = serde_json::from_value(json).unwrap();
    assert_eq!(older.claims_without_progress(), 0);
}
